"""One record: the static estimate of its launch beside its counters."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kanalyze.analysis.launch import estimate
from kanalyze.errors import KanalyzeError
from kanalyze.launch import arrays
from kanalyze.measured.records.metrics import METRICS, Metric
from kanalyze.measured.records.reader import Record
from kanalyze.results import check as doc
from kanalyze.results.traffic import Traffic

NO_CUBIN = "the record has no cubin: what ran may be other machine code"
NO_DEVICE = "the GPU is not known"
FAULT = "internal error (please report it)"


def compare(record: Record, metrics: Sequence[Metric] = METRICS) -> doc.CheckedLaunch:
    """Estimate a record's launch statically and compare it with what was measured.

    An estimate that fails makes all numbers unknown, with the reason.
    """
    traffic: Traffic | None = None
    failed = ""
    try:
        traffic = estimate(
            record.module,
            record.launch,
            device=record.device.name if record.device is not None else None,
            kernel=record.entry,
            cubin=record.cubin,
            assume={**arrays.of_record(record.data), **record.arrays},
            simulate=any(metric.kind == "estimate" for metric in metrics),
            findings=False,
        )
    except KanalyzeError as error:
        failed = str(error)
    except Exception as error:  # a fault of ours must not cost the other records
        failed = f"{FAULT}: {type(error).__name__}: {error}"[:300]
    data = record.data
    return doc.CheckedLaunch(
        case=record.case,
        kernel=str(data["kernel"]),
        file=record.file,
        device=record.device.name if record.device is not None else str(data["device"]),
        arch=data.get("arch"),
        dtype=data.get("dtype"),
        purpose=data.get("purpose"),
        comparisons=tuple(_comparison(record, traffic, failed, m) for m in metrics),
    )


def _comparison(
    record: Record, traffic: Traffic | None, failed: str, metric: Metric
) -> doc.ComparedCounter:
    name, measured = _measured(record, metric)
    value, reason, interval = _estimated(record, traffic, failed, metric)
    result = _result(metric, value, measured)
    difference = error = None
    in_interval = None
    if value is not None and measured is not None:
        difference = value - measured
        error = 0.0 if result == doc.EQUAL else relative_error(value, measured)
        if interval is not None:
            in_interval = interval[0] <= measured <= interval[-1]
    return doc.ComparedCounter(
        counter=metric.counter,
        metric=name,
        kind=metric.kind,
        unit=metric.unit,
        estimate=value,
        measured=measured,
        difference=difference,
        error_percent=error,
        interval=interval,
        in_interval=in_interval,
        result=result,
        reason=reason,
    )


def relative_error(estimated: float, measured: float) -> float | None:
    """100 * (estimated - measured) / measured; 0 where both are 0, None where only one is."""
    if measured == 0:
        return 0.0 if estimated == 0 else None
    return 100 * (estimated - measured) / measured


def _measured(record: Record, metric: Metric) -> tuple[str, float | None]:
    for name in metric.metrics:
        value = record.counters.get(name)
        if value is not None:
            return name, value if metric.scale == 1 else value * metric.scale
    return metric.metrics[0], None


def _estimated(
    record: Record, traffic: Traffic | None, failed: str, metric: Metric
) -> tuple[float | None, str | None, tuple[float, ...] | None]:
    """The number of the estimate, or why it is not known; and its interval."""
    if traffic is None:
        return None, failed, None
    if metric.of_device and record.device is None:
        return None, NO_DEVICE, None
    if metric.of_code and record.cubin is None:
        return None, NO_CUBIN, None
    part, _, attribute = metric.counter.partition(".")
    if attribute:
        value = getattr(getattr(traffic, part), attribute, None)
    else:
        value = traffic.counters.get(part)
    if value is None:
        reasons = {u.field: u.reason for u in traffic.unknown}
        fields = (f"counters.{metric.counter}", metric.counter, part)
        said = [reasons[field] for field in fields if field in reasons]
        return None, said[0] if said else "no reason is given", None
    interval: tuple[float, ...] | None = traffic.interval.get(metric.counter)
    if metric.counter == "time.predicted_us":
        interval = traffic.time.interval_us
    return value, None, tuple(interval) if interval else None


def _result(metric: Metric, value: float | None, measured: float | None) -> str:
    if measured is None:
        return doc.NOT_MEASURED
    if value is None:
        return doc.UNKNOWN
    if metric.kind == "exact":
        rounding = 0.0 if metric.digits is None else 0.5000001 * 10**-metric.digits
        same = math.isclose(value, measured, rel_tol=0, abs_tol=rounding)
        return doc.EQUAL if same else doc.DIFFERS
    if metric.kind == "bound":
        return doc.HOLDS if value <= measured else doc.ABOVE
    return doc.COMPARED
