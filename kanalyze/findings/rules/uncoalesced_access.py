"""Lanes of a warp access memory across the dimension in which it is contiguous.

What it says
------------
Neighbouring lanes of a load or store are farther apart than what each of them moves: by a stride of
an array instead of by an element. The finding names the distance (by the author's name of the
stride where there is one), the 32-byte sectors that a request touches, and those that the same
lanes would touch if contiguous. Where the distance is an argument that is not known, it says that.

Why it is slow
--------------
Memory is moved in sectors of 32 bytes. Contiguous lanes share them: 32 lanes of 4 bytes touch 4
sectors. Lanes 32 bytes and more apart touch one each, 32 for the same 128 bytes: eight times the
bytes pass L1, and L2 and HBM too unless something else needs the rest of the sector while it is
still cached.

How it is detected
------------------
The address is evaluated for the lanes of the first warp of a block; the distance of neighbours is a
sum of arguments and a number. Sectors are counted for a request that begins at a sector, or for all
requests of the launch where one is known. It is a warning from twice the sectors on; less than half
more is passed over, and so is what adds less than 5 % to the sectors of a launch. Where accesses
that one thread makes one after another fill the gap, the bytes are used: that is worth knowing.

How it is proven
----------------
By counting: the sectors of the accesses as they are, and as if the lanes were contiguous. Where
there is no other dimension, and the stride is an argument of a launch that is simulated: with 1
for it, which is what the same elements would take packed.

Example
-------
    rows = tl.arange(0, 128)
    x = tl.load(x_ptr + rows * stride + tl.program_id(0))   # one column per program

    cols = tl.program_id(0) * 32 + tl.arange(0, 32)         # mended: 32 columns per program
    x = tl.load(x_ptr + rows[:, None] * stride + cols[None, :])

Source
------
CUDA C++ Best Practices Guide 13.1, section 10.2.1, "Coalesced Access to Global Memory"; Nsight
Compute, l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from kanalyze.errors import Unknown
from kanalyze.findings import access_groups, strides, trials, vectorization
from kanalyze.findings.access_groups import AccessGroup
from kanalyze.findings.changes import settings
from kanalyze.findings.facts import Facts
from kanalyze.findings.rule import Rule
from kanalyze.findings.vectorization import WIDEST
from kanalyze.models import lane_strides
from kanalyze.models.coalescing import SECTOR
from kanalyze.models.lane_strides import AffineForm, LanePlace
from kanalyze.results.kernel import Finding, Proof
from kanalyze.text.numbers import bound_name

_ID = "uncoalesced-access"
_WORTH, _MUCH = 1.5, 2.0  # times the sectors needed: worth knowing; no more than half is used
_FILLED = 0.75  # of the gap: what is left over is little
_LARGEST_GAP = 1024  # bytes: a thread does not touch all of more
_LEAST_SHARE = 0.05  # of the sectors of a launch that could be saved


def check_kernel(facts: Facts) -> Iterator[Finding]:
    """Global accesses whose lanes are apart."""
    every = access_groups.groups(facts)
    heavy = [group for group in every if access_groups.significant(group, every)]
    for group in access_groups.merge_unrolled(heavy):
        if group.lanes is None:
            continue
        known = group.offsets is not None
        finding = _apart(facts, group, every) if known else _not_known(facts, group, every)
        if finding is not None:
            yield finding


def _apart(facts: Facts, group: AccessGroup, every: Sequence[AccessGroup]) -> Finding | None:
    """Lanes at known distances."""
    wide, filled = group, _filled(group)
    if filled > 1:  # what narrow-access says: with wide accesses the gaps are smaller
        wide = replace(group, size=group.size * filled)
    assert group.offsets is not None
    now = access_groups.sectors_of(group.offsets, wide.size)
    ideal = wide.sectors(wide.size) or 1
    if now < _WORTH * ideal:
        return None
    cost, least = group.cost, group.ideal
    if cost is not None and least is not None:
        all_ = sum(g.cost or 0 for g in every)
        if not cost or cost - least < _LEAST_SHARE * all_ or cost < _WORTH * least:
            return None
    covered = _covered(group, every) >= _FILLED
    shared = 2 * len(set(group.offsets)) <= len(group.offsets)  # lanes at one address: few sectors
    severity = "info" if covered or shared or now < _MUCH * ideal else "warning"
    per = access_groups.sectors_of(group.offsets, group.size)
    best = group.sectors(group.size) or 1
    over = per * SECTOR / (len(group.offsets) * group.size)
    before, after = {"sectors per request": float(per)}, {"sectors per request": float(best)}
    saves: dict[str, float] = {}
    if cost is not None and least is not None:
        before["sectors"], after["sectors"] = cost, least
        saves = {"sectors": cost - least, "l1_bytes": (cost - least) * SECTOR}
    own = " = one sector each" if per == len(group.offsets) else ""
    message = (
        f"{len(group.members)} {group.noun} of {group.size} B through {group.pointer}: lanes are "
        f"{_distance(facts, group)} apart{_in_thread(facts, group)}, {per} sectors per "
        f"request{own} where {best} would do, {over:.3g} times the bytes needed"
    )
    if covered:
        message += "; other accesses of the same thread use the rest"
    line, source = group.place
    said, times = _time(facts)
    return Finding(
        _ID, severity, line, message, _advice(facts, group, every) + said, source,
        {"pointer": group.pointer, "accesses": len(group.members), **_numbers(facts, group),
         "sectors_per_request": per, "ideal_sectors_per_request": best, "over_fetch": over,
         **times},
        Proof("counted", "contiguous lanes", before, after), None, saves,
    )  # fmt: skip


def _covered(group: AccessGroup, every: Sequence[AccessGroup]) -> float:
    """The share of the gap between neighbouring lanes that one thread's accesses fill."""
    step = abs(group.stride_bytes or 0)
    if not step or step > _LARGEST_GAP:
        return 0.0
    same = [g for g in every if g.pointer == group.pointer and g.kind == group.kind]
    pieces = [(access, g.size) for g in same for access, _ in g.members]
    first = group.members[0][0]
    differences = lane_strides.differences(
        [first.address, *(access.address for access, _ in pieces)],
        access_groups.extents(group.facts),
    )
    if differences is None:
        return 0.0
    touched: set[int] = set()
    for form, (_, size) in zip(differences[0][1:], pieces, strict=True):
        if not form.terms:
            touched |= {(form.number + byte) % step for byte in range(size)}
    return len(touched) / step


