"""Too few bytes are on their way from HBM to keep it busy.

What it says
------------
How many bytes are in flight on average, in all and for each SM, how many it takes to keep HBM busy,
and a setting with which more are.

Why it is slow
--------------
Little's law: bytes in flight = bandwidth x latency. With 4,800 bytes a ns and half a microsecond
2.4 MB have to be under way at any time, 18 KiB for each of 132 SMs. Fewer warps, one load at a
time, or narrow loads ask for less, and HBM idles in between.

How it is detected
------------------
Of the resources of the estimated launch HBM needs the most time, but less than 60 % of what the
launch takes; SMs without a block and the launch itself are not the reason. In flight are the bytes
read over the predicted time, times the latency of the model.

How it is proven
----------------
The kernel is compiled with twice and half as many warps, one and two stages more, and each tile
size halved and doubled, and its launch is simulated; where another tile size helps, it is doubled
up to three times more. It is a warning where that saves 5 % of the time; where nothing does,
nothing is said.

Example
-------
    for k in range(0, N, 128):                       # 1 warp: 512 bytes on their way
        total += tl.load(row + k + tl.arange(0, 128))

    for k in range(0, N, 2048):                      # 8 KiB
        total += tl.load(row + k + tl.arange(0, 2048))

Source
------
CUDA C++ Best Practices Guide, section "Memory Optimizations"; V. Volkov, "Better Performance at
Lower Occupancy" (GTC 2010); the latency is that of docs/memory.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from kanalyze.findings import bounds, trials
from kanalyze.findings.changes import Change, more_stages, other_warps, resized, settings
from kanalyze.findings.facts import NO_SOURCE, Facts
from kanalyze.findings.rule import Rule
from kanalyze.performance.cache_sim.parameters import NoParameterError, machine
from kanalyze.results.kernel import Finding, Proof
from kanalyze.results.traffic import Traffic
from kanalyze.text.numbers import decimal, human, whole

_ID = "low-bytes-in-flight"

_BUSY = 0.6  # share of the time from which HBM counts as busy
_LAUNCH = 0.3  # share of the time above which the launch itself is the reason
_STEPS = 4  # times that a tile size is doubled
_NO_RESOURCE = ("latency", "launch")


def check_launch(facts: Facts) -> Iterator[Finding]:
    """A launch for which HBM needs the most time, and which takes much longer."""
    traffic, device = facts.traffic, facts.device
    if traffic is None or device is None or not device.sms or not traffic.time.predicted_us:
        return
    times = traffic.time.bounds_us
    resources = {n: us for n, us in times.items() if n not in _NO_RESOURCE and us is not None}
    if not resources or max(resources, key=lambda n: resources[n]) != "hbm":
        return
    if bounds.share(traffic, "hbm") >= _BUSY or bounds.share(traffic, "launch") > _LAUNCH:
        return
    if bounds.leaves_sms_idle(facts):
        return
    try:
        chip = machine(device)
        wait, rate = chip["l2_latency"] + chip["hbm_latency"], chip["hbm_rate"]
    except NoParameterError:
        return
    flying, needed = _in_flight(traffic, wait), rate * wait
    line, source = facts.place
    yield Finding(
        _ID,
        "info",
        line,
        f"memory-bound, but HBM is busy for {decimal(100 * bounds.share(traffic, 'hbm'))} % "
        f"of the time: {human(round(flying))} are in flight on average, "
        f"{decimal(flying / device.sms / 1024)} KiB an SM; {decimal(needed / device.sms / 1024)} "
        f"KiB an SM are needed at {whole(wait)} ns of latency",
        "more loads under way in each thread (unroll, num_stages), larger blocks, or more warps",
        source,
        {"in_flight_bytes": round(flying), "needed_bytes": round(needed),
         "in_flight_bytes_per_sm": round(flying / device.sms),
         "needed_bytes_per_sm": round(needed / device.sms), "latency_ns": wait},
    )  # fmt: skip


def _in_flight(traffic: Traffic | None, wait_ns: float) -> float:
    """Bytes on their way from HBM, on average: Little's law."""
    assert traffic is not None
    read = traffic.counters.get("dram_read_bytes") or 0
    return read / ((traffic.time.predicted_us or 0.0) * 1000) * wait_ns


def _changes(facts: Facts) -> Iterator[Change]:
    yield from resized(facts)
    yield from other_warps(facts)
    yield from more_stages(facts)


def _further(start: Facts, change: Change, facts: Facts) -> Iterator[Change]:
    """The same change once more: where doubling helped, twice as much."""
    given = change.changes["settings"]
    now = facts.compiled.constexprs if facts.compiled is not None else {}
    if facts is start or not change.of_tiles:
        yield change
        return
    for name, value in given.items():
        before = start.compiled.constexprs[name] if start.compiled is not None else value
        other = now[name] * value // before
        yield settings(**{name: other})


def prove(facts: Facts, finding: Finding) -> Finding | None:
    """Other numbers of warps and stages, other tiles."""
    if facts.compiled is None:
        return replace(finding, unproven=NO_SOURCE)
    first = trials.climb(facts, _changes, 1)
    if first is None:
        return None  # nothing that can be chosen makes it better
    best = trials.climb(facts, partial(_further, facts, first.change), _STEPS) or first
    gained = trials.gain(facts, best)
    wait = float(finding.numbers["latency_ns"] or 0.0)
    before, after = (
        {"in_flight_bytes": round(_in_flight(traffic, wait)), "time_us": time_us or 0.0}
        for traffic, time_us in (
            (facts.traffic, trials.predicted_us(facts)),
            (best.traffic, best.time_us),
        )
    )
    return replace(
        finding,
        severity="warning",
        advice=f"{best.words}: {100 * gained:.0f} % less time by the estimate",
        proof=Proof("simulated", best.words, before, after),
        saves={"time_us": round(before["time_us"] - after["time_us"], 3)},
    )


RULE = Rule(_ID, check_launch=check_launch, prove=prove)
