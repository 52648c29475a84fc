"""THE table of what the static estimate is compared with, ``metrics.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Metric:
    """A number of the estimate and what it is compared with; see the head of ``metrics.toml``."""

    counter: str
    metrics: tuple[str, ...]
    kind: str
    unit: str
    reason: str
    scale: float = 1
    digits: int | None = None
    of_device: bool = False
    of_code: bool = False
    optional: bool = False


_LISTED = tomllib.loads(Path(__file__).with_name("metrics.toml").read_text("utf-8"))["metric"]
METRICS = tuple(Metric(**{**row, "metrics": tuple(row["metrics"])}) for row in _LISTED)
"""What is compared, in the order of reports."""

BY_COUNTER: Mapping[str, Metric] = {metric.counter: metric for metric in METRICS}


def absent(counters: Mapping[str, object]) -> list[str]:
    """Metrics that a record with counters should hold and does not (null counts as held)."""
    return [
        metric.metrics[0]
        for metric in METRICS
        if not metric.optional and not any(name in counters for name in metric.metrics)
    ]
