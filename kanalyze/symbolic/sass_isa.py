"""SASS as an instruction set for `kanalyze.symbolic.registers`.

The assembler uses a register for many things in turn; here each of them has a name of its own, see
`kanalyze.sass.webs`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Sequence

from kanalyze.sass.cfg import SassCfg
from kanalyze.sass.ir import (
    Constant,
    Operand,
    Predicate,
    Register,
    SassAddress,
    SassImmediate,
    SassInstruction,
)
from kanalyze.sass.memory import memory_access
from kanalyze.sass.registers import address_units, uses, width
from kanalyze.sass.table import classify, control, may_fall_through
from kanalyze.sass.webs import Webs
from kanalyze.symbolic.isa import FlowBlock, Lookup, negation, resize
from kanalyze.symbolic.pairs import halves, pair
from kanalyze.symbolic.ptx_transfer import NotModelled
from kanalyze.symbolic.sass_bits import Results, SassContext
from kanalyze.symbolic.sass_places import ConstantLayout, ConstantPlace
from kanalyze.symbolic.sass_transfer import TRANSFER
from kanalyze.symbolic.value import Arrays, Loaded, Value, ValuePool

_SPECIALS = {
    "SR_TID.X": "tid.x", "SR_TID.Y": "tid.y", "SR_TID.Z": "tid.z",
    "SR_CTAID.X": "ctaid.x", "SR_CTAID.Y": "ctaid.y", "SR_CTAID.Z": "ctaid.z",
    "SR_LANEID": "laneid", "SR_CgaCtaId": "cluster_ctarank",
}  # fmt: skip
_FLOATING = ("float", "half", "double", "tensor", "convert")
_COMPARES_FLOATS = ("FSETP", "HSETP2", "DSETP", "FCHK")
_SCALE = re.compile(r"X(\d+)$")


# ---------------------------------------------------------------- the instruction set


class SassIsa:
    """The instructions of one SASS function; see `kanalyze.symbolic.isa.Isa` for the methods.

    Args:
        cfg: its control-flow graph.
        pool: where values are made.
        target: the architecture.
        parameters: where the kernel's parameters lie.
        arrays: pointer parameters, where the contents of some are assumed: what is loaded from
            global memory is then followed.
    """

    def __init__(
        self,
        cfg: SassCfg,
        pool: ValuePool,
        target: str | None,
        parameters: Sequence[ConstantPlace] = (),
        arrays: Arrays | None = None,
    ):
        self.pool = pool
        self.arrays = arrays
        self.layout = ConstantLayout.of(target)
        self.parameters = parameters
        self.webs = Webs(cfg)

    # ------------------------------------------------------------ names

    def definitions(self, instruction: SassInstruction) -> tuple[str, ...]:
        """See `Isa`."""
        units = self.webs.defined[instruction.address]
        return tuple(self.webs.written(instruction, unit) for unit in units)

    def sources(self, instruction: SassInstruction) -> tuple[str, ...]:
        """See `Isa`."""
        if instruction.address in self.webs.slots and instruction.base == "LDL":
            slots = self.webs.slots[instruction.address]
            units: tuple[str, ...] = (*slots, *(u for u in uses(instruction) if u != "R1"))
        elif (
            instruction.base in TRANSFER
            or instruction.base in ("R2P", "STL")
            or self._is_followed(instruction)
        ):
            units = uses(instruction)
        else:
            return self.guard_names(instruction)
        return tuple(self.webs.read(instruction, unit) for unit in units)

    def operand_names(self, instruction: SassInstruction, operand: Operand) -> tuple[str, ...]:
        """See `Isa`: of an address, or a predicate."""
        units: Iterable[str] = ()
        if isinstance(operand, SassAddress):
            units = address_units(instruction, operand)
        elif isinstance(operand, Predicate | Register) and operand.number is not None:
            units = (operand.name,)
        return tuple(self.webs.read(instruction, unit) for unit in units)

    def guard_names(self, instruction: SassInstruction) -> tuple[str, ...]:
        """See `Isa`."""
        guard = instruction.guard
        return () if guard is None else (self.webs.read(instruction, guard.name),)

    def width(self, name: str) -> int:
        """32, or 1 for predicates."""
        return 1 if name.startswith(("P", "UP")) else 32

    # ------------------------------------------------------------ branches

    def branch(self, block: FlowBlock) -> SassInstruction | None:
        """The last instruction, if it is a jump or an ``EXIT`` under a condition."""
        last: SassInstruction | None = block.instructions[-1] if block.instructions else None
        kind = control(last) if last is not None else None
        if last is None or kind not in ("branch", "exit", "call", "return"):
            return None
        return last if may_fall_through(last) else None

    def branch_names(self, branch: SassInstruction) -> tuple[str, ...]:
        """See `Isa`."""
        return tuple(self.webs.read(branch, unit) for unit in uses(branch))

    def branch_condition(self, branch: SassInstruction, lookup: Lookup) -> Value:
        """The guard, and the predicate among the operands: ``@P0 BRA P1, …``."""
        condition = self.guard(branch, lookup) or self.pool.const(1, 1)
        for operand in branch.operands:
            if isinstance(operand, Predicate):
                other = self.read(branch, operand, 1, lookup)
                condition = self.pool.node("and", 1, condition, other)
            elif isinstance(operand, Register):
                reason = f"{branch.opcode} asks which threads are together"
                return self.pool.unknown(branch.address, reason, 1)
        return condition

    # ------------------------------------------------------------ reading

    def guard(self, instruction: SassInstruction, lookup: Lookup) -> Value | None:
        """See `Isa`."""
        guard = instruction.guard
        if guard is None:
            return None
        if guard.name.endswith("T"):
            value = self.pool.const(1, 1)
        else:
            value = lookup(self.webs.read(instruction, guard.name), 1)
        return negation(self.pool, value) if guard.negated else value

    def read(
        self, instruction: SassInstruction, operand: Operand, bits: int, lookup: Lookup
    ) -> Value:
        """See `Isa`; of 64 bits, a register is the lower one of a pair."""
        match operand:
            case Predicate(number=number, negated=negated):
                name = self.webs.read(instruction, operand.name)
                value = self.pool.const(1, 1) if number is None else lookup(name, 1)
                return negation(self.pool, value) if negated else value
            case Register():
                return self._modified(self._register(instruction, operand, bits, lookup), operand)
            case SassImmediate(value=number):
                if isinstance(number, int):
                    return self.pool.const(number, bits)
                (pattern,) = struct.unpack("<I", struct.pack("<f", number))
                return self.pool.const(pattern, bits)
            case Constant(bank=0, base=base) if base is None or base.number is None:
                return self._modified(self._constant(operand.offset, bits), operand)
            case SassAddress():
                return self._address(instruction, operand, bits, lookup)
            case _:
                return self.pool.unknown(repr(operand), "a constant that is not evaluated", bits)

    def _register(
        self, instruction: SassInstruction, register: Register, bits: int, lookup: Lookup
    ) -> Value:
        if register.number is None:
            return self.pool.const(0, bits)
        names = [f"{register.file}{register.number + i}" for i in range(bits // 32 or 1)]
        values = [lookup(self.webs.read(instruction, name), 32) for name in names]
        return values[0] if len(values) == 1 else pair(self.pool, values[0], values[1])

    def _modified(self, value: Value, operand: Register | Constant) -> Value:
        bits = value.bits
        zero = self.pool.const(0, bits)
        if operand.absolute:
            value = self.pool.node("maxs", bits, value, self.pool.node("sub", bits, zero, value))
        if operand.inverted:
            value = self.pool.node("xor", bits, value, self.pool.const(-1, bits))
        return self.pool.node("sub", bits, zero, value) if operand.negated else value

    def _constant(self, offset: int, bits: int) -> Value:
        """What lies in constant bank 0."""
        if bits == 64:
            whole = self._parameter(offset, 64)
            if whole is not None:
                return whole
            return pair(self.pool, self._constant(offset, 32), self._constant(offset + 4, 32))
        for start, stem in ((self.layout.block, "ntid"), (self.layout.grid, "nctaid")):
            if offset in (start, start + 4, start + 8):
                return self.pool.special(f"{stem}.{'xyz'[(offset - start) // 4]}")
        parameter = self._parameter(offset, 32)
        if parameter is not None:
            return parameter
        return self.pool.unknown(offset, f"the constant c[0x0][{offset:#x}]", bits)

    def _parameter(self, offset: int, bits: int) -> Value | None:
        """``bits`` of the parameter at an offset of the bank."""
        at = offset - self.layout.parameters
        for place in self.parameters:
            if not place.offset <= at < place.offset + place.bytes:
                continue
            inside = at - place.offset
            if place.bytes == 8:
                whole = self.pool.param(place.name, 0, 64)
                if bits == 64 and inside == 0:
                    return whole
                if bits == 32 and inside in (0, 4):
                    return halves(self.pool, whole)[inside // 4]
                return None
            if bits == 64:
                return None
            if place.bytes < 4:
                narrow = self.pool.param(place.name, inside, 8 * place.bytes)
                return resize(self.pool, narrow, 32)
            return self.pool.param(place.name, inside, 32)
        return None

    def _address(
        self, instruction: SassInstruction, address: SassAddress, bits: int, lookup: Lookup
    ) -> Value:
        """The sum of an address; ``[R3.X4+UR4+0x10]`` scales a register."""
        total = self.pool.const(address.offset, bits)
        for register in address.registers:
            whole = "64" in register.suffixes or (
                register.file == "UR" and "U32" not in register.suffixes
            )
            wide = 64 if whole and bits == 64 else 32
            value = resize(self.pool, self._register(instruction, register, wide, lookup), bits)
            for suffix in register.suffixes:
                if match := _SCALE.match(suffix):
                    factor = self.pool.const(int(match[1]), bits)
                    value = self.pool.node("mul", bits, value, factor)
            total = self.pool.node("add", bits, value, total)
        return total

    # ------------------------------------------------------------ results

    def stored(self, instruction: SassInstruction, name: str, value: Value) -> Value:
        """See `Isa`: results have the width of their registers."""
        return value

    def results(self, instruction: SassInstruction, lookup: Lookup) -> list[Value]:
        """See `Isa`."""

        def read(operand: Operand, bits: int) -> Value:
            return self.read(instruction, operand, bits, lookup)

        def predicate_bits(mask: int) -> Value:
            total = self.pool.const(0, 32)
            for number in range(7):
                if mask >> number & 1:
                    held = self.pool.node("zext", 32, read(Predicate("P", number), 1))
                    place = self.pool.const(number, 32)
                    held = self.pool.node("shl", 32, held, place)
                    total = self.pool.node("or", 32, total, held)
            return total

        units = self.webs.defined[instruction.address]
        reason = _reason(instruction)
        by_unit: dict[str, Value] = {}
        transfer = TRANSFER.get(instruction.base)
        if transfer is not None:
            context = SassContext(self.pool, instruction, read, self._special, predicate_bits)
            try:
                by_unit = self._by_unit(instruction, transfer(context))
            except NotModelled as error:
                reason = str(error)
        elif instruction.address in self.webs.slots:
            by_unit = self._spilled(instruction, lookup)
        elif self._is_followed(instruction):
            by_unit = self._by_unit(instruction, self._load(instruction, reason, lookup))
        elif instruction.base == "R2P" and len(instruction.parts) == 1:
            value = read(instruction.operands[1], 32)
            for unit in units:
                place = self.pool.const(int(unit.lstrip("UP")), 32)
                moved = self.pool.node("shru", 32, value, place)
                by_unit[unit] = self.pool.node("trunc", 1, moved)
        return [
            by_unit[unit]
            if unit in by_unit
            else self.pool.unknown((instruction.address, unit), reason, self.width(unit))
            for unit in units
        ]

    def _is_followed(self, instruction: SassInstruction) -> bool:
        """Whether an instruction reads global memory that is the same all through the launch."""
        if self.arrays is None or instruction.base not in ("LDG", "LD"):
            return False
        return not {"STRONG", "MMIO"} & set(instruction.parts)

    def _load(self, instruction: SassInstruction, reason: str, lookup: Lookup) -> Results:
        """What global memory holds, by registers."""
        access = memory_access(instruction)
        assert self.arrays is not None
        assert access is not None
        if access.address is None or not access.bytes_per_thread:
            return {}
        loaded = Loaded(reason, self.arrays)
        first = self.read(instruction, access.address, 64, lookup)
        size = access.bytes_per_thread
        if size <= 4:
            signed = any(part in ("S8", "S16") for part in instruction.parts)
            return {0: resize(self.pool, self.pool.load(first, 8 * size, loaded), 32, signed)}
        values: list[Value] = []
        for offset in range(0, size, 8):
            place = self.pool.node("add", 64, first, self.pool.const(offset, 64))
            values += halves(self.pool, self.pool.load(place, 64, loaded))
        return {0: tuple(values)}

    def _spilled(self, instruction: SassInstruction, lookup: Lookup) -> dict[str, Value]:
        """What ``STL`` puts on the stack, or ``LDL`` takes from it."""
        slots = self.webs.slots[instruction.address]
        operand = instruction.operands[1 if instruction.base == "STL" else 0]
        if not isinstance(operand, Register):
            return {}
        by_unit: dict[str, Value] = {}
        for index, slot in enumerate(slots):
            if operand.number is None:
                by_unit[slot] = self.pool.const(0, 32)
                continue
            unit = f"R{operand.number + index}"
            source, target = (unit, slot) if instruction.base == "STL" else (slot, unit)
            by_unit[target] = lookup(self.webs.read(instruction, source), 32)
        return by_unit

    def _by_unit(self, instruction: SassInstruction, results: Results) -> dict[str, Value]:
        by_unit: dict[str, Value] = {}
        for place, given in results.items():
            operand = instruction.operands[place]
            assert isinstance(operand, Predicate | Register)
            if operand.number is None:
                continue
            values = given if isinstance(given, tuple) else (given,)
            if not isinstance(given, tuple) and given.bits == 64:
                values = halves(self.pool, given)
            count = width(instruction, place) if isinstance(operand, Register) else 1
            for index, value in enumerate(values[:count]):
                by_unit[f"{operand.file}{operand.number + index}"] = value
        return by_unit

    def _special(self, name: str) -> Value:
        if name == "SRZ":
            return self.pool.const(0, 32)
        known = _SPECIALS.get(name)
        if known is not None:
            return self.pool.special(known)
        return self.pool.unknown(name, f"{name} is not known before the launch", 32)


def _reason(instruction: SassInstruction) -> str:
    if instruction.base == "SYNCS":
        return "when an mbarrier completes"
    if instruction.base == "UTCATOMSWS":
        return "when tensor memory is free"
    access = memory_access(instruction)
    if access is not None and access.space != "const":
        return f"depends on data loaded by {instruction.opcode}"
    if control(instruction) == "call":
        return "what a called function returned"
    if classify(instruction) in _FLOATING or instruction.base in _COMPARES_FLOATS:
        return f"computed in floating point ({instruction.opcode})"
    return f"{instruction.opcode} is not evaluated"
