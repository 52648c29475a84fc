"""JSON Schema (draft 2020-12) of what ``--format json`` prints, one file for each command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent


def names() -> tuple[str, ...]:
    """The commands whose JSON has a schema."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.json")))


def load(name: str) -> dict[str, Any]:
    """Return the schema of a command's JSON.

    Raises:
        KeyError: there is no such schema.
    """
    if name not in names():
        raise KeyError(name)
    schema: dict[str, Any] = json.loads((_FOLDER / f"{name}.json").read_text("utf-8"))
    return schema
