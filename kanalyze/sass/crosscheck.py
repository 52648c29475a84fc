"""PTX against SASS: the same accesses and tensor instructions? What did the assembler change?

``compare`` counts both by category and width, and explains a difference where the explanation
can be shown from the two texts; otherwise the row says "not explained". Counts are of the text
(static), not of what a launch executes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from kanalyze.ptx import cfg as ptx_cfg
from kanalyze.ptx.instructions import tensor_core as ptx_tensor
from kanalyze.ptx.ir import Function, Instruction, Module
from kanalyze.ptx.memory import memory_access as ptx_access
from kanalyze.sass import cfg as sass_cfg
from kanalyze.sass.explain import NOT_EXPLAINED, Item, Match, Places, match, reasons
from kanalyze.sass.ir import SassFunction, SassInstruction, Special
from kanalyze.sass.memory import memory_access
from kanalyze.sass.registers import definitions, mma_shape, uses
from kanalyze.sass.table import tensor_core

CATEGORIES = (
    "global load", "global store", "global atomic", "asynchronous copy", "bulk copy", "shared load",
    "shared store", "shared atomic", "matrix load", "matrix store", "local load", "local store",
    "generic load", "generic store", "generic atomic", "prefetch", "tensor",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class CrosscheckRow:
    """One category and width.

    ``width`` is the bytes of a thread ("16 B"), or the shape of a tensor instruction. ``sass``
    does not count ``dummies`` (``@!PT LDS RZ, [RZ]``, which the assembler puts beside ``LDGSTS``).
    ``explanation`` is empty where the counts are equal. ``hints`` are cache hints that the SASS
    has, with how many of the instructions have them; ``added`` those on how much L2 fetches
    (``.LTC128B``) that the PTX (``L2::128B``) does not ask for.
    """

    category: str
    width: str
    ptx: int
    sass: int
    dummies: int = 0
    explanation: str = ""
    hints: tuple[tuple[str, int], ...] = ()
    added: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether the counts are the same."""
        return self.ptx == self.sass

    @property
    def explained(self) -> bool:
        """Whether the counts are the same or it is known why they are not."""
        return self.equal or self.explanation != NOT_EXPLAINED


_KINDS = {
    "async_copy": "asynchronous copy", "bulk_load": "bulk copy", "bulk_store": "bulk copy",
    "bulk_reduction": "bulk copy", "matrix_load": "matrix load", "matrix_store": "matrix store",
    "prefetch": "prefetch",
}  # fmt: skip


def _category(space: str, kind: str) -> str | None:
    if kind in _KINDS:
        return _KINDS[kind]
    space = space.partition("::")[0]
    if space not in ("global", "shared", "local", "generic"):
        return None
    return f"{space} {'atomic' if kind in ('atomic', 'reduction') else kind}"


def _bytes(amount: int | None) -> str:
    return "" if amount is None else f"{amount} B"


def _ptx_key(instruction: Instruction) -> tuple[str, str] | None:
    if ptx_tensor(instruction) is not None:
        shape = next((p for p in instruction.parts if p[:1] == "m" and p[1:2].isdecimal()), "")
        return "tensor", shape
    access = ptx_access(instruction)
    if access is None:
        return None
    kind = {"ldmatrix": "matrix_load", "stmatrix": "matrix_store"}.get(
        instruction.base, access.kind
    )
    bulk = instruction.opcode.startswith(("cp.reduce", "cp.async.bulk"))
    category = "bulk copy" if bulk and kind == "reduction" else _category(access.space, kind)
    if category is None:
        return None
    return category, "" if category in ("bulk copy", "prefetch") else _bytes(
        access.bytes_per_thread
    )


def sass_key(instruction: SassInstruction) -> tuple[str, str] | None:
    """The category and width under which an instruction is compared, None if it is not."""
    if tensor_core(instruction) is not None:
        shape = mma_shape(instruction.opcode)
        return "tensor", "" if shape is None else "m{}n{}k{}".format(*shape)
    access = memory_access(instruction)
    category = None if access is None else _category(access.space, access.kind)
    if access is None or category is None:
        return None
    return category, _bytes(access.bytes_per_thread)


