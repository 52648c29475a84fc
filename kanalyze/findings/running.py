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
    found: list[tuple[catalogue.Rule, Finding]] = []
    failed: list[Unknown] = []

    def fault(rule: catalogue.Rule, error: Exception) -> None:  # must not cost the report
        what = f"{type(error).__name__}: {error}"[:200]
        failed.append(Unknown("findings", f"{rule.id} failed (please report it): {what}"))

    for rule in catalogue.rules():
        if rule.id in wanted.ignore:
            continue
        try:
            mine = [f for check in checks(rule) if check is not None for f in check(facts)]
            found += [(rule, f) for f in mine if not ignored(facts, f)]
        except Exception as error:
            fault(rule, error)
    proven: list[Finding] = []
    for rule, finding in sorted(found, key=_promise):
        try:
            made = _proven(rule, facts, finding, wanted)
        except Exception as error:
            fault(rule, error)
            continue
        proven += [made] if made is not None else []
    return tuple(sorted(proven, key=_order)), failed


def _promise(pair: tuple[catalogue.Rule, Finding]) -> tuple[int, bool]:
    """What to prove first: the gravest, then what the launch as a whole costs."""
    rule, finding = pair
    return SEVERITIES.index(finding.severity), rule.check_launch is None


def _proven(rule: catalogue.Rule, facts: Facts, finding: Finding, wanted: Wanted) -> Finding | None:
    if rule.prove is None:
        return finding
    if not wanted.prove:
        if finding.proof is not None:  # counted without making the change
            return finding
        return replace(finding, unproven=_NOT_TRIED)
    facts.budget.refused.clear()
    proven = rule.prove(facts, finding)
    if not facts.budget.refused or (proven is not None and proven.proof is not None):
        return proven
    return replace(finding, unproven=facts.budget.said)


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
