"""Times of a launch by CUDA events: with a cold and with a warm L2, as median and percentiles.

Cold: a buffer larger than any L2 is written in front of every run, so that the data come from
memory, as ``triton.testing.do_bench`` does it. Warm: the runs follow each other directly. The GPU
is kept busy in front of them, as long as the processor needs to queue them, so that the time
between two events is the GPU's alone, also where Python is slower than the kernels.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kanalyze.text.plain import to_plain

FLUSH_BYTES = 256 << 20  # twice the largest L2 of the device table
_WARM_UP_MS, _BUDGET_MS = 25.0, 100.0  # as do_bench: long enough for the clocks to settle
_FEWEST, _MOST = 10, 500
_WARM_RUNS = 50  # at most
_QUEUED = 25  # runs at a time; the queue of a stream holds about a thousand entries
_CYCLES_PER_S = 2e9  # of the GPU's clock, at most
_SLACK = 1.5


@dataclass(frozen=True, slots=True)
class LaunchTimes:
    """Milliseconds of one run: median, 20th and 80th percentile of ``runs`` runs."""

    median: float
    p20: float
    p80: float
    runs: int

    def to_dict(self) -> dict[str, float | int]:
        """The times as records hold them."""
        return to_plain(self)


def summarised(samples: Sequence[float]) -> LaunchTimes:
    """Median and percentiles of some times (linear interpolation, as numpy's)."""
    ordered = sorted(samples)

    def at(share: float) -> float:
        place = share * (len(ordered) - 1)
        low = int(place)
        high = min(low + 1, len(ordered) - 1)
        return ordered[low] + (ordered[high] - ordered[low]) * (place - low)

    return LaunchTimes(at(0.5), at(0.2), at(0.8), len(ordered))


def finite(number: float | None) -> float | None:
    """A number as JSON can hold it: None for NaN and infinity."""
    return number if number is not None and math.isfinite(number) else None


class Stopwatch:
    """Measures functions that launch work on PyTorch's current stream."""

    def __init__(self, torch: Any):
        self.torch = torch
        self.busy_s = self.queueing_s = 0.0
        self.flush = torch.empty(FLUSH_BYTES // 4, dtype=torch.int32, device="cuda")

    def measure(self, go: Callable[[], Any]) -> tuple[LaunchTimes, LaunchTimes]:
        """Times of a run, with a cold and with a warm L2; a tenth of a second each, warmed up."""
        go()
        self.torch.cuda.synchronize()
        self.busy_s = 0.0
        once = summarised(self._batch(go, 5, cold=True)).median
        self.busy_s = _SLACK * self.queueing_s / 5 * _QUEUED
        count = int(min(_MOST, max(_FEWEST, _BUDGET_MS / max(once, 1e-3))))
        self._runs(go, int(min(_MOST, max(1, _WARM_UP_MS / max(once, 1e-3)))), cold=True)
        cold = summarised(self._runs(go, count, cold=True))
        warm = summarised(self._runs(go, min(count, _WARM_RUNS), cold=False))
        return cold, warm

    def _runs(self, go: Callable[[], Any], count: int, cold: bool) -> list[float]:
        times: list[float] = []
        while len(times) < count:
            batch = min(_QUEUED, count - len(times))
            times += self._batch(go, batch, cold)
        return times

    def _batch(self, go: Callable[[], Any], count: int, cold: bool) -> list[float]:
        cuda = self.torch.cuda
        events = [[cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(count)]
        if not cold:
            go()
        cuda._sleep(int(self.busy_s * _CYCLES_PER_S))
        began = time.perf_counter()
        for start, end in events:
            if cold:
                self.flush.zero_()
            start.record()
            go()
            end.record()
        self.queueing_s = time.perf_counter() - began
        cuda.synchronize()
        return [start.elapsed_time(end) for start, end in events]
