"""What a launch moves through L1, L2 and HBM, with the range that drift leaves.

What: sectors that miss L1, sectors that reach L2, bytes that HBM reads and writes, and when the
last block ends.
Formula: the launch is simulated (`kanalyze.performance.cache_sim.simulate`) on a sample of the
sets of L2. What
follows exactly is not left to the sample: sectors that bypass L1 count as their requests do, and
what is written is a sum over the launch, no more misses L1 than is asked of it, and
HBM's bytes are scaled by the distinct sectors of the launch over those of the sample. The runs
differ in drift: the advantage of older blocks (``ages``) and what is drawn (seeds). Where the runs
agree within 1 % two are enough.
Source: `kanalyze.performance.cache_sim.machine.toml` says which numbers were measured, which
fitted, on what. Limits: what depends on the order in which blocks drift apart is a range.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from kanalyze.performance.cache_sim import levels, placement, simulate
from kanalyze.performance.cache_sim.local import FAR
from kanalyze.performance.cache_sim.parameters import MemoryMachine
from kanalyze.performance.cache_sim.results import Estimate, KnownSectors, SimulatedRun, Work, mean
from kanalyze.performance.cache_sim.streams import Stream, coarser
from kanalyze.performance.cache_sim.tiles import ATOMIC, READ, WRITE

Floats = npt.NDArray[np.float64]

_OF_BURST_AT_LEAST = 4  # sampled lines of a burst
_LINES_AT_LEAST = 200_000
_MOST_RATE = 256
_MOST_BURSTS = 600_000
_AGREE = 0.01
_OF_CHIP = ("l1_latency", "hbm_latency", "l2_rate", "hbm_rate", "fabric_rate", "link_rate",
            "atomic_rate", "window", "launch", "gap", "dispatch", "block_jitter", "burst_jitter",
            "power")  # fmt: skip
_FIRST = ((1.0, 1), (0.0, 2))  # times the usual advantage of older blocks, and a seed
_MORE = ((1.0, 2), (0.5, 1), (2.0, 1), (2.0, 2))


def estimate(
    given: Stream,
    known: KnownSectors,
    work: Work,
    machine: MemoryMachine,
    per_sm: int,
    l1_bytes: int,
) -> Estimate:
    """Simulate a launch.

    Args:
        given: what its blocks ask for.
        known: sectors that are known exactly.
        work: what the blocks need besides memory.
        machine: the GPU.
        per_sm: blocks that an SM holds.
        l1_bytes: L1 of an SM, without the shared memory that the launch takes.
    """
    model = _LaunchSimulation(given, known, work, machine, per_sm, l1_bytes)
    runs = _together(model.run, _FIRST)
    usual = runs[0]
    if not _agree(runs):
        runs += _together(model.run, _MORE)
        usual = mean(
            [run for run, plan in zip(runs, (*_FIRST, *_MORE), strict=True) if 0 < plan[0] <= 1]
        )
    return Estimate(usual, tuple(runs), model.rate)


def _together(
    run: Callable[[tuple[float, int]], SimulatedRun], plans: Sequence[tuple[float, int]]
) -> list[SimulatedRun]:
    with ThreadPoolExecutor() as pool:
        return list(pool.map(run, plans))


def _agree(runs: Sequence[SimulatedRun]) -> bool:
    """HBM and L1 misses differ by less than a share of what is moved in all."""
    hbm = max(run.dram_read_bytes + run.dram_write_bytes for run in runs)
    misses = max(run.l1_miss_sectors for run in runs)
    return all(
        abs(getattr(runs[0], name) - getattr(runs[1], name)) <= _AGREE * whole
        for name, whole in (
            ("dram_read_bytes", hbm),
            ("dram_write_bytes", hbm),
            ("l1_miss_sectors", misses),
        )
    )


class _LaunchSimulation:
    def __init__(
        self,
        given: Stream,
        known: KnownSectors,
        work: Work,
        machine: MemoryMachine,
        per_sm: int,
        l1_bytes: int,
    ):
        self.machine = machine
        self.known = known
        self.work = work
        self.per_sm = per_sm
        bursts = int(given.burst[-1]) + 1
        factor = -(-len(given.tiles_of) * bursts // _MOST_BURSTS)
        self.stream = coarser(given, factor) if factor > 1 else given
        self.bursts = int(self.stream.burst[-1]) + 1
        self.share = len(given.tiles_of) / given.blocks  # of the blocks that are simulated
        self.lines, self.having = self._lines()
        self.rate = self._rate()
        self.l1_lines = max(int(machine["l1_ways"]), l1_bytes // 128 // self.rate)
        self.ways = int(machine["ways"])
        side = machine["l2_bytes_per_side"]
        self.sets = int(side) // 128 // self.ways // self.rate * self.rate
        tiles = self.stream.tiles
        self.sampled = placement.sampled(
            tiles.pattern, tiles.base, tiles.starts, tiles.lines, tiles.masks, self.sets, self.rate
        )
        self.distinct = self._distinct()
        kind, known = self.stream.kind, self.known
        self.asked = self._asked((kind == READ) & self.stream.cached) + known.local_read
        self.written = self._asked(kind == WRITE) * known.rewrites + known.local_written
        self.written += self._asked(kind == ATOMIC)
        self.program = self._program()

    def _lines(self) -> tuple[Floats, Floats]:
        """Lines asked for in each burst, and blocks that have it."""
        sizes = self.stream.tiles.sizes
        lines, having = np.zeros(self.bursts), np.zeros(self.bursts)
        seen = np.zeros(len(self.stream.tiles_of), bool)
        last = -1
        for column, burst in enumerate(self.stream.burst.tolist()):
            tile = self.stream.tiles_of[:, column]
            has = tile >= 0
            lines[burst] += sizes[tile[has]].sum()
            seen = seen | has if burst == last else has
            having[burst] = seen.sum()
            last = burst
        return lines, having

    def _rate(self) -> int:
        """One set in how many is enough."""
        rate, total = _MOST_RATE, float(self.lines.sum())
        of_burst = total / max(float(self.having.sum()), 1.0)
        while rate > 1 and (of_burst / rate < _OF_BURST_AT_LEAST or total / rate < _LINES_AT_LEAST):
            rate //= 2
        return rate

    def _distinct(self) -> tuple[int, int]:
        """Distinct sampled sectors of global memory that are read, and written."""
        counts = []
        for kind in ((self.stream.kind != WRITE), (self.stream.kind != READ)):
            tiles = np.unique(self.stream.tiles_of[:, kind])
            chosen = np.zeros(len(self.sampled.starts) - 1, bool)
            chosen[tiles[tiles >= 0]] = True
            lines = np.repeat(chosen, np.diff(self.sampled.starts)) & (self.sampled.line < FAR)
            line, mask = self.sampled.line[lines], self.sampled.mask[lines]
            order = np.argsort(line, kind="stable")
            line, mask = line[order], mask[order]
            begins = np.flatnonzero(np.diff(line, prepend=-1))
            merged = np.bitwise_or.reduceat(mask, begins) if len(begins) else mask
            counts.append(int(sum(((merged >> bit) & 1).sum() for bit in range(4))))
        return counts[0], counts[1]

    def run(self, plan: tuple[float, int]) -> SimulatedRun:
        """One run, with so many times the usual advantage of older blocks, and a seed."""
        age, seed = plan
        machine = self.machine
        chip = self._chip(machine["age_tensor" if self.work.tensor else "age_other"] * age, seed)
        counts = np.zeros(levels.COUNTS)
        caches = simulate.Caches(
            levels.l1(machine.sms, self.l1_lines, int(machine["l1_ways"])),
            levels.coalescer(int(chip.gpc.max()) + 1),
            levels.l2(machine.sides, self.sets // self.rate, self.ways),
        )
        end = simulate.run(self.program, chip, caches, counts, seed)
        kept = float((caches.l2.tag >= 0).sum())
        return self._moved(counts, kept, (end + machine["end"]) / 1000)

    def _program(self) -> simulate.Program:
        stream = self.stream
        weight = self.lines if self.lines.any() else self.having
        work = (
            self.work.total_ns
            * self.share
            * weight
            / max(float(weight.sum()), 1.0)
            / np.maximum(self.having, 1)
        )
        if self.stream.depth:  # blocks of an SM hide each other's waits at barriers
            work = np.maximum(work, (work + self.machine["sync"]) / self.per_sm)
        extra_waits = self._extra_waits()
        return simulate.Program(
            stream.tiles_of,
            stream.kind,
            stream.cached | (stream.kind == WRITE),
            np.searchsorted(stream.burst, np.arange(self.bursts + 1)).astype(np.int64),
            stream.depth,
            work,
            self.known.rewrites,
            extra_waits,
            self.work.warps * (1.0 + extra_waits),
            self._fresh(),
            self.sampled,
        )

    def _extra_waits(self) -> float:
        """Waits of a warp for each burst that its block reads, besides the first."""
        if self.stream.depth or not self.work.waits:
            return 0.0
        reads = self.stream.tiles_of[:, self.stream.kind == READ] >= 0
        bursts = self.stream.burst[self.stream.kind == READ]
        of_block = sum(
            float(reads[:, bursts == burst].any(axis=1).mean()) for burst in np.unique(bursts)
        )
        return max(0.0, self.work.waits / of_block - 1.0) if of_block else 0.0

    def _fresh(self) -> float:
        """Sectors that blocks read in a burst, each once, over those of all their requests."""
        if not self.known.requested:
            return 1.0
        sectors = self._asked(self.stream.kind == READ)
        return min(1.0, sectors / self.known.requested)

    def _asked(self, columns: npt.NDArray[np.bool_]) -> float:
        """Sectors of global memory that the blocks of the launch ask for in some columns."""
        tiles = self.stream.tiles
        ones = sum((tiles.masks >> bit) & 1 for bit in range(4))
        of_pattern = np.diff(np.concatenate([[0], np.cumsum(ones)])[tiles.starts])
        asked = self.stream.tiles_of[:, columns]
        of_tile = np.where(tiles.base < FAR, of_pattern[tiles.pattern], 0)
        return float(of_tile[asked[asked >= 0]].sum()) / self.share

    def _chip(self, age: float, seed: int) -> simulate.Chip:
        machine = self.machine
        gpc = machine.gpc_of_sm
        pairs = np.random.default_rng(seed).standard_normal((machine.sms + 1) // 2)
        return simulate.Chip(
            gpc=gpc,
            side=gpc % machine.sides,
            slowness=1 + machine["sm_spread"] * np.repeat(pairs, 2)[: machine.sms],
            slot_sm=np.tile(np.arange(machine.sms), self.per_sm),
            sides=machine.sides,
            rate=float(self.rate),
            fill=int(machine["fill_bytes"]),
            l2_latency=machine["l2_latency"] + (machine["queues"] if self.stream.depth else 0.0),
            age=age,
            **{name: machine[name] for name in _OF_CHIP},
        )

    def _moved(self, counts: Floats, kept: float, end_us: float) -> SimulatedRun:
        """What the whole launch moves; ``kept`` lines are in the sampled sets of L2 in the end."""
        scale = self.rate / self.share
        misses = min(self.asked, counts[levels.L1_MISSES] * scale) + self.known.uncached
        passed = counts[levels.L1_MISSES] + counts[levels.UNCACHED]
        read_scale = _ratio(self.known.read, self.distinct[0], scale)
        write_scale = _ratio(self.known.written, self.distinct[1], scale)
        size = self.machine["l2_bytes_per_side"] * self.machine.sides / 128 / self.rate
        fills = min(1 / self.share, max(1.0, size / kept)) if kept else 1.0  # of the other blocks
        evicted = counts[levels.EVICTED] + kept * (1 / self.share - fills)
        full = min(1.0, evicted / size)
        dirty = 32 * counts[levels.RESIDUE] * self.rate * fills
        written = 32 * (counts[levels.HBM_WRITE] + counts[levels.RESIDUE]) * write_scale
        return SimulatedRun(
            l1_miss_sectors=misses,
            l2_read_sectors=counts[levels.L2_READ] * (misses / passed if passed else scale),
            l2_write_sectors=self.written,
            fabric_sectors=counts[levels.FABRIC] * scale,
            dram_read_bytes=32 * counts[levels.HBM_READ] * read_scale,
            dram_write_bytes=max(0.0, written - dirty) + self.machine["dirty_before"] * full,
            end_us=end_us / self.share,
        )


def _ratio(exact: int, sampled: int, scale: float) -> float:
    """By how much a count of the sample is scaled, where the whole is known."""
    return exact / sampled if sampled and exact else scale