def _filled(group: AccessGroup) -> int:
    """How many accesses of a thread that are contiguous a wide one would be."""
    if group.stride_bytes is None or group.stride_bytes % (group.size * group.run):
        return 1
    most = max(1, min(group.run, WIDEST // group.size))
    while (group.stride_bytes % (group.size * most)) or most & (most - 1):
        most -= 1
    return most


def _not_known(facts: Facts, group: AccessGroup, every: Sequence[AccessGroup]) -> Finding | None:
    """Lanes apart by an argument of which no number is known."""
    stride = group.stride
    if stride is None or not stride.terms:
        return None
    if group.unit is not None and group.run == 1 and group.size < WIDEST and len(group.members) > 1:
        return None  # narrow-access says it: with a stride known to be 1 they would be wide, too
    lanes = len(group.lanes.forms) if group.lanes is not None else 32
    best = group.sectors(group.size) or 1
    words = access_groups.words(facts, stride, group.element)
    line, source = group.place
    names = ", ".join(access_groups.author_name(facts, name) for name in stride.terms)
    message = (
        f"{len(group.members)} {group.noun} of {group.size} B through {group.pointer}: lanes are "
        f"{words} elements apart{_in_thread(facts, group)}; {names} is not known: unless it is "
        f"small, each lane is in a sector of its own, {lanes} per request where {best} would do"
    )
    return Finding(
        _ID, "info", line, message, _advice(facts, group, every), source,
        {"pointer": group.pointer, "accesses": len(group.members), "stride": words,
         "sectors_apart": lanes, "ideal_sectors_per_request": best},
        unproven=f"{names} is not known",
    )  # fmt: skip


def _distance(facts: Facts, group: AccessGroup) -> str:
    """``stride_am = 4,096 elements (16,384 B)``."""
    stride, step = group.stride, group.stride_bytes
    if stride is None or step is None:
        return f"{group.first.pattern or 'scattered'}, not contiguous,"
    known = f"{step // group.element:,} elements ({step:,} B)"
    if step % group.element:
        known = f"{step:,} B"
    return (
        f"{access_groups.words(facts, stride, group.element)} = {known}" if stride.terms else known
    )


def _in_thread(facts: Facts, group: AccessGroup) -> str:
    """`` (4 elements per thread, each stride apart)``, where a thread has several between lanes."""
    times, unit = strides.in_thread(group)
    if unit is None or times < 2:
        return ""
    words = access_groups.words(facts, unit, group.element)
    return f" ({times} elements per thread, each {words} apart)"


def _time(facts: Facts) -> tuple[str, dict[str, object]]:
    """What the launch takes, and L1 of it, by the estimate."""
    time = facts.traffic.time if facts.traffic is not None else None
    if time is None or not time.predicted_us or "l1" not in time.bounds_us:
        return "", {}
    l1 = time.bounds_us["l1"]
    said = f" (by the estimate L1 needs {l1:,.3g} of the launch's {time.predicted_us:,.3g} µs"
    if time.bound_by is not None and time.bound_by != "l1":
        said += f", which {bound_name(time.bound_by)} bounds"
    return said + ")", {"time_us": time.predicted_us, "l1_us": l1, "bound_by": time.bound_by}


def _numbers(facts: Facts, group: AccessGroup) -> dict[str, object]:
    stride, step = group.stride, group.stride_bytes
    if stride is None or step is None:
        return {}
    return {"stride": access_groups.words(facts, stride, group.element), "stride_bytes": step}


def prove(facts: Facts, finding: Finding) -> Finding | None:
    """Where one dimension has an argument as its stride: simulated with 1, as if it were packed."""
    every = access_groups.groups(facts)
    group = next(
        (g for g in access_groups.merge_unrolled(every) if g.place[0] == finding.line), None
    )
    unit = strides.only_every(group, every) if group is not None else None
    if (
        facts.compiled is None
        or trials.predicted_us(facts) is None
        or group is None
        or unit is None
    ):
        return finding
    names = [name for name in unit.terms if unit.evaluate({name: 1}) == group.element]
    if not names:
        return finding
    change = settings(**{access_groups.author_name(facts, names[0]): 1})
    other = facts.recompiled(**change.changes)
    then = facts.estimated(other) if not isinstance(other, Unknown) else other
    packed = vectorization.same_accesses(other, group) if not isinstance(other, Unknown) else None
    if isinstance(then, Unknown) or isinstance(other, Unknown) or packed is None:
        return finding
    made = trials.Trial(change, other, then)
    before, after = {"sectors": group.cost}, {"sectors": packed.cost}
    if made.time_us is None or None in (group.cost, packed.cost):
        return finding
    shown = trials.proof(facts, made, before, after)  # type: ignore[arg-type]
    saves = {**finding.saves, **trials.saved_time(facts, made)}
    proof = replace(shown, method="simulated", change=f"{change.words} (packed)")
    return replace(finding, proof=proof, saves=saves)


# ---------------------------------------------------------------- advice


def _advice(facts: Facts, group: AccessGroup, every: Sequence[AccessGroup]) -> str:
    unit = strides.only_every(group, every)
    if unit is not None:
        return _one_dimension(facts, group, unit)
    along = _in_a_row(facts, group)
    if facts.compiled is not None:
        text = (
            "let lanes run along the dimension whose stride is 1: as the last one of the tile, "
            "with a stride that Triton knows to be 1 (of a block pointer: order=(1, 0))"
        )
        more = ", of which a program should take several" if along and "program_id" in along else ""
        return f"{text}; now {along} along it{more}" if along else text
    text = "let threadIdx.x run along the dimension whose stride is 1"
    if along:
        text = f"{text} (now {along} along it): swap the two"
    text += ", or load it straight and turn it in shared memory"
    if not access_groups.extents_known(facts):
        text += " (taken that a block has 32 threads or more in x)"
    return text


def _one_dimension(facts: Facts, group: AccessGroup, unit: AffineForm) -> str:
    """What to do where there is no other dimension: all accesses are multiples of a stride."""
    words = access_groups.words(facts, unit, group.element)
    amount = unit.evaluate(access_groups.values(facts))
    times = amount // group.element if amount is not None else None
    text = (
        f"{group.pointer} is only accessed at every {words}-th element: store what is needed "
        "packed (one channel after the other)"
    )
    if unit.terms and times is not None:
        text = text.replace("-th element", f"-th element ({times:,})")
    whole = "load the whole interleaved block contiguously, once for all channels, and split it"
    if facts.compiled is None:
        return f"{text}, or {whole} in shared memory or registers"
    if times is not None and times & (times - 1):
        return f"{text}; tl.split in registers needs a power of two, which {times:,} is not"
    return f"{text}, or {whole} in registers (tl.reshape to a last dimension of 2, tl.split)"


def _in_a_row(facts: Facts, group: AccessGroup) -> str | None:
    """What makes the address rise by one element, or one access: a loop, the block, the thread."""
    triton = facts.compiled is not None
    if group.run > 1:
        return "the accesses of one thread go"
    access = group.members[0][0]
    cfg = facts.description.cfg
    loops = [loop.header for loop in cfg.loops if access.block in loop.body]
    named = [(f"tl.program_id({n})" if triton else f"blockIdx.{axis}", LanePlace(blocks={axis: 1}))
             for n, axis in enumerate("xyz")]  # fmt: skip
    named += [(f"the loop at line {cfg.blocks[h].instructions[0].pos.line} of the PTX",
               LanePlace(iterations={h: 1}))
              for h in loops if cfg.blocks[h].instructions]  # fmt: skip
    x, y, _ = extents = access_groups.extents(facts)
    if y > 1:
        named.append(("threadIdx.y", LanePlace(x)))
    differences = lane_strides.differences(
        [access.address], extents, [LanePlace(), *(p for _, p in named)]
    )
    if differences is None:
        return None
    numbers = access_groups.values(facts)
    for (name, _), row in zip(named, differences[1:], strict=True):
        if row[0].evaluate(numbers) in (group.element, group.size):
            return f"{name} goes"
    return None


RULE = Rule(_ID, check_kernel=check_kernel, prove=prove)
