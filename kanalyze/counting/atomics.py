"""Atomics of a launch by the addresses that they go to.

What: how many operations some instructions make, on how many addresses, and how many pairs of a
warp and an address there are.
Source: addresses of all lanes, as counted for the sectors.
Limits: addresses that depend on data are unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kanalyze.counting.ptx_launch import Cost, KernelLaunch
from kanalyze.models.coalescing import SECTOR, distinct
from kanalyze.models.footprint import Footprint
from kanalyze.models.warps import CountingRule, count
from kanalyze.symbolic.accesses import is_bulk
from kanalyze.symbolic.grid import UnknownValueError
from kanalyze.symbolic.parts import Array, TooLargeError


@dataclass(frozen=True, slots=True)
class Operations:
    """Atomics of some instructions: how many, on how many addresses, and (warp, address) pairs.

    An instruction on a vector (``.v4.f32``) makes one for each element.
    """

    number: int
    addresses: int
    by_warp: int

    @property
    def each(self) -> float:
        """Operations on an address, in the mean."""
        return self.number / self.addresses


def counted_atomics(costs: Sequence[Cost]) -> list[Cost]:
    """Those of the accesses that are atomics or reductions on global memory, and were counted.

    Compare-and-swap and exchange (locks) and bulk reductions are left out.
    """
    return [cost for cost in costs if _is_atomic(cost)]


def _is_atomic(cost: Cost) -> bool:
    row, instruction = cost.access.row, cost.access.instruction
    if row.space != "global" or row.kind not in ("atomic", "reduction"):
        return False
    if {"cas", "exch"} & set(instruction.parts) or is_bulk(instruction, row):
        return False
    return cost.counted is not None and cost.counted.threads > 0


def operations(launched: KernelLaunch, group: Sequence[Cost]) -> Operations | None:
    """The sums over some atomics; None where they are not known.

    Args:
        launched: the launch.
        group: atomics as `counted_atomics` gives them.
    """
    sizes = {cost.access.row.bytes_per_thread or 4 for cost in group}
    vectors = {_elements(cost) for cost in group}
    size = sizes.pop() if sizes else SECTOR + 1
    if sizes or SECTOR % size or len(vectors) > 1:
        return None
    number = sum(cost.counted.threads for cost in group if cost.counted is not None)
    try:
        spans = [launched.span(cost.access) for cost in group]
        elements = _Elements(SECTOR // size, min(s[0] for s in spans), max(s[1] for s in spans))
        for cost in group:
            launched.mark(cost.access, elements)
        by_warp = sum(count(_ADDRESSES, *launched.place(cost.access)).cost for cost in group)
    except (UnknownValueError, TooLargeError):
        return None
    addresses = elements.footprint.sectors
    if not addresses or not by_warp:
        return None
    of_each = vectors.pop()
    return Operations(number * of_each, addresses * of_each, by_warp * of_each)


def _elements(cost: Cost) -> int:
    """Elements of one thread's access: 4 of ``.v4``."""
    parts = cost.access.instruction.parts
    return next((int(part[1:]) for part in parts if part in ("v2", "v4", "v8")), 1)


class _Elements(Footprint):
    """A footprint by element instead of by sector: addresses are spread until one is a sector."""

    def __init__(self, spread: int, low: int, high: int):
        super().__init__(0, 0)
        self.spread = spread
        self.footprint = Footprint.over(low * spread, high * spread)

    def mark(self, bases: Array, offsets: Array, step: int = 0, times: int = 1) -> None:
        self.footprint.mark(bases * self.spread, offsets * self.spread, step * self.spread, times)


_ADDRESSES = CountingRule(1, distinct)
