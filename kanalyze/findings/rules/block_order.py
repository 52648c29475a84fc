"""Blocks that run together share too little: HBM is read again and again.

What it says
------------
How often the launch reads its bytes from HBM, as far as the simulation of the caches tells, through
which pointer blocks share what they read, and the order of blocks with which it reads less.

Why it is slow
--------------
Blocks start in the order of their index. Those that run at the same time share what they read in
L2. In a matrix product in plain order they cover a few rows of tiles and all columns, so that
nearly all of B passes through L2 for each such band; in groups of GROUP_M rows of tiles they cover
a square, which needs the fewest rows of A and columns of B.

How it is detected
------------------
HBM reads of the simulated launch are 1.5 times the distinct bytes and more, by at least 64 MiB, and
blocks share as much: so many bytes are read if each block reads its own once. No register is
spilled, and HBM needs 40 % of the time. It is a warning only where another order saves 5 % of it.

How it is proven
----------------
Each small integer constexpr of the kernel is tried with the values 1, 4, 8 and 16; those count with
which the launch has as many blocks and asks for the same sectors, so that the order alone differs.
The caches and the time are simulated with it.

Example
-------
    pid_m, pid_n = pid // tiles_n, pid % tiles_n          # row by row

    pid_m, pid_n = tl.swizzle2d(pid // tiles_n, pid % tiles_n, tiles_m, tiles_n, GROUP_M)

Source
------
Triton tutorials, "Matrix Multiplication", section "L2 Cache Optimizations".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from kanalyze.findings import bounds, trials
from kanalyze.findings.changes import Change, settings
from kanalyze.findings.facts import NO_SOURCE, Facts
from kanalyze.findings.rule import Rule
from kanalyze.results.kernel import Finding, Proof
from kanalyze.results.traffic import PointerBytes, Traffic
from kanalyze.text.numbers import decimal, whole

_ID = "block-order"

_AGAIN = 1.5  # HBM reads over the distinct bytes
_LEAST_BYTES = 64 << 20  # that are read again: less than 15 us even on an H200
_FEWER = 0.2  # share of the HBM reads that is worth a remark where the time stays
_BOUND = 0.4  # share of the time below which fewer bytes from HBM save none
_GROUPS = (1, 4, 8, 16)
_SMALL = 16  # a constexpr above is no group


def check_launch(facts: Facts) -> Iterator[Finding]:
    """Launches whose HBM reads are far above what must be read."""
    traffic = facts.traffic
    if traffic is None:
        return
    moved, least = traffic.counters.get("dram_read_bytes"), traffic.compulsory.read_bytes
    shared = [p for p in traffic.compulsory.pointers if _shared(p)]
    if not moved or not least or not shared:
        return
    if moved < _AGAIN * least or moved - least < _LEAST_BYTES:
        return
    if facts.resources.spill_load_bytes:
        return  # spilled registers are read from HBM, too
    if bounds.share(traffic, "hbm") < _BOUND:
        return
    most = max(shared, key=lambda p: (p.read_bytes or 0) * _blocks(p))
    names = ", ".join(p.pointer for p in shared)
    line, source = facts.place
    yield Finding(
        _ID,
        "info",
        line,
        f"HBM is read {decimal(moved / least)} times over ({whole(moved)} bytes, "
        f"{whole(least)} distinct): blocks that run together share little of what they read "
        f"({names}; a sector of {most.pointer} is read by up to {whole(_blocks(most))} blocks)",
        "let blocks with neighbouring numbers work on a square of tiles: groups of 4 to 16 rows of "
        "tiles (tl.swizzle2d, GROUP_M)",
        source,
        {"dram_read_bytes": moved, "distinct_bytes": least, "times": moved / least},
    )


def _shared(pointer: PointerBytes) -> bool:
    """Whether blocks read what others read, too, and not just the sectors where they meet."""
    sharing = pointer.read_sharing
    return sharing is not None and sharing.by_block_bytes >= _AGAIN * (pointer.read_bytes or 0)


def _blocks(pointer: PointerBytes) -> int:
    return pointer.read_sharing.most_blocks if pointer.read_sharing is not None else 0


def prove(facts: Facts, finding: Finding) -> Finding | None:
    """Other values of constexprs that change the order of blocks alone."""
    now = facts.traffic
    assert now is not None
    tries = trials.run(facts, _changes(facts), partial(_may_be_order, facts))
    orders = [(t, t.traffic) for t in tries if t.traffic and _only_order(now, t.traffic)]
    if not orders:
        why = "no constexpr changes the order of blocks alone"
        return replace(finding, unproven=why if facts.compiled else NO_SOURCE)
    best, traffic = min(orders, key=lambda pair: _rank(pair[1]))
    before, after = _measures(now), _measures(traffic)
    gained = trials.gain(facts, best)
    fewer = 1 - after["dram_read_bytes"] / before["dram_read_bytes"]
    worth = trials.faster(facts, best)
    if not worth and fewer < _FEWER:
        return None  # of the orders that were tried, this is as good as any
    saved = {"bytes": before["dram_read_bytes"] - after["dram_read_bytes"]}
    if worth:
        saved["time_us"] = round(before["time_us"] - after["time_us"], 3)
    says = f"{100 * gained:.0f} % less time" if worth else "as long by the estimate"
    return replace(
        finding,
        severity="warning" if worth else "info",
        advice=f"{best.words}: {100 * fewer:.0f} % fewer bytes from HBM, {says}",
        proof=Proof("simulated", best.words, before, after),
        saves=saved,
        numbers={**finding.numbers, "orders_tried": len(orders)},
    )


def _changes(facts: Facts) -> Iterator[Change]:
    if facts.compiled is None:
        return
    for name, value in facts.compiled.constexprs.items():
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _SMALL:
            continue
        for other in _GROUPS:
            if other != value:
                yield settings(**{name: other})


def _may_be_order(now: Facts, then: Facts) -> bool:
    """Whether two compilations may differ in the order of blocks alone."""
    same = (then.launch is not None and now.launch is not None
            and then.launch.grid == now.launch.grid)  # fmt: skip
    parts = [(f.kernel.memory, f.kernel.tensor_core, f.kernel.shared_bytes) for f in (now, then)]
    return same and parts[0] == parts[1]


def _only_order(now: Traffic, then: Traffic) -> bool:
    """Whether two launches do the same with as many blocks, whatever the order."""
    names = [f"global_{kind}_{unit}" for kind in ("load", "store") for unit in
             ("requests", "sectors")]  # fmt: skip
    same = all(now.counters.get(name) == then.counters.get(name) for name in names)
    return same and (now.grid, now.block, now.flops) == (then.grid, then.block, then.flops)


def _rank(traffic: Traffic) -> tuple[float, float]:
    measures = _measures(traffic)
    return measures["time_us"], measures["dram_read_bytes"]


def _measures(traffic: Traffic) -> dict[str, float]:
    return {
        "dram_read_bytes": float(traffic.counters.get("dram_read_bytes") or 0),
        "l2_read_sectors": float(traffic.counters.get("l2_read_sectors") or 0),
        "time_us": traffic.time.predicted_us or 0.0,
    }


RULE = Rule(_ID, check_launch=check_launch, prove=prove)
