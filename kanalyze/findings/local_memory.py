"""LocalAccess memory of a kernel, told apart: spilled registers, arrays, stack of calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from kanalyze.errors import Unknown
from kanalyze.findings.facts import Facts
from kanalyze.ptx import ir
from kanalyze.results.kernel import Source
from kanalyze.sass import cfg as sass_cfg
from kanalyze.sass.memory import memory_access
from kanalyze.symbolic.accesses import AccessValue
from kanalyze.symbolic.value import Value


@dataclass(frozen=True, slots=True)
class LocalAccess:
    """A local access of the machine code: load or store, bytes of a thread, loops around it."""

    kind: str
    bytes: int
    loop_depth: int
    source: Source | None


def in_code(facts: Facts) -> list[LocalAccess] | Unknown:
    """The local accesses of the machine code; else why they are not known."""
    code = facts.code
    if isinstance(code, Unknown):
        return code
    function = next((f for f in code.module.functions if f.name == facts.function.name), None)
    if function is None:
        return Unknown("the machine code has no such kernel")
    graph = sass_cfg.build(function)
    accesses = []
    for block in graph.blocks:
        for instruction in block.instructions:
            access = memory_access(instruction)
            if access is None or access.space != "local" or access.dummy:
                continue
            line = instruction.source.outermost if instruction.source is not None else None
            source = None
            if line is not None:
                source = Source(facts.sources.get(line.file).shown, line.line, 1)
            depth = graph.loop_depth[block.index]
            accesses.append(LocalAccess(access.kind, access.bytes_per_thread or 0, depth, source))
    return accesses


def hottest(accesses: Sequence[LocalAccess]) -> Source | None:
    """The source line with the most bytes, those in the innermost loops first."""
    by_line: Counter[Source] = Counter()
    deepest = max((x.loop_depth for x in accesses), default=0)
    for access in accesses:
        if access.loop_depth == deepest and access.source is not None:
            by_line[access.source] += access.bytes
    return by_line.most_common(1)[0][0] if by_line else None


def arrays(facts: Facts) -> dict[str, ir.Variable]:
    """The variables that the PTX keeps in local memory."""
    return {
        s.name: s
        for s in facts.function.body or ()
        if isinstance(s, ir.Variable) and s.space == "local"
    }


def size_of(variables: dict[str, ir.Variable]) -> int:
    """Their bytes in all."""
    return sum((v.elements or 0) * v.element_bytes for v in variables.values())


@dataclass(frozen=True, slots=True)
class IndexedAccess:
    """A local access whose address is not fixed: ``by_loop`` if it follows loop counters alone."""

    access: AccessValue
    by_loop: bool


def indexed(facts: Facts) -> list[IndexedAccess]:
    """The local accesses of the PTX whose address is chosen at run time."""
    accesses = []
    for access, _ in facts.accesses():
        if access.row.space != "local":
            continue
        kinds = _kinds(access.address)
        if kinds - {"const", "address"}:
            accesses.append(IndexedAccess(access, kinds <= {"const", "address", "iter"}))
    return accesses


def _kinds(value: Value) -> set[str]:
    """The kinds of leaves below a value."""
    kinds: set[str] = set()
    seen: set[int] = set()
    waiting = [value]
    while waiting:
        node = waiting.pop()
        if node.number in seen:
            continue
        seen.add(node.number)
        if node.args:
            waiting += node.args
        else:
            kinds.add(node.op)
        if node.op == "load":
            kinds.add("load")
    return kinds
