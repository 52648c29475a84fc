"""Software pipelining: which copies are a loop's prologue, which its steady part.

What: a pipelined loop fetches tiles some iterations ahead; the first ones are fetched in front of
the loop. Formula: a copy to shared memory that stands outside a loop, in a block that dominates the
loop's header, and has the same source line and pointer as a copy inside the loop, is prologue.
Source: Triton's pipeliner duplicates the operation with its location. Limits: without source lines
nothing is told apart.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from kanalyze.ptx import ir
from kanalyze.ptx.cfg import Cfg
from kanalyze.ptx.graph import NaturalLoop

_PRODUCTS = ("mma", "wgmma", "tcgen05", "wmma", "ldmatrix")
_ARITHMETIC = ("fma", "mul", "add")


@dataclass(frozen=True, slots=True)
class Copy:
    """An asynchronous copy: its block, and what identifies the source operation (None: unknown)."""

    block: int
    origin: Hashable | None


def stages(cfg: Cfg, copies: Sequence[Copy]) -> list[tuple[str, int] | None]:
    """For each copy ("prologue" or "steady", header of the loop), None where it is neither."""
    loops = sorted(cfg.loops, key=lambda loop: -loop.depth)
    result: list[tuple[str, int] | None] = [None] * len(copies)
    for loop in loops:
        inside = {c.origin for c in copies if c.block in loop.body and c.origin is not None}
        prologue = False
        for index, copy in enumerate(copies):
            open_and_outside = result[index] is None and copy.block not in loop.body
            if (
                open_and_outside
                and copy.origin in inside
                and cfg.dominates(copy.block, loop.header)
            ):
                result[index] = ("prologue", loop.header)
                prologue = True
        if prologue:
            for index, copy in enumerate(copies):
                if result[index] is None and copy.block in loop.body and copy.origin in inside:
                    result[index] = ("steady", loop.header)
    return result


def waits_for_all(cfg: Cfg, loop: NaturalLoop) -> tuple[ir.Instruction, int] | None:
    """The wait of a loop for all its copies, nothing computed since they began, and their number.

    None where there is no such wait, or where wgmma products run meanwhile (they are not waited for
    to the last); of nested loops only the innermost is looked at.
    """
    if any(other.body < loop.body for other in cfg.loops):
        return None
    body = [i for index in loop.body for i in cfg.blocks[index].instructions]
    body.sort(key=lambda instruction: instruction.pos)
    begun = [n for n, i in enumerate(body) if i.opcode.startswith("cp.async.c")]
    copies = sum(".shared" in body[n].opcode for n in begun)
    products = [i for i in body if i.opcode.startswith("wgmma.wait_group")]
    if any(not _waits_for_all_groups(i) for i in products):
        return None
    for at, wait in enumerate(body):
        if copies and _for_all(wait):
            last = max((n for n in begun if n < at), default=begun[-1])
            between = body[last:at] if last < at else body[last:] + body[:at]
            if not any(_works(i) for i in between):
                return wait, copies
    return None


def _for_all(instruction: ir.Instruction) -> bool:
    """Whether it waits until no copy is pending."""
    if instruction.opcode == "cp.async.wait_all":
        return True
    return instruction.opcode == "cp.async.wait_group" and _waits_for_all_groups(instruction)


def _waits_for_all_groups(instruction: ir.Instruction) -> bool:
    """Whether it waits until no group is under way."""
    (first, *_) = instruction.operands or (None,)
    return isinstance(first, ir.Immediate) and first.value == 0


def _works(instruction: ir.Instruction) -> bool:
    """Whether it is part of what is computed, addresses and counters left out."""
    if instruction.base in _PRODUCTS or instruction.opcode.startswith("ld.shared"):
        return True
    return instruction.base in _ARITHMETIC and "f" in instruction.parts[-1]
