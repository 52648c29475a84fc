"""One launch, counted: requests and sectors of every global access, from addresses and conditions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kanalyze.address import accesses as addresses
from kanalyze.address import parts
from kanalyze.address.grid import Condition, Grid, UnknownValueError, both
from kanalyze.address.loops import Solved
from kanalyze.address.parts import Parts, TooLargeError
from kanalyze.address.reach import reach
from kanalyze.address.value import Value
from kanalyze.launch import Launch
from kanalyze.models.coalescing import Coalescing, Occurrences, count
from kanalyze.ptx import ir
from kanalyze.ptx.cfg import Cfg, build


@dataclass(frozen=True, slots=True)
class AccessTraffic:
    """One memory instruction with its counts over the launch; None with the reason if unknown."""

    access: addresses.AccessValue
    counts: Coalescing | None
    reason: str | None


def count_accesses(
    module: ir.Module, function: ir.Function, launch: Launch
) -> tuple[AccessTraffic, ...]:
    """Requests and sectors of every global access of a kernel in one launch."""
    cfg = build(function)
    variables = {v.name: v for v in module.variables}
    variables |= {s.name: s for s in function.body or () if isinstance(s, ir.Variable)}
    found = addresses.find(cfg, variables)
    executed = reach(cfg, found.solved)
    params = {
        (parameter.name, 0): given.value
        for parameter, given in zip(function.parameters, launch.params, strict=False)
        if given.value is not None
    }
    counter = _Launch(cfg, found.solved, launch, params, executed)
    return tuple(counter.count(a) for a in found.accesses if a.row.space == "global")


class _Launch:
    def __init__(
        self,
        cfg: Cfg,
        solved: Solved,
        launch: Launch,
        params: dict[tuple[str, int], int],
        executed: dict[int, Value],
    ):
        self.cfg = cfg
        self.solved = solved
        self.launch = launch
        self.params = params
        self.executed = executed
        self._grids: dict[tuple[int, ...], tuple[Grid, tuple[Parts, ...]]] = {}

    def count(self, access: addresses.AccessValue) -> AccessTraffic:
        """Count one access."""
        try:
            return AccessTraffic(access, self._counted(access), None)
        except UnknownValueError as error:
            return AccessTraffic(access, None, str(error))
        except TooLargeError:
            return AccessTraffic(access, None, "too many different cases to evaluate")

    def _counted(self, access: addresses.AccessValue) -> Coalescing:
        grid, trips = self._grid(access.block)
        condition = self._condition(grid, access)
        blocks = int(np.prod(self.launch.grid))
        threads = int(np.prod(self.launch.block))
        shape = (blocks, threads, *grid.loops.values())
        return count(grid.value(access.address), condition, Occurrences(shape, trips))

    def _condition(self, grid: Grid, access: addresses.AccessValue) -> Condition:
        """The block is reached, all loops around it are entered, and the guard holds."""
        condition = grid.condition(self.executed[access.block])
        for header in grid.loops:
            condition = both(condition, grid.condition(self.executed[header]))
        if access.condition is not None:
            condition = both(condition, grid.condition(access.condition))
        return condition

    def _grid(self, block: int) -> tuple[Grid, tuple[Parts, ...]]:
        """The axes around a block; the greatest trip count of each loop is the axis' extent."""
        around = sorted(
            (loop for loop in self.cfg.loops if block in loop.body), key=lambda loop: loop.depth
        )
        key = (*(loop.header for loop in around), block in {loop.header for loop in around})
        if key in self._grids:
            return self._grids[key]
        extents: dict[int, int] = {}
        counts: list[Value] = []
        for loop in around:
            trip = self.solved.trips[loop.header]
            if trip.count is None or trip.last is None:
                raise UnknownValueError(f"a loop's length: {trip.reason}")
            pool = self.solved.registers.pool
            runs = trip.last if trip.tests_first else trip.count
            if trip.tests_first and block == loop.header:
                runs = pool.make("add", runs.bits, runs, pool.const(1, runs.bits))
            outer = Grid(self.launch.grid, self.launch.block, self.params, {}, dict(extents))
            extents[loop.header] = max(0, outer.value(runs).high)
            counts.append(runs)
        grid = Grid(self.launch.grid, self.launch.block, self.params, {}, extents)
        trips = tuple(
            parts.in_range(grid.value(value), value.bits, signed=True) for value in counts
        )
        self._grids[key] = (grid, trips)
        return self._grids[key]
