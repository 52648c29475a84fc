"""An atomic operation is a loop of compare-and-swap.

What it says
------------
The GPU that the kernel is compiled for has no such atomic operation on this type: it reads the old
value, computes the new one and swaps it in if nobody was faster, else once more.

Why it is slow
--------------
Each turn is a read and a write that the thread waits for, through L2, and every other thread that
wants the same address costs a further turn: n threads at one address need up to n turns each. An
atomic instruction is carried out in L2, once.

How it is detected
------------------
A loop that holds atom.cas whose new value is computed in the loop from the old one. A lock, which
swaps constants, is not meant.

How it is proven
----------------
It is not: another type or architecture is needed. The finding says from which architecture on PTX
has the instruction.

Example
-------
    atomicAdd(out + i, value);          // __nv_bfloat16, nvcc -arch=sm_80: a loop

    atomicAdd(out + i, value);          // -arch=sm_90, or float: one instruction

Source
------
PTX ISA 9.0, "Parallel Synchronization and Communication Instructions: atom": .f64 from sm_60, .f16
from sm_70, .bf16 and vectors from sm_90.
"""

from __future__ import annotations

from collections.abc import Iterator

from kanalyze.findings.facts import Facts
from kanalyze.findings.rule import Rule
from kanalyze.ptx import ir
from kanalyze.ptx.instructions import definitions, operand_names
from kanalyze.results.kernel import Finding

_ID = "cas-loop"
_FROM = {"f64": 60, "f16": 70, "f16x2": 60, "bf16": 90, "bf16x2": 90, "f32": 20}
"""The architecture whose PTX adds such numbers atomically."""
_FLOATS = ("add", "fma", "sub", "mul", "min", "max", "div")


def check_kernel(facts: Facts) -> Iterator[Finding]:
    """Loops around a compare-and-swap that compute what is swapped in; one for each statement."""
    cfg = facts.description.cfg
    swaps: dict[ir.Pos, tuple[ir.Instruction, ir.Instruction | None]] = {}
    for loop in sorted(cfg.loops, key=lambda each: len(each.body)):
        body = [i for index in sorted(loop.body) for i in cfg.blocks[index].instructions]
        made = {name for i in body if i.base != "mov" for name in definitions(i)}
        computed = next((i for i in body if i.base in _FLOATS and i.parts[-1] in _FROM), None)
        for swap in body:
            swaps_in = swap.base == "atom" and "cas" in swap.parts
            if swaps_in and made & set(operand_names(swap.operands[-1])):
                swaps.setdefault(swap.pos, (swap, computed))
    by_place: dict[object, list[tuple[ir.Instruction, ir.Instruction | None]]] = {}
    for swap, computed in swaps.values():
        by_place.setdefault(facts.at(swap)[1] or swap.pos, []).append((swap, computed))
    for some in by_place.values():
        yield _found(facts, *some[0], len(some))


def _found(
    facts: Facts, swap: ir.Instruction, computed: ir.Instruction | None, count: int
) -> Finding:
    kind = computed.parts[-1] if computed is not None else swap.parts[-1]
    adds = computed is not None and computed.base in ("add", "fma")
    since = _FROM[kind] if adds else None
    what = f"{'add' if adds else computed.base}.{kind}" if computed else f"operation on {kind}"
    advice = "add up in float or in integers, which have an atomic instruction"
    if since is not None and since > (facts.capability or since):
        advice = f"compile for sm_{since} or later, whose PTX has atom.add.{kind}; or {advice}"
    line, source = facts.at(swap)
    loops = "a loop" if count == 1 else f"{count} loops"
    return Finding(
        _ID, "warning", line,
        f"an atomic {what} is {loops} of compare-and-swap ({swap.opcode}): each turn waits for L2, "
        "and threads at one address repeat it",
        f"{advice}; or reduce in the block first",
        source, {"type": kind, "loops": count, "instruction_from_sm": since},
        unproven="it takes another type or architecture",
    )  # fmt: skip


RULE = Rule(_ID, check_kernel=check_kernel)
