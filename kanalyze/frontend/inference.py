"""What a Triton kernel's own body says of its parameters, where no one states their types.

What is loaded and stored through is a pointer; what stands in an address, a range or a bound is an
``i32``; another scalar that is reckoned with is an ``fp32``. A constexpr takes the value of a
launch in the same file, else one that fits how it is used. What is told so is a guess: callers say
it, and try the next one of `GUESSES` where Triton rejects it.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from kanalyze.frontend.specialize import DIVISIBLE_BY_16, Specialization, TritonParameter

GUESSES = (("fp16", 64), ("fp32", 64), ("bf16", 32), ("fp16", 16), ("fp32", 16), ("fp16", 128))
"""Element type of pointers, and elements of a block along one axis, in the order of trial."""

_LONE_BLOCK = 1024  # elements, where a kernel has one block size
_MEMORY = ("load", "store", "make_block_ptr", "make_tensor_descriptor", "advance", "prefetch")
_LIBRARY = ("tl", "triton", "language", "gl", "ttgl")
_SHAPED = ("arange", "zeros", "full")
_SIZED = ("range", "static_range", "cdiv", *_SHAPED)
_SAME = ("multiple_of", "max_contiguous", "max_constancy", "broadcast_to", "reshape", "to", "view")


@dataclass
class Uses:
    """How the parameters of a function are used.

    Attributes:
        pointers: those that are loaded or stored through.
        integers: those in addresses, ranges and bounds, and what is loaded for these.
        blocks: those that are sizes of a block.
        flags: those that are conditions by themselves.
        words: those that are compared with a text, and the text.
        types: those that are an element type.
        reckoned: those in sums and products and in what other functions take.
    """

    pointers: set[str] = field(default_factory=set)
    integers: set[str] = field(default_factory=set)
    blocks: set[str] = field(default_factory=set)
    flags: set[str] = field(default_factory=set)
    words: dict[str, str] = field(default_factory=dict)
    types: set[str] = field(default_factory=set)
    reckoned: set[str] = field(default_factory=set)


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
            case ast.Compare(left=ast.Name(id=name), comparators=[ast.Constant(value=str(text))]):
                used.words[name] = text
            case ast.BinOp(op=ast.FloorDiv() | ast.Mod() | ast.RShift()):
                used.integers |= flow.behind(node)
            case ast.BinOp():
                used.reckoned |= _names(node)
    used.integers -= used.pointers - flow.loaded_for
    return used


def _of_call(node: ast.Call, function: Any, flow: _Flow, used: Uses, seen: frozenset[str]) -> None:
    """Add what a call says of the parameters in its arguments."""
    name = node.func.attr if isinstance(node.func, ast.Attribute) else _name(node.func)
    by_name = {k.arg: k.value for k in node.keywords if k.arg}
    arguments = [*node.args, *by_name.values()]
    used.types |= {_name(by_name["dtype"])} if "dtype" in by_name else set()
    if name in _MEMORY or name.startswith("atomic"):
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        of_library = owner is None or _name(owner) in _LIBRARY
        for address in arguments[:1] if of_library else [owner]:
            assert address is not None
            used.integers |= flow.behind(address)
            used.pointers |= flow.roots(address)
        mask = [by_name["mask"]] if "mask" in by_name else []
        for condition in [*mask, *(node.args[1:2] if name == "load" else node.args[2:3])]:
            used.integers |= flow.behind(condition)
    elif name in _SIZED:
        for argument in arguments[:1] if name == "full" else arguments:
            used.integers |= flow.behind(argument)
            used.blocks |= _names(argument) if name in _SHAPED else set()
    elif name == "to":
        used.types |= {_name(argument) for argument in arguments[:1]}
    else:
        callee = function.fn.__globals__.get(name)
        if name in seen or not isinstance(getattr(callee, "src", None), str):
            used.reckoned |= set().union(*map(_names, arguments))
            return
        inner = uses(callee, seen | {name})
        by_place = zip((p.name for p in callee.params), node.args, strict=False)
        for parameter, argument in (*by_place, *by_name.items()):
            if parameter in inner.pointers:
                used.pointers |= flow.roots(argument)
            if parameter in inner.pointers | inner.integers:
                used.integers |= flow.behind(argument)
            for kind in ("blocks", "flags", "types", "reckoned"):
                if parameter in getattr(inner, kind):
                    getattr(used, kind).add(_name(argument))


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


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


class _Flow:
    """Which parameters stand behind an expression."""

    def __init__(self, body: ast.AST, parameters: set[str]):
        self._parameters = parameters
        self._assigned: dict[str, list[ast.expr]] = {}
        for node in ast.walk(body):
            match node:
                case ast.Assign(targets=targets, value=value):
                    pass
                case ast.For(target=target, iter=value) | ast.AugAssign(target=target, value=value):
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

    def behind(self, node: ast.AST, seen: frozenset[str] = frozenset()) -> set[str]:
        """The parameters that an integer is made of; what is loaded for it is noted."""
        parts: set[str] = set()
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "load" and node.args:
            self.loaded_for |= self.roots(node.args[0], seen)
            return set(self.loaded_for)
        if isinstance(node, ast.Name):
            parts |= {node.id} & self._parameters
            if node.id not in seen:
                for value in self._assigned.get(node.id, ()):
                    parts |= self.behind(value, seen | {node.id})
            return parts
        for child in ast.iter_child_nodes(node):
            parts |= self.behind(child, seen)
        return parts


def _likelier(first: set[str], second: set[str]) -> set[str]:
    """Of the terms of a sum, the one that is named as a pointer, else the first."""
    named = [side for side in (first, second) if any("ptr" in name.lower() for name in side)]
    return named[0] if named else first or second


def launches(function: Any) -> Iterator[dict[str, Any]]:
    """The constant keyword arguments of each launch ``kernel[grid](…)`` in the same file."""
    try:
        tree = ast.parse(inspect.getsource(inspect.getmodule(function.fn) or function.fn))
    except (OSError, TypeError, SyntaxError):
        return
    constants = {
        target.id: node.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Subscript)
            and _name(node.func.value) == function.fn.__name__
        ):
            given = {k.arg: k.value for k in node.keywords if k.arg}
            yield {
                name: value.value if isinstance(value, ast.Constant) else constants[_name(value)]
                for name, value in given.items()
                if isinstance(value, ast.Constant) or _name(value) in constants
            }


def inferred(
    function: Any, missing: Sequence[TritonParameter], element: str, block: int
) -> dict[str, Specialization]:
    """Guess the arguments that nothing is stated of.

    Args:
        function: the ``JITFunction``.
        missing: its parameters without a type or value.
        element: the element type of pointers (``fp16``).
        block: elements of a block along one axis, where there are several axes.
    """
    used = uses(function)
    launched: dict[str, Any] = {}
    for launch in launches(function):
        launched = launch | launched
    lone = sum(p.constexpr and p.name in used.blocks for p in missing) == 1
    sizes = _LONE_BLOCK if lone and block == GUESSES[0][1] else block
    return {p.name: _argument(p, used, launched, element, sizes) for p in missing}


def _argument(
    parameter: TritonParameter, used: Uses, launched: dict[str, Any], element: str, block: int
) -> Specialization:
    name = parameter.name
    if parameter.constexpr:
        if name in launched:
            return Specialization("constexpr", (), launched[name])
        if name in used.types:
            types = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}
            return Specialization("constexpr", (), f"tl.{types[element]}")
        if name in used.words:
            return Specialization("constexpr", (), used.words[name])
        if name in used.flags and name not in used.blocks:
            return Specialization("constexpr", (), False)
        return Specialization("constexpr", (), block if name in used.blocks | used.integers else 0)
    if parameter.type:
        return Specialization(parameter.type)
    if name in used.pointers:
        kind = "i64" if name in used.integers else element
        return Specialization(f"*{kind}", (DIVISIBLE_BY_16,))
    real = name in used.reckoned - used.integers - used.flags
    return Specialization("fp32" if real else "i32")
