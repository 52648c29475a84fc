"""What a PTX instruction does to memory: state space, kind, bytes of a thread, operands, hints.

Source: PTX ISA, "Data Movement and Conversion Instructions". That of SASS is
`kanalyze.sass.memory`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from kanalyze.ptx.ir import Address, Immediate, Instruction, Operand

_PLAIN = {
    "ld": "load",
    "ldu": "load",
    "st": "store",
    "atom": "atomic",
    "red": "reduction",
    "prefetch": "prefetch",
    "prefetchu": "prefetch",
}
_SPACES = frozenset({"global", "shared", "local", "const", "param"})
_CACHE_OPERATORS = frozenset(
    {"ca", "cg", "cs", "cv", "lu", "wb", "wt", "nc"}
    | {"volatile", "relaxed", "acquire", "release", "weak", "mmio"}
)
_SIZED = re.compile(r"(?:[busf]|bf)(8|16|32|64|128)(?:x([24]))?$")
_VECTOR = re.compile(r"v([248])$")
_MATRIX_BYTES = {"m8n8": 4, "m8n16": 4, "m16n8": 4, "m16n16": 8}
_WMMA_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)$")


@dataclass(frozen=True, slots=True)
class MemoryAccess:
    """What an instruction does to memory.

    ``space`` is global, shared, local, const, param or generic. ``kind`` is load, store,
    async_copy (``cp.async``), bulk_load, bulk_store (``cp.async.bulk``, tensor maps), atomic,
    reduction or prefetch. ``bytes_per_thread`` is what one thread moves by executing it once; None
    if the instruction does not tell (sizes in registers, tensor boxes, prefetches). ``vector`` ×
    ``element_bits`` is the access as written. ``address`` is the operand of ``space``; copies have
    the other side in ``shared_address``. ``size`` is the operand with the number of bytes (of the
    source, for ``cp.async``: bytes beyond are zeros; it may be a predicate that ignores the
    source). ``hints`` are the cache operators and hints as written: ``.cg``, ``L1::evict_last``.
    """

    space: str
    kind: str
    bytes_per_thread: int | None
    vector: int
    element_bits: int
    address: Operand | None
    shared_address: Operand | None = None
    size: Operand | None = None
    hints: tuple[str, ...] = ()


def memory_access(instruction: Instruction) -> MemoryAccess | None:
    """Return the access to memory that an instruction makes; None if it makes none.

    Synchronisation (``mbarrier``), tensor memory (``tcgen05.ld``), textures and surfaces, and the
    operands that ``wgmma`` and ``tcgen05.mma`` read through descriptors are no accesses here.
    ``cp.reduce.async.bulk`` is a reduction: it reads, adds and writes at its destination.
    """
    base = instruction.base
    if base in _PLAIN:
        return _plain(instruction, _PLAIN[base])
    if base in ("cp", "multimem"):
        return _copy(instruction) if ".async" in instruction.opcode else _multimem(instruction)
    if base in ("ldmatrix", "stmatrix", "wmma"):
        return _matrix(instruction)
    return None


@lru_cache(maxsize=8192)
def _modifiers(opcode: str) -> tuple[tuple[str, ...], int, int, tuple[str, ...]]:
    """Return (spaces in order, vector, element bits, hints) of an opcode."""
    spaces: list[str] = []
    hints: list[str] = []
    vector, bits = 1, 0
    for part in opcode.split(".")[1:]:
        head = part.partition("::")[0]
        if head in _SPACES:
            spaces.append(head)
        elif part in _CACHE_OPERATORS:
            hints.append(f".{part}")
        elif head in ("L1", "L2"):
            hints.append(part)
        elif match := _VECTOR.match(part):
            vector = int(match[1])
        elif match := _SIZED.match(part):
            bits = int(match[1]) * int(match[2] or 1)
    return tuple(spaces), vector, bits, tuple(hints)


def _addresses(instruction: Instruction) -> list[Operand]:
    return [operand for operand in instruction.operands if isinstance(operand, Address)]


def _plain(instruction: Instruction, kind: str) -> MemoryAccess:
    spaces, vector, bits, hints = _modifiers(instruction.opcode)
    space = spaces[0] if spaces else "generic"
    address = next(iter(_addresses(instruction)), None)
    if kind == "prefetch":
        return MemoryAccess(space, kind, None, 1, 0, address, hints=hints)
    if instruction.opcode.startswith("st.bulk"):
        size = instruction.operands[1] if len(instruction.operands) > 1 else None
        return MemoryAccess(space, kind, _bytes(size), 1, 8, address, size=size, hints=hints)
    amount = vector * bits // 8 if bits else None
    return MemoryAccess(space, kind, amount, vector, bits, address, hints=hints)


def _multimem(instruction: Instruction) -> MemoryAccess | None:
    kinds = {"ld_reduce": "load", "st": "store", "red": "reduction"}
    parts = instruction.parts
    kind = kinds.get(parts[1]) if len(parts) > 1 else None
    return None if kind is None else _plain(instruction, kind)


def _bytes(operand: Operand | None) -> int | None:
    """The size that an operand states; None where a register holds it, or it can be none."""
    value = operand.value if isinstance(operand, Immediate) else None
    return value if isinstance(value, int) and 0 <= value < 1 << 32 else None


def _copy(instruction: Instruction) -> MemoryAccess | None:
    """``cp.async``, ``cp.async.bulk``, ``cp.reduce.async.bulk`` and their multimem forms."""
    opcode, operands = instruction.opcode, instruction.operands
    addresses = _addresses(instruction)
    if not addresses or "mbarrier.arrive" in opcode:
        return None
    spaces, _, _, hints = _modifiers(opcode)
    if ".bulk" not in opcode:
        if len(addresses) < 2 or len(operands) < 3:
            return None
        amount = _bytes(operands[2])
        extra = list(operands[3:])
        if extra and "L2::cache_hint" in hints:
            extra.pop()
        return MemoryAccess("global", "async_copy", amount, 1, 8 * (amount or 0), addresses[1],
                            addresses[0], extra[0] if extra else None, hints)  # fmt: skip
    tensor = ".tensor" in opcode
    size = next((o for o in operands[1:] if not isinstance(o, Address)), None)
    if tensor:
        size = None
    amount = _bytes(size)
    if ".prefetch" in opcode:
        return MemoryAccess("global", "prefetch", amount, 1, 8, addresses[0], None, size, hints)
    to_global = bool(spaces) and spaces[0] == "global"
    reduction = "cp.reduce" in opcode
    if spaces and spaces.count("shared") == len(spaces):
        kind = "reduction" if reduction else "bulk_store"
        return MemoryAccess("shared", kind, amount, 1, 8, addresses[0],
                            addresses[1] if len(addresses) > 1 else None, size, hints)  # fmt: skip
    if to_global:
        kind = "reduction" if reduction else "bulk_store"
        far, near = addresses[0], addresses[1] if len(addresses) > 1 else None
    else:
        kind = "bulk_load"
        near, far = addresses[0], addresses[1] if len(addresses) > 1 else addresses[0]
    return MemoryAccess("global", kind, amount, 1, 8, far, near, size, hints)


def _matrix(instruction: Instruction) -> MemoryAccess | None:
    """``ldmatrix`` and ``stmatrix`` (bytes of a thread's registers), ``wmma.load``, ``.store``."""
    parts = instruction.parts
    spaces, _, bits, hints = _modifiers(instruction.opcode)
    space = spaces[0] if spaces else "generic"
    address = next(iter(_addresses(instruction)), None)
    if parts[0] != "wmma":
        count = next((int(p[1:]) for p in parts if p in ("x1", "x2", "x4")), 1)
        each = next((_MATRIX_BYTES[p] for p in parts if p in _MATRIX_BYTES), 4)
        kind = "load" if parts[0] == "ldmatrix" else "store"
        if not spaces:
            space = "generic"
        return MemoryAccess(space, kind, count * each, count, each * 8, address, hints=hints)
    if len(parts) < 3 or parts[1] not in ("load", "store"):
        return None
    shape = next((m for m in map(_WMMA_SHAPE.match, parts) if m), None)
    amount = None
    if shape is not None and bits:
        m, n, k = (int(number) for number in shape.groups())
        elements = {"a": m * k, "b": k * n}.get(parts[2], m * n)
        amount = elements * bits // 8 // 32
    kind = "load" if parts[1] == "load" else "store"
    return MemoryAccess(space, kind, amount, 1, bits, address, hints=hints)
