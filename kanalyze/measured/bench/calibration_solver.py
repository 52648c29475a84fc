"""Parameters of the memory model from a few measured times: its equations, solved for its numbers.

What: the capacity of one side of L2, and rates of the GPU's units.
Formula: capacity: a buffer of rising size is read cyclically by all SMs together, a step after the
other, so that both sides of L2 need all of it; with least-recently-used replacement every step
waits for memory as soon as it does not fit. Taken is the size at which half the steps do, by the
time of a byte between that of hits and that of misses. Rates: of each launch the model says which
rate its time depends on most; that rate is changed until the model's time is the one measured.
Source: the cyclic read is that of Wong et al., "Demystifying GPU Microarchitecture through
Microbenchmarking" (2010), by all SMs.
Limits: CUDA events stand some microseconds above Nsight Compute's ``gpu__time_duration``. What the
model has wrong about a launch goes into its rate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kanalyze import _bundled
from kanalyze.analysis.launch import estimate
from kanalyze.devices.table import Device
from kanalyze.errors import Unknown
from kanalyze.frontend.compile import Compiled
from kanalyze.performance.cache_sim.parameters import CacheParameter, machine

_CLOSE = 0.003  # of the measured time
_MOST_TURNS = 8
_BINDS = 0.3  # the least change of the time for one of the rate, both relative
_TRIED = 0.9
RATES = ("hbm_rate", "l2_rate", "fabric_rate", "link_rate", "tensor_share", "shared_share",
         "issue_share", "pipe_share")  # fmt: skip
"""The parameters that a launch may be solved for."""
_HIT_SHARE = 0.5  # of the nominal size: what is smaller is taken to hit
_MISS_SHARE = 1.4  # what is larger, to miss
_APART = 1.15  # times that a missing byte takes at least, or there is no knee


@dataclass(frozen=True, slots=True)
class CalibrationLaunch:
    """A calibrating launch: what it is called, its target and settings."""

    name: str
    target: str
    dtype: str
    settings: Mapping[str, int]


def launches() -> tuple[CalibrationLaunch, ...]:
    """A copy of 256 MiB, and a product of 4096 x 4096 x 4096 by two sizes of tiles."""
    copy = str(_bundled.folder("kernels") / "baselines" / "unary.py")
    sides = {"M": 4096, "N": 4096, "K": 4096}
    return (
        CalibrationLaunch("copy", copy, "fp32", {"n": 1 << 26, "tanh": 0}),
        CalibrationLaunch("product, wide tiles", "matmul_relu", "fp16", {**sides, "BLOCK_N": 256}),
        CalibrationLaunch("product", "matmul_relu", "fp16", sides),
    )  # fmt: skip


@dataclass(frozen=True)
class CalibrationTimes:
    """What was measured: bytes and GB/s of cyclic reads, microseconds by launch, and with what.

    ``versions`` has the driver, among others; ``date`` is ISO 8601. ``reasons`` says of a launch
    why it was not measured.
    """

    device: str
    date: str
    versions: Mapping[str, str]
    cyclic: tuple[tuple[int, float], ...]
    times_us: Mapping[str, float]
    reasons: Mapping[str, str] = field(default_factory=dict)

    @property
    def stamp(self) -> str:
        """Date, device and driver in one line."""
        return f"{self.date}, {self.device}, driver {self.versions.get('driver', 'unknown')}"


@dataclass(frozen=True)
class SolvedParameters:
    """Parameters, and the reason for each launch or parameter of which nothing was found."""

    parameters: Mapping[str, CacheParameter]
    reasons: Mapping[str, str]


def solve(
    measured: CalibrationTimes,
    device: Device,
    compiled: Mapping[str, Compiled],
    progress: Callable[[str], None] = lambda what: None,
) -> SolvedParameters:
    """The parameters that explain what was measured.

    Args:
        measured: the measurements.
        device: the GPU, as the device table knows it.
        compiled: the launches that ran, by name.
        progress: called with what is done.
    """
    parameters: dict[str, CacheParameter] = {}
    reasons = dict(measured.reasons)
    size = capacity(measured.cyclic, int(machine(device)["l2_bytes_per_side"]))
    if isinstance(size, Unknown):
        reasons["l2_bytes_per_side"] = size.reason
    else:
        note = f"half of cyclic reads by all SMs miss; {measured.stamp}"
        parameters["l2_bytes_per_side"] = CacheParameter(size, "measured", note)
    for launch in launches():
        time_us = measured.times_us.get(launch.name)
        if time_us is None or launch.name not in compiled:
            reasons.setdefault(launch.name, "it was not measured")
            continue
        progress(f"solving for what '{launch.name}' depends on")
        solved = rate_of(time_us, device, compiled[launch.name], parameters)
        if isinstance(solved, Unknown):
            reasons[launch.name] = solved.reason
        else:
            note = f"from the time of '{launch.name}', {time_us:.1f} us; {measured.stamp}"
            parameters[solved[0]] = CacheParameter(solved[1], "measured", note)
    return SolvedParameters(parameters, reasons)


def capacity(curve: Sequence[tuple[int, float]], nominal: int) -> int | Unknown:
    """Bytes at which half of cyclic reads miss, or why that is not seen.

    Args:
        curve: sizes in bytes, rising, and the rate at each.
        nominal: about how many are expected.
    """
    inside = [1 / rate for size, rate in curve if size <= _HIT_SHARE * nominal]
    outside = [1 / rate for size, rate in curve if size >= _MISS_SHARE * nominal]
    if not inside or not outside:
        return Unknown("sizes on both sides of the capacity are needed")
    hit, miss = sorted(inside)[len(inside) // 2], sorted(outside)[len(outside) // 2]
    if miss < _APART * hit:
        return Unknown("no size was found from which on reads are slower")
    middle = (hit + miss) / 2
    before = None
    for size, rate in curve:
        now = (size, 1 / rate)
        if now[1] >= middle and before is not None and before[1] < middle:
            share = (middle - before[1]) / (now[1] - before[1])
            return round(before[0] + share * (now[0] - before[0]))
        before = now
    return Unknown("no size was found from which on reads are slower")


def rate_of(
    time_us: float, device: Device, compiled: Compiled, known: Mapping[str, CacheParameter]
) -> tuple[str, float] | Unknown:
    """The rate that the model's time depends on most, and its value with which it is the measured.

    Returns the reason where there is none.

    Args:
        time_us: the measured time.
        device: the GPU.
        compiled: the launch.
        known: parameters that are solved for already, and stay.
    """

    def predicted(**changed: float) -> float:
        own = {**known, **{k: CacheParameter(v, "measured") for k, v in changed.items()}}
        traffic = estimate(
            compiled, device=device.name, calibration={device.name: own}, findings=False
        )
        return traffic.time.predicted_us or math.nan

    chip = machine(device, own=known)
    time = predicted()
    if not time > 0:
        return Unknown("its time cannot be estimated")
    by_rate = {
        name: math.log(predicted(**{name: _TRIED * chip[name]}) / time) / -math.log(_TRIED)
        for name in RATES
        if name not in known
    }
    name = max(by_rate, key=lambda rate: by_rate[rate])
    if by_rate[name] < _BINDS:
        reason = "the model's time of it hardly depends on a rate that is not solved for yet"
        return Unknown(reason)
    value = chip[name]
    for _ in range(_MOST_TURNS):
        off = time / time_us
        if abs(off - 1) <= _CLOSE:
            return name, value
        value *= min(2.0, max(0.5, off ** (1 / min(1.0, by_rate[name]))))
        time = predicted(**{name: value})
    return Unknown(f"no {name} makes the model's time of it the measured one")


def remarks(measured: CalibrationTimes, reasons: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Sections on how it was measured, for `kanalyze.performance.cache_sim.calibration.write`."""
    return {
        "calibrated": {"device": measured.device, "date": measured.date, **measured.versions},
        "measured": {
            **{f"{name.replace(', ', '_').replace(' ', '_')}_us": time
               for name, time in measured.times_us.items()},
            "cyclic_bytes": [size for size, _ in measured.cyclic],
            "cyclic_gb_per_s": [round(rate, 1) for _, rate in measured.cyclic],
        },
        **({"unknown": dict(reasons)} if reasons else {}),
    }  # fmt: skip
