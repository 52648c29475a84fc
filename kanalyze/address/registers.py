"""The value of every register that an address, a guard or a branch depends on.

The registers of a function are followed through its control-flow graph in reverse post-order, in
static single assignment form: registers written once have one value; for the others, phi values
stand at the iterated dominance frontiers of their definitions. At a join, a phi becomes a
``select`` on the branch that parts the paths, where that can be told; at a loop's header it is
solved as a recurrence by `kanalyze.address.loops`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import networkx as nx

from kanalyze.address.transfer import TRANSFER, Context, NotModelled, opposite, type_bits
from kanalyze.address.value import Pool, Value
from kanalyze.ptx import instructions as table
from kanalyze.ptx import ir
from kanalyze.ptx.cfg import Cfg, Loop
from kanalyze.ptx.special import special_register

_TYPE_BITS = re.compile(r"\D*(\d+)")


@dataclass(frozen=True, slots=True)
class Request:
    """Operands of one instruction whose values are wanted: each with its width in bits."""

    instruction: ir.Instruction
    operands: tuple[tuple[ir.Operand, int], ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """The values for a `Request`, and that of the guard (None: there is none)."""

    block: int
    values: tuple[Value, ...]
    guard: Value | None


@dataclass
class Registers:
    """Values of registers, found by one pass over the blocks; see `follow`.

    ``conditions`` holds, for each block that ends in a predicated branch, the value of the
    predicate as the branch takes it; ``phis`` the loop-carried values by (header, register) with
    their value before the loop and after one iteration; ``origins`` which instruction computed a
    value first.
    """

    cfg: Cfg
    pool: Pool
    loops: Mapping[int, Loop]  # by header
    answers: list[Answer] = field(default_factory=list)
    origins: dict[Value, ir.Instruction] = field(default_factory=dict)
    conditions: dict[int, Value] = field(default_factory=dict)
    phis: dict[Value, tuple[int, Value, list[Value]]] = field(default_factory=dict)


def follow(
    cfg: Cfg,
    pool: Pool,
    wanted: Iterable[Request],
    variables: Mapping[str, ir.Variable],
) -> Registers:
    """Find the values of the wanted operands (loop-carried ones still as ``phi`` leaves).

    Args:
        cfg: the function's control-flow graph.
        pool: where values are made.
        wanted: the operands whose values are needed.
        variables: the variables in sight of the function, by name.
    """
    return _Follower(cfg, pool, list(wanted), variables).run()


def branch_sides(cfg: Cfg, block: int) -> tuple[int | None, int]:
    """The block that a predicated ``bra`` at the end of ``block`` jumps to, and the next one.

    The first is None if the branch has several targets.
    """
    following = block + 1
    others = [s for s in cfg.graph.successors(block) if s != following]
    return (others[0] if len(others) == 1 else None if others else following), following


class _Follower:
    def __init__(
        self, cfg: Cfg, pool: Pool, wanted: list[Request], variables: Mapping[str, ir.Variable]
    ):
        self.cfg = cfg
        self.pool = pool
        self.wanted = {id(request.instruction): request for request in wanted}
        self.order = [request.instruction for request in wanted]
        self.variables = variables
        self.parameters = {p.name: p for p in cfg.function.parameters}
        self.result = Registers(cfg, pool, {loop.header: loop for loop in cfg.loops})
        self.loops = self.result.loops
        self.widths = self._widths()
        self.definitions: dict[str, list[tuple[int, ir.Instruction]]] = {}
        self.branches: dict[int, ir.Instruction] = {}
        for block in cfg.blocks:
            for instruction in block.instructions:
                for name in self.names(table.definitions(instruction), instruction):
                    self.definitions.setdefault(name, []).append((block.index, instruction))
            last = block.instructions[-1] if block.instructions else None
            if last is not None and last.guard is not None and table.is_branch(last):
                self.branches[block.index] = last
        self.relevant = self._relevant()
        self.merged = {r for r in self.relevant if len(self.definitions[r]) > 1}
        self.out: dict[int, dict[str, Value]] = {}  # what a block leaves in merged registers
        self.single: dict[str, Value] = {}

    def _widths(self) -> dict[str, int]:
        """Register, or the stem of a numbered range (``%r``), to its width in bits."""
        widths: dict[str, int] = {}
        for statement in self.cfg.function.body or ():
            if isinstance(statement, ir.RegisterDeclaration):
                found = _TYPE_BITS.match(statement.type)
                bits = 1 if statement.type.lstrip(".") == "pred" else int(found[1]) if found else 64
                for name in statement.names:
                    widths[self.cfg.names.unique(name, statement.scope)] = bits
        return widths

    def names(self, names: Iterable[str], instruction: ir.Instruction) -> list[str]:
        """Register names told apart by the scope that declares them."""
        return [self.cfg.names.unique(name, instruction.scope) for name in names]

    def _relevant(self) -> set[str]:
        """The registers that a wanted operand or a branch depends on, whatever the path."""
        relevant: set[str] = set()
        pending: list[str] = []

        def need(names: Iterable[str], instruction: ir.Instruction) -> None:
            for name in self.names(names, instruction):
                if name in self.definitions and name not in relevant:
                    relevant.add(name)
                    pending.append(name)

        for request in self.wanted.values():
            instruction = request.instruction
            for operand, _ in request.operands:
                need(table.operand_names(operand), instruction)
            if instruction.guard is not None:
                need([instruction.guard.name], instruction)
        for branch in self.branches.values():
            assert branch.guard is not None
            need([branch.guard.name], branch)
        while pending:
            for _, instruction in self.definitions[pending.pop()]:
                if instruction.base in TRANSFER or instruction.guard is not None:
                    need(table.uses(instruction), instruction)
        return relevant

    def _phi_blocks(self) -> dict[int, list[str]]:
        """Block to the registers that need a phi at its entry (iterated dominance frontiers)."""
        graph = self.cfg.graph
        frontiers = nx.dominance_frontiers(graph, 0) if self.merged else {}
        places: dict[int, list[str]] = {}
        for name in sorted(self.merged):
            placed: set[int] = set()
            pending = [block for block, _ in self.definitions[name]]
            while pending:
                for frontier in frontiers.get(pending.pop(), ()):
                    if frontier not in placed:
                        placed.add(frontier)
                        pending.append(frontier)
            if any(True for _ in graph.predecessors(0)):
                placed.add(0)  # the entry is a loop's header, too
            for block in placed:
                places.setdefault(block, []).append(name)
        return places

    # ------------------------------------------------------------ the pass

    def run(self) -> Registers:
        """Go over the blocks once and fill `Registers`."""
        places = self._phi_blocks()
        found: dict[int, Answer] = {}
        carried: list[tuple[Value, int, str]] = []
        for index in self.cfg.order:
            block = self.cfg.blocks[index]
            self.out[index] = here = {}
            for name in places.get(index, ()):
                if index in self.loops:
                    phi = self.pool.phi((index, name), self._width(name))
                    carried.append((phi, index, name))
                    here[name] = phi
                else:
                    here[name] = self._join(index, name)
            for instruction in block.instructions:
                request = self.wanted.get(id(instruction))
                if request is not None:
                    read = self._reader(index, instruction)
                    values = tuple(read(operand, bits) for operand, bits in request.operands)
                    found[id(instruction)] = Answer(index, values, self._guard(index, instruction))
                self._execute(index, instruction)
            branch = self.branches.get(index)
            if branch is not None:
                condition = self._guard(index, branch)
                assert condition is not None
                self.result.conditions[index] = condition
        for phi, header, name in carried:
            loop = self.loops[header]
            outside = [p for p in self.cfg.graph.predecessors(header) if p not in loop.body]
            initial = [self._leaving(p, name) for p in outside if p in self.out]
            start = initial[0] if len(set(initial)) == 1 else self.pool.unknown(
                (header, name, "start"), "differs by the path into a loop", phi.bits)  # fmt: skip
            self.result.phis[phi] = (
                header, start, [self._leaving(latch, name) for latch in loop.latches]
            )  # fmt: skip
        unreachable = Answer(-1, (), None)
        self.result.answers = [found.get(id(i), unreachable) for i in self.order]
        return self.result

    def _width(self, name: str) -> int:
        """Width in bits of a register, by its declaration; 64 where none is found."""
        return self.widths.get(name) or self.widths.get(name.rstrip("0123456789")) or 64

    def _leaving(self, block: int, name: str) -> Value:
        """The value of a merged register where ``block`` ends."""
        here: int | None = block
        while here is not None:
            left = self.out.get(here)
            if left is None:
                break
            if name in left:
                return left[name]
            here = self.cfg.idom.get(here)
        return self.pool.unknown((block, name), f"{name} is read before it is written",
                                 self._width(name))  # fmt: skip

    def _join(self, block: int, name: str) -> Value:
        """The value of a register where paths meet: a ``select`` if the branch can be told."""
        predecessors = sorted(self.cfg.graph.predecessors(block))
        if any(p not in self.out for p in predecessors):
            return self.pool.unknown((block, name), "the control flow is irreducible",
                                     self._width(name))  # fmt: skip
        values = [self._leaving(p, name) for p in predecessors]
        if len(set(values)) == 1:
            return values[0]
        parting = self.cfg.idom.get(block)
        condition = self.result.conditions.get(parting) if parting is not None else None
        if parting is not None and condition is not None and len(predecessors) == 2:
            sides = [self._side(parting, p, block) for p in predecessors]
            if sides == [True, False]:
                return self.pool.make("select", values[0].bits, condition, values[0], values[1])
            if sides == [False, True]:
                return self.pool.make("select", values[0].bits, condition, values[1], values[0])
        return self.pool.unknown((block, name), "differs by the path taken", self._width(name))

    def _side(self, parting: int, predecessor: int, join: int) -> bool | None:
        """Whether the edge predecessor → join lies on the taken side of ``parting``'s branch."""
        taken, fallen = branch_sides(self.cfg, parting)
        if predecessor == parting:
            return None if taken == fallen else join == taken
        for successor, answer in ((taken, True), (fallen, False)):
            if (
                successor is not None
                and self.cfg.dominates(successor, predecessor)
                and (set(self.cfg.graph.predecessors(successor)) == {parting})
            ):
                return answer
        return None

    # ------------------------------------------------------------ reading and executing

    def _read_register(self, block: int, name: str, bits: int) -> Value:
        if name in self.merged:
            value = self._leaving(block, name)
        elif name in self.single:
            value = self.single[name]
        elif name in self.relevant:
            return self.pool.unknown(name, f"{name} is read before it is written", bits)
        else:
            return self.pool.unknown(name, f"{name} is not an integer that is followed", bits)
        return self.resize(value, bits)

    def resize(self, value: Value, bits: int, signed: bool = False) -> Value:
        """``value`` at another width; a register wider than the type is filled by sign or zeros."""
        if value.op == "unknown" and value.bits != bits:
            key, reason = value.payload
            return self.pool.unknown(key, reason, bits)
        if value.bits > bits:
            return self.pool.make("trunc", bits, value)
        return self.pool.make("sext" if signed and value.bits > 1 else "zext", bits, value)

    def _reader(
        self, block: int, instruction: ir.Instruction
    ) -> Callable[[ir.Operand, int], Value]:
        def read(operand: ir.Operand, bits: int) -> Value:
            match operand:
                case ir.Immediate(text=text, value=value):
                    if isinstance(value, int):
                        return self.pool.const(value, bits)
                    return self.pool.unknown(text, "a floating-point number", bits)
                case ir.Not(operand=inner):
                    return self.pool.make("xor", 1, read(inner, 1), self.pool.const(1, 1))
                case ir.Address(base=base, offset=offset):
                    return self.pool.make(
                        "add", bits, read(base, bits), self.pool.const(offset, bits)
                    )
                case ir.Name(text=text):
                    return self._read_name(block, instruction, text, bits)
                case _:
                    return self.pool.unknown(repr(operand), "a list of operands", bits)

        return read

    def _read_name(self, block: int, instruction: ir.Instruction, text: str, bits: int) -> Value:
        unique = self.cfg.names.unique(text, instruction.scope)
        if unique in self.definitions:
            return self._read_register(block, unique, bits)
        if text == "WARP_SZ":
            return self.pool.const(32, bits)
        if text in self.parameters or text in self.variables:
            return self.pool.address(text, bits)
        if text.startswith("%"):
            name = text[1:]
            special = special_register(text)
            if special is not None and special.known:
                return self.resize(self.pool.special(name, special.bits), bits)
            if special is not None:
                key = (text, instruction.pos)
                return self.pool.unknown(key, f"{text} is not known before the launch", bits)
        return self.pool.unknown(text, f"{text} is never written", bits)

    def _guard(self, block: int, instruction: ir.Instruction) -> Value | None:
        guard = instruction.guard
        if guard is None:
            return None
        value = self._read_name(block, instruction, guard.name, 1)
        return self.pool.make("xor", 1, value, self.pool.const(1, 1)) if guard.negated else value

    def _execute(self, block: int, instruction: ir.Instruction) -> None:
        """Give the registers that an instruction writes their values."""
        written = table.definitions(instruction)
        names = self.names(written, instruction)
        if not any(name in self.relevant for name in names):
            return
        guard = self._guard(block, instruction)
        for name, value in zip(names, self._results(block, instruction, written), strict=True):
            if name not in self.relevant:
                continue
            if value.args:
                self.result.origins.setdefault(value, instruction)
            signed = instruction.parts[-1].startswith("s") or instruction.parts[-2:-1] == ("s",)
            value = self.resize(value, max(value.bits, self._width(name)), signed)
            if guard is not None and name in self.merged:
                old = self.resize(self._leaving(block, name), value.bits)
                value = self.pool.make("select", value.bits, guard, value, old)
            if name in self.merged:
                self.out[block][name] = value
            else:
                self.single[name] = value

    def _results(
        self, block: int, instruction: ir.Instruction, written: tuple[str, ...]
    ) -> list[Value]:
        """The values that an instruction writes, in the order of `definitions`."""
        read = self._reader(block, instruction)
        access = table.memory_access(instruction)
        if access is not None and access.space == "param" and access.kind == "load":
            return self._load_parameter(instruction, access, len(written))
        if instruction.base == "mov" and isinstance(instruction.operands[0], ir.Vector):
            whole = read(instruction.operands[1], type_bits(instruction.parts[-1]))
            width = whole.bits // len(instruction.operands[0].items)
            pieces = []
            for index, item in enumerate(instruction.operands[0].items):
                if item != ir.Name("_"):
                    shift = self.pool.const(index * width, whole.bits)
                    pieces.append(
                        self.pool.make(
                            "trunc", width, self.pool.make("shru", whole.bits, whole, shift)
                        )
                    )
            return pieces
        transfer = TRANSFER.get(instruction.base)
        reason = self._reason(instruction, access)
        if transfer is not None:
            try:
                value = transfer(Context(self.pool, instruction, read))
            except NotModelled as error:
                reason = str(error)
            else:
                if len(written) == 1:
                    return [value]
                if instruction.base == "setp":
                    return [value, opposite(Context(self.pool, instruction, read))]
                reason = f"{instruction.opcode} with several results is not evaluated"
                if instruction.base == "shfl":
                    return [value, self.pool.unknown((instruction.pos, 1), reason, 1)]
        if instruction.base == "elect":
            elected = self.pool.special("elected", 1)
            return [
                elected if self._width(n) == 1 else self.pool.unknown(instruction.pos, reason, 32)
                for n in self.names(written, instruction)
            ]
        return [
            self.pool.unknown((instruction.pos, n), reason, self._width(n))
            for n in self.names(written, instruction)
        ]

    def _reason(self, instruction: ir.Instruction, access: table.MemoryAccess | None) -> str:
        if access is not None and access.kind in ("load", "atomic"):
            return f"depends on data loaded by {instruction.opcode}"
        return f"{instruction.opcode} is not evaluated"

    def _load_parameter(
        self, instruction: ir.Instruction, access: table.MemoryAccess, count: int
    ) -> list[Value]:
        address = instruction.operands[1]
        bits = access.element_bits
        if isinstance(address, ir.Address) and isinstance(address.base, ir.Name):
            name = address.base.text
            if name in self.parameters and self.cfg.function.kind == "entry":
                return [
                    self.pool.param(name, address.offset + i * bits // 8, bits)
                    for i in range(count)
                ]
        reason = "what a called function returned" if access is not None else ""
        key = (instruction.pos.line, instruction.pos.column)
        return [self.pool.unknown((*key, i), reason, bits) for i in range(count)]