def _ptx_items(graph: ptx_cfg.Cfg) -> list[Item]:
    items: list[Item] = []
    for block in graph.blocks:
        loop = graph.innermost_loop(block.index)
        for instruction in block.instructions:
            key = _ptx_key(instruction)
            if key is not None:
                source = None if instruction.loc is None else instruction.loc.line
                header = None if loop is None else loop.header
                items.append(Item(*key, instruction.pos.line, source, header, instruction))
    return items


def _sass_items(graph: sass_cfg.SassCfg) -> tuple[list[Item], Counter[tuple[str, str]]]:
    items: list[Item] = []
    dummies: Counter[tuple[str, str]] = Counter()
    for block in graph.blocks:
        loop = graph.innermost_loop(block.index)
        for instruction in block.instructions:
            key = sass_key(instruction)
            if key is None:
                continue
            access = memory_access(instruction)
            if access is not None and access.dummy:
                dummies[key] += 1
                continue
            source = None if instruction.source is None else instruction.source.line
            header = None if loop is None else loop.header
            by_lane = key[0].endswith("atomic") and _by_lane(graph.function, instruction)
            items.append(Item(*key, instruction.ptx_line, source, header, instruction, by_lane))
    return items, dummies


def _by_lane(function: SassFunction, atomic: SassInstruction) -> bool:
    """Whether the guard of an atomic compares the lane: the assembler added up the others'."""
    if atomic.guard is None:
        return False
    wanted = {atomic.guard.name}
    for instruction in reversed(function.instructions):
        written = wanted.intersection(definitions(instruction))
        if instruction.address >= atomic.address or not written:
            continue
        if Special("SR_LANEID") in instruction.operands:
            return True
        wanted -= written
        if instruction.base in ("ISETP", "MOV", "PLOP3"):
            wanted |= set(uses(instruction))
    return False


def matches(
    ptx: ptx_cfg.Cfg, sass: sass_cfg.SassCfg, places: Places, module: Module | None = None
) -> tuple[Match, ...]:
    """What each access and tensor instruction of a kernel became (`compare`, of the graphs)."""
    return match(ptx.function, module, _ptx_items(ptx), _sass_items(sass)[0], places)


def compare(
    ptx: Function, sass: SassFunction, places: Places, module: Module | None = None
) -> tuple[CrosscheckRow, ...]:
    """Compare a kernel's PTX with the SASS made of it.

    Args:
        ptx: the kernel in PTX.
        sass: the function of the same name in the SASS.
        places: where its accesses point (`kanalyze.symbolic.accesses.Addresses.places`).
        module: the module of ``ptx``, for the functions that it calls.

    Returns a row per category and width that occurs in either, in the order of `CATEGORIES`.
    """
    of_ptx = _ptx_items(ptx_cfg.build(ptx))
    of_sass, dummies = _sass_items(sass_cfg.build(sass))
    before, after = (Counter(item.key for item in items) for items in (of_ptx, of_sass))
    explanations = reasons(match(ptx, module, of_ptx, of_sass, places))
    rows: list[CrosscheckRow] = []
    for key in sorted({*before, *after, *dummies}, key=_order):
        why = "" if before[key] == after[key] else explanations[key]
        hints, added = _hints(of_sass, key), _added(of_ptx, of_sass, key)
        rows.append(CrosscheckRow(*key, before[key], after[key], dummies[key], why, hints, added))
    return tuple(rows)


def _order(key: tuple[str, str]) -> tuple[int, int, str]:
    digits = key[1].partition(" ")[0]
    return CATEGORIES.index(key[0]), int(digits) if digits.isdecimal() else 0, key[1]


def _hints(items: list[Item], key: tuple[str, str]) -> tuple[tuple[str, int], ...]:
    hints: Counter[str] = Counter()
    for item in items:
        if item.key == key and isinstance(item.instruction, SassInstruction):
            access = memory_access(item.instruction)
            hints.update(() if access is None else access.hints)
    return tuple(sorted(hints.items()))


def _added(of_ptx: list[Item], of_sass: list[Item], key: tuple[str, str]) -> tuple[str, ...]:
    asked: set[str] = set()
    for item in of_ptx:
        if item.key == key and isinstance(item.instruction, Instruction):
            access = ptx_access(item.instruction)
            hints = () if access is None else access.hints
            asked.update(f".LTC{hint[4:]}" for hint in hints if hint.startswith("L2::"))
    present = (hint for hint, _ in _hints(of_sass, key))
    return tuple(hint for hint in present if hint.startswith(".LTC") and hint not in asked)
