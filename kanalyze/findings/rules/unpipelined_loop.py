"""A loop that multiplies tiles loads them without software pipelining.

What it says
------------
A loop multiplies tiles (or is a tl.range with num_stages), but the loads of a tile are plain loads
(ld.global), not asynchronous copies (cp.async, TMA) that run some iterations ahead. The finding
says which load, and why: the kernel is compiled with num_stages=1, each thread's pieces are too
narrow, or the loop is a while loop.

Why it is slow
--------------
A plain load has to arrive before the product that needs it can begin, so that in each iteration
the tensor cores wait for memory. Copies of later tiles would run during the products. Plain loads
also pass through registers on their way to shared memory.

How it is detected
------------------
Loops of the PTX that hold the instructions of a `tl.dot` and ld.global from a source line which, in
TTIR, loads a tile of two dimensions or more. cp.async copies 4, 8 or 16 bytes: narrower pieces
cannot be pipelined. Loads of scalars and indices are left out. Loops without a dot are pipelined
only where tl.range asks for it.

How it is proven
----------------
With num_stages=1 the kernel is compiled again with 2 and 3; where its loads become copies and the
simulated launch is faster by 5 % and 1 us it is a warning; where it is not, nothing is reported.
Without a launch it is an info with the number of copies. Where pieces are narrow, the kernel is
compiled again with those arguments taken as divisible by 16 that stand in the address of the load,
then with those of its mask, too: those that bring the copies are named, with the number of copies
and plain loads in loops before and after; where none does, nothing is reported. It is a warning
where their values are divisible by 16 and the compiler was not told; an info where they are not
(the array would have to be padded) or not known. A while loop is a warning: it has to be rewritten
by hand.

Example
-------
    while k < K:                    # not pipelined
        acc = tl.dot(tl.load(a_ptrs), tl.load(b_ptrs), acc)
        k += BLOCK_K

    for k in range(0, K, BLOCK_K):  # pipelined with num_stages of 2 and more
        acc = tl.dot(tl.load(a_ptrs), tl.load(b_ptrs), acc)

Source
------
Triton 3.9, Pipeliner (AssignLatencies.cpp, `canBeConvertedToAsyncLoad`: width of at least 32 bits).
PTX ISA 9.0, section "Data Movement and Conversion Instructions: cp.async": cp-size 4, 8, 16.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from kanalyze.errors import Unknown
from kanalyze.findings import trials, triton_ir
from kanalyze.findings.changes import settings
from kanalyze.findings.facts import Facts
from kanalyze.findings.rule import Rule
from kanalyze.frontend.specialize import DIVISIBLE_BY_16
from kanalyze.ptx import ir
from kanalyze.results import kernel as doc
from kanalyze.results.kernel import Finding, Proof
from kanalyze.symbolic.value import leaves

_ID = "unpipelined-loop"

_LEAST = 4  # bytes that cp.async copies
_COPIES = ("async_copy", "bulk_load")
_STAGES = (2, 3)  # tried where there is one: more need more shared memory


@dataclass(frozen=True, slots=True)
class _TileLoads:
    """The loads of one source line in a loop, and the tile that they load."""

    first: ir.Instruction
    accesses: tuple[doc.Access, ...]
    tile: str

    @property
    def width(self) -> int:
        return max(a.bytes_per_thread or 0 for a in self.accesses)


def check_kernel(facts: Facts) -> Iterator[Finding]:
    """Plain loads of tiles in loops that multiply them."""
    compiled = facts.compiled
    if compiled is None or not facts.description.cfg.loops:
        return
    stages = int(compiled.metadata.get("num_stages", 1))
    asked = [int(n) for n in re.findall(r"tt\.num_stages\s*=\s*(\d+)", compiled.ttir)]
    if max([stages if "tt.dot" in compiled.ttir else 1, *asked]) < 2:
        if "tt.dot" in compiled.ttir:
            yield from _one_stage(facts)
        return
    others: list[_TileLoads] = []
    for loads in _plain_loads(facts, bool(asked)):
        if loads.width < _LEAST:
            yield _finding(facts, loads, max([stages, *asked]))
        else:
            others.append(loads)
    if others and (
        asked or triton_ir.operations(facts, "ttir", "scf.while")
    ):  # one for all of them
        every = tuple(access for loads in others for access in loads.accesses)
        tiles = " and ".join(dict.fromkeys(loads.tile for loads in others))
        yield _finding(facts, _TileLoads(others[0].first, every, tiles), max([stages, *asked]))


def _one_stage(facts: Facts) -> Iterator[Finding]:
    """All loads of tiles that num_stages=1 keeps from being copied ahead."""
    wide = [loads for loads in _plain_loads(facts, any_loop=False) if loads.width >= _LEAST]
    if not wide:
        return
    first = wide[0]
    accesses = [access for loads in wide for access in loads.accesses]
    tiles = " and ".join(dict.fromkeys(loads.tile for loads in wide))
    line, source = facts.at(first.first)
    yield Finding(
        _ID,
        "info",
        line,
        f"num_stages=1: each iteration waits for its loads of {tiles} ({len(accesses)} × "
        f"{accesses[0].opcode}) before it multiplies",
        f"compile with num_stages={_STAGES[-1]}: copies of later tiles run during the product",
        source,
        {"loads": len(accesses), "bytes_per_thread": first.width, "num_stages": 1},
    )


def _finding(facts: Facts, loads: _TileLoads, stages: int) -> Finding:
    narrow = loads.width < _LEAST
    by_while = bool(triton_ir.operations(facts, "ttir", "scf.while"))
    pointers = dict.fromkeys(a.pointer for a in loads.accesses if a.pointer is not None)
    through = f" through {' and '.join(pointers)}" if pointers else ""
    if narrow:
        why = f"a thread's pieces are {loads.width} B, and cp.async copies {_LEAST} B or more"
        advice = "make the tile's rows start at multiples of 4 bytes or more, better of 16"
    elif by_while:
        why = "the loop is a while loop"
        advice = "write it as for ... in range(...), or tl.range"
    else:
        why = "why, the compiler does not say"
        advice = "the tile's address or mask may depend on what the same iteration loads"
    line, source = facts.at(loads.first)
    return Finding(
        _ID,
        "warning" if by_while and not narrow else "info",
        line,
        f"num_stages={stages}, but the loads of a tile {loads.tile}{through} are not "
        f"pipelined ({len(loads.accesses)} × {loads.accesses[0].opcode} in the loop): {why}",
        advice,
        source,
        {"loads": len(loads.accesses), "bytes_per_thread": loads.width, "num_stages": stages},
        unproven=None if narrow else "the source would have to be changed by hand",
    )


# ---------------------------------------------------------------- which loads


def _plain_loads(facts: Facts, any_loop: bool) -> Iterator[_TileLoads]:
    tiles = _tiles(facts, any_loop)
    bodies = _loops(facts, any_loop)
    if not tiles or not bodies:
        return
    plain: dict[tuple[str, int, int], list[tuple[ir.Instruction, doc.Access]]] = defaultdict(list)
    copied = set()
    for value, access in facts.accesses():
        place = access.source
        if place is None or not any(value.block in body for body in bodies):
            continue
        key = (place.file, place.line, place.column)
        if access.kind in _COPIES:
            copied.add(key)
        elif access.kind == "load" and access.space == "global" and key in tiles:
            plain[key].append((value.instruction, access))
    for key, group in plain.items():
        if key not in copied:
            yield _TileLoads(group[0][0], tuple(access for _, access in group), tiles[key])


def _tiles(facts: Facts, any_shape: bool) -> dict[tuple[str, int, int], str]:
    """Where the source loads tiles (two dimensions or more; ``any_shape``: any), and their type."""
    tiles = {}
    for operation in triton_ir.operations(facts, "ttir", "tt.load"):
        shape = re.search(r"tensor<((?:\d+x)+)!tt\.ptr<(\w+)>>", operation.text)
        place = operation.source
        if shape is not None and place is not None and (any_shape or shape[1].count("x") > 1):
            extents = shape[1].rstrip("x")
            tiles[place.file, place.line, place.column] = f"{extents} of {shape[2]}"
    return tiles


def _loops(facts: Facts, any_loop: bool) -> list[frozenset[int]]:
    """The bodies of the innermost loops that hold instructions of a dot (``any_loop``: of all)."""
    cfg = facts.description.cfg
    places = {d.place.source for d in triton_ir.dots(facts)}
    lines = {(place.file, place.line) for place in places if place is not None}
    holding = []
    for loop in cfg.loops:
        for index in loop.body:
            if any_loop or any(_stands_at(facts, i, lines) for i in cfg.blocks[index].instructions):
                holding.append(frozenset(loop.body))
                break
    return [body for body in holding if not any(other < body for other in holding)]


def _stands_at(facts: Facts, instruction: ir.Instruction, lines: set[tuple[str, int]]) -> bool:
    base = instruction.base
    if base not in ("mma", "wgmma", "tcgen05", "fma"):
        return False
    place = facts.at(instruction)[1]
    return place is not None and (place.file, place.line) in lines


# ---------------------------------------------------------------- proof


def prove(facts: Facts, finding: Finding) -> Finding | None:
    """Compile with more stages, or with arguments divisible by 16 where pieces are too narrow."""
    if finding.numbers["num_stages"] == 1:
        return _with_stages(facts, finding)
    if finding.numbers["bytes_per_thread"] >= _LEAST:
        return finding
    before = _counts(facts)
    address, both = _candidates(facts, finding)
    for names in (address, both) if address != both else (both,):
        other = _with(facts, names)
        if other is None or not _gained(facts, other, finding):
            continue
        for name in names if len(names) > 1 else []:  # is each of them needed?
            fewer = [n for n in names if n != name]
            without = _with(facts, fewer)
            if without is not None and _gained(facts, without, finding):
                names, other = fewer, without
        return _told(facts, finding, names, before, _counts(other))
    if both:
        return None  # wider pieces would not be pipelined either: no dot needs them
    return replace(finding, unproven="no argument is known that would make them wider")


def _with_stages(facts: Facts, finding: Finding) -> Finding | None:
    """Two and three stages: a warning where one is faster, an info where no time is known."""
    before = _counts(facts)
    better = [
        t
        for t in trials.run(
            facts,
            [settings(num_stages=n) for n in _STAGES],
            lambda then: _counts(then)["copies"] > before["copies"],
        )
        if trials.faster(facts, t) is not False
    ]
    if not better:
        return None
    best = trials.fastest(better) or better[-1]
    known = trials.faster(facts, best)
    return replace(
        finding,
        severity="warning" if known else "info",
        advice=f"compile with {best.words}: copies of later tiles run during the product",
        proof=trials.proof(facts, best, before, _counts(best.facts)),
        saves=trials.saved_time(facts, best),
    )


def _candidates(facts: Facts, finding: Finding) -> tuple[list[str], list[str]]:
    """Arguments in the address of the loads that may be divisible by 16, and with the mask's."""
    compiled = facts.compiled
    if compiled is None:
        return [], []
    open_ = [
        name
        for name, kind in compiled.signature.items()
        if kind.startswith(("*", "i", "u")) and name not in compiled.specialization
    ]
    used: list[set[str]] = [set(), set()]
    for value, access in facts.accesses():
        if access.source == finding.source and access.kind == "load":
            for part, node in enumerate((value.address, value.condition)):
                nodes = leaves(node, "param") if node is not None else []
                names = [
                    facts.arguments[n.payload[0]] for n in nodes if n.payload[0] in facts.arguments
                ]
                used[part] |= {argument.name for argument in names}
    return [n for n in open_ if n in used[0]], [n for n in open_ if n in used[0] | used[1]]


