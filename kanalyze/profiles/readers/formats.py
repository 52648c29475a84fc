"""Which format a dump has, by its content; and the folders that dumps lie in."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from kanalyze.errors import InputError
from kanalyze.profiles.readers import (
    chrome,
    names_list,
    ncu_csv,
    ncu_text,
    nsys_sqlite,
    nsys_stats,
    torch_table,
)
from kanalyze.profiles.readers.chrome_scan import NotATraceError
from kanalyze.profiles.readers.event import Event
from kanalyze.profiles.readers.lines import DumpLines
from kanalyze.profiles.readers.source import STANDARD_INPUT, DumpSource, open_source

EXPECTED = (
    "expected a PyTorch table or Chrome trace, Nsight Systems' stats or SQLite export, Nsight "
    "Compute's CSV or text, or a list of kernel names (--list)"
)
_OTHERS = (
    (b"PK\x03\x04", "a zip archive: unpack it first"),
    (b"\x28\xb5\x2f\xfd", "Zstandard data: unpack it first (zstd -d)"),
    (b"\xfd7zXZ\0", "xz data: unpack it first (xz -d)"),
    (b"BZh", "bzip2 data: unpack it first (bzip2 -d)"),
    (b"\x1f\x8b", "gzip data inside gzip data: unpack it first"),
    (b"NVR\0", "an Nsight Compute report: 'ncu --import FILE --csv --page raw' writes CSV"),
    (b"\x7fELF", "a program (ELF)"),
    (b"QDSS", "a report of Nsight Systems: 'nsys export --type sqlite FILE' writes SQLite"),
)
_SUFFIXES = (".json", ".gz", ".sqlite", ".csv", ".txt", ".log", ".tsv", ".out", ".trace")


class NotADumpError(InputError):
    """The input has none of the formats that are read."""


def read_dump(path: str | Path, *, names_only: bool = False) -> Iterator[Event]:
    """Yield what a profiler's output says ran on the GPU, in the order of the file.

    The format is recognised by the content: PyTorch's ``key_averages().table()``, Chrome traces
    (``.json``, ``.json.gz``), Nsight Systems' ``stats`` and SQLite export, Nsight Compute's CSV
    and text, and lists of names. Memory stays bounded whatever the size.

    Args:
        path: a file, or "-" for standard input.
        names_only: read a plain list of names, one a line, whatever it looks like.

    Raises:
        InputError: the input cannot be read, or is damaged; in the latter case after everything
            that could be read was yielded.
    """
    with opened(path) as source:
        yield from read_source(source, names_only)


def files_in(folder: Path) -> list[Path]:
    """The files of a folder and the folders below it that may be dumps, sorted."""
    paths = (p for p in folder.rglob("*") if p.suffix.lower() in _SUFFIXES and p.is_file())
    return sorted(p for p in paths if not any(q.startswith(".") for q in p.parts[1:]))


def opened(path: str | Path) -> DumpSource:
    """Open a file, or standard input ("-")."""
    if str(path) == "-":
        return DumpSource(STANDARD_INPUT, sys.stdin.buffer)
    return open_source(Path(path))


def read_source(source: DumpSource, names_only: bool = False) -> Iterator[Event]:
    """The same as `read_dump`, of an opened source."""
    head = source.head
    if not head.strip():
        source.finish()
        raise NotADumpError(f"is empty, {EXPECTED}", file=source.name)
    if names_only:
        yield from names_list.read(DumpLines(source), source.name)
        source.finish()
        return
    if nsys_sqlite.is_database(head):
        yield from nsys_sqlite.read(source)
        return
    for magic, what in _OTHERS:
        if head.startswith(magic):
            raise NotADumpError(f"found {what}, {EXPECTED}", file=source.name)
    if _is_binary(head[:4096]):
        raise NotADumpError(f"found binary data, {EXPECTED}", file=source.name)
    if chrome.is_trace(head):
        try:
            yield from chrome.read(source)
        except NotATraceError as error:
            raise NotADumpError(
                f"found {error}, expected a Chrome trace (torch.profiler's export_chrome_trace)",
                file=source.name,
            ) from None
        return
    yield from _text(source, head)
    source.finish()


def _is_binary(head: bytes) -> bool:
    """Whether more bytes are control characters than text can have."""
    return len(head) - len(head.translate(None, _CONTROLS)) > max(16, len(head) // 16)


_CONTROLS = bytes(c for c in range(32) if c not in b"\t\n\r\f\x1b")
_LIST_MARKS = re.compile(r"==PROF==|Self CPU|\"ID\",|Total Time|Metric Name")


def _text(source: DumpSource, head: bytes) -> Iterator[Event]:
    text = head.decode("utf-8", "replace")
    lines = DumpLines(source)
    if _LIST_MARKS.search(text) is None and names_list.looks_like(text):
        yield from names_list.read(lines, source.name)
        return
    seen = nsys_stats.Seen()
    has_names = False
    for line in lines:
        events = _table(lines, line, seen, source.name)
        if events is None:
            continue
        has_names = True
        yield from events
    if not has_names and not source.trouble.message:
        first = next((t for t in text.splitlines() if t.strip()), "").strip()
        shown = first if len(first) <= 40 else first[:40] + "…"
        raise NotADumpError(f"found '{shown}', {EXPECTED}", file=source.name)


def _table(lines: DumpLines, line: str, seen: nsys_stats.Seen, file: str) -> Iterator[Event] | None:
    """The events of the table that a line opens, if it opens one."""
    if ncu_csv.opens(line):
        return ncu_csv.read(lines, line, file)
    if ncu_text.opens(line):
        return ncu_text.read(lines, line, file)
    if torch_table.opens(line):
        return torch_table.read(lines, line, file)
    if torch_table.opens_averages(line):
        return torch_table.read_averages(lines, line, file)
    if nsys_stats.opens(line):
        return nsys_stats.read(lines, line, seen, file)
    return None
