"""Which pipe of an SM executes an instruction, and how many a clock.

What: cycles that each pipe of an SM is busy with the warp instructions that a launch executes.
Formula: warp instructions over the pipe's lanes / 32; all of them over the issue slots (one a clock
and sub-partition).
Source: Nsight Compute, "Pipelines" (what FMA, FMAHeavy, ALU, XU, FP64, LSU, Uniform execute); which
instruction goes where equals ``sm__inst_executed_pipe_{fma,alu,xu,lsu}.sum`` of an H200 to the last
unit; CUDA C++ Programming Guide, "Arithmetic Instructions" (results a clock and SM, by compute
capability).
Limits: throughput only; register bank conflicts and dependencies are not counted. A pipe whose
lanes are not known for a compute capability is left out.
"""

from __future__ import annotations

from collections.abc import Iterable

from kanalyze.devices.table import Capability
from kanalyze.sass.ir import SassInstruction, Special
from kanalyze.sass.table import classify

WARP = 32
SLOW_ARITHMETIC = frozenset(["MUFU", "F2I", "I2F", "F2F", "FRND", "POPC", "FLO", "BREV"])
"""What the XU executes: special functions, conversions, bit counts."""
_FMA = frozenset(["FADD", "FMUL", "FFMA", "FADD32I", "FMUL32I", "FFMA32I", "FADD2", "FMUL2",
                  "FFMA2", "HADD2", "HFMA2", "HMUL2", "VIADD"])  # fmt: skip
_HEAVY = frozenset(["IMAD", "IMUL", "IDP", "IDP4A"])
_LSU = frozenset(["SHFL", "LDGDEPBAR", "MEMBAR", "FENCE"])
_LSU_KINDS = frozenset(["global", "shared", "local", "generic"])
_ALU_KINDS = frozenset(["integer", "float", "half", "convert", "move", "predicate"])
_NO_PIPE = frozenset([None, "tensor", "control", "sync", "special", "const", "tensor_memory"])
_LSU_LANES = 32
_UNIFORM_LANES = 64
_LANES = {
    "fma": "fp32_lanes_per_sm",
    "alu": "int32_lanes_per_sm",
    "fma_heavy": "int32_lanes_per_sm",
    "sfu": "sfu_lanes_per_sm",
    "fp64": "fp64_lanes_per_sm",
}


def pipe(instruction: SassInstruction) -> str | None:
    """The pipe that executes an instruction: None where it only takes an issue slot.

    Tensor instructions have none here: their work depends on shape and type.
    """
    base, what = instruction.base, classify(instruction)
    if base in _LSU or what in _LSU_KINDS:
        return "lsu"
    if base in ("S2R", "S2UR"):
        return "lsu" if base == "S2R" and _of_thread(instruction) else None
    if what in _NO_PIPE or instruction.opcode.startswith("HFMA2.MMA"):  # that one: tensor pipe
        return None
    if base.startswith("U"):
        return "uniform"
    if base in SLOW_ARITHMETIC:
        return "sfu"
    if base in _FMA:
        return "fma"
    if base in _HEAVY:
        return "fma_heavy"
    if what == "double":
        return "fp64"
    return "alu" if what in _ALU_KINDS else None


def _of_thread(instruction: SassInstruction) -> bool:
    """Whether it reads the thread's own number, ``SR_TID.X``."""
    specials = [operand.name for operand in instruction.operands if isinstance(operand, Special)]
    return any(name.startswith("SR_TID") for name in specials)


def lanes(name: str, capability: Capability) -> int | None:
    """Lanes of a pipe that start each clock, over the SM; None where it is not known."""
    if name in ("lsu", "uniform"):
        return _LSU_LANES if name == "lsu" else _UNIFORM_LANES
    known: int | None = getattr(capability, _LANES[name])
    return known


def cycles(
    executed: Iterable[tuple[SassInstruction, int]], capability: Capability
) -> dict[str, float]:
    """Cycles of each pipe, added up over all SMs, and of the issue slots ("issue").

    Args:
        executed: instructions, each with how often warps execute it.
        capability: of the GPU.
    """
    slots = capability.warp_schedulers_per_sm or capability.sub_partitions
    total: dict[str, float] = {"issue": 0.0}
    for instruction, times in executed:
        total["issue"] += times / slots
        name = pipe(instruction)
        width = lanes(name, capability) if name is not None else None
        if name is None or width is None:
            continue
        total[name] = total.get(name, 0.0) + times * WARP / width
        if name == "fma_heavy" and capability.fp32_lanes_per_sm:  # a half of the FMA pipe
            share = times * WARP / capability.fp32_lanes_per_sm
            total["fma"] = total.get("fma", 0.0) + share
    return total
