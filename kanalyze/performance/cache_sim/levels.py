"""The caches as a simulation sees them: lines with sectors, least recently used ones go first.

What: L1 of each SM, the request coalescer of each GPC, and the sides of L2.
Formula, for each line of 128 bytes with the sectors asked for:
  L1         4 ways; a read asks the next level for the sectors that are missing; a write goes
             through and keeps the line.
  coalescer  a read that another SM of the GPC made within the window does not reach L2.
  L2, read   the copy on the SM's own side; if it lacks sectors, the home side, which gets missing
             ones from HBM as whole halves of 64 bytes, and then the own side keeps a copy. A hit in
             the copy does not refresh the home.
  L2, write  kept at the home side as modified, nothing is fetched; a copy on the writer's side.
  L2, atomic at the home side; missing sectors are fetched first.
  evicted    modified sectors are written to HBM.
Source: measured on H200s with streams of one SM and of all (``kanalyze device --calibrate``
measures the capacities); 64-byte fills: ``lts__d_sectors_fill_device``; write-through L1 and
write-back L2: NVIDIA's tuning guides.
Limits: replacement is taken to be LRU; hints (evict_first, evict_last) are not followed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kanalyze.performance.cache_sim.compiled import compiled
from kanalyze.performance.cache_sim.placement import mix

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

# places in the counts; all but EVICTED are sectors
(L1_ASKED, L1_MISSES, UNCACHED, L2_READ, L2_WRITE, FABRIC, HBM_READ, HBM_WRITE, RESIDUE,
 EVICTED) = range(10)  # fmt: skip
COUNTS = 10
_COALESCER_ENTRIES = 1 << 12


class L1(NamedTuple):
    """By SM, set and way: the line, its valid sectors, and when it was last used."""

    tag: Ints
    valid: Ints
    used: Ints


class Coalescer(NamedTuple):
    """By GPC and entry: the line that was asked for last, its sectors, and when (ns)."""

    tag: Ints
    mask: Ints
    time: Floats


class L2(NamedTuple):
    """By side, set and way: the line, valid and modified sectors, last use, and arrival (ns)."""

    tag: Ints
    valid: Ints
    dirty: Ints
    used: Ints
    ready: Floats


def l1(sms: int, lines: int, ways: int) -> L1:
    """Empty L1 caches."""
    shape = (sms, max(1, lines // ways), ways)
    return L1(np.full(shape, -1), np.zeros(shape, np.int64), np.zeros(shape, np.int64))


def l2(sides: int, sets: int, ways: int) -> L2:
    """An empty L2."""
    shape = (sides, sets, ways)
    return L2(
        np.full(shape, -1),
        np.zeros(shape, np.int64),
        np.zeros(shape, np.int64),
        np.zeros(shape, np.int64),
        np.zeros(shape),
    )


def coalescer(gpcs: int) -> Coalescer:
    """Coalescers that have seen nothing."""
    shape = (gpcs, _COALESCER_ENTRIES)
    return Coalescer(np.full(shape, -1), np.zeros(shape, np.int64), np.full(shape, -1e18))


@compiled
def sectors(mask: int) -> int:
    """How many of the four sectors are in a mask."""
    return (mask & 1) + ((mask >> 1) & 1) + ((mask >> 2) & 1) + ((mask >> 3) & 1)


@compiled
def filled(missing: int, valid: int, fill: int) -> int:
    """What is fetched for missing sectors: whole pieces of ``fill`` bytes without what is there."""
    if fill >= 128:
        missing = 15
    elif fill >= 64:
        missing = (3 if missing & 3 else 0) | (12 if missing & 12 else 0)
    return missing & ~valid


@compiled
def in_l1(cache: L1, sm: int, line: int, mask: int, clock: int) -> int:
    """The sectors that L1 lacks; it has them afterwards."""
    where = np.int64(mix(line) & np.uint64(0xFFFFFFF)) % cache.tag.shape[1]
    oldest = 0
    for way in range(cache.tag.shape[2]):
        if cache.tag[sm, where, way] == line:
            missing = int(mask & ~cache.valid[sm, where, way])
            cache.valid[sm, where, way] |= mask
            cache.used[sm, where, way] = clock
            return missing
        if cache.used[sm, where, way] < cache.used[sm, where, oldest]:
            oldest = way
    cache.tag[sm, where, oldest] = line
    cache.valid[sm, where, oldest] = mask
    cache.used[sm, where, oldest] = clock
    return mask


@compiled
def merged(cache: Coalescer, gpc: int, line: int, mask: int, time: float, window: float) -> bool:
    """Whether the GPC asked for the same sectors within the window; if not, it does so now."""
    entry = np.int64(mix(line) & np.uint64(_COALESCER_ENTRIES - 1))
    if (
        cache.tag[gpc, entry] == line
        and time - cache.time[gpc, entry] < window
        and mask & ~cache.mask[gpc, entry] == 0
    ):
        return True
    cache.tag[gpc, entry] = line
    cache.mask[gpc, entry] = mask
    cache.time[gpc, entry] = time
    return False


@compiled
def way_of(
    cache: L2, side: int, where: int, line: int, clock: int, time: float, counts: Floats
) -> int:
    """The way of a line on one side; the least recently used one is evicted for it."""
    oldest = 0
    for way in range(cache.tag.shape[2]):
        if cache.tag[side, where, way] == line:
            cache.used[side, where, way] = clock
            return way
        if cache.used[side, where, way] < cache.used[side, where, oldest]:
            oldest = way
    if cache.tag[side, where, oldest] >= 0:
        counts[EVICTED] += 1
        counts[HBM_WRITE] += sectors(cache.dirty[side, where, oldest])
    cache.tag[side, where, oldest] = line
    cache.valid[side, where, oldest] = 0
    cache.dirty[side, where, oldest] = 0
    cache.used[side, where, oldest] = clock
    cache.ready[side, where, oldest] = time
    return oldest


@compiled
def written(
    cache: L2,
    home: int,
    side: int,
    where: int,
    line: int,
    mask: int,
    clock: int,
    time: float,
    counts: Floats,
) -> None:
    """A write of some sectors of a line by an SM of ``side``."""
    way = way_of(cache, home, where, line, clock, time, counts)
    cache.valid[home, where, way] |= mask
    cache.dirty[home, where, way] |= mask
    if home != side:
        counts[FABRIC] += sectors(mask)
        way = way_of(cache, side, where, line, clock, time, counts)
        cache.valid[side, where, way] |= mask
