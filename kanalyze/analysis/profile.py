"""From inputs to a report: everything that can be read, and what could not."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kanalyze.errors import InputError, UsageError
from kanalyze.findings import runner
from kanalyze.profiles.collect import Collector
from kanalyze.profiles.document import Report, Row, Skipped, UnknownField
from kanalyze.profiles.readers.event import Event, kind_of
from kanalyze.profiles.readers.reading import NotADumpError, files_in, opened, read_source
from kanalyze.profiles.readers.source import clean
from kanalyze.profiles.rows import groups_of, row_of, shown_device, summary_of

GROUPS = ("op", "family", "arch", "device", "file", "operator", "kind")
SORTS = ("time", "calls", "mean", "name")
_EVERY = 4096

Progress = Callable[[str, int], None]
"""Told the file and how many of its bytes were read, now and then."""
OnError = Callable[[InputError], None]


@dataclass(frozen=True)
class Wanted:
    """What to show: grouping, order, how many rows, and which names (a regular expression).

    ``ignore`` are ids of findings that are left out.
    """

    group_by: str | None = None
    sort: str = "time"
    top: int | None = None
    match: str | None = None
    ignore: Collection[str] = ()


@dataclass
class Session:
    """Reads inputs into one collector.

    Args:
        names_only: read plain lists of names.
        on_error: told of what could not be read, when it happens.
        progress: told how far reading is.
    """

    names_only: bool = False
    on_error: OnError | None = None
    progress: Progress | None = None
    collector: Collector = field(default_factory=Collector)
    files: list[str] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    failed: bool = False

    def read(self, target: str) -> None:
        """Read a file, the dumps of a folder, or standard input ("-")."""
        path = Path(target)
        if target == "-" or not path.is_dir():
            self._read_file(target, False)
            return
        found = files_in(path)
        before = len(self.files)
        for file in found:
            self._read_file(str(file), True)
        if len(self.files) == before:
            self._fail(InputError("there is no profiler dump in this folder", file=clean(target)))

    def names(self, names: Iterable[str]) -> None:
        """Add names as they are."""
        for name in names:
            shown = clean(name)
            self.collector.add(Event(shown, kind_of(shown)))

    def _read_file(self, target: str, in_folder: bool) -> None:
        try:
            with opened(target) as source:
                shown = source.name
                try:
                    for event in self._watched(read_source(source, self.names_only), source):
                        self.collector.add(event)
                except NotADumpError as error:
                    if not in_folder:
                        raise
                    self.skipped.append(Skipped(shown, 0, error.message))
                    return
                except InputError:
                    self.files.append(shown)
                    raise
                self.files.append(shown)
        except InputError as error:
            self._fail(error)

    def _watched(self, events: Iterator[Event], source: object) -> Iterator[Event]:
        if self.progress is None:
            yield from events
            return
        name = str(getattr(source, "name", ""))
        for number, event in enumerate(events):
            if number % _EVERY == 0:
                self.progress(name, int(getattr(source, "packed_read", 0)))
            yield event

    def _fail(self, error: InputError) -> None:
        self.failed = True
        line = error.spot.line if error.spot is not None else 0
        self.skipped.append(Skipped(error.file or "", line, error.message))
        if self.on_error is not None:
            self.on_error(error)

    def report(self, wanted: Wanted = Wanted()) -> Report:
        """The report on everything that was read.

        Raises:
            UsageError: ``wanted.match`` is no regular expression.
        """
        collector = self.collector
        total = collector.total.time_us
        if wanted.match is not None:
            try:
                pattern = re.compile(wanted.match, re.IGNORECASE)
            except re.error as error:
                raise UsageError(f"'{wanted.match}' is no regular expression: {error}") from None
            collector.keep(pattern.search)
        unknown: list[UnknownField] = []
        rows = [row_of(found, total, unknown) for found in collector.found.values()]
        rows.sort(key=_ORDERS[wanted.sort])
        groups: Sequence[object] = ()
        if wanted.group_by is not None:
            groups = self._groups(rows, wanted.group_by, total)
        summary = summary_of(rows, collector, unknown)
        findings = runner.of_profile(rows, collector, wanted.ignore)
        if wanted.top is not None:
            rows = rows[: wanted.top]
        return Report(
            tuple(self.files),
            tuple(self.skipped),
            tuple(rows),
            summary,
            tuple(findings),
            tuple(unknown),
            wanted.group_by,
            tuple(groups),  # type: ignore[arg-type]
        )

    def _groups(self, rows: list[Row], by: str, total: float | None) -> Sequence[object]:
        if by in ("device", "file"):
            return self._split_groups(rows, by, total)
        keys: dict[str, Callable[[Row], str]] = {
            "op": lambda row: row.op,
            "family": lambda row: row.name.family,
            "arch": lambda row: row.arch,
            "kind": lambda row: row.kind,
            "operator": lambda row: row.operators[0] if row.operators else "not recorded",
        }
        return groups_of(rows, keys[by], total)

    def _split_groups(self, rows: list[Row], by: str, total: float | None) -> Sequence[object]:
        """Groups by device or file, over which a name's launches may be spread."""
        import dataclasses

        parts: list[tuple[str, Row]] = []
        for row in rows:
            found = self.collector.found[row.name.name]
            named = (
                [(shown_device(d), t) for d, t in found.devices().items()]
                if by == "device"
                else list(found.files.items())
            )
            for name, tally in named or [("not recorded", found.tally)]:
                parts.append(
                    (name, dataclasses.replace(row, calls=tally.calls, total_us=tally.time_us))
                )
        names = {id(row): name for name, row in parts}
        return groups_of([row for _, row in parts], lambda row: names[id(row)], total)


_ORDERS: dict[str, Callable[[Row], tuple[float, float, str]]] = {
    "time": lambda r: (-(r.total_us or 0.0), -r.calls, ""),
    "calls": lambda r: (-r.calls, -(r.total_us or 0.0), ""),
    "mean": lambda r: (-(r.mean_us or 0.0), -r.calls, ""),
    "name": lambda r: (0, 0, r.name.name),
}


def decode_files(
    targets: Iterable[str | Path],
    wanted: Wanted = Wanted(),
) -> Report:
    """Read dumps and report on them; what could not be read is in ``skipped``."""
    session = Session()
    for target in targets:
        session.read(str(target))
    return session.report(wanted)
