"""Contiguous lanes begin inside a sector.

What it says
------------
The lanes of a warp access contiguous memory that begins some bytes behind the beginning of a
32-byte sector, so that a request touches one sector more than its bytes fill. The finding names the
bytes, the share of requests, and the term of the address at fault: an offset, a pointer that is not
aligned, or a row length that is not a multiple of 32 bytes.

Why it is slow
--------------
32 lanes of 4 bytes fill 4 sectors; begun inside a sector they touch 5, of which 80 % of the bytes
are used; of 2-byte elements they touch 3 instead of 2. The bytes that are not used mostly are what
the next warp needs and come from L1, so that HBM hardly notices; but L1 does more work, and for the
same reason the compiler cannot use wide accesses (see narrow-access).

How it is detected
------------------
For a launch: sectors are counted, and those that the same lanes would touch if they began at a
sector. What is asked is that the lanes of the first warp are contiguous, and that 2 % of the
sectors and more are saved. It is a warning if the sectors that are too many take L1 10 % and more
of the time of the launch, else worth knowing.

How it is proven
----------------
By counting: the sectors of the accesses as they are, and begun at a sector.

Example
-------
    x = tl.load(x_ptr + row * 781 + cols)     # rows of 781 floats: 7 of 8 begin inside a sector
    x = tl.load(x_ptr + row * 784 + cols)     # mended: rows padded to a multiple of 8 floats

Source
------
CUDA C++ Best Practices Guide 13.1, section 10.2.1.3, "Effects of Misaligned Accesses"; Nsight
Compute, l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from kanalyze.findings import access_groups, vectorization
from kanalyze.findings.access_groups import AccessGroup
from kanalyze.findings.facts import Facts
from kanalyze.findings.rule import Rule
from kanalyze.models import coalescing, lane_strides
from kanalyze.models.coalescing import SECTOR
from kanalyze.models.lane_strides import AffineForm, LanePlace
from kanalyze.models.warps import count
from kanalyze.results.kernel import Finding, Proof
from kanalyze.symbolic.grid import UnknownValueError
from kanalyze.symbolic.parts import TooLargeError

_ID = "misaligned-access"
_LEAST = 0.02  # of the sectors of the accesses: below, the ends of rows make as many
_COSTLY = 0.1  # of the launch's time


def check_kernel(facts: Facts) -> Iterator[Finding]:
    """Contiguous accesses that begin inside a sector."""
    if facts.launched is None:
        return
    every = access_groups.groups(facts)
    for group in access_groups.merge_unrolled(
        [g for g in every if access_groups.significant(g, every)]
    ):
        cost, ideal = group.cost, group.ideal
        if not cost or ideal is None or cost - ideal < _LEAST * cost or not _in_a_row(group):
            continue
        begins = _begins(facts, group)
        if begins is None or not any(begins):
            continue
        yield _found(facts, group, begins, cost - ideal)


def _in_a_row(group: AccessGroup) -> bool:
    """Whether lanes, begun at a sector, touch no more sectors than their bytes fill."""
    offsets = group.offsets
    if offsets is None or len(set(offsets)) < 2:
        return False
    return group.sectors() == group.sectors(group.size)


def _begins(facts: Facts, group: AccessGroup) -> Counter[int] | None:
    """How many requests begin how many bytes inside a sector."""
    launched = facts.launched
    assert launched is not None
    begins: Counter[int] = Counter()
    for access, _ in group.members:
        try:
            begins.update(count(coalescing.BEGINS, *launched.place(access)).by_transactions)
        except (UnknownValueError, TooLargeError):
            return None
    return begins


def _found(facts: Facts, group: AccessGroup, begins: Counter[int], extra: int) -> Finding:
    cost = group.cost or 0
    requests = sum(begins.values())
    inside = {at: n for at, n in begins.items() if at and n}
    share = sum(inside.values()) / requests
    if len(inside) == 1:
        (at,) = inside
        where = f"{at} B inside a sector"
    else:
        where = f"{min(inside)} to {max(inside)} B inside a sector"
    often = "all" if share == 1 else f"{100 * share:.3g} % of the"
    fault = _fault(facts, group)
    used = (cost - extra) / cost
    of_time = _share_of_time(facts, extra)
    message = (
        f"{len(group.members)} {group.noun} of {group.size} B through {group.pointer}: {often} "
        f"requests begin {where}{f', as {fault[0]}' if fault else ''}: {cost / requests:.3g} "
        f"sectors per request where {(cost - extra) / requests:.3g} would do, "
        f"{100 * used:.3g} % of their bytes are used"
    )
    advice = fault[1] if fault else "let every row begin at a multiple of 32 bytes"
    numbers: dict[str, object] = {
        "pointer": group.pointer, "accesses": len(group.members), "requests": requests,
        "misaligned_requests": sum(inside.values()),
        "least_bytes_inside": min(inside), "most_bytes_inside": max(inside),
        "sectors": cost, "aligned_sectors": cost - extra, "used_share": used,
    }  # fmt: skip
    if of_time is not None:
        numbers["share_of_time"] = of_time
        if of_time < _COSTLY:
            advice += f" (L1 needs {100 * of_time:.2g} % of the launch's time for it)"
    line, source = group.place
    return Finding(
        _ID, _severity(facts, of_time), line, message, advice, source, numbers,
        Proof("counted", "rows begun at a sector", {"sectors": cost}, {"sectors": cost - extra}),
        None, {"sectors": extra},
    )  # fmt: skip


def _severity(facts: Facts, of_time: float | None) -> str:
    return "warning" if of_time is not None and of_time >= _COSTLY else "info"


def _share_of_time(facts: Facts, extra: int) -> float | None:
    """The share of the estimated time that L1 needs for so many sectors; None: no estimate."""
    traffic = facts.traffic
    if traffic is None or not traffic.time.predicted_us:
        return None
    bound = traffic.time.bounds_us.get("l1")
    sectors = sum(a.cost or 0 for a in traffic.accesses if a.unit == "sectors")
    return None if bound is None or not sectors else (
        bound * extra / sectors / traffic.time.predicted_us
    )  # fmt: skip


# ---------------------------------------------------------------- which term


def _fault(facts: Facts, group: AccessGroup) -> tuple[str, str] | None:
    """The terms of the address that are not multiples of a sector: in words, and what to do."""
    numbers, element = access_groups.values(facts), group.element
    access = group.members[0][0]
    extents = access_groups.extents(facts)
    first = lane_strides.start(access.address, extents)
    steps = _steps(facts, group)
    if first is None or steps is None:
        return None
    pointers = {p.name for p in facts.function.parameters if first.terms.get(p.name) == 1}
    for name in sorted(pointers):
        off = numbers.get(name, 0) % SECTOR
        if off:
            shown = access_groups.author_name(facts, name)
            return (
                f"{shown} itself lies {off} B behind a multiple of 32",
                f"pass {shown} aligned to 32 bytes (whole allocations are; a view that begins "
                "inside one is not)",
            )
    offset = AffineForm(first.number, {n: c for n, c in first.terms.items() if n not in pointers})
    if (offset.evaluate(numbers) or 0) % SECTOR:
        size = (offset.evaluate(numbers) or 0) // element
        words = access_groups.words(facts, offset, element)
        known = f"{words} = {size:,}" if offset.terms else words
        return (
            f"an offset of {known} element{'s' if abs(size) != 1 else ''} is added",
            f"let the offset be a multiple of {max(1, SECTOR // element)} elements, or begin at "
            "the multiple before it and leave out what is in front",
        )
    wrong = [step for step in steps if (step.evaluate(numbers) or 0) % SECTOR]
    if not wrong:
        return None
    step = wrong[0]
    size = step.evaluate(numbers) or 0
    even = vectorization.padded(facts, size // element)
    words = access_groups.words(facts, step, element)
    known = f"{words} = {size // element:,}" if step.terms else words
    return (
        f"rows are {known} elements ({size:,} B) apart, not a multiple of 32 B",
        f"pad rows to a multiple of {vectorization.padded(facts, 1)} elements ({even:,})",
    )


def _steps(facts: Facts, group: AccessGroup) -> list[AffineForm] | None:
    """What the address rises by from block to block, iteration to iteration, warp to warp."""
    access = group.members[0][0]
    x, y, z = extents = access_groups.extents(facts)
    loops = [loop.header for loop in facts.description.cfg.loops if access.block in loop.body]
    places = [LanePlace(), *(LanePlace(blocks={axis: 1}) for axis in "xyz")]
    places += [LanePlace(iterations={header: 1}) for header in loops]
    threads, warp = x * y * z, 32
    while warp < threads:
        places.append(LanePlace(warp))
        warp *= 2
    differences = lane_strides.differences([a.address for a, _ in group.members], extents, places)
    if differences is None:
        return None
    lanes = list(group.lanes.forms) if group.lanes is not None else []
    wraps = [form for form in lanes if form.terms]
    return [row[0] for row in differences[1:]] + wraps + differences[0][1:]


RULE = Rule(_ID, check_kernel=check_kernel)
