"""The axes of a launch of SASS: what is executed on blocks, threads and iterations, by edges, too.

What: one instruction counted by a rule, and the parts of warps that come along an edge of the
control-flow graph, which are more than the warps where threads left a loop in different iterations.
`kanalyze.counting.sass_launch` adds up what these tell.
"""

from __future__ import annotations

from typing import cast

from kanalyze.counting.ptx_launch import KernelLaunch
from kanalyze.errors import Unknown
from kanalyze.launch.record import Launch
from kanalyze.models.warps import EXECUTED, Counted, CountingRule, count
from kanalyze.ptx.cfg import Cfg
from kanalyze.sass.cfg import SassCfg
from kanalyze.symbolic import parts
from kanalyze.symbolic.accesses import Addresses
from kanalyze.symbolic.execution_predicates import ExecutionPredicates
from kanalyze.symbolic.grid import Condition, Grid, UnknownValueError, both
from kanalyze.symbolic.isa import negation
from kanalyze.symbolic.parts import TooLargeError
from kanalyze.symbolic.registers import Answer, branch_sides
from kanalyze.symbolic.value import Value


class SassAxes(KernelLaunch):
    """`kanalyze.counting.ptx_launch.KernelLaunch` over the graph of SASS: the same blocks, loops,
    conditions."""

    def __init__(
        self,
        cfg: SassCfg,
        addresses: Addresses,
        predicates: ExecutionPredicates,
        params: dict[tuple[str, int], int],
        launch: Launch,
    ):
        self.cfg = cast(Cfg, cfg)  # what is used of it is the same
        self.addresses = addresses
        self.launch = launch
        self.predicates = predicates
        self.executed = predicates.by_block
        self.params = params
        self.arrays = {}
        self.shared_places = {}
        self._grids = {}
        self._runs = {}
        self.part = None
        self.headers = {loop.header for loop in cfg.loops}

    def counted(
        self, rule: CountingRule, answer: Answer, address: Value | None
    ) -> Counted | Unknown:
        """Count an instruction by a rule; the reason where it cannot be told."""
        try:
            grid, within = self._grid(answer.block)
            condition = both(within, self._reached(grid, answer.block))
            copied = [value for value in answer.values if value.bits == 1]  # of LDGSTS
            for value in [answer.guard, *copied]:
                if value is not None:
                    (held,) = self.addresses.solved.resolve([value], answer.block)
                    condition = both(condition, grid.condition(held))
            where = parts.number(0, grid.dimensions)
            if address is not None:
                (resolved,) = self.addresses.solved.resolve([address], answer.block)
                where = grid.value(resolved)
            return count(rule, where, condition, self._shape(grid))
        except UnknownValueError as error:
            return Unknown(str(error))
        except TooLargeError:
            return Unknown("too many different cases to evaluate")

    def left(self, predecessor: int, block: int) -> bool:
        """Whether the edge ``predecessor`` → ``block`` leaves a loop."""
        return any(predecessor in loop.body and block not in loop.body for loop in self.cfg.loops)

    def scattered(self, predecessor: int, block: int) -> bool:
        """Whether threads of a warp leave a loop in different iterations by this edge."""
        if not self.left(predecessor, block):
            return False
        try:
            grid, within = self._grid(predecessor)
            condition = both(within, self._reached(grid, predecessor))
            condition = both(condition, grid.condition(self._leaves(predecessor, block)))
            times = self._count(grid, condition)
        except (UnknownValueError, TooLargeError):
            return False
        entered = self._along(predecessor, block)
        return entered is not None and times > entered

    def arriving(self, predecessor: int, block: int) -> int | None:
        """Parts of warps that come along the edge ``predecessor`` → ``block``; None: unknown."""
        if self.scattered(predecessor, block):
            return None
        return self._along(predecessor, block)

    def _along(self, predecessor: int, block: int) -> int | None:
        """Warps of which a thread comes along an edge."""
        try:
            grid, within = self._grid(block)
            condition = both(within, self._reached(grid, block))
            edge = self.predicates.edge(predecessor, block)
            return self._count(grid, both(condition, grid.condition(edge)))
        except (UnknownValueError, TooLargeError):
            return None

    def _count(self, grid: Grid, condition: Condition) -> int:
        nowhere = parts.number(0, grid.dimensions)
        return count(EXECUTED, nowhere, condition, self._shape(grid)).requests

    def _leaves(self, block: int, outside: int) -> Value:
        """When a thread goes from ``block``, in a loop, to the block ``outside``."""
        pool = self.addresses.solved.registers.pool
        condition = self.addresses.solved.registers.conditions.get(block)
        taken, following = branch_sides(self.predicates.cfg, block)
        if condition is None or taken is None or taken == following:
            raise UnknownValueError("a branch table")
        (condition,) = self.addresses.solved.resolve([condition], block)
        return condition if outside == taken else negation(pool, condition)
