"""Text on what a launch moves through caches and HBM, and how long it takes: estimates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from kanalyze.results import traffic as doc
from kanalyze.text.numbers import bound_name, decimal, engineering, percent, unit_name
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
    least = traffic.compulsory
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
    for verb, name, size in (
        ("read", "dram_read_bytes", least.read_bytes),
        ("written", "dram_write_bytes", least.write_bytes),
    ):
        value = counters[name]
        if value is None:
            read += [
                (f", {verb} " if len(read) > 1 else f"{verb} ", ""),
                unknown(f"counters.{name}"),
            ]
            continue
        times = ""
        if size:
            times = f" ({decimal(value / size)} x the distinct bytes)"
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
    return f", between {shown(min(bounds))} and {shown(max(bounds))}"


def _time(traffic: doc.Traffic, unknown: ShowUnknown) -> Iterator[Line]:
    time = traffic.time
    if time.predicted_us is None:
        yield "time", [unknown("time.predicted_us")]
        unknown("roofline")
        return
    bounds = {name: value for name, value in time.bounds_us.items() if value is not None}
    spread = ""
    if time.interval_us:
        low, high = min(time.interval_us), max(time.interval_us)
        spread = f" (between {decimal(low)} and {decimal(high)})"
    why: list[Segment] = [(", bound by ", ""), (bound_name(time.bound_by), "warn")]
    if time.next_bound is not None and time.next_share is not None:
        share = percent(100 * time.next_share)
        why.append((f"; next {bound_name(time.next_bound)}, {share} of it", ""))
    yield "time", [(f"{decimal(time.predicted_us)}{NBSP}µs", "title"), (spread, ""), *why]
    ranked = sorted(bounds.items(), key=lambda pair: -pair[1])[:_SHOWN]
    shown = ", ".join(f"{bound_name(name)} {decimal(value)}" for name, value in ranked)
    yield "", [(f"at least, µs: {shown}", "")]
    yield from _achieved(traffic)
    yield from _roofline(traffic, unknown)


def _at_time(traffic: doc.Traffic) -> Iterator[Line]:
    """What the launch reaches at a measured time."""
    found = traffic.at_time
    if found is None:
        return
    first: list[Segment] = [(f"{found.time_us:.6g}{NBSP}µs: ", "title")]
    if found.distinct_gb_per_s is None:
        first.append(("the distinct bytes are not known", "warn"))
    else:
        first.append((f"{found.distinct_gb_per_s:,.1f} GB/s", "title"))
        first.append((f" of the {found.distinct_bytes:,} distinct bytes", ""))
    if found.hbm_peak_share is not None:
        peak = f"{found.hbm_peak_gb_per_s:,.6g}"
        first.append((f", {percent(100 * found.hbm_peak_share)} of HBM's {peak} GB/s", ""))
        if found.hbm_peak_share > 1:
            more = " (more than HBM can: caches held a part, or the time is of another launch)"
            first.append((more, "warn"))
    yield "measured", first
    rest = []
    if found.requested_gb_per_s is not None:
        rest.append(f"sectors that requests ask for {found.requested_gb_per_s:,.1f} GB/s")
    if found.hbm_gb_per_s is not None:
        rest.append(f"HBM, estimated bytes, {found.hbm_gb_per_s:,.1f} GB/s")
    if found.tflops:
        rest.append(f"{engineering(found.tflops * 1e12)}flop/s")
    if found.predicted_ratio is not None:
        rest.append(f"{decimal(found.predicted_ratio)} x the predicted time")
    if rest:
        yield "", [("; ".join(rest), "")]


def _achieved(traffic: doc.Traffic) -> Iterator[Line]:
    found = traffic.time.achieved
    parts = []
    if found.get("tflops"):
        text = f"{engineering(found['tflops'] * 1e12)}flop/s"
        for key, peak in (("tensor_peak_share", "tensor cores"), ("fp32_peak_share", "FP32")):
            if key in found:
                text += f" = {percent(100 * found[key])} of the peak of the {peak}"
        parts.append(text)
    if "hbm_gb_per_s" in found:
        text = f"HBM {engineering(found['hbm_gb_per_s'] * 1e9)}B/s"
        if "hbm_peak_share" in found:
            text += f" = {percent(100 * found['hbm_peak_share'])} of its peak"
        parts.append(text)
    if parts:
        yield "", [(f"reached: {'; '.join(parts)}", "")]


def _roofline(traffic: doc.Traffic, unknown: ShowUnknown) -> Iterator[Line]:
    """The lowest roof, and where the launch stands to the ridge of HBM."""
    found = traffic.roofline
    if found is None:
        reason = unknown("roofline")
        if traffic.time.predicted_us is not None and traffic.flops:
            yield "roofline", [reason]
        return
    unit = unit_name(found.unit)
    shown = found.bound if found.bound in found.levels else "hbm"
    level = found.levels.get(shown)
    words: list[Segment] = []
    if level is not None and level.intensity is not None:
        below = level.intensity < level.ridge
        kind = "memory-bound" if found.bound in found.levels else "compute-bound"
        place = "below" if below else "above"
        words = [
            (f"{kind}: ", "warn" if below else ""),
            (f"{decimal(level.intensity)} flop/B {_WAYS[shown]}, {place} the ridge ", ""),
            (f"of {unit} at {decimal(level.ridge)}; ", ""),
        ]
    share = percent(100 * found.achieved_tflops / found.roof_tflops)
    words.append((f"{share} of the roof of {engineering(found.roof_tflops * 1e12)}flop/s", ""))
    yield "roofline", words
