"""What a Triton kernel's own body says of its parameters, where no one states their types.

What is loaded and stored through is a pointer; what stands in an address, a range or a bound is an
``i32``; another scalar that is reckoned with is an ``fp32``. A constexpr takes the value of a
launch in the same file, else one that fits how it is used. What is told so is a guess: callers say
it, and try the next one of `GUESSES` where Triton rejects it.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kanalyze.errors import UsageError
from kanalyze.frontend.specialize import (
    DIVISIBLE_BY_16,
    EQUAL_TO_1,
    Specialization,
    TritonParameter,
    normalise_type,
)

GUESSES = (
    ("fp16", 64, 64), ("fp32", 64, 64), ("bf16", 32, 1), ("fp16", 16, 1), ("fp32", 16, 2),
    ("fp16", 128, 1), ("i32", 64, 1), ("u8", 32, 16), ("fp8e4nv", 64, 1),
)  # fmt: skip
"""Element type of pointers, elements of a block along one of two axes, and other numbers that are
constexprs, in the order of trial."""

_MOST_ELEMENTS = 1 << 20  # of a block: TRITON_MAX_TENSOR_NUMEL
_LONE_BLOCK = 1024  # elements, where a kernel has one block size, and one axis
_MEMORY = ("load", "store", "make_block_ptr", "make_tensor_descriptor", "advance", "prefetch")
_LIBRARY = ("tl", "triton", "language", "gl", "ttgl")
_SHAPED = ("arange", "zeros", "full")
_SIZED = ("range", "static_range", "cdiv", *_SHAPED)
_TEXTS = {"input_precision": "tf32", "cache_modifier": "", "eviction_policy": ""}
_SAME = ("multiple_of", "max_contiguous", "max_constancy", "broadcast_to", "reshape", "to", "view")


@dataclass
class Uses:
    """How the parameters of a function are used.

    Attributes:
        pointers: those that are loaded or stored through.
        integers: those in addresses, ranges and bounds, and what is loaded for these.
        bits: pointers to what is taken apart by bits.
        blocks: those that are sizes of a block.
        flags: those that are conditions by themselves.
        values: those that are compared with a constant, and the constant.
        asserted: those of which a constant is asserted.
        types: those that are an element type.
        ones: those that are the last stride of a tensor descriptor.
        reckoned: those in sums and products and in what other functions take.
        spans: sizes of a block that is one whole row, and the length of the row.
        rank: axes of the largest block.
    """

    pointers: set[str] = field(default_factory=set)
    integers: set[str] = field(default_factory=set)
    bits: set[str] = field(default_factory=set)
    blocks: set[str] = field(default_factory=set)
    flags: set[str] = field(default_factory=set)
    values: dict[str, Any] = field(default_factory=dict)
    asserted: set[str] = field(default_factory=set)
    types: set[str] = field(default_factory=set)
    ones: set[str] = field(default_factory=set)
    reckoned: set[str] = field(default_factory=set)
    spans: dict[str, str] = field(default_factory=dict)
    rank: int = 1


def uses(function: Any, _seen: frozenset[str] = frozenset()) -> Uses:
    """How a ``JITFunction``'s body, and the functions that it calls, use its parameters."""
    used = Uses()
    body = ast.parse(function.src).body[0]
    flow = _Flow(body, {p.name for p in function.params})
    for node in ast.walk(body):
        match node:
            case ast.Call():
                _of_call(node, function, flow, used, _seen)
            case ast.If(test=test) | ast.IfExp(test=test):
                used.flags |= _conditions(test)
            case ast.Compare(
                left=ast.Name(id=name), ops=[ast.Eq()],
                comparators=[ast.Constant(value=str() | int() as constant)],
            ):  # fmt: skip
                used.values.setdefault(name, constant)
            case ast.Compare(left=left, ops=[ast.Lt()], comparators=[ast.Name(id=length)]):
                used.spans[flow.whole_range(left)] = length
            case ast.Subscript(slice=ast.Tuple(elts=axes)) if any(map(_is_none, axes)):
                used.rank = max(used.rank, len(axes))
            case ast.BinOp(op=ast.FloorDiv() | ast.Mod()):
                used.integers |= flow.behind(node)
            case ast.BinOp(op=ast.LShift() | ast.RShift() | ast.BitXor() | ast.BitAnd() as op):
                if isinstance(op, ast.BitAnd) and not isinstance(node.right, ast.Constant):
                    continue  # of conditions
                if isinstance(op, ast.LShift | ast.RShift):
                    used.values.setdefault(_name(node.right), 1)
                used.integers |= {_name(node.left), _name(node.right)}
                used.bits |= flow.loaded(node.left) | flow.loaded(node.right)
            case ast.BinOp():
                used.reckoned |= _names(node)
    used.integers -= used.pointers - flow.loaded_for
    used.blocks -= used.asserted
    return used


