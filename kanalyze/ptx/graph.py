"""The control flow graph of any code: blocks, edges, dominators, natural loops.

`kanalyze.ptx.cfg` builds it of PTX, `kanalyze.sass.cfg` of SASS.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypedDict, TypeVar

I = TypeVar("I")  # noqa: E741
Neighbours = Callable[[int], Iterable[int]]


class Graph:
    """A directed graph of the nodes 0, 1… ``count`` - 1; neighbours stand in order of insertion."""

    def __init__(self, count: int, edges: Iterable[tuple[int, int]] = ()):
        self._successors: list[dict[int, None]] = [{} for _ in range(count)]
        self._predecessors: list[dict[int, None]] = [{} for _ in range(count)]
        for source, target in edges:
            self.add_edge(source, target)

    def add_edge(self, source: int, target: int) -> None:
        """Add an edge; one that is there already stays one."""
        self._successors[source][target] = None
        self._predecessors[target][source] = None

    def successors(self, node: int) -> Collection[int]:
        """The nodes that edges lead to from a node."""
        return self._successors[node].keys()

    def predecessors(self, node: int) -> Collection[int]:
        """The nodes from which edges lead to a node."""
        return self._predecessors[node].keys()

    @property
    def edges(self) -> Iterator[tuple[int, int]]:
        """Source and target of every edge."""
        for source, targets in enumerate(self._successors):
            for target in targets:
                yield source, target

    def subgraph(self, nodes: Collection[int]) -> Graph:
        """The edges between some of the nodes."""
        kept = ((a, b) for a, b in self.edges if a in nodes and b in nodes)
        return Graph(len(self._successors), kept)


@dataclass(frozen=True, slots=True)
class BasicBlock(Generic[I]):
    """A basic block: what has the indices ``first`` to ``last`` (inclusive) in the function.

    These count the statements of the body in PTX, instructions in SASS. ``label`` is the branch
    target it begins with, if any; ``name`` is that, or a made-up one. An empty block (``first`` >
    ``last``) stands only for the end of the body.
    """

    index: int
    label: str | None
    name: str
    first: int
    last: int
    instructions: tuple[I, ...]


@dataclass(frozen=True, slots=True)
class NaturalLoop:
    """A natural loop: all back edges to one header.

    ``parent`` is the index of the enclosing loop in `Cfg.loops`; ``depth`` of an outermost one
    is 1. ``exits`` are the edges that leave it.
    """

    header: int
    latches: tuple[int, ...]
    body: frozenset[int]
    depth: int
    parent: int | None
    exits: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class ControlFlow(Generic[I]):
    """The control flow graph of a function.

    The nodes of ``graph`` are block indices and ``exit``, where the function is left. ``idom`` and
    ``ipdom`` give the immediate dominator and post-dominator of a block; the entry, blocks that
    are never reached, and (for ``ipdom``) blocks from which the end is never reached have none.
    ``order`` is the reverse post-order of the reachable blocks. ``irreducible`` tells that there
    is a cycle with more than one entry, in no `NaturalLoop`. ``unresolved`` holds the branches
    whose target is not there; they are taken to leave the function.
    """

    blocks: tuple[BasicBlock[I], ...]
    graph: Graph = field(repr=False, compare=False)
    exit: int
    idom: Mapping[int, int]
    ipdom: Mapping[int, int]
    loops: tuple[NaturalLoop, ...]
    loop_depth: tuple[int, ...]
    order: tuple[int, ...]
    irreducible: bool
    unresolved: tuple[I, ...]

    def block_at(self, place: int) -> BasicBlock[I]:
        """Return the block that holds what has this index in the function."""
        return self.blocks[bisect_right(self.blocks, place, 1, key=lambda b: b.first) - 1]

    def dominates(self, first: int, second: int) -> bool:
        """Tell whether every way to block ``second`` goes through block ``first``."""
        node: int | None = second
        while node is not None and node != first:
            node = self.idom.get(node)
        return node == first

    def innermost_loop(self, block: int) -> NaturalLoop | None:
        """Return the innermost loop around a block."""
        around = [loop for loop in self.loops if block in loop.body]
        return max(around, key=lambda loop: loop.depth, default=None)


class Shape(TypedDict):
    """What follows from the edges of a graph: attributes of `Cfg`."""

    idom: Mapping[int, int]
    ipdom: Mapping[int, int]
    loops: tuple[NaturalLoop, ...]
    loop_depth: tuple[int, ...]
    order: tuple[int, ...]
    irreducible: bool


def shape(graph: Graph, leave: int) -> Shape:
    """Return dominators, loops and order of a graph of blocks 0, 1… and the exit ``leave``."""
    order = reverse_post_order(graph.successors, 0)
    idom = dominators(graph.successors, graph.predecessors, 0)
    ipdom = dominators(graph.predecessors, graph.successors, leave)
    loops, irreducible = natural_loops(graph, order, idom)
    depth = [0] * leave
    for loop in loops:
        for member in loop.body:
            depth[member] = max(depth[member], loop.depth)
    return Shape(
        idom=idom,
        ipdom=ipdom,
        loops=loops,
        loop_depth=tuple(depth),
        order=tuple(node for node in order if node != leave),
        irreducible=irreducible,
    )


def basic_blocks(
    leaders: Iterable[int],
    length: int,
    label_at: Callable[[int], str | None],
    inside: Callable[[int, int], tuple[I, ...]],
) -> tuple[BasicBlock[I], ...]:
    """The blocks of a function.

    Args:
        leaders: the indices at which blocks begin, in any order.
        length: how many statements or instructions there are.
        label_at: the label that stands at an index.
        inside: the instructions from one index up to another.
    """
    starts = sorted(place for place in leaders if place < length or place == 0)
    blocks: list[BasicBlock[I]] = []
    for index, (first, end) in enumerate(zip(starts, [*starts[1:], length], strict=True)):
        label = label_at(first) if 0 < first < length else None
        name = label or ("entry" if index == 0 else f"bb{index}")
        blocks.append(BasicBlock(index, label, name, first, end - 1, inside(first, end)))
    return tuple(blocks)


def reverse_post_order(successors: Neighbours, start: int) -> list[int]:
    """Return the nodes reachable from ``start`` in reverse post-order."""
    seen = {start}
    post: list[int] = []
    stack = [(start, iter(successors(start)))]
    while stack:
        node, waiting = stack[-1]
        for following in waiting:
            if following not in seen:
                seen.add(following)
                stack.append((following, iter(successors(following))))
                break
        else:
            post.append(node)
            stack.pop()
    return post[::-1]


def dominators(successors: Neighbours, predecessors: Neighbours, start: int) -> dict[int, int]:
    """Return the immediate dominators of the nodes reachable from ``start`` (which has none).

    Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm" (2001).
    """
    order = reverse_post_order(successors, start)
    number = {node: place for place, node in enumerate(order)}
    idom = {start: start}
    changed = True
    while changed:
        changed = False
        for node in order[1:]:
            best: int | None = None
            for before in predecessors(node):
                if before not in idom:
                    continue
                if best is None:
                    best = before
                    continue
                one, other = best, before
                while one != other:
                    while number[one] > number[other]:
                        one = idom[one]
                    while number[other] > number[one]:
                        other = idom[other]
                best = one
            if best is not None and idom.get(node) != best:
                idom[node] = best
                changed = True
    del idom[start]
    return idom


def dominance_frontiers(graph: Graph, idom: Mapping[int, int]) -> dict[int, set[int]]:
    """Return where the dominance of each node ends: the joins just behind what it dominates.

    Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm" (2001).
    """
    frontiers: dict[int, set[int]] = {}
    for join, above in idom.items():
        for node in graph.predecessors(join):
            while node != above and node in idom:
                frontiers.setdefault(node, set()).add(join)
                node = idom[node]
    return frontiers


def natural_loops(
    graph: Graph, order: list[int], idom: dict[int, int]
) -> tuple[tuple[NaturalLoop, ...], bool]:
    """Return the natural loops, outer ones first, and whether a cycle is in none."""
    number = {node: place for place, node in enumerate(order)}
    latches: dict[int, list[int]] = {}
    irreducible = False
    for node in order:
        for following in graph.successors(node):
            if number[following] > number[node]:
                continue
            above: int | None = node
            while above is not None and above != following:
                above = idom.get(above)
            if above is None:
                irreducible = True
            else:
                latches.setdefault(following, []).append(node)
    bodies: list[tuple[int, list[int], frozenset[int]]] = []
    for header, ends in latches.items():
        inside = {header}
        waiting = [end for end in ends if end != header]
        while waiting:
            node = waiting.pop()
            if node in inside:
                continue
            inside.add(node)
            waiting.extend(p for p in graph.predecessors(node) if p in number)
        bodies.append((header, ends, frozenset(inside)))
    bodies.sort(key=lambda item: (-len(item[2]), number[item[0]]))
    loops: list[NaturalLoop] = []
    for header, ends, inside_all in bodies:
        parent: int | None = None
        for place, outer in enumerate(loops):
            if header in outer.body and inside_all < outer.body:
                parent = place  # the last one that contains it is the smallest
        depth = 1 if parent is None else loops[parent].depth + 1
        exits = tuple(
            (node, following)
            for node in sorted(inside_all)
            for following in graph.successors(node)
            if following not in inside_all
        )
        loops.append(NaturalLoop(header, tuple(sorted(ends)), inside_all, depth, parent, exits))
    return tuple(loops), irreducible
