"""The launch has too few blocks to give each SM one.

What it says
------------
How many blocks the launch has and how many SMs the GPU has; how many of them have nothing to do.

Why it is slow
--------------
A block runs on one SM. SMs without a block add nothing: neither their units nor their part of the
bandwidth, of which one SM can draw only a fixed share.

How it is detected
------------------
Blocks of the grid against SMs of the device: it is said where 10 % of the SMs and more get none.
Launches of as many blocks as SMs (persistent kernels) are not meant. It is a warning where fewer
than half of the SMs have a block and the launch is estimated to take more than 20 us.

How it is proven
----------------
The kernel is compiled with each tile size halved, then another one beside the best, and its launch
is simulated; the fastest is shown where it saves 5 % of the time, and it is a warning then, too.

Example
-------
    grid = (cdiv(1024, 128), cdiv(1024, 128))      # 64 blocks on 132 SMs
    grid = (cdiv(1024, 64), cdiv(1024, 64))        # 256

Source
------
CUDA C++ Best Practices Guide, section "Thread and Block Heuristics": more blocks than SMs.
"""

from __future__ import annotations

from collections.abc import Iterator

from kanalyze.findings import bounds
from kanalyze.findings.facts import Facts
from kanalyze.findings.rule import Rule
from kanalyze.findings.tile_sizes import with_other_tiles
from kanalyze.results.kernel import Finding
from kanalyze.text.numbers import decimal, plural, whole
from kanalyze.text.page import NBSP

_ID = "small-grid"

_FEW = 0.5  # of the SMs: with fewer, the launch runs at less than half of what the GPU can do
_LONG_US = 20.0  # some launches' overhead: a second pass costs less than it saves


def check_launch(facts: Facts) -> Iterator[Finding]:
    """A launch that leaves SMs without a block."""
    traffic, device = facts.traffic, facts.device
    if traffic is None or traffic.waves is None or device is None or not device.sms:
        return
    blocks, sms = traffic.waves.blocks, device.sms
    idle = 1 - blocks / sms
    if not blocks or not bounds.leaves_sms_idle(facts):
        return
    waits = bounds.share(traffic, "launch")
    beside = f"; {decimal(100 * waits)} % of its time is the launch" if waits else ""
    lasts = traffic.time.predicted_us or 0.0
    slow = 1 - idle < _FEW and lasts > _LONG_US
    beside = f" for {decimal(lasts)} µs" if slow else beside
    line, source = facts.place
    counted = plural(blocks, "block").replace(" ", NBSP)
    yield Finding(
        _ID,
        "warning" if slow else "info",
        line,
        f"the grid is too small to fill the GPU: {counted} on {whole(sms)} SMs, "
        f"{decimal(100 * idle)} % of them idle{beside}",
        "split what a block does over several (smaller tiles; parts of a row or of K and a second "
        "pass that adds them up)"
        if slow
        else "smaller tiles, a further split of the work (split-K, a second pass that adds up), a "
        "larger batch, or other work beside it on a second stream",
        source,
        {"blocks": blocks, "sms": sms, "idle_share": idle,
         "blocks_per_wave": traffic.waves.blocks_per_wave},
    )  # fmt: skip


def prove(facts: Facts, finding: Finding) -> Finding:
    """Smaller tiles."""
    return with_other_tiles(facts, finding, (0.5,), fills=True)


RULE = Rule(_ID, check_launch=check_launch, prove=prove)