def _of_call(node: ast.Call, function: Any, flow: _Flow, used: Uses, seen: frozenset[str]) -> None:
    """Add what a call says of the parameters in its arguments."""
    name = node.func.attr if isinstance(node.func, ast.Attribute) else _name(node.func)
    by_name = {k.arg: k.value for k in node.keywords if k.arg}
    arguments = [*node.args, *by_name.values()]
    used.types |= {_name(by_name["dtype"])} if "dtype" in by_name else set()
    used.values |= {_name(by_name[word]): _TEXTS[word] for word in _TEXTS if word in by_name}
    if name in _MEMORY or name.startswith("atomic"):
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        of_library = owner is None or _name(owner) in _LIBRARY
        for address in arguments[:1] if of_library else [owner]:
            assert address is not None
            used.integers |= flow.behind(address)
            used.pointers |= flow.roots(address)
        mask = [by_name["mask"]] if "mask" in by_name else []
        if name == "make_tensor_descriptor":
            match [*([by_name["strides"]] if "strides" in by_name else node.args[2:3])]:
                case [ast.List(elts=[*_, last]) | ast.Tuple(elts=[*_, last])]:
                    used.ones.add(_name(last))
        for condition in [*mask, *(node.args[1:2] if name == "load" else node.args[2:3])]:
            used.integers |= flow.behind(condition)
    elif name in _SIZED:
        for argument in arguments[:1] if name == "full" else arguments:
            used.integers |= flow.behind(argument)
            used.blocks |= _names(argument) if name in _SHAPED else set()
    elif name in ("static_assert", "assume"):
        match node.args[0]:
            case ast.Compare(left=ast.Name(id=left), ops=[ast.Eq()],
                             comparators=[ast.Constant(value=value)]):  # fmt: skip
                used.values[left] = value
                used.asserted.add(left)
    elif name == "to":
        used.types |= {_name(argument) for argument in arguments[:1]}
    else:
        callee = function.fn.__globals__.get(name)
        if name in seen or not isinstance(getattr(callee, "params", None), list):
            used.reckoned |= set().union(*map(_names, arguments))
            return
        inner = uses(callee, seen | {name})
        used.rank = max(used.rank, inner.rank)
        by_place = zip((p.name for p in callee.params), node.args, strict=False)
        for parameter, argument in (*by_place, *by_name.items()):
            if parameter in inner.pointers:
                used.pointers |= flow.roots(argument)
            if parameter in inner.pointers | inner.integers:
                used.integers |= flow.behind(argument)
            for kind in ("bits", "blocks", "flags", "types", "ones", "reckoned"):
                if parameter in getattr(inner, kind):
                    getattr(used, kind).add(_name(argument))
            if parameter in inner.values:
                used.values.setdefault(_name(argument), inner.values[parameter])


def _conditions(test: ast.expr) -> set[str]:
    """The names that are true or false by themselves in a condition."""
    match test:
        case ast.Name(id=name):
            return {name}
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _conditions(operand)
        case ast.BoolOp(values=values):
            return set().union(*map(_conditions, values))
    return set()


