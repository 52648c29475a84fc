"""Which registers an instruction reads and writes, in units of 32 bits.

Names of units: ``R5``, ``UR4``, ``P0``, ``UP1``, ``B0``. RZ, URZ, PT and UPT are none. A 64-bit
operand covers two units, a vector of a load or a fragment of a matrix as many as it has.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from kanalyze.sass.ir import (
    Barrier,
    Constant,
    Keyword,
    Operand,
    Predicate,
    Register,
    SassAddress,
    SassImmediate,
    SassInstruction,
    Special,
)
from kanalyze.sass.table import TABLE, SassMnemonic

_BITS_64 = frozenset(("64", "S64", "U64"))
_BITS = re.compile(r"(?:B|U|S|F)?(8|16|32|64|128|256)$")


def _units(register: Register, count: int) -> Iterator[str]:
    if register.number is not None:
        for number in range(register.number, register.number + count):
            yield f"{register.file}{number}"


# ---------------------------------------------------------------- width of operands


@lru_cache(maxsize=4096)
def data_bits(opcode: str) -> int:
    """Return how many bits a thread loads, stores or exchanges: of ``LDG.E.128`` 128."""
    parts = opcode.split(".")
    if parts[0] in ("LDSM", "STSM"):
        return 32 * matrix_count(opcode)
    bits = 32
    for part in parts[1:]:
        match = _BITS.match(part)
        if match and (part.isdecimal() or part[0] in "BUSF"):
            bits = int(match[1])
        elif part in ("F16x2", "BF16x2", "BF16_V2", "F16_V2") or part.startswith("F16x2"):
            bits = 32
    return bits


def matrix_count(opcode: str) -> int:
    """Return how many 8×8 matrices ``LDSM.16.M88.4`` moves: 1, 2 or 4."""
    last = opcode.rpartition(".")[2]
    return int(last) if last in ("2", "4") else 1


_ELEMENT_BITS = {
    "F16": 16, "BF16": 16, "TF32": 32, "F64": 64, "S8": 8, "U8": 8, "S4": 4, "U4": 4, "B1": 1,
    "E4M3": 8, "E5M2": 8, "E2M1": 4, "E3M2": 8, "E2M3": 8,
}  # fmt: skip
_SHAPE = re.compile(r"(?:(8|16)8(4|8|16|32|64|128|256)|(\d+)x(\d+)x(\d+))$")


@lru_cache(maxsize=1024)
def mma_shape(opcode: str) -> tuple[int, int, int] | None:
    """Return M, N, K of ``HMMA.16816.F32`` or ``HGMMA.64x128x16.F32``."""
    for part in opcode.split(".")[1:]:
        match = _SHAPE.match(part)
        if match and match[3]:
            return int(match[3]), int(match[4]), int(match[5])
        if match:
            return int(match[1]), 8, int(match[2])
    return None


def _registers_of(elements: int, bits: int, threads: int) -> int:
    return max(1, elements * bits // 32 // threads)


def _fragment(opcode: str, place: int) -> int:
    """Return how many registers operand ``place`` of a warp's matrix instruction has.

    0 is D, 1 is A, 2 is B, 3 is C; later ones (sparsity, scales) have one.
    """
    shape = mma_shape(opcode)
    if shape is None or place > 3:
        return 1
    m, n, k = shape
    parts = opcode.split(".")
    base = parts[0]
    typed = [part for part in parts[1:] if part in _ELEMENT_BITS]
    sparse = "SP" in parts
    if base == "DMMA":
        element, sum_bits = 64, 64
    elif base == "HMMA":
        element = 32 if "TF32" in parts else 16
        sum_bits = 32 if "F32" in parts else 16
    elif base in ("IMMA", "BMMA"):
        element = (
            _ELEMENT_BITS[typed[place - 1 if len(typed) > 1 and place == 2 else 0]]
            if (typed)
            else (1 if base == "BMMA" else 8)
        )
        sum_bits = 32
    else:
        element = 8 if base == "QMMA" else 4
        sum_bits = 16 if "F16" in parts else 32
    if place in (0, 3):
        return _registers_of(m * n, sum_bits, 32)
    if place == 1:
        return _registers_of(m * k // (2 if sparse else 1), element, 32)
    return _registers_of(k * n, element, 32)


def _group_fragment(instruction: SassInstruction, place: int) -> int:
    shape = mma_shape(instruction.opcode)
    if shape is None:
        return 1
    registers = [index for index, o in enumerate(instruction.operands) if isinstance(o, Register)]
    accumulators = {registers[0], registers[-1]} if registers else set()
    sum_bits = 32 if "F32" in instruction.parts or instruction.base == "IGMMA" else 16
    if place in accumulators:
        return _registers_of(shape[0] * shape[1], sum_bits, 128)
    return 4  # A: 64 rows of 32 bytes, over 128 threads


_TMEM_COUNT = re.compile(r"x(\d+)$")
_TMEM_SHAPE = re.compile(r"16dp(128|256)bit$")


def _tmem(opcode: str) -> int:
    count, each = 1, 1
    for part in opcode.split(".")[1:]:
        if match := _TMEM_COUNT.match(part):
            count = int(match[1])
        elif match := _TMEM_SHAPE.match(part):
            each = int(match[1]) // 64
    return count * each


_TYPE = re.compile(r"(?:[FUS]|BF)(8|16|32|64)$")


def _converted(opcode: str, source: bool) -> int:
    """Return the registers of a conversion's result or source: ``F2F.F64.F32`` has 2 and 1."""
    base, *parts = opcode.split(".")
    types = [part for part in parts if _TYPE.match(part)]
    to, _, of = base.lstrip("U").partition("2")
    defaults = {"F": "F32", "I": "S32"}
    result, origin = defaults.get(of[:1], "F32"), defaults.get(to[:1], "F32")
    if base in ("FRND", "UFRND"):
        result = origin = types[0] if types else "F32"
    elif len(types) >= 2:
        result, origin = types[0], types[-1]
    elif types:  # the one that is named is of the kind that it fits
        integer = types[0][0] in "SU"
        if of[:1] == "I" and to[:1] == "F":
            result, origin = (types[0], origin) if integer else (result, types[0])
        elif of[:1] == "F" and to[:1] == "I":
            result, origin = (result, types[0]) if integer else (types[0], origin)
        else:
            result = types[0]
    return 2 if (origin if source else result).endswith("64") else 1


