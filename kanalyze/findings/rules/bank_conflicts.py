"""Lanes of a warp access different words of the same shared-memory bank.

What it says
------------
How many ways an access of shared memory conflicts, how many wavefronts its requests take and how
many would do, and a padding or swizzle of the array with which they take fewer.

Why it is slow
--------------
Shared memory has 32 banks of 4 bytes; one wavefront serves one word of each. Lanes that need
different words of one bank are served one after another: an n-way conflict takes n wavefronts in
the place of one. Lanes that need the same word are served together. Accesses of 8 bytes are served
by half warps and those of 16 bytes by quarter warps, so that contiguous ones have no conflict.

How it is detected
------------------
In a launch, the addresses of all warps are put through the rule by which the hardware counts
wavefronts. Without a launch, those of a block's first warp are, where they depend on the thread
alone; where the PTX does not say the shape of a block, its first 32 threads in x are taken, and the
finding says so. A warning in a launch is one whose further wavefronts take at least 5 % of the
time; layouts that Triton chose are not a warning without that.

How it is proven
----------------
By counting again: all accesses of the array are counted as if its rows were padded by one access,
or swizzled, and the layout with the fewest wavefronts is named. The layouts of a Triton kernel are
the compiler's, so there the kernel is compiled with other numbers of warps.

Example
-------
    __shared__ float t[32][32];
    y = t[threadIdx.x][k];          // 32 lanes, 128 bytes apart: one bank, 32 wavefronts

    __shared__ float t[32][33];     // 132 bytes apart: 32 banks, 1 wavefront

Source
------
CUDA C++ Best Practices Guide, sections "Shared Memory and Memory Banks" and "Shared Memory in
Matrix Multiplication (C=AA^T)"; the rule for wide accesses is measured (docs/traffic.md).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from kanalyze.counting.ptx_launch import rule_of
from kanalyze.findings import changes, trials
from kanalyze.findings.facts import Facts
from kanalyze.findings.rule import Rule
from kanalyze.models import banks, warp_patterns
from kanalyze.models.layouts import Layout, best, candidates, lane_stride, widest
from kanalyze.results import kernel as doc
from kanalyze.results.kernel import Finding, Proof
from kanalyze.results.traffic import Traffic
from kanalyze.symbolic.accesses import AccessValue
from kanalyze.symbolic.value import leaves
from kanalyze.text.numbers import decimal
from kanalyze.traffic.totals import Better, LaunchTotals, ideal

_ID = "bank-conflicts"

_WORTH = 1.2  # wavefronts over those needed; less is not worth another layout
_MATTERS = 0.05  # share of the launch's time below which a conflict is not a warning
_TRITONS = 4  # ways: Triton's layouts often conflict in pairs where a tile leaves the kernel
_FREE = ("contiguous", "all lanes")  # how lanes lie that never conflict
_UNSEEN_SHAPE = (
    "in blocks whose extent in x is a multiple of 32 (the PTX does not say the shape of a block)"
)


@dataclass(frozen=True)
class _SharedAccess:
    """One access: executions, what they cost and need, and where the lanes point."""

    access: AccessValue
    row: doc.Access
    requests: int
    cost: int
    ideal: int
    worst: int
    offsets: tuple[int, ...] | None

    @property
    def needed(self) -> int:
        """Wavefronts of one execution without conflicts."""
        return max(1, -(-self.ideal // self.requests))


def check_kernel(facts: Facts) -> Iterator[Finding]:
    """Conflicts of each source line and shared array."""
    if not any(row.space == "shared" for row in facts.kernel.accesses):
        return
    if facts.launched is not None:
        yield from _of_launch(facts)
    else:
        yield from _of_a_warp(facts)


# ---------------------------------------------------------------- a launch


def _of_launch(facts: Facts) -> Iterator[Finding]:
    totals = facts.totals
    if totals is None:
        if not any(_costly(row) for row in facts.kernel.accesses):
            return
        assert facts.launched is not None
        totals = LaunchTotals(facts.description, facts.launched, None)
    accesses = []
    for cost, row in zip(totals.executed, facts.kernel.accesses, strict=True):
        counted, least = cost.counted, ideal(cost)
        if facts.totals is None and cost.access.instruction.pos in facts.changed_by_assembler:
            continue
        if row.space == "shared" and counted is not None and counted.requests and least:
            worst = max(counted.by_transactions, default=0)
            offsets = totals.lane_offsets(cost)
            accesses.append(
                _SharedAccess(
                    cost.access, row, counted.requests, counted.transactions, least, worst, offsets
                )
            )
    for group in _groups(accesses):
        better = next(
            (b for b in totals.better_layouts if b.variable == group[0].row.pointer), None
        )
        finding = _finding(facts, group, "")
        if _negligible(facts, finding, group):
            continue
        array = group[0].row.pointer
        better = next((b for b in totals.better_layouts if b.variable == array), None)
        if better is not None and not _by_triton(facts):
            finding = _laid_out(finding, group, better, totals)
        yield finding


def _costly(row: doc.Access) -> bool:
    """Whether an access takes more wavefronts than one without conflicts would."""
    if row.space != "shared" or not row.cost or not row.requests or not row.bytes_per_thread:
        return False
    matrices = row.vector if "matrix" in row.opcode else None
    return row.cost > row.requests * banks.ideal(row.kind, row.bytes_per_thread, matrices)


def _laid_out(
    finding: Finding, group: list[_SharedAccess], better: Better, totals: LaunchTotals
) -> Finding:
    """The finding with the layout that takes fewer wavefronts, counted with it."""
    now = sum(one.cost for one in group)
    costs = [
        cost for cost in totals.transactions if any(cost.access is one.access for one in group)
    ]
    then = totals.with_layout(costs, better.layout)
    if then is None or then >= now:
        return finding
    return replace(
        finding,
        advice=_change(better.layout, group[0]),
        saves={"wavefronts": now - then},
        proof=Proof("counted", better.layout.words, {"wavefronts": now}, {"wavefronts": then}),
        numbers={**finding.numbers, "array_wavefronts": better.now,
                 "array_wavefronts_then": better.then},
    )  # fmt: skip


# ---------------------------------------------------------------- the first warp of a block


def _of_a_warp(facts: Facts) -> Iterator[Finding]:
    kernel = facts.kernel
    shape = kernel.reqntid
    threads = (shape[0], shape[1], shape[2]) if shape else (warp_patterns.WARP, 1, 1)
    values = {name: a.value for name, a in facts.arguments.items() if a.value is not None}
    warp = warp_patterns.FirstWarp(threads, values)
    accesses = []
    for access, row in facts.accesses():
        if row.space != "shared" or row.pointer is None or rule_of(access) is None:
            continue
        if row.pattern is not None and row.pattern.startswith(_FREE):
            continue
        if access.instruction.pos in facts.changed_by_assembler:
            continue
        if shape is None and any(
            leaf.payload.startswith("ntid") for leaf in leaves(access.address, "special")
        ):
            continue
        offsets = warp.offsets(access.address)
        if offsets is None or (shape is None and not _inside(facts, row, offsets)):
            continue
        cost = _request(access, offsets)
        matrices = row.vector if access.instruction.base in ("ldmatrix", "stmatrix") else None
        least = min(cost, banks.ideal(row.kind, access.row.bytes_per_thread or 4, matrices))
        accesses.append(_SharedAccess(access, row, 1, cost, least, cost, offsets))
    for group in _groups(accesses):
        finding = _finding(facts, group, "" if shape else _UNSEEN_SHAPE)
        if _negligible(facts, finding, group):
            continue
        same = [one for one in accesses if one.row.pointer == group[0].row.pointer]
        yield finding if _by_triton(facts) else _padded(finding, group, same)


def _inside(facts: Facts, row: doc.Access, offsets: tuple[int, ...]) -> bool:
    """Whether the lanes fit into the array: else the block has another shape."""
    variable = facts.description.variables.get(row.pointer or "")
    span = max(offsets) - min(offsets) + (row.bytes_per_thread or 0)
    return variable is None or variable.bytes is None or span <= variable.bytes


def _request(access: AccessValue, offsets: Iterable[int], layout: Layout | None = None) -> int:
    """Wavefronts of one request; the fewest where its first word is not known."""
    rule = rule_of(access)
    assert rule is not None
    given = np.array(list(offsets), np.int64)
    given -= given.min()
    addresses = np.zeros((1, warp_patterns.WARP), np.int64)
    addresses[0, : len(given)] = given
    if layout is not None:
        addresses = layout.moved(addresses)
    taking_part = (np.arange(warp_patterns.WARP) < len(given))[None, :]
    size = access.row.bytes_per_thread or banks.WORD
    return min(
        int(rule.transactions(addresses + first, taking_part)[0])
        for first in range(0, banks.WORD, min(size, banks.WORD))
    )


def _padded(finding: Finding, group: list[_SharedAccess], same: list[_SharedAccess]) -> Finding:
    """The finding with a layout that takes fewer wavefronts in one request of each access."""

    def total(layout: Layout, some: list[_SharedAccess] = same) -> int:
        return sum(_request(one.access, one.offsets or (), layout) for one in some)

    tried = candidates(
        widest([one.access.row.bytes_per_thread or 4 for one in same]),
        [lane_stride(one.offsets) for one in same if one.offsets is not None],
    )
    better = best(sum(one.cost for one in same), tried, total)
    now = sum(one.cost for one in group)
    if better is None or (then := total(better[0], group)) >= now:
        return finding
    proof = Proof(
        "counted",
        f"{better[0].words}, one request of each access",
        {"wavefronts": now},
        {"wavefronts": then},
    )
    return replace(finding, advice=_change(better[0], group[0]), proof=proof)


# ---------------------------------------------------------------- the finding


def _groups(accesses: list[_SharedAccess]) -> Iterator[list[_SharedAccess]]:
    """Accesses that cost clearly more than needed, those of one source line and array together."""
    groups: dict[object, list[_SharedAccess]] = {}
    for one in accesses:
        if one.cost >= _WORTH * one.ideal:
            source = one.row.source
            place = (source.file, source.line) if source else None
            groups.setdefault((place, one.row.pointer, one.row.kind), []).append(one)
    yield from groups.values()


def _finding(facts: Facts, group: list[_SharedAccess], where: str) -> Finding:
    requests, cost = sum(one.requests for one in group), sum(one.cost for one in group)
    least = sum(one.ideal for one in group)
    ways = max(-(-one.worst // one.needed) for one in group)
    first = group[0]
    strides = {lane_stride(one.offsets) if one.offsets else 0 for one in group}
    apart = strides.pop() if len(strides) == 1 else 0
    number = f"{len(group)} × " if len(group) > 1 else ""
    array = _variable(first.row.pointer)
    lie = f", lanes {apart} B apart" if apart else ""
    line, source = facts.at(first.access.instruction)
    message = (
        f"{ways}-way bank conflict: {decimal(cost / requests)} wavefronts per request where "
        f"{decimal(least / requests)} would do ({number}{first.row.opcode} of {array}{lie})"
    )
    return Finding(
        _ID,
        _severity(facts, cost - least, bool(where)),
        line,
        f"{message} {where}".strip(),
        _advice(facts),
        source,
        {"ways": ways, "requests": requests, "wavefronts": cost, "ideal_wavefronts": least,
         "instructions": len(group), "lanes_apart_bytes": apart},
    )  # fmt: skip


def _negligible(facts: Facts, finding: Finding, group: list[_SharedAccess]) -> bool:
    """Whether the layout is the compiler's own, and costs little as far as is known."""
    if finding.severity != "info" or not _by_triton(facts):
        return False
    timed = facts.traffic is not None and facts.traffic.time.predicted_us is not None
    return timed or max(one.cost / one.ideal for one in group) < _TRITONS


