"""What an instruction does to memory: space, kind, width, address, hints."""

from __future__ import annotations

from dataclasses import dataclass

from kanalyze.sass.ir import Constant, Operand, Predicate, SassAddress, SassInstruction
from kanalyze.sass.registers import data_bits, matrix_count
from kanalyze.sass.table import never_executed


@dataclass(frozen=True, slots=True)
class SassAccess:
    """An access to memory.

    ``space`` is global, shared, local, generic or const. ``kind`` is load, store, async_copy
    (``LDGSTS``), bulk_load, bulk_store, bulk_reduction (``UTMALDG``, ``UBLKCP``…), prefetch,
    atomic, reduction, matrix_load (``LDSM``) or matrix_store (``STSM``).
    ``bytes_per_thread`` is what one thread moves by executing it once (of its registers, for
    matrices); None if the instruction does not tell (boxes and sizes of bulk copies).
    ``vector`` is the number of 32-bit words or matrices. ``address`` is the operand of ``space``;
    copies have the other side in ``shared_address``. ``copy_if`` is the predicate of ``LDGSTS``
    that says whether the source is read (zeros are written otherwise). ``hints`` are the cache
    hints as written. ``dummy`` says that it is switched off for ever: ``@!PT LDS RZ, [RZ]``.
    """

    space: str
    kind: str
    bytes_per_thread: int | None
    vector: int
    address: Operand | None
    shared_address: Operand | None = None
    copy_if: Predicate | None = None
    hints: tuple[str, ...] = ()
    dummy: bool = False


_KINDS: dict[str, tuple[str, str]] = {
    "LDG": ("global", "load"),
    "LDGMC": ("global", "load"),
    "STG": ("global", "store"),
    "LDGSTS": ("global", "async_copy"),
    "ATOMG": ("global", "atomic"),
    "RED": ("global", "reduction"),
    "REDG": ("global", "reduction"),
    "LDS": ("shared", "load"),
    "STS": ("shared", "store"),
    "STAS": ("shared", "store"),
    "ATOMS": ("shared", "atomic"),
    "LDSM": ("shared", "matrix_load"),
    "STSM": ("shared", "matrix_store"),
    "LDL": ("local", "load"),
    "STL": ("local", "store"),
    "LD": ("generic", "load"),
    "ST": ("generic", "store"),
    "ATOM": ("generic", "atomic"),
    "LDC": ("const", "load"),
    "ULDC": ("const", "load"),
    "LDCU": ("const", "load"),
    "UBLKCP": ("global", "bulk_load"),
    "UBLKRED": ("global", "bulk_reduction"),
    "UBLKPF": ("global", "prefetch"),
    "UTMALDG": ("global", "bulk_load"),
    "UTMASTG": ("global", "bulk_store"),
    "UTMAREDG": ("global", "bulk_reduction"),
    "UTMAPF": ("global", "prefetch"),
}
_HINTS = frozenset(
    (
        "LTC64B", "LTC128B", "LTC256B", "EF", "EL", "EU", "LU", "NA", "CONSTANT", "STRONG", "WEAK",
        "MMIO", "CTA", "GPU", "SYS", "SM", "VC", "BYPASS", "ACCESS", "PRIVATE", "STRONG.GPU",
    )
)  # fmt: skip


def memory_access(instruction: SassInstruction) -> SassAccess | None:
    """Return the access to memory that an instruction makes; None if it makes none.

    Synchronisation (``SYNCS``), tensor memory (``LDTM``), textures and surfaces, the operands that
    ``HGMMA`` and ``UTCHMMA`` read through descriptors, and constants that are plain operands
    (``c[0x0][0x210]`` of ``IMAD``) are no accesses here.
    """
    base = instruction.base
    known = _KINDS.get(base)
    if known is None:
        if base == "CCTL" and instruction.parts[-1].startswith("PF"):
            known = ("global", "prefetch")
        else:
            return None
    space, kind = known
    hints = tuple(f".{part}" for part in instruction.parts[1:] if part in _HINTS)
    places = [o for o in instruction.operands if isinstance(o, SassAddress | Constant)]
    dummy = never_executed(instruction)
    if kind.startswith("bulk") or kind == "prefetch":
        return _bulk(instruction, space, kind, places, hints, dummy)
    bits = data_bits(instruction.opcode)
    matrix = kind.startswith("matrix")
    vector = matrix_count(instruction.opcode) if matrix else max(1, bits // 32)
    amount = bits // 8
    if kind == "async_copy":
        predicates = [o for o in instruction.operands if isinstance(o, Predicate)]
        far = places[1] if len(places) > 1 else None
        return SassAccess(
            space, kind, amount, vector, far, places[0] if places else None,
            predicates[0] if predicates else None, hints, dummy,
        )  # fmt: skip
    return SassAccess(
        space, kind, amount, vector, places[0] if places else None, hints=hints, dummy=dummy
    )


def _bulk(
    instruction: SassInstruction,
    space: str,
    kind: str,
    places: list[SassAddress | Constant],
    hints: tuple[str, ...],
    dummy: bool,
) -> SassAccess:
    """Copies of blocks and boxes.

    ``UBLKCP.S.G [shared], [global], size``, ``UBLKCP.G.S [global], [shared], size``;
    ``UTMALDG [shared…], [map]``, ``UTMASTG [shared…], [map]``.
    """
    first = places[0] if places else None
    second = places[1] if len(places) > 1 else None
    if instruction.base == "UBLKCP" and instruction.parts[1:3] == ("G", "S"):
        return SassAccess(space, "bulk_store", None, 1, first, second, None, hints, dummy)
    if kind == "prefetch" or instruction.base == "UBLKRED":
        return SassAccess(space, kind, None, 1, first, second, None, hints, dummy)
    return SassAccess(space, kind, None, 1, second, first, None, hints, dummy)
