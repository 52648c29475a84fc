"""Python source with pieces of it changed: where its nodes stand, and the text afterwards."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

from kanalyze.findings.facts import Facts
from kanalyze.frontend import ttir


def with_keyword(
    facts: Facts,
    place: ttir.Place | None,
    function: str,
    name: str,
    value: str,
    add: bool = True,
) -> str | None:
    """The source with a keyword argument set in the calls of ``function`` that stand in a line.

    Args:
        facts: the kernel.
        place: the line of the call.
        function: its last name: ``dot`` for ``tl.dot``.
        name: the keyword.
        value: its text: ``'"tf32"'``.
        add: whether to add the keyword where it is not given.

    Returns:
        The whole text of the file; None where there is no such call in the kernel's file.
    """
    compiled = facts.compiled
    if compiled is None or place is None or not _same(place.file, compiled.source_file):
        return None
    try:
        text = compiled.source_file.read_text("utf-8")
        tree = ast.parse(text)
    except (OSError, ValueError, SyntaxError):
        return None
    data, starts = text.encode(), line_starts(text)
    edits: list[tuple[int, int, str]] = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or last_name(node.func) != function:
            continue
        if not node.lineno <= place.line <= (node.end_lineno or node.lineno):
            continue
        given = next((k.value for k in node.keywords if k.arg == name), None)
        if given is not None:
            edits.append((*span(given, starts), value))
        elif add:
            before = data[: span(node, starts)[1] - 1].rstrip()
            comma = " " if before.endswith((b",", b"(")) else ", "
            edits.append((len(before), len(before), f"{comma}{name}={value}"))
    return edited(text, edits) if edits else None


def line_starts(text: str) -> list[int]:
    """Where each line begins, in bytes of UTF-8."""
    starts = [0]
    for line in text.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return starts


def span(node: ast.expr, starts: list[int]) -> tuple[int, int]:
    """First byte of an expression, and the one after its last; ``starts``: see `line_starts`."""
    last = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
    return starts[node.lineno - 1] + node.col_offset, last


def edited(text: str, edits: Iterable[tuple[int, int, str]]) -> str:
    """The text with other words from a first byte up to a last one.

    Of several insertions at one place the first stands first.
    """
    data = text.encode()
    for first, last, new in reversed(sorted(edits, key=lambda edit: edit[0])):
        data = data[:first] + new.encode() + data[last:]
    return data.decode()


def function_of(text: str, name: str) -> ast.FunctionDef | None:
    """A function of a source file; None where there is none, or the file cannot be parsed."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None
    functions = (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == name)
    return next(functions, None)


def last_name(node: ast.expr) -> str | None:
    """``dot`` of ``tl.dot`` and of ``dot``."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None


def _same(one: str, other: Path) -> bool:
    return Path(one).resolve() == other.resolve()