def _severity(facts: Facts, further: int, assumed: bool) -> str:
    share = _share_of_time(facts, further)
    if share is not None:
        return "warning" if share >= _MATTERS else "info"
    return "info" if assumed or _by_triton(facts) else "warning"


def _share_of_time(facts: Facts, further: int) -> float | None:
    """What wavefronts beyond those needed take of the launch's time."""
    traffic = facts.traffic
    if traffic is None or not traffic.time.predicted_us:
        return None
    names = ("shared_load_wavefronts", "shared_store_wavefronts")
    counts = [traffic.counters.get(name) for name in names]
    bound, total = traffic.time.bounds_us.get("shared"), sum(n or 0 for n in counts)
    if bound is None or None in counts or not total:
        return None
    return min(1.0, further / total) * bound / traffic.time.predicted_us


def _by_triton(facts: Facts) -> bool:
    """Whether a compiler chose the layout of shared memory: it is one array without a type."""
    return facts.of_triton


def _advice(facts: Facts) -> str:
    if _by_triton(facts):
        return (
            "the compiler chose this layout: another num_warps or tile shape, or a tile loaded in "
            "the order in which it is used (tl.trans of the pointers, not of the values), gets "
            "another"
        )
    return (
        "let neighbouring lanes access neighbouring words (an array for each member instead of "
        "structures), or pad or swizzle the rows of the array"
    )


