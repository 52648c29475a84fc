"""Declarations and function headers: from statements to IR, through cached grammar trees."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from kanalyze.ptx import constants
from kanalyze.ptx.grammar import ShapeError, tree_of
from kanalyze.ptx.ir import Parameter, Pos, RegisterDeclaration, Variable

_SLOT = re.compile(
    r"""(\.attribute\s*\((?:[^()]|\([^()]*\))*\)|\.[A-Za-z_][\w:]*)
    |([%A-Za-z_$][\w$]*(?:\.[\w$]+)*)|(\d[\w.]*)|("(?:[^"\\]|\\.)*")""",
    re.ASCII | re.VERBOSE,
)
_SLOTTED = ("NAME", "NUMBER", "STRING")
_MAX_TREES = 20_000

SPACES = frozenset({"reg", "sreg", "const", "global", "local", "param", "shared", "tex"})
LINKAGES = frozenset({"extern", "visible", "weak", "common"})
_BYTES = {"pred": 1, "texref": 0, "samplerref": 0, "surfref": 0}
_TYPE = re.compile(r"[a-z]+(\d+)(?:x(\d+))?$")


class BoundStatement:
    """A statement: the tree of its shape, and its own names and numbers."""

    def __init__(self, tree: Any, index: dict[int, int], slots: list[tuple[str, int]]):
        self.tree = tree
        self._index = index
        self._slots = slots

    def text(self, token: Any) -> str:
        """Return the text that this statement has where its shape has ``token``."""
        return self._slots[self._index[token.start_pos]][0]

    def offset(self, token: Any) -> int:
        """Return where this statement has what its shape has as ``token``."""
        return self._slots[self._index[token.start_pos]][1]

    def number(self, token: Any) -> int:
        """Return the integer that stands where the shape has ``token``."""
        value = constants.number(self.text(token))
        return value if isinstance(value, int) else 0


_trees: dict[tuple[str, str], tuple[Any, dict[int, int]]] = {}


def bound(start: str, text: str) -> BoundStatement:
    """Apply the grammar's rule ``start`` to a statement (once per shape).

    Raises:
        ShapeError: the statement does not fit; the offset is into ``text``.
    """
    slots: list[tuple[str, int]] = []

    def slot(match: re.Match[str]) -> str:
        kind = match.lastindex
        if kind == 1:
            return match[0]
        slots.append((match[0], match.start()))
        if kind == 4:
            return '"'
        if kind == 2:
            return "n"
        return "0" if constants.number(match[0]) is not None else match[0]

    shape = _SLOT.sub(slot, text)
    known = _trees.get((start, shape))
    if known is None:
        tree = tree_of(start, text)
        tokens = [t for t in tree.scan_values(lambda v: hasattr(v, "type")) if t.type in _SLOTTED]
        cuts = sorted((t.start_pos, str(t)) for t in tokens)
        index = {start: number for number, (start, _) in enumerate(cuts)}
        if cuts != [(start, text) for text, start in slots]:  # cut differently: not for others
            return BoundStatement(tree, index, [(text, start) for start, text in cuts])
        if len(_trees) >= _MAX_TREES:
            _trees.clear()
        known = _trees[start, shape] = tree, index
    return BoundStatement(known[0], known[1], slots)


def type_bytes(type_: str, vector: int = 1) -> int:
    """Return the size of a type in bytes: 4 for ``f32``; 0 for types without one."""
    if type_ in _BYTES:
        return _BYTES[type_]
    match = _TYPE.match(type_)
    if match is None:
        return 0
    return int(match[1]) * int(match[2] or 1) // 8 * vector


def registers(text: str, pos: Pos, scope: int) -> RegisterDeclaration:
    """Read ``.reg .b32 %r<10>, %x;``."""
    statement = bound("registers", text)
    words: list[str] = []
    names: list[str] = []
    counts: list[int | None] = []
    for child in statement.tree.children:
        if getattr(child, "data", None) == "register":
            names.append(statement.text(child.children[0]))
            has_count = len(child.children) > 1
            counts.append(statement.number(child.children[1]) if has_count else None)
        elif child.type == "DOTWORD":
            words.append(str(child)[1:])
    return RegisterDeclaration(".".join(words), tuple(names), tuple(counts), pos, scope)


