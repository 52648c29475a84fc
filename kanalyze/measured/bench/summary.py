"""What a benchmark found, as one document: times, and the measures that follow from them.

Achieved TFLOP/s are the operations of the static estimate over the time; GB/s the bytes that must
cross the memory at least over the time, their share that of the device table's peak; both with a
cold L2. Occupancy is the model's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kanalyze.devices import table as devices
from kanalyze.errors import KanalyzeError
from kanalyze.measured.bench import metrics, record
from kanalyze.measured.bench.cases import BenchCase
from kanalyze.measured.bench.gpu import LocalGpu
from kanalyze.measured.bench.run import BenchResult, Outcome

SCHEMA = "kanalyze.bench/1"
_WHY = {"planned": "nothing is run (--dry-run)", "left": "it was not reached"}


def planned(cases: Sequence[BenchCase], folder: Path) -> dict[str, Any]:
    """The document of a dry run."""
    launches = [_planned(case, folder) | {"status": "planned"} for case in cases]
    return _document(None, {}, folder, launches, [], BenchResult([]))


def document(result: BenchResult, machine: LocalGpu, folder: Path) -> dict[str, Any]:
    """The document of a run."""
    peak = _peak(machine.device)
    launches = [_launch(outcome, folder, peak) for outcome in result.outcomes]
    compiled = [_measured(data, peak) | {"case": data["case"]} for data in result.compiled]
    return _document(machine.device, dict(machine.versions), folder, launches, compiled, result)


def _document(
    device: str | None,
    versions: dict[str, str],
    folder: Path,
    launches: list[dict[str, Any]],
    compiled: list[dict[str, Any]],
    result: BenchResult,
) -> dict[str, Any]:
    unknown = [
        {
            "field": f"launches[{index}].cold_us",
            "reason": launch["reason"] or _WHY[launch["status"]],
        }
        for index, launch in enumerate(launches)
        if launch["cold_us"] is None
    ]
    return {
        "schema": SCHEMA,
        "device": device,
        "versions": versions,
        "folder": str(folder),
        "launches": launches,
        "compiled": compiled,
        "interrupted": result.interrupted,
        "out_of_time": result.out_of_time,
        "notes": list(result.notes),
        "unknown": unknown,
    }


def _planned(case: BenchCase, folder: Path) -> dict[str, Any]:
    plan = case.plan
    return {
        "case": case.name,
        "target": case.target.text,
        "dtype": plan.dtype,
        "shape": dict(plan.shape),
        "constexprs": dict(plan.constexprs),
        "num_warps": plan.options["num_warps"],
        "num_stages": plan.options["num_stages"],
        "grid": list(plan.grid),
        "purpose": case.purpose,
        "status": "left",
        "reason": None,
        "record": str(folder / f"{case.name}.json"),
        **_measured(None, None),
        "rivals": [],
    }


def _launch(outcome: Outcome, folder: Path, peak: float | None) -> dict[str, Any]:
    data = outcome.data
    row = _planned(outcome.case, folder) | {"status": outcome.status, "reason": outcome.reason}
    if data is None:
        return row | {"record": None}
    ours = data["times_cold_ms"]["median"]
    return (
        row
        | _measured(data, peak)
        | {"rivals": [_rival(rival, ours) for rival in data.get("rivals") or []]}
    )


def _measured(data: Mapping[str, Any] | None, peak: float | None) -> dict[str, Any]:
    """What was measured of a record, and what follows."""
    data = data or {}
    cold = data.get("times_cold_ms") or {}
    seconds = cold.get("median") and cold["median"] / 1e3
    static = record.static_of(data)
    least = None
    if static.read_bytes is not None and static.write_bytes is not None:
        least = static.read_bytes + static.write_bytes
    rate = least / seconds / 1e9 if seconds and least is not None else None
    return {
        "cold_us": _us(data.get("times_cold_ms")),
        "warm_us": _us(data.get("times_warm_ms")),
        "relative_norm": data.get("relative_norm"),
        "relative_norm_bound": data.get("relative_norm_bound"),
        "flops": static.flops,
        "tflops": static.flops / seconds / 1e12 if seconds and static.flops is not None else None,
        "compulsory_bytes": {"read": static.read_bytes, "written": static.write_bytes},
        "gb_per_s": rate,
        "bandwidth_share": rate / peak if rate is not None and peak else None,
        "occupancy_percent": static.occupancy_percent,
        "dram_bytes": metrics.dram_bytes(data.get("counters") or {}),
        "counted": data.get("counters") is not None,
    }


def _us(times: Mapping[str, float] | None) -> dict[str, float] | None:
    if times is None:
        return None
    in_us: dict[str, float] = {k: 1e3 * times[k] for k in ("median", "p20", "p80")}
    return in_us | {"runs": times["runs"]}


def _rival(rival: Mapping[str, Any], ours_ms: float) -> dict[str, Any]:
    cold = rival.get("times_cold_ms")
    return {
        "provider": rival["provider"],
        "cold_us": _us(cold),
        "warm_us": _us(rival.get("times_warm_ms")),
        "times_ours": cold["median"] / ours_ms if cold else None,
        "launches": rival.get("launches"),
        "kernels": rival.get("kernels") or [],
        "relative_norm": rival.get("relative_norm"),
        "dram_bytes": metrics.dram_bytes(rival.get("counters") or {}),
        "error": rival.get("error"),
    }


def _peak(device: str) -> float | None:
    """The peak bandwidth of a GPU's memory, GB/s; None where it is not known."""
    try:
        return devices.device(device).dram_gb_per_s
    except KanalyzeError:
        return None
