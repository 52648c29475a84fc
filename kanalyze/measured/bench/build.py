"""One launch, compiled: what a GPU needs to run it, and what is known of it before it runs.

`build` needs no GPU and runs in other processes, several at a time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kanalyze.analysis.launch import estimate
from kanalyze.devices.table import device as find_device
from kanalyze.errors import InputError, KanalyzeError
from kanalyze.frontend import user_file
from kanalyze.frontend.compile import Compiled, compile_kernel
from kanalyze.ptx.parse import parse_ptx

ELEMENT_BYTES = {
    "fp64": 8, "fp32": 4, "fp16": 2, "bf16": 2, "i64": 8, "i32": 4, "i16": 2, "i8": 1, "i1": 1,
    "u64": 8, "u32": 4, "u16": 2, "u8": 1, "fp8e4nv": 1, "fp8e5": 1,
}  # fmt: skip


@dataclass(frozen=True)
class BenchParam:
    """A kernel parameter: a scalar's ``value``, or the ``dims`` of what a pointer points to.

    ``type`` is in Triton's notation: ``i32``, ``fp32``, ``*fp16``.
    """

    name: str
    type: str
    value: int | float | None = None
    dims: tuple[int, ...] | None = None

    @property
    def element(self) -> str:
        """The type of the elements that a pointer points to."""
        return self.type.lstrip("*").removeprefix("k")

    @property
    def bytes(self) -> int:
        """Bytes that a pointer points to."""
        return math.prod(self.dims or ()) * ELEMENT_BYTES[self.element]


@dataclass(frozen=True)
class Static:
    """What is computed of a launch without running it; None where it is not known.

    ``read_bytes`` and ``write_bytes`` are what must cross the memory at least: each 32-byte sector
    read once, and written once. ``flops`` as `kanalyze.estimate` counts them.
    """

    flops: float | None = None
    read_bytes: int | None = None
    write_bytes: int | None = None
    occupancy_percent: float | None = None
    unknown: Mapping[str, str] = field(default_factory=dict)


STATIC = ("flops", "read_bytes", "write_bytes", "occupancy_percent")
"""The numbers of `Static`."""


@dataclass(frozen=True)
class Launchable:
    """A compiled launch: binary, kernel, grid, block, dynamic shared bytes, parameters.

    ``null_params`` parameters follow that the compiler added (scratch memory that is not used).
    """

    kernel: str
    arch: str
    ptx: str
    cubin: bytes
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_shared_bytes: int
    shared_bytes: int
    params: tuple[BenchParam, ...]
    null_params: int
    constexprs: Mapping[str, Any]
    num_warps: int
    num_stages: int
    registers_per_thread: int
    spill_bytes: int | None
    triton: str
    static: Static = field(default_factory=Static)

    @property
    def tensor_cores(self) -> bool:
        """Whether it multiplies on tensor cores."""
        return any(word in self.ptx for word in ("mma.sync", "wgmma.mma", "tcgen05.mma"))


@dataclass(frozen=True)
class NotBuilt:
    """Why a launch cannot run; ``impossible``: this configuration does not fit the GPU."""

    reason: str
    impossible: bool


def build(
    target: str, dtype: str, settings: Mapping[str, int | str], arch: str, device: str | None
) -> Launchable | NotBuilt:
    """Compile one launch for an architecture; ``device`` names the GPU of the estimate."""
    try:
        compiled = compile_kernel(target, arch=arch, dtype=dtype, settings=dict(settings))
        return launchable(compiled, device)
    except KanalyzeError as error:
        message = error.message if isinstance(error, InputError) else str(error)
        fits_not = message.startswith("out of resource")
        return NotBuilt(message if fits_not else str(error), fits_not)


def launchable(compiled: Compiled, device: str | None) -> Launchable:
    """What a GPU needs of a compiled kernel whose launch is known.

    Raises:
        InputError: it needs something at launch that is not supported here.
    """
    metadata = compiled.metadata
    needs = {
        "clusters of blocks": (metadata.get("num_ctas") or 1) > 1,
        "global scratch memory": (metadata.get("global_scratch_size") or 0) > 0,
        "a cooperative launch": bool(metadata.get("launch_cooperative_grid")),
    }
    for what, needed in needs.items():
        if needed:
            raise InputError(f"the kernel needs {what}, which bench does not launch with")
    params = tuple(_params(compiled))
    entry = next(f for f in parse_ptx(compiled.ptx).entries if f.name == compiled.name)
    warps = int(metadata["num_warps"])
    x, y, z = (*(compiled.grid or ()), 1, 1, 1)[:3]
    resources = compiled.resources
    return Launchable(
        kernel=compiled.name,
        arch=compiled.arch,
        ptx=compiled.ptx,
        cubin=compiled.cubin,
        grid=(x, y, z),
        block=(32 * warps, 1, 1),
        dynamic_shared_bytes=int(metadata.get("shared") or 0),
        shared_bytes=resources.shared_bytes,
        params=params,
        null_params=len(entry.parameters) - len(params),
        constexprs={
            n: v for n, v in compiled.constexprs.items() if isinstance(v, int | float | str)
        },
        num_warps=warps,
        num_stages=int(metadata.get("num_stages") or 0),
        registers_per_thread=resources.registers,
        spill_bytes=resources.spill_store_bytes + resources.spill_load_bytes,
        triton=compiled.triton_version,
        static=static(compiled, device),
    )


def _params(compiled: Compiled) -> list[BenchParam]:
    params = []
    for name, kind in compiled.signature.items():
        if kind == "constexpr":
            continue
        match compiled.arguments.get(name):
            case ("*", str(_), tuple(dims)):
                params.append(BenchParam(name, kind, None, dims))
            case int() | float() as value:
                params.append(BenchParam(name, kind, value))
            case _:
                raise InputError(f"{compiled.name}: no value is known of the argument '{name}'")
    return params


def static(compiled: Compiled, device: str | None) -> Static:
    """The estimate's numbers that a measurement is put beside."""
    unknown: dict[str, str] = {}
    if device is not None:
        try:
            device = find_device(device).name
        except KanalyzeError as error:
            unknown["occupancy_percent"] = str(error)
            device = None
    try:
        traffic = estimate(compiled, device=device, simulate=False, findings=False)
    except Exception as error:  # a fault of the estimate's must not cost the measurement
        reason = f"the static estimate failed: {user_file.one_line(error)}"
        return Static(unknown=dict.fromkeys(STATIC, reason))
    occupied = traffic.occupancy
    known: dict[str, Any] = {
        "flops": traffic.flops,
        "read_bytes": traffic.compulsory.read_bytes,
        "write_bytes": traffic.compulsory.write_bytes,
        "occupancy_percent": None if unknown or occupied is None else occupied.percent,
    }
    why = {u.field.split(".")[-1]: u.reason for u in traffic.unknown}
    for name, value in known.items():
        if value is None:
            unknown.setdefault(name, why.get(name, "the static estimate does not know it"))
    return Static(**known, unknown=unknown)
