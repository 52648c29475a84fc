"""Loads or stores that could be wider, and the fact that is missing for it.

What it says
------------
A thread moves less than 16 bytes with each instruction although what it moves, or what its warp
moves, is contiguous. The finding says which fact the compiler lacks: that an argument (a pointer, a
stride, the bound of a mask) is divisible by 16; that a stride is 1; that a pointer of CUDA C++ is
aligned to more than its element; or that a thread has too few elements to begin with (or a block
fewer elements than threads, so that several threads do the same), or a tile is transposed on its
way into shared memory. It also names hints of the source (tl.multiple_of,
tl.max_contiguous) that change no access.

Why it is slow
--------------
Each instruction costs an issue slot and a pass through the load/store unit, whatever its width:
four loads of 4 bytes take four of them, one of 16 bytes takes one. With less than 4 bytes per
thread a warp asks for less than the 128 bytes of a line, and too few bytes are under way.
Where the narrow accesses of one thread are contiguous, each of them also touches every
sector that the wide one would: the same sectors are asked for again and again.

How it is detected
------------------
Global loads, stores and cp.async of less than 16 bytes are grouped by pointer and source line.
Their addresses are compared between lanes and between the instructions of one thread: they lie in a
row if neighbouring lanes, or the accesses of one thread, follow each other without a gap. Small
parts of what a kernel moves (under 5 % of the requests of a launch) are passed over. It is a
warning where the fact can be true, and the accesses have 4 bytes or less; else it is worth knowing.

How it is proven
----------------
The kernel is compiled again with the fact added, first with all that are missing, then with as few
as make the same difference; then with hints in the source instead, if they do it (tl.multiple_of
around the product in the address, tl.max_constancy around the mask). For too few elements it is
compiled with fewer warps or a larger block; without a hint to see whether it did anything. Of PTX
alone nothing can be compiled.

Example
-------
    kernel[grid](x[1:], y, n)            # x[1:] is not aligned to 16 bytes: 8 loads of 4 B
    tl.load(x + offs, mask=offs < n)     # n = 1000003: the mask may end anywhere

    float4 v = reinterpret_cast<const float4*>(p)[i];   // CUDA C++: a float* is 4-byte aligned

Source
------
CUDA C++ Programming Guide 13.1, section "Device Memory Accesses" (size and alignment requirement);
PTX ISA 9.0, section 6.4.1; Triton, include/triton/Analysis/AxisInfo.h (divisibility, contiguity).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from kanalyze.findings import access_groups, hint_insertion, hint_removal, replicas, vectorization
from kanalyze.findings.access_groups import AccessGroup
from kanalyze.findings.facts import NO_SOURCE, Facts
from kanalyze.findings.rule import Rule
from kanalyze.findings.vectorization import DIVISIBLE, ONE, WIDEST
from kanalyze.models import lane_strides
from kanalyze.results.kernel import Finding, Proof
from kanalyze.symbolic.value import leaves

_ID = "narrow-access"
_WORD = 4  # bytes per thread below which a warp asks for less than a line
_LEAST_LANES = 8
_TYPES = {1: "uint4", 2: "uint4", 4: "float4", 8: "double2"}  # of 16 bytes, by size of an element


def check_kernel(facts: Facts) -> Iterator[Finding]:
    """Global accesses that could be wider."""
    every = access_groups.groups(facts)
    significant = [g for g in every if access_groups.significant(g, every)]
    narrow = [group for group in significant if group.size < WIDEST and _most_lanes(group)]
    findings = [f for group in narrow if (f := _of_group(facts, group)) is not None]
    few = [group for group in narrow if _has_few(facts, group)] if not _scatters(facts) else []
    if few and replicas.of_kernel(facts) > 1:
        findings.append(_replicated(facts, few))
    elif few:
        findings.append(_few(facts, few))
    if facts.compiled is None:
        findings += _in_one_thread(facts, narrow, {f.line for f in findings})
    yield from findings
    if findings and facts.compiled is not None:
        pointers = ", ".join(sorted({str(f.numbers["pointer"]) for f in findings}))
        yield from hint_removal.check(facts, _ID, pointers)


def _most_lanes(group: AccessGroup) -> bool:
    """Whether a quarter of the lanes take part: others have nothing contiguous to access."""
    if group.requests is None or group.threads is None:
        return True
    return group.threads >= _LEAST_LANES * group.requests > 0


def prove(facts: Facts, finding: Finding) -> Finding | None:
    """Compile the kernel with the facts, with a larger share per thread, or without the hint."""
    if facts.compiled is None:
        return finding
    if "hint" in finding.numbers:
        return hint_removal.prove(facts, finding)
    group = next((g for g in access_groups.groups(facts) if g.place[0] == finding.line), None)
    if group is None:
        return finding
    if {"offset_bytes", "shared_stride_bytes"} & finding.numbers.keys():
        return finding
    if "threads_per_element" in finding.numbers:
        return replicas.prove(facts, finding, group)
    if "elements_per_thread" in finding.numbers:
        return vectorization.with_more(facts, finding, group)
    proven = vectorization.with_facts(facts, finding, group)
    if proven is None or proven.numbers["fact"] == ONE:
        return proven
    by_name = {access_groups.author_name(facts, p.name): p.name for p in facts.function.parameters}
    missing = [by_name[name] for name in str(proven.numbers["missing"]).split(", ")]
    wide = int(proven.numbers["possible_bytes_per_thread"])
    hinted = None
    if not vectorization.untrue(group, missing):
        hinted = hint_insertion.fewest_hints(facts, group, missing, wide)
    if hinted is not None:
        proven = replace(proven, proof=vectorization.proof(group, hinted.then, hinted.words))
    only_mask = hinted is not None and hinted.only_masks
    return replace(
        proven,
        severity=_severity(group, missing),
        message=_could(group, wide) + f": {vectorization.roles(group, missing, only_mask)}",
        advice=vectorization.advice(group, missing, hinted.placed if hinted is not None else ""),
    )


# ---------------------------------------------------------------- several elements per thread


def _of_group(facts: Facts, group: AccessGroup) -> Finding | None:
    """Accesses of one source line, of which lanes or those of a thread are contiguous."""
    stride = group.stride
    if stride is None:
        return None
    wide = _rounded(min(WIDEST, group.size * len(group.members)))
    if stride.terms and group.stride_bytes in (None, group.size):
        return _strided(facts, group, wide)
    if not _in_a_row(group) or wide <= group.size:
        return None
    if facts.compiled is None and group.run > 1 and _alike_conditions(group):
        return None  # see _in_one_thread
    if (turned := _turned(group)) is not None:
        return turned
    missing = vectorization.missing(facts, group)
    if not missing:
        return _shifted(group, wide)
    if facts.compiled is not None:
        message = f"{_could(group, wide)}: {vectorization.roles(group, missing)}"
        severity = _severity(group, missing)
        return _finding(
            group, severity, message, vectorization.advice(group, missing), wide, missing
        )
    known = access_groups.alignment(group, numbers={})
    if known is not None and known[0] <= group.size:
        return None  # whatever the arguments are; misaligned-access says it of a launch
    false = list(vectorization.untrue(group, missing))
    names = ", ".join(access_groups.author_name(facts, name) for name in false or missing)
    message = f"{_could(group, wide)}, as its lanes are contiguous, if {names} were divisible by 16"
    if not false and set(missing) <= access_groups.values(facts).keys():
        message = (
            f"{_could(group, wide)}, as its lanes are contiguous: {names} are multiples of "
            f"{vectorization.multiple(group.element)} in this launch, and the code does not rely "
            "on it"
        )
    wide_type = _TYPES.get(group.element, "a type of 16 bytes")
    advice = (
        f"compile it for {names} divisible by 16, if that is so: Triton sees it at launch in "
        f"aligned tensors and multiples of 16, and :16 in a signature says it; in CUDA C++ access "
        f"{wide_type}"
    )
    if false:
        advice = vectorization.advice(group, false)
    severity = "warning" if group.size < _WORD and not false else "info"
    return _finding(group, severity, message, advice, wide, false or missing)


def _turned(group: AccessGroup) -> Finding | None:
    """A copy to shared memory whose elements are contiguous in global memory, but not there."""
    access = group.members[0][0]
    if group.kind != "async_copy" or access.shared is None:
        return None
    lanes = lane_strides.of_lanes(access.shared, access_groups.extents(group.facts))
    step = lanes.stride if lanes is not None else None
    if step is None or step.terms or step.number in (group.size, group.size * group.run):
        return None
    message = (
        f"{len(group.members)} {group.noun} of {group.size} B through {group.pointer}: what is "
        f"contiguous there is put {abs(step.number):,} B apart in shared memory, so that no copy "
        "can be wider: the tile is transposed on the way"
    )
    advice = (
        f"store what {group.pointer} points to transposed, or use 16-bit elements (tensor "
        "cores read those in both orders; tf32 and 8-bit operands only with K contiguous)"
    )
    finding = _finding(group, "info", message, advice, group.size, [])
    numbers = {**finding.numbers, "shared_stride_bytes": step.number}
    return replace(finding, numbers=numbers, unproven="it takes another array")


def _shifted(group: AccessGroup, wide: int) -> Finding | None:
    """A number is added to the address that is not a multiple of a wide access."""
    first = lane_strides.start(group.members[0][0].address, access_groups.extents(group.facts))
    if first is None or first.number % WIDEST == 0:
        return None
    offset = f"{first.number // group.element:,} elements"
    message = f"{_could(group, wide)}: an offset of {offset} ({first.number:,} B) is added"
    each = WIDEST // group.element
    advice = (
        f"let the offset be a multiple of {each} elements, or access the block from the multiple "
        "before it on and shift what was loaded"
    )
    severity = "warning" if group.size <= _WORD else "info"
    finding = _finding(group, severity, message, advice, wide, [])
    finding = replace(finding, numbers={**finding.numbers, "offset_bytes": first.number})
    return _counted(group, wide, finding)


def _in_a_row(group: AccessGroup) -> bool:
    """Lanes follow each other without a gap, or each after the accesses of the one before."""
    return group.stride_bytes in (group.size, group.size * group.run)


def _severity(group: AccessGroup, missing: Sequence[str]) -> str:
    wasteful = group.size <= _WORD and not vectorization.untrue(group, missing)
    return "warning" if wasteful else "info"


def _strided(facts: Facts, group: AccessGroup, wide: int) -> Finding | None:
    """Lanes a symbolic stride apart: wide only if that stride is known to be 1."""
    stride, size = group.stride, group.size
    assert stride is not None
    name = group.unit
    if name is None or group.run > 1 or wide <= size:
        return None
    shown = access_groups.author_name(facts, name)
    ideal, apart = group.sectors(size), len(group.lanes.forms) if group.lanes else 0
    if group.stride_bytes is None:
        rest = (
            f" if {shown}, by which its lanes are apart, were known to be 1; with a large {shown} "
            f"each lane is in a sector of its own: {apart} per request where {ideal} would do"
        )
    else:
        rest = f": {shown}, by which its lanes are apart, is 1, and the compiler does not know it"
    advice = (
        f"pass {shown} = 1 where it is (Triton compiles that in, unless the argument is under "
        "do_not_specialize), or make it a constexpr; where it is not 1, let the lanes run along "
        "the dimension whose stride is"
    )
    severity = "warning" if facts.compiled is not None else "info"
    finding = _finding(group, severity, _could(group, wide) + rest, advice, wide, [name])
    numbers = {**finding.numbers, "fact": ONE, "sectors_apart": apart, "sectors_ideal": ideal}
    return replace(finding, numbers=numbers)


# ---------------------------------------------------------------- few elements per thread


def _has_few(facts: Facts, group: AccessGroup) -> bool:
    """Whether a thread has no more than one narrow access of what its block moves contiguously."""
    if group.stride_bytes != group.size or len(group.members) != 1:
        return False
    if facts.compiled is not None:
        return True
    # One word per thread is the usual kernel of CUDA C++; a loop may give a thread more.
    return group.size < _WORD and not group.first.loop_depth


def _scatters(facts: Facts) -> bool:
    """Whether each element goes to an atomic at a loaded index, which costs more than its load."""
    return any(
        row.kind in ("atomic", "reduction") and row.space in ("global", "generic")
        and (leaves(access.address, "load") or access.reasons)
        for access, row in facts.accesses()
    )  # fmt: skip


def _few(facts: Facts, groups: Sequence[AccessGroup]) -> Finding:
    """A thread has less than 16 bytes of what its block moves."""
    group = groups[0]
    size, element = group.size, group.element
    each = max(1, size // element)
    pointers = list(dict.fromkeys(g.pointer for g in groups))
    extents = facts.kernel.reqntid
    threads = 1
    for extent in extents or ():
        threads *= extent
    block = f"{threads} threads are" if extents else "the block is"
    message = (
        f"accesses of {size} B through {', '.join(pointers)}: a thread has "
        f"{each} element{'s' if each > 1 else ''} of {element} B, where one access takes "
        f"{WIDEST} B: {block} too many for the elements of a block"
    )
    if not extents:
        message = message.replace("the block is too many", "there are too many threads")
    times = WIDEST // size
    advice = (
        f"give each thread {WIDEST // element} elements: a block of {times} times as many "
        f"elements, or {times} times fewer warps"
    )
    if facts.of_nvcc:
        advice = (
            f"give each thread {WIDEST // element} elements, as one "
            f"{_TYPES.get(element, 'type of 16 bytes')}, and start {times} times fewer threads"
        )
    severity = "warning" if size < _WORD else "info"
    finding = _finding(group, severity, message, advice, WIDEST, [])
    accesses = sum(len(g.members) for g in groups)
    numbers = {**finding.numbers, "pointer": ", ".join(pointers), "accesses": accesses}
    return replace(finding, numbers={**numbers, "elements_per_thread": each})


def _replicated(facts: Facts, groups: Sequence[AccessGroup]) -> Finding:
    """A block has fewer elements than threads: several threads access the same one."""
    message, advice, numbers = replicas.describe(facts, groups)
    severity = "warning" if facts.compiled is not None else "info"
    finding = _finding(groups[0], severity, message, advice, WIDEST, [])
    return replace(finding, numbers={**finding.numbers, **numbers})


# ---------------------------------------------------------------- consecutive in one thread


def _alike_conditions(group: AccessGroup) -> bool:
    return len({id(access.condition) for access, _ in group.members}) == 1


def _in_one_thread(
    facts: Facts, narrow: Sequence[AccessGroup], said: set[int]
) -> Iterator[Finding]:
    """Contiguous accesses of one thread, wherever they stand in a block of the code."""
    beside: dict[tuple[object, ...], list[AccessGroup]] = {}
    for group in narrow:
        access, row = group.members[0]
        if row.line not in said and _alike_conditions(group):
            key = (group.kind, group.pointer, group.size, access.block, access.condition)
            beside.setdefault(key, []).append(group)
    groups = [
        access_groups.merged(parts) if len(parts) > 1 else parts[0] for parts in beside.values()
    ]
    for group in access_groups.merge_unrolled([group for group in groups if group.run > 1]):
        aligned, args = access_groups.alignment(group) or (1, {})
        wide = min(WIDEST, _rounded(group.size * group.run), aligned)
        if wide > group.size and group.stride is not None:
            yield _behind(group, wide, [a for a, c in args.items() if c % wide])


def _behind(group: AccessGroup, wide: int, needed: Sequence[str]) -> Finding:
    size, run, step = group.size, group.run, group.stride_bytes
    then = -(-run * size // wide)
    now = group.sectors()
    lanes = f"; lanes are {step} B apart, {now} sectors per request" if step and now else ""
    names = ", ".join(access_groups.author_name(group.facts, name) for name in needed)
    only = f", if {names} {'is' if len(needed) == 1 else 'are'} a multiple of 4" if needed else ""
    only = only.replace("4", str(wide // size))
    message = (
        f"{len(group.members)} {group.noun} of {size} B through {group.pointer}, {run} of them "
        f"contiguous in a thread ({run * size} B): {then} of {wide} B would do{only}{lanes}"
    )
    type_ = _TYPES.get(group.element, "a wider type") if wide == WIDEST else "a wider type"
    advice = (
        f"access {type_}, or a struct with __align__({wide}): a pointer to elements of "
        f"{group.element} B is only known to be aligned to {group.element} B (what cudaMalloc "
        "returns is, to 256)"
    )
    # Lanes at one address (stride 0) cost a sector each time, however narrow they are.
    severity = "warning" if wide >= 4 * size and not needed and step != 0 else "info"
    finding = _finding(group, severity, message, advice, wide, needed)
    finding = replace(finding, numbers={**finding.numbers, "run": run})
    return _counted(group, wide, finding)


def _counted(group: AccessGroup, wide: int, finding: Finding) -> Finding:
    """The proof by counting: requests and sectors of a thread's accesses, as they are and wide."""
    now, step, count = group.sectors(), group.stride_bytes, len(group.members)
    if now is None or group.offsets is None:
        return replace(finding, unproven="how the lanes lie depends on arguments")
    then = -(-count * group.size // wide)
    in_a_row = [offset // group.size * wide for offset in group.offsets]
    wider = access_groups.sectors_of(in_a_row if step == group.size else group.offsets, wide)
    proof = Proof(
        "counted", f"accesses of {wide} B",
        {"requests": count, "sectors": count * now}, {"requests": then, "sectors": then * wider},
    )  # fmt: skip
    numbers = {**finding.numbers, "lane_stride_bytes": step, "sectors_per_request": now}
    return replace(finding, numbers=numbers, proof=proof, unproven=None)


# ---------------------------------------------------------------- words


def _could(group: AccessGroup, wide: int) -> str:
    times = -(-len(group.members) * group.size // wide)
    return (
        f"{len(group.members)} {group.noun} of {group.size} B through {group.pointer} could be "
        f"{times} of {wide} B"
    )


def _finding(
    group: AccessGroup, severity: str, message: str, advice: str, wide: int, missing: Sequence[str]
) -> Finding:
    line, source = group.place
    named = ", ".join(access_groups.author_name(group.facts, name) for name in missing)
    return Finding(
        _ID, severity, line, message, advice, source,
        {"pointer": group.pointer, "accesses": len(group.members), "bytes_per_thread": group.size,
         "possible_bytes_per_thread": wide, "missing": named or None, "fact": DIVISIBLE},
        unproven=NO_SOURCE if group.facts.compiled is None else None,
    )  # fmt: skip


def _rounded(size: int) -> int:
    """The greatest power of two not above a size."""
    return 1 << (size.bit_length() - 1)


RULE = Rule(_ID, check_kernel=check_kernel, prove=prove)
