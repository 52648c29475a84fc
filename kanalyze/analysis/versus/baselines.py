"""Baselines: the same result by a sequence of launches, as tables in TOML say.

The bundled table is ``kernels/baselines/baselines.toml``; its head says what it holds. A table of
the user's is written ``path/to/table.toml:NAME``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kanalyze import _bundled
from kanalyze.errors import InputError, UsageError, nearest
from kanalyze.text import toml

_STEP_KEYS = ("what", "target", "set", "launches")
_MOST_LAUNCHES = 1000


@dataclass(frozen=True, slots=True)
class BaselineStep:
    """One launch (``launches`` alike ones): its target, and its settings as the table has them."""

    what: str
    target: str
    settings: Mapping[str, int | str]
    launches: int

    def values(self, shape: Mapping[str, int], name: str) -> dict[str, int]:
        """The settings for a shape: integers as they are, texts as products of its names.

        Args:
            shape: of the kernel that is compared.
            name: of the baseline, for the message.

        Raises:
            UsageError: the shape has no such name.
        """
        return {key: _product(given, shape, name) for key, given in self.settings.items()}


@dataclass(frozen=True, slots=True)
class Baseline:
    """A sequence of launches with a name."""

    name: str
    summary: str
    steps: tuple[BaselineStep, ...]


def bundled_file() -> Path:
    """The table that ships with kanalyze."""
    return _bundled.folder("kernels") / "baselines" / "baselines.toml"


def find(text: str) -> Baseline | None:
    """The baseline that a text names: one of the bundled table, or ``table.toml:NAME``.

    Returns None where it is neither, so that it may be a target.

    Raises:
        UsageError: the table has no such baseline.
        InputError: the table cannot be read.
    """
    match = re.fullmatch(r"(?s)(.+\.toml)(?::(.*))?", text)
    if match is None:
        return read(bundled_file()).get(text)
    table = read(Path(match[1]))
    name = match[2] or (next(iter(table)) if len(table) == 1 else "")
    if name not in table:
        raise UsageError(f"{match[1]} has no baseline '{name}': {nearest(name, table)}")
    return table[name]


def read(path: Path) -> dict[str, Baseline]:
    """The baselines of a table, by name.

    Raises:
        InputError: the file cannot be read, or is not such a table.
    """
    _, data = toml.read(path)
    return {name: _baseline(path, name, given) for name, given in data.items()}


def _baseline(path: Path, name: str, given: Any) -> Baseline:
    where = f"[{name}]"
    _check(isinstance(given, dict), path, f"{where}: expected a table")
    steps = given.get("step")
    _check(isinstance(steps, list) and bool(steps), path, f"{where}: expected [[{name}.step]]")
    summary = given.get("summary", "")
    _check(isinstance(summary, str), path, f"{where} summary: expected a text")
    for key in given:
        _check(key in ("summary", "step"), path, f"{where}: unknown key '{key}'")
    return Baseline(name, summary, tuple(_step(path, f"[[{name}.step]]", s) for s in steps))


def _step(path: Path, where: str, given: Any) -> BaselineStep:
    _check(isinstance(given, dict), path, f"{where}: expected a table")
    for key in given:
        _check(key in _STEP_KEYS, path, f"{where}: unknown key '{key}'; {nearest(key, _STEP_KEYS)}")
    target, settings = given.get("target"), given.get("set", {})
    _check(isinstance(target, str) and bool(target), path, f"{where} target: expected a text")
    _check(isinstance(settings, dict), path, f"{where} set: expected a table")
    for key, value in settings.items():
        _check(
            type(value) is int or (isinstance(value, str) and bool(_names(value))),
            path,
            f"{where} set.{key}: expected an integer, or a product of names such as 'B*H*T'",
        )
    launches = given.get("launches", 1)
    _check(
        type(launches) is int and 1 <= launches <= _MOST_LAUNCHES,
        path,
        f"{where} launches: expected an integer from 1 to {_MOST_LAUNCHES}",
    )
    what = given.get("what", "")
    _check(isinstance(what, str), path, f"{where} what: expected a text")
    if target.endswith(".py") or ".py:" in target:
        target = str(path.parent / target)
    return BaselineStep(what or target, target, settings, launches)


def _check(holds: bool, path: Path, message: str) -> None:
    if not holds:
        raise InputError(message, file=str(path))


def _names(text: str) -> list[str]:
    """The factors of a product, none if it is not one."""
    parts = [part.strip() for part in text.split("*")]
    return parts if all(part.isidentifier() or part.isdecimal() for part in parts) else []


def _product(given: int | str, shape: Mapping[str, int], name: str) -> int:
    if isinstance(given, int):
        return given
    for part in _names(given):
        if not part.isdecimal() and part not in shape:
            known = ", ".join(shape) or "no names"
            raise UsageError(
                f"the baseline '{name}' needs {part}, and the shape of what it is compared with "
                f"has {known}"
            )
    return math.prod(int(p) if p.isdecimal() else shape[p] for p in _names(given))
