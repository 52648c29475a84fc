"""Reader of tables of GPU times: Nsight Systems' ``nsys stats`` (CSV or columns) and nvprof's CSV.

Several tables may follow one another in a text. Tables of API calls, of NVTX ranges and of sizes
are left out. Of tables that show the same launches in different ways (a summary and a trace) the
first one counts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from kanalyze.errors import Unknown
from kanalyze.profiles.readers.event import Dims, Event, ProfiledDevice, dims, kind_of
from kanalyze.profiles.readers.lines import (
    DumpLines,
    cells_of,
    delimiter_of,
    is_rule,
    sliced,
    spans_of,
)
from kanalyze.profiles.readers.numbers import (
    TIME_UNITS,
    NumberForm,
    form_of,
    is_time,
    whole,
    wrong_time,
)

_SAMPLE = 200
_ROLES = {
    "total": ("total time",),
    "calls": ("instances", "count", "calls", "kern inst"),
    "name": ("kernel name", "name", "operation"),
    "duration": ("duration", "kernel dur"),
    "start": ("kernel start", "start"),
    "gx": ("grdx", "grid x"), "gy": ("grdy", "grid y"), "gz": ("grdz", "grid z"),
    "bx": ("blkx", "block x"), "by": ("blky", "block y"), "bz": ("blkz", "block z"),
    "grid": ("gridxyz",), "block": ("blockxyz",),
    "registers": ("reg/trd", "registers per thread"),
    "static": ("stcsmem", "static smem"), "dynamic": ("dymsmem", "dynamic smem"),
    "device": ("device",), "stream": ("strm", "stream"),
    "category": ("category",), "type": ("type",), "time": ("time",),
}  # fmt: skip
_BYTES = {"b": 1, "byte": 1, "bytes": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9,
          "kib": 1024, "mib": 1 << 20, "gib": 1 << 30}  # fmt: skip
_MOST_CALLS = 10**15
_WHOLE = ("calls", "gx", "gy", "gz", "bx", "by", "bz", "registers", "stream")


@dataclass
class StatsColumns:
    """Where in a row a table has what, and in which units."""

    places: dict[str, int]
    units: dict[str, str]
    width: int

    def unit(self, role: str) -> str:
        """The unit of a column, in lower case."""
        return self.units.get(role, "").lower()


@dataclass
class Seen:
    """From which kind of table the launches and the copies of a text were taken."""

    kernels: str = ""
    copies: str = ""

    def takes(self, table: str, kind: str) -> bool:
        """Whether a row counts: the first kind of table to show its kind of event does."""
        if kind == "kernel":
            self.kernels = self.kernels or table
            return self.kernels == table
        self.copies = self.copies or table
        return self.copies == table


def columns_of(cells: list[str]) -> StatsColumns | None:
    """The columns of a header row; None where it is no table of GPU times."""
    places: dict[str, int] = {}
    units: dict[str, str] = {}
    plain = []
    for cell in cells:
        match = re.fullmatch(r"(.*?)\s*\(([^()]*)\)", cell)
        plain.append((match[1].strip().lower(), match[2]) if match else (cell.lower(), ""))
    for role, words in _ROLES.items():
        for word in words:
            place = next(
                (i for i, (p, u) in enumerate(plain) if p == word and (u != "%" or role == "x")),
                None,
            )
            if place is not None:
                places[role], units[role] = place, plain[place][1]
                break
    if "type" in places and "time" in places and "calls" in places and "total" not in places:
        places["total"], units["total"] = places["time"], units["time"]  # nvprof's summary
    timed = ("total" in places and "calls" in places) or "duration" in places
    if "name" not in places or not timed or len(cells) < 4:
        return None
    if "duration" in places and "start" not in places:
        return None
    return StatsColumns(places, units, len(cells))


def opens(line: str) -> bool:
    """Whether a line may be the header of such a table."""
    low = line.lower()
    if "name" not in low and "operation" not in low:
        return False
    return "instances" in low or "total time" in low or "duration" in low or "calls" in low


def read(lines: DumpLines, header: str, seen: Seen, file: str) -> Iterator[Event] | None:
    """The events of the table under a header; None where it is no such table."""
    rule = lines.peek() or ""
    if is_rule(rule) and len(spans_of(rule)) >= 4:
        spans = spans_of(rule)
        spans[-1] = (spans[-1][0], 1 << 30)
        columns = columns_of(sliced(header, spans))
        if columns is None:
            return None
        lines.next()
        return _events(_sliced_rows(lines, spans), columns, seen, file, ",", lines)
    delimiter = delimiter_of(header)
    columns = columns_of(cells_of(header, delimiter))
    if columns is None:
        return None
    return _events(_rows(lines, delimiter, columns.width), columns, seen, file, delimiter, lines)


def _rows(lines: DumpLines, delimiter: str, width: int) -> Iterator[list[str]]:
    for line in lines:
        if not line.strip():
            return
        cells = cells_of(line, delimiter, lines)
        if len(cells) != width:
            if len(cells) > 2 and (cells[0][:1].isdigit() or line.startswith('"')):
                lines.trouble(
                    f"found {len(cells)} cells, expected the {width} columns of the table"
                )
                continue
            lines.back(line)
            return
        yield cells


def _sliced_rows(lines: DumpLines, spans: list[tuple[int, int]]) -> Iterator[list[str]]:
    for line in lines:
        if not line.strip():
            return
        yield sliced(line, spans)


@dataclass
class _Table:
    columns: StatsColumns
    form: NumberForm = field(default_factory=NumberForm)

    def text(self, cells: list[str], role: str) -> str:
        place = self.columns.places.get(role)
        return "" if place is None else cells[place]

    def number(self, cells: list[str], role: str) -> float | None:
        return self.form.number(self.text(cells, role))

    def whole(self, cells: list[str], role: str) -> int | None:
        return self.form.integer(self.text(cells, role))

    def time(self, cells: list[str], role: str) -> float | None:
        number = self.number(cells, role)
        unit = self.columns.unit(role) or "ns"
        return None if number is None else number * TIME_UNITS.get(unit, 1e-3)

    def dims(self, cells: list[str], letters: tuple[str, str, str], joined: str) -> Dims | None:
        if joined in self.columns.places:
            return dims([whole(t) for t in re.findall(r"\d+", self.text(cells, joined))])
        return dims([self.whole(cells, letter) for letter in letters])

    def shared(self, cells: list[str]) -> int | None:
        total = 0.0
        for role in ("static", "dynamic"):
            number = self.number(cells, role)
            if number is None:
                return None
            total += number * _BYTES.get(self.columns.unit(role), 1)
        return round(total) if math.isfinite(total) else None


def _events(
    rows: Iterator[list[str]],
    columns: StatsColumns,
    seen: Seen,
    file: str,
    delimiter: str,
    lines: DumpLines,
) -> Iterator[Event]:
    table = _Table(columns)
    first: list[tuple[int, list[str]]] = []
    for cells in rows:
        if not first and _is_units(cells, columns):
            _take_units(cells, columns)
            continue
        first.append((lines.number, cells))
        if len(first) == _SAMPLE:
            break
    sample = [cells for _, cells in first]
    roles = list(_WHOLE)
    for role in ("total", "duration", "start"):
        if role in columns.places and columns.unit(role) in ("", "ns"):
            roles.append(role)  # nanoseconds have no decimals
    text_places = [columns.places[r] for r in ("name", "category", "type") if r in columns.places]
    table.form = form_of(
        (c for cells in sample for i, c in enumerate(cells) if i not in text_places),
        (table.text(cells, role) for cells in sample for role in roles),
        delimiter == ";",
    )
    kind_of_table = "trace" if "duration" in columns.places else "summary"
    kind_of_table += " by category" if "category" in columns.places else ""
    for number, cells in _numbered(first, rows, lines):
        event = _event(table, cells, file)
        if event is None:
            lines.trouble(
                f"found '{table.text(cells, 'name')[:40]}' without a time, expected a number",
                number,
            )
        elif isinstance(event, Unknown):
            lines.trouble(event.reason, number)
        elif (
            table.text(cells, "type").lower() not in ("api calls",)
            and event.name
            and seen.takes(kind_of_table, event.kind)
        ):
            yield event


def _numbered(
    first: list[tuple[int, list[str]]], rows: Iterator[list[str]], lines: DumpLines
) -> Iterator[tuple[int, list[str]]]:
    yield from first
    for cells in rows:
        yield lines.number, cells


def _is_units(cells: list[str], columns: StatsColumns) -> bool:
    """Whether a row holds units: a unit of time under the time, and no name."""
    role = "total" if "total" in columns.places else "duration"
    return cells[columns.places[role]].lower() in TIME_UNITS


def _take_units(cells: list[str], columns: StatsColumns) -> None:
    for role, place in columns.places.items():
        if cells[place]:
            columns.units[role] = cells[place]


def _event(table: _Table, cells: list[str], file: str) -> Event | Unknown | None:
    """The event of a row; what is wrong with its numbers; None where it has no time."""
    time = table.time(cells, "total" if "total" in table.columns.places else "duration")
    if time is None:
        return None
    name = table.text(cells, "name")
    if not is_time(time):
        return Unknown(wrong_time(name, time))
    category = table.text(cells, "category").upper()
    kind = kind_of(name)
    if kind == "kernel" and category.startswith("MEM"):
        kind = "memset" if "memset" in name.lower() else "memcpy"
    calls = table.whole(cells, "calls") if table.text(cells, "calls") else 1
    if calls is None or not 0 <= calls <= _MOST_CALLS:
        cell = table.text(cells, "calls")[:40]
        reason = f"left out '{name[:40]}': found '{cell}' calls, expected a number of calls"
        return Unknown(reason)
    start = table.time(cells, "start")
    return Event(
        name,
        kind,
        calls,
        time,
        start if start is not None and math.isfinite(start) else None,
        table.dims(cells, ("gx", "gy", "gz"), "grid"),
        table.dims(cells, ("bx", "by", "bz"), "block"),
        table.whole(cells, "registers"),
        table.shared(cells),
        table.whole(cells, "stream"),
        _device(table.text(cells, "device")),
        file=file,
    )


def _device(text: str) -> ProfiledDevice | None:
    """A device as the profilers write it: "NVIDIA H200 (0)" or "0"."""
    match = re.fullmatch(r"(.*?)\s*\((\d+)\)", text)
    if match:
        return ProfiledDevice(whole(match[2]), match[1] or None)
    if text.isdecimal():
        return ProfiledDevice(whole(text))
    return ProfiledDevice(None, text) if text else None
