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

from kanalyze.ptx.cfg import Cfg


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