class _Words:
    """The attribute words of a declaration, sorted by what they are."""

    def __init__(self, statement: BoundStatement, nodes: list[Any]):
        self.space = ""
        self.types: list[str] = []
        self.align: int | None = None
        self.pointer: str | None = None
        self.pointer_align: int | None = None
        self.linkage: str | None = None
        for node in nodes:
            if getattr(node, "data", None) != "word":
                continue
            word = str(node.children[0])[1:]
            value = statement.number(node.children[1]) if len(node.children) > 1 else None
            if word == "align" and self.pointer is not None:
                self.pointer_align = value
            elif word == "align":
                self.align = value
            elif word == "ptr":
                self.pointer = "generic"
            elif word in SPACES and self.pointer is not None:
                self.pointer = word
            elif word in SPACES:
                self.space = word
            elif word in LINKAGES:
                self.linkage = word
            else:
                self.types.append(word)

    @property
    def type(self) -> str:
        """The type, with a vector in front: ``v4.f32``."""
        return ".".join(self.types)

    @property
    def element_bytes(self) -> int:
        """The size of one element, vectors counted whole."""
        if not self.types:
            return 0
        vector = self.types[0]
        width = int(vector[1:]) if re.fullmatch(r"v\d", vector) else 1
        return type_bytes(self.types[-1], width)


def _dimensions(statement: BoundStatement, node: Any) -> tuple[int | None, ...]:
    """The dimensions of a declarator; None for one that is open."""
    return tuple(
        _value(statement, child.children[0]) if child.children else None
        for child in node.children
        if getattr(child, "data", None) == "dimension"
    )


def _elements(dimensions: tuple[int | None, ...]) -> int | None:
    """The product of dimensions; None if one is open."""
    total = 1
    for size in dimensions:
        if size is None:
            return None
        total *= size
    return total


def _value(statement: BoundStatement, expression: Any) -> int | None:
    parts = expression.children
    if len(parts) == 1 and parts[0].data == "number":
        return statement.number(parts[0].children[0])
    flat: list[Any] = []
    for part in parts:
        if part.data == "number":
            flat.append(constants.number(statement.text(part.children[0])))
        elif part.data == "parenthesis":
            flat.append(_value(statement, part.children[0]))
        elif part.data in ("sign", "operator"):
            flat.append(str(part.children[0]))
        else:
            flat.append(None)
    value = constants.evaluate_parts(flat)
    return value if isinstance(value, int) else None


def parameters(
    statement: BoundStatement, node: Any, place: Callable[[int], Pos]
) -> tuple[Parameter, ...]:
    """Return the parameters of a ``parameters`` node.

    Args:
        statement: the header or prototype.
        node: the node.
        place: from an offset in the statement to the position, which is that of the name.
    """
    made: list[Parameter] = []
    for child in node.children:
        words = _Words(statement, child.children)
        name = next(c for c in child.children if getattr(c, "type", "") == "NAME")
        dimensions = _dimensions(statement, child)
        made.append(
            Parameter(
                statement.text(name), words.type, words.element_bytes, _elements(dimensions),
                words.align, words.pointer, words.pointer_align, place(statement.offset(name)),
                dimensions, words.space or "param",
            )
        )  # fmt: skip
    return tuple(made)


def attributes_of(tree: Any) -> tuple[str, ...]:
    """The ``.attribute(…)`` of a declaration or header, blanks made even."""
    trees = [c for c in tree.children if getattr(c, "type", "") == "ATTRIBUTE"]
    return tuple(" ".join(str(token).split()) for token in trees)


_INITIALIZER = re.compile(r"=\s*(\{[^;]*\}|[^,;{}]+)")


def variables(text: str, clean: str, pos: Pos, scope: int) -> tuple[Variable, ...]:
    """Read ``.global .align 4 .b8 a[2] = {1, 2}, b;``: one `Variable` per name.

    Initialisers are kept as text. ``clean`` is ``text`` without comments, of equal length.
    """
    initializers = [match[1].strip() for match in _INITIALIZER.finditer(clean)]

    def blank(match: re.Match[str]) -> str:
        inner = match[1]
        hollow = inner.startswith("{") or len(inner.strip()) > 1
        return "={" + " " * (len(match[0]) - 3) + "}" if hollow else match[0]

    statement = bound("variable", _INITIALIZER.sub(blank, clean))
    words = _Words(statement, statement.tree.children)
    if not words.space:
        raise ShapeError("found a declaration without a state space, expected .global, …", 0)
    attributes = attributes_of(statement.tree)
    made: list[Variable] = []
    waiting = iter(initializers)
    for child in statement.tree.children:
        if getattr(child, "data", None) != "declarator":
            continue
        kinds = [getattr(c, "data", "") for c in child.children]
        name = statement.text(child.children[0])
        dimensions = _dimensions(statement, child)
        initializer = next(waiting, None) if "initializer" in kinds else None
        names = [name]
        if "range" in kinds:
            count = statement.number(child.children[kinds.index("range")].children[0])
            names = [f"{name}{i}" for i in range(min(count, 65536))]
        made.extend(
            Variable(
                each, words.space, words.type, words.element_bytes, _elements(dimensions),
                words.align, words.linkage, initializer, pos, scope, dimensions, attributes,
            )
            for each in names
        )  # fmt: skip
    return tuple(made)
