"""Text on a launch's bytes, operations and branches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from kanalyze.results import traffic as doc
from kanalyze.text.numbers import decimal, engineering, human, percent_of, plural, whole
from kanalyze.text.page import NBSP, Segment

Line = tuple[str, Sequence[Segment]]
ShowUnknown = Callable[[str], Segment]
_UNITS = {"tensor": "tensor core", "sfu": "special functions"}
_LEVELS = {"l1": "L1", "l2": "L2", "hbm": "HBM (compulsory bytes)"}
_MOST_BRANCHES = 8
_MOST_SHARES = 4
_ONCE = 1.005
"""Times up to which a sector is said to be asked for once."""


def lines(traffic: doc.Traffic, unknown: ShowUnknown) -> Iterator[Line]:
    """Labels and segments, one pair a line; ``unknown`` says why a field is not known."""
    yield from _bytes(traffic, unknown)
    yield from _by_space(traffic, unknown)
    yield from _operations(traffic, unknown)
    yield from _intensity(traffic, unknown)
    yield from _branches(traffic)


def _bytes(traffic: doc.Traffic, unknown: ShowUnknown) -> Iterator[Line]:
    compulsory = traffic.compulsory
    both = zip(compulsory.pointers, traffic.pointers, strict=True)
    for index, (pointer, requests) in enumerate(both):
        parts: list[str] = []
        for verb, size, times, sharing in (
            ("read", pointer.read_bytes, requests.read_times, pointer.read_sharing),
            ("written", pointer.write_bytes, requests.write_times, pointer.write_sharing),
        ):
            if size is None:
                parts.append(f"{verb}: unknown ({pointer.reason or 'no reason'})")
            elif size:
                each = f", {_sectors(sharing.sectors_per_block)}" if sharing is not None else ""
                parts.append(f"{human(size)} {verb}{each}{_again(times, sharing)}")
        text = "; ".join(parts) or "not touched"
        style = "warn" if "unknown" in text else ""
        yield "bytes" if index == 0 else "", [(pointer.pointer, "address"), (f": {text}", style)]
    if not compulsory.pointers:
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


def _sectors(sectors: doc.SectorsPerBlock) -> str:
    """Distinct sectors of a block."""
    if sectors.least == sectors.most:
        return f"{whole(sectors.most)} {'sector' if sectors.most == 1 else 'sectors'} a block"
    return f"{whole(sectors.least)} to {whole(sectors.most)} sectors a block"


def _again(times: float | None, sharing: doc.Sharing | None) -> str:
    """How often sectors are asked for, where that is more than once, and by how many blocks."""
    if times is None or times <= _ONCE:
        return ""
    text = f"each sector asked for {decimal(times)} times"
    if sharing is not None:
        text += f": {_by_blocks(sharing)}"
        if sharing.again_in_block_bytes and sharing.times_by_block is not None:
            text += f", {decimal(sharing.times_by_block)} times by one block"
    return f" ({text})"


def _by_blocks(sharing: doc.Sharing) -> str:
    """``by 1 block``, ``99 % by 1 block, 1 % by 2``, or the range where there are many."""
    shares = sharing.shares
    least, most = shares[0].least_blocks, shares[-1].most_blocks
    if least == most:
        return f"by {plural(most, 'block')}"
    if any(s.least_blocks < s.most_blocks for s in shares) or len(shares) > _MOST_SHARES:
        return f"by {whole(least)} to {plural(most, 'block')}"
    parts = [
        f"{percent_of(fraction)} by {whole(share.most_blocks)}"
        for share, fraction in zip(shares, sharing.fractions, strict=True)
    ]
    return ", ".join([f"{parts[0]}{NBSP}{'block' if least == 1 else 'blocks'}", *parts[1:]])


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
    rows = traffic.branch_rows
    for index, row in enumerate(rows[:_MOST_BRANCHES]):
        group = [traffic.branches[i] for i in row.branches]
        yield "branches" if index == 0 else "", [_place(group), _of_branches(row, group[0].reason)]
    rest = [i for row in rows[_MOST_BRANCHES:] for i in row.branches]
    if rest:
        yield "", [(f"{plural(len(rest), 'branch')} more: see --format json", "warn")]
    others = [b for b in traffic.branches if b.divergent_warps == 0]
    if others:
        verb = "splits" if len(others) == 1 else "split"
        text = f"{plural(len(others), 'branch')} {verb} no warp"
        yield "" if rows else "branches", [(text, "dim")]


def _place(group: Sequence[doc.BranchCounts]) -> Segment:
    source = group[0].source
    place = f"{source.file}:{source.line}, " if source is not None else ""
    lines = [branch.line for branch in group]
    where = f"PTX line {lines[0]}" if len(lines) == 1 else f"PTX lines {lines[0]}-{lines[-1]}"
    number = f"{plural(len(group), 'branch')}, " if len(group) > 1 else ""
    return (f"{number}{place}{where}: ", "file")


def _of_branches(row: doc.BranchRow, reason: str | None) -> Segment:
    split, warps = row.divergent_warps, row.executed_warps
    if split is None or warps is None:
        return (f"how many warps take both sides is unknown ({reason})", "warn")
    share = f" ({percent_of(row.divergent_share)})" if row.divergent_share is not None else ""
    return (f"{whole(split)} of {whole(warps)} warp executions take both sides{share}", "warn")
