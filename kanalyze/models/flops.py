"""Floating-point operations of an instruction.

What: operations of one execution by one thread, or, for tensor-core instructions, by one warp.
Formula: add, subtract, multiply: 1; fused multiply-add: 2; packed types by their number of
elements; a matrix instruction of shape m×n×k: 2·m·n·k, shared out over the warps that issue it (4
for ``wgmma``; one thread issues ``tcgen05.mma``).
Source: PTX ISA, "Matrix multiply-accumulate"; for ``tcgen05.mma`` the shape is in the instruction
descriptor, "Instruction descriptor" (N>>3 in bits 17-22, M>>4 in bits 24-28).
Limits: comparisons, conversions and special functions (``ex2``, ``rcp``…) are not counted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kanalyze.ptx import ir

_PER_OPERATION = {"add": 1, "sub": 1, "mul": 1, "fma": 2, "mad": 2}
_TYPE = re.compile(r"(?P<type>b?f16|f32|f64|bf16)(?P<packed>x2)?$")
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)$")
_TCGEN05_K = {
    "f16": 16,
    "tf32": 8,
    "f8f6f4": 32,
    "i8": 32,
    "mxf8f6f4": 32,
    "mxf4": 64,
    "mxf4nvf4": 64,
}
_WARPS_OF_A_GROUP = 4


@dataclass(frozen=True, slots=True)
class Flops:
    """``unit`` is fp64, fp32, fp16 or tensor; ``per`` is "thread" or "warp".

    ``number`` is None where the instruction does not say it.
    """

    unit: str
    number: float | None
    per: str


def shape_of(instruction: ir.Instruction) -> tuple[int, ...] | None:
    """M, N and K of a matrix instruction; None where it does not say them."""
    shape = next((m for m in map(_SHAPE.match, instruction.parts) if m), None)
    return None if shape is None else tuple(map(int, shape.groups()))


def flops(instruction: ir.Instruction) -> Flops | None:
    """Operations of one execution; None if it does none (see `tcgen05_flops`)."""
    parts = instruction.parts
    base = parts[0]
    if base in ("mma", "wmma", "wgmma"):
        if base != "mma" and "mma" not in parts and "mma_async" not in parts:
            return None
        shape = shape_of(instruction)
        if shape is None:
            return None
        m, n, k = shape
        sharing = _WARPS_OF_A_GROUP if base == "wgmma" else 1
        return Flops("tensor", 2 * m * n * k / sharing, "warp")
    if base not in _PER_OPERATION:
        return None
    kind = _TYPE.match(parts[-1])
    if kind is None:
        return None
    elements = 2 if kind["packed"] else 1
    unit = {"f64": "fp64", "f32": "fp32"}.get(kind["type"], "fp16")
    return Flops(unit, _PER_OPERATION[base] * elements, "thread")


def descriptor_of(instruction: ir.Instruction) -> ir.Operand | None:
    """The operand of ``tcgen05.mma`` that holds its instruction descriptor."""
    place = 4 if "sp" in instruction.parts else 3
    return instruction.operands[place] if len(instruction.operands) > place else None


def tcgen05_flops(instruction: ir.Instruction, descriptor: int | None) -> Flops:
    """Operations of one ``tcgen05.mma`` by its instruction descriptor.

    ``number`` is None where kind or descriptor is not known, and for sparse ones.
    """
    kind = next((p.split("::")[1] for p in instruction.parts if p.startswith("kind::")), "")
    k = _TCGEN05_K.get(kind)
    if k is None or descriptor is None or "sp" in instruction.parts:
        return Flops("tensor", None, "thread")
    m, n = (descriptor >> 24 & 0x1F) * 16, (descriptor >> 17 & 0x3F) * 8
    return Flops("tensor", 2 * m * n * k, "thread")
