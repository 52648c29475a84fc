"""Runs of sectors, some of them repeated evenly, and how often each sector is covered by them.

What: for sums of runs, each with a weight, how many sectors are covered how often.
Formula: sectors are laid out in rows as long as the step of the run that is repeated most; a run
repeated with that step is a box of rows and columns. A sweep over the rows at which boxes begin or
end counts the covers of every column; where few runs are repeated, a sweep over single runs.
Source: the sweep over the plane of computational geometry (Klee's measure problem).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from kanalyze.symbolic.parts import Array, TooLargeError

_MOST_BOXES = 1 << 12
_FEW_RUNS = 1 << 14
_MOST_RUNS = 1 << 22


class SectorRun(NamedTuple):
    """``length`` sectors from ``first`` on; if more than once, ``step`` (> length) apart."""

    first: int
    step: int
    times: int
    length: int


class Strip(NamedTuple):
    """``height`` rows from ``row`` on, all alike: how often what lies between edges is covered."""

    row: int
    height: int
    edges: Array
    covers: Array


def common_step(runs: Iterable[SectorRun]) -> int:
    """The step of the run that is repeated most often; 0 if none is."""
    return max(((run.times, run.step) for run in runs if run.times > 1), default=(1, 0))[1]


def number(runs: Iterable[SectorRun], step: int) -> int:
    """How many runs there are if only those with a certain step are kept together."""
    return sum(1 if run.step == step else run.times for run in runs)


def strips(runs: Sequence[SectorRun], weights: Sequence[int], step: int) -> Iterator[Strip]:
    """Rows of ``step`` sectors with how often each part of them is covered, from the first on.

    Args:
        runs: runs of sectors, which may overlap.
        weights: how often each covers its sectors.
        step: the length of a row.
    """
    boxes: list[tuple[int, int, int, int, int]] = []
    for run, weight in zip(runs, weights, strict=True):
        separate, times = (1, run.times) if run.step == step else (run.times, 1)
        for first in (run.first + i * run.step for i in range(separate)):
            row, begin = divmod(first, step)
            rows, end = divmod(begin + run.length, step)
            boxes.append((row, row + times, begin, step if rows else end, weight))
            if rows:  # whole rows, none if repeated, and what is left
                boxes.append((row + 1, row + rows, 0, step, weight))
                boxes.append((row + rows, row + rows + times, 0, end, weight))
    return _sweep(np.array(boxes, np.int64).reshape(-1, 5))


def _sweep(boxes: Array) -> Iterator[Strip]:
    """Strips of boxes, each given as rows from, to, columns from, to, and weight."""
    more, less = boxes[:, [0, 2, 3, 4]], boxes[:, [1, 2, 3, 4]] * [1, 1, 1, -1]
    events = np.concatenate((more, less))
    events = events[np.argsort(events[:, 0], kind="stable")]
    rows, begins = np.unique(events[:, 0], return_index=True)
    columns: Array
    columns, places = np.unique(events[:, 1:3], return_inverse=True)
    places = places.reshape(-1, 2)
    changes = np.zeros(len(columns), np.int64)
    ends = np.append(begins[1:], len(events))
    for at in range(len(rows) - 1):
        some = slice(begins[at], ends[at])
        np.add.at(changes, places[some, 0], events[some, 3])
        np.add.at(changes, places[some, 1], -events[some, 3])
        height = int(rows[at + 1] - rows[at])
        covers: Array = np.cumsum(changes)[:-1]
        yield Strip(int(rows[at]), height, columns, covers)


def covered(runs: Sequence[SectorRun], weights: Sequence[int]) -> dict[int, int]:
    """How many sectors are covered how often, by number of covers; 0 covers are left out.

    Raises:
        TooLargeError: there are too many runs, of too many steps.
    """
    step = max(1, common_step(runs))
    singles = sum(run.times for run in runs)
    if singles <= _FEW_RUNS:
        return _in_line(runs, weights)
    if number(runs, step) <= _MOST_BOXES:
        return _in_rows(runs, weights, step)
    if singles <= _MOST_RUNS:
        return _in_line(runs, weights)
    raise TooLargeError


def _in_rows(runs: Sequence[SectorRun], weights: Sequence[int], step: int) -> dict[int, int]:
    total: dict[int, int] = {}
    for strip in strips(runs, weights, step):
        _add(total, strip.covers, np.diff(strip.edges) * strip.height)
    return total


def _in_line(runs: Sequence[SectorRun], weights: Sequence[int]) -> dict[int, int]:
    """The same with every run by itself."""
    table = np.array(runs, np.int64).reshape(-1, 4)
    times = table[:, 2]
    repeat = np.repeat(np.arange(len(table)), times)
    turn = np.arange(len(repeat)) - np.repeat(np.cumsum(times) - times, times)
    firsts = table[repeat, 0] + turn * table[repeat, 1]
    amounts = np.array(weights, np.int64)[repeat]
    events = np.concatenate((firsts, firsts + table[repeat, 3]))
    order = np.argsort(events, kind="stable")
    covers = np.cumsum(np.concatenate((amounts, -amounts))[order])
    total: dict[int, int] = {}
    _add(total, covers[:-1], np.diff(events[order]))
    return total


def _add(total: dict[int, int], covers: Array, sizes: Array) -> None:
    levels, places = np.unique(covers, return_inverse=True)
    amounts = np.zeros(len(levels), np.int64)
    np.add.at(amounts, places.reshape(-1), sizes)
    for level, amount in zip(levels.tolist(), amounts.tolist(), strict=True):
        if level and amount:
            total[level] = total.get(level, 0) + amount
