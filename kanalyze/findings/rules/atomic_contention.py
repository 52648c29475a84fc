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

from kanalyze import contention
from kanalyze.findings.facts import Facts
from kanalyze.launched import Cost
from kanalyze.report.document import Finding, Proof
from kanalyze.report.traffic_rows import decimal, whole

_LANES = 2.0  # of a warp at one address, from which adding up first is worth it
_TURNS = 128  # operations on each address below which they cost nothing that is seen
_MANY = 4096  # the same where they come from different warps: some microseconds at one a clock


def check_launch(facts: Facts) -> Iterator[Finding]:
    """Atomics of which many go to the same address, those of one source line together."""
    if facts.totals is None:
        return
    groups: dict[tuple[object, str | None, str], list[Cost]] = {}
    pairs = zip(facts.totals.costs, facts.kernel.accesses, strict=True)
    rows = {id(cost): row for cost, row in pairs}
    for cost in contention.counted_atomics(facts.totals.costs):
        row = rows[id(cost)]
        place = (row.source.file, row.source.line) if row.source else None
        groups.setdefault((place, row.pointer, row.opcode), []).append(cost)
    for (_, pointer, _), group in groups.items():
        found = contention.operations(facts.totals.launched, group)
        if found is not None:
            yield from _finding(facts, group, pointer, found)


def _finding(
    facts: Facts, group: list[Cost], pointer: str | None, found: contention.Operations
) -> Iterator[Finding]:
    each, lanes = found.each, found.number / found.by_warp
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
