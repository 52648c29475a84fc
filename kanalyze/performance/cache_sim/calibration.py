"""Files of measured parameters, as ``kanalyze device --calibrate`` writes them.

TOML: a section ``[device."NAME"]`` for each GPU, in it parameters of the memory model as in
``machine.toml``: ``hbm_rate = { value = 4390.0, origin = "measured", note = "…" }``. What stands in
it replaces the model's own number. Other sections are remarks.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kanalyze.errors import InputError, SourceSpot, nearest
from kanalyze.performance.cache_sim.parameters import CacheParameter, names
from kanalyze.text import toml

_FIELDS = ("value", "origin", "note")
_MOST_GPCS = 64
_MOST = 1e18
_MINIMUM = {"l2_bytes_per_side": 1 << 18}  # bytes
_MAXIMUM = {"ways": 64, "l1_ways": 64, "fill_bytes": 128, "sides": 2}

Calibration = Mapping[str, Mapping[str, CacheParameter]]
"""For each GPU's name its measured parameters."""


@dataclass(frozen=True)
class _File:
    path: Path
    lines: list[str]

    def error(self, message: str, *where: str) -> InputError:
        """The error at the line where the first of some words stand, one below the other."""
        line = 0
        for word in where:
            pattern = re.compile(rf"(^\s*|\[.*|[{{,]\s*)(\"?){re.escape(word)}\2\s*[]=]")
            matching = (n for n in range(line, len(self.lines)) if pattern.search(self.lines[n]))
            line = next(matching, line)
        text = self.lines[line] if self.lines else ""
        column = max(0, text.find(where[-1])) + 1 if where else 1
        return InputError(message, SourceSpot(str(self.path), line + 1, column, text))


def read(path: str | Path) -> Calibration:
    """Read a file of parameters.

    Raises:
        InputError: it cannot be read, is not TOML, or holds something else.
    """
    path = Path(path)
    text, data = toml.read(path)
    file = _File(path, text.splitlines())
    sections = data.get("device")
    if not isinstance(sections, dict) or not sections:
        raise file.error('expected a section [device."NAME"] of measured parameters')
    return {device: _section(file, device, given) for device, given in sections.items()}


def _section(file: _File, device: str, given: Any) -> dict[str, CacheParameter]:
    if not isinstance(given, dict):
        raise file.error("expected a section of parameters", device)
    known = names()
    parameters = {}
    for name, entry in given.items():
        if name not in known:
            message = f"unknown parameter '{name}'; {nearest(name, known)}"
            raise file.error(message, device, name)
        parameters[name] = _parameter(file, device, name, entry)
    return parameters


def _parameter(file: _File, device: str, name: str, entry: Any) -> CacheParameter:
    if not isinstance(entry, dict) or "value" not in entry or "origin" not in entry:
        expected = f'{name}: expected {{ value = …, origin = "measured", note = "…" }}'
        raise file.error(expected, device, name)
    for key, value in entry.items():
        if key not in _FIELDS:
            raise file.error(f"{name}: unknown key '{key}'; {nearest(key, _FIELDS)}", device, name)
        if key != "value" and not isinstance(value, str):
            raise file.error(f"{name}: {key} is no text", device, name)
    value = entry["value"]
    if name == "gpcs":
        if not _is_gpcs(value):
            raise file.error("gpcs: expected a list of SMs of each GPC", device, name)
    elif isinstance(value, bool) or not isinstance(value, int | float) or not _within(name, value):
        low, high = _MINIMUM.get(name, 0), _MAXIMUM.get(name, _MOST)
        wanted = f"a number above {low:g}, at most {high:g}"
        raise file.error(f"{name}: {value!r} is not {wanted}", device, name)
    return CacheParameter(value, entry["origin"], entry.get("note", ""))


def _within(name: str, value: float) -> bool:
    return math.isfinite(value) and _MINIMUM.get(name, 0) < value <= _MAXIMUM.get(name, _MOST)


def _is_gpcs(value: Any) -> bool:
    return (
        isinstance(value, list)
        and 1 <= len(value) <= _MOST_GPCS
        and all(type(n) is int and 1 <= n <= _MOST_GPCS for n in value)
    )


def write(device: str, parameters: Mapping[str, CacheParameter], remarks: Mapping[str, Any]) -> str:
    """The text of a file for one GPU.

    Args:
        device: its name in the device table.
        parameters: what was measured.
        remarks: section to names and values (numbers, texts, lists of them): how it was measured.
    """
    lines = ["# Parameters of the memory model, as 'kanalyze device --calibrate' measured them.",
             "# bytes/ns = GB/s; times in ns."]  # fmt: skip
    for section, entries in remarks.items():
        lines += ["", f"[{section}]"]
        lines += [f"{_text(name)} = {_text(value)}" for name, value in entries.items()]
    lines += ["", f"[device.{json.dumps(device)}]"]
    for name, p in parameters.items():
        note = f", note = {_text(p.note)}" if p.note else ""
        lines.append(f"{name} = {{ value = {_text(p.value)}, origin = {_text(p.origin)}{note} }}")
    return "\n".join(lines) + "\n"


def _text(value: Any) -> str:
    """A value in TOML; JSON writes texts, numbers and lists of them the same way."""
    return json.dumps(value, ensure_ascii=True)
