"""The last wave of blocks is mostly empty.

What it says
------------
In a launch: how many blocks the GPU holds at a time (a wave), how empty the last wave is, what part
of the launch that is, and how many blocks would fill every wave. In a profile: which part of the
time SMs had no block.

Why it is slow
--------------
An SM holds a fixed number of blocks. Where a launch has a few blocks more than the GPU holds, these
few run alone in a wave of their own while the other SMs wait: 133 blocks on 132 SMs take as long as
264. The fewer waves, the more it costs.

How it is detected
------------------
Waves are blocks over the blocks that fit at a time (see `kanalyze waves`). In a launch it is said
where empty places are 10 % of all places, and the SM with most blocks has 10 % more than the mean,
unless HBM or L2 are busy for 80 % of the time or the launch itself takes half of it: then empty
places cost nothing. In a profile it takes 5 % of the time, at one block an SM.

How it is proven
----------------
The kernel is compiled with each tile size halved and doubled, then another one beside the best, and
its launch is simulated; the fastest is shown where it saves 5 % of the time, and only then it is a
warning.

Example
-------
    1792 x 1792 in tiles of 256 x 128:  98 tiles on 108 SMs, 1 wave, 90.7 % of it used
    1793 x 1792 in tiles of 256 x 128: 112 tiles on 108 SMs, 2 waves, 51.9 % of them used

Source
------
NVIDIA, Matrix Multiplication Background User's Guide, section "Wave Quantization".
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from kanalyze.findings import bounds
from kanalyze.findings.facts import Facts
from kanalyze.findings.rule import Rule
from kanalyze.findings.tile_sizes import with_other_tiles
from kanalyze.results.kernel import Finding
from kanalyze.text.numbers import decimal, whole

_ID = "wave-quantisation"

_IDLE = 0.1  # of all places of a launch: less is within what blocks differ in length
_BUSY = 0.8  # share of the time from which a resource that all SMs share is the reason


def check_launch(facts: Facts) -> Iterator[Finding]:
    """A launch of several waves, the last of them mostly empty."""
    traffic = facts.traffic
    waves = traffic.waves if traffic is not None else None
    if traffic is None or waves is None or not waves.blocks:
        return
    rounds = math.ceil(waves.blocks / waves.blocks_per_wave)
    lost = min(waves.idle_share / rounds, _beyond_the_mean(waves.blocks, facts))
    if rounds < 2 or lost < _IDLE or bounds.shared_by_all(traffic) >= _BUSY:
        return
    if bounds.share(traffic, "launch") >= bounds.LAUNCH:
        return
    fewer, more = waves.blocks - waves.last_wave_blocks, rounds * waves.blocks_per_wave
    line, source = facts.place
    yield Finding(
        _ID,
        "info",
        line,
        f"the last of {rounds} waves is {decimal(100 * waves.idle_share)} % idle, which costs up "
        f"to {decimal(100 * lost)} % of the launch ({whole(waves.blocks)} blocks, "
        f"{whole(waves.blocks_per_wave)} at a time)",
        f"{whole(fewer)} or {whole(more)} blocks would fill every wave: another tile size, a grid "
        "of as many blocks as fit that share the tiles out, or split-K",
        source,
        {"blocks": waves.blocks, "blocks_per_wave": waves.blocks_per_wave, "waves": waves.waves,
         "idle_share": waves.idle_share, "lost_share": lost, "fewer_blocks": fewer,
         "more_blocks": more},
    )  # fmt: skip


def _beyond_the_mean(blocks: int, facts: Facts) -> float:
    """The share of the SMs' time that passes while the SM with most blocks has more than others."""
    sms = facts.device.sms if facts.device is not None else None
    return 1 - blocks / (sms * math.ceil(blocks / sms)) if sms else 1.0


def prove(facts: Facts, finding: Finding) -> Finding:
    """Other tile sizes."""
    return with_other_tiles(facts, finding)


RULE = Rule(_ID, check_launch=check_launch, prove=prove)
