"""Reader of Nsight Compute's CSV: the raw page (a launch a row) and the details page (a metric a
row), among lines of ncu itself and of the profiled program."""

from __future__ import annotations

import math
import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field

from kanalyze.profiles.readers.event import Dims, Event, ProfiledDevice, dims
from kanalyze.profiles.readers.lines import DumpLines, cells_of, delimiter_of
from kanalyze.profiles.readers.numbers import (
    NumberForm,
    base_unit,
    form_of,
    is_time,
    whole,
    wrong_time,
)

_SAMPLE = 40
_WORDS = frozenset(
    ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Kernel Time", "Context",
     "Stream", "Block Size", "Grid Size", "Device", "CC", "Section Name", "Metric Name",
     "Metric Unit", "Metric Value", "Rule Name", "Rule Type", "Rule Description",
     "Estimated Speedup Type", "Estimated Speedup")
)  # fmt: skip
_LEFT_OUT = ("device__attribute_", "nvlink__", "numa__", "profiler__")
_TIMES = ("gpu__time_duration.sum", "Duration", "gpu__time_duration.avg")
_NO_NUMBER = re.compile(r"[-+]?(?:nan|inf(?:inity)?)", re.IGNORECASE)
_MOST = 1e30
"""The largest value of a metric that is believed."""
_REGISTERS = ("launch__registers_per_thread", "Registers Per Thread")
_SHARED = (
    ("launch__shared_mem_per_block_static", "launch__shared_mem_per_block_dynamic"),
    ("Static Shared Memory Per Block", "Dynamic Shared Memory Per Block"),
)


def opens(line: str) -> bool:
    """Whether a line is the header of such a table."""
    return line.lstrip(' "').startswith("ID") and "Kernel Name" in line and "Process ID" in line


@dataclass
class NcuLaunch:
    """A launch while its metrics are collected (values in ncu's base units)."""

    name: str
    grid: Dims | None = None
    block: Dims | None = None
    stream: int | None = None
    device: int | None = None
    capability: tuple[int, int] | None = None
    device_name: str | None = None
    multiprocessors: int | None = None
    counters: dict[str, float] = field(default_factory=dict)

    wrong: str = ""
    line: int = 0

    def count(self, name: str, text: str, unit: str, form: NumberForm) -> None:
        """Take a metric's value, if it is a number and the metric's first one."""
        number = form.number(text)
        if number is None:
            if name not in _TIMES or _NO_NUMBER.fullmatch(text.strip()) is None:
                return
            number = math.nan
        value = base_unit(number, unit)
        if name in _TIMES and not is_time(value / 1e3):
            self.wrong = self.wrong or wrong_time(self.name, value / 1e3)
        elif not abs(value) <= _MOST:
            self.wrong = self.wrong or (
                f"left out '{self.name[:40]}': found {value:g} as its '{name[:40]}', "
                f"expected at most {_MOST:g}"
            )
        else:
            self.counters.setdefault(name, value)

    def events(self, file: str, lines: DumpLines) -> Iterator[Event]:
        """The launch as an event; none, and a note, where a number of it cannot be."""
        if self.wrong:
            lines.trouble(self.wrong, self.line)
            return
        counters = self.counters
        time = next((counters[n] for n in _TIMES if n in counters), None)
        registers = next((counters[n] for n in _REGISTERS if n in counters), None)
        shared = next(
            (counters[a] + counters[b] for a, b in _SHARED if a in counters and b in counters), None
        )
        sms = self.multiprocessors
        if sms is None and "launch__sm_count" in counters:
            sms = int(counters["launch__sm_count"])
        device = None
        if (self.device, self.capability, self.device_name) != (None, None, None):
            device = ProfiledDevice(self.device, self.device_name, self.capability, sms)
        yield Event(
            self.name,
            "kernel",
            1,
            None if time is None else time / 1e3,
            None,
            self.grid,
            self.block,
            None if registers is None else int(registers),
            None if shared is None else int(shared),
            self.stream,
            device,
            None,
            counters,
            file,
        )


def capability_of(text: str) -> tuple[int, int] | None:
    """A compute capability: "9.0", in some countries "9,0"."""
    match = re.fullmatch(r"(\d+)[.,](\d)", text.strip())
    major = whole(match[1]) if match else None
    return (major, int(match[2])) if match and major is not None else None


def sizes_of(text: str) -> Dims | None:
    """A grid or block: "(1056, 1, 1)"; groups of digits are not separated by blanks there."""
    return dims([whole(re.sub(r"\D", "", t)) for t in re.findall(r"\d[\d.'’]*(?:,\d{3})*", text)])


