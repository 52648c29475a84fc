"""Values as a person would write them: ``x_ptr + 4*(1024*ctaid.x + 4*(tid.x & 127))``.

The text reads as Python over integers without a width: it equals the value as long as index
arithmetic does not wrap at 32 or 64 bits (what kernels rely on); where an operation drops bits on
purpose, or surely wraps, the text says ``u32(…)``, or ``s32(…)`` where it is signed. Three things
differ from Python: ``//`` and ``%`` round toward 0, as the machine's do; ``ceil(a/b)`` stands for
``(a + b - 1) // b``, as compilers compute it; and ``mulhi_u32`` is the upper half of a product.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from kanalyze.symbolic.bits import Bits
from kanalyze.symbolic.polynomials import (
    Monomial,
    Polynomial,
    add,
    atom_of,
    balanced,
    constant_of,
    content_of,
    divide,
    operand_text,
    scale,
    sum_text,
    text_of,
)
from kanalyze.symbolic.value import Value, array_of, in_order

_MOST_PRODUCTS = 48
_LONGEST = 4000  # characters of an expression; it grows where values are used again and again
TOO_LONG = "<too long to show>"
_LINEAR = ("add", "sub", "mul", "shl")
_WRAPS = 1 << 28  # a 32-bit index times this wraps from 8 on
_COMPARE = {"lts": "<", "ltu": "<", "les": "<=", "leu": "<=", "eq": "==", "ne": "!="}
_FLIPPED = {"<": ">", "<=": ">=", "==": "==", "!=": "!="}
_FUNCTIONS = {
    "mins": "min", "minu": "min", "maxs": "max", "maxu": "max", "popc": "popc",
}  # fmt: skip


@dataclass
class Reader:
    """Turns the values of one function into text.

    Args:
        names: parameter name (as in the PTX) to what the user calls it.
        bits: what is known of bits in this kernel (alignment, block size): decides whether
            ``a | b`` is a sum.
        loops: header block of a loop to the name of its iteration number.
        named: values that are shown by a name of their own.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    bits: Bits = field(default_factory=Bits)
    loops: Mapping[int, str] = field(default_factory=dict)
    named: Mapping[Value, str] = field(default_factory=dict)
    _polynomials: dict[Value, Polynomial] = field(default_factory=dict)
    _conditions: dict[tuple[Value, bool], str] = field(default_factory=dict)
    _any_launch: Bits = field(default_factory=Bits)

    # ------------------------------------------------------------ what callers use

    def text(self, value: Value) -> str:
        """``value`` as an expression."""
        return text_of(self.polynomial(value))

    def condition(self, value: Value) -> str:
        """A predicate as a condition: ``1024*ctaid.x + 4*(tid.x & 127) < n``."""
        return self._condition(value, negated=False)

    def address(self, value: Value, pointers: Mapping[str, int | None]) -> str:
        """An address: base pointer first, then ``element size * (index)``.

        Args:
            value: the address.
            pointers: names (as shown) of pointer parameters and variables, with the size of an
                element in bytes where it is known.
        """
        polynomial = self.polynomial(value)
        bases = polynomial.bases(pointers)
        if not bases:
            return text_of(polynomial)
        rest = Polynomial({m: c for m, c in polynomial.terms.items() if m not in bases})
        head = " + ".join(m[0] for m in bases)
        if not rest.terms:
            return head
        size = pointers[bases[0][0]]
        content = content_of(rest)
        if size is None or content % size:
            size = self.element_size(value, content)
        inner = divide(rest, size)
        if size == 1 or inner.is_constant or len(inner.terms) == 1:
            return sum_text(head, rest)
        return f"{head} + {size}*({text_of(inner)})"

    def element_size(self, value: Value, content: int) -> int:
        """The factor by which an index was scaled to bytes, if it divides ``content``; else 1.

        It is what a widened (32 to 64 bits) or 64-bit index is multiplied by last.
        """
        sizes = [
            factor
            for node in in_order([value])
            if (factor := scale_of(node)) is not None and content % factor == 0
        ]
        return max((s for s in sizes if s <= 16), default=1)

    def polynomial(self, value: Value) -> Polynomial:
        """``value`` as a polynomial of atoms."""
        for node in in_order([value], stop=self._polynomials):
            name = self.named.get(node)
            polynomial = self._of_node(node) if name is None else atom_of(name)
            length = sum(len(atom) for monomial in polynomial.terms for atom in monomial)
            self._polynomials[node] = polynomial if length <= _LONGEST else atom_of(TOO_LONG)
        return self._polynomials[value]

    def definition(self, value: Value) -> str:
        """What a value that has a name of its own stands for."""
        for node in in_order(value.args, stop=self._polynomials):
            self.polynomial(node)
        text = text_of(self._of_node(value))
        inner = text[1:-1]
        return inner if text[:1] == "(" and text[-1:] == ")" and balanced(inner) else text

    # ------------------------------------------------------------ nodes

    def _of_node(self, node: Value) -> Polynomial:
        args = [self._polynomials[a] for a in node.args]
        if node.op not in _LINEAR:
            args = [_held(p, a.bits) for p, a in zip(args, node.args, strict=True)]
        number = node.args[-1].unsigned if node.args else None
        match node.op:
            case "const":
                assert node.constant is not None
                return constant_of(node.constant)
            case "param":
                name, offset = node.payload
                shown = self.names.get(name, name)
                return atom_of(shown if offset == 0 else f"{shown}[{offset}]")
            case "special" | "address":
                return atom_of(str(node.payload))
            case "iter":
                return atom_of(self.loops.get(node.payload, f"i{node.payload}"))
            case "unknown":
                return atom_of(f"<{node.payload[1]}>")
            case "phi":
                return atom_of("<carried around a loop>")
            case "load":
                return self._element(node)
            case "add":
                return self._narrow(node, add(args[0], args[1]))
            case "sub":
                return self._narrow(node, add(args[0], args[1], -1))
            case "mul":
                return self._narrow(node, self._product(args[0], args[1]))
            case "shl" if number is not None:
                return self._narrow(node, scale(args[0], 1 << number))
            case "zext" | "sext":
                if node.args[0].bits == 1:
                    return self._select(node.args[0], "1", "0")
                return _as_signed(args[0]) if node.op == "sext" else args[0]
            case "trunc":
                dropped = self.bits.possible_ones(node.args[0]) >> node.bits
                index = node.args[0].op in ("add", "sub", "mul", "shl", "param")
                if not dropped or (index and node.bits >= 32):
                    return args[0]
                return atom_of(f"u{node.bits}({text_of(args[0])})")
            case "and" | "or" | "xor" if node.bits > 1:
                return self._bitwise(node, args)
            case "shru" | "shrs" if number is not None:
                return self._shift_right(node, args[0], number)
            case "divu" | "divs":
                return self._quotient(args[0], args[1])
            case "remu" | "rems":
                return atom_of(f"({operand_text(args[0])} % {operand_text(args[1])})")
            case "select":
                yes, no = (text_of(a) for a in args[1:])
                return self._select(node.args[0], yes, no)
            case "mulhu" | "mulhs":
                texts = [
                    str(a.unsigned) if node.op == "mulhu" and a.op == "const" else text_of(p)
                    for a, p in zip(node.args, args, strict=True)
                ]
                return atom_of(f"mulhi_{node.op[-1]}{node.bits}({', '.join(texts)})")
            case op if op in _FUNCTIONS:
                return atom_of(f"{_FUNCTIONS[op]}({', '.join(text_of(a) for a in args)})")
            case "shl" | "shru" | "shrs":
                sign = "<<" if node.op == "shl" else ">>"
                return atom_of(f"({operand_text(args[0])} {sign} {operand_text(args[1])})")
            case _:
                return atom_of(f"({self.condition(node)})")

    def _element(self, node: Value) -> Polynomial:
        """An element of an array: ``index[ctaid.x]``."""
        array, size = array_of(node), node.bits // 8
        if array is None:
            return atom_of(f"<{node.payload.reason}>")
        name = self.names.get(array, array)
        index = add(self._polynomials[node.args[0]], atom_of(name), -1)
        if content_of(index) % size:
            return atom_of(f"u{node.bits}({name} + {text_of(index)})")
        return atom_of(f"{name}[{text_of(divide(index, size))}]")

    def _narrow(self, node: Value, value: Polynomial) -> Polynomial:
        """Arithmetic of 8 and 16 bits wraps in practice: said unless it cannot.

        Factors of 32-bit sums are taken modulo 2^32; see also `_held`.
        """
        if node.bits == 32:
            within = {m: (c + (1 << 31)) % (1 << 32) - (1 << 31) for m, c in value.terms.items()}
            return Polynomial({m: c for m, c in within.items() if c})
        if node.bits > 16 or node.op == "sub":
            return value if node.bits > 16 else atom_of(f"u{node.bits}({text_of(value)})")
        most = [self.bits.possible_ones(a) for a in node.args]
        number = node.args[1].unsigned
        top = {"add": sum(most), "mul": most[0] * most[1]}.get(node.op, most[0] << (number or 0))
        return value if top >> node.bits == 0 else atom_of(f"u{node.bits}({text_of(value)})")

    def _select(self, condition: Value, yes: str, no: str) -> Polynomial:
        return atom_of(f"({yes} if {self.condition(condition)} else {no})")

    def _product(self, left: Polynomial, right: Polynomial) -> Polynomial:
        if left.is_constant:
            return scale(right, left.constant)
        if right.is_constant:
            return scale(left, right.constant)
        if len(left.terms) * len(right.terms) > _MOST_PRODUCTS:
            return atom_of(f"({text_of(left)})*({text_of(right)})")
        terms: dict[Monomial, int] = {}
        for m1, c1 in left.terms.items():
            for m2, c2 in right.terms.items():
                key = tuple(sorted(m1 + m2))
                terms[key] = terms.get(key, 0) + c1 * c2
        return Polynomial({m: c for m, c in terms.items() if c})

    def _bitwise(self, node: Value, args: list[Polynomial]) -> Polynomial:
        left, right = node.args
        if node.op != "and" and not (
            self.bits.possible_ones(left) & self.bits.possible_ones(right)
        ):
            return add(args[0], args[1])
        number = right.unsigned
        if node.op == "xor" and right.constant == -1:
            return add(constant_of(-1), args[0], -1)
        if node.op == "and" and number is not None:
            return self._mask(node, args[0], number)
        sign = {"and": "&", "or": "|", "xor": "^"}[node.op]
        common = math.gcd(content_of(args[0]), content_of(args[1]))
        factor = common & -common if common else 1
        texts = [operand_text(divide(a, factor)) for a in args]
        return scale(atom_of(f"({texts[0]} {sign} {texts[1]})"), factor)

    def _mask(self, node: Value, value: Polynomial, mask: int) -> Polynomial:
        """``value & mask``, written over what is masked once common factors are out.

        A mask stays that only the size of the block makes redundant: it shows what repeats.
        """
        source = node.args[0]
        if self._any_launch.possible_ones(source) & ~mask == 0:
            return value
        if _is_spread_bit(source):  # 0 or all ones: the bit times the mask
            return scale(value, -mask)
        divided = _signed_division(source, self._polynomials)
        if divided is not None:
            dividend, shift = divided
            if mask == (1 << node.bits) - (1 << shift):  # drops the remainder
                return scale(self._quotient(dividend, constant_of(1 << shift)), 1 << shift)
        content = content_of(value)
        factor = min(content & -content, mask & -mask) if content else 1
        inner = divide(value, factor)
        shown = mask // factor
        text = f"({operand_text(inner)} & {_mask_text(shown, node.bits)})"
        return scale(atom_of(text), factor)

    def _shift_right(self, node: Value, value: Polynomial, amount: int) -> Polynomial:
        divided = _signed_division(node.args[0], self._polynomials) if node.op == "shrs" else None
        if divided is not None and divided[1] == amount:
            return self._quotient(divided[0], constant_of(1 << amount))
        if _is_spread_bit(node):
            bit = node.bits - 1 - node.args[0].args[1].payload
            origin = self._polynomials[node.args[0].args[0]]
            return scale(atom_of(f"(({operand_text(origin)} >> {bit}) & 1)"), -1)
        inner = node.args[0]
        left = inner.args[1].unsigned if inner.op == "shl" else None
        if left is not None and self.bits.possible_ones(inner.args[0]) << left >> node.bits:
            return self._field(node, inner.args[0], left, amount)
        if value.terms and content_of(value) % (1 << amount) == 0:
            return divide(value, 1 << amount)
        text = operand_text(value)
        if node.op == "shru" and inner.op in ("mulhs", "shrs"):  # may be negative
            text = f"u{node.bits}({text_of(value)})"
        return atom_of(f"({text} >> {amount})")

    def _field(self, node: Value, origin: Value, left: int, right: int) -> Polynomial:
        """``x << left >> right`` that drops upper bits: a field of x, signed for ``shrs``."""
        text = operand_text(self._polynomials[origin])
        if right >= left:
            text = f"({text} >> {right - left})" if right > left else text
        else:
            text = f"({text} << {left - right})"
        mask = (1 << (node.bits - right)) - 1
        field_text = f"({text} & {_mask_text(mask, node.bits)})"
        if node.op == "shru":
            return atom_of(field_text)
        sign = (mask + 1) >> 1
        return add(atom_of(f"({field_text} ^ {sign})"), constant_of(-sign))

    def _quotient(self, dividend: Polynomial, divisor: Polynomial) -> Polynomial:
        number = divisor.constant if divisor.is_constant else 0
        if number > 1:
            if dividend.constant % number == number - 1 and not dividend.is_constant:
                exact = add(dividend, constant_of(number - 1), -1)
                if content_of(exact) % number == 0:
                    return divide(exact, number)
                return atom_of(f"ceil({operand_text(exact)}/{number})")
            if dividend.terms and content_of(dividend) % number == 0:
                return divide(dividend, number)
        return atom_of(f"({operand_text(dividend)} // {operand_text(divisor)})")

    # ------------------------------------------------------------ conditions

    def _condition(self, value: Value, negated: bool) -> str:
        known = self._conditions.get((value, negated))
        if known is None:
            known = self._condition_of(value, negated)
            known = known if len(known) <= _LONGEST else TOO_LONG
            self._conditions[value, negated] = known
        return known

    def _condition_of(self, value: Value, negated: bool) -> str:
        if value.op == "xor" and value.bits == 1 and value.args[1].unsigned == 1:
            return self._condition(value.args[0], not negated)
        if value.op in ("and", "or") and value.bits == 1:
            word = value.op if not negated else {"and": "or", "or": "and"}[value.op]
            parts = [self._condition(a, negated) for a in value.args]
            wrapped = [
                f"({p})" if a.bits == 1 and a.op in ("and", "or") and a.op != value.op else p
                for p, a in zip(parts, value.args, strict=True)
            ]
            return f" {word} ".join(dict.fromkeys(wrapped))
        if value.op in _COMPARE and value.args[0].bits > 1:
            return self._comparison(value, negated)
        if value.op == "const":
            return "always" if bool(value.payload) != negated else "never"
        if value.op == "trunc":
            text = f"{operand_text(self.polynomial(value.args[0]))} & 1"
            return f"({text}) == 0" if negated else f"({text}) != 0"
        if value.op in ("eq", "ne", "xor"):  # of two predicates
            same = (value.op == "eq") != negated
            parts = [f"({self._condition(a, False)})" for a in value.args]
            return f"{parts[0]} {'==' if same else '!='} {parts[1]}"
        text = text_of(self.polynomial(value)) if value.op != "select" else self._chosen(value)
        return f"not {text}" if negated else text

    def _chosen(self, value: Value) -> str:
        condition, yes, no = value.args
        if no.unsigned == 0:
            return f"{self.condition(condition)} and {self.condition(yes)}"
        return f"({self.condition(yes)} if {self.condition(condition)} else {self.condition(no)})"

    def _comparison(self, value: Value, negated: bool) -> str:
        sign = _COMPARE[value.op]
        left, right = (_held(self.polynomial(a), a.bits) for a in value.args)
        if negated:
            if sign in ("==", "!="):
                sign = {"==": "!=", "!=": "=="}[sign]
            else:
                left, right = right, left
                sign = {"<": "<=", "<=": "<"}[sign]
        if left.is_constant:
            left, right, sign = right, left, _FLIPPED[sign]
        if right.is_constant and sign in ("<", ">=") and right.constant == 1:
            right, sign = constant_of(0), {"<": "<=", ">=": ">"}[sign]
        return f"{text_of(left)} {sign} {text_of(right)}"


