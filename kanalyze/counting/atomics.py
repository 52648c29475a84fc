"""Atomics of a launch by the addresses that they go to.

What: how many operations some instructions make, on how many addresses, and how many pairs of a
warp and an address there are.
Source: addresses of all lanes, as counted for the sectors.
Limits: addresses that depend on data are unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kanalyze.counting.ptx_launch import AccessTransactions, KernelLaunch
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


def counted_atomics(transfers: Sequence[AccessTransactions]) -> list[AccessTransactions]:
    """Those of the accesses that are atomics or reductions on global memory, and were counted.

    Compare-and-swap and exchange (locks) and bulk reductions are left out.
    """
    return [transfer for transfer in transfers if _is_atomic(transfer)]


def _is_atomic(transfer: AccessTransactions) -> bool:
    row, instruction = transfer.access.row, transfer.access.instruction
    if row.space != "global" or row.kind not in ("atomic", "reduction"):
        return False
    if {"cas", "exch"} & set(instruction.parts) or is_bulk(instruction, row):
        return False
    return transfer.counted is not None and transfer.counted.threads > 0


def operations(launched: KernelLaunch, group: Sequence[AccessTransactions]) -> Operations | None:
    """The sums over some atomics; None where they are not known.

    Args:
        launched: the launch.
        group: atomics as `counted_atomics` gives them.
    """
    sizes = {transfer.access.row.bytes_per_thread or 4 for transfer in group}
    vectors = {_elements(transfer) for transfer in group}
    size = sizes.pop() if sizes else SECTOR + 1
    if sizes or SECTOR % size or len(vectors) > 1:
        return None
    number = sum(transfer.counted.threads for transfer in group if transfer.counted is not None)
    try:
        spans = [launched.span(transfer.access) for transfer in group]
        elements = _Elements(SECTOR // size, min(s[0] for s in spans), max(s[1] for s in spans))
        for transfer in group:
            launched.mark(transfer.access, elements)
        by_warp = sum(
            count(_ADDRESSES, *launched.place(transfer.access)).transactions for transfer in group
        )
    except (UnknownValueError, TooLargeError):
        return None
    addresses = elements.footprint.sectors
    if not addresses or not by_warp:
        return None
    of_each = vectors.pop()
    return Operations(number * of_each, addresses * of_each, by_warp * of_each)


def _elements(transfer: AccessTransactions) -> int:
    """Elements of one thread's access: 4 of ``.v4``."""
    parts = transfer.access.instruction.parts
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