def read(lines: DumpLines, header: str, file: str) -> Iterator[Event]:
    """The launches of the tables from a header on, to the end of the text."""
    while True:
        delimiter = delimiter_of(header)
        names = cells_of(header, delimiter)
        needed = names.index("Metric Value") + 1 if "Metric Value" in names else len(names)
        rows = _rows(lines, delimiter, len(names), needed)
        following = yield from (
            _details(rows, names, file, delimiter, lines)
            if "Metric Name" in names
            else _raw(rows, names, file, delimiter, lines)
        )
        if following is None:
            return
        header = following


class Cells(list[str]):
    """The cells of a row, and the number of its line."""

    line = 0


_Row = Cells | str
"""The cells of a row, or the header of a further table."""


def _rows(lines: DumpLines, delimiter: str, width: int, needed: int) -> Iterator[_Row]:
    for line in lines:
        if opens(line):
            yield line
            return
        if not line.startswith('"') and delimiter not in line:
            continue
        cells = cells_of(line, delimiter, lines)
        if needed <= len(cells) < width:  # older versions leave out the columns of rules
            cells += [""] * (width - len(cells))
        if len(cells) == width and (cells[0].isdigit() or not cells[0]):
            row = Cells(cells)
            row.line = lines.number
            yield row
        elif len(cells) > 2 and re.match(r'"?\d+"?[,;\t]"?\d+"?[,;\t]"', line):
            lines.trouble(f"found {len(cells)} cells, expected the {width} columns of the table")


def _sampled(rows: Iterator[_Row]) -> tuple[list[Cells], str | None]:
    first: list[Cells] = []
    for row in rows:
        if isinstance(row, str):
            return first, row
        first.append(row)
        if len(first) == _SAMPLE:
            break
    return first, None


def _launch(cells: Cells, place: dict[str, int]) -> NcuLaunch:
    def text(column: str) -> str:
        return cells[place[column]] if column in place else ""

    def integer(column: str) -> int | None:
        return NumberForm().integer(text(column))

    return NcuLaunch(
        text("Kernel Name"),
        sizes_of(text("Grid Size")),
        sizes_of(text("Block Size")),
        integer("Stream"),
        integer("Device"),
        capability_of(text("CC")),
        line=cells.line,
    )


def _raw(
    rows: Iterator[_Row], names: list[str], file: str, delimiter: str, lines: DumpLines
) -> Generator[Event, None, str | None]:
    place = {n: i for i, n in reversed(list(enumerate(names)))}
    first, following = _sampled(rows)
    units: list[str] = [""] * len(names)
    if first and not first[0][0]:
        units = first.pop(0)
    metrics = [(i, n) for i, n in enumerate(names) if n not in _WORDS]
    integers = [
        i for i, n in metrics
        if n.startswith(("launch__registers", "device__", "launch__grid", "launch__thread"))
    ]  # fmt: skip
    form = form_of(
        (row[i] for row in first for i, _ in metrics),
        (row[i] for row in first for i in integers),
        delimiter == ";",
    )
    kept = [(i, n) for i, n in metrics if not n.startswith(_LEFT_OUT)]
    named = place.get("device__attribute_display_name")
    sms = place.get("device__attribute_multiprocessor_count")

    def events(row: Cells) -> Iterator[Event]:
        launch = _launch(row, place)
        for i, name in kept:
            launch.count(name, row[i], units[i], form)
        launch.device_name = row[named] or None if named is not None else None
        launch.multiprocessors = form.integer(row[sms]) if sms is not None else None
        yield from launch.events(file, lines)

    for row in first:
        yield from events(row)
    if following is not None:
        return following
    for further in rows:
        if isinstance(further, str):
            return further
        yield from events(further)
    return None


def _details(
    rows: Iterator[_Row], names: list[str], file: str, delimiter: str, lines: DumpLines
) -> Generator[Event, None, str | None]:
    place = {n: i for i, n in reversed(list(enumerate(names)))}
    first, following = _sampled(rows)
    value, unit, metric = (
        place.get(c, len(names)) for c in ("Metric Value", "Metric Unit", "Metric Name")
    )
    if max(value, unit, metric) >= len(names):
        return following
    counts = ("cycle", "inst", "block", "warp", "thread", "register/thread")
    form = form_of(
        (row[value] for row in first),
        (row[value] for row in first if row[unit] in counts and "." not in row[metric]),
        delimiter == ";",
    )
    current: NcuLaunch | None = None
    identity: tuple[str, ...] = ()

    def chained() -> Iterator[_Row]:
        yield from first
        if following is not None:
            yield following
        else:
            yield from rows

    for row in chained():
        if isinstance(row, str):
            if current is not None:
                yield from current.events(file, lines)
            return row
        this = tuple(
            row[place[c]] for c in ("ID", "Process ID", "Host Name", "Kernel Name") if c in place
        )
        if this != identity:
            if current is not None:
                yield from current.events(file, lines)
            current, identity = _launch(row, place), this
        assert current is not None
        if row[metric]:
            current.count(row[metric], row[value], row[unit], form)
    if current is not None:
        yield from current.events(file, lines)
    return None