def _change(layout: Layout, one: _SharedAccess) -> str:
    """The layout in the terms of the array: ``rows of 33 elements instead of 32``."""
    size = (one.row.element_bits or 32) // 8
    array = _variable(one.row.pointer)
    text = f"lay {array} out with {layout.words}"
    if layout.padding and layout.row_bytes % size == 0 and layout.padding % size == 0:
        now, more = layout.row_bytes // size, layout.padding // size
        moved = f"i + i / {now}" if more == 1 else f"i + {more} * (i / {now})"
        text += f": rows of {now + more} elements instead of {now} (element i at {moved})"
    return text


def _variable(symbol: str | None) -> str:
    """The name of a shared array as its author wrote it: ``t`` for ``_ZZ4copyPfE1t``."""
    match = re.search(r"E(\d+)(\w+?)$", symbol or "") if (symbol or "").startswith("_ZZ") else None
    if match and len(match[2]) == int(match[1]):
        return match[2]
    return symbol or "shared memory"


# ---------------------------------------------------------------- Triton


def prove(facts: Facts, finding: Finding) -> Finding | None:
    """Other numbers of warps, for a Triton kernel whose conflicts cost time."""
    if finding.proof is not None or finding.severity != "warning" or facts.compiled is None:
        return finding
    best_ = trials.fastest(trials.run(facts, changes.other_warps(facts)))
    if best_ is None or not trials.faster(facts, best_):
        return replace(
            finding, severity="info", unproven="no other number of warps makes the launch faster"
        )
    before, after = (_measures(t) for t in (facts.traffic, best_.traffic))
    if after["wavefronts"] >= before["wavefronts"]:
        return replace(
            finding, severity="info", unproven="no other number of warps takes fewer wavefronts"
        )
    return replace(
        finding,
        advice=f"{best_.words}: {math.floor(100 * trials.gain(facts, best_))} % less time",
        proof=Proof("simulated", best_.words, before, after),
        saves={"wavefronts": before["wavefronts"] - after["wavefronts"],
               "time_us": before["time_us"] - after["time_us"]},
    )  # fmt: skip


def _measures(traffic: Traffic | None) -> dict[str, float]:
    assert traffic is not None
    counters = traffic.counters
    shared = sum(counters.get(f"shared_{kind}_wavefronts") or 0 for kind in ("load", "store"))
    return {"wavefronts": shared, "time_us": traffic.time.predicted_us or 0.0}


RULE = Rule(_ID, check_kernel=check_kernel, prove=prove)
