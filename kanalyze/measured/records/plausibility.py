"""What a record cannot hold: values that no GPU counts, and numbers that contradict each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kanalyze.launch.limits import shown

SECTOR_BYTES = 32
DURATION = "gpu__time_duration.sum"
_OPERATIONS = ("ld", "st", "atom", "red")
_WARP = 32
_REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_{}.sum"
_SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_{}.sum"
_WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{}.sum"
_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{}.sum"
_AT_MOST = (
    (_CONFLICTS.format("ld"), _WAVEFRONTS.format("ld"), 1),
    (_CONFLICTS.format("st"), _WAVEFRONTS.format("st"), 1),
    ("l1tex__t_sectors_pipe_lsu_mem_global_op_ld_lookup_hit.sum", _SECTORS.format("ld"), 1),
    ("smsp__inst_executed_op_global_ld.sum", "smsp__inst_executed.sum", 1),
    ("smsp__inst_executed_op_global_st.sum", "smsp__inst_executed.sum", 1),
    ("smsp__thread_inst_executed.sum", "smsp__inst_executed.sum", _WARP),
    *((_REQUESTS.format(op), "smsp__inst_executed.sum", 1) for op in _OPERATIONS),
)
"""The first is at most the second times the number."""
_ABOVE_ZERO = (DURATION, "smsp__inst_executed.sum", "sm__maximum_warps_per_active_cycle_pct")

Problem = tuple[tuple[str, ...], str]
"""The keys concerned, and what was found and expected."""


def counters(given: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the counters that cannot be (names as Nsight Compute prints them; see `number`).

    A contradiction concerns both counters, as it is not known which is wrong.
    """
    good: dict[str, float] = {}
    for name, value in given.items():
        wrong = number(name, value)
        if wrong:
            yield (name,), wrong
        elif value is not None:
            good[name] = value
    yield from _relations(good)


def of_passes(names: Sequence[str]) -> bool:
    """Whether counters may contradict each other as a lock spins: each pass counts other tries."""
    return len(names) > 1 and any(name.endswith("_op_atom.sum") for name in names)


_MOST = 1e30  # and no NaN


def number(name: str, value: Any) -> str | None:
    """What is wrong with one counter by itself; None where nothing is (or it is None).

    Sums are whole numbers; bytes of DRAM whole sectors; percentages at most 100.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not _MOST >= value > -_MOST:
        return f"found {shown(value)}, expected a number"
    if value < 0:
        return f"found {shown(value)}, expected a number that is not negative"
    if value == 0 and name in _ABOVE_ZERO:
        return "found 0, expected a number above 0"
    if name.endswith(".sum") and value != int(value):
        return f"found {shown(value)}, expected a whole number"
    if name.startswith("dram__bytes") and name.endswith(".sum") and value % SECTOR_BYTES:
        return f"found {shown(value)}, expected a multiple of {SECTOR_BYTES} (a sector)"
    if "pct" in name and value > 100 and name in _ABOVE_ZERO:
        return f"found {shown(value)}, expected at most 100 %"
    return None


def _relations(good: Mapping[str, float]) -> Iterator[Problem]:
    for operation in _OPERATIONS:
        first, second = _REQUESTS.format(operation), _SECTORS.format(operation)
        if first in good and second in good:
            requests, sectors = good[first], good[second]
            if not requests <= sectors <= _WARP * requests:
                yield (
                    (first, second),
                    f"found {shown(requests)} requests and {shown(sectors)} sectors, expected 1 to "
                    f"{_WARP} sectors a request",
                )
    for first, second, factor in _AT_MOST:
        if first in good and second in good and good[first] > factor * good[second]:
            times = f" times {factor}" if factor > 1 else ""
            text = (
                f"found {shown(good[first])} and {shown(good[second])}, expected the first at most "
            )
            yield (first, second), f"{text}the second{times}"


def times(given: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield what cannot be in ``time_ms``: not 20th percentile <= median <= 80th."""
    low, middle, high = (given.get(k) for k in ("p20", "median", "p80"))
    for first, second, a, b in (("p20", "median", low, middle), ("median", "p80", middle, high)):
        if all(isinstance(x, int | float) for x in (a, b)) and a > b:  # type: ignore[operator]
            yield (first, second), _in_order(a, b)


def _in_order(first: Any, second: Any) -> str:
    return f"found {shown(first)} and {shown(second)}, expected the first at most the second"
