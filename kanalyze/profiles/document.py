"""The report on a profile as data: what every renderer shows and the JSON holds.

Frozen and plain. Times are in microseconds, sizes in bytes, shares between 0 and 1; what is not
known is None and stands in `Report.unknown` with its reason.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kanalyze.profiles.names import KernelName
from kanalyze.profiles.readers.event import Device, Dims

SCHEMA = "kanalyze.decode/1"


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file, or the rest of one, that could not be read; ``line`` is 0 where it is not known."""

    file: str
    line: int
    reason: str


@dataclass(frozen=True, slots=True)
class UnknownField:
    """A field that is not known, and why."""

    field: str
    reason: str


@dataclass(frozen=True, slots=True)
class Launch:
    """One way in which a kernel was launched, how often and for how long.

    ``blocks_per_sm`` and ``occupancy`` (of the warps that an SM holds) are for the device's limits;
    ``waves`` is the grid over what the device holds at a time, ``idle_share`` the part of the
    block slots that stay empty in the last wave, over all waves.
    """

    grid: Dims | None
    block: Dims | None
    registers_per_thread: int | None
    shared_bytes: int | None
    device: Device | None
    calls: int
    total_us: float | None
    blocks_per_sm: int | None = None
    occupancy: float | None = None
    waves: float | None = None
    idle_share: float | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """A matrix product that a kernel computed, by its calling operator (row-major M, N, K).

    ``flops`` counts one call (a multiplication and an addition are two). ``peak_share`` is
    ``tflops`` over ``peak_tflops``, the dense peak of the device for this type.
    """

    operator: str
    m: int
    n: int
    k: int
    batch: int
    dtype: str
    calls: int
    total_us: float
    flops: int
    tflops: float | None
    peak_tflops: float | None
    peak_share: float | None
    peak_source: str | None


@dataclass(frozen=True, slots=True)
class Row:
    """All launches of one name.

    ``share`` is of the time of everything that was read, whatever is shown. ``tensor_core`` is
    None where the name does not say. ``counters`` are Nsight Compute's, the mean of the launches.
    """

    name: KernelName
    kind: str
    calls: int
    total_us: float | None
    share: float | None
    tensor_core: bool | None
    launches: tuple[Launch, ...]
    problems: tuple[Problem, ...]
    counters: Mapping[str, float]
    devices: tuple[str, ...]
    operators: tuple[str, ...]

    @property
    def mean_us(self) -> float | None:
        """The mean time of a launch."""
        return None if self.total_us is None or not self.calls else self.total_us / self.calls

    @property
    def op(self) -> str:
        """The operation that the name states; of copies and fills their kind; or "unknown"."""
        stated = self.name.decoded.get("op")
        return str(stated) if stated else self.kind if self.kind != "kernel" else "unknown"

    @property
    def arch(self) -> str:
        """The architecture that the name states, or "not stated"."""
        decoded = self.name.decoded
        return str(decoded.get("arch") or decoded.get("arch_name") or "not stated")


@dataclass(frozen=True, slots=True)
class Group:
    """Rows with something in common."""

    key: str
    kernels: int
    calls: int
    total_us: float | None
    share: float | None


@dataclass(frozen=True, slots=True)
class Summary:
    """The whole of what is shown; ``tensor_core_range`` bounds the share on tensor cores."""

    total_us: float | None
    calls: int
    by_family: tuple[Group, ...]
    by_op: tuple[Group, ...]
    by_arch: tuple[Group, ...]
    tensor_core_share: float | None
    tensor_core_range: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class Finding:
    """Something worth acting on; ``numbers`` are what the message says."""

    id: str
    severity: str
    message: str
    advice: str
    kernels: tuple[str, ...]
    numbers: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Report:
    """Everything about the inputs."""

    files: tuple[str, ...]
    skipped: tuple[Skipped, ...]
    kernels: tuple[Row, ...]
    summary: Summary
    findings: tuple[Finding, ...]
    unknown: tuple[UnknownField, ...]
    grouped_by: str | None = None
    groups: tuple[Group, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data: the keys of the JSON (``kanalyze/schemas/decode.json``)."""
        summary = self.summary
        return {
            "schema": SCHEMA,
            "files": list(self.files),
            "skipped": [dataclasses.asdict(s) for s in self.skipped],
            "kernels": [_row(row) for row in self.kernels],
            "summary": {
                "total_us": summary.total_us,
                "calls": summary.calls,
                "by_family": {g.key: g.total_us for g in summary.by_family},
                "by_op": {g.key: g.total_us for g in summary.by_op},
                "by_arch": {g.key: g.total_us for g in summary.by_arch},
                "tensor_core_share": summary.tensor_core_share,
                "tensor_core_range": _listed(summary.tensor_core_range),
            },
            "findings": [
                {
                    "id": f.id,
                    "severity": f.severity,
                    "message": f.message,
                    "advice": f.advice,
                    "kernels": list(f.kernels),
                    "numbers": dict(f.numbers),
                }
                for f in self.findings
            ],
            "unknown": [dataclasses.asdict(u) for u in self.unknown],
            "grouped_by": self.grouped_by,
            "groups": [dataclasses.asdict(g) for g in self.groups],
        }


def _listed(value: tuple[Any, ...] | None) -> list[Any] | None:
    return None if value is None else list(value)


def _row(row: Row) -> dict[str, Any]:
    return {
        **row.name.to_dict(),
        "kind": row.kind,
        "calls": row.calls,
        "total_us": row.total_us,
        "mean_us": row.mean_us,
        "share": row.share,
        "tensor_core": row.tensor_core,
        "devices": list(row.devices),
        "operators": list(row.operators),
        "launches": [_launch(launch) for launch in row.launches],
        "problems": [dataclasses.asdict(problem) for problem in row.problems],
        "counters": dict(row.counters),
    }


def _launch(launch: Launch) -> dict[str, Any]:
    device = launch.device
    capability = device.capability if device else None
    return {
        "grid": _listed(launch.grid),
        "block": _listed(launch.block),
        "registers_per_thread": launch.registers_per_thread,
        "shared_bytes": launch.shared_bytes,
        "device": None if device is None else {
            "id": device.id,
            "name": device.name,
            "capability": None if capability is None else ".".join(map(str, capability)),
            "sms": device.multiprocessors,
        },
        "calls": launch.calls,
        "total_us": launch.total_us,
        "blocks_per_sm": launch.blocks_per_sm,
        "occupancy": launch.occupancy,
        "waves": launch.waves,
        "idle_share": launch.idle_share,
    }  # fmt: skip
