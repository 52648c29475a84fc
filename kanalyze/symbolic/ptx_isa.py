"""PTX as an instruction set for `kanalyze.symbolic.registers`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from kanalyze.ptx import instructions as table
from kanalyze.ptx import ir
from kanalyze.ptx.cfg import Cfg
from kanalyze.ptx.memory import MemoryAccess, memory_access
from kanalyze.ptx.special import special_register
from kanalyze.symbolic.isa import FlowBlock, Lookup, negation, resize
from kanalyze.symbolic.ptx_transfer import TRANSFER, NotModelled, PtxContext, opposite, type_bits
from kanalyze.symbolic.value import Arrays, Loaded, Value, ValuePool

_MAY_CHANGE = {"volatile", "relaxed", "acquire", "mmio"}
_TYPE_BITS = re.compile(r"\D*(\d+)")


class PtxIsa:
    """The instructions of one PTX function; see `kanalyze.symbolic.isa.Isa` for the methods.

    Args:
        cfg: its control-flow graph.
        pool: where values are made.
        variables: the variables in sight, by name.
        arrays: pointer parameters, where the contents of some are assumed: what is loaded from
            global memory is then followed.
    """

    def __init__(
        self,
        cfg: Cfg,
        pool: ValuePool,
        variables: Mapping[str, ir.Variable],
        arrays: Arrays | None = None,
    ):
        self.cfg = cfg
        self.arrays = arrays
        self.pool = pool
        self.variables = variables
        self.parameters = {p.name: p for p in cfg.function.parameters}
        self.widths = self._widths()
        self.written = {
            name
            for block in cfg.blocks
            for instruction in block.instructions
            for name in self.definitions(instruction)
        }

    def _widths(self) -> dict[str, int]:
        """Register, or the stem of a numbered range (``%r``), to its width in bits."""
        widths: dict[str, int] = {}
        for statement in self.cfg.function.body or ():
            if isinstance(statement, ir.RegisterDeclaration):
                match = _TYPE_BITS.match(statement.type)
                bits = 1 if statement.type.lstrip(".") == "pred" else int(match[1]) if match else 64
                scope = f"@{statement.scope}" if statement.scope else ""
                widths |= {name + scope: bits for name in statement.names}
        return widths

    # ------------------------------------------------------------ names

    def _names(self, names: Iterable[str], instruction: ir.Instruction) -> tuple[str, ...]:
        """Register names told apart by the scope that declares them."""
        return tuple(self.cfg.names.unique(name, instruction.scope) for name in names)

    def definitions(self, instruction: ir.Instruction) -> tuple[str, ...]:
        """See `Isa`."""
        return self._names(table.definitions(instruction), instruction)

    def sources(self, instruction: ir.Instruction) -> tuple[str, ...]:
        """See `Isa`."""
        known = instruction.base in TRANSFER or instruction.base == "elect"
        followed = known or "param" in instruction.opcode or self._is_followed(instruction)
        if followed or instruction.guard is not None:
            return self._names(table.uses(instruction), instruction)
        return ()

    def operand_names(self, instruction: ir.Instruction, operand: ir.Operand) -> tuple[str, ...]:
        """See `Isa`."""
        return self._names(table.operand_names(operand), instruction)

    def guard_names(self, instruction: ir.Instruction) -> tuple[str, ...]:
        """See `Isa`."""
        guard = instruction.guard
        return () if guard is None else self._names([guard.name], instruction)

    def width(self, name: str) -> int:
        """Width by the declaration; 64 where none is found."""
        return self._declared(name) or 64

    def _declared(self, name: str) -> int | None:
        stem, at, scope = name.partition("@")
        stem = stem.rstrip("0123456789")
        return self.widths.get(name) or self.widths.get(stem + at + scope)

    # ------------------------------------------------------------ branches

    def branch(self, block: FlowBlock) -> ir.Instruction | None:
        """See `Isa`."""
        last: ir.Instruction | None = block.instructions[-1] if block.instructions else None
        return last if last and last.guard is not None and table.is_branch(last) else None

    def branch_names(self, branch: ir.Instruction) -> tuple[str, ...]:
        """See `Isa`."""
        return self.guard_names(branch)

    def branch_condition(self, branch: ir.Instruction, lookup: Lookup) -> Value:
        """See `Isa`."""
        condition = self.guard(branch, lookup)
        assert condition is not None
        return condition

    # ------------------------------------------------------------ reading

    def read(
        self, instruction: ir.Instruction, operand: ir.Operand, bits: int, lookup: Lookup
    ) -> Value:
        """See `Isa`."""
        match operand:
            case ir.Immediate(text=text, value=value):
                if isinstance(value, int):
                    return self.pool.const(value, bits)
                return self.pool.unknown(text, "a floating-point number", bits)
            case ir.Not(operand=inner):
                return negation(self.pool, self.read(instruction, inner, 1, lookup))
            case ir.Address(base=base, offset=offset):
                start = self.read(instruction, base, bits, lookup)
                return self.pool.node("add", bits, start, self.pool.const(offset, bits))
            case ir.Name(text=text):
                return self._read_name(instruction, text, bits, lookup)
            case _:
                return self.pool.unknown(repr(operand), "a list of operands", bits)

    def _read_name(
        self, instruction: ir.Instruction, text: str, bits: int, lookup: Lookup
    ) -> Value:
        unique = self.cfg.names.unique(text, instruction.scope)
        if unique in self.written:
            return lookup(unique, bits)
        if text == "WARP_SZ":
            return self.pool.const(32, bits)
        if text in self.parameters or text in self.variables:
            return self.pool.address(text, bits)
        if text.startswith("%"):
            name = text[1:]
            special = special_register(text)
            if special is not None and special.known:
                return resize(self.pool, self.pool.special(name, special.bits), bits)
            if special is not None:
                key = (text, instruction.pos)
                return self.pool.unknown(key, f"{text} is not known before the launch", bits)
        return self.pool.unknown(text, f"{text} is never written", bits)

    def guard(self, instruction: ir.Instruction, lookup: Lookup) -> Value | None:
        """See `Isa`."""
        guard = instruction.guard
        if guard is None:
            return None
        value = self._read_name(instruction, guard.name, 1, lookup)
        return negation(self.pool, value) if guard.negated else value

    # ------------------------------------------------------------ results

    def stored(self, instruction: ir.Instruction, name: str, value: Value) -> Value:
        """A register wider than the type is filled by sign or zeros."""
        signed = instruction.parts[-1].startswith("s") or instruction.parts[-2:-1] == ("s",)
        return resize(self.pool, value, max(value.bits, self.width(name)), signed)

    def results(self, instruction: ir.Instruction, lookup: Lookup) -> list[Value]:
        """See `Isa`."""

        def read(operand: ir.Operand, bits: int) -> Value:
            return self.read(instruction, operand, bits, lookup)

        written = self.definitions(instruction)
        access = memory_access(instruction)
        if access is not None and access.space == "param" and access.kind == "load":
            return self._load_parameter(instruction, access, len(written), lookup)
        if access is not None and self._is_followed(instruction):
            return self._load(instruction, access, lookup)
        transfer = TRANSFER.get(instruction.base)
        reason = _reason(instruction, access)
        if transfer is not None:
            try:
                if instruction.base == "mov" and isinstance(instruction.operands[0], ir.Vector):
                    return self._pieces(instruction, instruction.operands[0], read)
                value = transfer(PtxContext(self.pool, instruction, read))
            except NotModelled as error:
                reason = str(error)
            except (IndexError, ValueError):  # operands or modifiers are missing
                reason = f"{instruction.opcode} with these operands is not in the PTX manual"
            else:
                if len(written) == 1:
                    return [value]
                if instruction.base == "setp":
                    return [value, opposite(PtxContext(self.pool, instruction, read))]
                reason = f"{instruction.opcode} with several results is not evaluated"
                if instruction.base == "shfl":
                    return [value, self.pool.unknown((instruction.pos, 1), reason, 1)]
        if instruction.base == "elect" and self._asks_the_warp(instruction, read):
            elected = self.pool.special("elected", 1)
            return [
                elected if self.width(n) == 1 else self.pool.unknown(instruction.pos, reason, 32)
                for n in written
            ]
        return [
            self.pool.unknown((instruction.pos, n), reason, self.width(n)) for n in written
        ]  # fmt: skip

    def _asks_the_warp(
        self, instruction: ir.Instruction, read: Callable[[ir.Operand, int], Value]
    ) -> bool:
        """Whether an ``elect.sync`` has all lanes among its members."""
        members = instruction.operands[1:2]
        return bool(members) and read(members[0], 32).unsigned == 0xFFFFFFFF

    def _pieces(
        self,
        instruction: ir.Instruction,
        vector: ir.Vector,
        read: Callable[[ir.Operand, int], Value],
    ) -> list[Value]:
        """``mov.b64 {%r1, %r2}, %rd1``."""
        whole = read(instruction.operands[1], type_bits(instruction.parts[-1]))
        width = whole.bits // len(vector.items)
        pieces = []
        for index, item in enumerate(vector.items):
            if item != ir.Name("_"):
                shift = self.pool.const(index * width, whole.bits)
                moved = self.pool.node("shru", whole.bits, whole, shift)
                pieces.append(self.pool.node("trunc", width, moved))
        return pieces

    def _is_followed(self, instruction: ir.Instruction) -> bool:
        """Whether an instruction reads global memory that is the same all through the launch."""
        if self.arrays is None or instruction.base not in ("ld", "ldu"):
            return False
        access = memory_access(instruction)
        assert access is not None
        return (
            access.space in ("global", "generic")
            and access.element_bits in (8, 16, 32, 64)
            and access.address is not None
            and not _MAY_CHANGE & set(instruction.parts)
        )

    def _load(
        self, instruction: ir.Instruction, access: MemoryAccess, lookup: Lookup
    ) -> list[Value]:
        """What global memory holds: one value for each register that is written."""
        assert self.arrays is not None
        assert access.address is not None
        loaded = Loaded(_reason(instruction, access), self.arrays)
        first = self.read(instruction, access.address, 64, lookup)
        target = instruction.operands[0]
        items = target.items if isinstance(target, ir.Vector) else (target,)
        values = []
        for index, item in enumerate(items):
            if item != ir.Name("_"):
                step = self.pool.const(index * access.element_bits // 8, 64)
                address = self.pool.node("add", 64, first, step)
                values.append(self.pool.load(address, access.element_bits, loaded))
        return values

    def _load_parameter(
        self, instruction: ir.Instruction, access: MemoryAccess, count: int, lookup: Lookup
    ) -> list[Value]:
        operand, bits, offset = instruction.operands[1], access.element_bits, 0
        address = self.read(instruction, operand, 64, lookup)
        if address.op == "add" and address.args[1].op == "const":
            address, offset = address.args[0], address.args[1].unsigned or 0
        name = address.payload if address.op == "address" else None
        if name in self.parameters and self.cfg.function.kind == "entry":
            return [self.pool.param(name, offset + i * bits // 8, bits) for i in range(count)]
        reason = "what a called function returned"
        if any(map(self._declared, self.operand_names(instruction, operand))):
            reason = "a part of a parameter that is not followed"
        return [
            self.pool.unknown((instruction.pos, operand, i), reason, bits) for i in range(count)
        ]


def _reason(instruction: ir.Instruction, access: MemoryAccess | None) -> str:
    if access is not None and access.kind in ("load", "atomic"):
        return f"depends on data loaded by {instruction.opcode}"
    if instruction.base == "mapa":
        return "distributed shared memory, of another block of the cluster (mapa)"
    return f"{instruction.opcode} is not evaluated"
