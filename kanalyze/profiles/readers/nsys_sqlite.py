"""Reader of Nsight Systems' SQLite export (``nsys export --type sqlite``)."""

from __future__ import annotations

import contextlib
import math
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kanalyze.errors import InputError
from kanalyze.profiles.readers.event import Event, ProfiledDevice, dims
from kanalyze.profiles.readers.numbers import is_time, whole, wrong_time
from kanalyze.profiles.readers.source import DumpSource

_KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
_COPIES = "CUPTI_ACTIVITY_KIND_MEMCPY"
_FILLS = "CUPTI_ACTIVITY_KIND_MEMSET"
_SENSES = {1: "HtoD", 2: "DtoH", 8: "DtoD", 9: "HtoH", 10: "PtoP"}
"""CUpti_ActivityMemcpyKind of cupti_activity.h, in the words of ``nsys stats``."""


def is_database(head: bytes) -> bool:
    """Whether a file is an SQLite database."""
    return head.startswith(b"SQLite format 3\0")


def read(source: DumpSource) -> Iterator[Event]:
    """Yield kernels, copies and fills.

    Raises:
        InputError: there are none, or the database is damaged.
    """
    with contextlib.ExitStack() as stack:
        path = source.path
        if path is None or source.packed:
            copy = stack.enter_context(tempfile.NamedTemporaryFile(suffix=".sqlite"))
            for piece in source.pieces():
                copy.write(piece)
            copy.flush()
            path = Path(copy.name)
        uri = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
        base = stack.enter_context(contextlib.closing(sqlite3.connect(uri, uri=True)))
        base.text_factory = lambda data: data.decode("utf-8", "replace")
        try:
            yield from _events(base, source)
        except sqlite3.DatabaseError as error:
            raise InputError(
                f"damaged SQLite database: {error}; expected an export of Nsight Systems",
                file=source.name,
            ) from None
    source.finish()


def _events(base: sqlite3.Connection, source: DumpSource) -> Iterator[Event]:
    tables = {name for (name,) in base.execute("select name from sqlite_master")}
    if not tables & {_KERNELS, _COPIES, _FILLS}:
        what = "no CUDA activity" if "StringIds" in tables else "no tables of Nsight Systems"
        raise InputError(
            f"found an SQLite database with {what}, expected the table {_KERNELS}",
            file=source.name,
        )
    devices = _devices(base, tables)

    def device(row: sqlite3.Row) -> ProfiledDevice:
        identity = _whole(row["deviceId"])
        if identity is None:
            return ProfiledDevice()
        return devices.setdefault(identity, ProfiledDevice(identity))

    if _KERNELS in tables:
        for row in _rows(base, f"select k.*, s.value as kernel_name from {_KERNELS} k "
                               "left join StringIds s on s.id = k.demangledName"):  # fmt: skip
            name = _text(row["kernel_name"])
            try:
                start, span = _times(row, name)
            except ValueError as error:
                source.trouble.add(0, f"{_KERNELS}: {error}")
                continue
            static, dynamic = _whole(row["staticSharedMemory"]), _whole(row["dynamicSharedMemory"])
            yield Event(
                name,
                "kernel",
                1,
                span,
                start,
                dims([row["gridX"], row["gridY"], row["gridZ"]]),
                dims([row["blockX"], row["blockY"], row["blockZ"]]),
                _whole(row["registersPerThread"]),
                None if static is None or dynamic is None else static + dynamic,
                _whole(row["streamId"]),
                device(row),
                file=source.name,
            )
    for table, kind in ((_COPIES, "memcpy"), (_FILLS, "memset")):
        if table not in tables:
            continue
        for row in _rows(base, f"select * from {table}"):
            name = "[CUDA memset]"
            if kind == "memcpy":
                sense = _SENSES.get(row["copyKind"])
                name = f"[CUDA memcpy {sense}]" if sense else "[CUDA memcpy]"
            try:
                start, span = _times(row, name)
            except ValueError as error:
                source.trouble.add(0, f"{table}: {error}")
                continue
            yield Event(
                name, kind, 1, span, start,
                stream=_whole(row["streamId"]), device=device(row), file=source.name,
            )  # fmt: skip


def _rows(base: sqlite3.Connection, query: str) -> Iterator[Any]:
    cursor = base.cursor()
    cursor.row_factory = sqlite3.Row
    yield from cursor.execute(query)


def _whole(value: Any) -> int | None:
    """A column's whole number; None where SQLite holds something else in it."""
    return value if isinstance(value, int) else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _times(row: sqlite3.Row, name: str) -> tuple[float | None, float | None]:
    """Start and duration in microseconds, None where they are not recorded.

    Raises:
        ValueError: they are no times.
    """
    start, end = row["start"], row["end"]
    for column, value in (("start", start), ("end", end)):
        if value is not None and not isinstance(value, int | float):
            raise ValueError(
                f"left out '{name[:40]}': found {str(value)[:40]!r} as its {column}, "
                "expected nanoseconds"
            )
    span = None if start is None or end is None else (end - start) / 1e3
    if span is not None and not is_time(span):
        raise ValueError(wrong_time(name, span))
    return None if start is None or not math.isfinite(start) else start / 1e3, span


def _devices(base: sqlite3.Connection, tables: set[str]) -> dict[int, ProfiledDevice]:
    if "TARGET_INFO_GPU" not in tables:
        return {}
    devices = {}
    for row in _rows(base, "select * from TARGET_INFO_GPU"):
        names = row.keys()

        def value(*columns: str, row: Any = row, names: Any = names) -> Any:
            return next((row[c] for c in columns if c in names), None)

        identity = _whole(value("cuDevice", "id"))
        if identity is None:
            continue
        major, minor = _whole(value("computeMajor")), _whole(value("computeMinor"))
        if major is None:
            head, dot, tail = str(value("computeCapability") or "").partition(".")
            major, minor = (whole(head), whole(tail)) if dot else (None, None)
        capability = None if major is None or minor is None else (major, minor)
        sms = _whole(value("smCount"))
        devices[identity] = ProfiledDevice(identity, _text(value("name")) or None, capability, sms)
    return devices
