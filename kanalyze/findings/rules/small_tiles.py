"""A matrix product waits for its operands: its tiles are too small.

What it says
------------
The tensor cores of a matrix product have to wait, since bringing its operands takes longer than
multiplying them: through L2, the links between SMs and L2, or shared memory. The finding says how
many operations there are for each byte through L2, how many there would have to be (the ridge), and
with which tile the launch is faster.

Why it is slow
--------------
A block that computes m x n results reads m + n elements for each step of K and does m n
multiplications with them. 64 x 64 is 32 multiplications for an element, 128 x 256 is 85: each byte
that was brought is used more often. Larger tiles need more warps (their sums stand in registers)
and more shared memory.

How it is detected
------------------
In the estimate of a launch that uses tensor cores: L2, its fabric, its links or shared memory bind,
and the tensor cores need less than 70 % of the time (good kernels reach as much). Two constexprs
that change the grid are taken for the sides of the tile.

How it is proven
----------------
The kernel is compiled with the tiles and warps that libraries use (128 x 128 with 4 and 8 warps,
128 x 256 and 256 x 128 with 8; 64 in K), as far as they are no smaller, fit and do not spill, and
the same launch is simulated. From 20 % less time on it is a warning, from 10 % on an info, since
the estimate may rank configurations of a product wrongly by about as much; else nothing is said.

Example
-------
    mm[grid](a, b, c, ..., BLOCK_M=64, BLOCK_N=64, BLOCK_K=32, num_warps=4)     # bound by L2

    mm[grid](a, b, c, ..., BLOCK_M=128, BLOCK_N=256, BLOCK_K=64, num_warps=8)

Source
------
NVIDIA, Matrix Multiplication Background User's Guide, section "Tile Quantization" and those before
it: larger tiles reuse more. CUTLASS, "Efficient GEMM in CUDA", section "Threadblock-level GEMM".
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from kanalyze.findings import bounds, trials, triton_ir
from kanalyze.findings.changes import Change, settings, tiles
from kanalyze.findings.facts import Facts
from kanalyze.findings.rule import Rule
from kanalyze.findings.tile_sizes import changes_grid
from kanalyze.results.kernel import Finding, Proof
from kanalyze.results.traffic import Traffic
from kanalyze.text.numbers import decimal

_ID = "small-tiles"

_BRINGING = {"l2": "L2", "fabric": "the fabric of L2", "link": "the links between SMs and L2",
             "shared": "shared memory"}  # fmt: skip
_BUSY = 0.7  # of the time: good products keep the tensor cores as busy
_WARNING, _INFO = 0.2, 0.1  # of the time that a better tile saves
_LIBRARY = ((128, 128, 4), (128, 128, 8), (128, 256, 8), (256, 128, 8))  # sides, warps
_INNER = 64  # of K: 128 bytes of fp16, the widest swizzle of shared memory


def check_launch(facts: Facts) -> Iterator[Finding]:
    """A product that is bound by what brings its operands."""
    traffic = facts.traffic
    if traffic is None or facts.compiled is None or not traffic.flops_by_unit.get("tensor"):
        return
    time, bound = traffic.time, traffic.time.bound_by
    busy = bounds.share(traffic, "tensor")
    if bound not in _BRINGING or time.predicted_us is None or not 0 < busy < _BUSY:
        return
    if len(_sides(facts)) != 2:
        return
    now = _through_l2(traffic)
    if traffic.roofline is None or now is None:
        return
    ridge = traffic.roofline.levels["l2"].ridge
    line, source = facts.place
    yield Finding(
        _ID,
        "info",
        line,
        f"the product waits for its operands ({_BRINGING[bound]}); the tensor cores need "
        f"{decimal(100 * busy)} % of the time. Its tiles do {decimal(now)} flop for each byte "
        f"through L2, the ridge is at {decimal(ridge)}",
        f"larger tiles, {' and '.join(_sides(facts))}, with more warps",
        source,
        {"flop_per_l2_byte": now, "ridge": ridge, "tensor_share": busy},
    )


def _through_l2(traffic: Traffic) -> float | None:
    """Operations for each byte through L2."""
    level = traffic.roofline.levels.get("l2") if traffic.roofline is not None else None
    return level.intensity if level is not None else None


def _sides(facts: Facts) -> list[str]:
    """Constexprs that are the sides of the tile: another value gives another grid."""
    return [
        name
        for name, value in tiles(facts).items()
        if changes_grid(facts, settings(**{name: 2 * value}))
    ]


# ---------------------------------------------------------------- proof


def prove(facts: Facts, finding: Finding) -> Finding | None:
    """The tiles of libraries."""
    best = trials.fastest(trials.run(facts, _changes(facts), _fits))
    gain = trials.gain(facts, best) if best is not None else 0.0
    if best is None or best.traffic is None or facts.traffic is None or gain < _INFO:
        return None
    after = _through_l2(best.traffic)
    reached = f", {decimal(after)} flop for each byte" if after is not None else ""
    return replace(
        finding,
        severity="warning" if gain >= _WARNING else "info",
        advice=f"{best.words}: {100 * gain:.0f} % less time by the estimate{reached}",
        proof=Proof("simulated", best.words, _measures(facts.traffic), _measures(best.traffic)),
        saves=trials.saved_time(facts, best),
    )


def _fits(then: Facts) -> bool:
    return not then.kernel.spill_store_bytes


def _changes(facts: Facts) -> Iterator[Change]:
    given = tiles(facts)
    one, other = _sides(facts)
    extents = {dot.k for dot in triton_ir.dots(facts)}
    inner = {
        name: _INNER
        for name, value in given.items()
        if name not in (one, other) and value in extents and value < _INNER
    }
    for first, second, warps in _LIBRARY:
        if first < given[one] or second < given[other]:
            continue
        values = {one: first, other: second, **inner}
        changed = {name: value for name, value in values.items() if given[name] != value}
        if warps != facts.warps:
            changed["num_warps"] = warps
        if changed:
            yield settings(**changed)


def _measures(traffic: Traffic) -> dict[str, float]:
    through = _through_l2(traffic)
    return {
        "blocks": float(math.prod(traffic.grid)),
        **({"flop_per_l2_byte": round(through, 1)} if through is not None else {}),
        "time_us": round(traffic.time.predicted_us or 0.0, 3),
    }


RULE = Rule(_ID, check_launch=check_launch, prove=prove)
