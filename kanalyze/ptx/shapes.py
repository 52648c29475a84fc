"""Statement shapes: the grammar is applied once per distinct shape, then bound to the slots.

``%r1, [%rd2+16]`` and ``%f7, [%rd9+0x20]`` have one shape, ``n, [n+0]``. The first statement of a
shape goes through the Lark grammar (``grammars/ptx.lark``), which leaves a binder: a function from
the names and numbers of a statement to its operands. Binders are kept process-wide, bounded.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kanalyze.ptx import constants
from kanalyze.ptx.grammar import ShapeError, tree_of
from kanalyze.ptx.ir import Address, Immediate, Name, Not, Operand, Pair, Vector

if TYPE_CHECKING:
    from lark import Tree

Slots = list[str]
Binder = Callable[[Slots], Operand]
OperandsBinder = Callable[[str], tuple[Operand, ...]]

_MAX_SHAPES = 20_000
_MAX_TEXTS = 200_000

_NAME_RUN = re.compile(r"[%A-Za-z_$][\w$.%]*", re.ASCII)
_NUMBER_RUN = re.compile(r"\d[\dn.]*", re.ASCII)
_SLOT = re.compile(r"[%A-Za-z_$][\w$.%]*|\d[\w.]*", re.ASCII)
_PREFIXED = re.compile(r"0[fFdDxXbB]\w*", re.ASCII)
_EXPONENT = re.compile(r"\d\.?\d*[eE][+-]\d", re.ASCII)


def shapes_of(texts: list[str]) -> list[str]:
    """Return the shape of every operand text (none contains ``;``).

    A text with a decimal exponent (``1.5e-3``) is its own shape, because its sign would be taken
    for an operator; so is one with a malformed number, for the grammar to complain about.
    """
    if not texts:
        return []
    joined = ";".join(texts)
    shapes = _NUMBER_RUN.sub("0", _NAME_RUN.sub("n", joined)).split(";")
    if any(constants.number(number) is None for number in set(_PREFIXED.findall(joined))):
        for index, text in enumerate(texts):
            words = _SLOT.findall(text)
            if any(s[0].isdigit() and constants.number(s) is None for s in words):
                shapes[index] = f"={text}"
    if any(mark in joined for mark in ("e-", "e+", "E-", "E+")):
        for index, text in enumerate(texts):
            if _EXPONENT.search(text):
                shapes[index] = f"={text}"
    return shapes


_binders: dict[str, OperandsBinder | None] = {}
_literals: dict[str, OperandsBinder] = {}

#: The binder of a shape that was met before; None if `binder` must be asked.
known_binder = _binders.get


def binder(shape: str, text: str, call: bool) -> OperandsBinder:
    """Return what makes operands of ``text``, whose shape is ``shape``.

    Args:
        shape: from `shapes_of`.
        text: the operands as written.
        call: the instruction is a ``call``, whose parentheses are lists.

    Raises:
        ShapeError: the operands do not fit the grammar; the offset is into ``text``.
    """
    key = shape
    if "(" in shape:  # known_binder does not know these: a call reads parentheses differently
        key = f"{'call' if call else 'x'} {shape}"
    try:
        known = _binders[key]
    except KeyError:
        known = _new_binder(key, text, call)
    if known is not None:
        return known
    key = f"{'call' if call else 'x'} {text}"
    literal = _literals.get(key)
    if literal is None:
        tree, _ = _operand_tree(text, call)
        source = f"{'call' if call else 'x'} {text};"
        operands = tuple(_literal(child, source, call) for child in tree.children[1:])

        def literal(_: str, operands: tuple[Operand, ...] = operands) -> tuple[Operand, ...]:
            return operands

        if len(_literals) >= _MAX_SHAPES:
            _literals.clear()
        _literals[key] = literal
    return literal


def _operand_tree(text: str, call: bool) -> tuple[Tree[Any], int]:
    """Parse the operands behind a stand-in opcode; offsets in errors are into ``text``."""
    head = "call " if call else "x "
    try:
        return tree_of("call" if call else "instruction", f"{head}{text};"), len(head)
    except ShapeError as error:
        raise ShapeError(error.message, max(0, error.offset - len(head))) from None


def _new_binder(key: str, text: str, call: bool) -> OperandsBinder | None:
    """Apply the grammar to a new shape; None if its statements must be read one by one."""
    tree, head = _operand_tree(text, call)
    if len(_binders) >= _MAX_SHAPES:
        _binders.clear()
    made = _compile(tree, text, head, call)
    _binders[key] = made
    return made


def _compile(tree: Tree[Any], text: str, head: int, call: bool) -> OperandsBinder | None:
    from lark import Token

    tokens = [
        token
        for token in tree.scan_values(lambda v: isinstance(v, Token))
        if token.type in ("NAME", "NUMBER")
    ]
    tokens.sort(key=lambda token: token.start_pos or 0)
    if [str(token) for token in tokens] != _SLOT.findall(text):
        return None
    index = {token.start_pos: number for number, token in enumerate(tokens)}
    try:
        binders = [_binder_of(child, index, call) for child in tree.children[1:]]
    except _NeedsLiteral:
        return None
    findall = _SLOT.findall
    if all(_is_simple(child) for child in tree.children[1:]):
        simple = _simple.__getitem__
        return lambda text: tuple(map(simple, findall(text)))

    def bind(text: str) -> tuple[Operand, ...]:
        slots = findall(text)
        return tuple([make(slots) for make in binders])

    return bind


class _NeedsLiteral(Exception):
    """The operand has an expression to evaluate, so it is not made from slots."""


class _Simple(dict[str, Name | Immediate]):
    """The operand of a name or a literal (which may have a minus sign), shared by all users."""

    def __missing__(self, text: str) -> Name | Immediate:
        if len(self) >= _MAX_TEXTS:
            self.clear()
        made: Name | Immediate
        if text[0] == "-":
            value = constants.number(text[1:])
            made = Immediate(text, None if value is None else -value)
        elif text[0].isdigit() or text[0] == ".":
            made = Immediate(text, constants.number(text))
        else:
            made = Name(text)
        self[text] = made
        return made


_simple = _Simple()


def _parts(tree: Any) -> list[Any]:
    """The children of an expression: signs, operators and primaries."""
    return [child for child in tree.children if hasattr(child, "data")]


def _is_simple(tree: Any) -> bool:
    """Tell whether an operand is one name or one number."""
    parts = _parts(tree) if tree.data == "expression" else []
    return len(parts) == 1 and parts[0].data in ("name", "number")


def _sign(part: Any) -> str:
    """The text of a sign or an operator node, else the empty string."""
    return str(part.children[0]) if part.data in ("sign", "operator") else ""


def _binder_of(tree: Any, index: dict[int | None, int], call: bool = False) -> Binder:
    """Return the binder of one operand."""
    if tree.data == "list":
        return _vector(tree, index)
    parts = _parts(tree)
    signs = [_sign(part) for part in parts]
    if len(parts) == 1:
        return _primary(parts[0], index, call)
    if len(parts) == 2 and signs[0] == "!" and parts[1].data == "name":
        make = _primary(parts[1], index)
        return lambda slots: Not(make(slots))
    if len(parts) == 2 and signs[0] == "-" and parts[1].data == "number":
        at = index[parts[1].children[0].start_pos]
        return lambda slots: _simple["-" + slots[at]]
    if "|" in signs and not call:
        cut = signs.index("|")
        first = _side(parts[:cut], index)
        second = _side(parts[cut + 1 :], index)
        return lambda slots: Pair(first(slots), second(slots))
    raise _NeedsLiteral


def _side(parts: list[Any], index: dict[int | None, int]) -> Binder:
    """One half of a pair: a name, a vector or a negated name."""
    if len(parts) == 1 and parts[0].data in ("name", "vector"):
        return _primary(parts[0], index)
    if len(parts) == 2 and _sign(parts[0]) == "!" and parts[1].data == "name":
        make = _primary(parts[1], index)
        return lambda slots: Not(make(slots))
    raise _NeedsLiteral


def _primary(part: Any, index: dict[int | None, int], call: bool = False) -> Binder:
    if part.data == "name":
        at = index[part.children[0].start_pos]
        return lambda slots: _simple[slots[at]]
    if part.data == "number":
        at = index[part.children[0].start_pos]
        return lambda slots: _simple[slots[at]]
    if part.data == "vector":
        return _vector(part, index)
    if part.data == "address":
        return _address(part, index)
    if part.data == "element":
        name = index[part.children[0].start_pos]
        subscript = _binder_of(part.children[1], index)
        return lambda slots: Address(_simple[slots[name]], 0, (subscript(slots),), True)
    if part.data == "parenthesis" and call:
        inner = _binder_of(part.children[0], index)
        return lambda slots: Vector((inner(slots),))
    raise _NeedsLiteral


def _vector(part: Any, index: dict[int | None, int]) -> Binder:
    items = [_binder_of(child, index) for child in part.children]
    return lambda slots: Vector(tuple([item(slots) for item in items]))


def _address(part: Any, index: dict[int | None, int]) -> Binder:
    """``[base]``, ``[base+4]``, ``[base+-4]``, ``[base-4]``, each with coordinates or not."""
    parts = _parts(part.children[0])
    kinds = [str(p.data) for p in parts]
    rest = [_binder_of(child, index) for child in part.children[1:]]
    if kinds[0] not in ("name", "number", "vector"):
        raise _NeedsLiteral
    base = _primary(parts[0], index)
    if len(parts) == 1:
        if rest:
            return lambda slots: Address(base(slots), 0, tuple([make(slots) for make in rest]))
        return lambda slots: Address(base(slots))
    signs = [_sign(p) for p in parts]
    if kinds[-1] != "number" or signs[1:-1] not in (["+"], ["-"], ["+", "-"]):
        raise _NeedsLiteral
    at = index[parts[-1].children[0].start_pos]
    sign = -1 if "-" in signs else 1

    def address(slots: Slots) -> Operand:
        value = constants.number(slots[at])
        offset = sign * value if isinstance(value, int) else 0
        return Address(base(slots), offset, tuple([make(slots) for make in rest]))

    return address


# ---------------------------------------------------------------- operands with expressions


def _literal(tree: Any, source: str, call: bool = False) -> Operand:
    """Return an operand made from its tree alone; expressions are evaluated."""
    from lark import Token

    tokens = [t for t in tree.scan_values(lambda v: isinstance(v, Token))]
    tokens = sorted(
        (t for t in tokens if t.type in ("NAME", "NUMBER")), key=lambda t: t.start_pos or 0
    )
    index = {token.start_pos: number for number, token in enumerate(tokens)}
    slots = [str(token) for token in tokens]
    try:
        return _binder_of(tree, index, call)(slots)
    except _NeedsLiteral:
        pass
    if tree.data in ("list", "vector"):
        return Vector(tuple(_literal(child, source) for child in tree.children))
    parts = _parts(tree)
    if len(parts) == 1:
        part = parts[0]
        if part.data == "vector":
            return Vector(tuple(_literal(child, source) for child in part.children))
        if part.data == "address":
            return _literal_address(part, source)
        if part.data == "parenthesis" and call:
            return Vector((_literal(part.children[0], source),))
    return Immediate(_text(tree, source), constants.evaluate(tree))


def _literal_address(part: Any, source: str) -> Operand:
    """``[base + expression, …]``."""
    rest = tuple(_literal(child, source) for child in part.children[1:])
    inner = part.children[0]
    parts = _parts(inner)
    if parts[0].data != "name" or len(parts) < 3 or _sign(parts[1]) not in ("+", "-"):
        return Address(_literal(inner, source), 0, rest)
    offset = constants.evaluate_parts(["0", *constants.flatten(parts[1:])])
    if not isinstance(offset, int):
        return Address(Immediate(_text(inner, source), None), 0, rest)
    return Address(_simple[str(parts[0].children[0])], offset, rest)


def _text(tree: Tree[Any], source: str) -> str:
    return source[tree.meta.start_pos : tree.meta.end_pos]
