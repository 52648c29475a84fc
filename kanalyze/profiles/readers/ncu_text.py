"""Reader of Nsight Compute's text output: a headline for each launch, then tables of metrics."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kanalyze.profiles.readers.event import Event
from kanalyze.profiles.readers.lines import DumpLines, is_rule, sliced, spans_of
from kanalyze.profiles.readers.ncu_csv import NcuLaunch, capability_of, sizes_of
from kanalyze.profiles.readers.numbers import NumberForm, form_of

_SIZES = r"\(\d[^()]*\)"
_HEADLINE = re.compile(
    rf"^\s*(?P<name>\S.*?) (?P<grid>{_SIZES})x(?P<block>{_SIZES}), Context \d+, "
    r"Stream (?P<stream>\d+)(?:, Device (?P<device>\d+))?(?:, CC (?P<cc>\d+[.,]\d))?\s*$"
)
_OLD_HEADLINE = re.compile(
    r"^\s{1,4}(?P<name>\S.*), \d{4}-\w{3}-\d{2} \d\d:\d\d:\d\d, "
    r"Context \d+, Stream (?P<stream>\d+)\s*$"
)
_EVIDENCE = 400


def opens(line: str) -> bool:
    """Whether a line is the headline of a launch."""
    return ", Context " in line and _match(line) is not None


def _match(line: str) -> re.Match[str] | None:
    if ", Context " not in line[-200:]:
        return None
    return _HEADLINE.match(line) or _OLD_HEADLINE.match(line)


def read(lines: DumpLines, headline: str, file: str) -> Iterator[Event]:
    """The launches from a headline on, to the end of the text."""
    evidence: list[str] = []
    current: str | None = headline
    while current is not None:
        launch = _launch(current)
        launch.line = lines.number
        rows: list[list[str]] = []
        current = None
        for line in lines:
            if _match(line) is not None:
                current = line
                break
            following = lines.peek()
            if is_rule(line) and following is not None and "Metric Name" in following:
                rows += _metrics(lines, spans_of(line))
        evidence = (evidence + [row[2] for row in rows])[-_EVIDENCE:]
        form = form_of(evidence)
        for name, unit, value in rows:
            launch.count(name, value, unit, form)
        if launch.grid is None and "Grid Size" in launch.counters:
            launch.grid = (int(launch.counters["Grid Size"]), 1, 1)
        if launch.block is None and "Block Size" in launch.counters:
            launch.block = (int(launch.counters["Block Size"]), 1, 1)
        yield from launch.events(file, lines)


def _launch(line: str) -> NcuLaunch:
    match = _match(line)
    assert match is not None
    part = match.groupdict()
    whole = NumberForm().integer
    return NcuLaunch(
        part["name"],
        sizes_of(part["grid"]) if part.get("grid") else None,
        sizes_of(part["block"]) if part.get("block") else None,
        whole(part["stream"]),
        whole(part["device"]) if part.get("device") else None,
        capability_of(part["cc"]) if part.get("cc") else None,
    )


def _metrics(lines: DumpLines, spans: list[tuple[int, int]]) -> list[list[str]]:
    """The rows of a table of metrics: name, unit, value."""
    if len(spans) != 3:
        return []
    rows: list[list[str]] = []
    rules = 0
    for line in lines:
        if is_rule(line):
            rules += 1
            if rules == 2:
                break
        elif rules and line.strip():
            if _match(line) is not None:
                lines.back(line)
                break
            cells = sliced(line, spans)
            if len(cells) == 3 and cells[0]:
                rows.append(cells)
    return rows
