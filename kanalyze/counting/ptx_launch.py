"""A kernel in one launch: how often its blocks run, and transactions of each access, exactly.

One file: all that is counted is counted on the same grids of blocks, threads and iterations.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace

from kanalyze.counting import bulk_copies
from kanalyze.counting.bindings import contents_of, maps_of, unwritten
from kanalyze.launch.record import Launch
from kanalyze.models import banks, coalescing
from kanalyze.models.block_accesses import BlockAccess, ThreadAccess
from kanalyze.models.footprint import Footprint
from kanalyze.models.layouts import Layout, with_layout
from kanalyze.models.warps import (
    EXECUTED,
    AlikeClasses,
    Counted,
    CountingRule,
    MisalignedError,
    Occurrences,
    classes,
    classes_alike,
    count,
)
from kanalyze.ptx import ir
from kanalyze.ptx.cfg import Cfg
from kanalyze.symbolic import parts
from kanalyze.symbolic.accesses import AccessValue, Addresses, is_bulk
from kanalyze.symbolic.grid import TRUE, Condition, Grid, UnknownValueError, both, either, negate
from kanalyze.symbolic.parts import Parts, TooLargeError
from kanalyze.symbolic.value import Value, in_order, leaves

_SHARED_ALIGNMENT = 128  # dynamic shared memory begins at a multiple of it
_PART_THREADS = 1 << 21  # of one part of a launch
_MOST_PARTS = 1 << 10


@dataclass(frozen=True, slots=True)
class AccessTransactions:
    """An access with its transactions over the launch, or why they are not known.

    ``counted.transactions`` are sectors of global accesses, bank wavefronts of shared ones. Of bulk
    copies, ``ideal`` is the sectors of as many contiguous bytes, ``moved`` the bytes of one copy.
    ``fate`` is what the assembler made of it (`kanalyze.sass.explain.Match`), None: not known;
    ``machine`` that in words, where it is not the same.
    """

    access: AccessValue
    counted: Counted | None
    reason: str | None
    ideal: int | None = None
    moved: int | None = None
    fate: str | None = None
    machine: str | None = None


@dataclass(frozen=True, slots=True)
class BlockRuns:
    """How often a block of the control-flow graph is executed, by warps and by threads."""

    warps: int | None
    threads: int | None
    reason: str | None


class KernelLaunch:
    """A kernel with one launch of it.

    Args:
        cfg: its control-flow graph.
        addresses: its accesses and solved loops.
        variables: variables in sight, by name.
        launch: grid, block and arguments.
        refused: why it does not start, where it does not: then nothing of it is known.
    """

    refused: str | None = None

    def __init__(
        self, cfg: Cfg, addresses: Addresses, variables: Mapping[str, ir.Variable], launch: Launch,
        refused: str | None = None,
    ):  # fmt: skip
        self.cfg = cfg
        self.refused = refused
        self.addresses = addresses
        self.launch = launch = unwritten(cfg.function, addresses, launch)
        self.executed = addresses.predicates
        self.params = {
            (parameter.name, 0): given.value
            for parameter, given in zip(cfg.function.parameters, launch.params, strict=False)
            if given.value is not None
        }
        self.arrays = contents_of(cfg.function.parameters, launch)
        self.maps = maps_of(cfg.function.parameters, launch)
        self.shared_places = _layout(variables)
        self._grids: dict[tuple[object, ...], tuple[Grid, Condition]] = {}
        self._runs: dict[int, BlockRuns] = {}
        self._known: dict[int, AccessTransactions] = {}  # by the `id` of the access
        self.part: tuple[int, int] | None = None  # first block and number of blocks

    # ------------------------------------------------------------ what callers use

    def transactions(self, access: AccessValue, layout: Layout | None = None) -> AccessTransactions:
        """Count one access; only global and shared ones have a rule.

        With a ``layout``, as if the shared array were laid out so.
        """
        if layout is not None:
            return self._transactions(access, layout)
        key = id(access)
        if key not in self._known:
            self._known[key] = self._transactions(access, None)
        return self._known[key]

    def _transactions(self, access: AccessValue, layout: Layout | None) -> AccessTransactions:
        if is_bulk(access.instruction, access.row):
            return self._bulk_transactions(access)
        rule = rule_of(access)
        if rule is not None and layout is not None:
            rule = with_layout(rule, layout)
        elif rule is not None:
            rule = replace(rule, alignment=_alignment(access))
        if rule is None:
            return AccessTransactions(access, None, f"no rule for {access.instruction.opcode}")
        try:
            return AccessTransactions(access, self._counted(rule, access), None)
        except UnknownValueError as error:
            return AccessTransactions(access, None, str(error))
        except TooLargeError:
            return AccessTransactions(access, None, "too many different cases to evaluate")
        except MisalignedError as error:
            return AccessTransactions(access, None, str(error))

    def _counted(self, rule: CountingRule, access: AccessValue) -> Counted:
        return summed([count(rule, *part.place(access)) for part in self.parts(access)])

    def classes(self, access: AccessValue) -> tuple[int, tuple[AlikeClasses, ...]]:
        """The period in bytes of the rule that an access is counted by, and the classes.

        Raises:
            UnknownValueError, TooLargeError: they are not known, or too many.
        """
        rule = None if is_bulk(access.instruction, access.row) else rule_of(access)
        if rule is None:
            raise UnknownValueError(f"{access.instruction.opcode} is not counted by classes")
        parts = self.parts(access)
        return rule.period, tuple(c for p in parts for c in classes_alike(rule, *p.place(access)))

    def parts(self, access: AccessValue) -> list[KernelLaunch]:
        """The launch as parts of its blocks that are counted one after the other.

        Values that depend on loaded data are one number for each block, thread and iteration; of
        a large launch they are made for some blocks at a time.
        """
        blocks, threads = math.prod(self.launch.grid), math.prod(self.launch.block)
        step = max(1, _PART_THREADS // threads)
        if self.part is not None or not self.arrays or not step < blocks <= step * _MOST_PARTS:
            return [self]
        values = [access.address, self.executed[access.block]]
        values += [access.condition] if access.condition is not None else []
        if not any(node.op == "load" for node in in_order(values)):
            return [self]
        return [
            self.of_blocks(first, min(step, blocks - first)) for first in range(0, blocks, step)
        ]

    def of_blocks(self, first: int, blocks: int) -> KernelLaunch:
        """Only so many blocks of the launch, from ``first`` on."""
        some = copy(self)
        some.part = (first, blocks)
        some._grids, some._runs, some._known = {}, {}, {}
        return some

    def _bulk_transactions(self, access: AccessValue) -> AccessTransactions:
        try:
            told, condition, shape = self._told(access)
            counted, ideal = bulk_copies.counted(told, condition, shape)
        except UnknownValueError as error:
            return AccessTransactions(access, None, str(error))
        except TooLargeError:
            return AccessTransactions(access, None, "too many different cases to evaluate")
        return AccessTransactions(access, counted, None, ideal, told.moved)

    def copies(
        self, access: AccessValue
    ) -> tuple[bulk_copies.CopyOperands, Condition, Occurrences]:
        """What a bulk copy is told, when it is made, and the axes of both (errors: see `place`)."""
        return self._told(access)

    def _told(self, access: AccessValue) -> tuple[bulk_copies.CopyOperands, Condition, Occurrences]:
        grid, within = self._grid(access.block)
        condition = both(within, self._condition(grid, access))
        return bulk_copies.told(access, grid, self.maps), condition, self._shape(grid)

    def runs(self, block: int) -> BlockRuns:
        """How often a block of the control-flow graph is executed."""
        if block not in self._runs:
            self._runs[block] = self._count_runs(block)
        return self._runs[block]

    def _count_runs(self, block: int) -> BlockRuns:
        try:
            grid, within = self._grid(block)
            condition = both(within, self._reached(grid, block))
            counted = self._executions(grid, condition)
        except UnknownValueError as error:
            return BlockRuns(None, None, str(error))
        except TooLargeError:
            return BlockRuns(None, None, "too many different cases to evaluate")
        return BlockRuns(counted.requests, counted.threads, None)

    def threads(self, access: AccessValue) -> int:
        """How often a thread executes an access, over the launch.

        Raises:
            UnknownValueError, TooLargeError: it is not known, or there are too many cases.
        """
        grid, within = self._grid(access.block)
        condition = both(within, self._condition(grid, access))
        return self._executions(grid, condition).threads

    def untrimmed(self, access: AccessValue) -> int:
        """How often a thread would execute an access if no comparison with an argument kept it out.

        What depends on the thread alone (one lane stores for all) counts as before.

        Raises:
            UnknownValueError, TooLargeError: it is not known, or there are too many cases.
        """
        pool = self.addresses.solved.registers.pool

        def open_(value: Value) -> Value:
            if value.op == "and" and value.bits == 1:
                return pool.node("and", 1, *(open_(side) for side in value.args))
            return pool.const(1, 1) if leaves(value, "param") else value

        grid, condition = self._grid(access.block)
        values = [self.executed[block] for block in (access.block, *grid.loops)]
        if access.condition is not None:
            values.append(access.condition)
        for value in values:
            condition = both(condition, grid.condition(open_(value)))
        return self._executions(grid, condition).threads

    def split(self, block: int, condition: Value) -> tuple[int, int]:
        """Warps that execute the end of a block, and those of which threads part there.

        Threads part where ``condition`` holds for some of those that come there and not for
        others; a warp counts each time it comes there.

        Raises:
            UnknownValueError, TooLargeError: they are not known, or too many.
        """
        grid, within = self._grid(block)
        reached, held = both(within, self._reached(grid, block)), grid.condition(condition)
        all_, some, others = (
            self._executions(grid, both(reached, side)).requests
            for side in (TRUE, held, negate(held))
        )
        return all_, some + others - all_

    def _executions(self, grid: Grid, condition: Condition) -> Counted:
        """Executions alone, by warps (requests) and by threads."""
        return count(EXECUTED, parts.number(0, grid.dimensions), condition, self._shape(grid))

    def wrapped(self, access: AccessValue) -> tuple[int, Value | None]:
        """Times that a thread's offset passes what its 32-bit arithmetic can hold, and the offset.

        Looked at are the parts of the address that are widened from 32 bits and then added up; of
        several that pass it, the one that does most often.

        Raises:
            UnknownValueError, TooLargeError: they are not known, or too many.
        """
        grid, within = self._grid(access.block)
        condition = both(within, self._condition(grid, access))
        most: tuple[int, Value | None] = (0, None)
        for widened in widened_parts(access.address):
            offset, signed = grid.value(widened.args[0]), widened.op == "sext"
            limit = 1 << (31 if signed else 32)
            if offset.high < limit and (offset.low >= -limit or not signed):
                continue
            outside = grid.beyond(offset, limit)
            if signed:
                outside = either(outside, grid.beyond(parts.scale(offset, -1), limit + 1))
            threads = self._executions(grid, both(condition, outside)).threads
            if threads > most[0]:
                most = threads, widened
        return most

    def mark(self, access: AccessValue, footprint: Footprint) -> None:
        """Mark the sectors that an access touches.

        Raises:
            UnknownValueError, TooLargeError: they are not known, or too many.
        """
        if is_bulk(access.instruction, access.row):
            bulk_copies.mark(*self._told(access), footprint)
            return
        for some in self.parts(access):
            for kind in classes(*some.place(access)):
                footprint.mark(*kind)

    def place(self, access: AccessValue) -> tuple[Parts, Condition, Occurrences]:
        """The address, when it is accessed, and the extents of the axes that both vary over.

        The axes are the block, the thread and the loops around the access, outermost first.

        Raises:
            UnknownValueError, TooLargeError: they are not known, or too many.
        """
        grid, within = self._grid(access.block)
        condition = both(within, self._condition(grid, access))
        return grid.value(access.address), condition, self._shape(grid)

    def by_block(self, access: AccessValue) -> BlockAccess:
        """An access as blocks differ in it.

        Raises:
            UnknownValueError, TooLargeError: the addresses are not known, or too many.
        """
        if is_bulk(access.instruction, access.row):
            return bulk_copies.Copies(*self._told(access))
        return ThreadAccess(*self.place(access))

    def loops(self, access: AccessValue) -> tuple[int, ...]:
        """The headers of the loops around an access, outermost first: the axes of `place`."""
        return tuple(self._grid(access.block)[0].loops)

    def span(self, access: AccessValue) -> tuple[int, int]:
        """The lowest and the highest address that the access can have, whatever its condition."""
        if is_bulk(access.instruction, access.row):
            return bulk_copies.span(self._told(access)[0])
        ranges = []
        for some in self.parts(access):
            where = some._grid(access.block)[0].value(access.address)
            ranges.append((where.low, where.high))
        return min(low for low, _ in ranges), max(high for _, high in ranges)

    # ------------------------------------------------------------ axes and conditions

    def _shape(self, grid: Grid) -> Occurrences:
        threads = math.prod(self.launch.block)
        blocks = math.prod(self.launch.grid) if self.part is None else self.part[1]
        return Occurrences((blocks, threads, *grid.loops.values()))

    def _reached(self, grid: Grid, block: int) -> Condition:
        """The block is reached and all loops around it are entered."""
        condition = grid.condition(self.executed[block])
        for header in grid.loops:
            condition = both(condition, grid.condition(self.executed[header]))
        return condition

    def _condition(self, grid: Grid, access: AccessValue) -> Condition:
        condition = self._reached(grid, access.block)
        if access.condition is not None:
            condition = both(condition, grid.condition(access.condition))
        return condition

    def _grid(self, block: int) -> tuple[Grid, Condition]:
        """The axes around a block, and when an iteration number is one that the loop reaches.

        The extent of a loop's axis is its greatest number of iterations anywhere, at least 1.
        """
        if self.refused is not None:
            raise UnknownValueError(self.refused)
        around = sorted(
            (loop for loop in self.cfg.loops if block in loop.body), key=lambda loop: loop.depth
        )
        key = (*(loop.header for loop in around), block in {loop.header for loop in around})
        if key in self._grids:
            return self._grids[key]
        extents: dict[int, int] = {}
        for loop in around:
            runs = self._runs_of(loop.header, block)
            extents[loop.header] = max(1, self._over(dict(extents)).value(runs).high)
        grid = self._over(extents)
        within = TRUE
        for loop in around:
            within = both(within, self._within(grid, loop.header, block))
        self._grids[key] = (grid, within)
        return self._grids[key]

    def _runs_of(self, header: int, block: int) -> Value:
        """How often a block of a loop runs, once the loop is entered."""
        trip = self.addresses.solved.trips[header]
        if trip.count is None or trip.last is None:
            raise UnknownValueError(f"the length of a loop: {trip.reason}")
        if not trip.tests_first:
            return trip.count
        if block != header:
            return trip.last
        pool = self.addresses.solved.registers.pool
        return pool.node("add", trip.last.bits, trip.last, pool.const(1, trip.last.bits))

    def _within(self, grid: Grid, header: int, block: int) -> Condition:
        """Whether the loop comes to its iteration number: it went on before, every time."""
        trip = self.addresses.solved.trips[header]
        pool = self.addresses.solved.registers.pool
        if trip.goes_on is None:
            runs = self._runs_of(header, block)
            number = pool.iteration(header, runs.bits)
            return grid.condition(pool.node("lts", 1, number, runs))
        if trip.tests_first and block != header:
            return grid.condition(trip.goes_on)
        numbers = {leaf for leaf in leaves(trip.goes_on, "iter") if leaf.payload == header}
        before = {n: pool.node("add", n.bits, n, pool.const(-1, n.bits)) for n in numbers}
        went_on = pool.substitute(trip.goes_on, before)
        first = pool.node("eq", 1, pool.iteration(header, 32), pool.const(0, 32))
        return grid.condition(pool.node("or", 1, first, went_on))

    def _over(self, loops: dict[int, int]) -> Grid:
        launch = self.launch
        return Grid(
            launch.grid, launch.block, self.params, self.shared_places, loops, self.arrays,
            launch.cluster or (1, 1, 1), self.part,
        )  # fmt: skip


def summed(counts: Sequence[Counted]) -> Counted:
    """What was counted of the parts of a launch, added up."""
    if len(counts) == 1:
        return counts[0]
    merged: Counter[int] = Counter()
    for each in counts:
        merged.update(each.by_transactions)
    return Counted(
        sum(each.requests for each in counts),
        sum(each.transactions for each in counts),
        sum(each.threads for each in counts),
        dict(sorted(merged.items())),
    )


def widened_parts(address: Value) -> Iterator[Value]:
    """The 32-bit values that are widened and added up to an address, as they are or scaled."""
    pending = [address]
    while pending:
        value = pending.pop()
        if value.op in ("sext", "zext") and value.args[0].bits == 32:
            yield value
        elif value.op in ("add", "sub", "mul", "shl"):
            pending += value.args


def _alignment(access: AccessValue) -> int:
    """What the address must be a multiple of, or the device faults."""
    if access.instruction.base in ("ldmatrix", "stmatrix"):
        return banks.MATRIX_ROW
    size = access.row.bytes_per_thread or 1
    return size if size & (size - 1) == 0 else 1


def rule_of(access: AccessValue) -> CountingRule | None:
    """How one execution of an access by one warp is counted; None if it is not."""
    row = access.row
    if access.instruction.base == "tensormap":
        return coalescing.TENSOR_MAP
    if row.space == "global":
        if row.kind in ("load", "store", "async_copy"):
            return coalescing.SECTORS
        return coalescing.of_atomics(row.kind)
    if row.space == "shared" and row.kind in ("load", "store"):
        base = access.instruction.base
        if base in ("ldmatrix", "stmatrix"):
            return banks.rule(row.kind, banks.MATRIX_ROW, row.vector)
        if row.bytes_per_thread in (1, 2, 4, 8, 16) and base in ("ld", "st"):
            return banks.rule(row.kind, row.bytes_per_thread)
    return None


def _layout(variables: Mapping[str, ir.Variable]) -> dict[str, int]:
    """Addresses of the shared variables: in order of declaration, the dynamic one last."""
    place = 0
    places: dict[str, int] = {}
    shared = [v for v in variables.values() if v.space == "shared"]
    for variable in sorted(shared, key=lambda v: v.bytes is None):
        align = max(variable.align or 1, _SHARED_ALIGNMENT if variable.bytes is None else 1)
        place = -(-place // align) * align
        places[variable.name] = place
        place += variable.bytes or 0
    return places
