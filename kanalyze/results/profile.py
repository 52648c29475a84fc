"""The report on a profile as data: what every renderer shows and the JSON holds.

Frozen and plain. Times are in microseconds, sizes in bytes, shares between 0 and 1; what is not
known is None and stands in `ProfileReport.unknown` with its reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kanalyze.profiles.names import KernelName
from kanalyze.profiles.readers.event import Dims, ProfiledDevice
from kanalyze.results.kernel import Skipped, UnknownField
from kanalyze.text.plain import to_plain

SCHEMA = "kanalyze.decode/1"


@dataclass(frozen=True, slots=True)
class ProfiledLaunch:
    """One way in which a kernel was launched, how often and for how long.

    ``blocks_per_sm`` and ``occupancy`` (of the warps that an SM holds) are for the device's limits;
    ``waves`` is the grid over what the device holds at a time, ``idle_share`` the part of the
    block slots that stay empty in the last wave, over all waves.
    """

    grid: Dims | None
    block: Dims | None
    registers_per_thread: int | None
    shared_bytes: int | None
    device: ProfiledDevice | None
    calls: int
    total_us: float | None
    blocks_per_sm: int | None = None
    occupancy: float | None = None
    waves: float | None = None
    idle_share: float | None = None


@dataclass(frozen=True, slots=True)
class MatrixProduct:
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
class ProfiledKernel:
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
    launches: tuple[ProfiledLaunch, ...]
    problems: tuple[MatrixProduct, ...]
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
class ProfileGroup:
    """Rows with something in common."""

    key: str
    kernels: int
    calls: int
    total_us: float | None
    share: float | None


@dataclass(frozen=True, slots=True)
class ProfileSummary:
    """The whole of what is shown; ``tensor_core_range`` bounds the share on tensor cores."""

    total_us: float | None
    calls: int
    by_family: tuple[ProfileGroup, ...]
    by_op: tuple[ProfileGroup, ...]
    by_arch: tuple[ProfileGroup, ...]
    tensor_core_share: float | None
    tensor_core_range: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class ProfileFinding:
    """Something worth acting on; ``numbers`` are what the message says."""

    id: str
    severity: str
    message: str
    advice: str
    kernels: tuple[str, ...]
    numbers: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ProfileReport:
    """Everything about the inputs."""

    files: tuple[str, ...]
    skipped: tuple[Skipped, ...]
    kernels: tuple[ProfiledKernel, ...]
    summary: ProfileSummary
    findings: tuple[ProfileFinding, ...]
    unknown: tuple[UnknownField, ...]
    grouped_by: str | None = None
    groups: tuple[ProfileGroup, ...] = ()

    def beyond(self, top: int) -> ProfileGroup:
        """The kernels behind the first ``top``, added up."""
        rest = self.kernels[top:]
        return ProfileGroup(
            "",
            len(rest),
            sum(kernel.calls for kernel in rest),
            sum(kernel.total_us or 0.0 for kernel in rest),
            sum(kernel.share or 0.0 for kernel in rest),
        )

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data: the keys of the JSON (``kanalyze/schemas/decode.json``)."""
        summary = self.summary
        return {
            "schema": SCHEMA,
            **to_plain(self),
            "kernels": [_kernel(kernel) for kernel in self.kernels],
            "summary": {
                **to_plain(summary),
                "by_family": {g.key: g.total_us for g in summary.by_family},
                "by_op": {g.key: g.total_us for g in summary.by_op},
                "by_arch": {g.key: g.total_us for g in summary.by_arch},
            },
        }


def _kernel(kernel: ProfiledKernel) -> dict[str, Any]:
    plain = to_plain(kernel)
    return {
        **kernel.name.to_dict(),
        **{key: plain[key] for key in ("kind", "calls", "total_us")},
        "mean_us": kernel.mean_us,
        **{key: plain[key] for key in ("share", "tensor_core", "devices", "operators")},
        "launches": [_launch(launch) for launch in kernel.launches],
        **{key: plain[key] for key in ("problems", "counters")},
    }


def _launch(launch: ProfiledLaunch) -> dict[str, Any]:
    device = launch.device
    capability = device.capability if device else None
    return {
        **to_plain(launch),
        "device": None if device is None else {
            "id": device.id,
            "name": device.name,
            "capability": None if capability is None else ".".join(map(str, capability)),
            "sms": device.multiprocessors,
        },
    }  # fmt: skip
