"""Other compilations of a kernel in the same launch: what they are called, and which is fastest."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kanalyze.findings.facts import Facts
from kanalyze.report.traffic_document import Traffic

_LEAST_WARPS, _MOST_WARPS = 1, 16
_SMALLEST, _LARGEST = 16, 8192  # tile sizes worth trying
_SAME_WORK = 0.95  # of the operations: fewer are another computation
_TRITON_SHARED = "global_smem"  # what Triton calls a kernel's shared memory


@dataclass(frozen=True)
class Change:
    """Arguments of `Facts.again`, and what they are called."""

    words: str
    changes: Mapping[str, Any]


@dataclass(frozen=True)
class Tried:
    """A change, the kernel compiled with it, and the estimate of its launch."""

    words: str
    facts: Facts
    traffic: Traffic


def from_triton(facts: Facts) -> bool:
    """Whether Triton made the kernel."""
    return facts.compiled is not None or _TRITON_SHARED in facts.description.variables


def tiles(facts: Facts) -> dict[str, int]:
    """Constexprs that may be the extents of a tile: powers of two."""
    if facts.compiled is None:
        return {}
    return {
        name: value
        for name, value in facts.compiled.constexprs.items()
        if isinstance(value, int)
        and not isinstance(value, bool)
        and _SMALLEST <= value <= _LARGEST
        and value & (value - 1) == 0
    }


def resized(facts: Facts, factors: Iterable[float] = (0.5, 2)) -> Iterator[Change]:
    """Each tile size by each factor."""
    for name, value in tiles(facts).items():
        for factor in factors:
            other = int(value * factor)
            if other >= _SMALLEST:
                yield Change(f"{name}={other}", {"settings": {name: other}})


def other_warps(facts: Facts) -> Iterator[Change]:
    """Half and twice as many warps."""
    if facts.compiled is None:
        return
    now = facts.compiled.metadata.get("num_warps", 4)
    for other in (now // 2, now * 2):
        if _LEAST_WARPS <= other <= _MOST_WARPS:
            yield Change(f"num_warps={other}", {"num_warps": other})


def other_stages(facts: Facts) -> Iterator[Change]:
    """A stage more and a stage less."""
    if facts.compiled is None:
        return
    now = facts.compiled.metadata.get("num_stages", 3)
    for other in (now - 1, now + 1):
        if other >= 1:
            yield Change(f"num_stages={other}", {"num_stages": other})


def estimates(facts: Facts, changes: Iterable[Change]) -> Iterator[Tried]:
    """The changes that compile, whose launch can be estimated, and that do the same work."""
    if facts.traffic is None:
        return
    for change in changes:
        other = facts.again(**change.changes)
        if isinstance(other, str):
            continue
        traffic = facts.estimated(other)
        if not isinstance(traffic, str) and same_work(facts.traffic, traffic):
            yield Tried(change.words, other, traffic)


def fastest(facts: Facts, changes: Iterable[Change]) -> Tried | None:
    """The change with the shortest predicted time; None where none can be estimated."""
    known = [t for t in estimates(facts, changes) if t.traffic.time.predicted_us]
    return min(known, key=lambda t: t.traffic.time.predicted_us or math.inf, default=None)


def gain(now: Traffic, then: Traffic) -> float:
    """The share of the predicted time that is saved."""
    before, after = now.time.predicted_us, then.time.predicted_us
    return 1 - after / before if before and after else 0.0


def same_work(now: Traffic, then: Traffic) -> bool:
    """Whether the same bytes are read and written, and no fewer operations are done.

    A constexpr may also say what is computed (the length of a row): a launch that with another
    value no longer touches the same memory, or computes less, is no other way to do the same.
    """
    bytes_ = [
        {p.pointer: (p.read_bytes, p.write_bytes) for p in t.compulsory.pointers}
        for t in (now, then)
    ]
    if None in (now.compulsory.read_bytes, now.compulsory.write_bytes) or bytes_[0] != bytes_[1]:
        return False
    return (then.flops or 0) >= _SAME_WORK * (now.flops or 0)
