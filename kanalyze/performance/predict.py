"""A launch on one GPU: what it moves through the caches, and how long it takes.

The glue between what is counted exactly (`kanalyze.traffic.totals`,
`kanalyze.counting.sass_launch`) and the
models of caches and time (`kanalyze.performance.cache_sim`, `kanalyze.performance.timing`), which
are estimates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from kanalyze.counting.sass_launch import SassKernelLaunch
from kanalyze.devices.table import Device
from kanalyze.errors import Unknown
from kanalyze.kernel.describe import Description
from kanalyze.models import tensor
from kanalyze.models.coalescing import SECTOR
from kanalyze.performance import invariants
from kanalyze.performance.cache_sim import streams
from kanalyze.performance.cache_sim.local import with_local
from kanalyze.performance.cache_sim.parameters import (
    CacheParameter,
    MemoryMachine,
    NoParameterError,
    machine,
)
from kanalyze.performance.cache_sim.results import COUNTERS, KnownSectors, Work, whole
from kanalyze.performance.cache_sim.stores import rewrites
from kanalyze.performance.cache_sim.tiles import READ, past_l1
from kanalyze.performance.demand import demand, runs, unrolled
from kanalyze.performance.timing.model import PredictedTimes, sm_work, times
from kanalyze.results.traffic import Compulsory, added
from kanalyze.symbolic.grid import UnknownValueError
from kanalyze.symbolic.parts import TooLargeError
from kanalyze.traffic.totals import LaunchTotals

_MOST_BLOCKS = 1 << 16
_CARVEOUT_ROOM = 1.6
_SMALL = 32 << 10


WHAT_IF = {"hbm": "hbm_rate", "l2": "l2_rate", "fabric": "fabric_rate", "link": "link_rate",
           "clock": "clock",
           "tensor": "tensor_share", "issue": "issue_share"}  # fmt: skip
"""What can be scaled, and the parameter that it stands for."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """Counters, the ranges of those that depend on drift, times, and on what all that rests.

    ``unknown`` says why a counter is None.
    """

    counters: Mapping[str, int | None]
    unknown: Mapping[str, str]
    interval: Mapping[str, tuple[int, int]]
    times: PredictedTimes
    time_interval: tuple[float, float] | None
    assumptions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Given:
    """The launch: exact counters and compulsory bytes, and how its blocks fill the GPU.

    ``local_bytes`` of a thread are its stack, spilled registers included.
    """

    description: Description
    totals: LaunchTotals
    code: SassKernelLaunch | Unknown
    counters: Mapping[str, int | None]
    compulsory: Compulsory
    per_sm: int
    shared_bytes: int
    local_bytes: int


def predict(
    given: Given,
    device: Device,
    changes: Mapping[str, float] | None = None,
    own: Mapping[str, CacheParameter] | None = None,
) -> Prediction | Unknown:
    """Simulate the launch; the reason where that is not possible.

    Args:
        given: the launch.
        device: the GPU.
        changes: factors by name in `WHAT_IF`.
        own: parameters of the GPU in the place of the model's.
    """
    launched = given.totals.launched
    if given.totals.unread is not None:
        return Unknown(given.totals.unread)
    try:
        factors = {WHAT_IF[k]: factor for k, factor in (changes or {}).items()}
        chip = machine(device, factors, own)
        dropped = given.totals.dropped
        stream = streams.stream(launched, given.description.staged, _MOST_BLOCKS, dropped)
    except (UnknownValueError, NoParameterError) as error:
        return Unknown(str(error))
    except TooLargeError:
        return Unknown("too many different accesses to simulate")
    blocks = math.prod(launched.launch.grid)
    threads = math.prod(launched.launch.block)
    if isinstance(given.code, Unknown):
        return given.code
    moved = [given.counters.get(f"global_{kind}_sectors") for kind in ("load", "store")]
    spilled = given.code.local_bytes()
    if None in moved or isinstance(spilled, Unknown):
        reason = spilled.reason if isinstance(spilled, Unknown) else "sectors are not known"
        return Unknown(f"how much is accessed: {reason}")
    read, written = spilled["load"], spilled["store"]
    asked = demand(
        given.totals, given.code, given.description.cfg, sum(n or 0 for n in moved),
        read + written, device,
    )  # fmt: skip
    if isinstance(asked, Unknown):
        return asked
    if not asked.cycles.get("tensor"):
        chip = chip.light()
    together = unrolled(given.totals, given.code) if not stream.depth else 1
    if together > 1:
        stream = streams.coarser(stream, together)
    if read or written:
        stream = with_local(
            stream,
            read / blocks,
            written / blocks,
            given.local_bytes * threads,
            given.per_sm * chip.sms,
        )
    from kanalyze.performance.cache_sim.estimate import estimate  # compiled code

    room = l1_bytes(device, given.per_sm, given.shared_bytes)
    in_l1 = given.local_bytes * threads * given.per_sm <= room
    total, by_tensor = sm_work(asked, chip, blocks, given.per_sm, in_l1)
    simulated = estimate(
        stream,
        _known(given, read // SECTOR, written // SECTOR),
        Work(total, by_tensor, asked.waits, -(-threads // 32)),
        chip,
        given.per_sm,
        room,
    )
    usual = whole(simulated.usual)
    atomics = given.counters.get("global_atomic_sectors")
    usual["l1_miss_sectors"] += atomics or 0
    through = {**usual, "fabric_sectors": simulated.usual.fabric_sectors}
    waits = 0 if stream.depth else len(set(stream.burst[stream.kind == READ].tolist()))
    interval: dict[str, tuple[int, int]] = {}
    for name in COUNTERS:
        spread = simulated.interval(name)
        if spread is not None:
            past = usual[name] - round(getattr(simulated.usual, name))  # atomics
            interval[name] = (round(spread[0]) + past, round(spread[1]) + past)
    predicted = times(asked, through, simulated.usual.end_us, chip, blocks, given.per_sm, waits)
    broken = invariants.broken(
        usual, interval, given.compulsory, _most(given, read, written), chip["dirty_before"]
    )
    if atomics is None:
        broken["l1_miss_sectors"] = "the sectors of atomics, which are among them, are not known"
    return Prediction(
        counters={name: None if name in broken else value for name, value in usual.items()},
        unknown=broken,
        interval={name: both for name, both in interval.items() if name not in broken},
        times=predicted,
        time_interval=_at_least(simulated.interval("end_us"), predicted),
        assumptions=_assumptions(given, chip, len(simulated.runs), simulated.rate, bool(interval)),
    )


def _most(given: Given, read: int, written: int) -> dict[str, int | None]:
    """The most that requests can ask of the levels behind L1, with what goes to local memory."""
    names = {
        "l1_miss_sectors": ("global_load", "global_atomic", "bulk_load"),
        "l2_write_sectors": ("global_store", "global_atomic", "global_reduction", "bulk_store",
                             "bulk_reduction"),
    }  # fmt: skip
    most = {
        counter: added(given.counters.get(f"{name}_sectors") for name in of)
        for counter, of in names.items()
    }
    local = {"l1_miss_sectors": read // SECTOR, "l2_write_sectors": written // SECTOR}
    return {name: None if n is None else n + local[name] for name, n in most.items()}


def _at_least(
    interval: tuple[float, float] | None, predicted: PredictedTimes
) -> tuple[float, float] | None:
    """The range of the simulated ends, none of which is before the largest bound."""
    if interval is None:
        return None
    most = max((bound for bound in predicted.bounds_us.values()), default=0.0)
    low, high = max(interval[0], most), max(interval[1], most)
    return (low, high) if low < high else None


def _assumptions(
    given: Given, chip: MemoryMachine, runs: int, rate: int, ranged: bool
) -> tuple[str, ...]:
    sets = "all sets" if rate == 1 else f"one set in {rate}"
    said = [f"L1, L2, HBM and time are estimates: {runs} simulated runs, {sets} of L2"]
    scaled = [f"{name} {p.note}" for name, p in chip.parameters.items() if p.origin == "what-if"]
    if scaled:
        said.append(f"what if: {', '.join(scaled)}")
    if chip.calibrated:
        said.append(f"calibrated: {', '.join(chip.calibrated)}")
    if ranged:
        said.append("ranges: how far blocks drift apart, which depends on the chip and the code")
    code = given.code
    if not isinstance(code, Unknown) and code.instructions_executed.value is None:
        said.append("time: where data decide, warps are taken to go both ways")
    if not chip.checked:
        said.append(
            f"the memory model was never compared with counters of {chip.device.name}: its"
            " parameters are scaled from those of an H200"
        )
    return tuple(said)


def _known(given: Given, local_read: int, local_written: int) -> KnownSectors:
    uncached, dropped = 0, set(given.totals.dropped)
    for index, transfer in enumerate(given.totals.transactions):
        row = transfer.access.row
        reads = row.kind in ("load", "async_copy", "bulk_load")
        if row.space != "global" or not reads or transfer.counted is None or index in dropped:
            continue
        if row.kind == "bulk_load" and transfer.moved is not None:
            uncached += transfer.counted.requests * -(
                -transfer.moved // SECTOR
            )  # what is out of bounds, too
        elif past_l1(transfer.access):
            uncached += transfer.counted.transactions
    code = given.code
    return KnownSectors(
        read=(given.compulsory.read_bytes or 0) // SECTOR,
        written=(given.compulsory.write_bytes or 0) // SECTOR,
        uncached=uncached,
        rewrites=1.0 if isinstance(code, Unknown) else rewrites(code.cfg, runs(code)),
        requested=given.counters.get("global_load_sectors") or 0,
        local_read=local_read,
        local_written=local_written,
    )


def l1_bytes(device: Device, per_sm: int, shared_bytes: int) -> int:
    """L1 of an SM: what the carve-out for shared memory leaves.

    The driver's choice is not documented; in recorded launches on an H200 it leaves room, and never
    takes 100 KiB.
    """
    cap = device.capability
    size = cap.l1_shared_bytes_per_sm or cap.shared_per_sm_bytes
    need = float(per_sm * (shared_bytes + cap.shared_reserved_bytes))
    need *= _CARVEOUT_ROOM if need < _SMALL else 1
    options = [option for option in cap.shared_carveouts_bytes if option not in (0, 100 << 10)]
    taken = next((option for option in options if option >= need), cap.shared_per_sm_bytes)
    return max(size - taken, 16 << 10)


def achieved(
    predicted: Prediction,
    device: Device,
    operations: float | None,
    totals: LaunchTotals,
    changes: Mapping[str, float],
) -> dict[str, float]:
    """Rates at the predicted time, and their shares of the device's peaks, where known."""
    seconds = predicted.times.predicted_us * 1e-6
    moved = added(predicted.counters[f"dram_{kind}_bytes"] for kind in ("read", "write"))
    rates = {} if moved is None else {"hbm_gb_per_s": moved / seconds / 1e9}
    if rates and device.dram_gb_per_s:
        peak = device.dram_gb_per_s * changes.get("hbm", 1)
        rates["hbm_peak_share"] = rates["hbm_gb_per_s"] / peak
    if operations is not None:
        rates["tflops"] = operations / seconds / 1e12
    by_type = totals.tensor_flops()
    if isinstance(by_type, Unknown):
        return rates
    shares = [
        number / seconds / 1e12 / highest
        for kind, number in by_type.items()
        if (highest := tensor.peak(kind, device)) is not None
    ]
    if shares and len(shares) == len(by_type):
        rates["tensor_peak_share"] = sum(shares)
    elif operations and not by_type and device.fp32_tflops:
        rates["fp32_peak_share"] = rates["tflops"] / device.fp32_tflops
    return rates
