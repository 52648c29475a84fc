"""Hints of a kernel's source, tl.multiple_of and tl.max_contiguous: do they change anything?"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from kanalyze.errors import Unknown
from kanalyze.findings import access_groups, source_edits
from kanalyze.findings.facts import Facts
from kanalyze.results.kernel import Finding, Proof, Source

_HINTS = ("multiple_of", "max_contiguous")


def check(facts: Facts, id_: str, pointers: str) -> Iterator[Finding]:
    """Hints that stand in a kernel of which accesses stay narrow, as findings of a rule."""
    compiled = facts.compiled
    assert compiled is not None
    file = facts.sources.get(str(compiled.source_file))
    for call in calls("\n".join(file.lines), compiled.source_function):
        text = ast.unparse(call)
        yield Finding(
            id_, "info", facts.place[0],
            f"accesses through {pointers} stay narrow in spite of {text}", "",
            Source(file.shown, call.lineno, call.col_offset + 1),
            {"hint": text, "source_line": call.lineno},
        )  # fmt: skip


def calls(text: str, function: str) -> list[ast.Call]:
    """Calls that are hints in a function of a source file; of nested ones the outermost."""
    hints: list[ast.Call] = []
    inner: set[int] = set()
    node = source_edits.function_of(text, function)
    for call in ast.walk(node) if node is not None else ():  # outer calls come first
        if isinstance(call, ast.Call) and _is_hint(call) and id(call) not in inner:
            hints.append(call)
            inner |= {id(below) for below in ast.walk(call)}
    return hints


def without(text: str, call: ast.Call) -> str:
    """The text with the call replaced by what its hints are on; lines keep their numbers."""
    inner: ast.expr = call
    while isinstance(inner, ast.Call) and _is_hint(inner):
        inner = inner.args[0]
    lines = text.encode().split(b"\n")
    first, last = call.lineno - 1, (call.end_lineno or call.lineno) - 1
    head = lines[first][: call.col_offset]
    tail = lines[last][call.end_col_offset or 0 :]
    plain = f"({ast.unparse(inner)})".encode()
    empty = [b""] * (last - first)
    return b"\n".join([*lines[:first], head + plain + tail, *empty, *lines[last + 1 :]]).decode()


def prove(facts: Facts, finding: Finding) -> Finding | None:
    """Compiled without the hint; None (withdrawn) where that changes an access."""
    compiled = facts.compiled
    assert compiled is not None
    text = "\n".join(facts.sources.get(str(compiled.source_file)).lines)
    said, line = finding.numbers["hint"], finding.numbers["source_line"]
    (call,) = [
        c for c in calls(text, compiled.source_function)
        if c.lineno == line and ast.unparse(c) == said
    ][:1]  # fmt: skip
    other = facts.recompiled(source=without(text, call))
    if isinstance(other, Unknown):
        return replace(finding, unproven=other.reason)
    before, after = _widths(facts), _widths(other)
    if before != after:
        return None
    return replace(
        finding,
        message=f"{said} has no effect: without it all accesses are as wide",
        advice=_advice(facts, call),
        proof=Proof("recompiled", "the hint removed", before, after),
    )


def _advice(facts: Facts, call: ast.Call) -> str:
    inner: ast.expr = call
    while isinstance(inner, ast.Call) and _is_hint(inner):
        inner = inner.args[0]
    arguments = {argument.name for argument in facts.arguments.values()}
    if isinstance(inner, ast.Name) and inner.id in arguments:
        return (
            "on an argument a hint is lost: write it around the product or the sum with it that "
            "is added to the pointer"
        )
    return (
        "it does not make up for a mask, a pointer or a stride of which nothing is known: it may "
        "count together with what the other findings advise"
    )


def _is_hint(call: ast.Call) -> bool:
    return source_edits.last_name(call.func) in _HINTS and bool(call.args)


def _widths(facts: Facts) -> dict[str, float]:
    """Global loads and stores by bytes per thread."""
    counts: dict[str, float] = {}
    for group in access_groups.groups(facts):
        name = f"{group.size}-B {'stores' if group.kind == 'store' else 'loads'}"
        counts[name] = counts.get(name, 0) + len(group.members)
    return counts
