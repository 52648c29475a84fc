"""A large launch in stretches of its blocks, where values differ from thread to thread.

What: values that depend on loaded data are one number for each block, thread and iteration; of a
large launch they are made for some blocks at a time, and what is counted is added up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING

from kanalyze.address.accesses import AccessValue
from kanalyze.address.value import in_order
from kanalyze.models.warps import Counted

if TYPE_CHECKING:
    from kanalyze.launched import Launched

_THREADS = 1 << 21  # of one stretch
_MOST = 1 << 10  # stretches


def stretches(launched: Launched, access: AccessValue) -> list[Launched]:
    """The launch in stretches; empty where the access needs none, or would need too many."""
    launch = launched.launch
    if launched.stretch is not None or not launched.arrays:
        return []
    blocks, threads = math.prod(launch.grid), math.prod(launch.block)
    step = max(1, _THREADS // threads)
    if not step < blocks <= step * _MOST:
        return []
    values = [access.address, launched.executed[access.block]]
    values += [access.condition] if access.condition is not None else []
    if not any(node.op == "load" for node in in_order(values)):
        return []
    found = []
    for first in range(0, blocks, step):
        some = copy(launched)
        some.begin_at(first, min(step, blocks - first))
        found.append(some)
    return found


def added(counts: Sequence[Counted]) -> Counted:
    """The sums of what was counted of stretches."""
    by_cost: dict[int, int] = {}
    for count in counts:
        for cost, times in count.by_cost.items():
            by_cost[cost] = by_cost.get(cost, 0) + times
    requests, cost, threads = (
        sum(getattr(count, name) for count in counts) for name in ("requests", "cost", "threads")
    )
    return Counted(requests, cost, threads, dict(sorted(by_cost.items())))
