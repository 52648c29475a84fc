"""Where a line of memory lies in L2, and which lines a simulation looks at.

What: the set and the home side of a 128-byte line, and of each tile the lines in the sampled sets.
Formula: each 2-MiB page is permuted and spread evenly over the sets, from a place of its own; the
home side is a bit of a hash. Only sets whose number is a multiple of the rate are looked at, so
that caches shrink and counts grow by the same factor.
Source: knees of the miss rate over the size of an array, measured on an H200: an even spread within
a page fits them, a hash of each line does not (README of ``benchmarks/caches``).
Limits: the hardware's hash is not known; which lines share a set is right only on average.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kanalyze.performance.cache_sim.compiled import compiled, making_arrays

PAGE = 1 << 14  # lines of 128 bytes in a page of 2 MiB

Ints = npt.NDArray[np.int64]


class CacheLines(NamedTuple):
    """Of tile ``t`` the sampled lines ``starts[t]`` to ``starts[t + 1]``.

    ``line`` is the address in lines, ``set`` the set among the sampled ones, ``home`` the side (0
    or 1), ``mask`` has a bit for each of the four sectors that are asked for.
    """

    starts: Ints
    set: Ints
    home: Ints
    line: Ints
    mask: Ints


@compiled
def mix(number: int) -> np.uint64:
    """A hash of 64 bits (the finalizer of MurmurHash3)."""
    x = np.uint64(number)
    x ^= x >> np.uint64(33)
    x *= np.uint64(0xFF51AFD7ED558CCD)
    x ^= x >> np.uint64(33)
    x *= np.uint64(0xC4CEB9FE1A85EC53)
    return x ^ (x >> np.uint64(33))


@compiled
def place(line: int, sets: int) -> tuple[int, int]:
    """The set of a line, and its home side."""
    page = line // PAGE
    within = (line % PAGE) ^ np.int64(mix(page) & np.uint64(PAGE - 1))
    for _ in range(3):  # each step permutes the lines of the page
        within = (within * 10837) & (PAGE - 1)
        within ^= within >> 7
    start = np.int64(mix(page * 7 + 1) % np.uint64(sets))
    home = np.int64((mix(line) >> np.uint64(7)) & np.uint64(1))
    return int((within * sets // PAGE + start) % sets), int(home)


@making_arrays
def sampled(
    pattern: Ints, base: Ints, starts: Ints, lines: Ints, masks: Ints, sets: int, rate: int
) -> CacheLines:
    """The lines of each tile that lie in sets whose number is a multiple of ``rate``.

    Tile ``t`` has the lines ``base[t] + lines[starts[p]:starts[p + 1]]`` with ``p = pattern[t]``.
    """
    tiles = len(pattern)
    ends = np.zeros(tiles + 1, np.int64)
    for tile in range(tiles):
        here = 0
        for j in range(starts[pattern[tile]], starts[pattern[tile] + 1]):
            if place(base[tile] + lines[j], sets)[0] % rate == 0:
                here += 1
        ends[tile + 1] = ends[tile] + here
    sample = CacheLines(
        ends,
        np.empty(ends[tiles], np.int64),
        np.empty(ends[tiles], np.int64),
        np.empty(ends[tiles], np.int64),
        np.empty(ends[tiles], np.int64),
    )
    k = 0
    for tile in range(tiles):
        for j in range(starts[pattern[tile]], starts[pattern[tile] + 1]):
            line = base[tile] + lines[j]
            where, home = place(line, sets)
            if where % rate == 0:
                sample.set[k] = where // rate
                sample.home[k] = home
                sample.line[k] = line
                sample.mask[k] = masks[j]
                k += 1
    return sample
