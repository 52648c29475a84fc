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
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from kanalyze.models import boxes
from kanalyze.models.boxes import SectorRun
from kanalyze.models.coalescing import SECTOR
from kanalyze.symbolic.parts import LARGEST, Array, TooLargeError, distinct_numbers

_MOST_SECTORS = 1 << 29  # 16 GiB behind one pointer, half a GiB of marks
_FEW_SECTORS = 1 << 16  # marked one by one whatever they are
_MOST_RUNS = 1 << 11
_CHUNK = 1 << 23


@dataclass
class Footprint:
    """Sectors touched behind one pointer: ``marks`` from the address ``low`` on, or else ``runs``.

    ``extent`` is the number of sectors that can be marked.
    """

    low: int
    extent: int
    runs: set[SectorRun] = field(default_factory=set)
    marks: npt.NDArray[np.bool_] | None = None

    @staticmethod
    def over(low: int, high: int) -> Footprint:
        """No sector yet, of those between two addresses (inclusive)."""
        first, last = low // SECTOR, high // SECTOR
        footprint = Footprint(first * SECTOR, last - first + 1)
        if footprint.extent <= _FEW_SECTORS:
            footprint._one_by_one()
        return footprint

    def mark(self, bases: Array, offsets: Array, step: int = 0, times: int = 1) -> None:
        """Mark the sectors of ``base + offset + i·step`` for all pairs and 0 <= i < ``times``.

        Raises:
            TooLargeError: they are irregular, and all that can be marked lie too far apart.
        """
        if step < 0:
            bases, step = bases + step * (times - 1), -step
        if not step or times == 1 or not len(bases):
            self._mark(bases, offsets)
        elif len(bases) * len(offsets) <= _FEW_SECTORS:
            pattern = distinct_numbers(bases[:, None] + offsets[None, :])
            self._add(_repeated(0, step, times, pattern))
        elif len(bases) <= _MOST_RUNS:
            for base in bases.tolist():
                self._add(_repeated(base, step, times, offsets))
        elif len(bases) * times <= LARGEST:
            self._mark((bases[:, None] + step * np.arange(times)).reshape(-1), offsets)
        else:
            raise TooLargeError

    def _mark(self, bases: Array, offsets: Array) -> None:
        groups = [bases]
        if _step(bases) is None:
            scattered = len(offsets) == 1 and len(bases) > _FEW_SECTORS
            if scattered and self.extent <= _MOST_SECTORS:
                marks = self._one_by_one()
                marks[np.floor_divide(bases + offsets[0], SECTOR) - self.low // SECTOR] = True
                return
            bases = distinct_numbers(bases)
            places_within = np.mod(bases, SECTOR)
            present = np.flatnonzero(np.bincount(places_within))
            groups = [bases[places_within == inside] for inside in present]
        for some in groups:
            step = _step(some)
            few = len(some) * len(offsets) <= _FEW_SECTORS
            if step is not None and (self.marks is None or not few):
                self._add(_repeated(int(some[0]), step, len(some), offsets))
            elif few:
                sectors = np.floor_divide(some[:, None] + offsets[None, :], SECTOR)
                if self.marks is None:
                    self._add(_runs(distinct_numbers(sectors)))
                else:
                    self.marks[sectors - self.low // SECTOR] = True
            else:
                self._add_all(some, offsets)

    def _add(self, runs: set[SectorRun]) -> None:
        if self.marks is None:
            self.runs |= runs
            if boxes.number(self.runs, boxes.common_step(self.runs)) > _MOST_RUNS:
                self._one_by_one()
        else:
            for run in runs:
                self._paint(self.marks, run)

    def _add_all(self, bases: Array, offsets: Array) -> None:
        """Mark one by one; the bases lie alike within a sector."""
        marks = self._one_by_one()
        pattern = distinct_numbers(np.floor_divide(offsets + np.mod(bases[0], SECTOR), SECTOR))
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

    def _paint(self, marks: npt.NDArray[np.bool_], run: SectorRun) -> None:
        first = run.first - self.low // SECTOR
        last = first + (run.times - 1) * run.step
        if run.times > 1:
            marks[first:last].reshape(-1, run.step)[:, : run.length] = True
        marks[last : last + run.length] = True

    @property
    def sectors(self) -> int:
        """How many sectors are marked."""
        if self.marks is not None:
            return int(np.count_nonzero(self.marks))
        return sum(
            int(strip.height * np.diff(strip.edges)[strip.covers > 0].sum())
            for strip in self._strips()
        )

    def _strips(self) -> Iterator[boxes.Strip]:
        runs = list(self.runs)
        return boxes.strips(runs, [1] * len(runs), self._row())

    def _row(self) -> int:
        return max(1, boxes.common_step(self.runs))

    def disjoint(self) -> list[SectorRun]:
        """The marked sectors as runs of which no two overlap, and single ones do not touch."""
        if self.marks is not None:
            edges = np.flatnonzero(np.diff(self.marks, prepend=False, append=False))
            return _single(edges[::2] + self.low // SECTOR, edges[1::2] + self.low // SECTOR)
        begins = [run.first for run in self.runs if run.times == 1]
        ends = [run.first + run.length for run in self.runs if run.times == 1]
        runs = []
        if len(begins) < len(self.runs):
            begins, ends = [], []
            for strip in self._strips():
                inside = np.diff(strip.covers > 0, prepend=False, append=False)
                edges = strip.edges[np.flatnonzero(inside)]
                for begin, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
                    first = strip.row * self._row() + begin
                    last = first + (strip.height - 1) * self._row() + end - begin
                    if strip.height == 1 or end - begin == self._row():
                        begins.append(first)
                        ends.append(last)
                    else:
                        runs.append(SectorRun(first, self._row(), strip.height, end - begin))
        return runs + _single(np.array(begins, np.int64), np.array(ends, np.int64))


def _single(begins: Array, ends: Array) -> list[SectorRun]:
    """Runs that begin and end there, those that touch or overlap as one."""
    order = np.argsort(begins)
    begins, reached = begins[order], np.maximum.accumulate(ends[order])
    gaps = np.flatnonzero(begins[1:] > reached[:-1])
    firsts = begins[np.concatenate(([0], gaps + 1))] if len(begins) else begins
    lasts = reached[np.concatenate((gaps, [len(begins) - 1]))] if len(begins) else begins
    pairs = zip(firsts.tolist(), lasts.tolist(), strict=True)
    return [SectorRun(first, 0, 1, last - first) for first, last in pairs]


def _step(bases: Array) -> int | None:
    """How far apart the bases lie, in rising order, if evenly; 0 for one alone."""
    if len(bases) < 2:
        return 0 if len(bases) else None
    step = int(bases[1] - bases[0])
    return step if step > 0 and bool((np.diff(bases) == step).all()) else None


def _repeated(first: int, step: int, times: int, offsets: Array) -> set[SectorRun]:
    """The sectors of ``base + offset`` for bases that lie evenly, from the first on."""
    turn = SECTOR // math.gcd(step, SECTOR)  # so many steps are whole sectors
    runs: set[SectorRun] = set()
    for base in range(min(turn, times)):
        sectors = distinct_numbers(np.floor_divide(offsets + (first + base * step), SECTOR))
        runs |= _runs(sectors, step * turn // SECTOR, -((base - times) // turn))
    return runs


def _runs(sectors: Array, step: int = 0, times: int = 1) -> set[SectorRun]:
    """The runs of some sectors, in rising order, each repeated; as one where they touch."""
    begins = np.flatnonzero(np.diff(sectors, prepend=sectors[0] - 2) != 1)
    lengths = np.diff(begins, append=len(sectors))
    return {
        SectorRun(first, 0, 1, (times - 1) * step + length)
        if times == 1 or length >= step
        else SectorRun(first, step, times, length)
        for first, length in zip(sectors[begins].tolist(), lengths.tolist(), strict=True)
    }
