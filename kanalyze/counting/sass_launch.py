"""The SASS of a kernel in one launch: how often its blocks and instructions are executed, exactly.

What: warps that execute each block of the machine code, executed warp instructions in all and by
class, and wavefronts of accesses to shared memory.
Formula: a warp executes a block if any of its threads reaches it, in each iteration of the loops
around it (`kanalyze.symbolic.execution_predicates`); an instruction is executed once by each such
warp, whether its guard is on or off. Where threads of a warp went different ways, each part issues
the instructions up to the ``BSYNC`` at which they meet.
Source: ``smsp__inst_executed.sum`` and its kin, which this equals on an H200 for the kernels in the
tests.
Limits: what depends on data is unknown, with the reason; so are subroutines that several places
call, loops that wait for something, and parts of a warp that do not meet again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from kanalyze.counting.bindings import arrays_of, contents_of
from kanalyze.counting.ptx_launch import BlockRuns
from kanalyze.counting.sass_axes import SassAxes
from kanalyze.errors import Unknown
from kanalyze.launch.record import Launch
from kanalyze.models import banks, coalescing
from kanalyze.models.warps import EXECUTED, Counted, CountingRule
from kanalyze.ptx import ir as ptx_ir
from kanalyze.sass.calls import called_twice, failing_blocks, outside_calls
from kanalyze.sass.cfg import SassBlock, SassCfg
from kanalyze.sass.counts import CLASSES, access_class, before_join
from kanalyze.sass.ir import SassInstruction, SassModule
from kanalyze.sass.memory import SassAccess, memory_access
from kanalyze.sass.table import control
from kanalyze.symbolic.accesses import Addresses
from kanalyze.symbolic.execution_predicates import ExecutionPredicates
from kanalyze.symbolic.loops import solve
from kanalyze.symbolic.registers import OperandRequest, follow_code
from kanalyze.symbolic.sass_isa import SassIsa
from kanalyze.symbolic.sass_places import parameter_places
from kanalyze.symbolic.value import ValuePool

_COUNTED = {
    *(("global", kind) for kind in ("load", "store", "async_copy", "atomic", "reduction")),
    *(("shared", kind) for kind in ("load", "store", "matrix_load", "matrix_store")),
}
"""Space and kind of the accesses that are counted."""


@dataclass(frozen=True, slots=True)
class Total:
    """A sum over the launch: None with the reason where a part of it is not known.

    ``at_least`` is the sum of the parts that are known.
    """

    value: int | None
    reason: str | None
    at_least: int


@dataclass(frozen=True, slots=True)
class SassAccessCounts:
    """An instruction that reads or writes global or shared memory.

    ``executed`` counts every warp that issues it, ``active`` those of which a lane takes part.
    ``wavefronts`` are those of shared memory without arbitration between warps (None for global
    memory; of global memory see `SassKernelLaunch.sectors`). What is not known is None, with the
    reason.
    """

    instruction: SassInstruction
    access: SassAccess
    block: int
    executed: int | None
    active: int | None
    wavefronts: int | None
    reason: str | None


class SassKernelLaunch:
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
        self.launch = launch
        pool = ValuePool()
        arrays = arrays_of(parameters, launch)
        isa = SassIsa(cfg, pool, module.target, parameter_places(parameters, module.target), arrays)
        wanted = [_request(*access[1:]) for access in _accesses(cfg)]
        wanted += [OperandRequest(each, ()) for _, each, _ in _local(cfg) if each.guard]
        self._failing = failing = failing_blocks(cfg, module)
        registers = follow_code(cfg, isa, pool, wanted, failing)
        self._answers = dict(
            zip((request.instruction.address for request in wanted), registers.answers, strict=True)
        )
        params = {
            (parameter.name, 0): given.value
            for parameter, given in zip(parameters, launch.params, strict=False)
            if given.value is not None
        }
        solved = solve(registers)
        self._predicates = ExecutionPredicates(cfg, solved, failing)
        self._axes = SassAxes(cfg, Addresses((), solved), self._predicates, params, launch)
        self._axes.arrays = contents_of(parameters, launch)
        self._repeated = called_twice(cfg)

    # ------------------------------------------------------------ blocks

    @cached_property
    def block_runs(self) -> dict[int, BlockRuns]:
        """How often each reachable block is executed: None with a reason where that is unknown."""
        return {block: self._runs(block) for block in self.cfg.order}

    def _runs(self, block: int) -> BlockRuns:
        if block in self._repeated:
            return BlockRuns(None, None, "a subroutine that is called from several places")
        if block in self.apart:
            return BlockRuns(None, None, "threads of a warp may stay apart after a subroutine")
        runs = self._axes.runs(block)
        above = [place for place in self._splits if self.cfg.dominates(place, block)]
        arriving = self._splits[block] if above == [block] else None
        if arriving and set(self.cfg.graph.successors(block)) == {self.cfg.exit}:
            return BlockRuns(arriving, runs.threads, None)  # each part by itself
        if above:
            return BlockRuns(None, None, "threads of a warp that went different ways stay apart")
        return runs

    @cached_property
    def apart(self) -> frozenset[int]:
        """Blocks behind a subroutine that several places call, in loops: parts of warps run them.

        An H200 ran the code behind two such loops six times for a warp, though behind a ``BSYNC``.
        """
        following = self.cfg.graph.successors
        returning = {  # without the way through the subroutine
            block.index: [block.index + 1]
            for block in self.cfg.blocks
            if block.instructions and control(block.instructions[-1]) == "call"
        }
        if not (self._repeated and self.cfg.irreducible) or not any(
            block in _behind([block], lambda b: returning.get(b, following(b)))
            for block in returning
        ):
            return frozenset()
        return frozenset(_behind(self._repeated, following) - {self.cfg.exit})

    @cached_property
    def _splits(self) -> dict[int, int | None]:
        """The blocks where ways meet, but not the threads of a warp that took them: arrivals."""
        splits: dict[int, int | None] = {}
        for block in self.cfg.order:
            if not before_join(self.cfg.blocks[block]):
                runs, arriving = self._axes.runs(block).warps, self._arriving(block)
                scattered = any(self._axes.scattered(way, block) for way in self._ways(block))
                if runs is not None and (scattered or (arriving or 0) > runs):
                    splits[block] = None if scattered else arriving
        return splits

    def _ways(self, block: int) -> list[int]:
        """The blocks that lead into a block, without those that jump back to it."""
        loops = [loop for loop in self.cfg.loops if loop.header == block]
        return [
            before
            for before in self.cfg.graph.predecessors(block)
            if before in self._predicates.alive and not any(before in loop.body for loop in loops)
        ]

    @cached_property
    def arrivals(self) -> dict[int, int | None]:
        """For blocks with a ``BSYNC``: how many parts of warps arrive there; None: unknown."""
        return {
            block: self._arriving(block)
            for block in self.cfg.order
            if before_join(self.cfg.blocks[block]) and block not in self._axes.headers
        }

    def _arriving(self, block: int) -> int | None:
        """The warps of each way into the block, added up."""
        ways = self._ways(block)
        if len(ways) == 1 and not self._axes.left(ways[0], block):
            return self._axes.runs(block).warps
        total = 0
        for way in ways:
            arriving = self._axes.arriving(way, block)
            if arriving is None:
                return None
            total += arriving
        return total

    # ------------------------------------------------------------ instructions

    def executed(self, which: Callable[[SassInstruction], bool] | None = None) -> Total:
        """Executed warp instructions: all, or those for which ``which`` holds."""
        total = 0
        reason: str | None = None
        arrivals = self.arrivals
        for index, runs in self.block_runs.items():
            block = self.cfg.blocks[index]
            joined = before_join(block)
            for place, instruction in enumerate(block.instructions):
                if which is not None and not which(instruction):
                    continue
                amount = arrivals.get(index, runs.warps) if place < joined else runs.warps
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
            if self._axes.scattered(predecessor, block):
                return "they leave a loop in different iterations"
        return "it depends on data"

    @property
    def instructions_executed(self) -> Total:
        """All executed warp instructions, as ``smsp__inst_executed.sum`` counts them."""
        return self.executed()

    @cached_property
    def by_class(self) -> dict[str, Total]:
        """Executed warp instructions of each of `CLASSES`; dummies are among the loads."""
        return {name: self.executed(partial(_is_of, name)) for name in CLASSES}

    # ------------------------------------------------------------ accesses

    @cached_property
    def accesses(self) -> tuple[SassAccessCounts, ...]:
        """Loads, stores and copies of global and shared memory, dummies included."""
        return tuple(self._counts(*access) for access in _accesses(self.cfg))

    def _counts(
        self, block: SassBlock, instruction: SassInstruction, access: SassAccess
    ) -> SassAccessCounts:
        def result(executed: int | None, *rest: Any) -> SassAccessCounts:
            return SassAccessCounts(instruction, access, block.index, executed, *rest)

        shared = access.space == "shared"
        runs = self.block_runs.get(block.index)
        if runs is None or access.dummy:
            return result(runs.warps if runs else 0, 0, 0 if shared else None, None)
        if runs.warps is None:
            return result(None, None, None, runs.reason)
        answer = self._answers[instruction.address]
        active = self._axes.counted(EXECUTED, answer, None)
        if isinstance(active, Unknown):
            return result(runs.warps, None, None, active.reason)
        if active.requests == 0:
            return result(runs.warps, 0, 0 if shared else None, None)
        if not shared:
            return result(runs.warps, active.requests, None, None)
        counted = self._axes.counted(_rule(access), answer, answer.values[0])
        if isinstance(counted, Unknown):
            return result(runs.warps, active.requests, None, counted.reason)
        return result(runs.warps, active.requests, counted.transactions, None)

    def on_global(self, operation: str) -> list[SassAccessCounts]:
        """The accesses of an operation on global memory.

        ``operation`` is "load" (``LDG`` and ``LDGSTS``), "store", "atomic" or "reduction".
        """
        kinds = ("load", "async_copy") if operation == "load" else (operation,)
        return [
            counts
            for counts in self.accesses
            if counts.access.space == "global" and counts.access.kind in kinds
        ]

    def requests(self, operation: str) -> Total:
        """Requests of an operation on global memory, as Nsight Compute counts them."""
        return self._on_global(operation, lambda counts: (counts.active, counts.reason))

    def sectors(self, operation: str) -> Total:
        """Sectors of an operation on global memory, as Nsight Compute counts them."""
        return self._on_global(operation, self._sectors)

    def _on_global(
        self, operation: str, count: Callable[[SassAccessCounts], tuple[int | None, str | None]]
    ) -> Total:
        parts = [count(counts) for counts in self.on_global(operation)]
        return _total([*parts, *((None, reason) for reason in self._elsewhere(operation))])

    def _elsewhere(self, operation: str) -> Iterator[str]:
        """Why there may be accesses to global memory that are in none of `accesses`."""
        for index in self.cfg.order:
            for instruction in self.cfg.blocks[index].instructions:
                access = memory_access(instruction)
                if access and (access.space, access.kind) == ("generic", operation):
                    yield f"{instruction.opcode} goes to a memory that its address chooses"
        if not self._failing and any(outside_calls(self.cfg)):
            yield "the machine code calls another function"

    def counted(self, address: int) -> Counted | Unknown:
        """The transactions of the access at an address: sectors, or bank wavefronts."""
        counts = self._by_address.get(address)
        if counts is None or counts.active is None:
            return Unknown((counts and counts.reason) or "an access that is not counted")
        if not counts.active:
            return Counted(0, 0, 0, {})
        answer = self._answers[address]
        return self._axes.counted(_rule(counts.access), answer, answer.values[0])

    @cached_property
    def _by_address(self) -> dict[int, SassAccessCounts]:
        return {counts.instruction.address: counts for counts in self.accesses}

    def _sectors(self, counts: SassAccessCounts) -> tuple[int | None, str | None]:
        counted = self.counted(counts.instruction.address)
        if isinstance(counted, Unknown):
            return None, counted.reason
        return counted.transactions, None

    def local_bytes(self) -> dict[str, int] | Unknown:
        """Bytes of local memory, spills and arrays, that threads load and store; or the reason."""
        moved = {"load": 0, "store": 0}
        for block, instruction, access in _local(self.cfg):
            runs = self.block_runs.get(block.index, BlockRuns(0, 0, None))
            threads: int | None = runs.threads
            if threads and instruction.guard is not None:
                counted = self._axes.counted(EXECUTED, self._answers[instruction.address], None)
                if isinstance(counted, Unknown):
                    return Unknown(f"when {instruction.opcode} is executed: {counted.reason}")
                threads = counted.threads
            if threads is None:
                return Unknown(runs.reason or "how often local memory is accessed is not known")
            if access.bytes_per_thread is None or access.kind not in moved:
                return Unknown(f"{instruction.opcode}: how much it moves is not known")
            moved[access.kind] += threads * access.bytes_per_thread
        return moved

    @property
    def shared_load_wavefronts(self) -> Total:
        """Wavefronts of ``LDS`` and ``LDSM`` without arbitration between warps."""
        return self._wavefronts("load")

    @property
    def shared_store_wavefronts(self) -> Total:
        """Wavefronts of ``STS`` and ``STSM`` without arbitration between warps."""
        return self._wavefronts("store")

    def _wavefronts(self, kind: str) -> Total:
        listed = [
            counts
            for counts in self.accesses
            if counts.access.space == "shared" and counts.access.kind.endswith(kind)
        ]
        total = sum(counts.wavefronts or 0 for counts in listed)
        reasons = [counts.reason for counts in listed if counts.wavefronts is None]
        return Total(None if reasons else total, reasons[0] if reasons else None, total)


# ---------------------------------------------------------------- accesses


def _behind(blocks: Iterable[int], successors: Callable[[int], Iterable[int]]) -> set[int]:
    """The blocks that can be reached from ``blocks`` by at least one edge."""
    behind: set[int] = set()
    open_ends = list(blocks)
    while open_ends:
        new = set(successors(open_ends.pop())) - behind
        behind |= new
        open_ends += new
    return behind


def _total(parts: Sequence[tuple[int | None, str | None]]) -> Total:
    """The sum of numbers, each with the reason where it is not known."""
    at_least = sum(number or 0 for number, _ in parts)
    for number, reason in parts:
        if number is None:
            return Total(None, reason or "an address is not known", at_least)
    return Total(at_least, None, at_least)


def _is_of(name: str, instruction: SassInstruction) -> bool:
    return access_class(instruction) == name


def _accesses(cfg: SassCfg) -> Iterator[tuple[SassBlock, SassInstruction, SassAccess]]:
    for block in cfg.blocks:
        for instruction in block.instructions:
            access = memory_access(instruction)
            if access and (access.space, access.kind) in _COUNTED:
                yield block, instruction, access


def _local(cfg: SassCfg) -> Iterator[tuple[SassBlock, SassInstruction, SassAccess]]:
    """What reads or writes local memory."""
    for block in cfg.blocks:
        for instruction in block.instructions:
            access = memory_access(instruction)
            if access is not None and access.space == "local" and not access.dummy:
                yield block, instruction, access


def _request(instruction: SassInstruction, access: SassAccess) -> OperandRequest:
    """The address is wanted, and of a copy the predicate under which it reads."""
    wanted = [(access.address, 32 if access.space == "shared" else 64)]
    if access.copy_if is not None:
        wanted.append((access.copy_if, 1))
    return OperandRequest(instruction, tuple(wanted))


def _rule(access: SassAccess) -> CountingRule:
    if access.space == "global":
        return coalescing.of_atomics(access.kind) or coalescing.SECTORS
    kind = "load" if access.kind.endswith("load") else "store"
    if access.kind.startswith("matrix"):
        return banks.rule(kind, banks.MATRIX_ROW, access.vector)
    return banks.rule(kind, access.bytes_per_thread or banks.WORD)
