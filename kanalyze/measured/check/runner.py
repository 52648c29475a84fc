"""All records: read, estimated one after the other or by several processes, summed up."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

from kanalyze.measured.check import summary
from kanalyze.measured.check.comparison import FAULT, compare
from kanalyze.measured.records.metrics import METRICS, Metric
from kanalyze.measured.records.reader import Record, SkippedRecord, read_records
from kanalyze.results import check as doc

Progress = Callable[[int, int], None]
"""Called with how many records are done, and of how many."""


def check(
    paths: Sequence[str],
    *,
    metrics: Sequence[Metric] = METRICS,
    purpose: str | None = None,
    bounds: Sequence[tuple[str, str, float]] = (),
) -> doc.Check:
    """Compare the records that paths stand for with their static estimates.

    Args:
        paths: see `kanalyze.measured.records.reader.read_records`.
        metrics: what is compared.
        purpose: only records of this purpose, "fit" or "report".
        bounds: see `kanalyze.measured.check.summary.parse_bound`.

    Raises:
        InputError: a path cannot be read. What is wrong inside of it stands in ``skipped``.
    """
    records: list[Record] = []
    skipped: list[SkippedRecord] = []
    for path in paths:
        some, wrong = read_records(path)
        records += some
        skipped += wrong
    records = of_purpose(records, purpose)
    launches = [launch for launch, _ in compared(records, metrics)]
    return document(paths, len(records), launches, skipped, bounds)


def of_purpose(records: Sequence[Record], purpose: str | None) -> list[Record]:
    """The records of a purpose; all where none is asked for."""
    return [r for r in records if purpose in (None, r.data.get("purpose"))]


def document(
    paths: Sequence[str],
    records: int,
    launches: Sequence[doc.CheckedLaunch],
    skipped: Sequence[SkippedRecord],
    bounds: Sequence[tuple[str, str, float]] = (),
) -> doc.Check:
    """Sum up what was compared."""
    by_counter = summary.by_counter(launches)
    return doc.Check(
        files=tuple(paths),
        records=records,
        launches=tuple(launches),
        by_counter=by_counter,
        by_kernel=summary.by_kernel(launches),
        bounds=summary.bounds(bounds, by_counter),
        skipped=tuple(doc.SkippedPart(s.file, s.key, s.line, s.reason) for s in skipped),
    )


def faults(launches: Sequence[doc.CheckedLaunch]) -> Iterator[tuple[str, str]]:
    """Yield the files whose estimate failed by a fault of kanalyze's, with the message."""
    for launch in launches:
        reasons = {c.reason for c in launch.comparisons if c.reason and c.reason.startswith(FAULT)}
        for reason in reasons:
            yield launch.file, reason


# ---------------------------------------------------------------- processes


def compared(
    records: Sequence[Record], metrics: Sequence[Metric] = METRICS, jobs: int = 1
) -> Iterator[tuple[doc.CheckedLaunch, int]]:
    """Yield each record's comparisons, with its place in ``records``, as they are done.

    Several processes give them in any order.
    """
    if jobs == 1 or len(records) < 2:
        for index, record in enumerate(records):
            yield compare(record, metrics), index
        return
    global _shared
    _shared = (records, metrics)  # children that are forked have it without its being sent
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(min(jobs, len(records)), context, _ignore_interrupts) as pool:
        try:
            futures = {pool.submit(_compare_at, index): index for index in range(len(records))}
            for future in as_completed(futures):
                yield future.result(), futures[future]
        finally:
            pool.shutdown(cancel_futures=True)
            _shared = ((), ())


_shared: tuple[Sequence[Record], Sequence[Metric]] = ((), ())


def _compare_at(index: int) -> doc.CheckedLaunch:
    records, metrics = _shared
    return compare(records[index], metrics)


def _ignore_interrupts() -> None:
    """Ctrl-C is for the process that collects."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
