"""The control flow graph of a PTX function.

A block begins at a label that is the target of a branch, or behind a branch, ``ret``, ``exit`` or
``trap``. Labels that nobody branches to (``$L__tmp3``, debug labels) begin none. A predicated
terminator may fall through. Calls do not end blocks, unless they never return.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from kanalyze.ptx.graph import ControlFlow, Graph, basic_blocks, shape
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


@dataclass(frozen=True, slots=True)
class Cfg(ControlFlow[Instruction]):
    """The control flow graph of a PTX function; ``names`` tells its registers apart."""

    function: Function = field(repr=False)
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
        places = [
            _resolve(label, scope, labels, function.scopes)
            for label, scope in _wanted(statement, lists, function.scopes)
        ]
        targets[index] = places
        leaders.update(place for place in places if place is not None)

    def label_at(place: int) -> str | None:
        head = body[place]
        return head.name if isinstance(head, Label) else None

    def inside(first: int, end: int) -> tuple[Instruction, ...]:
        return tuple(s for s in body[first:end] if isinstance(s, Instruction))

    blocks = basic_blocks(leaders, len(body), label_at, inside)
    block_of_leader = {block.first: block.index for block in blocks}
    leave = len(blocks)
    graph = Graph(leave + 1)
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
    return Cfg(
        function=function,
        blocks=blocks,
        graph=graph,
        exit=leave,
        unresolved=tuple(dict.fromkeys(unresolved)),
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
