"""The simulation against the closed form where nothing is shared, and the form against sets."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from kanalyze.devices.table import device
from kanalyze.performance.cache_sim.estimate import estimate
from kanalyze.performance.cache_sim.parameters import machine
from kanalyze.performance.cache_sim.results import KnownSectors, Work
from kanalyze.performance.cache_sim.streams import Stream, Tiles
from kanalyze.performance.cache_sim.tiles import READ, WRITE
from tests.oracle.closed_form import hbm_reads

Asked = list[list[list[tuple[int, int]]]]
"""By block and column: lines with the mask of their sectors."""


def stream_of(asked: Asked, kinds: list[int], depth: int = 0) -> Stream:
    """A stream with a pattern for each tile; each column is a burst."""
    shape = (len(asked), len(kinds))
    tiles = np.full(shape, -1, np.int32)
    starts, lines, masks, base = [0], [], [], []
    for block, columns in enumerate(asked):
        for column, some in enumerate(columns):
            if some:
                tiles[block, column] = len(base)
                base.append(some[0][0])
                lines += [line - base[-1] for line, _ in some]
                masks += [mask for _, mask in some]
                starts.append(len(lines))
    numbers = np.array(base, np.int64)
    return Stream(
        tiles=Tiles(
            np.arange(len(base)), numbers, np.array(starts), np.array(lines, np.int64),
            np.array(masks, np.int64),
        ),
        tiles_of=tiles,
        kind=np.array(kinds, np.int64),
        cached=np.array([kind == READ for kind in kinds]),
        burst=np.arange(len(kinds)),
        depth=depth,
        blocks=len(asked),
    )  # fmt: skip


def random_stream(seed: int) -> tuple[Asked, list[int], int]:
    chance = random.Random(seed)
    kinds = [READ, *(chance.choice([READ, READ, WRITE]) for _ in range(chance.randint(0, 4)))]
    blocks = chance.randint(1, 400)
    lines = list(range(blocks * len(kinds) * 6))
    chance.shuffle(lines)
    asked: Asked = [
        [
            sorted((lines.pop(), chance.randint(1, 15)) for _ in range(chance.randint(0, 6)))
            for _ in kinds
        ]
        for _ in range(blocks)
    ]
    return asked, kinds, chance.choice([0, 2])


def granules(asked: Asked, kinds: list[int]) -> int:
    return len(
        {
            (line, bit // 2)
            for block in asked
            for kind, some in zip(kinds, block, strict=True)
            for line, mask in some
            for bit in range(4)
            if kind == READ and mask >> bit & 1
        }
    )


@pytest.mark.parametrize("seed", range(30))
def test_the_closed_form_counts_half_lines(seed: int) -> None:
    asked, kinds, depth = random_stream(seed)
    assert hbm_reads(stream_of(asked, kinds, depth)) == 64 * granules(asked, kinds)


def test_what_is_asked_for_twice_has_no_closed_form() -> None:
    one, other = [(7, 15)], [(7, 1)]
    assert hbm_reads(stream_of([[one], [other]], [READ])) is None
    assert hbm_reads(stream_of([[one, other]], [READ, READ])) is None
    assert hbm_reads(stream_of([[one, other]], [READ, WRITE])) is None
    assert hbm_reads(stream_of([[one, [(8, 1)]]], [READ, WRITE])) == 128


def simulated(given: Stream, read: int, per_sm: int, **changes: Any) -> Any:
    known = KnownSectors(read, 0, 0)
    chip = machine(device("H200"), changes)
    return estimate(given, known, Work(1e5, False), chip, per_sm, 64 << 10)


@pytest.mark.parametrize("seed", range(30))
def test_the_simulation_agrees(seed: int) -> None:
    """All sets are looked at; the distinct sectors that are known do not change the sum."""
    asked, kinds, depth = random_stream(seed)
    given = stream_of(asked, kinds, depth)
    found = simulated(given, 0, 1 + seed % 4)
    assert found.rate == 1
    for run in found.runs:
        assert run.dram_read_bytes == hbm_reads(given)


def streaming(blocks: int, lines: int) -> Stream:
    """Each block reads lines of its own, one after the other, and writes as many."""
    number = np.arange(blocks)
    return Stream(
        tiles=Tiles(
            np.zeros(2 * blocks, np.int64),
            np.concatenate([number * lines, (1 << 30) + number * lines]),
            np.array([0, lines]), np.arange(lines), np.full(lines, 15),
        ),
        tiles_of=np.stack([number, blocks + number], axis=1).astype(np.int32),
        kind=np.array([READ, WRITE]), cached=np.array([True, False]), burst=np.array([0, 1]),
        depth=0, blocks=blocks,
    )  # fmt: skip


def test_a_sample_of_sets_agrees_when_the_distinct_sectors_are_known() -> None:
    """256 MB through an L2 of 60 MB: one set in some is looked at, the sum is exact."""
    given = streaming(1 << 16, 32)
    whole = hbm_reads(given)
    assert whole == 1 << 28
    found = simulated(given, whole // 32, 16)
    assert found.rate > 1
    assert found.usual.dram_read_bytes == pytest.approx(whole, rel=1e-12)
    assert simulated(given, 0, 16).usual.dram_read_bytes == pytest.approx(whole, rel=0.01)


def test_the_closed_form_of_a_kernel() -> None:
    """GeLU by hand: each element once, in whole half lines."""
    pytest.importorskip("triton")
    from kanalyze import estimate
    from kanalyze.frontend.subject import Settings

    traffic = estimate("gelu", settings=Settings(settings={"n": 1 << 20}))
    assert traffic.counters["dram_read_bytes"] == 4 << 20
