"""Running the rules: what they find, less what is ignored, proven, in order."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kanalyze.findings import catalogue
from kanalyze.report.document import Finding, Unknown

if TYPE_CHECKING:
    from kanalyze.findings.facts import Facts

SEVERITIES = ("error", "warning", "info")
"""From the gravest on."""

_NOT_TRIED = "not tried (--no-proof)"
_IGNORED = re.compile(r"kanalyze:\s*ignore(?:\[([^\]]*)\])?", re.IGNORECASE)


@dataclass(frozen=True)
class Wanted:
    """What is asked of the rules.

    Attributes:
        ignore: ids that are left out.
        prove: whether to make the changes that findings advise.
    """

    ignore: Collection[str] = ()
    prove: bool = True


def of_kernel(facts: Facts, wanted: Wanted) -> tuple[tuple[Finding, ...], list[Unknown]]:
    """What the rules find in a kernel, the gravest first, and the rules that failed."""
    return _run(facts, wanted, lambda rule: [rule.check_kernel])


def of_launch(facts: Facts, wanted: Wanted) -> tuple[tuple[Finding, ...], list[Unknown]]:
    """The same for a launch: what is found in the kernel, too."""
    return _run(facts, wanted, lambda rule: [rule.check_kernel, rule.check_launch])


def _run(
    facts: Facts,
    wanted: Wanted,
    checks: Callable[[catalogue.Rule], Iterable[catalogue.Check | None]],
) -> tuple[tuple[Finding, ...], list[Unknown]]:
    found: list[Finding] = []
    failed: list[Unknown] = []
    for rule in catalogue.rules():
        if rule.id in wanted.ignore:
            continue
        try:
            mine = [f for check in checks(rule) if check is not None for f in check(facts)]
            mine = [f for f in mine if not ignored(facts, f)]
            if rule.prove is not None:
                mine = [p for f in mine if (p := _proven(rule.prove, facts, f, wanted)) is not None]
        except Exception as error:  # a fault of ours must not cost the report
            what = f"{type(error).__name__}: {error}"[:200]
            failed.append(Unknown("findings", f"{rule.id} failed (please report it): {what}"))
            continue
        found += mine
    return tuple(sorted(found, key=_order)), failed


def _proven(
    prove: Callable[[Facts, Finding], Finding | None],
    facts: Facts,
    finding: Finding,
    wanted: Wanted,
) -> Finding | None:
    if not wanted.prove:
        if finding.proof is not None:  # counted without making the change
            return finding
        return replace(finding, unproven=_NOT_TRIED)
    return prove(facts, finding)


def _order(finding: Finding) -> tuple[int, float]:
    """The gravest first; among equals those that save the most time, then the most bytes."""
    saved = finding.saves.get("time_us", 0.0) * 1e9 + finding.saves.get("bytes", 0.0)
    return SEVERITIES.index(finding.severity), -saved


def ignored(facts: Facts, finding: Finding) -> bool:
    """Whether a comment in the finding's line, of the source or the PTX, says to leave it out.

    ``kanalyze: ignore[ID]`` (several ids with commas between), or ``kanalyze: ignore`` for all.
    """
    lines = facts.subject.module.text.splitlines() if finding.line else []
    texts = [facts.source_line(finding)]
    texts.append(lines[finding.line - 1] if 0 < finding.line <= len(lines) else None)
    for text in texts:
        said = _IGNORED.search(text) if text else None
        if said is None:
            continue
        if said[1] is None:
            return True
        ids = {part.strip().lower().replace("_", "-") for part in said[1].split(",")}
        if finding.id in ids:
            return True
    return False
