"""Hints written into a kernel's source, of which accesses become wider: where, and tried.

A hint on an argument (``n = tl.multiple_of(n, 16)``) is lost: Triton keeps hints at operations, and
an argument is none. One at the product with the argument, and at the mask, is kept.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kanalyze.findings import access_groups, triton_ir, vectorization
from kanalyze.findings.access_groups import AccessGroup
from kanalyze.findings.facts import Facts
from kanalyze.findings.source_edits import edited, function_of, last_name, line_starts, span

_ARGUMENTS = {"load": (1, "mask"), "store": (2, "mask")}  # where a mask stands


@dataclass(frozen=True)
class Edit:
    """A hint around an expression: lines and columns (in bytes) as in `ast`.

    ``of_mask``: it is one of a mask.
    """

    node: ast.expr
    before: str
    after: str
    of_mask: bool

    @property
    def words(self) -> str:
        """The hint as it is to be written."""
        return (
            "mask=" if self.of_mask else ""
        ) + f"{self.before}{ast.unparse(self.node)}{self.after}"


@dataclass(frozen=True)
class SourceHints:
    """Hints with which accesses are wider: the group then, and what they are on."""

    then: AccessGroup
    edits: tuple[Edit, ...]

    @property
    def words(self) -> str:
        """All of them, without their places."""
        return " and ".join(dict.fromkeys(edit.words for edit in self.edits))

    @property
    def placed(self) -> str:
        """All of them, with their lines: ``tl.multiple_of(row * n, 4) in line 10``."""
        lines: dict[str, list[int]] = {}
        for edit in self.edits:
            lines.setdefault(edit.words, []).append(edit.node.lineno)
        return " and ".join(
            f"{words} in line{'s' if len(set(some)) > 1 else ''} "
            f"{', '.join(str(n) for n in sorted(set(some)))}"
            for words, some in lines.items()
        )

    @property
    def only_masks(self) -> bool:
        """Whether nothing has to be said of the address."""
        return all(edit.of_mask for edit in self.edits)


def fewest_hints(
    facts: Facts, group: AccessGroup, missing: Sequence[str], size: int
) -> SourceHints | None:
    """The fewest hints with which the accesses have ``size`` bytes; None where none do it.

    Args:
        facts: the kernel.
        group: accesses of a line.
        missing: parameters of the PTX that are multiples of 16 bytes, and not known to be. Pointers
            among them are taken to be aligned: no hint says it.
        size: bytes of the access that is wanted.
    """
    compiled = facts.compiled
    if compiled is None or group.first.source is None:
        return None
    text = "\n".join(facts.sources.get(str(compiled.source_file)).lines)
    pointers = [p.name for p in facts.function.parameters if p.pointer is not None]
    aligned = {
        access_groups.author_name(facts, n): vectorization.DIVISIBLE
        for n in missing
        if n in pointers
    }
    names = {access_groups.author_name(facts, n) for n in missing if n not in pointers}
    function = function_of(text, compiled.source_function)
    if function is None or not names:
        return None
    rank = _rank(facts, group)
    masks = list(_masks(function, group, _factor(group, 1, rank)))
    source_facts = {"facts": aligned} if aligned else {}

    def tried(edits: Sequence[Edit]) -> SourceHints | None:
        if not edits:
            return None
        change = {"source": _edited(text, edits), **source_facts}
        then = vectorization.recompiled(facts, group, change)
        return SourceHints(then, tuple(edits)) if then is not None and then.size >= size else None

    for ranks in sorted({1, rank}):  # of the product: a number, or a part of the tile
        products = list(_products(function, names, group, ranks))
        every = tried([*products, *masks])
        if every is not None and products and masks:
            return tried(masks) or tried(products) or every
        if every is not None:
            return every
    return None


def _products(
    function: ast.FunctionDef, names: set[str], group: AccessGroup, rank: int
) -> Iterator[Edit]:
    """Products with one of the arguments, of which nothing is said yet."""
    each = vectorization.multiple(group.element)
    factor = str(each) if rank == 1 else f"({', '.join([str(each)] * rank)})"
    seen: set[int] = set()
    for node in ast.walk(function):  # outer ones come first
        if isinstance(node, ast.Call) and last_name(node.func) == "multiple_of" and node.args:
            said = node.args[1] if len(node.args) > 1 else None
            enough = isinstance(said, ast.Constant) and isinstance(said.value, int)
            if enough and said.value % each == 0:  # type: ignore[union-attr]
                seen |= {id(below) for below in ast.walk(node)}
        if id(node) in seen or not isinstance(node, ast.BinOp):
            continue
        if any(_named(part) in names for part in _factors(node)) and _is_product(node):
            seen |= {id(below) for below in ast.walk(node)}
            yield Edit(node, "tl.multiple_of(", f", {factor})", of_mask=False)


def _masks(function: ast.FunctionDef, group: AccessGroup, factor: str) -> Iterator[Edit]:
    """The mask of the accesses, at all loads and stores that have the same."""
    calls = [
        (node, mask) for node in ast.walk(function)
        if isinstance(node, ast.Call) and (mask := _mask(node)) is not None
    ]  # fmt: skip
    line = group.first.source.line if group.first.source is not None else 0
    kind = "store" if group.kind == "store" else "load"
    own = {
        ast.unparse(mask) for node, mask in calls
        if last_name(node.func) == kind and node.lineno <= line <= (node.end_lineno or node.lineno)
    }  # fmt: skip
    for _, mask in calls:
        hinted = isinstance(mask, ast.Call) and last_name(mask.func) == "max_constancy"
        if ast.unparse(mask) in own and not hinted:
            yield Edit(mask, "tl.max_constancy(", f", {factor})", of_mask=True)


def _factor(group: AccessGroup, other: int, rank: int) -> str:
    """What a hint says of each dimension: of the last one that it is a multiple."""
    each = vectorization.multiple(group.element)
    if rank <= 1:
        return str(each)
    return f"({', '.join([str(other)] * (rank - 1))}, {each})"


def _rank(facts: Facts, group: AccessGroup) -> int:
    """Dimensions of the tile that is loaded or stored."""
    name = "tt.store" if group.kind == "store" else "tt.load"
    for operation in triton_ir.operations(facts, "ttir", name):
        if group.at(operation.source):
            _, _, shape = operation.text.rpartition("tensor<")
            extents = shape.partition("!")[0].split("x")
            return max(1, sum(part.isdigit() for part in extents))
    return 1


# ---------------------------------------------------------------- the syntax tree


def _is_product(node: ast.expr) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)


def _factors(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        yield from _factors(node.left)
        yield from _factors(node.right)
    else:
        yield node


def _named(node: ast.expr) -> str | None:
    """The name of a variable, also of ``n.to(tl.int64)``."""
    if isinstance(node, ast.Call) and last_name(node.func) == "to":
        node = node.func.value  # type: ignore[attr-defined]
    return node.id if isinstance(node, ast.Name) else None


def _mask(call: ast.Call) -> ast.expr | None:
    place = _ARGUMENTS.get(last_name(call.func) or "")
    if place is None:
        return None
    at, name = place
    if len(call.args) > at:
        return call.args[at]
    return next((k.value for k in call.keywords if k.arg == name), None)


def _edited(text: str, edits: Sequence[Edit]) -> str:
    """The text with the hints in it, outer ones around inner ones; lines keep their numbers."""
    starts = line_starts(text)
    places = [span(edit.node, starts) for edit in edits]
    before = [(first, first, e.before) for e, (first, _) in zip(edits, places, strict=True)]
    after = [(last, last, e.after) for e, (_, last) in zip(edits, places, strict=True)]
    return edited(text, [*before, *reversed(after)])
