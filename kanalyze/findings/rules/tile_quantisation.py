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
from typing import TYPE_CHECKING

from kanalyze.findings import bounds
from kanalyze.findings.profile import WORTH, Profile, names
from kanalyze.models.tiling import tile_efficiency
from kanalyze.results import profile as profiled
from kanalyze.results.kernel import Finding
from kanalyze.text.numbers import decimal, duration, whole

if TYPE_CHECKING:
    from kanalyze.findings.facts import Facts

_OUTSIDE = 0.1  # of the tiles' elements: less is not worth another tile
_MOVED = ("hbm", "launch")  # bounds that masked elements do not add to


def check_launch(facts: Facts) -> Iterator[Finding]:
    """Tiles of which a good part is masked off."""
    from kanalyze.symbolic.grid import UnknownValueError
    from kanalyze.symbolic.parts import TooLargeError

    traffic, totals = facts.traffic, facts.totals
    if traffic is None or totals is None or traffic.time.bound_by in (None, *_MOVED):
        return
    if not traffic.flops_by_unit.get("tensor"):
        return  # a row in a block of 2^n elements: lanes without one are the price of the shape
    if bounds.leaves_sms_idle(facts):
        return  # what a tile computes in vain costs less than the SMs without one
    inside: dict[str, int] = {}
    whole_: dict[str, int] = {}
    for cost, row in zip(totals.costs, facts.kernel.accesses, strict=True):
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
        "tile-quantisation",
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
    from kanalyze.findings.other_tiles import with_other_tiles

    least = 1 - float(finding.numbers["outside_share"] or 0.0)
    return with_other_tiles(facts, finding, least=least)


def check_profile(profile: Profile) -> list[profiled.ProfileFinding]:
    """Results whose size is not a multiple of the tile: a part of each edge tile is thrown away.

    Libraries swap operands for row-major results, so the better orientation of the tile counts.
    """
    worst: list[tuple[float, profiled.ProfiledKernel, str]] = []
    total = profile.total_us
    lost = time = 0.0
    for row in profile.rows:
        m, n = row.name.decoded.get("tile_m"), row.name.decoded.get("tile_n")
        if not isinstance(m, int) or not isinstance(n, int) or m < 1 or n < 1:
            continue
        for problem in row.problems:
            used = max(tile_efficiency(problem.m, problem.n, *t) for t in ((m, n), (n, m)))
            if used < 0.8 and problem.total_us / total >= WORTH / 5:
                lost += problem.total_us * (1 - used)
                time += problem.total_us
                text = f"{problem.m} x {problem.n} in tiles of {m} x {n}: {used:.0%} used"
                worst.append((problem.total_us * (1 - used), row, text))
    if time / total < WORTH:
        return []
    worst.sort(key=lambda w: -w[0])
    chosen = [row for _, row, _ in worst]
    return [
        profiled.ProfileFinding(
            "tile-quantisation",
            "info",
            f"matrix products with {time / total:.0%} of the time fill their tiles badly "
            f"({'; '.join(text for _, _, text in worst[:3])}): up to {duration(lost)} is spent on "
            "elements outside the result",
            "sizes that are multiples of the tile (pad the dimension), or a larger batch",
            names(chosen),
            {"total_us": time, "share": time / total, "lost_us": lost},
        )
    ]
