"""What `kanalyze check` found, as data: every renderer shows it and the JSON holds it.

Errors are in percent of the measured value. What is not known is None, with its reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kanalyze.results.kernel import Document, UnknownField, derive

SCHEMA = "kanalyze.check/1"
EQUAL, DIFFERS = "equal", "differs"
HOLDS, ABOVE = "holds", "above"
COMPARED = "compared"
UNKNOWN, NOT_MEASURED = "unknown", "not measured"


@dataclass(frozen=True, slots=True)
class ComparedCounter:
    """One number of the estimate beside what was measured.

    Attributes:
        counter: see `kanalyze.measured.records.metrics`.
        metric: Nsight Compute's name of what was measured; the first of its names where none was.
        kind: "exact", "bound" or "estimate".
        unit: of both numbers.
        estimate, measured: None where not known or not measured.
        difference: estimate - measured.
        error_percent: 100 * difference / measured; 0 where the result is "equal" (the profiler
            rounds some); None where only one is known, or measured is 0 and the estimate is not.
        interval: [least, most] where the estimate gives one.
        in_interval: whether what was measured lies in it.
        result: exact: "equal" or "differs"; bound: "holds" or "above"; estimate: "compared"; all
            of them: "unknown" (no estimate) or "not measured".
        reason: why the estimate is not known.
    """

    counter: str
    metric: str
    kind: str
    unit: str
    estimate: float | None
    measured: float | None
    difference: float | None
    error_percent: float | None
    interval: tuple[float, ...] | None
    in_interval: bool | None
    result: str
    reason: str | None


@dataclass(frozen=True, slots=True)
class CheckedLaunch:
    """One record with its comparisons."""

    case: str
    kernel: str
    file: str
    device: str | None
    arch: str | None
    dtype: str | None
    purpose: str | None
    comparisons: tuple[ComparedCounter, ...]


@dataclass(frozen=True, slots=True)
class Reason:
    """Why an estimate is not known, and of how many launches."""

    reason: str
    launches: int
    cases: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CounterSummary:
    """All launches (of one kernel) for one counter.

    Attributes:
        kernel: None for all kernels.
        compared: launches with an estimate and a measurement; ``unknown`` and ``not_measured``
            are the others.
        good: of those compared: equal (exact), not above the counter (bound); None for estimates.
        failed: those compared that are not good; None for estimates.
        zeros: of those compared: 0 measured and 0 estimated.
        median_percent, mean_percent, p90_percent, worst_percent: of the absolute relative errors.
        worst_case: the launch with the worst one.
        within_1, within_5, within_10: the share of those compared that is off by at most so many
            percent.
        off_zero: launches where 0 was measured and the estimate is another; they have no relative
            error and count as outside of every share.
        with_interval, in_interval: launches whose estimate has an interval, and those in it.
        reasons: of those unknown.
    """

    counter: str
    kind: str
    kernel: str | None
    compared: int
    unknown: int
    not_measured: int
    good: int | None
    zeros: int
    median_percent: float | None
    mean_percent: float | None
    p90_percent: float | None
    worst_percent: float | None
    worst_case: str | None
    within_1: float | None
    within_5: float | None
    within_10: float | None
    off_zero: int
    with_interval: int
    in_interval: int
    reasons: tuple[Reason, ...]
    failed: int | None = field(init=False)

    def __post_init__(self) -> None:
        derive(self, failed=None if self.good is None else self.compared - self.good)


@dataclass(frozen=True, slots=True)
class KernelSummary:
    """The exact counters of one kernel: how many launches it has, and comparisons that are equal.

    ``compared`` and ``equal`` are over all of its launches and exact counters.
    """

    kernel: str
    launches: int
    compared: int
    equal: int


def kernel_summaries(
    launches: Sequence[CheckedLaunch], by_kernel: Sequence[CounterSummary]
) -> tuple[KernelSummary, ...]:
    """One for each kernel of ``by_kernel``, in its order."""
    rows = []
    for kernel in dict.fromkeys(s.kernel or "" for s in by_kernel):
        exact = [s for s in by_kernel if s.kernel == kernel and s.kind == "exact"]
        rows.append(
            KernelSummary(
                kernel,
                sum(launch.kernel == kernel for launch in launches),
                sum(s.compared for s in exact),
                sum(s.good or 0 for s in exact),
            )
        )
    return tuple(rows)


@dataclass(frozen=True, slots=True)
class ErrorBound:
    """A bound of ``--max-error``; ``found_percent`` is None where nothing could be compared."""

    counter: str
    statistic: str
    percent: float
    found_percent: float | None
    held: bool


@dataclass(frozen=True, slots=True)
class SkippedPart:
    """Something of an input that was left out: a file, a record, or a key of one."""

    file: str
    key: str
    line: int
    reason: str


@dataclass(frozen=True, slots=True)
class Check(Document):
    """What `kanalyze check` found.

    ``launches`` are those checked; ``records`` counts those that were to be (more of them where
    it was interrupted), ``left`` the others. ``kernels`` add up the exact counters of each;
    ``unknown`` has the reasons of the estimates that are not known.
    """

    files: tuple[str, ...]
    records: int
    launches: tuple[CheckedLaunch, ...]
    by_counter: tuple[CounterSummary, ...]
    by_kernel: tuple[CounterSummary, ...]
    bounds: tuple[ErrorBound, ...]
    skipped: tuple[SkippedPart, ...]
    schema: str = SCHEMA
    left: int = field(init=False)
    kernels: tuple[KernelSummary, ...] = field(init=False)
    unknown: tuple[UnknownField, ...] = field(init=False)

    def __post_init__(self) -> None:
        unknown = tuple(
            UnknownField(f"launches[{i}].comparisons[{j}].estimate", comparison.reason or "")
            for i, launch in enumerate(self.launches)
            for j, comparison in enumerate(launch.comparisons)
            if comparison.result == UNKNOWN
        )
        derive(
            self,
            left=self.records - len(self.launches),
            kernels=kernel_summaries(self.launches, self.by_kernel),
            unknown=unknown,
        )

    def worst(self, summary: CounterSummary) -> ComparedCounter:
        """The comparison with the worst error that a summary of all kernels has."""
        return next(
            c
            for launch in self.launches
            if launch.case == summary.worst_case
            for c in launch.comparisons
            if c.counter == summary.counter and abs(c.error_percent or 0) == summary.worst_percent
        )
