"""What goes into the simulation of a launch besides its stream, and what comes out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

COUNTERS = ("l1_miss_sectors", "l2_read_sectors", "l2_write_sectors", "dram_read_bytes",
            "dram_write_bytes")  # fmt: skip
_SPREAD = 0.03
_NOTICED = 0.1  # of all HBM bytes


@dataclass(frozen=True, slots=True)
class Work:
    """What a launch needs besides memory: ns of an SM for all blocks; 0 where it is not known.

    ``tensor``: the tensor cores are the busiest. ``waits``: how often a warp waits for what it
    reads from global memory, one wait after the other; a block has ``warps``.
    """

    total_ns: float
    tensor: bool
    waits: float = 0.0
    warps: int = 1


@dataclass(frozen=True, slots=True)
class KnownSectors:
    """Sectors of the launch that are known exactly: distinct ones read and written, and requests
    for what bypasses L1. A sector is written ``rewrites`` times; requests of loads ask for
    ``requested``; of local memory ``local_read`` and ``local_written`` are.
    """

    read: int
    written: int
    uncached: int
    rewrites: float = 1.0
    requested: int = 0
    local_read: int = 0
    local_written: int = 0


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """One run: sectors, bytes, and the end of the last block in microseconds."""

    l1_miss_sectors: float
    l2_read_sectors: float
    l2_write_sectors: float
    fabric_sectors: float
    dram_read_bytes: float
    dram_write_bytes: float
    end_us: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """The usual run and the range over all; ``runs`` and one set in ``rate`` were simulated."""

    usual: SimulatedRun
    runs: tuple[SimulatedRun, ...]
    rate: int

    def interval(self, name: str) -> tuple[float, float] | None:
        """The range of one number; None where it is below 3 % of it and of all of its kind."""
        values = [float(getattr(run, name)) for run in self.runs]
        low, high = min(values), max(values)
        whole = high
        if name.startswith("dram"):
            whole = max(run.dram_read_bytes + run.dram_write_bytes for run in self.runs)
        return (low, high) if high - low > _SPREAD * max(high, _NOTICED * whole) else None


def mean(runs: Sequence[SimulatedRun]) -> SimulatedRun:
    """The mean of some runs."""
    names = [f.name for f in fields(SimulatedRun)]
    return SimulatedRun(
        *(sum(float(getattr(run, name)) for run in runs) / len(runs) for name in names)
    )


def whole(moved: SimulatedRun) -> dict[str, int]:
    """The counters, rounded."""
    return {name: round(getattr(moved, name)) for name in COUNTERS}
