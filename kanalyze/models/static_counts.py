"""Static counts: what the listing contains, not what a launch executes.

Source of the categories: PTX ISA, "Data Movement and Conversion Instructions".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from kanalyze.ptx import instructions as table
from kanalyze.ptx import ir
from kanalyze.ptx.memory import MemoryAccess
from kanalyze.ptx.special import special_register

GLOBAL_KINDS = (
    "load", "store", "async_copy", "bulk_load", "bulk_store", "atomic", "reduction",
)  # fmt: skip
"""The kinds that a summary of global memory always names, also where their count is 0."""
SPACES = ("global", "shared", "local", "const", "param", "generic")


@dataclass(frozen=True, slots=True)
class AccessClass:
    """Instructions of one kind in one state space.

    ``bytes_per_thread`` is what one thread moves if it executes each of them once; None where the
    size of one of them is not in the instruction. ``vectors`` counts by width: ``v4.b32``.
    """

    instructions: int
    bytes_per_thread: int | None
    vectors: dict[str, int]


_TENSOR_PARTS = ("tensor", "1d", "2d", "3d", "4d", "5d")


def opcodes(instructions: Iterable[ir.Instruction]) -> dict[str, int]:
    """Full mnemonics as written, with how often each occurs, in order of first occurrence."""
    return dict(Counter(instruction.opcode for instruction in instructions))


def width_of(instruction: ir.Instruction, row: MemoryAccess) -> str:
    """The width as written: ``v4.b32``, ``b32``; ``16B`` for ``cp.async``; ``tensor.2d``."""
    parts = instruction.parts
    if row.kind == "async_copy":
        return "?B" if row.bytes_per_thread is None else f"{row.bytes_per_thread}B"
    if row.kind in ("bulk_load", "bulk_store"):
        return (
            ".".join(p for p in parts if p == "tensor" or p in ("1d", "2d", "3d", "4d", "5d"))
            or "bulk"
        )
    vector = [p for p in parts if p in ("v2", "v4", "v8")]
    if instruction.base in ("ldmatrix", "stmatrix"):
        vector = [p for p in parts if p in ("x1", "x2", "x4")]
    return ".".join([*vector, parts[-1]])


def memory(
    accesses: Iterable[tuple[ir.Instruction, MemoryAccess]],
) -> dict[str, dict[str, AccessClass]]:
    """Instructions by state space and kind; spaces and kinds in a fixed order, all named."""
    grouped: dict[str, dict[str, list[tuple[ir.Instruction, MemoryAccess]]]] = {
        space: {"load": [], "store": []} for space in SPACES
    }
    grouped["global"] = {kind: [] for kind in GLOBAL_KINDS}
    for instruction, row in accesses:
        grouped.setdefault(row.space, {}).setdefault(row.kind, []).append((instruction, row))
    return {
        space: {kind: _traffic(group) for kind, group in kinds.items()}
        for space, kinds in grouped.items()
    }


def _traffic(group: list[tuple[ir.Instruction, MemoryAccess]]) -> AccessClass:
    sizes = [row.bytes_per_thread for _, row in group]
    known = [size for size in sizes if size is not None]
    total = sum(known) if len(known) == len(sizes) else None
    return AccessClass(len(group), total, dict(Counter(width_of(i, row) for i, row in group)))


def special_registers(instructions: Iterable[ir.Instruction]) -> dict[str, int]:
    """Special registers with the number of instructions that read each."""
    counts: Counter[str] = Counter()
    for instruction in instructions:
        for name in table.uses(instruction):
            if special_register(name) is not None:
                counts[name] += 1
    return dict(counts)
