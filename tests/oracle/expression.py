"""The expressions of a report, evaluated as the Python that they look like."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

import numpy as np


class Expression:
    """Evaluates the text of a report over int64 lanes, as Python would.

    ``names`` has parameters, ``tid.x`` and the like, loop counters, variables; ``definitions``
    named sub-expressions of the report.
    """

    def __init__(self, names: Mapping[str, Any], definitions: Mapping[str, str] | None = None):
        self.names = dict(names)
        self.definitions = definitions or {}

    def __call__(self, text: str) -> Any:
        return self.value(ast.parse(re.sub(r"[$]", "ˍ", text), mode="eval").body)

    def lookup(self, name: str) -> Any:
        if name not in self.names and name in self.definitions:
            self.names[name] = self(self.definitions[name])
        return self.names[name]

    def value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=int() as number):
                return np.int64(number)
            case ast.Name(id="always"):
                return np.bool_(True)
            case ast.Name(id="never"):
                return np.bool_(False)
            case ast.Name(id=name):
                return self.lookup(name)
            case ast.Attribute(value=ast.Name(id=name), attr=component):
                return self.lookup(f"{name}.{component}")
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=offset)):
                return self.lookup(f"{name}[{offset}]")
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self.value(operand)
            case ast.UnaryOp(op=ast.Invert(), operand=operand):
                return ~self.value(operand)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return np.logical_not(self.value(operand))
            case ast.BinOp(left=left, op=op, right=right):
                return self.binary(op, self.value(left), self.value(right))
            case ast.BoolOp(op=op, values=values):
                combine = np.logical_and if isinstance(op, ast.And) else np.logical_or
                result = self.value(values[0])
                for other in values[1:]:
                    result = combine(result, self.value(other))
                return result
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                result = np.bool_(True)
                before = self.value(left)
                for op, other in zip(ops, comparators, strict=True):
                    after = self.value(other)
                    result = np.logical_and(result, _COMPARISONS[type(op)](before, after))
                    before = after
                return result
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return np.where(self.value(test), self.value(body), self.value(orelse))
            case ast.Call(func=ast.Name(id=name), args=args):
                return self.call(name, args)
        raise AssertionError(f"{ast.dump(node)} in the text of an expression")

    @staticmethod
    def binary(op: ast.operator, left: Any, right: Any) -> Any:
        function = _OPERATORS[type(op)]
        if isinstance(op, ast.FloorDiv | ast.Mod):
            right = np.where(right == 0, 1, right)  # of a side that is not chosen
        if isinstance(op, ast.LShift | ast.RShift):
            assert np.all((right >= 0) & (right < 63)), "a shift by a negative or large number"
        return function(left, right)

    def call(self, name: str, args: list[ast.expr]) -> Any:
        if name == "ceil":
            (quotient,) = args
            assert isinstance(quotient, ast.BinOp), "ceil(…) of something other than a quotient"
            assert isinstance(quotient.op, ast.Div), "ceil(…) of something other than a quotient"
            left, right = self.value(quotient.left), self.value(quotient.right)
            return toward_zero(left + right - 1, right)
        values = [self.value(a) for a in args]
        if name in ("min", "max"):
            result = values[0]
            for other in values[1:]:
                result = (np.minimum if name == "min" else np.maximum)(result, other)
            return result
        if name == "popc":  # of 32 bits
            return sum((values[0] >> bit) & 1 for bit in range(32))
        if name in ("mulhi_u32", "mulhi_s32"):
            return (values[0] * values[1]) >> 32
        found = re.fullmatch(r"([us])(8|16|32)", name)
        assert found, f"function {name}"
        bits = int(found[2])
        low = values[0] & ((1 << bits) - 1)
        return low - ((low >> (bits - 1)) << bits) if found[1] == "s" else low


def toward_zero(left: Any, right: Any) -> Any:
    """A quotient as the machine computes it."""
    return np.sign(left) * np.sign(right) * (np.abs(left) // np.abs(right))


_OPERATORS: dict[type, Any] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: toward_zero,
    ast.Mod: lambda a, b: a - toward_zero(a, b) * b,
    ast.BitAnd: lambda a, b: a & b,
    ast.BitOr: lambda a, b: a | b,
    ast.BitXor: lambda a, b: a ^ b,
    ast.LShift: lambda a, b: a << b,
    ast.RShift: lambda a, b: a >> b,
}
_COMPARISONS: dict[type, Any] = {
    ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b,
    ast.Gt: lambda a, b: a > b,
    ast.GtE: lambda a, b: a >= b,
    ast.Eq: lambda a, b: a == b,
    ast.NotEq: lambda a, b: a != b,
}


def definitions_of(kernel: Any) -> dict[str, str]:
    """Named sub-expressions of a report, where it has them."""
    result = {}
    for item in getattr(kernel, "definitions", ()):
        name, text = item if isinstance(item, tuple) else (item.name, item.expression)
        result[name] = text
    return result
