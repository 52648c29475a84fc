"""Whether the PTX, the cubin, the architecture and the device of a record belong together."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from kanalyze.devices import table as devices
from kanalyze.errors import InputError, KanalyzeError, Unknown, UsageError
from kanalyze.launch.record import Launch, LaunchParam
from kanalyze.ptx import ir
from kanalyze.ptx.parse import parse_ptx
from kanalyze.sass import cubin as cubins

_SIZES = {"i1": 1, "i8": 1, "u8": 1, "fp8": 1, "i16": 2, "u16": 2, "fp16": 2, "bf16": 2, "i32": 4,
          "u32": 4, "fp32": 4, "i64": 8, "u64": 8, "fp64": 8}  # fmt: skip
"""Bytes of a scalar argument by Triton's name of its type; a pointer takes 8."""
_POINTER_BYTES = 8
_SCRATCH = 2  # pointers that Triton appends, null at launch


@dataclass(frozen=True, slots=True)
class Ptx:
    """PTX that was read: the module, or why it cannot be used (with the place)."""

    module: ir.Module | None
    reason: str = ""
    line: int = 0
    column: int = 0


def read_ptx(text: str, name: str) -> Ptx:
    """Read the PTX of a record, which must be whole: one module without errors."""
    try:
        module = parse_ptx(text, name)
    except InputError as error:
        spot = error.spot
        return Ptx(None, error.message, spot.line if spot else 0, spot.column if spot else 0)
    except (KanalyzeError, ValueError, RecursionError) as error:
        return Ptx(None, f"the PTX cannot be read: {error}")
    for diagnostic in module.diagnostics:
        if diagnostic.severity == "error":
            return Ptx(None, diagnostic.message, diagnostic.pos.line, diagnostic.pos.column)
    return Ptx(module)


def kernel_of(module: ir.Module, launch: Launch) -> ir.Function | Unknown:
    """The kernel of the PTX that a launch is one of, or why there is none.

    It has the launch's name, or is the only one (a record may call it by another name).
    """
    entries = [f for f in module.entries if f.body is not None]
    named = [f for f in entries if f.name == launch.kernel]
    if named or len(entries) == 1:
        return (named or entries)[0]
    names = ", ".join(f.name for f in entries[:5]) or "no kernel"
    return Unknown(f"found {names} in the PTX, expected '{launch.kernel}' or a single kernel")


def parameters(function: ir.Function, launch: Launch) -> Iterator[str]:
    """Yield where the arguments do not fit the kernel's parameters: number, sizes, pointers."""
    wanted, given = function.parameters, launch.params
    spare = wanted[len(given) :]
    pointers = all(p.bytes == _POINTER_BYTES for p in spare)
    if len(given) > len(wanted) or len(spare) > _SCRATCH or not pointers:
        yield (
            f"found {len(given)} arguments, expected {len(wanted)} as {function.name} has in the "
            f"PTX (pointers to scratch memory, at most {_SCRATCH} at the end, may be left out)"
        )
        return
    for index, (parameter, argument) in enumerate(zip(wanted, given, strict=False)):
        size = _size(argument)
        if size is not None and parameter.bytes not in (None, size):
            yield (
                f"found {argument.type} ({size} B) for argument {index}, {argument.name}, expected "
                f".{parameter.type} ({parameter.bytes} B) as in the PTX"
            )


def _size(argument: LaunchParam) -> int | None:
    return _POINTER_BYTES if argument.type.startswith("*") else _SIZES.get(argument.type)


def block(function: ir.Function, launch: Launch) -> str | None:
    """Why the block cannot be one of the kernel (``.reqntid``, ``.maxntid``), or None."""
    required = function.directives.get("reqntid")
    if required is not None and (*required, 1, 1)[:3] != launch.block:
        return f"found {_dims(launch.block)}, expected {_dims(required)} (.reqntid of the PTX)"
    most = function.directives.get("maxntid")
    if most is not None and math.prod(launch.block) > math.prod(most):
        return f"found {_dims(launch.block)}, expected at most {_dims(most)} (.maxntid of the PTX)"
    return None


def shared_memory(launch: Launch, gpu: devices.Device | None) -> str | None:
    """Why a block cannot have so much shared memory, or None."""
    most = gpu.capability.shared_per_block_bytes if gpu is not None else None
    if most is None or launch.shared_bytes is None or launch.shared_bytes <= most:
        return None
    return f"found {launch.shared_bytes:,} B, expected at most {most:,} B as a block can have"


def _dims(numbers: tuple[int, ...]) -> str:
    return " x ".join(str(n) for n in (*numbers, 1, 1)[:3])


def device(name: str, module: ir.Module, arch: str | None) -> tuple[devices.Device | None, str]:
    """The GPU of that name (None: it is not known), and what is wrong with it ("": nothing).

    PTX for sm_90 runs on 9.0 and later GPUs, for sm_90a on 9.0 alone, for sm_100f on 10.x.
    """
    target = module.target[0] if module.target else ""
    if arch is not None and arch.rstrip("af") != target.rstrip("af"):
        return None, f"found the architecture {arch}, expected {target} as in the PTX"
    try:
        gpu = devices.device(name)
    except UsageError as error:
        return None, str(error)
    if not _runs(target, gpu.capability.name):
        return (
            None,
            f"found {gpu.name} ({gpu.capability.name}), expected a GPU that runs {target}",
        )
    return gpu, ""


def _runs(target: str, capability: str) -> bool:
    """Whether a GPU runs code for a target."""
    match = re.fullmatch(r"sm_(\d+)([af]?)", target)
    if match is None:
        return True
    wanted, has = int(match[1]), int(capability.removeprefix("sm_"))
    if match[2] == "a":
        return wanted == has
    if match[2] == "f":
        return wanted // 10 == has // 10 and has >= wanted
    return has >= wanted


def cubin(data: bytes, kernel: str, gpu: devices.Device | None) -> str | None:
    """Why a cubin cannot be the machine code that ran, or None.

    A cubin runs on GPUs of its major compute capability and the same or a later minor one.
    """
    try:
        code = cubins.parse(data, "the cubin") if data.startswith(b"\x7fELF") else None
    except InputError as error:
        return error.message
    if code is None:
        return f"found {'no ELF' if data else 'an empty'} file, expected a cubin"
    if kernel not in code.kernels:
        names = ", ".join(code.kernels[:5]) or "no kernel"
        return f"found {names}, expected {kernel} as in the PTX"
    has = int(gpu.capability.name.removeprefix("sm_")) if gpu is not None else code.capability
    if code.capability // 10 != has // 10 or code.capability > has:
        return f"found machine code for sm_{code.capability}, expected one for sm_{has}"
    return None
