"""The passes of ``kanalyze decode``: from dumps of profilers to a report.

`read` takes dumps (files, folders, standard input) and plain names, and adds up their events by
kernel, whose name is decoded when it is first seen. `report_on` then makes, in this order, the rows
of the kernels, the groups, the summary and the findings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kanalyze.analysis.profile_rows import groups_of, row_of, shown_device, summary_of
from kanalyze.errors import InputError, UsageError
from kanalyze.findings import runner
from kanalyze.profiles.collector import Collector
from kanalyze.profiles.readers.event import Event, kind_of
from kanalyze.profiles.readers.formats import NotADumpError, files_in, opened, read_source
from kanalyze.profiles.readers.source import clean
from kanalyze.results.kernel import Skipped, UnknownField
from kanalyze.results.profile import ProfiledKernel, ProfileGroup, ProfileReport

_EVERY = 4096

Progress = Callable[[str, int], None]
"""Told the file and how many of its bytes were read, now and then."""


@dataclass(frozen=True)
class View:
    """What to show: grouping, order, how many rows, and which names (a regular expression).

    ``ignore`` are ids of findings that are left out.
    """

    group_by: str | None = None
    sort: str = "time"
    top: int | None = None
    match: str | None = None
    ignore: Collection[str] = ()


@dataclass(frozen=True)
class CollectedProfile:
    """What was read: the sums by kernel name, the files, and what could not be read.

    ``failed``: whether an input that was named, or the rest of one, could not be read.
    """

    kernels: Collector
    files: tuple[str, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    failed: bool = False


def decode_files(targets: Iterable[str | Path], view: View = View()) -> ProfileReport:
    """Read dumps and report on them; what could not be read is in ``skipped``.

    Raises:
        UsageError: ``view.match`` is not a regular expression.
    """
    return report_on(read(targets), view)


def read(
    targets: Iterable[str | Path] = (),
    names: Iterable[str] = (),
    *,
    names_only: bool = False,
    on_error: Callable[[InputError], None] = lambda error: None,
    progress: Progress | None = None,
) -> CollectedProfile:
    """Read files, the dumps of folders or standard input ("-"), and add names as they are.

    Args:
        targets: what is read.
        names: names of kernels, each launched once.
        names_only: the files are plain lists of names.
        on_error: told of what could not be read, when it happens.
        progress: told how far reading is.
    """
    kernels = Collector()
    files: list[str] = []
    skipped: list[Skipped] = []
    failed = False
    for target in map(str, targets):
        for part in _read_target(target, kernels, names_only, progress):
            files += part.files
            skipped += part.skipped
            if part.error is not None:
                failed = True
                line = part.error.spot.line if part.error.spot is not None else 0
                skipped.append(Skipped(part.error.file or "", line, part.error.message))
                on_error(part.error)
    for name in map(clean, names):
        kernels.add(Event(name, kind_of(name)))
    return CollectedProfile(kernels, tuple(files), tuple(skipped), failed)


@dataclass(frozen=True)
class _Part:
    """What came of one file."""

    files: tuple[str, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    error: InputError | None = None


def _read_target(
    target: str, kernels: Collector, names_only: bool, progress: Progress | None
) -> Iterator[_Part]:
    path = Path(target)
    if target == "-" or not path.is_dir():
        yield _read_file(target, kernels, names_only, progress)
        return
    has_dump = False
    for file in files_in(path):
        part = _read_file(str(file), kernels, names_only, progress)
        if isinstance(part.error, NotADumpError):  # another file of the folder, not a fault
            other = Skipped(part.error.file or "", 0, part.error.message)
            part = _Part(skipped=(other,))
        has_dump = has_dump or bool(part.files)
        yield part
    if not has_dump:
        reason = "there is no profiler dump in this folder"
        yield _Part(error=InputError(reason, file=clean(target)))


def _read_file(
    target: str, kernels: Collector, names_only: bool, progress: Progress | None
) -> _Part:
    try:
        source = opened(target)
    except InputError as error:
        return _Part(error=error)
    with source:
        try:
            for number, event in enumerate(read_source(source, names_only)):
                if progress is not None and number % _EVERY == 0:
                    progress(source.name, source.packed_read)
                kernels.add(event)
        except NotADumpError as error:
            return _Part(error=error)
        except InputError as error:
            return _Part((source.name,), error=error)
        return _Part((source.name,))


def report_on(profile: CollectedProfile, view: View = View()) -> ProfileReport:
    """Report on what was read.

    Raises:
        UsageError: ``view.match`` is not a regular expression.
    """
    kernels, total = profile.kernels, profile.kernels.total.time_us
    unknown: list[UnknownField] = []
    if view.match is not None:
        kernels.keep(_pattern(view.match).search)
    rows = [row_of(kernel, total, unknown) for kernel in kernels.by_name.values()]
    rows.sort(key=_ORDERS[view.sort])
    groups = _groups(rows, kernels, view.group_by, total) if view.group_by is not None else ()
    summary = summary_of(rows, kernels, unknown)
    findings = runner.of_profile(rows, kernels, view.ignore)
    return ProfileReport(
        profile.files,
        profile.skipped,
        tuple(rows[: view.top]),
        summary,
        tuple(findings),
        tuple(unknown),
        view.group_by,
        tuple(groups),
    )


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text, re.IGNORECASE)
    except re.error as error:
        raise UsageError(f"'{text}' is not a regular expression: {error}") from None


_ORDERS: dict[str, Callable[[ProfiledKernel], tuple[float, float, str]]] = {
    "time": lambda r: (-(r.total_us or 0.0), -r.calls, ""),
    "calls": lambda r: (-r.calls, -(r.total_us or 0.0), ""),
    "mean": lambda r: (-(r.mean_us or 0.0), -r.calls, ""),
    "name": lambda r: (0, 0, r.name.name),
}
_KEYS: dict[str, Callable[[ProfiledKernel], str]] = {
    "op": lambda row: row.op,
    "family": lambda row: row.name.family,
    "arch": lambda row: row.arch,
    "kind": lambda row: row.kind,
    "operator": lambda row: row.operators[0] if row.operators else "not recorded",
}


def _groups(
    rows: list[ProfiledKernel], kernels: Collector, by: str, total: float | None
) -> Sequence[ProfileGroup]:
    """Rows by a key of theirs, or by device or file, over which a name's launches may be spread."""
    if by in _KEYS:
        return groups_of(rows, _KEYS[by], total)
    parts: list[tuple[str, ProfiledKernel]] = []
    for row in rows:
        kernel = kernels.by_name[row.name.name]
        tallies = (
            [(shown_device(device), tally) for device, tally in kernel.devices().items()]
            if by == "device"
            else list(kernel.files.items())
        )
        for key, tally in tallies or [("not recorded", kernel.tally)]:
            parts.append((key, replace(row, calls=tally.calls, total_us=tally.time_us)))
    keys = {id(row): key for key, row in parts}
    return groups_of([row for _, row in parts], lambda row: keys[id(row)], total)
