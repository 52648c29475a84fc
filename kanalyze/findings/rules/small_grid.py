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
Launches of as many blocks as SMs (persistent kernels) are not meant.

How it is proven
----------------
The kernel is compiled with each tile size halved, then another one beside the best, and its launch
is simulated; the fastest is shown where it saves 5 % of the time, and only then it is a warning.

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
from kanalyze.findings.other_tiles import with_other_tiles
from kanalyze.report.document import Finding
from kanalyze.report.traffic_rows import decimal, plural, whole


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
    line, source = facts.place
    yield Finding(
        "small-grid",
        "info",
        line,
        f"the grid is too small to fill the GPU: {plural(blocks, 'block')} on {whole(sms)} SMs, "
        f"{decimal(100 * idle)} % of them idle{beside}",
        "smaller tiles, a further split of the work (split-K, a second pass that adds up), a "
        "larger batch, or other work beside it on a second stream",
        source,
        {"blocks": blocks, "sms": sms, "idle_share": idle,
         "blocks_per_wave": traffic.waves.blocks_per_wave},
    )  # fmt: skip


def prove(facts: Facts, finding: Finding) -> Finding:
    """Smaller tiles."""
    return with_other_tiles(facts, finding, (0.5,), fills=True)
