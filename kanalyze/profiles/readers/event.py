"""What every reader yields: one launch, or one row of a profiler's summary. No meaning is added."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

Dims = tuple[int, int, int]


class ProfiledDevice(msgspec.Struct, frozen=True, gc=False):
    """The GPU as far as the dump describes it; None where it does not say.

    ``capability`` is the compute capability, (9, 0) for 9.0.
    """

    id: int | None = None
    name: str | None = None
    capability: tuple[int, int] | None = None
    multiprocessors: int | None = None


class Operator(msgspec.Struct, frozen=True, gc=False):
    """The framework operator that launched a kernel, as the profiler recorded it.

    ``shapes`` has one entry for each input (empty for scalars; None where the profiler wrote
    something else than a list of integers, as for lists of tensors); ``dtypes`` are the
    profiler's words ("float", "c10::Half").
    """

    name: str
    shapes: tuple[tuple[int, ...] | None, ...] = ()
    dtypes: tuple[str, ...] = ()


class Event(msgspec.Struct, frozen=True, gc=False):
    """One launch, or one summary row that stands for ``calls`` launches.

    Times are in microseconds (``start_us`` on the profiler's own clock), sizes in bytes. A fact
    that the dump does not hold is None. ``kind`` is "kernel", "memcpy" or "memset". ``counters``
    holds Nsight Compute's metrics in its base units (byte, ns, hz, %).
    """

    name: str
    kind: str = "kernel"
    calls: int = 1
    total_us: float | None = None
    start_us: float | None = None
    grid: Dims | None = None
    block: Dims | None = None
    registers_per_thread: int | None = None
    shared_bytes: int | None = None
    stream: int | None = None
    device: ProfiledDevice | None = None
    operator: Operator | None = None
    counters: Mapping[str, float] = {}
    file: str = ""


def dims(value: Any) -> Dims | None:
    """Three positive integers out of a list, or None."""
    if not isinstance(value, list | tuple) or not 1 <= len(value) <= 3:
        return None
    if not all(isinstance(v, int) and not isinstance(v, bool) and v >= 0 for v in value):
        return None
    x, y, z = (*value, 1, 1)[:3]
    return (x, y, z)


def kind_of(name: str) -> str:
    """The kind of a row by the words that profilers use for copies and fills."""
    low = name[:24].lower()
    if low.startswith(("[cuda memcpy", "memcpy ", "memcpy_", "cuda memcpy")):
        return "memcpy"
    if low.startswith(("[cuda memset", "memset ", "memset_", "cuda memset")):
        return "memset"
    return "kernel"
