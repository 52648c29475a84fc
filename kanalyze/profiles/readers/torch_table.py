"""Reader of PyTorch's ``key_averages()``: the table that it prints, and its ``repr``.

A table holds operators, CUDA calls, annotations and kernels together. Kernels are the rows that
took time on the GPU and none on the CPU; an operator's time is that of its kernels and would
count twice. An annotation stands in the table twice, once with CPU time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from kanalyze.profiles.readers.event import Event, kind_of
from kanalyze.profiles.readers.lines import DumpLines, is_rule, sliced, spans_of
from kanalyze.profiles.readers.numbers import NumberForm, is_time, time_us, wrong_time

_DEVICES = ("cuda", "device", "hip", "xpu", "privateuseone", "mtia")
_MOST_ROWS = 200_000
_AVERAGE = re.compile(
    r"<FunctionEventAvg key=(?P<name>.*?) self_cpu_time=(?P<self_cpu>\S+) cpu_time=(?P<cpu>\S+) +"
    r"self_(?P<device>\w+?)_time=(?P<own>\S+) \w+_time=(?P<mean>\S+) input_shapes="
)
_ANNOTATIONS = re.compile(
    r"ProfilerStep(?:#\d+|\*)$|## Call CompiledFxGraph |Torch-Compiled Region"
)


@dataclass(frozen=True)
class _Columns:
    cpu: tuple[int, ...]
    own: int
    calls: int


@dataclass(frozen=True)
class _Row:
    name: str
    on_cpu: bool
    time_us: float
    calls: int
    line: int


def opens(line: str) -> bool:
    """Whether a line is the header of such a table."""
    low = line.lower()
    return (
        "cpu total" in low and "name" in low and ("# of calls" in low or "number of calls" in low)
    )


def opens_averages(line: str) -> bool:
    """Whether a line holds the ``repr`` of averages."""
    return "<FunctionEventAvg key=" in line


def read(lines: DumpLines, header: str, file: str) -> Iterator[Event]:
    """The kernels of a table; the rows are held until its end, as any may be an annotation's."""
    rule = lines.peek() or ""
    start = lines.number
    if not is_rule(rule):
        return
    lines.next()
    spans = spans_of(rule)
    columns = _columns([c.lower() for c in _cells(header, spans)])
    if columns is None:
        lines.trouble("found a table without a column of GPU times ('Self CUDA'), expected one")
        return
    rows: list[_Row] = []
    closed = False
    for line in lines:
        if is_rule(line):
            closed = True
            break
        if not line.strip() or len(rows) >= _MOST_ROWS:
            break
        row = _row(_cells(line, spans), columns, lines.number)
        if row is not None:
            rows.append(row)
    kernels = _kernels(rows, lines)
    for row in kernels:
        yield Event(row.name, kind_of(row.name), row.calls, row.time_us, file=file)
    if not closed:
        lines.trouble("the table is cut, expected its closing rule of dashes")
    if not kernels and any(row.time_us > 0 for row in rows):
        lines.trouble(
            "found a table of operators only (old PyTorch lists no kernels), "
            "expected rows of kernels",
            start,
        )


def _kernels(rows: list[_Row], lines: DumpLines) -> list[_Row]:
    """The rows of kernels that took time; what cannot be a time is noted."""
    on_cpu = {row.name for row in rows if row.on_cpu}
    kernels = []
    for row in rows:
        if row.on_cpu or row.time_us == 0 or not _is_kernel(row.name, on_cpu):
            continue
        if is_time(row.time_us):
            kernels.append(row)
        else:
            lines.trouble(wrong_time(row.name, row.time_us), row.line)
    return kernels


def _own_time(text: str) -> float | None:
    """A time on the GPU; what is none, but stands for one (negative, NaN), as a float too."""
    sign = -1.0 if text.startswith("-") else 1.0
    bare = text.lstrip("-")
    if re.match(r"(?:nan|inf)", bare, re.IGNORECASE):
        return float(text[: 4 if sign < 0 else 3])
    time = time_us(bare)
    return None if time is None else sign * time


def _cells(line: str, spans: list[tuple[int, int]]) -> list[str]:
    """The cells of a line: what is wider than its column moves the rest of the line, so the
    columns under the rule count only where blanks do not separate the cells."""
    cells = re.split(r"\s{2,}", line.strip())
    return cells if len(cells) == len(spans) else sliced(line, spans)


def _is_kernel(name: str, on_cpu: set[str]) -> bool:
    """Whether a row without CPU time is a kernel's: an annotation has a row with CPU time too.

    A Triton kernel of Inductor has one as well (its launch), but its name says what it is.
    """
    if _ANNOTATIONS.match(name):
        return False
    return name not in on_cpu or name.startswith("triton_")


def _columns(names: list[str]) -> _Columns | None:
    def first(*words: str) -> int | None:
        return next((names.index(w) for w in words if w in names), None)

    cpu = tuple(i for i, n in enumerate(names) if n in ("self cpu", "self cpu total", "cpu total"))
    own = first(*(f"self {d}" for d in _DEVICES), *(f"self {d} total" for d in _DEVICES))
    if own is None:
        own = first(*(f"{d} total" for d in _DEVICES))
    calls = first("# of calls", "number of calls")
    return None if own is None or calls is None else _Columns(cpu, own, calls)


def _row(cells: list[str], columns: _Columns, line: int) -> _Row | None:
    time = _own_time(cells[columns.own])
    calls = NumberForm().integer(cells[columns.calls].split(" ")[0])
    if time is None or calls is None or not cells[0]:
        return None
    cpu = [time_us(cells[i]) for i in columns.cpu]
    return _Row(cells[0], any(t is None or t > 0 for t in cpu), time, calls, line)


def read_averages(lines: DumpLines, line: str, file: str) -> Iterator[Event]:
    """The kernels of printed averages. The calls are the total divided by the mean time."""
    rows: list[_Row] = []
    current: str | None = line
    while current is not None and opens_averages(current):
        for match in _AVERAGE.finditer(current):
            own, mean = _own_time(match["own"]), time_us(match["mean"])
            cpu = [time_us(match[key]) for key in ("self_cpu", "cpu")]
            if own is None or mean is None:
                continue
            ratio = own / mean if mean else 1.0
            calls = max(1, round(ratio)) if is_time(ratio) else 1
            on_cpu = any(t is None or t > 0 for t in cpu)
            rows.append(_Row(match["name"], on_cpu, own, calls, lines.number))
        current = lines.next()
    if current is not None:
        lines.back(current)
    for row in _kernels(rows, lines):
        yield Event(row.name, kind_of(row.name), row.calls, row.time_us, file=file)
