"""From a ``.loc`` to source lines: the user's line, and the helpers that were inlined there."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from kanalyze.ptx.ir import Loc, Module


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of source.

    ``inner`` holds the lines of inlined helpers that lead here, innermost first; the line itself
    is the outermost one, in the file of the kernel. ``function`` is the function that the line is
    in, where the compiler tells it (it does for helpers).
    """

    file: str
    line: int
    column: int
    function: str | None = None
    inner: tuple[SourceLine, ...] = ()

    @property
    def chain(self) -> tuple[SourceLine, ...]:
        """All lines, innermost first; the last one is this line."""
        return (*self.inner, self)


def source_of(loc: Loc | None, module: Module) -> SourceLine | None:
    """Return the user's source line of a ``.loc``; None if the compiler knows none (line 0)."""
    links: list[SourceLine] = []
    while loc is not None:
        if loc.line > 0:
            file = module.files.get(loc.file, "")
            function = None if loc.function is None else function_name(loc.function, module.text)
            links.append(SourceLine(file, loc.line, loc.column, function))
        loc = loc.inlined_at
    if not links:
        return None
    *inner, outer = links
    return SourceLine(outer.file, outer.line, outer.column, outer.function, tuple(inner))


_BYTES = re.compile(r"\s*\.b8\s+((?:\d+\s*,?\s*)+)")
_COMMENT = re.compile(r"//[^\r\n]*")


@lru_cache(maxsize=1024)
def function_name(label: str, text: str) -> str | None:
    """Return the string at a label of the ``.debug_str`` section; None if it is not there."""
    start = re.search(rf"^{re.escape(label.partition('+')[0].strip())}:", text, re.MULTILINE)
    if start is None:
        return None
    characters = bytearray()
    for line in text[start.end() : start.end() + 20_000].splitlines():
        match = _BYTES.match(_COMMENT.sub("", line))
        if match is None:
            if line.strip() and not line.lstrip().startswith("//"):
                break
            continue
        for number in re.findall(r"\d+", match[1]):
            if number == "0":
                return characters.decode("utf-8", "replace")
            characters.append(int(number) & 0xFF)
    return None
