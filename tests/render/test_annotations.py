"""SARIF and GitHub's commands: whole logs of findings, by sections of the SARIF 2.1.0 standard."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kanalyze.render.findings_annotations import LocatedFinding, RuleMetadata, github, sarif
from kanalyze.results.kernel import Finding, Proof, Source

RULES = [RuleMetadata("narrow-access", "Narrow.", "What it says\n…")]


def finding(severity: str = "warning", source: Source | None = None, line: int = 7) -> Finding:
    return Finding(
        "narrow-access", severity, line, "8 loads, 100 % narrow", "pad n.", source, {"accesses": 8},
        Proof("recompiled", "n divisible by 16", {"loads": 8}, {"loads": 2}), None,
        {"sectors": 1024},
    )  # fmt: skip


def log(*findings: Finding, file: str = "k.ptx") -> dict[str, Any]:
    data: dict[str, Any] = json.loads(
        sarif([LocatedFinding(f, "gelu", file) for f in findings], RULES, "1.2.3")
    )
    return data


TEXT = (
    "gelu: 8 loads, 100 % narrow. pad n. recompiled with n divisible by 16: loads 8 → 2. "
    "would save 1,024\u00a0sectors"
)


def test_a_log_is_as_the_standard_says() -> None:
    """Sections 3.13 sarifLog, 3.14 run, 3.19 toolComponent, 3.27 result, 3.28 location."""
    assert log(finding()) == {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "kanalyze", "version": "1.2.3",
                "rules": [{
                    "id": "narrow-access",
                    "shortDescription": {"text": "Narrow."},
                    "fullDescription": {"text": "What it says\n…"},
                }],
            }},
            "columnKind": "unicodeCodePoints",
            "results": [{
                "ruleId": "narrow-access", "ruleIndex": 0, "level": "warning",
                "message": {"text": TEXT},
                "locations": [{
                    "physicalLocation": {
                        "artifactLocation": {"uri": "k.ptx"}, "region": {"startLine": 7},
                    },
                    "logicalLocations": [{"name": "gelu", "kind": "function"}],
                }],
                "properties": {"numbers": {"accesses": 8}, "saves": {"sectors": 1024}},
            }],
        }],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("severity", "level", "command"),
    [("error", "error", "error"), ("warning", "warning", "warning"), ("info", "note", "notice")],
)
def test_severities(severity: str, level: str, command: str) -> None:
    (result,) = log(finding(severity))["runs"][0]["results"]
    assert result["level"] == level
    assert github([LocatedFinding(finding(severity), "gelu", "k.ptx")]).startswith(f"::{command} ")


@pytest.mark.parametrize(
    ("source", "line", "file", "uri", "region"),
    [
        (Source("a b.py", 31, 5), 7, "k.ptx", "a%20b.py", {"startLine": 31, "startColumn": 5}),
        (Source("gelu.py", 31, 0), 7, "k.ptx", "gelu.py", {"startLine": 31}),
        (None, 7, "100%é.ptx", "100%25%C3%A9.ptx", {"startLine": 7}),
        (None, 0, "k.cubin", "k.cubin", None),
    ],
)  # fmt: skip
def test_places(
    source: Source | None, line: int, file: str, uri: str, region: dict[str, int] | None
) -> None:
    """A URI (3.4.3) of the source where it is known; lines and columns from 1 (3.30)."""
    (result,) = log(finding(source=source, line=line), file=file)["runs"][0]["results"]
    (location,) = result["locations"]
    assert location["physicalLocation"]["artifactLocation"] == {"uri": uri}
    assert location["physicalLocation"].get("region") == region


def test_commands_of_github() -> None:
    """Commas and colons of properties are escaped, percent signs and line ends of the text."""
    placed = finding(source=Source("a,b:c.py", 31, 5))
    both = [LocatedFinding(placed, "gelu", "k.ptx"), LocatedFinding(finding(), "g", "k.ptx")]
    assert github(both) == (
        "::warning file=a%2Cb%3Ac.py,line=31,col=5,title=kanalyze narrow-access::"
        + TEXT.replace("%", "%25")
        + "\n::warning file=k.ptx,line=7,title=kanalyze narrow-access::"
        + TEXT.replace("%", "%25").replace("gelu:", "g:")
        + "\n"
    )  # fmt: skip


def test_nothing_found() -> None:
    assert github([]) == ""
    assert log()["runs"][0]["results"] == []
