"""HBM reads without a simulation, where nothing is asked for twice.

What: the bytes that HBM reads for a stream of which no line is asked for in two tiles.
Formula: each half line of 64 bytes of which a sector is read is fetched once; no cache matters.
Source: 64-byte fills, see `kanalyze.performance.cache_sim.levels`.
Limits: lines that are written and read, or read by two tiles, make it None.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kanalyze.performance.cache_sim.streams import Stream
from kanalyze.performance.cache_sim.tiles import WRITE

GRANULE = 64


def hbm_reads(given: Stream) -> int | None:
    """Bytes that HBM reads for a stream; None where a line is asked for more than once."""
    read, masks = _asked(given, given.kind != WRITE)
    written, _ = _asked(given, given.kind == WRITE)
    if len(np.unique(read)) < len(read) or np.isin(read, written).any():
        return None
    return GRANULE * int(((masks & 3) > 0).sum() + ((masks & 12) > 0).sum())


def _asked(
    given: Stream, columns: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The lines that are asked for in some columns, as often as they are, and their sectors."""
    tiles = given.tiles_of[:, columns].reshape(-1)
    tiles = tiles[tiles >= 0]
    pattern, base = given.tiles.pattern[tiles], given.tiles.base[tiles]
    first, sizes = given.tiles.starts[pattern], np.diff(given.tiles.starts)[pattern]
    ends = np.cumsum(sizes)
    places = np.arange(int(sizes.sum())) - np.repeat(ends - sizes, sizes) + np.repeat(first, sizes)
    return given.tiles.lines[places] + np.repeat(base, sizes), given.tiles.masks[places]