def _with(facts: Facts, names: list[str]) -> Facts | None:
    if not names:
        return None
    other = facts.recompiled(facts=dict.fromkeys(names, DIVISIBLE_BY_16))
    return None if isinstance(other, Unknown) else other


def _gained(facts: Facts, other: Facts, finding: Finding) -> bool:
    more = _counts(other)["copies"] > _counts(facts)["copies"]
    return more and not _still(other, finding)


def _told(
    facts: Facts,
    finding: Finding,
    names: list[str],
    before: dict[str, float],
    after: dict[str, float],
) -> Finding:
    values = facts.compiled.arguments if facts.compiled is not None else {}
    numbers = {n: v for n in names if isinstance(v := values.get(n), int)}
    odd = {name: value for name, value in numbers.items() if value % 16}
    shown = ", ".join(names)
    if odd:
        said = ", ".join(f"{name} is {value:,}" for name, value in odd.items())
        advice = f"pad to multiples of 16: {said}"
    else:
        advice = f"let the compiler know that {shown} can be divided by 16 (no do_not_specialize)"
    return replace(
        finding,
        severity="warning" if len(numbers) == len(names) and not odd else "info",
        advice=advice,
        proof=Proof("recompiled", f"{shown} divisible by 16", before, after),
    )


def _still(facts: Facts, finding: Finding) -> bool:
    """Whether the same source line still has plain loads."""
    return any(
        facts.at(loads.first)[1] == finding.source for loads in _plain_loads(facts, any_loop=False)
    )


def _counts(facts: Facts) -> dict[str, float]:
    in_loops = Counter(
        "copies" if access.kind in _COPIES else "loads"
        for _, access in facts.accesses()
        if access.loop_depth
        and (access.kind in _COPIES or (access.kind, access.space) == ("load", "global"))
    )
    return {"loads": in_loops["loads"], "copies": in_loops["copies"]}


RULE = Rule(_ID, check_kernel=check_kernel, prove=prove)
