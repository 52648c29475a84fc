"""Text on a launch's bytes, operations and branches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from kanalyze.render import traffic_pointers
from kanalyze.render.traffic_rows import added
from kanalyze.results import traffic as doc
from kanalyze.text.numbers import decimal, engineering, human, percent, whole
from kanalyze.text.page import NBSP, Segment, plural

Line = tuple[str, Sequence[Segment]]
ShowUnknown = Callable[[str], Segment]
_UNITS = {"tensor": "tensor core", "sfu": "special functions"}
_LEVELS = {"l1": "L1", "l2": "L2", "hbm": "HBM (compulsory bytes)"}
_MOST_BRANCHES = 8


def lines(traffic: doc.Traffic, unknown: ShowUnknown) -> Iterator[Line]:
    """Labels and segments, one pair a line; ``unknown`` says why a field is not known."""
    yield from _bytes(traffic, unknown)
    yield from _by_space(traffic, unknown)
    yield from _operations(traffic, unknown)
    yield from _intensity(traffic, unknown)
    yield from _branches(traffic)


def _bytes(traffic: doc.Traffic, unknown: ShowUnknown) -> Iterator[Line]:
    compulsory = traffic.compulsory
    known = traffic_pointers.per_pointer(traffic)
    for index, pointer in enumerate(known):
        parts: list[str] = []
        for verb, size, asked, sharing in (
            ("read", pointer.read_bytes, pointer.read_asked, pointer.read_sharing),
            ("written", pointer.write_bytes, pointer.write_asked, pointer.write_sharing),
        ):
            if size is None:
                parts.append(f"{verb}: unknown ({pointer.reason or 'no reason'})")
            elif size:
                again = traffic_pointers.again(asked, size, sharing)
                each = f", {_sectors(sharing.sectors_per_block)}" if sharing is not None else ""
                parts.append(f"{human(size)} {verb}{each}{again}")
        text = "; ".join(parts) or "not touched"
        style = "warn" if "unknown" in text else ""
        yield "bytes" if index == 0 else "", [(pointer.name, "address"), (f": {text}", style)]
    if not known:
        yield "bytes", [("none of global memory", "dim")]
        return
    totals: list[Segment] = [("in all, each 32-byte sector once: ", "")]
    for verb, field in (("read", "read_bytes"), ("written", "write_bytes")):
        size = getattr(compulsory, field)
        totals.append((", " if verb == "written" else "", ""))
        if size is None:
            totals += [(f"{verb} ", ""), unknown(f"compulsory.{field}")]
        else:
            totals.append((f"{human(size)} {verb}", "title"))
    yield "", totals


def _sectors(found: doc.SectorsPerBlock) -> str:
    """Distinct sectors of a block."""
    if found.least == found.most:
        return f"{whole(found.most)} {'sector' if found.most == 1 else 'sectors'} a block"
    return f"{whole(found.least)} to {whole(found.most)} sectors a block"


def _by_space(traffic: doc.Traffic, unknown: ShowUnknown) -> Iterator[Line]:
    """What threads move, in one line."""
    segments: list[Segment] = []
    for space, kinds in traffic.bytes_by_space.items():
        if space == "spill" and set(kinds.values()) == {0}:
            continue
        segments += [("; " if segments else "", ""), (f"{space} ", "memory")]
        for index, (kind, size) in enumerate(kinds.items()):
            segments.append((f"{', ' if index else ''}{kind.replace('_', ' ')} ", ""))
            if size is None:
                segments.append(unknown(f"bytes_by_space.{space}.{kind}"))
            else:
                segments.append((f"{whole(size)}{NBSP}B", ""))
    if segments:
        yield "by threads", segments


def _operations(traffic: doc.Traffic, unknown: ShowUnknown) -> Iterator[Line]:
    if traffic.flops is None:
        yield "operations", [unknown("flops")]
    elif not traffic.flops:
        yield "operations", [("no floating-point operations", "dim")]
    else:
        units = [
            f"{whole(n)} {_UNITS.get(unit, unit)}" for unit, n in traffic.flops_by_unit.items()
        ]
        total = (f"{engineering(traffic.flops)}flop", "title")
        yield "operations", [total, (f": {', '.join(units)}", "")]


def _intensity(traffic: doc.Traffic, unknown: ShowUnknown) -> Iterator[Line]:
    """At each level; nothing where there is nothing to say."""
    if not traffic.flops:
        for level in _LEVELS if traffic.flops == 0 else ():
            unknown(f"intensity.{level}")  # of no interest
        return
    segments: list[Segment] = []
    for level, name in _LEVELS.items():
        value = traffic.intensity.get(level)
        segments.append((f"{', ' if segments else ''}{name} ", ""))
        if value is None:
            segments.append(unknown(f"intensity.{level}"))
        else:
            segments.append((f"{decimal(value)} flop/B", "title"))
    if traffic.arithmetic_intensity is None:
        unknown("arithmetic_intensity")
    yield "intensity", segments


def _branches(traffic: doc.Traffic) -> Iterator[Line]:
    """The branches that split warps, those of one source line together."""
    splitting = [b for b in traffic.branches if b.divergent_warps != 0]
    groups: dict[object, list[doc.BranchCounts]] = {}
    for branch in splitting:
        source = branch.source
        known = None not in (branch.divergent_warps, branch.executed_warps)
        key = (source.file, source.line) if source is not None and known else branch.line
        groups.setdefault(key, []).append(branch)
    shown = list(groups.values())[:_MOST_BRANCHES]
    for index, group in enumerate(shown):
        yield "branches" if index == 0 else "", [_place(group), _of_branches(group)]
    rest = len(splitting) - sum(len(group) for group in shown)
    if rest:
        yield "", [(f"{plural(rest, 'branch')} more: see --format json", "warn")]
    others = len(traffic.branches) - len(splitting)
    if others:
        verb = "splits" if others == 1 else "split"
        text = f"{plural(others, 'branch')} {verb} no warp"
        yield "" if splitting else "branches", [(text, "dim")]


def _place(group: Sequence[doc.BranchCounts]) -> Segment:
    source = group[0].source
    place = f"{source.file}:{source.line}, " if source is not None else ""
    lines = [branch.line for branch in group]
    where = f"PTX line {lines[0]}" if len(lines) == 1 else f"PTX lines {lines[0]}-{lines[-1]}"
    number = f"{plural(len(group), 'branch')}, " if len(group) > 1 else ""
    return (f"{number}{place}{where}: ", "file")


def _of_branches(group: Sequence[doc.BranchCounts]) -> Segment:
    split = added(branch.divergent_warps for branch in group)
    warps = added(branch.executed_warps for branch in group)
    if split is None or warps is None:
        return (f"how many warps take both sides is unknown ({group[0].reason})", "warn")
    share = f" ({percent(100 * split / warps)})" if warps else ""
    return (f"{whole(split)} of {whole(warps)} warp executions take both sides{share}", "warn")
