"""The value of every register that an address, a guard or a branch depends on.

The registers of a function are followed through its control-flow graph in reverse post-order, in
static single assignment form: registers written once have one value; for the others, phi values
stand at the iterated dominance frontiers of their definitions. At a join, a phi becomes a
``select`` on the branch that parts the paths, where that can be told; at a loop's header it is
solved as a recurrence by `kanalyze.symbolic.loops`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kanalyze.ptx import ir
from kanalyze.ptx.cfg import Cfg
from kanalyze.ptx.graph import NaturalLoop, dominance_frontiers
from kanalyze.symbolic.isa import Flow, Isa, Lookup, resize
from kanalyze.symbolic.ptx_isa import PtxIsa
from kanalyze.symbolic.value import Arrays, Value, ValuePool


@dataclass(frozen=True, slots=True)
class OperandRequest:
    """Operands of one instruction whose values are wanted: each with its width in bits."""

    instruction: Any
    operands: tuple[tuple[Any, int], ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """The values for a `OperandRequest`, and that of the guard (None: there is none)."""

    block: int
    values: tuple[Value, ...]
    guard: Value | None


@dataclass
class Registers:
    """Values of registers, found by one pass over the blocks; see `follow`.

    ``conditions`` holds, for each block that ends in a predicated branch, the value of the
    predicate as the branch takes it; ``phis`` the loop-carried values by (header, register) with
    their value before the loop and after one iteration; ``origins`` which instruction computed a
    value first; ``written`` what each instruction (by its ``id``) leaves in the registers that are
    followed.
    """

    cfg: Flow
    pool: ValuePool
    loops: Mapping[int, NaturalLoop]  # by header
    answers: list[Answer] = field(default_factory=list)
    origins: dict[Value, Any] = field(default_factory=dict)
    written: dict[int, dict[str, Value]] = field(default_factory=dict)
    conditions: dict[int, Value] = field(default_factory=dict)
    phis: dict[Value, tuple[int, Value, list[Value]]] = field(default_factory=dict)


def follow(
    cfg: Cfg,
    pool: ValuePool,
    wanted: Iterable[OperandRequest],
    variables: Mapping[str, ir.Variable],
    arrays: Arrays | None = None,
) -> Registers:
    """Find the values of the wanted operands of PTX (loop-carried ones still as ``phi`` leaves).

    Args:
        cfg: the function's control-flow graph.
        pool: where values are made.
        wanted: the operands whose values are needed.
        variables: the variables in sight of the function, by name.
        arrays: see `PtxIsa`.
    """
    return follow_code(cfg, PtxIsa(cfg, pool, variables, arrays), pool, wanted)


def follow_code(
    cfg: Flow,
    isa: Isa,
    pool: ValuePool,
    wanted: Iterable[OperandRequest],
    failing: Collection[int] = (),
) -> Registers:
    """The same for the code of any instruction set; no way goes on behind a ``failing`` block."""
    return _Follower(cfg, isa, pool, list(wanted), failing).run()


def branch_sides(cfg: Flow, block: int) -> tuple[int | None, int]:
    """The block that a predicated branch at the end of ``block`` jumps to, and the next one.

    The first is None if the branch has several targets.
    """
    following = block + 1
    others = [s for s in cfg.graph.successors(block) if s != following]
    return (others[0] if len(others) == 1 else None if others else following), following


def _ended(cfg: Flow, failing: Collection[int]) -> set[int]:
    """The failing blocks, and those that are reached through them alone."""
    ended = set(failing)
    for block in cfg.order if failing else ():
        before = set(cfg.graph.predecessors(block))
        if before and before <= ended:
            ended.add(block)
    return ended


class _Follower:
    def __init__(
        self,
        cfg: Flow,
        isa: Isa,
        pool: ValuePool,
        wanted: list[OperandRequest],
        failing: Collection[int] = (),
    ):
        self.cfg = cfg
        self.ended = _ended(cfg, failing)
        self.isa = isa
        self.pool = pool
        self.wanted = {id(request.instruction): request for request in wanted}
        self.order = [request.instruction for request in wanted]
        self.result = Registers(cfg, pool, {loop.header: loop for loop in cfg.loops})
        self.loops = self.result.loops
        self.definitions: dict[str, list[tuple[int, Any]]] = {}
        self.branches: dict[int, Any] = {}
        for block in cfg.blocks:
            for instruction in block.instructions:
                for name in isa.definitions(instruction):
                    self.definitions.setdefault(name, []).append((block.index, instruction))
            branch = isa.branch(block)
            if branch is not None:
                self.branches[block.index] = branch
        self.relevant = self._relevant()
        self.merged = {r for r in self.relevant if len(self.definitions[r]) > 1}
        self.out: dict[int, dict[str, Value]] = {}  # what a block leaves in merged registers
        self.single: dict[str, Value] = {}

    def _relevant(self) -> set[str]:
        """The registers that a wanted operand or a branch depends on, whatever the path."""
        relevant: set[str] = set()
        pending: list[str] = []

        def need(names: Iterable[str]) -> None:
            for name in names:
                if name in self.definitions and name not in relevant:
                    relevant.add(name)
                    pending.append(name)

        for request in self.wanted.values():
            for operand, _ in request.operands:
                need(self.isa.operand_names(request.instruction, operand))
            need(self.isa.guard_names(request.instruction))
        for branch in self.branches.values():
            need(self.isa.branch_names(branch))
        while pending:
            for _, instruction in self.definitions[pending.pop()]:
                need(self.isa.sources(instruction))
        return relevant

    def _phi_blocks(self) -> dict[int, list[str]]:
        """Block to the registers that need a phi at its entry (iterated dominance frontiers)."""
        graph = self.cfg.graph
        frontiers = dominance_frontiers(graph, self.cfg.idom) if self.merged else {}
        places: dict[int, list[str]] = {}
        for name in sorted(self.merged):
            placed: set[int] = set()
            pending = [block for block, _ in self.definitions[name]]
            while pending:
                for frontier in frontiers.get(pending.pop(), ()):
                    if frontier not in placed:
                        placed.add(frontier)
                        pending.append(frontier)
            if graph.predecessors(0):
                placed.add(0)  # the entry is a loop's header, too
            for block in placed:
                places.setdefault(block, []).append(name)
        return places

    # ------------------------------------------------------------ the pass

    def run(self) -> Registers:
        """Go over the blocks once and fill `Registers`."""
        places = self._phi_blocks()
        answers: dict[int, Answer] = {}
        carried: list[tuple[Value, int, str]] = []
        for index in self.cfg.order:
            block = self.cfg.blocks[index]
            self.out[index] = here = {}
            for name in places.get(index, ()):
                if index in self.loops:
                    phi = self.pool.phi((index, name), self.isa.width(name))
                    carried.append((phi, index, name))
                    here[name] = phi
                else:
                    here[name] = self._join(index, name)
            for instruction in block.instructions:
                request = self.wanted.get(id(instruction))
                if request is not None:
                    answers[id(instruction)] = self._answer(index, request)
                self._execute(index, instruction)
            branch = self.branches.get(index)
            if branch is not None:
                lookup = self._lookup(index)
                self.result.conditions[index] = self.isa.branch_condition(branch, lookup)
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
        self.result.answers = [answers.get(id(i), unreachable) for i in self.order]
        return self.result

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
                                 self.isa.width(name))  # fmt: skip

    def _join(self, block: int, name: str) -> Value:
        """The value of a register where paths meet: a ``select`` if the branch can be told."""
        predecessors = sorted(set(self.cfg.graph.predecessors(block)) - self.ended)
        if any(p not in self.out for p in predecessors):
            return self.pool.unknown((block, name), "the control flow is irreducible",
                                     self.isa.width(name))  # fmt: skip
        values = [self._leaving(p, name) for p in predecessors]
        if len(set(values)) == 1:
            return values[0]
        parting = self.cfg.idom.get(block)
        condition = self.result.conditions.get(parting) if parting is not None else None
        if parting is not None and condition is not None and len(values) == 2:
            sides = [self._side(parting, p, block) for p in predecessors]
            if sides == [True, False]:
                return self.pool.node("select", values[0].bits, condition, values[0], values[1])
            if sides == [False, True]:
                return self.pool.node("select", values[0].bits, condition, values[1], values[0])
        return self.pool.unknown((block, name), "differs by the path taken", self.isa.width(name))

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
        elif name in self.relevant or name not in self.definitions:
            return self.pool.unknown(name, f"{name} is read before it is written", bits)
        else:
            return self.pool.unknown(name, f"{name} is not an integer that is followed", bits)
        return resize(self.pool, value, bits)

    def _lookup(self, block: int) -> Lookup:
        return lambda name, bits: self._read_register(block, name, bits)

    def _answer(self, block: int, request: OperandRequest) -> Answer:
        lookup = self._lookup(block)
        values = tuple(
            self.isa.read(request.instruction, operand, bits, lookup)
            for operand, bits in request.operands
        )
        return Answer(block, values, self.isa.guard(request.instruction, lookup))

    def _execute(self, block: int, instruction: Any) -> None:
        """Give the registers that an instruction writes their values."""
        names = self.isa.definitions(instruction)
        if not any(name in self.relevant for name in names):
            return
        lookup = self._lookup(block)
        guard = self.isa.guard(instruction, lookup)
        for name, value in zip(names, self.isa.results(instruction, lookup), strict=True):
            if name not in self.relevant:
                continue
            if value.args:
                self.result.origins.setdefault(value, instruction)
            value = self.isa.stored(instruction, name, value)
            if guard is not None and name in self.merged:
                old = resize(self.pool, self._leaving(block, name), value.bits)
                value = self.pool.node("select", value.bits, guard, value, old)
            self.result.written.setdefault(id(instruction), {})[name] = value
            if name in self.merged:
                self.out[block][name] = value
            else:
                self.single[name] = value
