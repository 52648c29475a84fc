"""Text on what a launch moves through caches and HBM, and how long it takes: estimates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from kanalyze.results import traffic as doc
from kanalyze.text.numbers import (
    bound_name,
    decimal,
    engineering,
    giga,
    percent_of,
    tera,
    unit_name,
)
from kanalyze.text.page import NBSP, Segment

Line = tuple[str, Sequence[Segment]]
ShowUnknown = Callable[[str], Segment]
NAMES = ("l1_miss_sectors", "l2_read_sectors", "l2_write_sectors", "dram_read_bytes",
         "dram_write_bytes")  # fmt: skip
_WAYS = {"hbm": "from HBM", "l2": "through L2", "l1": "through L1"}
_SHOWN = 6


def lines(traffic: doc.Traffic, unknown: ShowUnknown) -> Iterator[Line]:
    """Labels and segments, one pair a line; ``unknown`` says why a field is not known."""
    yield from _caches(traffic, unknown)
    yield from _time(traffic, unknown)
    yield from _at_time(traffic)


def _caches(traffic: doc.Traffic, unknown: ShowUnknown) -> Iterator[Line]:
    counters = traffic.counters
    if all(counters.get(name) is None for name in NAMES):
        first = unknown(f"counters.{NAMES[0]}")
        for name in NAMES[1:]:
            unknown(f"counters.{name}")
        yield "estimates", [first]
        return
    yield (
        "caches",
        [
            ("L2 to SMs ", "memory"),
            (_sectors(traffic, "l1_miss_sectors"), "title"),
            (f"; asked of L2 {_sectors(traffic, 'l2_read_sectors')}, written to it ", ""),
            (_sectors(traffic, "l2_write_sectors"), ""),
        ],
    )
    read: list[Segment] = [("HBM ", "memory")]
    for verb, name, what in (
        ("read", "dram_read_bytes", "read"),
        ("written", "dram_write_bytes", "write"),
    ):
        value = counters[name]
        if value is None:
            read += [
                (f", {verb} " if len(read) > 1 else f"{verb} ", ""),
                unknown(f"counters.{name}"),
            ]
            continue
        over = traffic.dram_over_compulsory[what]
        times = "" if over is None else f" ({decimal(over)} x the distinct bytes)"
        read.append((", " if len(read) > 1 else "", ""))
        read.append((f"{_bytes(value)} {verb}", "title"))
        read.append((f"{_range(traffic, name)}{times}", ""))
    yield "", read


def _sectors(traffic: doc.Traffic, name: str) -> str:
    value = traffic.counters[name]
    if value is None:
        return "unknown"
    return f"{_many(value)} sectors{_range(traffic, name)}"


def _many(value: float) -> str:
    return engineering(value).strip(NBSP)


def _bytes(value: float) -> str:
    return f"{engineering(value)}B"


def _range(traffic: doc.Traffic, name: str) -> str:
    bounds = traffic.interval.get(name)
    if not bounds:
        return ""
    shown = _bytes if name.endswith("_bytes") else _many
    return f", between {shown(bounds[0])} and {shown(bounds[-1])}"


def _time(traffic: doc.Traffic, unknown: ShowUnknown) -> Iterator[Line]:
    time = traffic.time
    if time.predicted_us is None:
        yield "time", [unknown("time.predicted_us")]
        unknown("roofline")
        return
    bounds = {name: value for name, value in time.bounds_us.items() if value is not None}
    spread = ""
    if time.interval_us:
        low, high = time.interval_us[0], time.interval_us[-1]
        spread = f" (between {decimal(low)} and {decimal(high)})"
    why: list[Segment] = [(", bound by ", ""), (bound_name(time.bound_by), "warn")]
    if time.next_bound is not None and time.next_share is not None:
        share = percent_of(time.next_share)
        why.append((f"; next {bound_name(time.next_bound)}, {share} of it", ""))
    yield "time", [(f"{decimal(time.predicted_us)}{NBSP}µs", "title"), (spread, ""), *why]
    ranked = sorted(bounds.items(), key=lambda pair: -pair[1])[:_SHOWN]
    shown = ", ".join(f"{bound_name(name)} {decimal(value)}" for name, value in ranked)
    yield "", [(f"at least, µs: {shown}", "")]
    yield from _achieved(traffic)
    yield from _roofline(traffic, unknown)


def _at_time(traffic: doc.Traffic) -> Iterator[Line]:
    """What the launch reaches at a measured time."""
    measured = traffic.at_time
    if measured is None:
        return
    first: list[Segment] = [(f"{measured.time_us:.6g}{NBSP}µs: ", "title")]
    if measured.distinct_gb_per_s is None:
        first.append(("the distinct bytes are not known", "warn"))
    else:
        first.append((f"{measured.distinct_gb_per_s:,.1f} GB/s", "title"))
        first.append((f" of the {measured.distinct_bytes:,} distinct bytes", ""))
    if measured.hbm_peak_share is not None:
        peak = f"{measured.hbm_peak_gb_per_s:,.6g}"
        first.append((f", {percent_of(measured.hbm_peak_share)} of HBM's {peak} GB/s", ""))
        if measured.hbm_peak_share > 1:
            more = " (more than HBM can: caches held a part, or the time is of another launch)"
            first.append((more, "warn"))
    yield "measured", first
    rest = []
    if measured.requested_gb_per_s is not None:
        rest.append(f"sectors that requests ask for {measured.requested_gb_per_s:,.1f} GB/s")
    if measured.hbm_gb_per_s is not None:
        rest.append(f"HBM, estimated bytes, {measured.hbm_gb_per_s:,.1f} GB/s")
    if measured.tflops:
        rest.append(f"{tera(measured.tflops)}flop/s")
    if measured.predicted_ratio is not None:
        rest.append(f"{decimal(measured.predicted_ratio)} x the predicted time")
    if rest:
        yield "", [("; ".join(rest), "")]


def _achieved(traffic: doc.Traffic) -> Iterator[Line]:
    achieved = traffic.time.achieved
    parts = []
    if achieved.get("tflops"):
        text = f"{tera(achieved['tflops'])}flop/s"
        for key, peak in (("tensor_peak_share", "tensor cores"), ("fp32_peak_share", "FP32")):
            if key in achieved:
                text += f" = {percent_of(achieved[key])} of the peak of the {peak}"
        parts.append(text)
    if "hbm_gb_per_s" in achieved:
        text = f"HBM {giga(achieved['hbm_gb_per_s'])}B/s"
        if "hbm_peak_share" in achieved:
            text += f" = {percent_of(achieved['hbm_peak_share'])} of its peak"
        parts.append(text)
    if parts:
        yield "", [(f"reached: {'; '.join(parts)}", "")]


def _roofline(traffic: doc.Traffic, unknown: ShowUnknown) -> Iterator[Line]:
    """The lowest roof, and where the launch stands to the ridge of HBM."""
    roofline = traffic.roofline
    if roofline is None:
        reason = unknown("roofline")
        if traffic.time.predicted_us is not None and traffic.flops:
            yield "roofline", [reason]
        return
    unit = unit_name(roofline.unit)
    shown = roofline.bound if roofline.bound in roofline.levels else "hbm"
    level = roofline.levels.get(shown)
    words: list[Segment] = []
    if level is not None and level.intensity is not None:
        below = level.intensity < level.ridge
        kind = "memory-bound" if roofline.bound in roofline.levels else "compute-bound"
        place = "below" if below else "above"
        words = [
            (f"{kind}: ", "warn" if below else ""),
            (f"{decimal(level.intensity)} flop/B {_WAYS[shown]}, {place} the ridge ", ""),
            (f"of {unit} at {decimal(level.ridge)}; ", ""),
        ]
    share = "?" if roofline.roof_share is None else percent_of(roofline.roof_share)
    words.append((f"{share} of the roof of {tera(roofline.roof_tflops)}flop/s", ""))
    yield "roofline", words
