"""A measured launch as a record (see `kanalyze.measured.records`), and back for a run that is
resumed."""

from __future__ import annotations

import glob
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kanalyze.measured.bench.build import STATIC, Launchable, Static
from kanalyze.measured.bench.cases import BenchCase, purpose_of
from kanalyze.measured.bench.event_times import LaunchTimes, finite
from kanalyze.measured.bench.reference import ReferenceCheck
from kanalyze.measured.bench.rivals import Rival

SCHEMA = "kanalyze.record/1"
NOT_YET = "not counted yet"


@dataclass
class MeasuredLaunch:
    """One launch and what was measured of it.

    ``provider`` is ``kernel``, or ``torch.compile`` where PyTorch wrote the kernel.
    """

    name: str
    built: Launchable
    addresses: Sequence[int | None]
    cold: LaunchTimes
    warm: LaunchTimes
    target: str
    dtype: str | None = None
    shape: Mapping[str, int] = field(default_factory=dict)
    provider: str = "kernel"
    check: ReferenceCheck | None = None
    rivals: list[Rival] = field(default_factory=list)
    counters: Mapping[str, float | None] | None = None
    no_counters: str = NOT_YET

    def to_dict(self, device: str, versions: Mapping[str, str]) -> dict[str, Any]:
        """The record."""
        built, static = self.built, self.built.static
        unknown = [{"field": name, "reason": why} for name, why in static.unknown.items()]
        if built.spill_bytes is None:
            unknown.append({"field": "spill_bytes", "reason": "a cubin does not record spills"})
        if self.counters is None:
            unknown.append({"field": "counters", "reason": self.no_counters})
        else:
            unknown += [
                {"field": f"counters.{name}", "reason": "Nsight Compute gave no number"}
                for name, value in self.counters.items()
                if value is None
            ]
        return {
            "schema": SCHEMA,
            "case": self.name,
            "kernel": built.kernel,
            "device": device,
            "arch": built.arch,
            **versions,
            "triton": built.triton,
            "grid": list(built.grid),
            "block": list(built.block),
            "shared_bytes": built.shared_bytes,
            "num_warps": built.num_warps,
            "num_stages": built.num_stages,
            "registers_per_thread": built.registers_per_thread,
            "spill_bytes": built.spill_bytes,
            "params": [
                {"name": p.name, "type": p.type, "address": address, "bytes": p.bytes}
                if p.type.startswith("*")
                else {"name": p.name, "type": p.type, "value": p.value}
                for p, address in zip(built.params, self.addresses, strict=True)
            ],
            "constexprs": dict(built.constexprs),
            "target": self.target,
            "provider": self.provider,
            "dtype": self.dtype,
            "shape": dict(self.shape),
            "purpose": purpose_of(self.name),
            "relative_norm": finite(self.check.relative_norm) if self.check else None,
            "relative_norm_bound": self.check and self.check.bound,
            "not_finite": self.check and self.check.not_finite,
            "time_ms": {k: v for k, v in self.cold.to_dict().items() if k != "runs"},
            "times_cold_ms": self.cold.to_dict(),
            "times_warm_ms": self.warm.to_dict(),
            "static": {name: getattr(static, name) for name in STATIC},
            "rivals": [rival.to_dict() for rival in self.rivals],
            "counters": None if self.counters is None else dict(self.counters),
            "unknown": unknown,
        }


def finished(folder: Path, case: BenchCase, counters: bool) -> dict[str, Any] | None:
    """The record of a launch that an earlier run finished; None where there is none.

    Args:
        folder: the records.
        case: the launch.
        counters: whether its counters are wanted, too.
    """
    try:
        data = json.loads((folder / f"{case.name}.json").read_text("utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(data, dict) or data.get("case") != case.name:
        return None
    if data.get("times_cold_ms") is None or not (folder / f"{case.name}.cubin").is_file():
        return None
    return data if not counters or data.get("counters") is not None else None


def compiled_beside(folder: Path, case: BenchCase) -> list[dict[str, Any]]:
    """The records of kernels that torch.compile wrote for a launch of an earlier run."""
    records = []
    for path in sorted(folder.glob(f"{glob.escape(case.name)}-compiled*.json")):
        try:
            records.append(json.loads(path.read_text("utf-8")))
        except (OSError, ValueError):
            continue
    return records


def static_of(data: Mapping[str, Any]) -> Static:
    """The static numbers of a record."""
    static = data.get("static") or {}
    numbers: dict[str, Any] = {name: static.get(name) for name in STATIC}
    return Static(**numbers)
