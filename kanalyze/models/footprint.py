"""The distinct sectors that a launch touches through one pointer: its compulsory traffic.

What: the set of 32-byte sectors, over all blocks, threads and iterations.
Formula: blocks and iterations in which the same lanes take part and that lie alike within a sector
are one class; the set is the union over classes of ``base + pattern``.
Source: "compulsory" as in compulsory cache misses. Limits: the span of one pointer is bounded.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from kanalyze.address.parts import Array, TooLargeError
from kanalyze.models.coalescing import SECTOR

_MOST_SECTORS = 1 << 29  # 16 GiB behind one pointer, half a GiB of marks
_CHUNK = 1 << 23


@dataclass
class Footprint:
    """Sectors touched behind one pointer; ``low`` is the address of the first mark."""

    low: int
    marks: npt.NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, bool))

    @staticmethod
    def over(low: int, high: int) -> Footprint:
        """No sector yet, of those between two addresses (inclusive).

        Raises:
            TooLargeError: they lie too far apart.
        """
        first, last = low // SECTOR, high // SECTOR
        if last - first >= _MOST_SECTORS:
            raise TooLargeError
        return Footprint(first * SECTOR, np.zeros(last - first + 1, bool))

    def mark(self, bases: Array, offsets: Array) -> None:
        """Mark the sectors of ``base + offset`` for all pairs."""
        start = self.low // SECTOR
        places_within = np.mod(bases, SECTOR)
        for inside in np.flatnonzero(np.bincount(places_within)):
            some = np.floor_divide(bases[places_within == inside], SECTOR)
            pattern = np.unique(np.floor_divide(offsets + inside, SECTOR))
            if self._mark_regular(some, pattern, start):
                continue
            step = max(1, _CHUNK // max(1, len(pattern)))
            for begin in range(0, len(some), step):
                places = some[begin : begin + step, None] + pattern[None, :] - start
                self.marks[places] = True

    def _mark_regular(self, some: Array, pattern: Array, start: int) -> bool:
        """Mark where the bases lie evenly and patterns do not overlap; else do nothing."""
        if len(some) < 2:
            return False
        step = int(some[1] - some[0])
        first, last = int(some[0] + pattern[0] - start), int(pattern[-1] - pattern[0])
        if step <= last or bool((np.diff(some) != step).any()):
            return False
        rows = self.marks[first : first + (len(some) - 1) * step].reshape(-1, step)
        for run in np.split(pattern, np.flatnonzero(np.diff(pattern) != 1) + 1):
            begin, end = int(run[0] - pattern[0]), int(run[-1] - pattern[0]) + 1
            rows[:, begin:end] = True
        self.marks[first + (len(some) - 1) * step + pattern - pattern[0]] = True
        return True

    @property
    def sectors(self) -> int:
        """How many sectors are marked."""
        return int(np.count_nonzero(self.marks))
