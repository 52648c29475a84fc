"""Whether a launch is one of a kernel: its parameters, and what keeps it from starting."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from kanalyze.devices.table import Device
from kanalyze.errors import InputError, Unknown
from kanalyze.frontend.argument import Resources
from kanalyze.launch.limits import CLUSTER, Fault
from kanalyze.launch.record import Launch, LaunchParam
from kanalyze.ptx import ir

_SIZES = {"i1": 1, "i8": 1, "u8": 1, "fp8": 1, "i16": 2, "u16": 2, "fp16": 2, "bf16": 2, "i32": 4,
          "u32": 4, "fp32": 4, "i64": 8, "u64": 8, "fp64": 8}  # fmt: skip
"""Bytes of a scalar argument by Triton's name of its type; a pointer takes 8."""
_POINTER_BYTES = 8
_SCRATCH = 2  # pointers that Triton appends, null at launch
_WARP = 32


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


def check(function: ir.Function, launch: Launch) -> None:
    """Refuse arguments that are not those of the kernel.

    Raises:
        InputError: it names the field.
    """
    for field, text in parameters(function, launch):
        raise InputError(f"not a launch: {field}: {text}", file=f"launch of {launch.kernel}")


def parameters(function: ir.Function, launch: Launch) -> Iterator[Fault]:
    """Yield where the arguments do not fit the kernel's parameters: number, sizes, pointers."""
    wanted, given = function.parameters, launch.params
    spare = wanted[len(given) :]
    pointers = all(p.bytes == _POINTER_BYTES for p in spare)
    if len(given) > len(wanted) or len(spare) > _SCRATCH or not pointers:
        yield (
            "params",
            f"found {len(given)} arguments, expected {len(wanted)} as {function.name} has in the "
            f"PTX (pointers to scratch memory, at most {_SCRATCH} at the end, may be left out)",
        )
        return
    for index, (parameter, argument) in enumerate(zip(wanted, given, strict=False)):
        size = _size(argument)
        if size is not None and parameter.bytes not in (None, size):
            yield (
                f"params[{index}]",
                f"found {argument.type} ({size} B) for {argument.name}, expected "
                f".{parameter.type} ({parameter.bytes} B) as in the PTX",
            )


def _size(argument: LaunchParam) -> int | None:
    if argument.tensor_map is not None:  # by value or by address
        return None
    return _POINTER_BYTES if argument.type.startswith("*") else _SIZES.get(argument.type)


def refusals(
    function: ir.Function, launch: Launch, gpu: Device | None, resources: Resources | None = None
) -> Iterator[Fault]:
    """Yield why the launch does not start: block, cluster, shared memory, registers.

    Source: PTX ISA, "Performance-Tuning Directives" and "Cluster Dimension Directives"; CUDA
    Driver API, cuLaunchKernelEx (CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES).
    """
    told = function.directives
    threads = math.prod(launch.block)
    required, most = told.get("reqntid"), told.get("maxntid")
    if required is not None and (*required, 1, 1)[:3] != launch.block:
        yield "block", f"found {_dims(launch.block)}, expected {_dims(required)} (.reqntid)"
    elif most is not None and threads > math.prod(most):
        yield "block", f"found {_dims(launch.block)}, expected at most {_dims(most)} (.maxntid)"
    yield from _cluster(launch, told)
    if gpu is None:
        return
    limit = gpu.capability.shared_per_block_bytes
    shared = launch.shared_bytes
    if shared is None and resources is not None:
        shared = resources.shared_bytes
    if shared is not None and shared > limit:
        yield (
            "shared_bytes",
            f"found {shared:,} B of shared memory, expected at most {limit:,} B on {gpu.name}",
        )
    registers = launch.registers_per_thread or (resources.registers if resources else None)
    if registers is not None:
        unit, limit = gpu.capability.register_unit, gpu.capability.registers_per_block
        needed = -(-registers * _WARP // unit) * unit * -(-threads // _WARP)
        if needed > limit:
            yield (
                "block",
                f"found {threads:,} threads of {registers} registers, {needed:,} in all, expected "
                f"at most {limit:,} on {gpu.name}",
            )


def _cluster(launch: Launch, told: Mapping[str, tuple[int, ...]]) -> Iterator[Fault]:
    required, given = told.get("reqnctapercluster"), launch.cluster
    if required and all(required) and given not in (None, (*required, 1, 1)[:3]):
        yield "cluster", f"found {_dims(given)}, expected {_dims(required)} (.reqnctapercluster)"
    elif required and all(required):
        for index, (blocks, some) in enumerate(zip(launch.grid, required, strict=False)):
            if blocks % some:
                yield (
                    f"grid[{index}]",
                    f"found {blocks:,}, expected a multiple of {some} (.reqnctapercluster)",
                )
    most = min(*(told.get("maxclusterrank") or (CLUSTER,)), CLUSTER)
    if given is not None and math.prod(given) > most:
        yield "cluster", f"found {_dims(given)}, expected at most {most} blocks (.maxclusterrank)"


def _dims(numbers: tuple[int, ...]) -> str:
    return " x ".join(str(n) for n in (*numbers, 1, 1)[:3])
