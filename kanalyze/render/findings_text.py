"""Findings as text, for the report on a kernel and for that on a launch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from kanalyze.results.kernel import Analysed, Finding, Proof
from kanalyze.text.numbers import decimal, whole
from kanalyze.text.page import LABEL, NBSP, Page

_STYLES = {"error": "bad", "warning": "warn", "info": "source"}
_WORDS = {
    "bytes": "B", "time_us": "µs", "sectors": "sectors", "wavefronts": "wavefronts",
    "requests": "requests", "instructions": "instructions", "l1_bytes": "B through L1",
}  # fmt: skip


def add(page: Page, findings: Sequence[Finding], analysed: Analysed) -> None:
    """Add the findings; where there are none, what was looked at.

    Args:
        page: takes the lines.
        findings: the most severe first.
        analysed: how many accesses are known, out of how many.
    """
    missing = analysed.missing
    left = f"; {missing} of {analysed.of} accesses are not known" if missing else ""
    lead = [(f"{'findings':<{LABEL}} ", "label")]
    page.section("findings")
    if not findings:
        style = "warn" if missing else "good"
        page.line((f"none{left}", style), lead=lead)
        return
    page.line(
        (numbers(findings), "title"), (f"{left}; kanalyze explain ID tells more", "dim"), lead=lead
    )
    for finding in findings:
        _one(page, finding)


def numbers(findings: Sequence[Finding]) -> str:
    """How many there are: ``1 error, 2 warnings``."""
    counted = Counter(finding.severity for finding in findings)
    return ", ".join(
        f"{n}{NBSP}{severity}{'s' if n > 1 and severity != 'info' else ''}"
        for severity, n in counted.items()
    )


def place(finding: Finding) -> str:
    """Where it is: ``gelu.py:31, PTX line 57``."""
    parts = []
    if finding.source is not None:
        parts.append(f"{finding.source.file}:{finding.source.line}")
    if finding.line:
        parts.append(f"PTX line {finding.line}")
    return ", ".join(parts)


def proven(proof: Proof) -> str:
    """What the change did: ``recompiled with N divisible by 16: loads 8 → 2``."""
    parts = [
        f"{name} {amount(proof.before[name])} → {amount(proof.after[name])}"
        for name in proof.before
        if name in proof.after
    ]
    return f"{proof.method} with {proof.change}: {', '.join(parts)}"


def saved(saves: Mapping[str, float]) -> str:
    """What a change would save: ``1,024 sectors, 32,768 B``."""
    return ", ".join(f"{amount(n)}{NBSP}{_WORDS.get(k, k)}" for k, n in saves.items())


def amount(number: float) -> str:
    """A count exactly, anything else with three digits."""
    return whole(number) if float(number).is_integer() else decimal(number)


def _one(page: Page, finding: Finding) -> None:
    style = _STYLES.get(finding.severity, "warn")
    where = place(finding)
    page.line(
        (f"{finding.severity}[{finding.id}] ", style),
        (f"{where}: " if where else "", "file"),
        (finding.message, ""),
        hang=2,
    )
    if finding.advice:
        page.line((finding.advice, "note"), lead=[("  > ", "note")])
    if finding.proof is not None:
        page.line((proven(finding.proof), "good"), lead=[("  = ", "good")])
    elif finding.unproven:
        page.line((f"not proven: {finding.unproven}", "dim"), lead=[("  = ", "dim")])
    if finding.saves:
        page.line((f"would save {saved(finding.saves)}", "good"), lead=[("  = ", "good")])