def _names(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


class _Flow:
    """Which parameters stand behind an expression."""

    def __init__(self, body: ast.AST, parameters: set[str]):
        self._parameters = parameters
        self._assigned: dict[str, list[ast.expr]] = {}
        self._added: dict[str, list[ast.expr]] = {}
        for node in ast.walk(body):
            match node:
                case ast.Assign(targets=targets, value=value):
                    pass
                case ast.AugAssign(target=target, value=value):
                    self._added.setdefault(_name(target), []).append(value)
                    continue
                case ast.For(target=target, iter=value):
                    targets = [target]
                case ast.AnnAssign(target=target, value=ast.expr() as value):
                    targets = [target]
                case _:
                    continue
            for name in set().union(*map(_names, targets)):
                self._assigned.setdefault(name, []).append(value)
        self.loaded_for: set[str] = set()

    def roots(self, node: ast.expr, seen: frozenset[str] = frozenset()) -> set[str]:
        """The parameters that an address starts from: the first terms of its sums."""
        match node:
            case ast.Name(id=name) if name in self._assigned and name not in seen:
                starts: set[str] = set()
                for value in self._assigned[name]:
                    starts |= self.roots(value, seen | {name})
                return starts | ({name} & self._parameters)
            case ast.Name(id=name):
                return {name} & self._parameters
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=right):
                first, second = self.roots(left, seen), self.roots(right, seen)
                return _likelier(first, second)
            case ast.IfExp(body=yes, orelse=no):
                return self.roots(yes, seen) | self.roots(no, seen)
            case ast.Subscript(value=value) | ast.Attribute(value=value):
                return self.roots(value, seen)
            case ast.Call(func=ast.Attribute(value=value, attr=attr), args=args):
                if attr in ("load", "gather"):
                    return set()
                if isinstance(value, ast.Name) and value.id == "tl":
                    known = attr in _SAME or attr in _MEMORY or attr == "where"
                    picked = (args[1:] if attr == "where" else args[:1]) if known else []
                    return set().union(*(self.roots(a, seen) for a in picked))
                return self.roots(value, seen) if attr in (*_SAME, *_MEMORY) else set()
        return set()

    def whole_range(self, node: ast.expr) -> str:
        """The size B of an index that is ``tl.arange(0, B)`` without an offset, else empty."""
        values = self._assigned.get(_name(node), [])
        if len(values) == 1 and _name(node) not in self._added:
            node = values[0]
        while isinstance(node, ast.Subscript):
            node = node.value
        match node:
            case ast.Call(func=ast.Attribute(attr="arange"),
                          args=[ast.Constant(value=0), ast.Name(id=size)]):  # fmt: skip
                return size
        return ""

    def loaded(self, node: ast.expr) -> set[str]:
        """The pointers through which a value was loaded: of an address the last assignment."""
        pointers: set[str] = set()
        for load in [node, *self._assigned.get(_name(node), ())]:
            if not (isinstance(load, ast.Call) and getattr(load.func, "attr", "") == "load"):
                continue
            for address in load.args[:1]:
                values = self._assigned.get(_name(address), ())
                before = [value for value in values if value.lineno < load.lineno]
                pointers |= self.roots(max(before, key=lambda v: v.lineno, default=address))
        return pointers

    def behind(self, node: ast.AST, seen: frozenset[str] = frozenset()) -> set[str]:
        """The parameters that an integer is made of; what is loaded for it is noted."""
        parts: set[str] = set()
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "load" and node.args:
            self.loaded_for |= self.roots(node.args[0], seen)
            return set(self.loaded_for)
        if isinstance(node, ast.Name):
            parts |= {node.id} & self._parameters
            if node.id not in seen:
                for value in (*self._assigned.get(node.id, ()), *self._added.get(node.id, ())):
                    parts |= self.behind(value, seen | {node.id})
            return parts
        for child in ast.iter_child_nodes(node):
            parts |= self.behind(child, seen)
        return parts


def _likelier(first: set[str], second: set[str]) -> set[str]:
    """Of the terms of a sum, the one that is named as a pointer, else the first."""
    named = [side for side in (first, second) if any("ptr" in name.lower() for name in side)]
    return named[0] if named else first or second


