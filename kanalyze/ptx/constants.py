"""Literals and constant expressions of PTX."""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lark import Tree

Value = int | float

_HEX_FLOAT = re.compile(r"0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}")
_INTEGER = re.compile(r"(0[xX][0-9a-fA-F]+|0[bB][01]+|0[0-7]*|[1-9][0-9]*)U?")
_DECIMAL = re.compile(r"(?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+")

_PRECEDENCE = {
    "||": 1, "&&": 2, "|": 3, "^": 4, "&": 5, "==": 6, "!=": 6, "<": 7, ">": 7, "<=": 7, ">=": 7,
    "<<": 8, ">>": 8, "+": 9, "-": 9, "*": 10, "/": 10, "%": 10,
}  # fmt: skip


def number(text: str) -> Value | None:
    """Return the value of a literal without sign; None if it is none.

    ``0f3F800000`` is the float 1.0; integers may be decimal, hexadecimal, octal (leading 0) or
    binary, with a suffix ``U``.
    """
    if _HEX_FLOAT.fullmatch(text):
        digits = bytes.fromhex(text[2:])
        value: float = struct.unpack(">f" if len(digits) == 4 else ">d", digits)[0]
        return value
    integer = _INTEGER.fullmatch(text)
    if integer:
        digits_only = integer[1]
        if digits_only[:2] in ("0x", "0X", "0b", "0B"):
            return int(digits_only, 0)
        return int(digits_only, 8 if digits_only[0] == "0" and len(digits_only) > 1 else 10)
    if _DECIMAL.fullmatch(text):
        return float(text)
    return None


def evaluate(tree: Tree[Any]) -> Value | None:
    """Return the value of an ``expression`` tree; None if it depends on a name."""
    parts: list[Any] = list(tree.children)
    if len(parts) > 2 and parts[-1].data == parts[-2].data == "expression":  # a ? b : c
        condition = evaluate_parts(flatten(parts[:-2]))
        return None if condition is None else evaluate(parts[-2] if condition else parts[-1])
    return evaluate_parts(flatten(parts))


def flatten(parts: list[Any]) -> list[str | Value | None]:
    """Return an expression's parts as operators (texts) and values."""
    flat: list[str | Value | None] = []
    for part in parts:
        if part.data in ("sign", "operator"):
            flat.append(str(part.children[0]))
        elif part.data == "number":
            flat.append(number(str(part.children[0])))
        elif part.data == "parenthesis":
            flat.append(evaluate(part.children[0]))
        else:
            flat.append(None)
    return flat


def evaluate_parts(parts: list[str | Value | None]) -> Value | None:
    """Evaluate a flat expression with C's precedence; None if it cannot be."""
    if any(part is None for part in parts):
        return None
    values: list[Value] = []
    operators: list[str] = []
    signs: list[str] = []

    def reduce() -> None:
        operator = operators.pop()
        right = values.pop()
        values.append(_binary(operator, values.pop(), right))

    expecting = True
    try:
        for part in parts:
            if isinstance(part, str) and (part[0] == "(" or (expecting and part in "-+~!")):
                signs.append(part)
            elif isinstance(part, str) and part in _PRECEDENCE:
                while operators and _PRECEDENCE[operators[-1]] >= _PRECEDENCE[part]:
                    reduce()
                operators.append(part)
                expecting = True
            else:
                value = number(part) if isinstance(part, str) else part
                if value is None or not expecting:
                    return None
                while signs:
                    value = _unary(signs.pop(), value)
                values.append(value)
                expecting = False
        while operators:
            reduce()
    except (ZeroDivisionError, TypeError, ValueError, OverflowError, IndexError):
        return None
    return values[0] if len(values) == 1 else None


def _unary(sign: str, value: Value) -> Value:
    if sign == "-":
        return -value
    if sign == "!":
        return int(not value)
    if sign == "~":
        return ~_integer(value)
    if sign.startswith("("):
        kind = sign.strip("() \t.")
        if kind.startswith("f"):
            return float(value)
        wrapped = int(value) & 0xFFFF_FFFF_FFFF_FFFF
        return wrapped - (1 << 64) if kind[0] == "s" and wrapped >> 63 else wrapped
    return value


def _integer(value: Value) -> int:
    if isinstance(value, float):
        raise TypeError("an integer is needed")
    return value


def _binary(operator: str, left: Value, right: Value) -> Value:
    if operator == "+":
        return left + right
    if operator == "-":
        return left - right
    if operator == "*":
        return left * right
    if operator == "/":
        if isinstance(left, int) and isinstance(right, int):
            quotient = abs(left) // abs(right)
            return quotient if (left < 0) == (right < 0) else -quotient
        return left / right
    if operator in ("==", "!=", "<", ">", "<=", ">="):
        order = (left > right) - (left < right)
        truth = {
            "==": order == 0, "!=": order != 0, "<": order < 0, ">": order > 0,
            "<=": order <= 0, ">=": order >= 0,
        }  # fmt: skip
        return int(truth[operator])
    if operator == "&&":
        return int(bool(left) and bool(right))
    if operator == "||":
        return int(bool(left) or bool(right))
    a, b = _integer(left), _integer(right)
    if operator == "%":
        remainder = abs(a) % abs(b)
        return -remainder if a < 0 else remainder
    if operator in ("<<", ">>"):
        if not 0 <= b < 64:
            raise ValueError("shift out of range")
        return a << b if operator == "<<" else a >> b
    return {"&": a & b, "|": a | b, "^": a ^ b}[operator]
