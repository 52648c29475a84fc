"""The control flow graph of a SASS function.

What differs from PTX (`kanalyze.ptx.cfg`):

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

from kanalyze.ptx.graph import BasicBlock, ControlFlow, Graph, basic_blocks, shape
from kanalyze.sass.ir import SassFunction, SassInstruction
from kanalyze.sass.table import branch_targets, control, may_fall_through

SassBlock = BasicBlock[SassInstruction]


@dataclass(frozen=True, slots=True)
class SassCfg(ControlFlow[SassInstruction]):
    """The control flow graph of a SASS function."""

    function: SassFunction = field(repr=False)


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
        places = [_resolve(t, function.labels, index_of) for t in branch_targets(instruction)]
        if kind == "call" and not any(place is not None for place in places):
            continue  # of another section: taken to return
        targets[index] = places
        leaders.add(index + 1)
        leaders.update(place for place in places if place is not None)
    names: dict[int, str] = {}
    for name, address in function.labels.items():
        names.setdefault(address, name)
    blocks = basic_blocks(
        leaders,
        len(code),
        lambda place: names.get(code[place].address),
        lambda first, end: code[first:end],
    )
    of_leader = {block.first: block.index for block in blocks}
    leave = len(blocks)
    graph = Graph(leave + 1)
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
    return SassCfg(
        function=function,
        blocks=blocks,
        graph=graph,
        exit=leave,
        unresolved=tuple(dict.fromkeys(unresolved)),
        **shape(graph, leave),
    )


def _resolve(
    target: str | int, labels: Mapping[str, int], index_of: Mapping[int, int]
) -> int | None:
    address = labels.get(target) if isinstance(target, str) else target
    return None if address is None else index_of.get(address)


def _return_edges(
    graph: Graph,
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
                for place in places:
                    if place < leave:
                        graph.add_edge(block.index, place)
    for block in returns:
        if not graph.successors(block.index):
            graph.add_edge(block.index, leave)


def _within(graph: Graph, called: int, callers: Mapping[int, set[int]]) -> set[int]:
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
