"""Rows and columns of the text on a launch: alike accesses together, numbers as text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kanalyze.results import traffic as doc
from kanalyze.results.kernel import Source
from kanalyze.text.numbers import decimal, whole

_MOST_PATTERNS = 2
_BEGINS = ", misaligned"
_WASTEFUL = 1.2  # cost over ideal cost from which a row is worth a remark


@dataclass(frozen=True, slots=True)
class Row:
    """Accesses of one source line that are alike, added up.

    ``line`` is the first in the PTX, ``lines`` says all in words.
    """

    table: str
    number: int
    line: int
    lines: str
    opcode: str
    kind: str
    pointer: str | None
    condition: str | None
    pattern: str | None
    bytes_per_thread: int | None
    requests: int | None
    threads: int | None
    cost: int | None
    ideal_cost: int | None
    worst: int | None
    reason: str | None
    loop_depth: int
    stage: str | None
    source: Source | None
    source_text: str | None

    @property
    def place(self) -> tuple[str, int] | None:
        """File and line of the source."""
        return (self.source.file, self.source.line) if self.source is not None else None

    @property
    def wasteful(self) -> bool:
        """Whether the accesses cost clearly more than they need to."""
        return bool(self.cost and self.ideal_cost and self.cost >= _WASTEFUL * self.ideal_cost)

    @property
    def where(self) -> str:
        """The source line, else the lines in the PTX."""
        return f"{self.source.file}:{self.source.line}" if self.source else f"PTX {self.lines}"


def rows(accesses: Sequence[doc.AccessCounts], every: bool = False) -> list[Row]:
    """Accesses in source order, alike ones of one source line together (``every``: each alone)."""
    groups: dict[object, list[doc.AccessCounts]] = {}
    for index, a in enumerate(accesses):
        place = (a.source.file, a.source.line) if a.source is not None else None
        key = (_table(a), place, a.opcode, a.pointer, a.stage, a.loop_depth, a.reason,
               a.requests == 0, index if every else None)  # fmt: skip
        groups.setdefault(key, []).append(a)
    first: dict[object, int] = {}
    for group in groups.values():
        place = (group[0].source.file, group[0].source.line) if group[0].source else None
        first.setdefault(place, group[0].line)
    made = [_row(group) for group in groups.values()]
    order = {place: (line if place is None else 0, place or ("", 0), line)
             for place, line in first.items()}  # fmt: skip
    return sorted(made, key=lambda row: order[row.place][2])


def _table(access: doc.AccessCounts) -> str:
    return access.space if access.space in ("global", "shared") else "other"


def _row(group: Sequence[doc.AccessCounts]) -> Row:
    first = group[0]
    conditions = {a.condition for a in group}
    condition = first.condition
    if len(conditions) > 1:
        condition = f"{condition or 'always'} (the first; {len(conditions)} different conditions)"
    worst = [a.worst for a in group if a.worst is not None]
    return Row(
        table=_table(first),
        number=len(group),
        line=first.line,
        lines=_lines([a.line for a in group]),
        opcode=first.opcode,
        kind=first.kind,
        pointer=first.pointer,
        condition=condition,
        pattern=_patterns([a.pattern for a in group if a.pattern is not None]),
        bytes_per_thread=first.bytes_per_thread,
        requests=added(a.requests for a in group),
        threads=added(a.threads for a in group),
        cost=added(a.cost for a in group),
        ideal_cost=added(a.ideal_cost for a in group),
        worst=max(worst) if worst else None,
        reason=first.reason,
        loop_depth=first.loop_depth,
        stage=first.stage,
        source=first.source,
        source_text=first.source_text,
    )


def _patterns(found: Sequence[str]) -> str | None:
    """How the lanes of accesses that are shown as one lie."""
    if len(set(found)) <= 1:
        return found[0] if found else None
    plain = list(dict.fromkeys(words.partition(_BEGINS)[0] for words in found))
    text = " or ".join(plain)
    if len(plain) > _MOST_PATTERNS:
        text = f"{plain[0]} (the first; {len(plain)} different patterns)"
    return f"{text}{_BEGINS} in part" if any(_BEGINS in words for words in found) else text


def _lines(numbers: Sequence[int]) -> str:
    if len(numbers) == 1:
        return f"line {numbers[0]}"
    if len(numbers) <= 4:
        return f"lines {', '.join(map(str, numbers))}"
    return f"lines {numbers[0]}-{numbers[-1]}"


# ---------------------------------------------------------------- numbers as text


def product(extents: Iterable[int]) -> int:
    """Product of the extents of a grid or block."""
    return math.prod(extents)


def added(numbers: Iterable[int | None]) -> int | None:
    """The sum, None where a number is not known."""
    total = 0
    for number in numbers:
        if number is None:
            return None
        total += number
    return total


def _cell(number: int | None) -> str:
    return "?" if number is None else whole(number)


def _ratio(above: int | None, below: int | None) -> str:
    if above is None or below is None:
        return "?"
    return decimal(above / below) if below else "-"


def _share(ideal: int | None, cost: int | None) -> str:
    """Ideal over actual in percent; 100 only where they are equal."""
    if ideal is None or cost is None:
        return "?"
    if not cost:
        return "-"
    percent = 100 * ideal / cost
    return f"{percent if ideal == cost else min(percent, 99.9):.3g} %"


def totals(requests: int | None, cost: int | None, ideal: int | None) -> list[str]:
    """Cells of a total of global accesses."""
    return [_cell(requests), _cell(cost), _ratio(cost, requests), _cell(ideal), _share(ideal, cost)]


def shared_totals(requests: int | None, cost: int | None, ideal: int | None) -> list[str]:
    """Cells of a total of shared accesses; conflicts are the wavefronts above the ideal ones."""
    conflicts = None if cost is None or ideal is None else cost - ideal
    return [*totals(requests, cost, ideal)[:4], _cell(conflicts)]


def _global_cells(row: Row) -> list[str]:
    return totals(row.requests, row.cost, row.ideal_cost)


def _shared_cells(row: Row) -> list[str]:
    return [*totals(row.requests, row.cost, row.ideal_cost)[:4], _cell(row.worst)]


def _other_cells(row: Row) -> list[str]:
    return [_cell(row.requests)]


CELLS = {"global": _global_cells, "shared": _shared_cells, "other": _other_cells}
"""Cells of a row, by table."""


class Columns:
    """Right-aligned columns of which the last ones are left out where there is no room."""

    def __init__(self, heads: Sequence[str], lines: Sequence[Sequence[str]]):
        self.heads = heads
        self.widths = [
            max(len(cell) for cell in column) for column in zip(heads, *lines, strict=True)
        ]

    def width(self, shown: int) -> int:
        """Columns of text that the first ``shown`` take."""
        return sum(self.widths[:shown]) + 2 * (shown - 1)

    def fitting(self, room: int) -> int:
        """How many fit, two at least."""
        count = len(self.widths)
        while count > 2 and self.width(count) > room:
            count -= 1
        return count

    def line(self, cells: Sequence[str], shown: int) -> str:
        """One line."""
        pairs = zip(cells[:shown], self.widths[:shown], strict=True)
        return "  ".join(f"{cell:>{width}}" for cell, width in pairs)

    def head(self, shown: int) -> str:
        """The line above."""
        return self.line(self.heads, shown)
