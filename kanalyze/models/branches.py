"""Divergent branches: whether the threads of a warp may part at a conditional branch.

What: for each conditional branch, by its condition: ``divergent`` (it can differ within a warp),
``warp`` (the same for all threads of a warp), ``block`` (the same for all threads of a block), or
``unknown`` (it depends on data, or on something that is not followed), with the reason.
Formula: constants, parameters, block indices and iteration numbers are the same for a block; thread
index and lane differ between lanes; whatever depends on the thread index alone is computed for
every thread of a block and compared within each warp (``tid.x >> 5``, ``tid.x < 64``); with terms
added that are the same for the warp and multiples of 32, what drops the low five bits, or compares
with a multiple of 32, still is.
Source: PTX ISA, "Special Registers" and "Control Flow Instructions: bra" (``.uni``); warps are 32
threads of consecutive linear index.
Limits: ``divergent`` says that the condition can differ, not that it does in a given launch;
iteration numbers are taken per trip around the loop, as threads that left a loop no longer branch;
where the PTX does not say the extents of the block (``.reqntid``), its x extent is taken to be a
multiple of 32; indexed branches (``brx``) and guarded ``ret``, ``exit`` and ``trap`` are not
followed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kanalyze.ptx import ir
from kanalyze.ptx.cfg import Cfg
from kanalyze.ptx.instructions import is_terminator
from kanalyze.symbolic.arithmetic import Array
from kanalyze.symbolic.loops import SolvedLoops
from kanalyze.symbolic.ptx_transfer import warp_uniform
from kanalyze.symbolic.value import Value, evaluate_op, in_order, unknown_reasons

DIVERGENT, WARP, BLOCK, UNKNOWN = "divergent", "warp", "block", "unknown"
KINDS = (DIVERGENT, WARP, BLOCK, UNKNOWN)

Extents = tuple[int, int, int]
_LARGEST_BLOCK = 1024
_WARP = 32


@dataclass(frozen=True, slots=True)
class Branch:
    """A conditional branch: the last instruction of block ``block``.

    ``condition`` is the value of the predicate with which the branch is taken, None where it is not
    followed. ``depends_on`` names what it is computed from: ``%tid.x``, parameters, ``loop NAME``
    for an iteration number.
    """

    block: int
    instruction: ir.Instruction
    kind: str
    reason: str
    condition: Value | None
    depends_on: tuple[str, ...]


def branches(cfg: Cfg, solved: SolvedLoops, extents: Extents | None = None) -> tuple[Branch, ...]:
    """Sort the conditional branches of a function, in the order of its blocks.

    Args:
        cfg: the control-flow graph.
        solved: its branch conditions (`kanalyze.symbolic.loops.solve`).
        extents: threads of a block along x, y and z, where the PTX says them.
    """
    if extents is not None and not 0 < extents[0] * extents[1] * extents[2] <= _LARGEST_BLOCK:
        extents = None
    threads = _threads(extents)
    reached = set(cfg.order)
    listed: list[Branch] = []
    for block in cfg.blocks:
        last = block.instructions[-1] if block.instructions else None
        if last is None or block.index not in reached or not is_terminator(last):
            continue
        if last.base == "brx":
            reason = "an indexed branch, which is not followed"
            listed.append(Branch(block.index, last, UNKNOWN, reason, None, ()))
        elif last.guard is not None:
            condition = solved.registers.conditions.get(block.index)
            if condition is not None:
                (condition,) = solved.resolve([condition], block.index)
            listed.append(_branch(cfg, block.index, last, condition, threads, extents))
    return tuple(listed)


def _branch(
    cfg: Cfg,
    block: int,
    instruction: ir.Instruction,
    condition: Value | None,
    threads: Mapping[str, Array],
    extents: Extents | None,
) -> Branch:
    if condition is None:
        reason = f"the condition of a predicated {instruction.base} is not followed"
        return Branch(block, instruction, UNKNOWN, reason, None, ())
    kind, reason = _kind(condition, threads, extents)
    if kind in (DIVERGENT, UNKNOWN) and "uni" in instruction.parts:
        kind, reason = WARP, "the PTX says so (.uni)"
    return Branch(block, instruction, kind, reason, condition, tuple(_names(cfg, condition)))


def _kind(
    condition: Value, threads: Mapping[str, Array], extents: Extents | None
) -> tuple[str, str]:
    number = condition.unsigned
    if number is not None:
        return BLOCK, f"always {'taken' if number else 'not taken'}"
    level, reason = _level(condition, threads)
    whole_warps = extents is None or extents[0] % _WARP == 0 or extents[1:] == (1, 1)
    if level > _SAME_IN_WARP and whole_warps and warp_uniform(condition):
        level, reason = _SAME_IN_WARP, None
    if level == _NOT_KNOWN:
        return UNKNOWN, reason or "its condition is not known"
    of = ", ".join(sorted({str(n.payload) for n in in_order([condition]) if _by_lane(n)}))
    if level == _BY_LANE:
        return DIVERGENT, f"differs between lanes by {of}"
    assumed = "" if extents is not None else " (x extent of the block: a multiple of 32)"
    if level == _SAME_IN_WARP:
        return WARP, f"depends on {of} by warp only{assumed}" if of else "differs by warp only"
    return BLOCK, f"the same for every {of}{assumed}" if of else "does not depend on the thread"


def _names(cfg: Cfg, condition: Value) -> list[str]:
    """What a condition is computed from, in the order of first use."""
    names: list[str] = []
    for node in in_order([condition]):
        match node.op:
            case "special":
                names.append(f"%{node.payload}")
            case "param" | "address":
                names.append(node.payload if node.op == "address" else node.payload[0])
            case "iter":
                names.append(f"loop {cfg.blocks[node.payload].name}")
    return list(dict.fromkeys(names))


# ---------------------------------------------------------------- how far a value is the same

_SAME_IN_BLOCK, _SAME_IN_WARP, _BY_LANE, _NOT_KNOWN = range(4)

#: Special registers whose number is not known before the launch, but who shares it.
_SHARED = {
    **dict.fromkeys(("%nwarpid", "%smid", "%nsmid", "%gridid", "%is_explicit_cluster",
                     "%total_smem_size", "%aggr_smem_size", "%dynamic_smem_size",
                     "%current_graph_exec"), _SAME_IN_BLOCK),
    "%warpid": _SAME_IN_WARP,
    **{f"%lanemask_{order}": _BY_LANE for order in ("eq", "le", "lt", "ge", "gt")},
}  # fmt: skip
_LANE_SPECIALS = ("tid.", "laneid", "elected")


def _threads(extents: Extents | None) -> dict[str, Array]:
    """The special registers of all threads of a block, as far as they are known."""
    if extents is None:
        x = np.arange(_LARGEST_BLOCK, dtype=np.uint64)
        return {"tid.x": x, "laneid": x % np.uint64(_WARP)}
    x_extent, y_extent, z_extent = (np.uint64(extent) for extent in extents)
    linear = np.arange(extents[0] * extents[1] * extents[2], dtype=np.uint64)
    ones = np.ones_like(linear)
    return {
        "tid.x": linear % x_extent,
        "tid.y": linear // x_extent % y_extent,
        "tid.z": linear // x_extent // y_extent,
        "laneid": linear % np.uint64(_WARP),
        "ntid.x": x_extent * ones,
        "ntid.y": y_extent * ones,
        "ntid.z": z_extent * ones,
    }


def _by_lane(node: Value) -> bool:
    return node.op == "special" and str(node.payload).startswith(_LANE_SPECIALS)


@dataclass(frozen=True, slots=True)
class _Fact:
    """What is known of a node.

    ``lanes`` are its numbers by thread, where it depends on the thread alone; ``in_warps`` tells
    that the value without its low five bits is the same for a warp, ``aligned`` that these bits
    are 0 (and the value the same for a warp).
    """

    level: int
    lanes: Array | None = None
    in_warps: bool = False
    aligned: bool = False


def _level(value: Value, threads: Mapping[str, Array]) -> tuple[int, str | None]:
    """How far ``value`` is the same, and why that is not known."""
    facts: dict[Value, _Fact] = {}
    for node in in_order([value]):
        facts[node] = _of_node(node, [facts[arg] for arg in node.args], threads)
    level = facts[value].level
    if level < _NOT_KNOWN:
        return level, None
    hidden = (n for n in in_order([value]) if n.op in ("unknown", "phi", "load"))
    reasons = [r for n in hidden if facts[n].level == _NOT_KNOWN for r in _reasons(n)]
    return level, reasons[0] if reasons else None


def _reasons(node: Value) -> list[str]:
    return unknown_reasons(node) or ["carried around a loop in a way that is not followed"]


def _of_node(node: Value, args: list[_Fact], threads: Mapping[str, Array]) -> _Fact:
    if not node.args:
        return _of_leaf(node, threads)
    level = max(fact.level for fact in args)
    if node.op == "load":
        return _Fact(_NOT_KNOWN if unknown_reasons(node) else level, None, level <= _SAME_IN_WARP)
    parts = [fact.lanes for fact in args]
    lanes = [part for part in parts if part is not None]
    if len(lanes) == len(parts):
        return _of_lanes(evaluate_op(node.op, node.bits, node.args, _alike(lanes)))
    if level == _BY_LANE and _drops_low_bits(node, args):
        level = _SAME_IN_WARP
    return _Fact(level, None, level <= _SAME_IN_WARP or _in_warps(node, args),
                 level <= _SAME_IN_WARP and _aligned(node, args))  # fmt: skip


def _alike(lanes: list[Array]) -> list[Array]:
    return [np.asarray(each, np.uint64) for each in np.broadcast_arrays(*lanes)]


def _of_lanes(lanes: Array) -> _Fact:
    """The fact of a value that depends on the thread alone."""
    low = np.uint64(_WARP - 1)
    if (lanes == lanes[0]).all():
        return _Fact(_SAME_IN_BLOCK, lanes, True, not int(lanes[0] & low))
    same = _same_in_warps(lanes)
    aligned = same and not (lanes & low).any()
    level = _SAME_IN_WARP if same else _BY_LANE
    return _Fact(level, lanes, _same_in_warps(lanes >> np.uint64(5)), aligned)


def _same_in_warps(lanes: Array) -> bool:
    return all((lanes[at : at + _WARP] == lanes[at]).all() for at in range(0, len(lanes), _WARP))


def _of_leaf(node: Value, threads: Mapping[str, Array]) -> _Fact:
    match node.op:
        case "const":
            return _of_lanes(np.asarray([node.payload], np.uint64))
        case "param" | "iter" | "address":
            return _Fact(_SAME_IN_BLOCK, None, True)
        case "special":
            lanes = threads.get(node.payload)
            if lanes is not None:
                return _of_lanes(lanes)
            level = _BY_LANE if _by_lane(node) else _SAME_IN_BLOCK
            return _Fact(level, None, level == _SAME_IN_BLOCK)
        case "unknown":
            register = _register_of(node)
            known = _SAME_IN_BLOCK if register.startswith("%envreg") else _NOT_KNOWN
            level = _SHARED.get(register, known)
            return _Fact(level, None, level <= _SAME_IN_WARP)
        case _:
            return _Fact(_NOT_KNOWN)


def _register_of(node: Value) -> str:
    """The special register that an unknown value is the number of, if it is one."""
    key: Any = node.payload[0]
    first = key[0] if isinstance(key, tuple) and key else None
    return first.partition(".")[0] if isinstance(first, str) else ""


# ---------------------------------------------------------------- terms that differ by lane


def _drops_low_bits(node: Value, args: list[_Fact]) -> bool:
    """Whether an operation on a value that differs by lane gives one that does not."""
    first = args[0]
    number = node.args[-1].unsigned
    match node.op:
        case "shru" | "shrs":
            return first.in_warps and number is not None and number >= 5
        case "and":
            return first.in_warps and number is not None and not number & (_WARP - 1)
        case "divu":
            return first.in_warps and number is not None and number > 0 and number % _WARP == 0
        case "lts" | "ltu":  # x < 32·k
            return first.in_warps and args[1].aligned
        case "les" | "leu":  # 32·k <= x
            return args[1].in_warps and first.aligned
    return False


def _in_warps(node: Value, args: list[_Fact]) -> bool:
    """Whether the value without its low five bits is the same for a warp."""
    match node.op:
        case "add":
            return all(a.in_warps for a in args) and any(a.aligned for a in args)
        case "sub":
            return args[0].in_warps and args[1].aligned
        case "and" | "or" | "xor" | "zext" | "sext":
            return all(a.in_warps for a in args)
        case "trunc":
            return args[0].in_warps and node.bits > 5
    return False


def _aligned(node: Value, args: list[_Fact]) -> bool:
    """Whether the low five bits of the result are 0."""
    match node.op:
        case "mul" | "and":
            return any(a.aligned for a in args)
        case "add" | "sub" | "or" | "xor":
            return all(a.aligned for a in args)
        case "shl":
            number = node.args[1].unsigned
            return args[0].aligned or (number is not None and number >= 5)
        case "zext" | "sext" | "trunc":
            return args[0].aligned
    return False