def scale_of(node: Value) -> int | None:
    """The factor by which ``node`` scales a 64-bit index to bytes; None if it does not."""
    if node.bits != 64 or len(node.args) != 2:
        return None
    number = node.args[1].unsigned
    if number is None:
        return None
    if node.op == "mul":
        return number
    if node.op == "shl":
        return 1 << number
    return None


def _is_spread_bit(node: Value) -> bool:
    """``(x << k) >> (width - 1)``, signed: one bit of x in all places."""
    return (
        node.op == "shrs"
        and node.args[1].unsigned == node.bits - 1
        and node.args[0].op == "shl"
        and node.args[0].args[1].op == "const"
    )


def _signed_division(
    value: Value, polynomials: Mapping[Value, Polynomial]
) -> tuple[Polynomial, int] | None:
    """``x + (x < 0 ? 2^k - 1 : 0)``, with which compilers divide by 2^k: (x, k)."""
    if value.op != "add":
        return None
    for dividend, correction in (value.args, value.args[::-1]):
        if correction.op != "shru" or correction.args[1].unsigned is None:
            continue
        sign = correction.args[0]
        if (
            sign.op == "shrs"
            and sign.args[0] is dividend
            and sign.args[1].unsigned == value.bits - 1
        ):
            return polynomials[dividend], value.bits - correction.args[1].unsigned
    return None


def _held(value: Polynomial, bits: int) -> Polynomial:
    """What a 32-bit register holds of a sum that surely wraps."""
    if bits != 32 or not any(m and abs(c) >= _WRAPS for m, c in value.terms.items()):
        return value
    return atom_of(f"u32({text_of(value)})")


def _as_signed(value: Polynomial) -> Polynomial:
    """A value that is widened by its sign."""
    (monomial, *others) = value.terms or {(): 0}
    text = monomial[0] if monomial else ""
    inner = text[text.find("(") + 1 : -1]
    if others or not re.match(r"u(8|16|32)\(", text) or not balanced(inner):
        return value
    return atom_of(f"s{text[1:]}")


def _mask_text(mask: int, bits: int) -> str:
    """Short masks as numbers, the upper part of a register as a negative number."""
    if mask >> (bits - 1):
        return str(mask - (1 << bits))
    return str(mask) if mask < 4096 else hex(mask)
