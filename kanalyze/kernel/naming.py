"""Names for parts of addresses: the author's, where the source assigns just that value.

A part is named if it is the same for all threads of a block and not linear (a division, remainder,
minimum or maximum is in it), so that an address reads ``a_ptr + 2*(stride_am*(128*tile_m + …``. The
name is that of the variable to which the source line assigns it; the outermost operation of the
line and of the value must be the same. Without such a line, divisions and remainders by something
that is not constant are called t0, t1, …
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping

from kanalyze.ptx import ir
from kanalyze.symbolic.value import Value, in_order

_OPERATIONS: dict[type[ast.operator], tuple[str, ...]] = {
    ast.Add: ("add", "or"),
    ast.Sub: ("sub", "add"),
    ast.Mult: ("mul", "shl"),
    ast.FloorDiv: ("divs", "divu", "shrs", "shru"),
    ast.Mod: ("rems", "remu", "and"),
}
_CALLS = {
    "min": ("mins", "minu"),
    "minimum": ("mins", "minu"),
    "max": ("maxs", "maxu"),
    "maximum": ("maxs", "maxu"),
    "cdiv": ("divs", "divu", "shrs", "shru"),
}
_NOT_LINEAR = ("divs", "divu", "rems", "remu", "mins", "minu", "maxs", "maxu")


def assignment(line: str) -> tuple[str, tuple[str, ...]] | None:
    """The variable and the operations that a source line ``NAME = a + b`` can end in."""
    try:
        tree = ast.parse(line.strip())
    except (SyntaxError, ValueError):
        return None
    if len(tree.body) != 1 or not isinstance(tree.body[0], ast.Assign):
        return None
    target, value = tree.body[0].targets[0], tree.body[0].value
    if len(tree.body[0].targets) != 1 or not isinstance(target, ast.Name):
        return None
    if isinstance(value, ast.BinOp):
        operations = _OPERATIONS.get(type(value.op))
        return None if operations is None else (target.id, operations)
    if isinstance(value, ast.Call):
        function = value.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        return (target.id, _CALLS[name]) if name in _CALLS else None
    return None


def name_values(
    values: Iterable[Value],
    origins: Mapping[Value, ir.Instruction],
    line_of: Callable[[ir.Instruction], tuple[str, int, str] | None],
    taken: Iterable[str],
) -> dict[Value, str]:
    """Names for parts of ``values``.

    Args:
        values: addresses, conditions, trip counts.
        origins: which instruction computed a value.
        line_of: file, line and text of the source line of an instruction, None if not known.
        taken: names that are in use.
    """
    nodes = in_order(values)
    uniform: dict[Value, bool] = {}
    curved: dict[Value, bool] = {}
    for node in nodes:
        uniform[node] = all(uniform[a] for a in node.args) if node.args else _is_uniform(node)
        curved[node] = node.op in _NOT_LINEAR or any(curved[a] for a in node.args)
    by_line: dict[tuple[str, int, str], tuple[Value, str]] = {}
    unnamed: list[Value] = []
    for node in nodes:
        if not (uniform[node] and curved[node]):
            continue
        origin = origins.get(node)
        line = line_of(origin) if origin is not None else None
        found = assignment(line[2]) if line is not None else None
        if line is not None and found is not None and node.op in found[1]:
            by_line[(line[0], line[1], found[0])] = (node, found[0])  # the last one counts
        elif node.op in _NOT_LINEAR[:4] and node.args[1].op != "const":
            unnamed.append(node)
    used = set(taken)
    names: dict[Value, str] = {}
    for node, name in by_line.values():
        if name in used:
            continue
        used.add(name)
        names[node] = name
    number = 0
    for node in unnamed:
        if node in names:
            continue
        while f"t{number}" in used:
            number += 1
        names[node] = f"t{number}"
        used.add(f"t{number}")
    return names


def _is_uniform(leaf: Value) -> bool:
    if leaf.op == "special":
        return not str(leaf.payload).startswith(("tid", "laneid", "elected"))
    return leaf.op in ("const", "param", "address")
