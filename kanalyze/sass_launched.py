"""The SASS of a kernel in one launch: how often its blocks and instructions are executed, exactly.

What: warps that execute each block of the machine code, executed warp instructions in all and by
class, and wavefronts of accesses to shared memory.
Formula: a warp executes a block if any of its threads reaches it (`kanalyze.address.reach`), in
each iteration of the loops around it; an instruction is executed once by each such warp, whether
its guard is on or off. Where threads of a warp went different ways, each part issues the
instructions up to the ``BSYNC`` at which they meet.
Source: ``smsp__inst_executed.sum`` and its kin, which this equals on an H200 for the kernels in the
tests.
Limits: what depends on data is unknown, with the reason; so are subroutines that several places
call, loops that wait for something, and parts of a warp that do not meet again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np

from kanalyze.address import parts
from kanalyze.address.accesses import Addresses
from kanalyze.address.grid import UnknownValueError, both
from kanalyze.address.loops import solve
from kanalyze.address.parts import Array, TooLargeError
from kanalyze.address.reach import Reach
from kanalyze.address.registers import Answer, Request, follow_code
from kanalyze.address.sass_isa import SassIsa, parameter_places
from kanalyze.address.value import Pool, Value
from kanalyze.launch import Launch
from kanalyze.launched import BlockRuns, Launched
from kanalyze.models import banks
from kanalyze.models.warps import Counted, Lanes, Rule, count
from kanalyze.ptx import ir as ptx_ir
from kanalyze.ptx.cfg import Cfg
from kanalyze.sass.cfg import SassBlock, SassCfg
from kanalyze.sass.counts import before_join
from kanalyze.sass.ir import SassInstruction, SassModule
from kanalyze.sass.memory import SassAccess, memory_access
from kanalyze.sass.table import branch_targets, control, tensor_core

CLASSES = (
    "global load", "global store", "global atomic", "asynchronous copy", "shared load",
    "shared store", "shared atomic", "matrix load", "matrix store", "local load", "local store",
    "tensor", "barrier",
)  # fmt: skip


def _nothing(addresses: Array, lanes: Lanes) -> Array:
    return np.zeros(len(addresses), np.int64)


_EXECUTED = Rule(1, _nothing)


@dataclass(frozen=True, slots=True)
class Total:
    """A sum over the launch: None with the reason where a part of it is not known.

    ``at_least`` is the sum of the parts that are known.
    """

    value: int | None
    reason: str | None
    at_least: int


@dataclass(frozen=True, slots=True)
class SharedCost:
    """An instruction that reads or writes shared memory.

    ``executed`` counts every warp that issues it, ``active`` those of which a lane takes part
    (None: not known). ``wavefronts`` are those without arbitration between warps; None with the
    reason where the addresses are not known.
    """

    instruction: SassInstruction
    access: SassAccess
    block: int
    executed: int | None
    active: int | None
    wavefronts: int | None
    reason: str | None


class SassLaunched:
    """One function of SASS with one launch of it.

    Args:
        cfg: its control-flow graph.
        module: the listing that it comes from: the architecture, and what it calls.
        parameters: the parameters of the kernel, from its PTX.
        launch: grid, block and arguments.
    """

    def __init__(
        self,
        cfg: SassCfg,
        module: SassModule,
        parameters: Sequence[ptx_ir.Parameter],
        launch: Launch,
    ):
        self.cfg = cfg
        pool = Pool()
        isa = SassIsa(cfg, pool, module.target, parameter_places(parameters))
        wanted = [
            Request(instruction, ((access.address, 32),))
            for _, instruction, access in _shared_accesses(cfg)
        ]
        registers = follow_code(cfg, isa, pool, wanted)
        self._answers = dict(
            zip((request.instruction.address for request in wanted), registers.answers, strict=True)
        )
        params = {
            (parameter.name, 0): given.value
            for parameter, given in zip(parameters, launch.params, strict=False)
            if given.value is not None
        }
        solved = solve(registers)
        self._reach = Reach(cfg, solved, failing_blocks(cfg, module))
        self._axes = _Axes(cfg, Addresses((), solved), self._reach, params, launch)
        self._repeated = _called_twice(cfg)

    # ------------------------------------------------------------ blocks

    @cached_property
    def block_runs(self) -> dict[int, BlockRuns]:
        """How often each reachable block is executed: None with a reason where that is unknown."""
        return {block: self._runs(block) for block in self.cfg.order}

    def _runs(self, block: int) -> BlockRuns:
        if block in self._repeated:
            return BlockRuns(None, None, "a subroutine that is called from several places")
        runs = self._axes.runs(block)
        if runs.warps is None or before_join(self.cfg.blocks[block]):
            return runs
        return runs

    @cached_property
    def arrivals(self) -> dict[int, int | None]:
        """For blocks that hold a ``BSYNC``: how many parts of warps arrive; None: unknown."""
        return {
            block: self._arrivals(block)
            for block in self.cfg.order
            if before_join(self.cfg.blocks[block])
        }

    def _arrivals(self, block: int) -> int | None:
        """The warps of each way into the block, added up."""
        total = 0
        for predecessor in self.cfg.graph.predecessors(block):
            if predecessor not in self._reach.alive:
                continue
            arriving = self._axes.arriving(predecessor, block)
            if arriving is None:
                return None
            total += arriving
        return total

    # ------------------------------------------------------------ instructions

    def executed(self, which: Callable[[SassInstruction], bool] | None = None) -> Total:
        """Executed warp instructions: all, or those for which ``which`` holds."""
        total = 0
        reason: str | None = None
        for index, runs in self.block_runs.items():
            block = self.cfg.blocks[index]
            apart = before_join(block)
            for place, instruction in enumerate(block.instructions):
                if which is not None and not which(instruction):
                    continue
                amount = self.arrivals[index] if place < apart else runs.warps
                if amount is not None:
                    total += amount
                elif reason is None:
                    reason = runs.reason or "how the threads of a warp part: " + self._why(index)
        return Total(total if reason is None else None, reason, total)

    def _why(self, block: int) -> str:
        """Why it is not known which ways lead into a block."""
        for predecessor in self.cfg.graph.predecessors(block):
            reason = self.block_runs[predecessor].reason
            if reason is not None:
                return reason
        return "it depends on data"

    @property
    def instructions_executed(self) -> Total:
        """All executed warp instructions, as ``smsp__inst_executed.sum`` counts them."""
        return self.executed()

    @cached_property
    def by_class(self) -> dict[str, Total]:
        """Executed warp instructions of each of `CLASSES`; dummies are among the loads."""
        return {
            name: self.executed(lambda i, name=name: classify_access(i) == name)  # type: ignore[misc]
            for name in CLASSES
        }

    # ------------------------------------------------------------ shared memory

    @cached_property
    def shared(self) -> tuple[SharedCost, ...]:
        """Every instruction that loads from or stores to shared memory, dummies included."""
        return tuple(self._shared(*found) for found in _shared_accesses(self.cfg))

    def _shared(
        self, block: SassBlock, instruction: SassInstruction, access: SassAccess
    ) -> SharedCost:
        runs = self.block_runs.get(block.index)
        executed = 0 if runs is None else runs.warps
        if access.dummy or runs is None:
            return SharedCost(instruction, access, block.index, executed, 0, 0, None)
        rule = _rule(access)
        answer = self._answers[instruction.address]
        if runs.warps is None:
            return SharedCost(instruction, access, block.index, None, None, None, runs.reason)
        active = self._axes.counted(_EXECUTED, answer, None)
        cost = self._axes.counted(rule, answer, answer.values[0])
        return SharedCost(
            instruction,
            access,
            block.index,
            executed,
            active.requests if isinstance(active, Counted) else None,
            cost.cost if isinstance(cost, Counted) else None,
            None if isinstance(cost, Counted) else cost,
        )

    @property
    def shared_load_wavefronts(self) -> Total:
        """Wavefronts of ``LDS`` and ``LDSM`` without arbitration between warps."""
        return self._wavefronts("load")

    @property
    def shared_store_wavefronts(self) -> Total:
        """Wavefronts of ``STS`` and ``STSM`` without arbitration between warps."""
        return self._wavefronts("store")

    def _wavefronts(self, kind: str) -> Total:
        costs = [cost for cost in self.shared if cost.access.kind.endswith(kind)]
        total = sum(cost.wavefronts or 0 for cost in costs)
        reasons = [cost.reason for cost in costs if cost.wavefronts is None]
        return Total(None if reasons else total, reasons[0] if reasons else None, total)


class _Axes(Launched):
    """`kanalyze.launched.Launched` over the graph of SASS: the same blocks, loops, conditions."""

    def __init__(
        self,
        cfg: SassCfg,
        found: Addresses,
        reach: Reach,
        params: dict[tuple[str, int], int],
        launch: Launch,
    ):
        self.cfg = cast(Cfg, cfg)  # what is used of it is the same
        self.found = found
        self.launch = launch
        self.reach = reach
        self.executed = reach.found
        self.params = params
        self.addresses = {}
        self._grids = {}

    def counted(self, rule: Rule, answer: Answer, address: Value | None) -> Counted | str:
        """Count an instruction by a rule; the reason where it cannot be told."""
        try:
            grid, within = self._grid(answer.block)
            condition = both(within, self._reached(grid, answer.block))
            if answer.guard is not None:
                (guard,) = self.found.solved.resolve([answer.guard], answer.block)
                condition = both(condition, grid.condition(guard))
            where = parts.number(0, grid.dimensions)
            if address is not None:
                (resolved,) = self.found.solved.resolve([address], answer.block)
                where = grid.value(resolved)
            return count(rule, where, condition, self._shape(grid))
        except UnknownValueError as error:
            return str(error)
        except TooLargeError:
            return "too many different cases to evaluate"

    def arriving(self, predecessor: int, block: int) -> int | None:
        """Warps of which a thread takes the edge ``predecessor`` → ``block``; None: unknown."""
        try:
            grid, within = self._grid(block)
            condition = both(within, self._reached(grid, block))
            condition = both(condition, grid.condition(self.reach.edge(predecessor, block)))
            nowhere = parts.number(0, grid.dimensions)
            return count(_EXECUTED, nowhere, condition, self._shape(grid)).requests
        except (UnknownValueError, TooLargeError):
            return None


# ---------------------------------------------------------------- what the text says


def classify_access(instruction: SassInstruction) -> str | None:
    """The one of `CLASSES` that an instruction belongs to."""
    if tensor_core(instruction) is not None:
        return "tensor"
    if instruction.base == "BAR":
        return "barrier"
    access = memory_access(instruction)
    if access is None:
        return None
    kinds = {"async_copy": "asynchronous copy", "matrix_load": "matrix load",
             "matrix_store": "matrix store"}  # fmt: skip
    if access.kind in kinds:
        return kinds[access.kind]
    kind = "atomic" if access.kind == "reduction" else access.kind
    name = f"{access.space} {kind}"
    return name if name in CLASSES else None


def _shared_accesses(cfg: SassCfg) -> Iterator[tuple[SassBlock, SassInstruction, SassAccess]]:
    for block in cfg.blocks:
        for instruction in block.instructions:
            access = memory_access(instruction)
            if (
                access is not None
                and access.space == "shared"
                and access.kind in ("load", "store", "matrix_load", "matrix_store")
            ):
                yield block, instruction, access


def _rule(access: SassAccess) -> Rule:
    kind = "load" if access.kind.endswith("load") else "store"
    if access.kind.startswith("matrix"):
        return banks.rule(kind, banks.MATRIX_ROW, access.vector)
    return banks.rule(kind, access.bytes_per_thread or banks.WORD)


def failing_blocks(cfg: SassCfg, module: SassModule) -> frozenset[int]:
    """The blocks in which the launch ends with an error: a trap, a failed assertion.

    A call of another section is one of ``__assertfail`` if that is the only function which the
    listing names and does not hold.
    """
    named = set(re.findall(r"\.type\s+([\w$]+),@function", module.text))
    named -= {function.name for function in module.functions}
    asserts = named == {"__assertfail"}
    found: set[int] = set()
    for block in cfg.blocks:
        for instruction in block.instructions:
            call = control(instruction) == "call" and not branch_targets(instruction)
            if instruction.opcode.startswith("BPT.TRAP") or (call and asserts):
                found.add(block.index)
    return frozenset(found)


def _called_twice(cfg: SassCfg) -> frozenset[int]:
    """The blocks of subroutines that several places call."""
    callers: dict[int, int] = {}
    for block in cfg.blocks:
        last = block.instructions[-1] if block.instructions else None
        if last is not None and control(last) == "call":
            for called in cfg.graph.successors(block.index):
                if called != block.index + 1:
                    callers[called] = callers.get(called, 0) + 1
    again = {called for called, times in callers.items() if times > 1}
    return frozenset(
        block for block in cfg.order if any(cfg.dominates(called, block) for called in again)
    )
