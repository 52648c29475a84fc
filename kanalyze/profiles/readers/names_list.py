"""Reader of a plain list of kernel names, one a line."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kanalyze.profiles.readers.event import Event, kind_of
from kanalyze.profiles.readers.lines import DumpLines

_SHARE = 0.9
_LINES = 300
_FIRST = re.compile(r"(?:void |unsigned |signed )?[A-Za-z_$<.:(@*~][^\s]*$")
_INNER = re.compile(r"<[^<>]*>|\([^()]*\)|\{[^{}]*\}|\[[^\[\]]*\]")


def looks_like(head: str) -> bool:
    """Whether nearly all lines of a text could be names of kernels."""
    lines = [line.strip() for line in head.splitlines()[:_LINES] if line.strip()]
    if not lines:
        return False
    good = sum(_is_name(line) for line in lines)
    strong = sum("_" in line or "<" in line or ":" in line for line in lines)
    return good >= _SHARE * len(lines) and strong >= len(lines) / 2


_MARKUP = re.compile(r"</?(?:!doctype|\?xml|[a-z][a-z0-9]*)(?:\s[^<>]*)?/?>", re.IGNORECASE)


def _is_name(line: str) -> bool:
    if "::" not in line and _MARKUP.match(line):
        return False
    if kind_of(line) != "kernel":
        return True
    if len(line) > 20_000:
        return " " not in line[:200] or "<" in line[:200]
    bare = line
    for _ in range(60):  # brackets, from the innermost out
        bare, count = _INNER.subn("", bare)
        if not count:
            break
    bare = re.sub(r"[<({\[].*", "", bare)  # a bracket that a cut left open
    bare = re.sub(r" (?:const|\[clone.*)$", "", bare.strip())
    return _FIRST.fullmatch(bare) is not None


def read(lines: DumpLines, file: str) -> Iterator[Event]:
    """Each line that is not empty is a name; how long it ran is not known."""
    for line in lines:
        name = line.strip()
        if name:
            yield Event(name, kind_of(name), 1, file=file)