def width(instruction: SassInstruction, place: int, row: SassMnemonic | None = None) -> int:
    """Return how many registers the operand at a place covers, if it is a register."""
    row = TABLE.get(instruction.base) if row is None else row
    opcode = instruction.opcode
    if row is None:
        return 1
    operand = instruction.operands[place]
    if isinstance(operand, Register) and "64" in operand.suffixes:
        return 2
    match row.width:
        case "64":
            return 2 if not _BITS_64.isdisjoint(instruction.parts) else 1
        case "double":
            return 2
        case "wide":
            registers = _sources(instruction, row)
            last = place == registers[-1]
            return 2 if (".WIDE" in opcode and place == 0) or (
                last and (".WIDE" in opcode or ".HI" in opcode)
            ) else 1  # fmt: skip
        case "packed":
            suffixes = operand.suffixes if isinstance(operand, Register) else ()
            return 1 if "F32" in suffixes else 2
        case "convert":
            return _converted(opcode, place > 0)
        case "matrix":
            return _fragment(opcode, place)
        case "warpgroup":
            return _group_fragment(instruction, place)
        case "tmem":
            return _tmem(opcode)
        case "memory":
            return _data(instruction, place)
        case "texture":
            return _texture(instruction, place)
        case "jump":
            return 2
    if instruction.base in ("CS2R", "CS2UR"):
        return 1 if "32" in instruction.parts else 2
    return 2 if instruction.base == "LEPC" else 1


def _sources(instruction: SassInstruction, row: SassMnemonic) -> list[int]:
    """Return the places of the operands behind the written ones that are no predicates."""
    written = _written(instruction, row)
    return [
        index
        for index, o in enumerate(instruction.operands)
        if index not in written and not isinstance(o, Predicate)
    ] or [-1]


