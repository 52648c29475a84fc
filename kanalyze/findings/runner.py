"""Running the rules: what they find, less what is ignored, proven, in order."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kanalyze.errors import nearest
from kanalyze.findings import catalogue, suppressions
from kanalyze.findings.profile import Profile
from kanalyze.profiles.collector import Collector
from kanalyze.results.kernel import Finding, UnknownField
from kanalyze.results.profile import ProfiledKernel, ProfileFinding

if TYPE_CHECKING:
    from kanalyze.findings.facts import Facts
    from kanalyze.findings.rule import Rule

SEVERITIES = ("error", "warning", "info")
"""The most severe first."""

_FAILS = "launch-mismatch"
_NOT_TRIED = "not tried (--no-proof)"


@dataclass(frozen=True)
class RuleOptions:
    """What is asked of the rules.

    Attributes:
        ignore: ids that are left out.
        prove: whether to make the changes that findings advise.
    """

    ignore: Collection[str] = ()
    prove: bool = True


def of_kernel(facts: Facts, options: RuleOptions) -> tuple[tuple[Finding, ...], list[UnknownField]]:
    """What the rules find in a kernel, the most severe first, and the rules that failed.

    Where its launch is known they judge by the estimate of it, as `of_launch` does; that is made
    only where something was found.
    """
    result = _found(facts, options, "ptx")
    if result.findings and facts.in_launch is not facts:
        facts = facts.in_launch
        result = _found(facts, options, "ptx")
    return _proven(facts, options, result)


def of_launch(facts: Facts, options: RuleOptions) -> tuple[tuple[Finding, ...], list[UnknownField]]:
    """The same for a launch: what is found in the kernel, too."""
    return _proven(facts, options, _found(facts, options, "traffic"))


def of_profile(
    rows: list[ProfiledKernel], collector: Collector, ignore: Collection[str] = ()
) -> list[ProfileFinding]:
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
    findings = [
        finding
        for rule in catalogue.profile_rules()
        if rule.id not in ignore
        for finding in rule.check(profile)
    ]
    return sorted(
        findings, key=lambda f: (SEVERITIES.index(f.severity), -f.numbers.get("share", 0.0))
    )


@dataclass(frozen=True)
class _Found:
    """What the rules found, not yet proven, and the rules that failed."""

    findings: list[tuple[Rule, Finding]] = field(default_factory=list)
    failed: list[UnknownField] = field(default_factory=list)

    def fault(self, rule: Rule, error: Exception) -> None:  # must not cost the report
        what = f"{type(error).__name__}: {error}"[:200]
        self.failed.append(UnknownField("findings", f"{rule.id} failed (please report it): {what}"))


def _found(facts: Facts, options: RuleOptions, command: str) -> _Found:
    result = _Found()
    wrong_ids: set[str] = set()  # in comments
    for rule in catalogue.rules(command):
        if rule.id in options.ignore:
            continue
        checks = [rule.check_kernel, rule.check_launch if command == "traffic" else None]
        try:
            for finding in [f for check in checks if check is not None for f in check(facts)]:
                comments = facts.comments(finding)
                wrong_ids |= set(unknown_ids(comments))
                if not suppressions.suppressed(rule.id, comments):
                    result.findings.append((rule, finding))
        except Exception as error:
            result.fault(rule, error)
    result.failed.extend(UnknownField("findings", what) for what in sorted(wrong_ids))
    return result


def _proven(
    facts: Facts, options: RuleOptions, result: _Found
) -> tuple[tuple[Finding, ...], list[UnknownField]]:
    proven: list[tuple[Rule, Finding]] = []
    for rule, finding in sorted(result.findings, key=_promise):
        if any(other.explains and other.explains(cause, finding) for other, cause in proven):
            continue
        try:
            outcome = _outcome(rule, facts, finding, options)
        except Exception as error:
            result.fault(rule, error)
            continue
        proven += [(rule, outcome)] if outcome is not None else []
    return tuple(sorted((f for _, f in proven), key=_order)), result.failed


def _promise(pair: tuple[Rule, Finding]) -> tuple[bool, int, bool]:
    """What to prove first: causes of others, the most severe, what the launch as a whole costs."""
    rule, finding = pair
    return rule.explains is None, SEVERITIES.index(finding.severity), rule.check_launch is None


def _outcome(rule: Rule, facts: Facts, finding: Finding, options: RuleOptions) -> Finding | None:
    if rule.prove is None:
        return finding
    if not options.prove:
        if finding.proof is not None:  # counted without making the change
            return finding
        return replace(finding, unproven=_NOT_TRIED)
    facts.budget.refused.clear()
    proven = rule.prove(facts, finding)
    if not facts.budget.refused or (proven is not None and proven.proof is not None):
        return proven
    return replace(finding, unproven=facts.budget.reason)


def _order(finding: Finding) -> tuple[int, bool, float]:
    """The most severe first; among equals a launch that fails, then what saves most time, bytes."""
    saved = finding.saves.get("time_us", 0.0) * 1e9
    saved += finding.saves.get("bytes", 0.0) + finding.saves.get("l1_bytes", 0.0)
    return SEVERITIES.index(finding.severity), finding.id != _FAILS, -saved


def unknown_ids(texts: Iterable[str]) -> list[str]:
    """What is wrong with ids in some comments, in words."""
    named = {id_ for ids in suppressions.ids_in(texts) if ids is not None for id_ in ids}
    return [
        f"'kanalyze: ignore[{id_}]' leaves nothing out: {nearest(id_, catalogue.RULES)}"
        for id_ in sorted(named - set(catalogue.RULES))
    ]
