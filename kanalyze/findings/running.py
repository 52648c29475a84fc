"""Running the rules: what they find, less what is ignored, proven, in order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kanalyze.errors import nearest
from kanalyze.findings import catalogue, ignoring
from kanalyze.findings.profile import Profile
from kanalyze.profiles import document as profile_doc
from kanalyze.profiles.collect import Collector
from kanalyze.results.kernel import Finding, UnknownField

if TYPE_CHECKING:
    from kanalyze.findings.facts import Facts

SEVERITIES = ("error", "warning", "info")
"""From the gravest on."""

_NOT_TRIED = "not tried (--no-proof)"


@dataclass(frozen=True)
class Wanted:
    """What is asked of the rules.

    Attributes:
        ignore: ids that are left out.
        prove: whether to make the changes that findings advise.
    """

    ignore: Collection[str] = ()
    prove: bool = True


def of_kernel(facts: Facts, wanted: Wanted) -> tuple[tuple[Finding, ...], list[UnknownField]]:
    """What the rules find in a kernel, the gravest first, and the rules that failed."""
    return _run(facts, wanted, lambda rule: [rule.check_kernel])


def of_launch(facts: Facts, wanted: Wanted) -> tuple[tuple[Finding, ...], list[UnknownField]]:
    """The same for a launch: what is found in the kernel, too."""
    return _run(facts, wanted, lambda rule: [rule.check_kernel, rule.check_launch])


def of_profile(
    rows: list[profile_doc.Row], collector: Collector, ignore: Collection[str] = ()
) -> list[profile_doc.Finding]:
    """What the rules find in a profile, the most important first.

    Args:
        rows: the kernels that are shown.
        collector: everything that was read.
        ignore: ids of findings that are left out.
    """
    total = collector.total.time_us
    if not total or not rows:
        return []
    profile = Profile(rows, collector, total)
    found = [
        finding
        for rule in catalogue.rules()
        if rule.check_profile is not None and rule.id not in ignore
        for finding in rule.check_profile(profile)
    ]
    return sorted(found, key=lambda f: (SEVERITIES.index(f.severity), -f.numbers.get("share", 0.0)))


def _run(
    facts: Facts,
    wanted: Wanted,
    checks: Callable[[catalogue.Rule], Iterable[catalogue.Check | None]],
) -> tuple[tuple[Finding, ...], list[UnknownField]]:
    found: list[tuple[catalogue.Rule, Finding]] = []
    failed: list[UnknownField] = []
    odd: set[str] = set()  # about ids in comments

    def fault(rule: catalogue.Rule, error: Exception) -> None:  # must not cost the report
        what = f"{type(error).__name__}: {error}"[:200]
        failed.append(UnknownField("findings", f"{rule.id} failed (please report it): {what}"))

    for rule in catalogue.rules():
        if rule.id in wanted.ignore:
            continue
        try:
            mine = [f for check in checks(rule) if check is not None for f in check(facts)]
            said = [(f, facts.comments(f)) for f in mine]
            found += [(rule, f) for f, texts in said if not ignoring.left_out(rule.id, texts)]
            odd |= {what for _, texts in said for what in unknown_ids(texts)}
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
    failed += [UnknownField("findings", what) for what in sorted(odd)]
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
    saved = finding.saves.get("time_us", 0.0) * 1e9
    saved += finding.saves.get("bytes", 0.0) + finding.saves.get("l1_bytes", 0.0)
    return SEVERITIES.index(finding.severity), -saved


def unknown_ids(texts: Iterable[str]) -> list[str]:
    """What is wrong with ids in some comments, in words."""
    named = {id_ for ids in ignoring.said(texts) if ids is not None for id_ in ids}
    return [
        f"'kanalyze: ignore[{id_}]' leaves nothing out: {nearest(id_, catalogue.RULES)}"
        for id_ in sorted(named - set(catalogue.RULES))
    ]
