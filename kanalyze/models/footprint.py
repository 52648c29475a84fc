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
        for inside in np.unique(np.mod(bases, SECTOR)):
            some = np.unique(np.floor_divide(bases[np.mod(bases, SECTOR) == inside], SECTOR))
            pattern = np.unique(np.floor_divide(offsets + inside, SECTOR))
            step = max(1, _CHUNK // max(1, len(pattern)))
            for begin in range(0, len(some), step):
                places = some[begin : begin + step, None] + pattern[None, :] - start
                self.marks[places] = True

    @property
    def sectors(self) -> int:
        """How many sectors are marked."""
        return int(np.count_nonzero(self.marks))
