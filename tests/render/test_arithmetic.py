"""Renderers compute nothing: what they print stands in the result, so in the JSON, too."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

RENDER = Path(__file__).parents[2] / "kanalyze" / "render"
OPERATORS = (ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.LShift, ast.RShift)
CALLS = {"sum", "min", "max", "round", "divmod", "abs"}
LAYOUT = {
    # widths of columns, places in a line, how much is cut off
    "bench_text.result_text",
    "check_text._by_kernel",
    "check_text._cut",
    "check_text._more",
    "comparison_text._ComparisonReport._both",
    "comparison_text._ComparisonReport.table",
    "dump.loops",
    "listing_text.shortened",
    "listing_text.show",
    "name_text._explain",
    "name_text._put",
    "name_text._shown",
    "name_text.explained",
    "profile_text._head",
    "profile_text._kernels",
    "profile_text._says",
    "profile_text._tail",
    "profile_text._two_lines",
    "traffic_text._TrafficReport._access_table",
    "traffic_text._TrafficReport._table",
    # extents of axes, places of marks
    "check_plot._panel",
    "check_plot.plot",
    "check_plot.points",
    "traffic_plot._roofs",
    "traffic_plot.sweep",
    # empty cells, the length of a bar
    "measured_text.measured_text",
    "profile_tables._row",
}
"""Functions whose arithmetic places text."""


def arithmetic(text: str) -> Iterator[str]:
    """Functions (the outermost by name) that have arithmetic on anything but texts."""
    tree = ast.parse(text)
    for outer in tree.body:
        name = getattr(outer, "name", "")
        for inner in outer.body if isinstance(outer, ast.ClassDef) else [outer]:
            at = f"{name}.{getattr(inner, 'name', '')}" if inner is not outer else name
            if any(_computes(node) for node in ast.walk(inner)) and name:
                yield at


def _computes(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp | ast.AugAssign):
        if isinstance(node.op, ast.Add):
            sides = (node.left, node.right) if isinstance(node, ast.BinOp) else (node.value,)
            return any(_is_number(side) for side in sides)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            return not any(_is_text(side) for side in (node.left, node.right))
        return isinstance(node.op, OPERATORS)
    if isinstance(node, ast.Call):
        called = node.func
        of_math = isinstance(called, ast.Attribute) and ast.unparse(called.value) == "math"
        return of_math or (isinstance(called, ast.Name) and called.id in CALLS)
    return False


def _is_text(node: ast.AST) -> bool:
    """A text or list that is repeated."""
    return isinstance(node, ast.List) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _is_number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)


def computing() -> set[str]:
    return {
        f"{path.stem}.{name}"
        for path in sorted(RENDER.glob("*.py"))
        for name in arithmetic(path.read_text("utf-8"))
    }


def test_renderers_compute_nothing_but_layout() -> None:
    assert computing() - LAYOUT == set()
    assert LAYOUT - computing() == set(), "these no longer need to be listed"


def test_arithmetic_is_seen() -> None:
    text = """
def share(part): return 100 * part.cost / part.ideal
def many(parts): return sum(p.cost for p in parts)
class Report:
    def next(self, n): return n + 1
def join(a, b): return a + b + "-" * 3
"""
    assert list(arithmetic(text)) == ["share", "many", "Report.next"]
