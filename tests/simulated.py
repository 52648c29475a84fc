"""Small GPUs and programs for the tests of the simulation."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np

from kanalyze.performance.cache_sim import levels, simulate
from kanalyze.performance.cache_sim.placement import CacheLines

READ, WRITE, ATOMIC = 0, 1, 2

_RATES = {
    "l1_latency": 20.0, "l2_latency": 250.0, "hbm_latency": 350.0, "l2_rate": 1e6, "hbm_rate": 1e6,
    "fabric_rate": 1e6, "link_rate": 1e6, "atomic_rate": 1e6, "power": 12.0,
}  # fmt: skip


def chip_of(
    gpc: Sequence[int] = (0,), sides: int = 1, fill: int = 64, per_sm: int = 1, **given: Any
) -> simulate.Chip:
    """A GPU without jitter and of endless rates, but for what is given."""
    groups = np.array(gpc, np.int64)
    numbers = {**dict.fromkeys(simulate.Chip._fields, 0.0), **_RATES, **given}
    by_sm = {
        "gpc": groups,
        "side": groups % sides,
        "slowness": np.asarray(given.get("slowness", np.ones(len(groups))), float),
        "slot_sm": np.tile(np.arange(len(groups)), per_sm),
    }
    return simulate.Chip(**{**numbers, **by_sm, "sides": sides, "rate": 1.0, "fill": fill})


def caches_of(
    chip: simulate.Chip, l1_lines: int = 64, l1_ways: int = 4, l2_sets: int = 64, l2_ways: int = 16
) -> simulate.Caches:
    """Empty caches."""
    return simulate.Caches(
        levels.l1(len(chip.gpc), l1_lines, l1_ways),
        levels.coalescer(int(chip.gpc.max()) + 1),
        levels.l2(chip.sides, l2_sets, l2_ways),
    )


Ask = tuple[int, bool, list[tuple[int, int]] | None]
"""Kind, whether L1 keeps it, and lines with the mask of their sectors; None: no tile."""


def program_of(
    blocks: Sequence[Sequence[Sequence[Ask]]],
    sets: int = 64,
    depth: int = 0,
    work: float | Sequence[float] = 0.0,
    homes: int = 1,
    rewrites: float = 1.0,
    extra_waits: float = 0.0,
    together: float = 1.0,
    fresh: float = 1.0,
) -> simulate.Program:
    """A program from what each block asks for: bursts of asks.

    A line lies in set ``line % sets`` and at home on side ``line // 3 % homes``. All blocks have as
    many bursts, and in each burst asks of the same kinds.
    """
    shape = [[(kind, cached) for kind, cached, _ in burst] for burst in blocks[0]]
    assert all([[(k, c) for k, c, _ in burst] for burst in block] == shape for block in blocks), (
        "blocks differ in kind"
    )
    kinds = [pair for burst in shape for pair in burst]
    starts, lines, masks = [0], [], []
    tiles = np.full((len(blocks), len(kinds)), -1, np.int32)
    for number, block in enumerate(blocks):
        for column, (_, _, asked) in enumerate(ask for burst in block for ask in burst):
            if asked is not None:
                tiles[number, column] = len(starts) - 1
                lines += [line for line, _ in asked]
                masks += [mask for _, mask in asked]
                starts.append(len(lines))
    line = np.array(lines, np.int64)
    return simulate.Program(
        tiles,
        np.array([kind for kind, _ in kinds], np.int64),
        np.array([cached or kind == WRITE for kind, cached in kinds], bool),
        np.cumsum([0, *(len(burst) for burst in shape)]).astype(np.int64),
        depth,
        np.broadcast_to(np.asarray(work, float), len(shape)).copy(),
        rewrites,
        extra_waits,
        together,
        fresh,
        CacheLines(
            np.array(starts), line % sets, line // 3 % homes, line, np.array(masks, np.int64)
        ),
    )


def ask(
    chip: simulate.Chip, caches: simulate.Caches, queues: simulate.Queues, counts: Any, sm: int,
    kind: int, cached: bool, where: int, home: int, line: int, mask: int, now: float, clock: int,
) -> int:  # fmt: skip
    """One access of one line; returns the clock of the caches."""
    one = np.array([line], np.int64)
    program = simulate.Program(
        np.zeros((1, 1), np.int32), np.array([kind]), np.array([cached or kind == WRITE]),
        np.array([0, 1]), 0, np.zeros(1), 1.0, 0.0, 1.0, 1.0,
        CacheLines(np.array([0, 1]), one * 0 + where, one * 0 + home, one, one * 0 + mask),
    )  # fmt: skip
    given = (program, chip, caches, queues, counts, sm, 0, 0, float(now), int(clock))
    more = len(inspect.signature(simulate._ask.py_func).parameters) - len(given)
    _, clock = simulate._ask(*given, *(1.0,) * more)
    return clock
