"""The name as a profiler wrote it: marks of a cut, HTML escapes, suffixes. All spans survive."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass

LIMIT = 65_536
"""Longest part of a name that is read; a longer name is decoded as if it were cut here."""

_MARK = re.compile(r"(?:\.{2,}|…|\?)$")
_SUFFIX = re.compile(r"(?:\.kd|\s+\[clone \.kd\])$")
_ENTITY = re.compile(r"&(?:lt|gt|amp|quot|#39|#x27|#60|#62|apos);")


@dataclass(frozen=True, slots=True)
class Prepared:
    """The part of a name that the grammars read.

    Attributes:
        text: that part, unescaped.
        cut: the name was cut right after ``text``.
        device_suffix: ``.kd`` (the kernel descriptor of AMD's runtime) stood at the end.
        origin: place in the given name of each character of ``text`` (and of its end).
    """

    text: str
    cut: bool
    device_suffix: bool
    origin: range | tuple[int, ...]


def prepare(name: str) -> Prepared:
    """Strip white space, a ``.kd`` suffix and the mark of a cut; undo HTML escapes."""
    start = len(name) - len(name.lstrip())
    text = name.strip()
    cut = len(text) > LIMIT
    if cut:
        text = text[:LIMIT]
    origin: range | tuple[int, ...] = range(start, start + len(text) + 1)
    if "&" in text:
        text, origin = _unescape(text, start)
    suffix = _SUFFIX.search(text)
    if suffix:
        text = text[: suffix.start()]
    mark = _MARK.search(text)
    if mark:
        cut = True
        text = text[: mark.start()]
    return Prepared(text, cut, suffix is not None, origin[: len(text) + 1])


def _unescape(text: str, start: int) -> tuple[str, tuple[int, ...]]:
    parts: list[str] = []
    origin: list[int] = []
    at = 0
    for match in _ENTITY.finditer(text):
        parts.append(text[at : match.start()])
        origin.extend(range(start + at, start + match.start()))
        parts.append(html.unescape(match.group()))
        origin.append(start + match.start())
        at = match.end()
    parts.append(text[at:])
    origin.extend(range(start + at, start + len(text) + 1))
    return "".join(parts), tuple(origin)
