"""Rows of the tables on a launch as text: the words on alike accesses, and the cells."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kanalyze.results import traffic as doc
from kanalyze.text.numbers import decimal, share_of_all, whole
from kanalyze.text.page import NBSP, Segment

_MOST_PATTERNS = 2
_BEGINS = ", misaligned"
_WASTEFUL = 1 / 1.2  # efficiency up to which a row is worth a remark


def table_of(access: doc.AccessCounts) -> str:
    """The table that an access stands in."""
    return access.space if access.space in ("global", "shared") else "other"


def is_wasteful(row: doc.AccessRow) -> bool:
    """Whether the accesses cost clearly more than they need to."""
    return bool(row.efficiency) and (row.efficiency or 0) <= _WASTEFUL


def words(group: Sequence[doc.AccessCounts], row: doc.AccessRow) -> Iterable[Segment]:
    """What stands behind the cells of a row."""
    first = group[0]
    times = f"{len(group)} × " if len(group) > 1 else ""
    yield (f"{times}{first.opcode}".replace(" ", NBSP), "memory")
    if first.pointer is not None:
        yield (f" {first.pointer}", "address")
    yield (f", {_lines([a.line for a in group])}", "dim")
    if first.stage is not None:
        yield (f", {'prologue' if first.stage == 'prologue' else 'in the loop (steady)'}", "loop")
    elif first.loop_depth:
        depth = first.loop_depth
        yield (", in a loop" if depth == 1 else f", {depth} loops deep", "loop")
    if first.machine is not None:
        yield (f", {first.machine}", "warn")
    elif row.requests == 0:
        yield (", never executed", "warn")
    pattern = _patterns([a.pattern for a in group if a.pattern is not None])
    if pattern is not None and row.requests != 0:
        yield (f", {pattern}", "")
    condition = _condition(group)
    if condition is not None:
        yield (f", if {condition}", "")


def _condition(group: Sequence[doc.AccessCounts]) -> str | None:
    first, different = group[0].condition, len({a.condition for a in group})
    if different > 1:
        return f"{first or 'always'} (the first; {different} different conditions)"
    return first


def _patterns(patterns: Sequence[str]) -> str | None:
    """How the lanes of accesses that are shown as one lie."""
    if len(set(patterns)) <= 1:
        return patterns[0] if patterns else None
    plain = list(dict.fromkeys(words.partition(_BEGINS)[0] for words in patterns))
    text = " or ".join(plain)
    if len(plain) > _MOST_PATTERNS:
        text = f"{plain[0]} (the first; {len(plain)} different patterns)"
    return f"{text}{_BEGINS} in part" if any(_BEGINS in words for words in patterns) else text


def _lines(numbers: Sequence[int]) -> str:
    if len(numbers) == 1:
        return f"line {numbers[0]}"
    if len(numbers) <= 4:
        return f"lines {', '.join(map(str, numbers))}"
    return f"lines {numbers[0]}-{numbers[-1]}"


# ---------------------------------------------------------------- cells


def _cell(number: int | None) -> str:
    return "?" if number is None else whole(number)


def _known(value: float | None, of: int | None, shown: str) -> str:
    """A ratio; ``?`` where it is not known, ``-`` where there is nothing to divide by."""
    return shown if value is not None else "-" if of == 0 else "?"


def _first(cost: doc.PipelineCost) -> list[str]:
    ratio = "" if cost.per_request is None else decimal(cost.per_request)
    requests = None if cost.cost is None else cost.requests
    return [
        _cell(cost.requests),
        _cell(cost.cost),
        _known(cost.per_request, requests, ratio),
        _cell(cost.ideal_cost),
    ]


def global_cells(cost: doc.PipelineCost) -> list[str]:
    """Cells of global accesses."""
    share = "" if cost.efficiency is None else share_of_all(cost.efficiency)
    of = None if cost.ideal_cost is None else cost.cost
    return [*_first(cost), _known(cost.efficiency, of, share)]


def shared_total_cells(total: doc.AccessTotal) -> list[str]:
    """Cells of a total of shared accesses."""
    return [*_first(total), _cell(total.conflicts)]


def row_cells(table: str, row: doc.AccessRow) -> list[str]:
    """Cells of a row, by table."""
    if table == "global":
        return global_cells(row)
    return [*_first(row), _cell(row.worst)] if table == "shared" else [_cell(row.requests)]
