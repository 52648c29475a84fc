"""The distinct sectors that a launch touches through one pointer: its compulsory traffic.

What: the set of 32-byte sectors, over all blocks, threads and iterations.
Formula: blocks and iterations in which the same lanes take part and that lie alike within a sector
are one class; the set is the union over classes of ``base + pattern``. Bases that lie evenly repeat
the runs of their pattern; the sectors being laid out in rows as long as the step, a repeated run is
a box of rows and columns, and the union of the boxes is counted.
Source: "compulsory" as in compulsory cache misses. Limits: where there are many runs, or of many
steps, sectors are marked one by one; then the span of one pointer is bounded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kanalyze.address.parts import Array, TooLargeError
from kanalyze.models.coalescing import SECTOR

_MOST_SECTORS = 1 << 29  # 16 GiB behind one pointer, half a GiB of marks
_FEW_SECTORS = 1 << 16  # marked one by one whatever they are
_MOST_RUNS = 1 << 11
_CHUNK = 1 << 23


class _Run(NamedTuple):
    """``length`` sectors from ``first`` on; if more than once, ``step`` (> length) apart."""

    first: int
    step: int
    times: int
    length: int


@dataclass
class Footprint:
    """Sectors touched behind one pointer: ``marks`` from the address ``low`` on, or else ``runs``.

    ``extent`` is the number of sectors that can be marked.
    """

    low: int
    extent: int
    runs: set[_Run] = field(default_factory=set)
    marks: npt.NDArray[np.bool_] | None = None

    @staticmethod
    def over(low: int, high: int) -> Footprint:
        """No sector yet, of those between two addresses (inclusive)."""
        first, last = low // SECTOR, high // SECTOR
        footprint = Footprint(first * SECTOR, last - first + 1)
        if footprint.extent <= _FEW_SECTORS:
            footprint._one_by_one()
        return footprint

    def mark(self, bases: Array, offsets: Array) -> None:
        """Mark the sectors of ``base + offset`` for all pairs.

        Raises:
            TooLargeError: they are irregular, and all that can be marked lie too far apart.
        """
        groups = [bases]
        if _step(bases) is None:
            scattered = len(offsets) == 1 and len(bases) > _FEW_SECTORS
            if scattered and self.extent <= _MOST_SECTORS:
                marks = self._one_by_one()
                marks[np.floor_divide(bases + offsets[0], SECTOR) - self.low // SECTOR] = True
                return
            bases = np.unique(bases)
            places_within = np.mod(bases, SECTOR)
            present = np.flatnonzero(np.bincount(places_within))
            groups = [bases[places_within == inside] for inside in present]
        for some in groups:
            step = _step(some)
            few = len(some) * len(offsets) <= _FEW_SECTORS
            if step is not None and (self.marks is None or not few):
                self._add(_repeated(some, step, offsets))
            elif few:
                sectors = np.floor_divide(some[:, None] + offsets[None, :], SECTOR)
                if self.marks is None:
                    self._add(_runs(np.unique(sectors)))
                else:
                    self.marks[sectors - self.low // SECTOR] = True
            else:
                self._add_all(some, offsets)

    def _add(self, runs: set[_Run]) -> None:
        if self.marks is None:
            self.runs |= runs
            common = self._common_step()
            alone = (1 if run.step == common else run.times for run in self.runs)
            if sum(alone) > _MOST_RUNS:
                self._one_by_one()
        else:
            for run in runs:
                self._paint(self.marks, run)

    def _add_all(self, bases: Array, offsets: Array) -> None:
        """Mark one by one; the bases lie alike within a sector."""
        marks = self._one_by_one()
        pattern = np.unique(np.floor_divide(offsets + np.mod(bases[0], SECTOR), SECTOR))
        starts = np.floor_divide(bases, SECTOR) - self.low // SECTOR
        step = max(1, _CHUNK // len(pattern))
        for begin in range(0, len(starts), step):
            marks[starts[begin : begin + step, None] + pattern[None, :]] = True

    def _one_by_one(self) -> npt.NDArray[np.bool_]:
        """The marks, in the place of the runs from now on."""
        if self.marks is None:
            if self.extent > _MOST_SECTORS:
                raise TooLargeError
            self.marks = np.zeros(self.extent, bool)
            for run in self.runs:
                self._paint(self.marks, run)
            self.runs.clear()
        return self.marks

    def _paint(self, marks: npt.NDArray[np.bool_], run: _Run) -> None:
        first = run.first - self.low // SECTOR
        last = first + (run.times - 1) * run.step
        if run.times > 1:
            marks[first:last].reshape(-1, run.step)[:, : run.length] = True
        marks[last : last + run.length] = True

    def _common_step(self) -> int:
        """The step of the run that is repeated most often."""
        return max(((run.times, run.step) for run in self.runs), default=(1, 0))[1]

    @property
    def sectors(self) -> int:
        """How many sectors are marked."""
        if self.marks is not None:
            return int(np.count_nonzero(self.marks))
        common = self._common_step()
        step = max(1, common)
        boxes = []
        for run in self.runs:
            apart, times = (1, run.times) if run.step == common else (run.times, 1)
            for first in (run.first + i * run.step for i in range(apart)):
                row, begin = divmod(first, step)
                rows, end = divmod(begin + run.length, step)
                boxes.append((row, row + times, begin, step if rows else end))
                if rows:  # whole rows, none if repeated, and what is left
                    boxes.append((row + 1, row + rows, 0, step))
                    boxes.append((row + rows, row + rows + times, 0, end))
        return _area(np.array(boxes, np.int64).reshape(-1, 4))


def _step(bases: Array) -> int | None:
    """How far apart the bases lie, in rising order, if evenly; 0 for one alone."""
    if len(bases) < 2:
        return 0 if len(bases) else None
    step = int(bases[1] - bases[0])
    return step if step > 0 and bool((np.diff(bases) == step).all()) else None


def _repeated(bases: Array, step: int, offsets: Array) -> set[_Run]:
    """The sectors of ``base + offset`` for bases that lie evenly."""
    turn = SECTOR // math.gcd(step, SECTOR)  # so many steps are whole sectors
    found: set[_Run] = set()
    for base, start in enumerate(bases[:turn]):
        sectors = np.unique(np.floor_divide(offsets + start, SECTOR))
        found |= _runs(sectors, step * turn // SECTOR, len(bases[base::turn]))
    return found


def _runs(sectors: Array, step: int = 0, times: int = 1) -> set[_Run]:
    """The runs of some sectors, in rising order, each repeated; as one where they touch."""
    begins = np.flatnonzero(np.diff(sectors, prepend=sectors[0] - 2) != 1)
    lengths = np.diff(begins, append=len(sectors))
    return {
        _Run(first, 0, 1, (times - 1) * step + length)
        if times == 1 or length >= step
        else _Run(first, step, times, length)
        for first, length in zip(sectors[begins].tolist(), lengths.tolist(), strict=True)
    }


def _area(boxes: Array) -> int:
    """Cells in at least one of the boxes, each given as rows from, to, columns from, to."""
    edges = np.concatenate((boxes[:, [0, 2, 3]], boxes[:, [1, 3, 2]]))  # covers more, less
    edges = edges[np.argsort(edges[:, 0])]
    rows, begins = np.unique(edges[:, 0], return_index=True)
    columns, places = np.unique(edges[:, 1:], return_inverse=True)
    widths = np.diff(columns)
    changes = np.zeros(len(columns), np.int64)
    total = 0
    for height, some in zip(
        np.diff(rows), np.split(places.reshape(-1, 2), begins[1:]), strict=False
    ):
        np.add.at(changes, some[:, 0], 1)
        np.add.at(changes, some[:, 1], -1)
        total += int(height) * int(widths[np.cumsum(changes)[:-1] > 0].sum())
    return total
