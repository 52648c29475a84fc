"""Lines of a text dump, with a look ahead, and the cells of the tables in it."""

from __future__ import annotations

import csv
import re
from collections import deque
from collections.abc import Iterator

from kanalyze.profiles.readers.source import DumpSource

_PREFIX = re.compile(r"^\[rank\s?\d+\]:\s?")
_COLOR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_MOST_JOINED = 20
MANY_CELLS = 1 << 20
"""Characters of the longest cell of a CSV table."""


class DumpLines:
    """The lines of a source, each with its number; lines can be given back."""

    def __init__(self, source: DumpSource):
        self.source = source
        self.number = 0
        self._lines = source.lines()
        self._back: deque[tuple[int, str]] = deque()

    def __iter__(self) -> Iterator[str]:
        while (line := self.next()) is not None:
            yield line

    def next(self) -> str | None:
        """The next line; None at the end. Colours and the prefix of torchrun are taken off."""
        if self._back:
            self.number, line = self._back.popleft()
            return line
        numbered = next(self._lines, None)
        if numbered is None:
            return None
        self.number, line = numbered
        if "\x1b" in line:
            line = _COLOR.sub("", line)
        return _PREFIX.sub("", line) if line.startswith("[rank") else line

    def back(self, line: str) -> None:
        """Give the line back that `next` gave."""
        self._back.appendleft((self.number, line))

    def peek(self) -> str | None:
        """The next line, without taking it."""
        if not self._back:
            number = self.number
            line = self.next()
            if line is None:
                return None
            self._back.append((self.number, line))
            self.number = number
        return self._back[0][1]

    def trouble(self, message: str, line: int | None = None) -> None:
        """Note that something is wrong with the line."""
        self.source.trouble.add(self.number if line is None else line, message)


def delimiter_of(header: str) -> str:
    """What separates the columns of a CSV table, by its header."""
    bare = re.sub(r'"[^"]*"', "", header)
    return max(",;\t|", key=bare.count)


def cells_of(line: str, delimiter: str, lines: DumpLines | None = None) -> list[str]:
    """The cells of a line of CSV; further lines are taken while a quote is open."""
    if lines is not None and line.count('"') % 2:
        joined = line
        for _ in range(_MOST_JOINED):
            following = lines.peek()
            if following is None or following.startswith('"'):
                break
            joined += "\n" + following
            lines.next()
            if joined.count('"') % 2 == 0:
                line = joined
                break
    try:
        csv.field_size_limit(MANY_CELLS)
        rows = list(csv.reader([line], delimiter=delimiter))
    except csv.Error:
        return []
    return [cell.strip() for cell in rows[0]] if rows else []


def spans_of(rule: str) -> list[tuple[int, int]]:
    """The columns under a rule of dashes: start and end of each."""
    return [match.span() for match in re.finditer(r"-{2,}", rule)]


def is_rule(line: str) -> bool:
    """Whether a line is a rule of dashes in columns."""
    return line.count("-") >= 8 and not line.strip().strip("- ")


def sliced(line: str, spans: list[tuple[int, int]]) -> list[str]:
    """The cells of a line under a rule; the last one goes on to the end of the line."""
    last = len(spans) - 1
    return [line[s : None if i == last else e].strip() for i, (s, e) in enumerate(spans)]
