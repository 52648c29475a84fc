"""``--format sarif`` and ``--format github``."""

from __future__ import annotations

from collections.abc import Sequence

from kanalyze.render.findings_annotations import About, Found, github, sarif

FORMATS = ("sarif", "github")


def render(found: Sequence[Found], format_: str) -> str:
    """Findings in one of `FORMATS`."""
    if format_ == "github":
        return github(found)
    import kanalyze
    from kanalyze.findings import catalogue

    used = dict.fromkeys(item.finding.id for item in found)
    rules = [About(r.id, r.title, r.text) for r in map(catalogue.rule, used)]
    return sarif(found, rules, kanalyze.__version__)
