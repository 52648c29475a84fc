"""A tile changes its layout on the way, through shared memory.

What it says
------------
Triton gives each tile a layout: which thread holds which element. Where two operations want
different layouts of the same tile, it converts it, and if threads of different warps have to
exchange elements, it writes the tile to shared memory, waits for the block, and reads it back. The
finding says how many bytes of a block, and at which line.

Why it is slow
--------------
Each byte passes shared memory twice, with two barriers of the block. Once, at the end of a kernel,
this buys wide stores; in a loop it is paid in each iteration, beside the loads and products.

How it is detected
------------------
The TTGIR has a `ttg.convert_layout`, and the PTX has shared stores and loads with its source line
and column; conversions within a warp or a thread have none and are left out, and so are tiles of
pointers and operands of a product, which are staged in shared memory. In a loop it is a warning
where a quarter or more of the bytes that the loop moves to and from shared memory are of it (info
where shared memory takes less than a tenth of the launch's time); outside of loops, in kernels that
have none, it is an info where the stores at its line are narrower than 16 bytes in spite of it;
else it has done what it is for.

How it is proven
----------------
For warnings the kernel is compiled again with half and twice as many warps; bytes through shared
memory for conversions before and after and, for a launch, the simulated times are shown.

Example
-------
    for k in range(steps):
        acc += tl.dot(a, b) + tl.load(d_ptrs)    # the tile of d is converted in each iteration

    for k in range(steps):
        acc = tl.dot(a, b, acc)
        extra += tl.load(d_ptrs)                 # added once, behind the loop

Source
------
Triton, TritonGPUDialect: "ttg.convert_layout"; ConvertLayoutOpToLLVM.cpp. triton-lang/triton#8149.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace

from kanalyze.findings import trials, triton_ir
from kanalyze.findings.changes import other_warps
from kanalyze.findings.facts import Facts
from kanalyze.findings.rule import Rule
from kanalyze.results import kernel as doc
from kanalyze.results.kernel import Finding, Source
from kanalyze.symbolic.accesses import AccessValue

_ID = "layout-conversion"

_SHARE = 0.25  # of what a loop moves through shared memory; less is lost in the rest
_MATTERS = 0.1  # of a launch's time that shared memory needs, below which it is not a warning
_BITS = {"i1": 8, "bf16": 16}
_WIDE = 16  # bytes of the widest store

Place = tuple[str, int, int]
Pairs = list[tuple[AccessValue, doc.Access]]


def check_kernel(facts: Facts) -> Iterator[Finding]:
    """Conversions that pass through shared memory, one finding for each place."""
    through = _through_shared(facts)
    for place, (tiles, group) in through.items():
        depth = max(row.loop_depth for _, row in group)
        if not depth and (facts.description.cfg.loops or not _stores_narrow(facts, place)):
            continue  # once: beside a loop, or what makes the stores wide
        moved = _bytes(facts, group)
        share = moved / max(1, _in_same_loop(facts, group)) if depth else 1.0
        if share < _SHARE:
            continue
        shapes = list(dict.fromkeys(tiles))
        size = sum(_size(tile) for tile in shapes)
        times = "in each iteration" if depth else "once"
        wavefronts = _wavefronts(facts, group)
        cost = f", {wavefronts:,.0f} wavefronts a block" if wavefronts is not None else ""
        yield Finding(
            _ID,
            "warning" if depth and _matters(facts) else "info",
            group[0][1].line,
            f"a tile of {' and '.join(shapes)} changes its layout through shared memory {times}: "
            f"{size:,} B written and read back{cost}",
            "let one layout serve both: keep what is added or multiplied in an accumulator of its "
            "own and combine them behind the loop, or try another num_warps"
            if depth
            else "the stores stay narrow: store the tile in the order of its load",
            Source(*place),
            {
                "bytes": size,
                "accesses": len(group),
                "loop_depth": depth,
                **({"wavefronts_per_block": wavefronts} if wavefronts is not None else {}),
            },
        )


def _stores_narrow(facts: Facts, place: Place) -> bool:
    """Whether what is stored to global memory at a place is so in pieces of less than 16 bytes."""
    widths = [
        row.bytes_per_thread or _WIDE
        for _, row in facts.accesses()
        if (row.kind, row.space) == ("store", "global")
        and row.source is not None
        and (row.source.file, row.source.line, row.source.column) == place
    ]
    return bool(widths) and min(widths) < _WIDE


def _staged(facts: Facts) -> set[Place]:
    """Where a tile is put into shared memory for a product: what stands there is no conversion."""
    return {
        (o.source.file, o.source.line, o.source.column)
        for name in ("ttg.local_alloc", "ttg.local_store")
        for o in triton_ir.operations(facts, "ttgir", name)
        if o.source is not None and "tensor<" in o.text
    }


def _through_shared(facts: Facts) -> dict[Place, tuple[list[str], Pairs]]:
    """By place in the source: the types that are converted there, and the shared accesses."""
    tiles: dict[Place, list[str]] = defaultdict(list)
    for operation in triton_ir.operations(facts, "ttgir", "ttg.convert_layout"):
        shape = re.search(r"tensor<((?:\d+x)+[a-zA-Z]\w*)", operation.text)
        if "dot_op" in operation.text.rpartition("->")[2]:
            continue
        place = operation.source
        if shape is not None and place is not None:
            tiles[place.file, place.line, place.column].append(shape[1])
    for place_ in _staged(facts) if tiles else ():
        tiles.pop(place_, None)
    if not tiles:
        return {}
    by_place: dict[Place, tuple[list[str], Pairs]] = {}
    for value, row in facts.accesses():
        if row.space != "shared" or row.kind not in ("load", "store") or row.source is None:
            continue
        at = (row.source.file, row.source.line, row.source.column)
        if at in tiles:
            by_place.setdefault(at, (tiles[at], []))[1].append((value, row))
    kinds = {at: {row.kind for _, row in group} for at, (_, group) in by_place.items()}
    return {at: entry for at, entry in by_place.items() if kinds[at] == {"load", "store"}}


def _size(tile: str) -> int:
    """Bytes of a tile: of ``64x32xf16``."""
    *extents, element = tile.split("x")
    digits = re.search(r"\d+", element)
    bits = _BITS.get(element) or int(digits[0] if digits else 64)
    return math.prod(map(int, extents)) * bits // 8


def _bytes(facts: Facts, group: Pairs) -> int:
    """Bytes that a block's threads move with some accesses, executed once each."""
    return sum(row.bytes_per_thread or 0 for _, row in group) * 32 * (facts.warps or 1)


