"""What holds of every estimate of a launch, whatever the model: a number that breaks it is unknown.

What: HBM reads at least what nothing in the launch wrote before, as caches are cold; it is written
no more than reached L2; L2 is asked for no more than missed L1; nothing is moved that no request
asked for; a range holds its number.
Limits: necessary, not sufficient; times are above their bounds by construction
(`kanalyze.performance.timing.model.times`).
"""

from __future__ import annotations

from collections.abc import Mapping

from kanalyze.models.coalescing import SECTOR
from kanalyze.results.traffic import Compulsory


def broken(
    counters: Mapping[str, int],
    interval: Mapping[str, tuple[int, int]],
    compulsory: Compulsory,
    most: Mapping[str, int | None],
    dirty_before: float,
) -> dict[str, str]:
    """The counters that cannot be, with the reason.

    Args:
        counters: the estimates.
        interval: the ranges of some of them.
        compulsory: distinct bytes.
        most: the greatest that a counter can be; None: not known.
        dirty_before: bytes that L2 held before the launch, and may write back.
    """
    read = sum(p.read_bytes or 0 for p in compulsory.pointers if p.write_bytes == 0)
    limits: list[tuple[str, float, float | None, str]] = [
        ("dram_read_bytes", read, None, "the distinct bytes that are read and not written"),
        ("dram_write_bytes", 0, counters["l2_write_sectors"] * SECTOR + dirty_before,
         "the bytes that are written to L2, and those that it held before"),
        ("l2_read_sectors", 0, counters["l1_miss_sectors"], "the sectors that miss L1"),
    ]  # fmt: skip
    asked = "the sectors that requests ask for"
    limits += [(name, 0, limit, asked) for name, limit in most.items()]
    limits += [(name, *both, "its range") for name, both in interval.items()]
    wrong = {}
    for name, low, high, words in limits:
        value = counters[name]
        if value < low or (high is not None and value > high):
            side, limit = ("below", low) if value < low else ("above", high)
            wrong[name] = f"the estimate, {value:,}, cannot be: it is {side} {limit:,.0f}, {words}"
    return wrong
