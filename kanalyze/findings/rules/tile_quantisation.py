"""A part of each edge tile lies outside the result.

What it says
------------
In a launch: which part of the elements that the tiles compute is masked off when they are stored.
In a profile: which matrix products use less than 80 % of their tiles, and what that costs.

Why it is slow
--------------
A block computes a whole tile whatever part of it is kept: 1793 rows in tiles of 256 are 8 tiles,
2048 rows. Tensor cores and CUDA cores work on the masked elements all the same.

How it is detected
------------------
In a launch: lanes that take part in stores to global memory, over those that would if no comparison
with an argument (`rows < M`) kept them out. Said of kernels that use tensor cores, from 10 % on,
unless HBM binds: masked elements move no bytes. In a profile: M and N of the calling operator over
the tile that the kernel's name states, in the better orientation, at 5 % of the time.

How it is proven
----------------
The kernel is compiled with each tile size halved and doubled, then another one beside the best, and
its launch is simulated; the fastest is shown where it saves 5 % of the time, and only then it is a
warning.

Example
-------
    1793 x 1792 in tiles of 256 x 128: 8 x 14 tiles, 87.6 % of their elements used
    1793 x 1792 in tiles of 128 x 128: 15 x 14 tiles, 93.4 %

Source
------
NVIDIA, Matrix Multiplication Background User's Guide, section "Tile Quantization".
"""

from __future__ import annotations

from collections.abc import Iterator

from kanalyze.findings import bounds
from kanalyze.findings.facts import Facts
from kanalyze.findings.rule import Rule
from kanalyze.findings.tile_sizes import with_other_tiles
from kanalyze.results.kernel import Finding
from kanalyze.symbolic.grid import UnknownValueError
from kanalyze.symbolic.parts import TooLargeError
from kanalyze.text.numbers import decimal, whole

_ID = "tile-quantisation"

_OUTSIDE = 0.1  # of the tiles' elements: less is not worth another tile
_MOVED = ("hbm", "launch")  # bounds that masked elements do not add to


def check_launch(facts: Facts) -> Iterator[Finding]:
    """Tiles of which a good part is masked off."""
    traffic, totals = facts.traffic, facts.totals
    if traffic is None or totals is None or traffic.time.bound_by in (None, *_MOVED):
        return
    if not traffic.flops_by_unit.get("tensor"):
        return  # a row in a block of 2^n elements: lanes without one are the price of the shape
    if bounds.leaves_sms_idle(facts):
        return  # what a tile computes in vain costs less than the SMs without one
    inside: dict[str, int] = {}
    whole_: dict[str, int] = {}
    for cost, row in zip(totals.transactions, facts.kernel.accesses, strict=True):
        if row.space != "global" or row.kind != "store" or not row.pointer:
            continue
        if cost.counted is None or not cost.counted.requests:
            continue
        try:
            all_ = totals.launched.untrimmed(cost.access)
        except (UnknownValueError, TooLargeError):
            return  # what the tiles hold is not known
        size = row.bytes_per_thread or 1
        inside[row.pointer] = inside.get(row.pointer, 0) + cost.counted.threads * size
        whole_[row.pointer] = whole_.get(row.pointer, 0) + all_ * size
    computed = sum(whole_.values())
    outside = 1 - sum(inside.values()) / computed if computed else 0.0
    if outside < _OUTSIDE:
        return
    worst = max(whole_, key=lambda name: whole_[name] - inside[name])
    kept, all_ = inside[worst], whole_[worst]
    line, source = facts.place
    yield Finding(
        _ID,
        "info",
        line,
        f"{decimal(100 * outside)} % of what the tiles compute lies outside the result "
        f"({worst}: {whole(kept)} of {whole(all_)} bytes are stored)",
        "a tile that divides the sizes better, or sizes that are multiples of the tile (pad them)",
        source,
        {"outside_share": outside, "stored_bytes": kept, "tile_bytes": all_},
    )


def prove(facts: Facts, finding: Finding) -> Finding:
    """Other tile sizes; they do fewer operations by what lies outside now."""
    least = 1 - float(finding.numbers["outside_share"] or 0.0)
    return with_other_tiles(facts, finding, least=least)


RULE = Rule(_ID, check_launch=check_launch, prove=prove)
