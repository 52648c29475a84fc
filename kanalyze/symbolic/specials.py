"""Special registers over the axes of a launch."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from kanalyze.symbolic import parts
from kanalyze.symbolic.parts import Array, Parts

Triple = tuple[int, int, int]
BLOCK, THREAD = 0, 1  # axes; iterations of loops follow, outermost first
_MOST = 1 << 27  # blocks of a grid of which each number is written out: 1 GiB


@dataclass(frozen=True, slots=True)
class Specials:
    """The special registers of one launch.

    Args:
        grid, block, cluster: extents of the launch (a cluster of 1 block: none).
        dimensions: number of axes.
        part: the first block and the number of blocks, where it is not the whole launch.
    """

    grid: Triple
    block: Triple
    cluster: Triple
    dimensions: int
    part: tuple[int, int] | None = None

    def of(self, name: str) -> Parts | None:
        """The numbers of a register, named without the ``%``; None if it is not evaluated."""
        stem, _, axis = name.partition(".")
        index = "xyz".find(axis) if axis else -1
        extents = {"ntid": self.block, "nctaid": self.grid}
        if stem in extents and index >= 0:
            return parts.number(extents[stem][index], self.dimensions)
        if stem == "tid" and index >= 0:
            return self._index(THREAD, self.block, index)
        if stem == "ctaid" and index >= 0:
            return self._index(BLOCK, self.grid, index)
        lanes = np.arange(math.prod(self.block)) % 32
        if name == "laneid":
            return self._along(THREAD, lanes)
        if name == "elected":  # one lane of each warp; which one matters to nobody
            return self._along(THREAD, (lanes == 0).astype(np.int64))
        return self._of_cluster(stem, index) if "cluster" in stem else None

    def _along(self, axis: int, numbers: Array) -> Parts:
        shape = [1] * self.dimensions
        shape[axis] = len(numbers)
        return parts.of_arrays([numbers.astype(np.int64).reshape(shape)])

    def _index(self, along: int, sides: Triple, index: int) -> Parts:
        """One component of an index whose first component runs fastest."""
        if sides[index] == 1:
            return parts.number(0, self.dimensions)
        inner, outer = math.prod(sides[:index]), math.prod(sides[index + 1 :])
        if along == BLOCK and self.part is not None:
            first, count = self.part
            return self._along(BLOCK, np.arange(first, first + count) // inner % sides[index])
        if inner == outer == 1:
            return parts.steps(along, self.dimensions, sides[index])
        if inner * outer * sides[index] > _MOST:
            raise parts.TooLargeError
        places = np.arange(sides[index])[:, None]
        everywhere = np.broadcast_to(places, (outer, sides[index], inner))
        return self._along(along, everywhere.reshape(-1))

    def _of_cluster(self, stem: str, index: int) -> Parts | None:
        """Registers that say where a block is in its cluster, or a cluster in the grid."""
        sides = self.cluster
        blocks = [self._index(BLOCK, self.grid, axis) for axis in range(3)]
        within = [parts.remainder(b, n) for b, n in zip(blocks, sides, strict=True)]
        if index >= 0:
            numbers = {
                "cluster_ctaid": within[index],
                "cluster_nctaid": parts.number(sides[index], self.dimensions),
                "clusterid": parts.floor_divide(blocks[index], sides[index]),
                "nclusterid": parts.number(self.grid[index] // sides[index], self.dimensions),
            }
        else:
            row = parts.add(within[0], parts.scale(within[1], sides[0]))
            numbers = {
                "cluster_ctarank": parts.add(row, parts.scale(within[2], sides[0] * sides[1])),
                "cluster_nctarank": parts.number(math.prod(sides), self.dimensions),
            }
        return numbers.get(stem)
