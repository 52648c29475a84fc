"""Many atomics on few addresses are serialized.

What it says
------------
How many atomic operations the launch makes through a pointer, on how many different addresses, how
many lanes of one warp go to the same address, and how long those on one address take. A vector
(``.v4``) is one operation for each element.

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
By counting: the operations that remain if each warp adds up first what goes to the same address,
and the time that those on one address take, before and after. What is saved of the launch's time is
that, as far as nothing else needs as long.

Example
-------
    tl.atomic_add(sum_ptr + tl.zeros((BLOCK,), tl.int32), x)     # BLOCK operations on one address

    tl.atomic_add(sum_ptr, tl.sum(x))                            # one

Source
------
CUDA C++ Programming Guide, section "Atomic Functions"; NVIDIA blog, "CUDA Pro Tip: Optimized
Filtering with Warp-Aggregated Atomics" (2014). What a warp takes is measured (docs/traffic.md).
"""

from __future__ import annotations

from collections.abc import Iterator

from kanalyze.counting import atomics
from kanalyze.counting.ptx_launch import AccessTransactions
from kanalyze.findings.facts import Facts
from kanalyze.findings.rule import Rule
from kanalyze.performance import demand
from kanalyze.results.kernel import Finding, Proof
from kanalyze.text.numbers import decimal, duration, whole

_ID = "atomic-contention"

_LANES = 2.0  # of a warp at one address, from which adding up first is worth it
_TURNS = 128  # operations on each address below which they cost nothing that is seen
_MANY = 4096  # the same where they come from different warps: some microseconds at one a clock


def check_launch(facts: Facts) -> Iterator[Finding]:
    """Atomics of which many go to the same address, those of one source line together."""
    if facts.totals is None:
        return
    groups: dict[tuple[object, str | None, str], list[AccessTransactions]] = {}
    pairs = zip(facts.totals.transactions, facts.kernel.accesses, strict=True)
    rows = {id(cost): row for cost, row in pairs}
    for cost in atomics.counted_atomics(facts.totals.transactions):
        row = rows[id(cost)]
        place = (row.source.file, row.source.line) if row.source else None
        groups.setdefault((place, row.pointer, row.opcode), []).append(cost)
    for (_, pointer, _), group in groups.items():
        operations = atomics.operations(facts.totals.launched, group)
        if operations is not None:
            yield from _finding(facts, group, pointer, operations)


def _finding(
    facts: Facts,
    group: list[AccessTransactions],
    pointer: str | None,
    operations: atomics.Operations,
) -> Iterator[Finding]:
    each, lanes = operations.each, operations.number / operations.by_warp
    in_warp = lanes >= _LANES and each >= _TURNS
    if not in_warp and each < _MANY:
        return
    instruction = group[0].access.instruction
    line, source = facts.at(instruction)
    on = "one address" if operations.addresses == 1 else f"{whole(operations.addresses)} addresses"
    through = f" through {pointer}" if pointer else ""
    lead = f"{whole(operations.number)} atomics ({instruction.opcode}){through} on {on}"
    takes = _takes(facts, operations)
    lasts = f", {duration(takes)} at one address" if takes is not None else ""
    numbers = {
        "atomics": operations.number, "addresses": operations.addresses,
        "atomics_per_address": each, "lanes_per_address": lanes, "instructions": len(group),
    }  # fmt: skip
    if in_warp:
        first = "tl.sum" if facts.of_triton else "__reduce_add_sync or shared memory"
        counted = Proof(
            "counted",
            "one atomic for each address of a warp",
            {"atomics": operations.number, **_us(takes)},
            {"atomics": operations.by_warp, **_us(takes, 1 / lanes)},
        )
        yield Finding(
            _ID,
            "warning",
            line,
            f"{lead}: {decimal(lanes)} lanes of a warp are serialized at each{lasts}",
            f"add up what goes to the same address before ({first}), then one atomic for each "
            "warp or block",
            source,
            numbers,
            counted,
            saves=_saves(facts, takes, 1 / lanes),
        )
        return
    yield Finding(
        _ID,
        "info",
        line,
        f"{lead}: {decimal(each)} from different warps are serialized at each{lasts}",
        "fewer and longer blocks, or a partial result for each block and a second pass over them",
        source,
        numbers,
        unproven="the source would have to be changed by hand",
    )


def _takes(facts: Facts, operations: atomics.Operations) -> float | None:
    """Microseconds that the operations on one address take; None where the time is not known."""
    if facts.traffic is None or facts.totals is None:
        return None
    most = demand.serialization(facts.totals)
    bound = facts.traffic.time.bounds_us.get("atomics")
    return bound * operations.each / most if bound and most else None


def _us(takes: float | None, share: float = 1.0) -> dict[str, float]:
    return {} if takes is None else {"one_address_us": float(f"{takes * share:.4g}")}


def _saves(facts: Facts, takes: float | None, share: float) -> dict[str, float]:
    """Time that is saved if the turns take only a share, and all else what it does."""
    time = facts.traffic.time if facts.traffic is not None else None
    if takes is None or time is None or time.predicted_us is None or time.bound_by != "atomics":
        return {}
    others = [us for name, us in time.bounds_us.items() if name != "atomics" and us]
    saved = time.predicted_us - max([takes * share, *others])
    return {"time_us": round(saved, 3)} if saved > 0 else {}


RULE = Rule(_ID, check_launch=check_launch)
