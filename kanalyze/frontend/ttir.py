"""Triton IR with the source line of each operation: MLIR's ``loc(…)`` read, then hidden.

A location is a file position, a name around one (``"x"(…)``), a call (``callsite(callee at
caller)``: an inlined helper; the outermost caller is the user's line), several fused into one, a
reference (``#loc7``), or unknown (MLIR language reference, "Location" attributes).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kanalyze.text.pieces import pieces
from kanalyze.text.plain import to_plain

SCHEMA = "kanalyze.ttir/1"


@dataclass(frozen=True, slots=True)
class Place:
    """A line of source, 1-based; the column is 0 where it is not known."""

    file: str
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Line:
    """A line of TTIR without locations.

    ``line`` is its number in the text as Triton prints it; ``source`` the user's line that it
    comes from (None: Triton knows none), ``inner`` the lines of inlined helpers on the way,
    innermost first; ``closes`` says that it only ends a region.
    """

    line: int
    text: str
    source: Place | None
    inner: tuple[Place, ...]
    closes: bool


@dataclass(frozen=True, slots=True)
class Ttir:
    """The TTIR of one kernel."""

    kernel: str
    arch: str
    file: str
    lines: tuple[Line, ...]
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready data (schema: ``kanalyze/schemas/ttir.json``)."""
        unknown = [
            {"field": f"lines[{i}].source", "reason": "Triton gives the operation no location"}
            for i, line in enumerate(self.lines)
            if line.source is None
        ]
        return {"schema": SCHEMA, **to_plain(self), "unknown": unknown}


def read(
    text: str,
    kernel: str,
    arch: str,
    file: str,
    notes: tuple[str, ...] = (),
    first_column: int = 1,
) -> Ttir:
    """Read TTIR text.

    Args:
        text: as Triton prints it, with locations.
        kernel, arch, file: what it is of.
        notes: carried along.
        first_column: number of the first column in the text (0 in Triton up to 3.6).
    """
    reader = _LocationReader(1 - first_column)
    definitions: dict[str, str] = {}
    rows: list[tuple[int, str, str | None]] = []
    for number, raw in enumerate(text.splitlines(), 1):
        defined = re.match(r"(#loc\d*)\s*=\s*loc\((.*)\)\s*$", raw)
        if defined:
            definitions[defined[1]] = defined[2]
        elif raw.strip():
            shown, own = _without_locations(raw)
            rows.append((number, shown, own))
    reader.definitions = definitions
    owns = _with_regions([(shown, own) for _, shown, own in rows])
    lines = []
    for (number, shown, _), own in zip(rows, owns, strict=True):
        chain = reader.chain(own) if own is not None else ()
        *inner, source = chain or (None,)
        lines.append(
            Line(
                number,
                shown,
                source,
                tuple(p for p in inner if p is not None),
                shown.lstrip().startswith("}") and not shown.endswith("{"),
            )
        )
    return Ttir(kernel, arch, file, tuple(lines), notes)


def _outside_strings(text: str) -> list[bool]:
    """For each character, whether it is outside of a string literal."""
    result, inside, skip = [], False, False
    for character in text:
        result.append(not inside and character != '"')
        if skip:
            skip = False
        elif inside and character == "\\":
            skip = True
        elif character == '"':
            inside = not inside
    return result


def _without_locations(line: str) -> tuple[str, str | None]:
    """A line without its ``loc(…)``, and what the last one, behind the operation, holds."""
    outside = _outside_strings(line)
    kept, own, position = [], None, 0
    for location in re.finditer(r"\bloc\(", line):
        if location.start() < position or not outside[location.start()]:
            continue
        depth, end = 1, location.end()
        while end < len(line) and depth:
            if outside[end]:
                depth += {"(": 1, ")": -1}.get(line[end], 0)
            end += 1
        kept.append(line[position : location.start()].rstrip(" "))
        own = line[location.end() : end - 1] if not line[end:].strip() else None
        position = end
    kept.append(line[position:])
    return "".join(kept).rstrip(), own


def _with_regions(rows: list[tuple[str, str | None]]) -> list[str | None]:
    """Locations of the rows; an operation with regions has its location behind the last ``}``."""
    owns = [own for _, own in rows]
    opened: list[int] = []
    continues: dict[int, int] = {}
    for index, (shown, own) in enumerate(rows):
        outside = _outside_strings(shown)
        closed: int | None = None
        for character, plain in zip(shown, outside, strict=True):
            if plain and character == "{":
                opened.append(index)
                if closed is not None:
                    continues[index] = closed
            elif plain and character == "}" and opened:
                start = opened.pop()
                if start != index:
                    closed = start
        head = closed
        while head is not None:
            if owns[head] is None:
                owns[head] = own
            head = continues.get(head)
    return owns


class _LocationReader:
    """Locations to the places they name; what cannot be read names none."""

    def __init__(self, column_shift: int) -> None:
        self.column_shift = column_shift
        self.definitions: Mapping[str, str] = {}
        self.known: dict[str, tuple[Place, ...]] = {}

    def chain(self, text: str, depth: int = 0) -> tuple[Place, ...]:
        """The places of a location, innermost first; the last one is the user's."""
        if depth > 200:
            return ()
        text = text.strip()
        if text in self.known:
            return self.known[text]
        self.known[text] = ()  # a definition that leads to itself names nothing
        places = self._read(text, depth + 1)
        self.known[text] = places
        return places

    def _read(self, text: str, depth: int) -> tuple[Place, ...]:
        if text.startswith("#"):
            return self.chain(self.definitions[text], depth) if text in self.definitions else ()
        if text.startswith("loc(") and text.endswith(")"):
            return self.chain(text[4:-1], depth)
        if text.startswith("callsite(") and text.endswith(")"):
            parts = pieces(text[9:-1], " at ")
            if len(parts) != 2:
                return ()
            return (*self.chain(parts[0], depth), *self.chain(parts[1], depth))
        if text.startswith("fused") and text.endswith("]"):
            parts = pieces(text[text.rfind("[", 0, _list_start(text) + 1) + 1 : -1])
            return next((c for c in (self.chain(part, depth) for part in parts) if c), ())
        place = re.fullmatch(r'"((?:[^"\\]|\\.)*)":(\d+):(\d+)(?:\s+to\s+.*)?', text)
        if place:
            if place[2] == "0":
                return ()
            column = int(place[3]) + self.column_shift
            return (Place(_unquoted(place[1]), int(place[2]), column),)
        named = re.fullmatch(r'"(?:[^"\\]|\\.)*"\((.*)\)', text)
        return self.chain(named[1], depth) if named else ()


def _list_start(text: str) -> int:
    """Where the bracket opens that the last character closes."""
    outside, depth = _outside_strings(text), 0
    for index in range(len(text) - 1, -1, -1):
        if outside[index]:
            depth += {"]": 1, "[": -1}.get(text[index], 0)
            if depth == 0:
                return index
    return 0


def _unquoted(text: str) -> str:
    r"""MLIR's string escapes undone: ``\"``, ``\\`` and two hexadecimal digits for a byte."""
    data = re.sub(
        rb'\\(?:([0-9A-Fa-f]{2})|(["\\nt]))',
        lambda m: bytes([int(m[1], 16)]) if m[1] else {b"n": b"\n", b"t": b"\t"}.get(m[2], m[2]),
        text.encode(),
    )
    return data.decode("utf-8", "replace")