def _data(instruction: SassInstruction, place: int) -> int:
    base, opcode = instruction.base, instruction.opcode
    if base in ("SYNCS", "CCTL", "QSPC"):
        return 2 if "EXCH" in opcode and "64" in instruction.parts else 1
    words = max(1, data_bits(opcode) // 32)
    if base in ("LDC", "ULDC", "LDCU") and place > 0:
        return 1
    if words == 8:
        return 4  # ENL2.256: two operands of four registers each
    return words


def _texture(instruction: SassInstruction, place: int) -> int:
    """The result without a mask: two operands of two registers; coordinates by dimension."""
    operand = instruction.operands[place]
    if instruction.base in ("SULD", "SUST"):
        uniform = isinstance(operand, Register) and operand.file == "UR"
        return 1 if uniform else max(1, data_bits(instruction.opcode) // 32)
    if place < 2 or (isinstance(operand, Register) and operand.file == "UR"):
        return 2
    if place > 2:
        return 1
    words = [o.text for o in instruction.operands if isinstance(o, Keyword)]
    return 3 if "3D" in words or "CUBE" in words else 2 if "2D" in words else 1


# ---------------------------------------------------------------- read and written


def _written(instruction: SassInstruction, row: SassMnemonic) -> range:
    """Return the places of the operands that are written."""
    operands = instruction.operands
    match row.writes:
        case "first" | "mask":
            if row.width == "memory" and data_bits(instruction.opcode) == 256:
                return range(2)
            return range(min(1, len(operands)))
        case "two":
            return range(min(2, len(operands)))
        case "vote":
            return range(max(0, len(operands) - 1))
        case "lead":
            count = 0
            while count < len(operands) and isinstance(operands[count], Predicate):
                count += 1
            if count < len(operands) and isinstance(operands[count], Register):
                count += 1
            if instruction.base == "ELECT":
                count = max(0, len(operands) - 1)
            return range(count)
        case "carry":
            count = min(1, len(operands))
            while count < len(operands) and isinstance(operands[count], Predicate):
                count += 1
            return range(count)
    return range(0)


def definitions(instruction: SassInstruction) -> tuple[str, ...]:
    """Return the units that an instruction may write (it may be predicated off)."""
    row = TABLE.get(instruction.base)
    if row is None:
        return ()
    units: list[str] = []
    for place in _written(instruction, row):
        operand = instruction.operands[place]
        if isinstance(operand, Register):
            units.extend(_units(operand, width(instruction, place, row)))
        elif isinstance(operand, Barrier) or (
            isinstance(operand, Predicate) and operand.number is not None
        ):
            units.append(operand.name)
        elif isinstance(operand, Special) and row.writes == "mask":
            units.extend(_masked(instruction, operand))
    if instruction.base == "BSSY" and instruction.operands:
        units.extend(o.name for o in instruction.operands if isinstance(o, Barrier))
    return tuple(dict.fromkeys(units))


def uses(instruction: SassInstruction) -> tuple[str, ...]:
    """Return the units that an instruction reads, its guard among them."""
    row = TABLE.get(instruction.base)
    units: list[str] = []
    if instruction.guard is not None and not instruction.guard.name.endswith("T"):
        units.append(instruction.guard.name)
    written: range | tuple[int, ...] = () if row is None else _written(instruction, row)
    for place, operand in enumerate(instruction.operands):
        if place in written:
            continue
        if isinstance(operand, Register):
            units.extend(_units(operand, width(instruction, place, row)))
        else:
            units.extend(_used(instruction, operand))
    return tuple(dict.fromkeys(units))


def _masked(instruction: SassInstruction, special: Special) -> Iterator[str]:
    """Return the predicates that ``P2R`` and ``R2P`` mean by their mask."""
    mask = 0x7F
    last = instruction.operands[-1] if instruction.operands else None
    if isinstance(last, SassImmediate) and isinstance(last.value, int):
        mask = last.value
    file = "UP" if special.name.startswith("U") else "P"
    for number in range(7):
        if mask >> number & 1:
            yield f"{file}{number}"


def _used(instruction: SassInstruction, operand: Operand) -> Iterator[str]:
    if isinstance(operand, Predicate):
        if operand.number is not None:
            yield operand.name
    elif isinstance(operand, SassAddress):
        yield from address_units(instruction, operand)
    elif isinstance(operand, Constant):
        if operand.base is not None:
            yield from _units(operand.base, 1)
        if isinstance(operand.bank, Register):
            yield from _units(operand.bank, 2)
    elif isinstance(operand, Barrier):
        if operand.name.startswith("B") and instruction.base != "BSSY":
            yield operand.name
    elif isinstance(operand, Special) and operand.name in ("PR", "UPR"):
        yield from _masked(instruction, operand)


_FLAT = frozenset(("LDG", "STG", "ATOMG", "RED", "REDG", "LDGSTS", "LD", "ST", "ATOM", "CCTL"))


def address_units(instruction: SassInstruction, address: SassAddress) -> Iterator[str]:
    """Return the units that an address is made of."""
    if address.descriptor is not None:
        yield from _units(address.descriptor, 2)
    row = TABLE.get(instruction.base)
    if row is not None and row.width == "bulk":
        yield from _bulk(instruction, address)
        return
    if address.space in ("gdesc", "idesc", "tmem", "sdesc"):
        yield from _described(instruction, address)
        return
    far = instruction.base in _FLAT and not (
        instruction.base == "LDGSTS" and address is instruction.operands[0]
    )
    whole = instruction.base in ("QSPC", "CCTL", "SUST", "SULD") or ".CAS" in instruction.opcode
    whole = whole and instruction.base != "ATOMS"  # 64 bits, though written without ".64"
    for register in address.registers:
        wide = ("64" in register.suffixes or whole) or (
            far and register.file == "UR" and ("U32" not in register.suffixes)
        )
        yield from _units(register, 2 if wide else 1)


def _described(instruction: SassInstruction, address: SassAddress) -> Iterator[str]:
    count = 1
    if address.space == "gdesc":
        row = TABLE.get(instruction.base)
        count = 4 if row is not None and row.width == "warpgroup" else 2
    for register in address.registers:
        yield from _units(register, count)


def _bulk(instruction: SassInstruction, address: SassAddress) -> Iterator[str]:
    """``UTMALDG.2D [UR8], [UR4]``: UR8 shared address, UR9 barrier, UR10… coordinates."""
    dimensions = next(
        (int(p[0]) for p in instruction.parts if len(p) == 2 and p[1] == "D" and p[0].isdecimal()),
        0,
    )
    first = bool(instruction.operands) and address is instruction.operands[0]
    count = 2 + dimensions if first and dimensions else 2
    for register in address.registers:
        yield from _units(register, count)
