"""Lanes of a warp read different addresses of constant memory.

What it says
------------
The address of a load from constant memory differs between the lanes of a warp. The finding says how
many addresses a request has, and, for a launch, how many turns all of them take.

Why it is slow
--------------
The constant cache serves one address at a time: a warp whose lanes all read the same one is as fast
as with a register, one whose 32 lanes read 32 takes 32 turns.

How it is detected
------------------
The address of each ld.const is evaluated for the lanes of a block's first warp: more than one
address is a finding. An index of the block or of a loop has one. In a launch with an estimate it is
a warning if the turns, one a cycle of each SM, take 5 % of the predicted time and more (which does
not contain them), else worth knowing.

How it is proven
----------------
It is not: the array would have to be put elsewhere.

Example
-------
    __constant__ float table[256];
    y[i] = x[i] * table[threadIdx.x];   // 32 addresses

    y[i] = x[i] * table[blockIdx.x];    // one

On an H200, 4,194,304 elements: 40.0 us by lane, 12.8 us by block.

Source
------
CUDA C++ Best Practices Guide 13.0, section "Constant Memory": accesses of a warp to different
addresses are serialized.
"""

from __future__ import annotations

from collections.abc import Iterator

from kanalyze.findings import access_groups
from kanalyze.findings.facts import Facts
from kanalyze.findings.rule import Rule
from kanalyze.models import lane_strides
from kanalyze.models.warp_patterns import WARP
from kanalyze.results.kernel import Finding
from kanalyze.symbolic.accesses import AccessValue
from kanalyze.symbolic.grid import UnknownValueError
from kanalyze.symbolic.parts import TooLargeError

_ID = "constant-by-lane"
_COSTLY = 0.05  # of the launch's time


def check_kernel(facts: Facts) -> Iterator[Finding]:
    """Loads from constant memory of which a warp needs several turns."""
    for access, row in facts.accesses():
        if (row.space, row.kind) != ("const", "load"):
            continue
        lanes = lane_strides.of_lanes(access.address, access_groups.extents(facts))
        if lanes is None:
            continue
        known = [form.substitute(access_groups.values(facts)).key() for form in lanes.forms]
        addresses = len(set(known))
        if addresses == 1:
            continue
        turns = _turns(facts, access, addresses / len(known))
        share = _share(facts, turns)
        total = f", {turns:,} in the launch" if turns is not None else ""
        of_time = f" (at one a cycle {100 * share:.3g} % of the predicted time)" if share else ""
        yield Finding(
            _ID, "info" if share is not None and share < _COSTLY else "warning", row.line,
            f"constant memory {row.pointer or 'of an unknown variable'} is read at {addresses} "
            f"addresses by the {len(known)} lanes of a warp: one is served a turn, {addresses} "
            f"turns a request{total}{of_time}",
            "let the index depend on the block or a loop alone, or put the array into shared "
            "memory, or into global memory as const __restrict__",
            row.source, {"addresses": addresses, "turns": turns, "share_of_time": share},
            unproven="the source would have to be changed by hand",
        )  # fmt: skip


def _turns(facts: Facts, access: AccessValue, each: float) -> int | None:
    """Turns over the launch, if all warps are like the first; None where that is not known."""
    try:
        threads = facts.launched.threads(access) if facts.launched is not None else None
    except (UnknownValueError, TooLargeError):
        return None
    return None if threads is None else round(threads * each * WARP) // WARP


def _share(facts: Facts, turns: int | None) -> float | None:
    """What the turns take of the predicted time, all SMs alike; None where it is not known."""
    device, traffic = facts.device, facts.traffic
    if turns is None or device is None or traffic is None or not traffic.time.predicted_us:
        return None
    if not device.sms or not device.clock_max_mhz:
        return None
    return turns / device.sms / device.clock_max_mhz / traffic.time.predicted_us


RULE = Rule(_ID, check_kernel=check_kernel)
