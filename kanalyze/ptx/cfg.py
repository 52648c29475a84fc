"""The control flow graph of a function: blocks, dominators, natural loops.

A block begins at a label that is the target of a branch, or behind a branch, ``ret``, ``exit`` or
``trap``. Labels that nobody branches to (``$L__tmp3``, debug labels) begin none. A predicated
terminator may fall through. Calls do not end blocks, unless they never return.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Generic, Protocol, TypedDict, TypeVar

import networkx as nx

from kanalyze.ptx.instructions import branch_targets, is_terminator
from kanalyze.ptx.ir import (
    Directive,
    Function,
    Instruction,
    Label,
    Name,
    RegisterDeclaration,
    Statement,
    Variable,
)


@dataclass(frozen=True, slots=True)
class Block:
    """A basic block: the statements ``first`` to ``last`` (inclusive) of the function's body.

    ``label`` is the branch target it begins with, if any; ``name`` is that, or a made-up one.
    An empty block (``first`` > ``last``) stands only for the end of the body.
    """

    index: int
    label: str | None
    name: str
    first: int
    last: int
    instructions: tuple[Instruction, ...]


@dataclass(frozen=True, slots=True)
class Loop:
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


class Names:
    """Which declaration a name means: registers of nested ``{ }`` shadow the outer ones."""

    def __init__(self, function: Function):
        self._scopes = function.scopes
        self._exact: dict[int, set[str]] = {}
        self._ranges: dict[int, list[tuple[str, int]]] = {}
        for statement in function.body or ():
            if getattr(statement, "scope", 0) == 0:
                continue
            if isinstance(statement, Variable):
                self._exact.setdefault(statement.scope, set()).add(statement.name)
            elif isinstance(statement, RegisterDeclaration):
                for name, count in zip(statement.names, statement.counts, strict=True):
                    if count is None:
                        self._exact.setdefault(statement.scope, set()).add(name)
                    else:
                        self._ranges.setdefault(statement.scope, []).append((name, count))
        self._known: dict[tuple[str, int], str] = {}

    def unique(self, name: str, scope: int) -> str:
        """Return a name that no other declaration has: ``%r1``, or ``%r1@3`` in scope 3."""
        if not scope or not (self._exact or self._ranges):
            return name
        key = (name, scope)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._resolve(name, scope)
        return known

    def _resolve(self, name: str, scope: int) -> str:
        plain = name.partition(".")[0]
        while scope > 0:
            if plain in self._exact.get(scope, ()):
                return f"{name}@{scope}"
            for prefix, count in self._ranges.get(scope, ()):
                digits = plain[len(prefix) :]
                if plain.startswith(prefix) and digits.isdecimal() and int(digits) < count:
                    return f"{name}@{scope}"
            scope = self._scopes[scope]
        return name


class Placed(Protocol):
    """A block with the index of the first thing that it holds."""

    @property
    def first(self) -> int:
        """Index in the function."""


B = TypeVar("B", bound=Placed)


class FlowGraph(Generic[B]):
    """What is asked of a control flow graph, of PTX or SASS: see `Cfg` for the attributes."""

    __slots__ = ()

    blocks: tuple[B, ...]
    idom: Mapping[int, int]
    loops: tuple[Loop, ...]

    def block_at(self, place: int) -> B:
        """Return the block that holds what has this index in the function."""
        return self.blocks[bisect_right(self.blocks, place, 1, key=lambda b: b.first) - 1]

    def dominates(self, first: int, second: int) -> bool:
        """Tell whether every way to block ``second`` goes through block ``first``."""
        node: int | None = second
        while node is not None and node != first:
            node = self.idom.get(node)
        return node == first

    def innermost_loop(self, block: int) -> Loop | None:
        """Return the innermost loop around a block."""
        around = [loop for loop in self.loops if block in loop.body]
        return max(around, key=lambda loop: loop.depth, default=None)


@dataclass(frozen=True, slots=True)
class Cfg(FlowGraph[Block]):
    """The control flow graph of a function.

    The nodes of ``graph`` are block indices and ``exit``, where the function is left. ``idom`` and
    ``ipdom`` give the immediate dominator and post-dominator of a block; the entry, blocks that
    are never reached, and (for ``ipdom``) blocks from which the end is never reached have none.
    ``order`` is the reverse post-order of the reachable blocks. ``irreducible`` tells that there
    is a cycle with more than one entry, which is in no `Loop`. ``unresolved`` holds the branches
    whose target is not there; they are taken to leave the function.
    """

    function: Function = field(repr=False)
    blocks: tuple[Block, ...]
    graph: Any = field(repr=False, compare=False)
    exit: int
    idom: Mapping[int, int]
    ipdom: Mapping[int, int]
    loops: tuple[Loop, ...]
    loop_depth: tuple[int, ...]
    order: tuple[int, ...]
    irreducible: bool
    unresolved: tuple[Instruction, ...]
    names: Names = field(repr=False, compare=False)


def build(function: Function, noreturn: Collection[str] = ()) -> Cfg:
    """Build the control flow graph of a function with a body.

    Args:
        function: a kernel or a device function; a declaration gives one empty block.
        noreturn: the names of functions whose calls never return.
    """
    body = function.body or ()
    labels = _labels(body)
    lists = _target_lists(body)
    targets: dict[int, list[int | None]] = {}
    leaders = {0}
    for index, statement in enumerate(body):
        if not isinstance(statement, Instruction):
            continue
        if not _ends_block(statement, noreturn):
            continue
        leaders.add(index + 1)
        found = [
            _resolve(label, scope, labels, function.scopes)
            for label, scope in _wanted(statement, lists, function.scopes)
        ]
        targets[index] = found
        leaders.update(place for place in found if place is not None)
    blocks = _blocks(body, sorted(place for place in leaders if place < len(body) or place == 0))
    block_of_leader = {block.first: block.index for block in blocks}
    graph = nx.DiGraph()
    leave = len(blocks)
    graph.add_nodes_from(range(leave + 1))
    unresolved: list[Instruction] = []
    for block in blocks:
        last = body[block.last] if block.last >= block.first else None
        following = block.index + 1  # of the last block: the exit
        if not isinstance(last, Instruction) or block.last not in targets:
            graph.add_edge(block.index, following)
            continue
        if last.base not in ("bra", "brx"):
            graph.add_edge(block.index, leave)
        for place in targets[block.last]:
            if place is None:
                unresolved.append(last)
            graph.add_edge(block.index, leave if place is None else block_of_leader[place])
        if last.base in ("bra", "brx") and not targets[block.last]:
            unresolved.append(last)
            graph.add_edge(block.index, leave)
        if last.guard is not None:
            graph.add_edge(block.index, following)
    return _finish(function, blocks, graph, leave, tuple(dict.fromkeys(unresolved)))


class Shape(TypedDict):
    """What follows from the edges of a graph: attributes of `Cfg`."""

    idom: Mapping[int, int]
    ipdom: Mapping[int, int]
    loops: tuple[Loop, ...]
    loop_depth: tuple[int, ...]
    order: tuple[int, ...]
    irreducible: bool


def shape(graph: Any, leave: int) -> Shape:
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


def _finish(
    function: Function,
    blocks: tuple[Block, ...],
    graph: Any,
    leave: int,
    unresolved: tuple[Instruction, ...],
) -> Cfg:
    return Cfg(
        function=function,
        blocks=blocks,
        graph=graph,
        exit=leave,
        unresolved=unresolved,
        names=Names(function),
        **shape(graph, leave),
    )


# ---------------------------------------------------------------- labels and blocks


def _labels(body: Iterable[Statement]) -> dict[str, dict[int, int]]:
    """Return where labels stand: name to scope to statement index."""
    places: dict[str, dict[int, int]] = {}
    for index, statement in enumerate(body):
        if isinstance(statement, Label):
            places.setdefault(statement.name, {}).setdefault(statement.scope, index)
    return places


_LISTED = re.compile(r"[%$\w]+")


def _target_lists(body: tuple[Statement, ...]) -> dict[str, dict[int, tuple[str, ...]]]:
    """Return the ``.branchtargets``: name of the list to scope to labels."""
    lists: dict[str, dict[int, tuple[str, ...]]] = {}
    for before, statement in pairwise(body):
        if (
            isinstance(statement, Directive)
            and statement.name == "branchtargets"
            and isinstance(before, Label)
        ):
            words = tuple(_LISTED.findall(statement.text)[1:])
            lists.setdefault(before.name, {})[before.scope] = words
    return lists


def _ends_block(instruction: Instruction, noreturn: Collection[str]) -> bool:
    if is_terminator(instruction):
        return True
    if not noreturn or instruction.base != "call":
        return False
    return any(isinstance(o, Name) and o.text in noreturn for o in instruction.operands)


def _wanted(
    instruction: Instruction,
    lists: dict[str, dict[int, tuple[str, ...]]],
    scopes: tuple[int, ...],
) -> list[tuple[str, int]]:
    """Return the labels that an instruction may jump to, each with the scope to look from."""
    names = branch_targets(instruction)
    if instruction.base != "brx":
        return [(name, instruction.scope) for name in names]
    wanted: list[tuple[str, int]] = []
    for name in names:
        listed = lists.get(name)
        if listed is None:
            wanted.append((name, instruction.scope))  # the labels themselves
            continue
        scope = instruction.scope
        while scope > 0 and scope not in listed:
            scope = scopes[scope]
        if scope not in listed:
            scope = next(iter(listed))
        wanted.extend((label, scope) for label in listed[scope])
    return list(dict.fromkeys(wanted))


def _resolve(
    label: str, scope: int, labels: dict[str, dict[int, int]], scopes: tuple[int, ...]
) -> int | None:
    """Return the statement that a label means, seen from a scope: outwards, else anywhere."""
    places = labels.get(label)
    if places is None:
        return None
    while scope >= 0:
        if scope in places:
            return places[scope]
        scope = scopes[scope]
    return next(iter(places.values()))


def _blocks(body: tuple[Statement, ...], leaders: list[int]) -> tuple[Block, ...]:
    blocks: list[Block] = []
    for index, (first, end) in enumerate(zip(leaders, [*leaders[1:], len(body)], strict=True)):
        head = body[first] if first < len(body) else None
        label = head.name if isinstance(head, Label) and first > 0 else None
        name = label or ("entry" if index == 0 else f"bb{index}")
        inside = tuple(s for s in body[first:end] if isinstance(s, Instruction))
        blocks.append(Block(index, label, name, first, end - 1, inside))
    return tuple(blocks)


# ---------------------------------------------------------------- graph algorithms


def reverse_post_order(successors: Any, start: int) -> list[int]:
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


def dominators(successors: Any, predecessors: Any, start: int) -> dict[int, int]:
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


def natural_loops(
    graph: Any, order: list[int], idom: dict[int, int]
) -> tuple[tuple[Loop, ...], bool]:
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
    loops: list[Loop] = []
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
        loops.append(Loop(header, tuple(sorted(ends)), inside_all, depth, parent, exits))
    return tuple(loops), irreducible
