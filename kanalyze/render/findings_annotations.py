"""Findings for other programs: SARIF 2.1.0, and GitHub's workflow commands.

Sources: OASIS, Static Analysis Results Interchange Format (SARIF) Version 2.1.0; GitHub Docs,
"Workflow commands for GitHub Actions", "Setting an error/warning/notice message".
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from urllib.parse import quote

from kanalyze.render.findings_text import proven, saved
from kanalyze.results.kernel import Finding
from kanalyze.text.safe import escaped

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {"error": "error", "warning": "warning", "info": "note"}
_COMMANDS = {"error": "error", "warning": "warning", "info": "notice"}


@dataclass(frozen=True, slots=True)
class LocatedFinding:
    """A finding with the kernel it is in, and the file that was read."""

    finding: Finding
    kernel: str
    file: str

    @property
    def place(self) -> tuple[str, int, int]:
        """File, line and column: in the source where it is known, else in the PTX."""
        source = self.finding.source
        if source is not None:
            return source.file, source.line, source.column
        return self.file, self.finding.line, 0

    @property
    def text(self) -> str:
        """Message, advice and proof as one text."""
        parts = [f"{self.kernel}: {self.finding.message}", self.finding.advice]
        if self.finding.proof is not None:
            parts.append(proven(self.finding.proof))
        if self.finding.saves:
            parts.append(f"would save {saved(self.finding.saves)}")
        return ". ".join(part.rstrip(".") for part in parts if part)


@dataclass(frozen=True, slots=True)
class RuleMetadata:
    """A reporting descriptor of SARIF: what a rule is called and says in general."""

    id: str
    title: str
    text: str


def sarif(findings: Sequence[LocatedFinding], rules: Iterable[RuleMetadata], version: str) -> str:
    """A SARIF log of one run; ``rules`` describe at least the ids that occur."""
    listed = list(rules)
    index = {rule.id: n for n, rule in enumerate(listed)}
    log = {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "kanalyze",
                        "version": version,
                        "rules": [
                            {
                                "id": rule.id,
                                "shortDescription": {"text": rule.title},
                                "fullDescription": {"text": rule.text},
                            }
                            for rule in listed
                        ],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "results": [_result(item, index) for item in findings],
            }
        ],
    }
    return json.dumps(log, indent=2, ensure_ascii=True) + "\n"


def _result(item: LocatedFinding, index: dict[str, int]) -> dict[str, object]:
    file, line, column = item.place
    physical: dict[str, object] = {"artifactLocation": {"uri": _uri(file)}}
    if line:
        region = {"startLine": line}
        if column:
            region["startColumn"] = column
        physical["region"] = region
    return {
        "ruleId": item.finding.id,
        "ruleIndex": index[item.finding.id],
        "level": _LEVELS[item.finding.severity],
        "message": {"text": escaped(item.text)},
        "locations": [
            {
                "physicalLocation": physical,
                "logicalLocations": [{"name": escaped(item.kernel), "kind": "function"}],
            }
        ],
        "properties": {
            "numbers": dict(item.finding.numbers),
            "saves": dict(item.finding.saves),
        },
    }


def _uri(file: str) -> str:
    return quote(os.fsencode(PurePath(file).as_posix()))


def github(findings: Sequence[LocatedFinding]) -> str:
    """A line for each finding: ``::warning file=gelu.py,line=31::…``."""
    return "".join(_command(item) for item in findings)


def _command(item: LocatedFinding) -> str:
    file, line, column = item.place
    parameters = [("file", file)]
    parameters += [("line", str(line))] if line else []
    parameters += [("col", str(column))] if line and column else []
    parameters.append(("title", f"kanalyze {item.finding.id}"))
    properties = ",".join(f"{name}={_property(value)}" for name, value in parameters)
    return f"::{_COMMANDS[item.finding.severity]} {properties}::{_data(escaped(item.text))}\n"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(escaped(text)).replace(":", "%3A").replace(",", "%2C")
