"""The ``sass`` part of a kernel's report: what stands in its machine code, beside the PTX.

All counts are static. The comparison is `kanalyze.sass.crosscheck.compare`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from kanalyze.errors import KanalyzeError
from kanalyze.models.static_counts import AccessClass
from kanalyze.ptx import ir
from kanalyze.results import kernel as doc
from kanalyze.sass import cfg as sass_cfg
from kanalyze.sass import crosscheck
from kanalyze.sass.code import Code
from kanalyze.sass.explain import Places
from kanalyze.sass.ir import SassFunction, SassInstruction
from kanalyze.sass.memory import SassAccess, memory_access
from kanalyze.sass.table import tensor_core

_KINDS = {"matrix_load": "load", "matrix_store": "store"}


def section(
    code: Code,
    name: str,
    ptx: ir.Function | None = None,
    module: ir.Module | None = None,
    spills: tuple[int | None, int | None] = (None, None),
    places: Places | None = None,
) -> doc.Sass:
    """Describe the machine code of one kernel.

    Args:
        code: the machine code.
        name: the kernel's symbol.
        ptx: the kernel in PTX, None where there is none.
        module: the module of ``ptx``, for the functions that it calls.
        spills: bytes of spill stores and loads that the assembler reports, None if it did not.
        places: where the accesses of ``ptx`` point.

    Raises:
        KanalyzeError: there is no such kernel in the code.
    """
    function = next((f for f in code.module.functions if f.name == name), None)
    if function is None:
        raise KanalyzeError(f"the machine code ({code.origin}) has no kernel '{name}'")
    accesses = [(i, a) for i in function.instructions if (a := memory_access(i)) is not None]
    graph = sass_cfg.build(function)
    reached = sum(len(graph.blocks[index].instructions) for index in graph.order)
    cores = Counter(tensor_core(i) for i in function.instructions)
    known = code.resources.get(name)
    stack = None if known is None else known.stack_bytes
    local = _local_bytes(accesses)
    return doc.Sass(
        target=code.module.target,
        origin=code.origin,
        instructions=len(function.instructions),
        never_reached=len(function.instructions) - reached,
        not_read=len(function.opaque),
        memory=_memory(accesses),
        tensor_core=doc.TensorCore(cores["mma"], cores["wgmma"], cores["tcgen05"]),
        comparison=_rows(function, ptx, module, places or {}),
        registers_per_thread=None if known is None else known.registers,
        stack_bytes=stack,
        shared_bytes=None if known is None else known.static_shared_bytes,
        local_store_bytes=local["store"],
        local_load_bytes=local["load"],
        stack=_stack_words(stack, local, spills, ptx),
    )


def _executed(accesses: Sequence[tuple[SassInstruction, SassAccess]]) -> list[SassAccess]:
    return [access for _, access in accesses if not access.dummy]


def _memory(
    accesses: Sequence[tuple[SassInstruction, SassAccess]],
) -> dict[str, dict[str, AccessClass]]:
    """By space and kind, as the PTX ones; dummies are left out."""
    grouped: dict[str, dict[str, list[SassAccess]]] = defaultdict(lambda: defaultdict(list))
    for access in _executed(accesses):
        grouped[access.space][_KINDS.get(access.kind, access.kind)].append(access)
    return {
        space: {kind: _traffic(group) for kind, group in sorted(kinds.items())}
        for space, kinds in sorted(grouped.items())
    }


def _traffic(group: Sequence[SassAccess]) -> AccessClass:
    sizes = [access.bytes_per_thread for access in group]
    known = [size for size in sizes if size is not None]
    total = sum(known) if len(known) == len(sizes) else None
    widths = Counter("bulk" if size is None else str(8 * size) for size in sizes)
    return AccessClass(len(group), total, dict(widths))


def _local_bytes(accesses: Sequence[tuple[SassInstruction, SassAccess]]) -> dict[str, int]:
    total = {"store": 0, "load": 0}
    for access in _executed(accesses):
        if access.space == "local" and access.kind in total:
            total[access.kind] += access.bytes_per_thread or 0
    return total


def _stack_words(
    stack: int | None,
    local: Mapping[str, int],
    spills: tuple[int | None, int | None],
    ptx: ir.Function | None,
) -> str:
    """The stack frame against the local memory in the code and the spills that ptxas reports."""
    moved = f"{local['store']} B stored, {local['load']} B loaded in local memory"
    if not stack and not any(local.values()):
        return "no stack, no local memory accesses: nothing spilled"
    if not any(local.values()):
        return f"stack of {stack} B, but no local memory accesses"
    if None not in spills and any(spills):
        same = (local["store"], local["load"]) == spills
        rest = "all of it spills" if same else f"spills {spills[0]} B stored, {spills[1]} B loaded"
        return f"stack of {stack} B; {moved}; {rest}"
    if None not in spills:
        return f"stack of {stack} B; {moved}; no spills: local arrays or calls"
    declared = ptx is not None and any(
        isinstance(s, ir.Variable) and s.space == "local" for s in ptx.body or ()
    )
    if ptx is not None and not declared:
        return f"stack of {stack} B; {moved}; the PTX declares none, so registers spilled"
    return f"stack of {stack} B; {moved}; spills, local arrays or calls"


# ---------------------------------------------------------------- comparison


def _rows(
    function: SassFunction,
    ptx: ir.Function | None,
    module: ir.Module | None,
    places: Places,
) -> tuple[doc.SassRow, ...]:
    opcodes: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for instruction in function.instructions:
        key = crosscheck.sass_key(instruction)
        access = memory_access(instruction)
        if key is not None and not (access is not None and access.dummy):
            opcodes[key][instruction.opcode] += 1
    empty = ir.Function("entry", "", (), (), {}, None, (), (-1,), ir.Pos(1, 1), ir.Pos(1, 1))
    return tuple(
        _row(row, opcodes, ptx is not None)
        for row in crosscheck.compare(ptx or empty, function, places, module)
    )


def _row(
    row: crosscheck.CrosscheckRow,
    opcodes: Mapping[tuple[str, str], Mapping[str, int]],
    beside: bool,
) -> doc.SassRow:
    """One row of the document; ``beside``: whether there is a PTX to compare with."""
    verdict = "equal" if row.equal else "explained" if row.explained else "not explained"
    return doc.SassRow(
        category=row.category,
        width=row.width,
        opcodes=dict(opcodes.get((row.category, row.width), {})),
        sass=row.sass,
        dummies=row.dummies,
        ptx=row.ptx if beside else None,
        verdict=verdict if beside else None,
        explanation=row.explanation if beside and verdict == "explained" else None,
        hints=dict(row.hints),
        hints_added=row.added if beside else (),
    )
