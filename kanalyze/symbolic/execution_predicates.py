"""When a block of the control-flow graph is executed, as a predicate.

What: for each basic block the condition, over threads, blocks and iterations of the loops around
it, that a thread comes through it — in one iteration of those loops, provided that they are
entered.
Formula: a block that post-dominates its dominator is executed when that one is; any other when one
of its edges is taken. A loop's own exit does not matter: it ends. A way that cannot but end
in ``trap`` (a failed assertion) is not taken: the launch would not complete.
Source: control dependence after Ferrante, Ottenstein and Warren (1987).
"""

from __future__ import annotations

from collections.abc import Collection

from kanalyze.ptx.graph import NaturalLoop, dominators
from kanalyze.symbolic.isa import Flow
from kanalyze.symbolic.loops import SolvedLoops
from kanalyze.symbolic.registers import branch_sides
from kanalyze.symbolic.value import Value


def execution_predicates(cfg: Flow, solved: SolvedLoops) -> dict[int, Value]:
    """Each reachable block's predicate; unknown leaves where a branch depends on data."""
    return ExecutionPredicates(cfg, solved).by_block


class ExecutionPredicates:
    """The predicates of blocks (``by_block``) and of edges.

    Args:
        cfg: the control-flow graph.
        solved: its branch conditions.
        failing: blocks that the launch ends in with an error, besides those that end in ``trap``.
    """

    def __init__(self, cfg: Flow, solved: SolvedLoops, failing: Collection[int] = ()):
        self.cfg = cfg
        self.solved = solved
        self.pool = solved.registers.pool
        self.headers = {loop.header: loop for loop in cfg.loops}
        self.by_block: dict[int, Value] = {}
        self.alive = _alive(cfg, failing)
        graph = cfg.graph.subgraph({*self.alive, cfg.exit})
        self.ipdom = dominators(graph.predecessors, graph.successors, cfg.exit)
        for block in cfg.order:
            never = block not in self.alive
            self.by_block[block] = self.pool.const(0, 1) if never else self._of(block)

    def _of(self, block: int) -> Value:
        above = self.cfg.idom.get(block)
        if above is None:
            return self.pool.const(1, 1)
        above = self._outside_of_other_loops(above, block)
        if self._post_dominates(block, above):
            return self.by_block[above]
        total: Value | None = None
        for predecessor in self.cfg.graph.predecessors(block):
            if block in self.headers and predecessor in self.headers[block].body:
                continue  # a back edge
            term = self.edge(predecessor, block)
            total = term if total is None else self._or(total, term)
        assert total is not None
        return total

    def _loops_around(self, block: int) -> list[NaturalLoop]:
        return [loop for loop in self.cfg.loops if block in loop.body]

    def _outside_of_other_loops(self, above: int, block: int) -> int:
        """The nearest dominator that is in no loop which ``block`` is not in."""
        while True:
            left = [loop for loop in self._loops_around(above) if block not in loop.body]
            if not left:
                return above
            outermost = min(left, key=lambda loop: loop.depth)
            outside = self.cfg.idom.get(outermost.header)
            if outside is None:
                return above
            above = outside

    def _post_dominates(self, block: int, above: int) -> bool:
        node: int | None = above
        while node is not None and node != block:
            node = self.ipdom.get(node)
        return node == block

    def edge(self, predecessor: int, block: int) -> Value:
        """The predicate of the edge ``predecessor`` → ``block``."""
        left = [loop for loop in self._loops_around(predecessor) if block not in loop.body]
        if left:
            outermost = min(left, key=lambda loop: loop.depth)
            exits = {successor for _, successor in outermost.exits}
            entered = self.by_block.get(outermost.header)
            if entered is None:
                return self._irreducible(predecessor, block)
            if exits == {block}:
                return entered
            return self.pool.unknown(
                ("exit", predecessor, block), "a loop is left in more than one way", 1
            )
        reached = self.by_block.get(predecessor)
        if reached is None:
            return self._irreducible(predecessor, block)
        successors = [
            s
            for s in self.cfg.graph.successors(predecessor)
            if s in self.alive or s == self.cfg.exit
        ]
        if len(successors) == 1:
            return reached
        condition = self.solved.registers.conditions.get(predecessor)
        taken, following = branch_sides(self.cfg, predecessor)
        if condition is None or taken is None or taken == following:
            return self.pool.unknown(("edge", predecessor, block), "a branch table", 1)
        (condition,) = self.solved.resolve([condition], predecessor)
        if block != taken:
            condition = self.pool.node("xor", 1, condition, self.pool.const(1, 1))
        return self.pool.node("and", 1, reached, condition)

    def _irreducible(self, predecessor: int, block: int) -> Value:
        return self.pool.unknown(("edge", predecessor, block), "a cycle with several entries", 1)

    def _or(self, left: Value, right: Value) -> Value:
        """A disjunction; ``a and c or a and not c`` is ``a``."""
        if left.op == right.op == "and" and left.args[0] is right.args[0]:
            one, other = left.args[1], right.args[1]
            if self.pool.node("xor", 1, one, self.pool.const(1, 1)) is other:
                return left.args[0]
            if self.pool.node("xor", 1, other, self.pool.const(1, 1)) is one:
                return left.args[0]
        return self.pool.node("or", 1, left, right)


def _alive(cfg: Flow, failing: Collection[int]) -> set[int]:
    """The blocks from which the function can be left by other means than ``trap``."""
    pending = [
        block
        for block in cfg.graph.predecessors(cfg.exit)
        if not cfg.blocks[block].instructions or cfg.blocks[block].instructions[-1].base != "trap"
    ]
    alive: set[int] = set()
    while pending:
        block = pending.pop()
        if block not in alive and block not in failing:
            alive.add(block)
            pending += cfg.graph.predecessors(block)
    return alive
