"""A launch said in words: arrays and numbers by the names of parameters, the grid as expressions.

``--arg N=4096``, ``--arg "x=bf16[4096,N] strides=1,4096 align=4"``, ``--arg "ids=i32[N] arange"``,
``--grid "cdiv(N,BLOCK)"``; in Python tensors of PyTorch (on the CPU, ``meta`` or fake), arrays of
NumPy and tuples of sizes, too. Nothing here imports torch.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kanalyze.errors import UsageError, nearest
from kanalyze.frontend.specialize import (
    ALLOCATED,
    Pointer,
    TritonParameter,
    normalise_type,
    parse_value,
)
from kanalyze.launch import assumptions
from kanalyze.text.pieces import pieces

Grid = int | str | Sequence[int | str] | Callable[[dict[str, Any]], Any]
"""Blocks in x, y, z: numbers, expressions (one text may hold several), or what Triton takes."""

_ARRAY = re.compile(
    r"(?s)(?P<type>\*?[A-Za-z]\w*)?\s*(?:\[(?P<shape>[^\]]*)\])?"
    r"(?:\s*strides=(?P<strides>[^\s]+))?(?:\s+align=(?P<align>\d+))?"
    r"(?:\s+(?P<contents>\S+))?\s*"
)
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv, ast.Div: operator.truediv, ast.Mod: operator.mod,
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "cdiv": lambda a, b: -(-a // b), "min": min, "max": max,
    "next_power_of_2": lambda n: 1 << max(n - 1, 0).bit_length(),
}  # fmt: skip


def plain(args: Mapping[str, object]) -> dict[str, object]:
    """The arguments with every tensor as the `Pointer` that it is."""
    return {name: _of_tensor(value) for name, value in args.items()}


def _of_tensor(value: Any) -> object:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Pointer) or not (hasattr(value, "shape") and hasattr(value, "dtype")):
        return value
    shape = tuple(int(size) for size in value.shape)
    array: object = value
    align = ALLOCATED
    if isinstance(value, np.ndarray):
        strides = tuple(step // value.itemsize for step in value.strides)
    else:
        strides = tuple(map(int, value.stride()))
        offset = int(value.storage_offset()) * value.element_size()
        align = math.gcd(offset, ALLOCATED)
        held = value.device.type == "cpu" and not hasattr(value, "fake_mode")
        array = value.detach().numpy() if held and "bfloat" not in str(value.dtype) else None
    contents = None
    if isinstance(array, np.ndarray) and array.dtype.kind in "iub" and array.flags.c_contiguous:
        contents = assumptions.parse(array)
    kind = normalise_type(str(value.dtype).removeprefix("torch."))
    return Pointer(kind, align, shape, strides, contents)


def parted(
    parameters: Sequence[TritonParameter], args: Mapping[str, object], kernel: str
) -> tuple[dict[str, Pointer], dict[str, object]]:
    """The arguments that are arrays, with sizes that may be texts still, and the others.

    An array's element type is "" where it is not said.

    Raises:
        UsageError: there is no such parameter, or a text says of an array what cannot be.
    """
    arrays: dict[str, Pointer] = {}
    others: dict[str, object] = {}
    by_name = {parameter.name: parameter for parameter in parameters}
    for name, value in args.items():
        parameter = by_name.get(name)
        array = None if parameter is not None and parameter.constexpr else _array(name, value)
        if array is None:
            others[name] = value
        elif parameter is None:
            raise UsageError(f"{kernel} has no parameter '{name}': {nearest(name, by_name)}")
        else:
            arrays[name] = array
    return arrays, others


def _array(name: str, value: object) -> Pointer | None:
    if isinstance(value, Pointer):
        return value
    if isinstance(value, list | tuple) and all(isinstance(size, int) for size in value):
        return Pointer("", shape=tuple(value))
    match = _ARRAY.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None or not (
        match["shape"] is not None or match["contents"] or (match["type"] and "*" in match["type"])
    ):
        return None
    word = (match["type"] or "").removeprefix("*")
    align = int(match["align"] or ALLOCATED)
    if align & (align - 1) or not align:
        raise UsageError(f"{name}: align={align}: expected a power of two")
    contents = match["contents"]
    return Pointer(
        normalise_type(word) if word else "",
        align,
        None if match["shape"] is None else _sizes(match["shape"]),
        None if match["strides"] is None else _sizes(match["strides"]),
        assumptions.parse("range" if contents == "arange" else contents) if contents else None,
    )


def _sizes(text: str) -> tuple[Any, ...]:
    return tuple(parse_value(size) for size in pieces(text) if size.strip())


def sized(name: str, array: Pointer, known: Mapping[str, object]) -> Pointer:
    """The array with numbers in the place of expressions."""

    def numbers(sizes: Sequence[Any] | None) -> tuple[int, ...] | None:
        if sizes is None:
            return None
        return tuple(_whole(f"a size of {name}", size, known) for size in sizes)

    shape, strides = numbers(array.shape), numbers(array.strides)
    if shape is not None and strides is not None and len(shape) != len(strides):
        raise UsageError(f"{name}: {len(shape)} sizes and {len(strides)} strides")
    return replace(array, shape=shape, strides=strides)


def grid_of(grid: Grid, known: Mapping[str, object]) -> tuple[int, ...]:
    """The blocks in x, y and z.

    Raises:
        UsageError: it is not one to three whole numbers of at least 1, or names what is not known.
    """
    extents: Any = grid(dict(known)) if callable(grid) else grid
    if isinstance(extents, str | int):
        extents = pieces(str(extents))
    blocks = tuple(_whole("the grid", part, known) for part in extents)
    if not (1 <= len(blocks) <= 3 and min(blocks, default=0) >= 1):
        raise UsageError(f"grid {blocks}: expected one to three numbers of at least 1")
    return blocks


def names_nothing(grid: Grid | None) -> bool:
    """Whether a grid is numbers alone, so that it is that of one set of constexprs."""
    return grid is not None and not callable(grid) and not re.search(r"[A-Za-z_]", str(grid))


def _whole(what: str, given: object, known: Mapping[str, object]) -> int:
    number = evaluated(given, known) if isinstance(given, str) else given
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise UsageError(f"{what}: {given} is {number}, expected a whole number")
    return number


def evaluated(text: str, known: Mapping[str, object]) -> Any:
    """The number that an expression is: ``cdiv(N, BLOCK) * 2``, ``x.shape[0]``, ``x.stride(0)``.

    Raises:
        UsageError: it is no such expression, or names what is not known.
    """
    try:
        return _value(ast.parse(text.strip(), mode="eval").body, known)
    except KeyError as missing:
        raise UsageError(
            f"'{text}': {missing.args[0]} is not known: {nearest(missing.args[0], known)}"
        ) from None
    except (SyntaxError, ValueError, TypeError, ArithmeticError, LookupError, RecursionError):
        raise UsageError(
            f"'{text}' is no expression of arguments: expected such as cdiv(N, BLOCK)"
        ) from None


def _value(node: ast.expr, known: Mapping[str, object]) -> Any:
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.Name(id=name):
            return known[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, known)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(left, known), _value(right, known))
        case ast.Attribute(value=value, attr="shape"):
            return _pointer(value, known).shape
        case ast.Subscript(value=ast.Name(), slice=ast.Constant(value=str(name))):  # META["BLOCK"]
            return known[name]
        case ast.Subscript(value=value, slice=index):
            return _value(value, known)[_value(index, known)]
        case ast.Call(func=ast.Attribute(value=value, attr="stride"), args=[index]):
            return _pointer(value, known).steps[_value(index, known)]
        case ast.Call(func=ast.Attribute(value=value, attr="numel"), args=[]):
            return math.prod(_pointer(value, known).shape or ())
        case ast.Call(func=function, args=args, keywords=[]):
            word = function.attr if isinstance(function, ast.Attribute) else ast.unparse(function)
            if word in _FUNCTIONS:
                return _FUNCTIONS[word](*(_value(argument, known) for argument in args))
    raise ValueError


def _pointer(node: ast.expr, known: Mapping[str, object]) -> Pointer:
    array = known[ast.unparse(node)]
    if not isinstance(array, Pointer) or array.shape is None:
        raise ValueError
    return array