def _in_same_loop(facts: Facts, group: Pairs) -> int:
    """The same of all accesses to shared memory in the innermost loop around."""
    block = max(group, key=lambda pair: pair[1].loop_depth)[0].block
    loops = [loop for loop in facts.description.cfg.loops if block in loop.body]
    body = min((loop.body for loop in loops), key=len)
    moving = ("load", "store", "async_copy")
    return _bytes(
        facts,
        [
            (value, row)
            for value, row in facts.accesses()
            if value.block in body
            and row.kind in moving
            and (row.space == "shared" or row.kind == "async_copy")
        ],
    )


def _wavefronts(facts: Facts, group: Pairs) -> float | None:
    """Bank wavefronts of a block over the launch; None where they are not known."""
    if facts.launched is None or facts.launch is None:
        return None
    counted = [facts.launched.transactions(value).counted for value, _ in group]
    if None in counted:
        return None
    return sum(c.transactions for c in counted if c is not None) / math.prod(facts.launch.grid)


def _matters(facts: Facts) -> bool:
    """Whether shared memory takes a good part of the launch; without a launch it may."""
    time = facts.traffic.time if facts.traffic is not None else None
    if time is None or time.predicted_us is None:
        return True
    bounds: Mapping[str, float | None] = time.bounds_us
    return (bounds.get("shared") or 0.0) >= _MATTERS * time.predicted_us


# ---------------------------------------------------------------- proof


def prove(facts: Facts, finding: Finding) -> Finding | None:
    """Compile with half and twice as many warps."""
    if facts.compiled is None or not finding.numbers["loop_depth"]:
        return finding
    now = _converted(facts)
    better = [
        t
        for t in trials.run(facts, other_warps(facts), lambda then: _converted(then) < now / 2)
        if trials.faster(facts, t) is not False
    ]
    if not better:
        return replace(finding, unproven="no other num_warps that was tried avoids it")
    best = min(better, key=lambda t: (t.time_us or 0.0, _converted(t.facts)))
    before, after = ({"bytes": _converted(f)} for f in (facts, best.facts))
    return replace(
        finding,
        advice=best.words,
        proof=trials.proof(facts, best, before, after),
        saves=trials.saved_time(facts, best),
    )


def _converted(facts: Facts) -> int:
    """Bytes of a block that conversions in loops move through shared memory."""
    return sum(
        _bytes(facts, group)
        for _, group in _through_shared(facts).values()
        if any(row.loop_depth for _, row in group)
    )


RULE = Rule(_ID, check_kernel=check_kernel, prove=prove)