@dataclass
class Launched:
    """What the launches of a kernel in its own file say: constants, and element types of arrays."""

    constants: dict[str, Any] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)


def launched(function: Any) -> Launched:
    """What each launch ``kernel[grid](…)`` in the same file says of the parameters."""
    said = Launched()
    try:
        tree = ast.parse(inspect.getsource(inspect.getmodule(function.fn) or function.fn))
    except (OSError, TypeError, SyntaxError):
        return said
    everywhere = _assigned(tree)
    for scope in (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)):
        values = everywhere | _assigned(scope)
        for node in ast.walk(scope):
            if not (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Subscript)
                and _name(node.func.value) == function.fn.__name__
            ):
                continue
            names = [parameter.name for parameter in function.params]
            by_name = dict(zip(names, node.args, strict=False))
            for name, given in (by_name | {k.arg: k.value for k in node.keywords if k.arg}).items():
                value = values.get(_name(given), given)
                if isinstance(value, ast.Constant):
                    said.constants.setdefault(name, value.value)
                elif isinstance(value, ast.Call):
                    dtype = next((k.value for k in value.keywords if k.arg == "dtype"), None)
                    if isinstance(dtype, ast.Attribute):
                        with contextlib.suppress(UsageError):
                            said.types.setdefault(name, normalise_type(dtype.attr))
    return said


def _assigned(tree: ast.AST) -> dict[str, ast.expr]:
    """The names that are assigned somewhere, and what."""
    return {
        target.id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def inferred(
    function: Any, missing: Sequence[TritonParameter], known: Mapping[str, object],
    element: str, block: int, number: int,
) -> dict[str, Specialization]:  # fmt: skip
    """Guess the arguments that nothing is stated of.

    Args:
        function: the ``JITFunction``.
        missing: its parameters without a type or value.
        known: the values of others; a block that is one whole row covers it.
        element: the element type of pointers (``fp16``).
        block: elements of a block along one of two axes.
        number: what other constexprs are.
    """
    used, said = uses(function), launched(function)
    lone = used.rank == 1 and sum(p.constexpr and p.name in used.blocks for p in missing) == 1
    sizes = _LONE_BLOCK if lone and block == GUESSES[0][1] else block
    sizes = sizes if used.rank < 3 else max(4, sizes // 4)
    rows = {name: known.get(length) for name, length in used.spans.items()}
    covering = {name: 1 << (n - 1).bit_length() for name, n in rows.items()
                if isinstance(n, int) and 0 < n <= _MOST_ELEMENTS}  # fmt: skip
    return {
        p.name: _argument(p, used, said, element, covering.get(p.name, sizes), number)
        for p in missing
    }


def _argument(
    parameter: TritonParameter,
    used: Uses,
    said: Launched,
    element: str,
    block: int,
    number: int,
) -> Specialization:
    name = parameter.name
    if parameter.constexpr:
        value: Any = 0
        first = number == GUESSES[0][2]  # later: not what it is compared with, but a number
        known = first or name in used.asserted or isinstance(used.values.get(name), str)
        if name in said.constants:
            value = said.constants[name]
        elif name in used.ones:
            value = 1
        elif name in used.types:
            types = {"fp16": "float16", "bf16": "bfloat16"}
            value = f"tl.{types.get(element, 'float32')}"
        elif name in used.values and name not in used.blocks and known:
            value = used.values[name]
        elif name in used.flags and name not in used.blocks:
            value = False
        elif name in used.blocks | used.integers:
            value = block if name in used.blocks else number
        return Specialization("constexpr", (), value)
    if parameter.type:
        return Specialization(parameter.type)
    if name in used.pointers:
        kind = "i64" if name in used.integers else "i32" if name in used.bits else element
        kind = said.types.get(name, kind)
        return Specialization(f"*{kind}", (DIVISIBLE_BY_16,))
    if name in used.ones:
        return Specialization("constexpr", (EQUAL_TO_1,), 1)
    real = name in used.reckoned - used.integers - used.flags
    return Specialization("fp32" if real else "i32")
