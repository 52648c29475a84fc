"""The control flow graph of SASS: blocks, dominators, natural loops.

The same shapes as of PTX (`kanalyze.ptx.cfg`), whose graph algorithms are used. What differs:

* A ``CALL`` within the section ends its block: its edge leads to the called code, and ``RET``
  leads back behind every call of the code that it returns from. So the blocks of subroutines are
  in the graph of the kernel, and a count of executions per block covers them. (The assembler also
  uses ``CALL`` as a plain jump.) A call of another section, or through a register, is taken to
  return.
* ``BSSY``/``BSYNC``, ``WARPSYNC``… gather threads that went different ways; they are no edges.
* What stands behind the last ``EXIT`` (a ``BRA`` to itself, and ``NOP`` as padding) is in blocks
  that are never reached.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import networkx as nx

from kanalyze.ptx.cfg import FlowGraph, Loop, shape
from kanalyze.sass.ir import SassFunction, SassInstruction
from kanalyze.sass.table import branch_targets, control, may_fall_through


@dataclass(frozen=True, slots=True)
class SassBlock:
    """A basic block: the instructions ``first`` to ``last`` (inclusive) of the function."""

    index: int
    label: str | None
    name: str
    first: int
    last: int
    instructions: tuple[SassInstruction, ...]


@dataclass(frozen=True, slots=True)
class SassCfg(FlowGraph[SassBlock]):
    """The control flow graph of a function; see `kanalyze.ptx.cfg.Cfg` for the attributes."""

    function: SassFunction = field(repr=False)
    blocks: tuple[SassBlock, ...]
    graph: Any = field(repr=False, compare=False)
    exit: int
    idom: Mapping[int, int]
    ipdom: Mapping[int, int]
    loops: tuple[Loop, ...]
    loop_depth: tuple[int, ...]
    order: tuple[int, ...]
    irreducible: bool
    unresolved: tuple[SassInstruction, ...]


def build(function: SassFunction) -> SassCfg:
    """Build the control flow graph of a function."""
    code = function.instructions
    index_of = {instruction.address: index for index, instruction in enumerate(code)}
    targets: dict[int, list[int | None]] = {}
    leaders = {0}
    for index, instruction in enumerate(code):
        kind = control(instruction)
        if kind is None:
            continue
        found = [_resolve(t, function.labels, index_of) for t in branch_targets(instruction)]
        if kind == "call" and not any(place is not None for place in found):
            continue  # of another section: taken to return
        targets[index] = found
        leaders.add(index + 1)
        leaders.update(place for place in found if place is not None)
    blocks = _blocks(function, sorted(place for place in leaders if place < len(code) or not place))
    of_leader = {block.first: block.index for block in blocks}
    graph = nx.DiGraph()
    leave = len(blocks)
    graph.add_nodes_from(range(leave + 1))
    unresolved: list[SassInstruction] = []
    returns: list[SassBlock] = []
    calls: list[tuple[int, int]] = []  # called block, block behind the call
    for block in blocks:
        last = code[block.last] if block.last >= block.first and code else None
        following = block.index + 1
        if last is None or block.last not in targets:
            graph.add_edge(block.index, following)
            continue
        kind = control(last)
        if may_fall_through(last):
            graph.add_edge(block.index, following)
        if kind == "exit":
            graph.add_edge(block.index, leave)
        elif kind == "return":
            returns.append(block)
        for place in targets[block.last]:
            if place is None:
                unresolved.append(last)
                graph.add_edge(block.index, leave)
                continue
            graph.add_edge(block.index, of_leader[place])
            if kind == "call":
                calls.append((of_leader[place], following))
        if kind in ("branch", "indirect") and not targets[block.last]:
            unresolved.append(last)
            graph.add_edge(block.index, leave)
    _return_edges(graph, blocks, returns, calls, leave)
    return _finish(function, blocks, graph, leave, tuple(dict.fromkeys(unresolved)))


def _resolve(
    target: str | int, labels: Mapping[str, int], index_of: Mapping[int, int]
) -> int | None:
    address = labels.get(target) if isinstance(target, str) else target
    return None if address is None else index_of.get(address)


def _blocks(function: SassFunction, leaders: list[int]) -> tuple[SassBlock, ...]:
    code = function.instructions
    names: dict[int, str] = {}
    for name, address in function.labels.items():
        names.setdefault(address, name)
    blocks: list[SassBlock] = []
    for index, (first, end) in enumerate(zip(leaders, [*leaders[1:], len(code)], strict=True)):
        address = code[first].address if first < len(code) else -1
        label = names.get(address) if first > 0 else None
        name = label or ("entry" if index == 0 else f"bb{index}")
        blocks.append(SassBlock(index, label, name, first, end - 1, code[first:end]))
    return tuple(blocks)


def _return_edges(
    graph: Any,
    blocks: tuple[SassBlock, ...],
    returns: list[SassBlock],
    calls: list[tuple[int, int]],
    leave: int,
) -> None:
    """Add the edges of ``RET``: behind every call of the code that it returns from."""
    callers: dict[int, set[int]] = {}
    for called, behind in calls:
        callers.setdefault(called, set()).add(behind)
    for called, places in callers.items():
        reached = _within(graph, called, callers)
        for block in returns:
            if block.index in reached:
                graph.add_edges_from((block.index, place) for place in places if place < leave)
    for block in returns:
        if not any(True for _ in graph.successors(block.index)):
            graph.add_edge(block.index, leave)


def _within(graph: Any, called: int, callers: Mapping[int, set[int]]) -> set[int]:
    """Return the blocks of called code: what is reached from it, stepping over inner calls."""
    seen = {called}
    waiting = [called]
    while waiting:
        node = waiting.pop()
        onward: set[int] = set()
        for following in graph.successors(node):
            inner = callers.get(following)
            if inner is not None and following != called and node + 1 in inner:
                onward.add(node + 1)
            else:
                onward.add(following)
        for following in onward - seen:
            seen.add(following)
            waiting.append(following)
    return seen


def _finish(
    function: SassFunction,
    blocks: tuple[SassBlock, ...],
    graph: Any,
    leave: int,
    unresolved: tuple[SassInstruction, ...],
) -> SassCfg:
    return SassCfg(
        function=function,
        blocks=blocks,
        graph=graph,
        exit=leave,
        unresolved=unresolved,
        **shape(graph, leave),
    )
