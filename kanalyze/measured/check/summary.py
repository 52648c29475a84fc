"""Sums over launches: how many are equal, and how relative errors are distributed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np

from kanalyze.errors import UsageError, nearest
from kanalyze.measured.records.metrics import BY_COUNTER, METRICS, Metric
from kanalyze.results import check as doc

KINDS = ("exact", "bound", "estimate")
STATISTICS = ("worst", "median", "mean", "p90")
_GOOD = (doc.EQUAL, doc.HOLDS)
_COMPARED = (*_GOOD, doc.DIFFERS, doc.ABOVE, doc.COMPARED)


def metrics_named(names: Sequence[str]) -> tuple[Metric, ...]:
    """The counters of these names (or kinds: exact, bound, estimate), in order; none: all.

    Raises:
        UsageError: a name is not known.
    """
    for name in names:
        if name not in BY_COUNTER and name not in KINDS:
            raise UsageError(f"unknown counter '{name}': {nearest(name, (*BY_COUNTER, *KINDS))}")
    return tuple(m for m in METRICS if not names or m.counter in names or m.kind in names)


def by_counter(launches: Sequence[doc.CheckedLaunch]) -> tuple[doc.CounterSummary, ...]:
    """One summary for each counter, over all launches."""
    return tuple(_summaries(launches, None))


def by_kernel(launches: Sequence[doc.CheckedLaunch]) -> tuple[doc.CounterSummary, ...]:
    """One summary for each kernel (in order of appearance) and counter."""
    groups: dict[str, list[doc.CheckedLaunch]] = {}
    for launch in launches:
        groups.setdefault(launch.kernel, []).append(launch)
    return tuple(s for kernel, group in groups.items() for s in _summaries(group, kernel))


def _summaries(
    launches: Sequence[doc.CheckedLaunch], kernel: str | None
) -> Iterable[doc.CounterSummary]:
    if not launches:
        return
    for index, first in enumerate(launches[0].comparisons):
        rows = [(launch.case, launch.comparisons[index]) for launch in launches]
        yield _summary(first, rows, kernel)


def _summary(
    first: doc.ComparedCounter, rows: Sequence[tuple[str, doc.ComparedCounter]], kernel: str | None
) -> doc.CounterSummary:
    compared = [(case, c) for case, c in rows if c.result in _COMPARED]
    errors = [(abs(c.error_percent), case) for case, c in compared if c.error_percent is not None]
    sizes = np.array([size for size, _ in errors])
    worst = max(errors, default=None, key=lambda e: e[0])

    def share(percent: float) -> float | None:
        return float((sizes <= percent).sum()) / len(compared) if compared else None

    return doc.CounterSummary(
        counter=first.counter,
        kind=first.kind,
        kernel=kernel,
        compared=len(compared),
        unknown=sum(c.result == doc.UNKNOWN for _, c in rows),
        not_measured=sum(c.result == doc.NOT_MEASURED for _, c in rows),
        good=None if first.kind == "estimate" else sum(c.result in _GOOD for _, c in compared),
        zeros=sum(c.estimate == 0 == c.measured for _, c in compared),
        median_percent=float(np.median(sizes)) if errors else None,
        mean_percent=float(np.mean(sizes)) if errors else None,
        p90_percent=float(np.percentile(sizes, 90)) if errors else None,
        worst_percent=worst[0] if worst is not None else None,
        worst_case=worst[1] if worst is not None else None,
        within_1=share(1),
        within_5=share(5),
        within_10=share(10),
        off_zero=len(compared) - len(errors),
        with_interval=sum(c.in_interval is not None for _, c in compared),
        in_interval=sum(c.in_interval is True for _, c in compared),
        reasons=_reasons(rows),
    )


def _reasons(rows: Iterable[tuple[str, doc.ComparedCounter]]) -> tuple[doc.Reason, ...]:
    cases: dict[str, list[str]] = {}
    for case, comparison in rows:
        if comparison.result == doc.UNKNOWN:
            cases.setdefault(comparison.reason or "", []).append(case)
    return tuple(doc.Reason(text, len(names), tuple(names)) for text, names in cases.items())


# ---------------------------------------------------------------- bounds


def parse_bound(text: str) -> tuple[str, str, float]:
    """What ``--max-error`` says: counter (or kind), statistic, percent.

    ``5`` bounds the worst error of every estimated counter, ``NAME=5`` that of one (or of a kind:
    ``exact=0``), ``NAME.median=5`` its median.

    Raises:
        UsageError: it is not of that form, or the counter is not known.
    """
    name, equals, number = text.rpartition("=")
    statistic = "worst"
    match = re.fullmatch(rf"(.+)\.({'|'.join(STATISTICS)})", name)
    if match is not None:
        name, statistic = match[1], match[2]
    try:
        percent = float(number.removesuffix("%"))
    except ValueError:
        percent = -1
    if not 0 <= percent < float("inf") or (equals and not name):
        raise UsageError(f"--max-error '{text}' is neither PERCENT nor NAME=PERCENT")
    name = name if equals else "estimate"
    metrics_named([name])
    return name, statistic, percent


def bounds(
    wanted: Sequence[tuple[str, str, float]], summaries: Sequence[doc.CounterSummary]
) -> tuple[doc.ErrorBound, ...]:
    """Hold the bounds against the summaries; one without any comparison counts as held."""
    held_to = []
    for name, statistic, percent in wanted:
        for summary in summaries:
            if name not in (summary.counter, summary.kind):
                continue
            value: float | None = getattr(summary, f"{statistic}_percent")
            held = (value is None or value <= percent) and not summary.off_zero
            held_to.append(doc.ErrorBound(summary.counter, statistic, percent, value, held))
    return tuple(held_to)
