"""Local memory in the stream of a launch: spills and stack arrays.

What: columns for what blocks read from and write to local memory, which goes through L1 and L2 as
global memory does.
Formula: the bytes of a block are spread evenly over its bursts; each burst takes the next lines of
the block's local memory, round and round, and reads only what was written before. Blocks that take
the same place on the GPU have the same local memory.
Source: CUDA C++ Programming Guide, "Local Memory": interleaved by thread, so that a warp's access
is coalesced.
Limits: which of its local variables a burst touches is not followed.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from kanalyze.performance.cache_sim.streams import Stream, Tiles
from kanalyze.performance.cache_sim.tiles import LINE, READ, WRITE

Ints = npt.NDArray[np.int64]
FAR = 1 << 40
"""The first line of local memory: no global address is there."""


def with_local(given: Stream, read: float, written: float, size: int, places: int) -> Stream:
    """The stream with local memory.

    Args:
        given: the stream.
        read: bytes that a block reads from local memory.
        written: bytes that it writes to it.
        size: bytes of local memory of a block.
        places: blocks that the GPU holds at a time.
    """
    lines = max(1, size // LINE)
    bursts = np.unique(given.burst[given.kind == READ])
    asked: list[tuple[int, int, int, int]] = []  # burst, kind, lines, and where they begin
    there = 0 if written else lines
    for number, burst in enumerate(bursts.tolist()):
        for kind, total in ((WRITE, written), (READ, read)):
            begin, end = (int((number + n) * total / LINE / len(bursts)) for n in (0, 1))
            extent = lines if kind == WRITE else there
            some = min(end - begin, extent)
            begin %= extent - some + 1
            if some:
                asked.append((burst, kind, some, begin))
            if kind == WRITE:
                there = max(there, begin + some)
    base: list[Ints] = []
    pattern: list[Ints] = []
    starts = [0]
    shapes: dict[int, int] = {}
    columns: list[Ints] = []
    slot = np.arange(len(given.tiles_of)) % places
    slots = np.arange(min(places, len(slot)))
    first: dict[tuple[int, int], int] = {}
    for _, _, some, begin in asked:
        if some not in shapes:
            shapes[some] = len(given.tiles.starts) - 1 + len(shapes)
            starts.append(starts[-1] + some)
        if (some, begin) not in first:
            first[some, begin] = len(given.tiles.base) + len(slots) * len(first)
            base.append(FAR + slots * lines + begin)
            pattern.append(np.full(len(slots), shapes[some]))
        columns.append(first[some, begin] + slot)
    kinds = [kind for _, kind, _, _ in asked]
    of_burst = [burst for burst, _, _, _ in asked]
    if not columns:
        return given
    added = starts[-1]
    offsets = np.concatenate([np.arange(number) for number in shapes])
    tiles = Tiles(
        pattern=np.concatenate([given.tiles.pattern, *pattern]),
        base=np.concatenate([given.tiles.base, *base]),
        starts=np.concatenate([given.tiles.starts, given.tiles.starts[-1] + np.array(starts[1:])]),
        lines=np.concatenate([given.tiles.lines, offsets]),
        masks=np.concatenate([given.tiles.masks, np.full(added, 15)]),
    )
    order = np.argsort(np.concatenate([given.burst, of_burst]), kind="stable")
    tiles_of = np.concatenate([given.tiles_of, np.stack(columns, axis=1).astype(np.int32)], axis=1)
    return replace(
        given,
        tiles=tiles,
        tiles_of=np.ascontiguousarray(tiles_of[:, order]),
        kind=np.concatenate([given.kind, kinds])[order],
        cached=np.concatenate([given.cached, np.ones(len(kinds), bool)])[order],
        burst=np.concatenate([given.burst, of_burst])[order],
    )
