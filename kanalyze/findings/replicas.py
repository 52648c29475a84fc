"""Threads of a block that repeat the accesses of others: there are more threads than elements.

What: Triton spreads the elements of a tensor over all threads; where it has fewer elements than
there are threads, several threads load the same one, and one of them stores it.
Formula: a bit of a thread's number that moves no address doubles the threads on each element.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from kanalyze.findings import access_groups, trials, vectorization
from kanalyze.findings.access_groups import AccessGroup
from kanalyze.findings.changes import Change, settings
from kanalyze.findings.facts import Facts
from kanalyze.models import lane_strides
from kanalyze.models.lane_strides import LanePlace
from kanalyze.models.warp_patterns import WARP
from kanalyze.results.kernel import Finding
from kanalyze.symbolic.accesses import AccessValue

_MOST_CONSTEXPRS = 4  # that are tried as the size of the block


def of_kernel(facts: Facts) -> int:
    """Threads on each element in all global accesses of a kernel; 1 where that is not known."""
    if not facts.of_triton or facts.kernel.reqntid is None:
        return 1
    if "replicas" not in facts.cache:
        facts.cache["replicas"] = _of_kernel(facts)
    cached: int = facts.cache["replicas"]
    return cached


def _of_kernel(facts: Facts) -> int:
    every = [(a, row) for a, row in facts.accesses() if row.space == "global"]
    if not every or any(row.reason is not None for _, row in every):
        return 1
    return 1 << len(set.intersection(*(idle_bits(facts, [access]) for access, _ in every)))


def of_warps(facts: Facts, accesses: Sequence[AccessValue]) -> int:
    """Warps that access the same addresses, in each of these accesses; 1 if that is not known."""
    if not facts.of_triton or facts.kernel.reqntid is None:
        return 1
    return 1 << sum(1 << bit >= WARP for bit in idle_bits(facts, accesses))


def idle_bits(facts: Facts, accesses: Sequence[AccessValue]) -> set[int]:
    """Bits of a thread's number that move none of the addresses."""
    x, y, z = extents = access_groups.extents(facts)
    bits = range(int(math.log2(x * y * z)))
    places = [LanePlace(), *(LanePlace(1 << bit) for bit in bits)]
    idle = set(bits)
    for access in accesses:
        differences = lane_strides.differences([access.address], extents, places)
        if differences is None:
            return set()
        idle &= {bit for bit in bits if differences[bit + 1][0].key() == differences[0][0].key()}
    return idle


# ---------------------------------------------------------------- the finding


def describe(facts: Facts, groups: Sequence[AccessGroup]) -> tuple[str, str, dict[str, object]]:
    """Message, advice and numbers of a finding on accesses that several threads repeat."""
    group, times = groups[0], of_kernel(facts)
    threads = math.prod(access_groups.extents(facts))
    each = max(1, group.size // group.element)
    elements = threads // times * each
    needed = threads * vectorization.WIDEST // group.element
    pointers = ", ".join(dict.fromkeys(g.pointer for g in groups))
    noun = "element" if elements == 1 else "elements"
    message = (
        f"a block has {elements} {noun} of {pointers} for {threads} threads: {times - 1} of "
        f"{times} threads repeat what another one does, and accesses have {group.size} B where "
        f"one takes {vectorization.WIDEST} B"
    )
    advice = f"give the block {needed:,} elements or more"
    if (warps := facts.warps or 1) > 1:
        fewer = max(1, warps // times)
        advice += f" ({vectorization.WIDEST} B for each thread), or {fewer} warp{'s' * (fewer > 1)}"
    numbers: dict[str, object] = {
        "pointer": pointers, "accesses": sum(len(g.members) for g in groups),
        "elements_per_block": elements, "threads": threads, "threads_per_element": times,
    }  # fmt: skip
    return message, advice, numbers


def prove(facts: Facts, finding: Finding, group: AccessGroup) -> Finding | None:
    """Compiled with a larger block, and with fewer warps; None where no thread gets more to do.

    A warning where the launch is not known, or is predicted to be faster so.
    """
    less = 1 / of_kernel(facts)  # of the operations: what is repeated is computed again, too
    tries = trials.run(facts, _changes(facts, group), least=less)
    made = [t for t in tries if of_kernel(t.facts) == 1]
    if not made:
        return None
    best = trials.fastest(made) or made[0]
    then = _measures(best.facts, group)
    if then is None:
        return None
    slow = trials.predicted_us(facts) is not None and not trials.faster(facts, best)
    advice = f"{', or '.join(map(_words_of, made))}: no thread repeats another one then"
    return replace(
        finding,
        severity="info" if slow else "warning",
        advice=advice,
        proof=trials.proof(facts, best, _measures(facts, group) or {}, then),
        saves=trials.saved_time(facts, best),
    )


def _words_of(made: trials.Trial) -> str:
    time = made.time_us
    return made.words + (f" ({time:,.4g} µs by the estimate)" if time else "")


def _changes(facts: Facts, group: AccessGroup) -> Iterator[Change]:
    """A block of as many elements as its threads can take, and as few warps as it has work for."""
    compiled, times = facts.compiled, of_kernel(facts)
    assert compiled is not None
    blocks = [
        (name, value) for name, value in compiled.constexprs.items()
        if type(value) is int and value > 1 and value & (value - 1) == 0
    ]  # fmt: skip
    for name, value in blocks[:_MOST_CONSTEXPRS]:
        yield settings(**{name: value * _needed(group) * times})
    if (warps := facts.warps or 1) > 1:
        yield settings(num_warps=max(1, warps // times))


def _needed(group: AccessGroup) -> int:
    return vectorization.WIDEST // group.size


def _measures(facts: Facts, group: AccessGroup) -> dict[str, float] | None:
    """Threads on an element, and bytes of an access."""
    same = vectorization.same_accesses(facts, group)
    if same is None:
        return None
    return {"threads per element": of_kernel(facts), "bytes each": same.size}
