"""What holds of every estimate: broken by hand, and of local memory in the stream of a launch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kanalyze.performance.cache_sim.local import FAR, with_local
from kanalyze.performance.cache_sim.streams import Stream, Tiles
from kanalyze.performance.cache_sim.tiles import READ, WRITE
from kanalyze.performance.invariants import broken
from kanalyze.results.traffic import Compulsory, PointerBytes

COUNTERS = {
    "l1_miss_sectors": 100, "l2_read_sectors": 90, "l2_write_sectors": 50, "dram_read_bytes": 3200,
    "dram_write_bytes": 1700,
}  # fmt: skip
POINTERS = (PointerBytes("x", 3200, 0, None), PointerBytes("y", 640, 640, None))
MOST = {"l1_miss_sectors": 100, "l2_write_sectors": None}


@pytest.mark.parametrize(
    ("changes", "interval", "words"),
    [
        ({}, {}, {}),
        ({}, {"l2_read_sectors": (80, 95)}, {}),
        ({"dram_read_bytes": 3199}, {}, {"dram_read_bytes": "3,199, cannot be: it is below 3,200"}),
        ({"dram_write_bytes": 1701}, {}, {"dram_write_bytes": "above 1,700"}),
        ({"l2_write_sectors": 49}, {}, {"dram_write_bytes": "above 1,668"}),
        ({"l2_read_sectors": 101}, {}, {"l2_read_sectors": "above 100, the sectors that miss L1"}),
        ({"l1_miss_sectors": 101}, {}, {"l1_miss_sectors": "the sectors that requests ask for"}),
        ({}, {"l2_read_sectors": (91, 95)}, {"l2_read_sectors": "below 91, its range"}),
    ],
)
def test_what_cannot_be(
    changes: dict[str, int], interval: dict[str, tuple[int, int]], words: dict[str, str]
) -> None:
    found = broken(COUNTERS | changes, interval, Compulsory(3840, 640, POINTERS), MOST, 100.0)
    assert list(found) == list(words)
    assert all(words[name] in found[name] for name in words)


def stream(blocks: int, bursts: int) -> Stream:
    """Each block reads a line of its own in each burst."""
    numbers = np.arange(blocks * bursts)
    return Stream(
        tiles=Tiles(
            np.zeros(len(numbers), np.int64), numbers, np.array([0, 1]), np.zeros(1, np.int64),
            np.full(1, 15),
        ),
        tiles_of=numbers.reshape(blocks, bursts).astype(np.int32),
        kind=np.full(bursts, READ),
        cached=np.ones(bursts, bool),
        burst=np.arange(bursts),
        depth=0,
        blocks=blocks,
    )  # fmt: skip


@pytest.mark.parametrize("read", [0, 1, 5, 7, 40, 200])
@pytest.mark.parametrize("written", [1, 3, 8, 40, 100])
@pytest.mark.parametrize("size", [1, 4, 16])
def test_local_memory_is_read_after_it_was_written(read: int, written: int, size: int) -> None:
    """All lines that are written, and of those that are read the ones that are there."""
    made = with_local(stream(3, 8), 128.0 * read, 128.0 * written, 128 * size, places=2)
    tiles: Any = made.tiles
    for block in range(3):
        there: set[int] = set()
        count = {READ: 0, WRITE: 0}
        for column in range(made.tiles_of.shape[1]):
            tile = made.tiles_of[block, column]
            if tile < 0 or tiles.base[tile] < FAR:
                continue
            pattern = tiles.pattern[tile]
            lines = tiles.lines[tiles.starts[pattern] : tiles.starts[pattern + 1]]
            asked = {int(tiles.base[tile] + line) for line in lines}
            kind = int(made.kind[column])
            count[kind] += len(asked)
            low = FAR + (block % 2) * size
            assert asked <= set(range(low, low + size))
            if kind == WRITE:
                there |= asked
            else:
                assert asked <= there
        assert count[WRITE] == sum(
            min(size, (n + 1) * written // 8 - n * written // 8) for n in range(8)
        )
        assert count[READ] <= read
        if written >= size * 8 and read <= size * 8:
            assert count[READ] == read
