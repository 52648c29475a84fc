"""``--format sarif`` and ``--format github``."""

from __future__ import annotations

from collections.abc import Sequence

from kanalyze.render.findings_annotations import LocatedFinding, RuleMetadata, github, sarif

FORMATS = ("sarif", "github")


def render(findings: Sequence[LocatedFinding], format_: str) -> str:
    """Findings in one of `FORMATS`."""
    if format_ == "github":
        return github(findings)
    import kanalyze
    from kanalyze.findings import catalogue

    used = dict.fromkeys(item.finding.id for item in findings)
    rules = [RuleMetadata(r.id, r.title, r.text) for r in map(catalogue.explanation, used)]
    return sarif(findings, rules, kanalyze.__version__)
