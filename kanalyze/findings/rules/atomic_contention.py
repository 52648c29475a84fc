"""Many atomics on few addresses take turns.

What it says
------------
How many atomic operations the launch makes through a pointer, on how many different addresses, and
how many lanes of one warp go to the same address.

Why it is slow
--------------
Atomics on one address are done one after the other, in L2. Lanes of a warp that go to the same
address are not merged: 32 lanes are 32 operations. What a warp or a block can add up by itself in
registers or shared memory, first, then needs one.

How it is detected
------------------
The addresses of all lanes are counted. A warning: on average two lanes of a warp and more at each
address, and 128 operations on each. A remark: 4,096 operations and more on each address, by
different warps. Compare-and-swap (locks) is not looked at, and addresses that depend on data are
unknown.

How it is proven
----------------
By counting: the operations that remain if each warp adds up first what goes to the same address.

Example
-------
    tl.atomic_add(sum_ptr + tl.zeros((BLOCK,), tl.int32), x)     # BLOCK operations on one address

    tl.atomic_add(sum_ptr, tl.sum(x))                            # one

Source
------
CUDA C++ Programming Guide, section "Atomic Functions"; NVIDIA blog, "CUDA Pro Tip: Optimized
Filtering with Warp-Aggregated Atomics" (2014). The turns of a warp are measured (docs/traffic.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kanalyze.address.accesses import is_bulk
from kanalyze.address.grid import UnknownValueError
from kanalyze.address.parts import Array, TooLargeError
from kanalyze.findings.facts import Facts
from kanalyze.launched import Cost, Launched
from kanalyze.models.coalescing import SECTOR
from kanalyze.models.footprint import Footprint
from kanalyze.models.warps import Lanes, Rule, count
from kanalyze.report.document import Finding, Proof
from kanalyze.report.traffic_rows import decimal, whole

_LANES = 2.0  # of a warp at one address, from which adding up first is worth it
_TURNS = 128  # operations on each address below which they cost nothing that is seen
_MANY = 4096  # the same where they come from different warps: some microseconds at one a clock
_OFF = np.iinfo(np.int64).max


@dataclass(frozen=True)
class _Operations:
    """Atomics of some instructions: how many, on how many addresses, and (warp, address) pairs."""

    number: int
    addresses: int
    by_warp: int


def check_launch(facts: Facts) -> Iterator[Finding]:
    """Atomics of which many go to the same address, those of one source line together."""
    if facts.totals is None:
        return
    groups: dict[tuple[object, str | None, str], list[Cost]] = {}
    for cost, row in zip(facts.totals.costs, facts.kernel.accesses, strict=True):
        if _looked_at(cost):
            place = (row.source.file, row.source.line) if row.source else None
            groups.setdefault((place, row.pointer, row.opcode), []).append(cost)
    for (_, pointer, _), group in groups.items():
        found = _operations(facts.totals.launched, group)
        if found is not None:
            yield from _finding(facts, group, pointer, found)


def _looked_at(cost: Cost) -> bool:
    row, instruction = cost.access.row, cost.access.instruction
    if row.space != "global" or row.kind not in ("atomic", "reduction"):
        return False
    if {"cas", "exch"} & set(instruction.parts) or is_bulk(instruction, row):
        return False
    return cost.counted is not None and cost.counted.threads > 0


def _finding(
    facts: Facts, group: list[Cost], pointer: str | None, found: _Operations
) -> Iterator[Finding]:
    each, lanes = found.number / found.addresses, found.number / found.by_warp
    in_warp = lanes >= _LANES and each >= _TURNS
    if not in_warp and each < _MANY:
        return
    instruction = group[0].access.instruction
    line, source = facts.at(instruction)
    on = "one address" if found.addresses == 1 else f"{whole(found.addresses)} addresses"
    through = f" through {pointer}" if pointer else ""
    lead = f"{whole(found.number)} atomics ({instruction.opcode}){through} on {on}"
    numbers = {
        "atomics": found.number, "addresses": found.addresses, "atomics_per_address": each,
        "lanes_per_address": lanes, "instructions": len(group),
    }  # fmt: skip
    if in_warp:
        first = "tl.sum" if facts.of_triton else "__reduce_add_sync or shared memory"
        counted = Proof(
            "counted",
            "one atomic for each address of a warp",
            {"atomics": found.number},
            {"atomics": found.by_warp},
        )
        yield Finding(
            "atomic-contention",
            "warning",
            line,
            f"{lead}: {decimal(lanes)} lanes of a warp take turns at each",
            f"add up what goes to the same address before ({first}), then one atomic for each "
            "warp or block",
            source,
            numbers,
            counted,
        )
        return
    yield Finding(
        "atomic-contention",
        "info",
        line,
        f"{lead}: {decimal(each)} from different warps take turns at each",
        "fewer and longer blocks, or a partial result for each block and a second pass over them",
        source,
        numbers,
        unproven="how long they wait for each other depends on when they come",
    )


def _operations(launched: Launched, group: list[Cost]) -> _Operations | None:
    """The sums over some instructions; None where they are not known."""
    sizes = {cost.access.row.bytes_per_thread or 4 for cost in group}
    size = sizes.pop()
    if sizes or SECTOR % size:
        return None
    number = sum(cost.counted.threads for cost in group if cost.counted is not None)
    if number < _TURNS:
        return None
    try:
        spans = [launched.span(cost.access) for cost in group]
        elements = _Elements(SECTOR // size, min(s[0] for s in spans), max(s[1] for s in spans))
        for cost in group:
            launched.mark(cost.access, elements)
        by_warp = sum(count(_ADDRESSES, *launched.place(cost.access)).cost for cost in group)
    except (UnknownValueError, TooLargeError):
        return None
    addresses = elements.footprint.sectors
    return _Operations(number, addresses, by_warp) if addresses and by_warp else None


class _Elements(Footprint):
    """A footprint by element instead of by sector: addresses are spread until one is a sector."""

    def __init__(self, spread: int, low: int, high: int):
        super().__init__(0, 0)
        self.spread = spread
        self.footprint = Footprint.over(low * spread, high * spread)

    def mark(self, bases: Array, offsets: Array, step: int = 0, times: int = 1) -> None:
        self.footprint.mark(bases * self.spread, offsets * self.spread, step * self.spread, times)


def _distinct(addresses: Array, lanes: Lanes) -> Array:
    """Different addresses of each execution."""
    ordered = np.sort(np.where(lanes, addresses, _OFF), axis=1)
    fresh = (ordered[:, 1:] != ordered[:, :-1]) & (ordered[:, 1:] != _OFF)
    counts: Array = fresh.sum(axis=1) + (ordered[:, 0] != _OFF)
    return counts


_ADDRESSES = Rule(1, _distinct)
