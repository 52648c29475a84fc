"""The report as JSON: the keys are those of the document."""

from __future__ import annotations

import json
from typing import Any

from kanalyze.results.kernel import Report


def render(report: Report) -> str:
    """The report as one JSON object (schema: ``kanalyze/schemas/ptx.json``)."""
    return dumps(report.to_dict())


def dumps(data: Any) -> str:
    """JSON with text as it is, but whatever could steer a terminal escaped."""
    text = json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False)
    if text.replace("\n", "").isprintable():
        return text
    return "".join(c if c == "\n" or c.isprintable() else _escape(c) for c in text)


def _escape(character: str) -> str:
    return json.dumps(character)[1:-1] if ord(character) > 0x7F else f"\\u{ord(character):04x}"
