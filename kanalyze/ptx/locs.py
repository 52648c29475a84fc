"""``.loc`` directives: from text to shared `Loc` objects, inlining chains linked."""

from __future__ import annotations

import re

from kanalyze.ptx.ir import Loc

_LOC = re.compile(
    r"(\d+)\s+(\d+)(?:\s+(\d+))?"
    r"(?:\s*,\s*function_name\s+([%$\w]+(?:\s*\+\s*\d+)?))?"
    r"(?:\s*,\s*inlined_at\s+(\d+)\s+(\d+)(?:\s+(\d+))?)?",
    re.ASCII,
)
_Place = tuple[int, int, int]

#: A place that is inlined into itself, again and again, would give an endless chain.
_MAX_DEPTH = 64


class Locs:
    """The ``.loc`` directives of one module.

    ``inlined_at 1 20 4`` names a place; its own chain goes on with the latest ``.loc 1 20 4`` that
    was seen, as compilers write callers first.
    """

    def __init__(self) -> None:
        self._parsed: dict[str, tuple[_Place, str | None, _Place | None] | None] = {}
        self._made: dict[tuple[str, int], Loc] = {}
        self._latest: dict[_Place, Loc] = {}
        self._plain: dict[_Place, Loc] = {}
        self._depth: dict[int, int] = {}

    def begin_function(self) -> None:
        """Forget which places were met: chains do not lead from one function to another."""
        self._latest.clear()

    def read(self, text: str) -> Loc | None:
        """Return the `Loc` of what stands behind ``.loc``; None if it cannot be read."""
        if text in self._parsed:
            parsed = self._parsed[text]
        else:
            parsed = self._parsed[text] = _parse(text)
        if parsed is None:
            return None
        place, function, caller = parsed
        outer = None if caller is None else self._latest.get(caller)
        depth = self._depth.get(id(outer), 0)
        if caller is not None and (outer is None or depth >= _MAX_DEPTH):
            outer, depth = self._plain.setdefault(caller, Loc(*caller)), 0
        key = (text, id(outer))  # the outer ones are kept alive by _made and _plain
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = Loc(*place, function, outer)
            self._depth[id(made)] = depth + 1
        self._latest[place] = made
        return made


def _parse(text: str) -> tuple[_Place, str | None, _Place | None] | None:
    match = _LOC.match(text)
    if match is None or text[match.end() :].strip():
        return None
    file, line, column, function, *caller = match.groups()
    place = (int(file), int(line), int(column or 0))
    outer = None
    if caller[0] is not None:
        outer = (int(caller[0]), int(caller[1]), int(caller[2] or 0))
    return place, function, outer
