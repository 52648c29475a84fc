"""Reader of Nsight Compute's CSV: the raw page (a launch a row) and the details page (a metric a
row), among lines of ncu itself and of the profiled program."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field

from kanalyze.dumps.event import Device, Dims, Event, dims
from kanalyze.dumps.lines import Lines, cells_of, delimiter_of
from kanalyze.dumps.numbers import NumberForm, base_unit, form_of

_SAMPLE = 40
_WORDS = frozenset(
    ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Kernel Time", "Context",
     "Stream", "Block Size", "Grid Size", "Device", "CC", "Section Name", "Metric Name",
     "Metric Unit", "Metric Value", "Rule Name", "Rule Type", "Rule Description",
     "Estimated Speedup Type", "Estimated Speedup")
)  # fmt: skip
_LEFT_OUT = ("device__attribute_", "nvlink__", "numa__", "profiler__")
_TIMES = ("gpu__time_duration.sum", "Duration", "gpu__time_duration.avg")
_REGISTERS = ("launch__registers_per_thread", "Registers Per Thread")
_SHARED = (
    ("launch__shared_mem_per_block_static", "launch__shared_mem_per_block_dynamic"),
    ("Static Shared Memory Per Block", "Dynamic Shared Memory Per Block"),
)


def opens(line: str) -> bool:
    """Whether a line is the header of such a table."""
    return line.lstrip(' "').startswith("ID") and "Kernel Name" in line and "Process ID" in line


@dataclass
class Launch:
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

    def event(self, file: str) -> Event:
        """The launch as an event."""
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
            device = Device(self.device, self.device_name, self.capability, sms)
        return Event(
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
    found = re.fullmatch(r"(\d+)[.,](\d)", text.strip())
    return (int(found[1]), int(found[2])) if found else None


def sizes_of(text: str) -> Dims | None:
    """A grid or block: "(1056, 1, 1)"; groups of digits are not separated by blanks there."""
    return dims([int(re.sub(r"\D", "", t)) for t in re.findall(r"\d[\d.'’]*(?:,\d{3})*", text)])


def read(lines: Lines, header: str, file: str) -> Iterator[Event]:
    """The launches of the tables from a header on, to the end of the text."""
    while True:
        delimiter = delimiter_of(header)
        names = cells_of(header, delimiter)
        needed = names.index("Metric Value") + 1 if "Metric Value" in names else len(names)
        rows = _rows(lines, delimiter, len(names), needed)
        following = yield from (
            _details(rows, names, file, delimiter)
            if "Metric Name" in names
            else _raw(rows, names, file, delimiter)
        )
        if following is None:
            return
        header = following


_Row = list[str] | str
"""The cells of a row, or the header of a further table."""


def _rows(lines: Lines, delimiter: str, width: int, needed: int) -> Iterator[_Row]:
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
            yield cells
        elif len(cells) > 2 and re.match(r'"?\d+"?[,;\t]"?\d+"?[,;\t]"', line):
            lines.trouble(f"found {len(cells)} cells, expected the {width} columns of the table")


def _sampled(rows: Iterator[_Row]) -> tuple[list[list[str]], str | None]:
    first: list[list[str]] = []
    for row in rows:
        if isinstance(row, str):
            return first, row
        first.append(row)
        if len(first) == _SAMPLE:
            break
    return first, None


def _launch(cells: list[str], place: dict[str, int]) -> Launch:
    def text(column: str) -> str:
        return cells[place[column]] if column in place else ""

    def whole(column: str) -> int | None:
        return NumberForm().integer(text(column))

    return Launch(
        text("Kernel Name"),
        sizes_of(text("Grid Size")),
        sizes_of(text("Block Size")),
        whole("Stream"),
        whole("Device"),
        capability_of(text("CC")),
    )


def _raw(
    rows: Iterator[_Row], names: list[str], file: str, delimiter: str
) -> Generator[Event, None, str | None]:
    place = {n: i for i, n in reversed(list(enumerate(names)))}
    first, following = _sampled(rows)
    units = [""] * len(names)
    if first and not first[0][0]:
        units = first.pop(0)
    metrics = [(i, n) for i, n in enumerate(names) if n not in _WORDS]
    whole = [
        i for i, n in metrics
        if n.startswith(("launch__registers", "device__", "launch__grid", "launch__thread"))
    ]  # fmt: skip
    form = form_of(
        (row[i] for row in first for i, _ in metrics),
        (row[i] for row in first for i in whole),
        delimiter == ";",
    )
    kept = [(i, n) for i, n in metrics if not n.startswith(_LEFT_OUT)]
    named = place.get("device__attribute_display_name")
    sms = place.get("device__attribute_multiprocessor_count")

    def event(row: list[str]) -> Event:
        launch = _launch(row, place)
        for i, name in kept:
            number = form.number(row[i])
            if number is not None:
                launch.counters[name] = base_unit(number, units[i])
        launch.device_name = row[named] or None if named is not None else None
        launch.multiprocessors = form.integer(row[sms]) if sms is not None else None
        return launch.event(file)

    for row in first:
        yield event(row)
    if following is not None:
        return following
    for further in rows:
        if isinstance(further, str):
            return further
        yield event(further)
    return None


def _details(
    rows: Iterator[_Row], names: list[str], file: str, delimiter: str
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
    current: Launch | None = None
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
                yield current.event(file)
            return row
        this = tuple(
            row[place[c]] for c in ("ID", "Process ID", "Host Name", "Kernel Name") if c in place
        )
        if this != identity:
            if current is not None:
                yield current.event(file)
            current, identity = _launch(row, place), this
        assert current is not None
        number = form.number(row[value])
        if number is not None and row[metric]:
            current.counters.setdefault(row[metric], base_unit(number, row[unit]))
    if current is not None:
        yield current.event(file)
    return None
