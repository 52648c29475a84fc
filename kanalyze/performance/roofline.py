"""The roofline of an estimated launch: what it does and moves, under the peaks of its GPU."""

from __future__ import annotations

from collections.abc import Mapping

from kanalyze.devices.table import Device
from kanalyze.errors import Unknown
from kanalyze.models import tensor
from kanalyze.models.intensity import crossing
from kanalyze.models.roofline import roofline
from kanalyze.performance.cache_sim.parameters import (
    CacheParameter,
    MemoryMachine,
    NoParameterError,
    machine,
)
from kanalyze.performance.predict import WHAT_IF
from kanalyze.results import traffic as doc

_PEAKS = {"fp32": "fp32_tflops", "fp64": "fp64_tflops"}
_L1_BYTES_PER_CLOCK = 128  # a line for each SM and clock
_OPERANDS = {"f16": "fp16", "e4m3": "fp8", "e5m2": "fp8", "f8f6f4": "fp8", "s8": "int8",
             "u8": "int8", "i8": "int8", "f64": "fp64"}  # fmt: skip


def roofline_of(
    by_unit: Mapping[str, float],
    by_operand: Mapping[str, float] | Unknown,
    counters: Mapping[str, int | None],
    predicted_us: float | None,
    device: Device | None,
    changes: Mapping[str, float],
    own: Mapping[str, CacheParameter] | None = None,
) -> doc.RooflinePart | Unknown:
    """Where the launch stands; the reason where that is not known.

    Args:
        by_unit: operations by unit (`kanalyze.models.flops`).
        by_operand: those of the tensor cores by the type of their operands, or why not.
        counters: sectors and bytes by counter, caches and HBM among them.
        predicted_us: the time.
        device: the GPU.
        changes: factors on its rates, see `kanalyze.performance.predict.WHAT_IF`.
        own: parameters of the GPU in the place of the model's.
    """
    if device is None or predicted_us is None:
        return Unknown("the device or the time is not known")
    if isinstance(by_operand, Unknown):
        return by_operand
    operations, peaks = _units(by_unit, by_operand, device, changes.get("clock", 1.0))
    if isinstance(peaks, Unknown):
        return peaks
    try:
        factors = {WHAT_IF[name]: factor for name, factor in changes.items()}
        chip = machine(device, factors, own)
    except NoParameterError as error:
        return Unknown(str(error))
    rates, notes = _bandwidths(device, chip, changes)
    moved = {name: crossing(counters, name) for name in ("l1", "l2")}
    moved["hbm"] = _added(counters.get("dram_read_bytes"), counters.get("dram_write_bytes"))
    levels = {name: (float(size), rates[name]) for name, size in moved.items() if size is not None}
    roofs = roofline(operations, peaks, levels)
    if roofs is None:
        return Unknown("the launch does no floating-point operations")
    return doc.RooflinePart(
        unit=roofs.unit,
        peaks_tflops={name: rate / 1e12 for name, rate in peaks.items()},
        ceiling_tflops=roofs.ceiling / 1e12,
        achieved_tflops=sum(operations.values()) / predicted_us / 1e6,
        roof_tflops=roofs.roof / 1e12,
        bound=roofs.bound,
        levels={
            name: doc.RooflineLevel(
                gb_per_s=level.bandwidth / 1e9,
                basis=notes[name],
                intensity=level.intensity,
                ridge=level.ridge,
                roof_tflops=None if level.attainable is None else level.attainable / 1e12,
            )
            for name, level in roofs.levels.items()
        },
    )


def _units(
    by_unit: Mapping[str, float], by_operand: Mapping[str, float], device: Device, clock: float
) -> tuple[dict[str, float], dict[str, float] | Unknown]:
    """Operations by unit and type, and the units' peaks; the reason where one is not known."""
    operations: dict[str, float] = {}
    peaks: dict[str, float] = {}
    for unit, number in by_unit.items():
        if unit != "tensor" and number:
            peak = _peak(unit, device)
            if peak is None:
                return operations, Unknown(f"the peak of {device.name} for {unit} is not known")
            operations[unit], peaks[unit] = number, peak * 1e12 * clock
    for kind, number in by_operand.items():
        peak = tensor.peak(kind, device)
        if peak is None:
            reason = f"the tensor cores' peak of {device.name} for {kind} is not known"
            return operations, Unknown(reason)
        name = f"tensor {_OPERANDS.get(kind, kind)}"
        operations[name] = operations.get(name, 0.0) + number
        peaks[name] = peak * 1e12 * clock
    return operations, peaks


def _peak(unit: str, device: Device) -> float | None:
    """The peak of other units than tensor cores, 10^12 operations a second."""
    known: float | None = getattr(device, _PEAKS.get(unit, ""), None)
    lanes = getattr(device.capability, f"{unit}_lanes_per_sm")
    if known is None and lanes and device.sms and device.clock_max_mhz:
        return float(2 * lanes * device.sms * device.clock_max_mhz) / 1e6
    return known


def _bandwidths(
    device: Device, chip: MemoryMachine, changes: Mapping[str, float]
) -> tuple[dict[str, float], dict[str, str]]:
    """Bytes a second of each level, and what that rests on."""
    assert device.dram_gb_per_s is not None  # or the machine has no parameters
    l2 = chip.parameters["l2_rate"]
    rates = {
        "l1": chip.sms * _L1_BYTES_PER_CLOCK * chip.clock * 1e9,
        "l2": chip["l2_rate"] * 1e9,
        "hbm": device.dram_gb_per_s * changes.get("hbm", 1.0) * 1e9,
    }
    fact = device.facts["dram_gb_per_s"]
    notes = {
        "l1": "128 B a clock and SM, at the clock under load",
        "l2": f"{l2.origin}: {l2.note}" if l2.note else l2.origin,
        "hbm": f"{fact.source}{', what if' if 'hbm' in changes else ''}",
    }
    return rates, notes


def _added(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other
