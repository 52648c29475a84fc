"""A kernel's source with another keyword argument in a call."""

from __future__ import annotations

import ast
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
    data = text.encode()
    starts = [0]
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    edits: list[tuple[int, int, str]] = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or _last_name(node.func) != function:
            continue
        if not node.lineno <= place.line <= (node.end_lineno or node.lineno):
            continue
        given = next((k.value for k in node.keywords if k.arg == name), None)
        end = starts[(node.end_lineno or 1) - 1] + (node.end_col_offset or 0) - 1
        if given is None and not add:
            continue
        if given is None:
            before = data[:end].rstrip()
            comma = " " if before.endswith((b",", b"(")) else ", "
            edits.append((len(before), len(before), f"{comma}{name}={value}"))
        else:
            first = starts[given.lineno - 1] + given.col_offset
            last = starts[(given.end_lineno or 1) - 1] + (given.end_col_offset or 0)
            edits.append((first, last, value))
    for first, last, new in sorted(edits, reverse=True):
        data = data[:first] + new.encode() + data[last:]
    return data.decode() if edits else None


def _same(one: str, other: Path) -> bool:
    return Path(one).resolve() == other.resolve()


def _last_name(node: ast.expr) -> str | None:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None
