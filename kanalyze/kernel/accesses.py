"""The memory accesses of a kernel, as the rows of its document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kanalyze.counting.ptx_launch import KernelLaunch
from kanalyze.frontend.argument import Argument
from kanalyze.kernel.evaluate import EvaluatedKernel
from kanalyze.kernel.naming import Notation
from kanalyze.kernel.sources import SourceLines
from kanalyze.models import stages
from kanalyze.models.warp_patterns import (
    MATRIX_ROW,
    WARP,
    FirstWarp,
    WarpPattern,
    warp_pattern,
)
from kanalyze.results import kernel as doc
from kanalyze.symbolic.accesses import AccessValue
from kanalyze.symbolic.descriptors import descriptor_of
from kanalyze.symbolic.readable import TOO_LONG
from kanalyze.symbolic.value import Value, leaves, unknown_reasons

_COPIES = ("async_copy", "bulk_load")


def pipeline_stages(
    code: EvaluatedKernel, notation: Notation
) -> tuple[tuple[str, int] | None, ...]:
    """Of each access: whether it is a pipelined loop's prologue or steady part, and of which loop.

    See `kanalyze.models.stages`: the copies of one source place through one pointer belong
    together.
    """

    def origin(access: AccessValue) -> tuple[object, ...] | None:
        loc = access.instruction.loc
        if loc is None or access.row.kind not in _COPIES:
            return None
        return loc.file, loc.line, loc.column, notation.base(access.address)

    copies = [stages.Copy(a.block, origin(a)) for a in code.addresses.accesses]
    return tuple(stages.stages(code.cfg, copies))


def access_rows(
    code: EvaluatedKernel,
    notation: Notation,
    arguments: Mapping[str, Argument],
    lines: SourceLines,
    staged: Sequence[tuple[str, int] | None],
    threads: tuple[int, int, int] | None,
    launched: KernelLaunch | None,
) -> tuple[tuple[doc.Access, ...], list[doc.UnknownField]]:
    """The rows in source order, and the addresses that are not known.

    Args:
        code: the kernel.
        notation: how its values are shown.
        arguments: PTX parameter name to what else is known of it.
        lines: its source lines.
        staged: see `pipeline_stages`.
        threads: the extents of a block, where they are fixed.
        launched: the kernel in a launch, with which each access is counted.
    """
    values = {name: a.value for name, a in arguments.items() if a.value is not None}
    warp = FirstWarp(threads, values) if threads is not None else None
    rows: list[doc.Access] = []
    unknown = []
    waiting = {loop.header for loop in code.cfg.loops if stages.waits_for_all(code.cfg, loop)}
    for access, stage in zip(code.addresses.accesses, staged, strict=True):
        row, instruction = access.row, access.instruction
        address, reason = _address(access, notation)
        if reason is not None:
            unknown.append(doc.UnknownField(f"accesses[{len(rows)}].address", reason))
        when = _when(code, access)
        condition = notation.reader.condition(when) if when is not None else None
        pattern = _pattern(access, warp)
        counted = launched.transactions(access).counted if launched is not None else None
        guard = instruction.guard
        rows.append(
            doc.Access(
                line=instruction.pos.line,
                opcode=instruction.opcode,
                space=row.space,
                kind=row.kind,
                bytes_per_thread=row.bytes_per_thread,
                vector=row.vector,
                element_bits=row.element_bits,
                guard=None if guard is None else f"{'!' if guard.negated else ''}{guard.name}",
                address=address,
                shared_address=_shared(access, notation),
                reason=reason,
                pointer=_pointer(access, notation, arguments),
                condition=condition,
                condition_source=lines.mask(instruction) if condition is not None else None,
                bytes_per_warp=pattern.bytes_per_warp if pattern else None,
                pattern=pattern.words if pattern else None,
                hints=row.hints,
                requests=counted.requests if counted else None,
                cost=counted.transactions if counted else None,
                cost_unit=(
                    ("wavefronts" if row.space == "shared" else "sectors") if counted else None
                ),
                block=code.cfg.blocks[access.block].name,
                loop_depth=code.cfg.loop_depth[access.block],
                stage=stage[0] if stage and stage[1] not in waiting else None,
                source=lines.place(instruction),
            )
        )
    return tuple(rows), unknown


def _address(access: AccessValue, notation: Notation) -> tuple[str | None, str | None]:
    """The address as an expression, or why there is none."""
    if "tensor" in access.instruction.parts:  # the operand is the descriptor, not the data
        return None, "a tensor map says where the data is (TMA)"
    if access.reasons:
        return None, access.reasons[0]
    text = notation.reader.address(access.address, notation.pointers)
    return (None, "the expression is too long to show") if TOO_LONG in text else (text, None)


def _shared(access: AccessValue, notation: Notation) -> str | None:
    if access.shared is None or unknown_reasons(access.shared):
        return None
    text = notation.reader.address(access.shared, notation.pointers)
    return text if TOO_LONG not in text else None


def _when(code: EvaluatedKernel, access: AccessValue) -> Value | None:
    """When the access is executed: its guard, and the branches that lead to its block.

    Branches that are the same for the whole launch say nothing of an access and are left out.
    """
    reached = code.addresses.predicates.get(access.block)
    parts = leaves(reached, "special") if reached is not None else []
    if reached is None or not any(p.payload.startswith(("tid", "ctaid", "lane")) for p in parts):
        return access.condition
    if access.condition is None:
        return reached
    pool = code.addresses.solved.registers.pool
    return pool.node("and", 1, reached, access.condition)


def _pattern(access: AccessValue, warp: FirstWarp | None) -> WarpPattern | None:
    row = access.row
    size = row.bytes_per_thread
    if warp is None or size is None or row.kind in ("bulk_load", "bulk_store"):
        return None
    if row.space == "local":
        return WarpPattern(WARP * size, "each thread in memory of its own", ())
    offsets = warp.offsets(access.address)
    if offsets is None:
        return None
    if access.instruction.base in ("ldmatrix", "stmatrix"):  # rows of 16 bytes, 8 a matrix
        return warp_pattern(offsets[: 8 * row.vector], MATRIX_ROW)
    return warp_pattern(offsets, size)


def _pointer(
    access: AccessValue, notation: Notation, arguments: Mapping[str, Argument]
) -> str | None:
    """What an access goes through: a pointer, a variable, or a tensor map among parameters."""
    tensor = access.tensor
    if tensor is None:
        return notation.base(access.address)
    if tensor.fields is not None:
        start = tensor.fields.get("global_address")
        return notation.base(start) if start is not None else None
    name = descriptor_of(tensor)
    argument = arguments.get(name) if name is not None else None
    return argument.name if argument is not None else name
