"""Names for what a kernel's addresses and conditions are made of.

Parameters have their author's names, loops ``i``, ``i0``, ``i1``, … for their iteration numbers.
Parts of addresses have the author's, where the source assigns just that value: a part is named if
it is the same for all threads of a block and not linear (a division, remainder, minimum or maximum
is in it), so that an address reads ``a_ptr + 2*(stride_am*(128*tile_m + …``. The name is that of
the variable to which the source line assigns it; the outermost operation of the line and of the
value must be the same. Without such a line, divisions and remainders by something
that is not constant are called t0, t1, …
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass

from kanalyze.frontend.argument import Argument
from kanalyze.kernel.evaluate import EvaluatedKernel
from kanalyze.ptx import ir
from kanalyze.results import kernel as doc
from kanalyze.symbolic.bits import Bits
from kanalyze.symbolic.loops import WAITS_ON_MBARRIER
from kanalyze.symbolic.readable import Reader
from kanalyze.symbolic.value import Value, in_order, leaves

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


@dataclass(frozen=True, slots=True)
class Notation:
    """How the values of one kernel are shown.

    ``pointers`` are the names, as shown, of what an address can start from, with the size in bytes
    of an element where it is known.
    """

    reader: Reader
    pointers: Mapping[str, int | None]

    def base(self, address: Value) -> str | None:
        """The pointer parameter or variable that an address starts from."""
        bases = self.reader.polynomial(address).bases(self.pointers)
        return bases[0][0] if len(bases) == 1 else None

    def definitions(self, texts: Iterable[str]) -> tuple[doc.Definition, ...]:
        """The names that occur in ``texts``, and in each other, with what they stand for."""
        definitions = {n: self.reader.definition(v) for v, n in self.reader.named.items()}
        wanted: set[str] = set()
        pending = list(texts)
        while pending:
            words = set(re.findall(r"(?<![\w.$%])[A-Za-z_]\w*(?![\w.])", pending.pop()))
            new = (words & definitions.keys()) - wanted
            wanted |= new
            pending += [definitions[name] for name in new]
        return tuple(doc.Definition(n, e) for n, e in definitions.items() if n in wanted)


def notation_of(
    code: EvaluatedKernel,
    arguments: Mapping[str, Argument],
    line_of: Callable[[ir.Instruction], tuple[str, int, str] | None],
) -> Notation:
    """How the values of a kernel are shown.

    Args:
        code: the kernel.
        arguments: PTX parameter name to what else is known of it.
        line_of: see `name_values`.
    """
    solved = code.addresses.solved
    values = [v for a in code.addresses.accesses for v in (a.address, a.condition) if v is not None]
    values += [t.count for t in solved.trips.values() if t.count is not None]
    names = {name: a.name for name, a in arguments.items()}
    loops = _iteration_numbers(code)
    taken = [*names.values(), *loops.values(), *code.variables]
    axes = zip("xyz", code.required_block or (), strict=False)
    reader = Reader(
        names=names,
        bits=Bits(
            {name: a.divisor for name, a in arguments.items()},
            {f"tid.{axis}": extent - 1 for axis, extent in axes},
        ),
        loops=loops,
        named=name_values(
            values, solved.registers.origins, line_of, taken, _pointers(code, arguments)
        ),
    )
    shown = {names.get(name, name): size for name, size in _pointers(code, arguments).items()}
    return Notation(reader, shown)


def _iteration_numbers(code: EvaluatedKernel) -> dict[int, str]:
    """Names of iteration numbers; a loop that only waits for something needs none."""
    trips = code.addresses.solved.trips
    counting = sorted(h for h, trip in trips.items() if trip.reason != WAITS_ON_MBARRIER)
    return {h: "i" if len(counting) == 1 else f"i{n}" for n, h in enumerate(counting)}


def _pointers(code: EvaluatedKernel, arguments: Mapping[str, Argument]) -> dict[str, int | None]:
    """What addresses start from, by its name in the PTX, and bytes of an element if known."""
    result: dict[str, int | None] = {}
    for parameter in code.function.parameters:
        argument = arguments.get(parameter.name)
        if argument is not None and argument.type is not None:
            if argument.type.startswith("*"):
                result[parameter.name] = argument.element_bytes
        elif parameter.pointer is not None or parameter.element_bytes == 8:
            result[parameter.name] = None
    for access in code.addresses.accesses:
        for leaf in leaves(access.address, "param"):
            name, offset = leaf.payload
            if leaf.bits == 64 and name not in arguments:  # a member of a struct
                result.setdefault(f"{name}[{offset}]" if offset else name, None)
    return result | {name: None for name in code.variables}


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
    pointers: Container[str] = (),
) -> dict[Value, str]:
    """Names for parts of ``values``; a pointer that is kept in a variable is still the pointer.

    Args:
        values: addresses, conditions, trip counts.
        origins: which instruction computed a value.
        line_of: file, line and text of the source line of an instruction, None if not known.
        taken: names that are in use.
        pointers: names of pointer parameters in the PTX.
    """
    nodes = in_order(values)
    uniform: dict[Value, bool] = {}
    curved: dict[Value, bool] = {}
    moved: dict[Value, bool] = {}  # a pointer, or one that was added to
    for node in nodes:
        moved[node] = (
            (node.op == "param" and node.payload[0] in pointers)
            or (node.op in ("add", "sub") and any(moved[a] for a in node.args))
        )  # fmt: skip
        uniform[node] = all(uniform[a] for a in node.args) if node.args else _is_uniform(node)
        curved[node] = node.op in _NOT_LINEAR or any(curved[a] for a in node.args)
    by_line: dict[tuple[str, int, str], tuple[Value, str]] = {}
    unnamed: list[Value] = []
    for node in nodes:
        if moved[node] or not (uniform[node] and curved[node]):
            continue
        origin = origins.get(node)
        line = line_of(origin) if origin is not None else None
        assigned = assignment(line[2]) if line is not None else None
        if line is not None and assigned is not None and node.op in assigned[1]:
            by_line[(line[0], line[1], assigned[0])] = (node, assigned[0])  # the last one counts
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
