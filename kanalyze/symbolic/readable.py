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
from collections.abc import Container, Mapping
from dataclasses import dataclass, field

from kanalyze.symbolic.bits import Bits
from kanalyze.symbolic.value import Value, array_of, in_order

Monomial = tuple[str, ...]
_NAME = re.compile(r"[A-Za-z_$%][\w.$%]*$")
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


@dataclass(frozen=True, slots=True)
class Polynomial:
    """``Σ coefficient · Π atoms``; an atom is a text that needs no parentheses in a product."""

    terms: Mapping[Monomial, int]

    @property
    def constant(self) -> int:
        """The part without atoms."""
        return self.terms.get((), 0)

    @property
    def is_constant(self) -> bool:
        """Whether there is nothing but a number."""
        return all(m == () for m in self.terms)

    def bases(self, pointers: Container[str]) -> list[Monomial]:
        """The terms that are a pointer, as it is."""
        return [m for m, c in self.terms.items() if len(m) == 1 and c == 1 and m[0] in pointers]


def _number(value: int) -> Polynomial:
    return Polynomial({(): value} if value else {})


def _atom(text: str) -> Polynomial:
    return Polynomial({(text,): 1})


def _sum(left: Polynomial, right: Polynomial, factor: int = 1) -> Polynomial:
    terms = dict(left.terms)
    for monomial, coefficient in right.terms.items():
        total = terms.get(monomial, 0) + factor * coefficient
        if total:
            terms[monomial] = total
        else:
            terms.pop(monomial, None)
    return Polynomial(terms)


def _scaled(value: Polynomial, factor: int) -> Polynomial:
    return Polynomial({m: c * factor for m, c in value.terms.items()} if factor else {})


def _divided(value: Polynomial, divisor: int) -> Polynomial:
    return Polynomial({m: c // divisor for m, c in value.terms.items()})


def _content(value: Polynomial) -> int:
    """The greatest common divisor of the coefficients; 0 for the number 0."""
    return math.gcd(*value.terms.values()) if value.terms else 0


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
        return _print(self.polynomial(value))

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
            return _print(polynomial)
        rest = Polynomial({m: c for m, c in polynomial.terms.items() if m not in bases})
        head = " + ".join(m[0] for m in bases)
        if not rest.terms:
            return head
        size = pointers[bases[0][0]]
        content = _content(rest)
        if size is None or content % size:
            size = self.element_size(value, content)
        inner = _divided(rest, size)
        if size == 1 or inner.is_constant:
            return _join([head, *_parts(rest)])
        if len(inner.terms) == 1:
            return _join([head, *_parts(rest)])
        return f"{head} + {size}*({_print(inner)})"

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
            polynomial = self._of_node(node) if name is None else _atom(name)
            length = sum(len(atom) for monomial in polynomial.terms for atom in monomial)
            self._polynomials[node] = polynomial if length <= _LONGEST else _atom(TOO_LONG)
        return self._polynomials[value]

    def definition(self, value: Value) -> str:
        """What a value that has a name of its own stands for."""
        for node in in_order(value.args, stop=self._polynomials):
            self.polynomial(node)
        text = _print(self._of_node(value))
        inner = text[1:-1]
        return inner if text[:1] == "(" and text[-1:] == ")" and _balanced(inner) else text

    # ------------------------------------------------------------ nodes

    def _of_node(self, node: Value) -> Polynomial:
        args = [self._polynomials[a] for a in node.args]
        if node.op not in _LINEAR:
            args = [_held(p, a.bits) for p, a in zip(args, node.args, strict=True)]
        number = node.args[-1].unsigned if node.args else None
        match node.op:
            case "const":
                assert node.constant is not None
                return _number(node.constant)
            case "param":
                name, offset = node.payload
                shown = self.names.get(name, name)
                return _atom(shown if offset == 0 else f"{shown}[{offset}]")
            case "special" | "address":
                return _atom(str(node.payload))
            case "iter":
                return _atom(self.loops.get(node.payload, f"i{node.payload}"))
            case "unknown":
                return _atom(f"<{node.payload[1]}>")
            case "phi":
                return _atom("<carried around a loop>")
            case "load":
                return self._element(node)
            case "add":
                return self._narrow(node, _sum(args[0], args[1]))
            case "sub":
                return self._narrow(node, _sum(args[0], args[1], -1))
            case "mul":
                return self._narrow(node, self._product(args[0], args[1]))
            case "shl" if number is not None:
                return self._narrow(node, _scaled(args[0], 1 << number))
            case "zext" | "sext":
                if node.args[0].bits == 1:
                    return self._select(node.args[0], "1", "0")
                return _as_signed(args[0]) if node.op == "sext" else args[0]
            case "trunc":
                dropped = self.bits.possible_ones(node.args[0]) >> node.bits
                if not dropped or node.args[0].op in ("add", "sub", "mul", "shl", "param"):
                    return args[0]
                return _atom(f"u{node.bits}({_print(args[0])})")
            case "and" | "or" | "xor" if node.bits > 1:
                return self._bitwise(node, args)
            case "shru" | "shrs" if number is not None:
                return self._shift_right(node, args[0], number)
            case "divu" | "divs":
                return self._quotient(args[0], args[1])
            case "remu" | "rems":
                return _atom(f"({_operand(args[0])} % {_operand(args[1])})")
            case "select":
                yes, no = (_print(a) for a in args[1:])
                return self._select(node.args[0], yes, no)
            case "mulhu" | "mulhs":
                texts = [
                    str(a.unsigned) if node.op == "mulhu" and a.op == "const" else _print(p)
                    for a, p in zip(node.args, args, strict=True)
                ]
                return _atom(f"mulhi_{node.op[-1]}{node.bits}({', '.join(texts)})")
            case op if op in _FUNCTIONS:
                return _atom(f"{_FUNCTIONS[op]}({', '.join(_print(a) for a in args)})")
            case "shl" | "shru" | "shrs":
                sign = "<<" if node.op == "shl" else ">>"
                return _atom(f"({_operand(args[0])} {sign} {_operand(args[1])})")
            case _:
                return _atom(f"({self.condition(node)})")

    def _element(self, node: Value) -> Polynomial:
        """An element of an array: ``index[ctaid.x]``."""
        array, size = array_of(node), node.bits // 8
        if array is None:
            return _atom(f"<{node.payload.reason}>")
        name = self.names.get(array, array)
        index = _sum(self._polynomials[node.args[0]], _atom(name), -1)
        if _content(index) % size:
            return _atom(f"u{node.bits}({name} + {_print(index)})")
        return _atom(f"{name}[{_print(_divided(index, size))}]")

    def _narrow(self, node: Value, value: Polynomial) -> Polynomial:
        """Arithmetic of 8 and 16 bits wraps in practice: said unless it cannot.

        Factors of 32-bit sums are taken modulo 2^32; see also `_held`.
        """
        if node.bits == 32:
            within = {m: (c + (1 << 31)) % (1 << 32) - (1 << 31) for m, c in value.terms.items()}
            return Polynomial({m: c for m, c in within.items() if c})
        if node.bits > 16 or node.op == "sub":
            return value if node.bits > 16 else _atom(f"u{node.bits}({_print(value)})")
        most = [self.bits.possible_ones(a) for a in node.args]
        number = node.args[1].unsigned
        top = {"add": sum(most), "mul": most[0] * most[1]}.get(node.op, most[0] << (number or 0))
        return value if top >> node.bits == 0 else _atom(f"u{node.bits}({_print(value)})")

    def _select(self, condition: Value, yes: str, no: str) -> Polynomial:
        return _atom(f"({yes} if {self.condition(condition)} else {no})")

    def _product(self, left: Polynomial, right: Polynomial) -> Polynomial:
        if left.is_constant:
            return _scaled(right, left.constant)
        if right.is_constant:
            return _scaled(left, right.constant)
        if len(left.terms) * len(right.terms) > _MOST_PRODUCTS:
            return _atom(f"({_print(left)})*({_print(right)})")
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
            return _sum(args[0], args[1])
        number = right.unsigned
        if node.op == "xor" and right.constant == -1:
            return _sum(_number(-1), args[0], -1)
        if node.op == "and" and number is not None:
            return self._mask(node, args[0], number)
        sign = {"and": "&", "or": "|", "xor": "^"}[node.op]
        common = math.gcd(_content(args[0]), _content(args[1]))
        factor = common & -common if common else 1
        texts = [_operand(_divided(a, factor)) for a in args]
        return _scaled(_atom(f"({texts[0]} {sign} {texts[1]})"), factor)

    def _mask(self, node: Value, value: Polynomial, mask: int) -> Polynomial:
        """``value & mask``, written over what is masked once common factors are out.

        A mask stays that only the size of the block makes redundant: it shows what repeats.
        """
        source = node.args[0]
        if self._any_launch.possible_ones(source) & ~mask == 0:
            return value
        if _is_spread_bit(source):  # 0 or all ones: the bit times the mask
            return _scaled(value, -mask)
        divided = _signed_division(source, self._polynomials)
        if divided is not None:
            dividend, shift = divided
            if mask == (1 << node.bits) - (1 << shift):  # drops the remainder
                return _scaled(self._quotient(dividend, _number(1 << shift)), 1 << shift)
        content = _content(value)
        factor = min(content & -content, mask & -mask) if content else 1
        inner = _divided(value, factor)
        shown = mask // factor
        text = f"({_operand(inner)} & {_mask_text(shown, node.bits)})"
        return _scaled(_atom(text), factor)

    def _shift_right(self, node: Value, value: Polynomial, amount: int) -> Polynomial:
        divided = _signed_division(node.args[0], self._polynomials) if node.op == "shrs" else None
        if divided is not None and divided[1] == amount:
            return self._quotient(divided[0], _number(1 << amount))
        if _is_spread_bit(node):
            bit = node.bits - 1 - node.args[0].args[1].payload
            origin = self._polynomials[node.args[0].args[0]]
            return _scaled(_atom(f"(({_operand(origin)} >> {bit}) & 1)"), -1)
        inner = node.args[0]
        left = inner.args[1].unsigned if inner.op == "shl" else None
        if left is not None and self.bits.possible_ones(inner.args[0]) << left >> node.bits:
            return self._field(node, inner.args[0], left, amount)
        if value.terms and _content(value) % (1 << amount) == 0:
            return _divided(value, 1 << amount)
        text = _operand(value)
        if node.op == "shru" and inner.op in ("mulhs", "shrs"):  # may be negative
            text = f"u{node.bits}({_print(value)})"
        return _atom(f"({text} >> {amount})")

    def _field(self, node: Value, origin: Value, left: int, right: int) -> Polynomial:
        """``x << left >> right`` that drops upper bits: a field of x, signed for ``shrs``."""
        text = _operand(self._polynomials[origin])
        if right >= left:
            text = f"({text} >> {right - left})" if right > left else text
        else:
            text = f"({text} << {left - right})"
        mask = (1 << (node.bits - right)) - 1
        field_text = f"({text} & {_mask_text(mask, node.bits)})"
        if node.op == "shru":
            return _atom(field_text)
        sign = (mask + 1) >> 1
        return _sum(_atom(f"({field_text} ^ {sign})"), _number(-sign))

    def _quotient(self, dividend: Polynomial, divisor: Polynomial) -> Polynomial:
        number = divisor.constant if divisor.is_constant else 0
        if number > 1:
            if dividend.constant % number == number - 1 and not dividend.is_constant:
                exact = _sum(dividend, _number(number - 1), -1)
                if _content(exact) % number == 0:
                    return _divided(exact, number)
                return _atom(f"ceil({_operand(exact)}/{number})")
            if dividend.terms and _content(dividend) % number == 0:
                return _divided(dividend, number)
        return _atom(f"({_operand(dividend)} // {_operand(divisor)})")

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
            text = f"{_operand(self.polynomial(value.args[0]))} & 1"
            return f"({text}) == 0" if negated else f"({text}) != 0"
        if value.op in ("eq", "ne", "xor"):  # of two predicates
            same = (value.op == "eq") != negated
            parts = [f"({self._condition(a, False)})" for a in value.args]
            return f"{parts[0]} {'==' if same else '!='} {parts[1]}"
        text = _print(self.polynomial(value)) if value.op != "select" else self._chosen(value)
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
            right, sign = _number(0), {"<": "<=", ">=": ">"}[sign]
        return f"{_print(left)} {sign} {_print(right)}"


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


# ---------------------------------------------------------------- printing


def _held(value: Polynomial, bits: int) -> Polynomial:
    """What a 32-bit register holds of a sum that surely wraps."""
    if bits != 32 or not any(m and abs(c) >= _WRAPS for m, c in value.terms.items()):
        return value
    return _atom(f"u32({_print(value)})")


def _as_signed(value: Polynomial) -> Polynomial:
    """A value that is widened by its sign."""
    (monomial, *others) = value.terms or {(): 0}
    text = monomial[0] if monomial else ""
    inner = text[text.find("(") + 1 : -1]
    if others or not re.match(r"u(8|16|32)\(", text) or not _balanced(inner):
        return value
    return _atom(f"s{text[1:]}")


def _mask_text(mask: int, bits: int) -> str:
    """Short masks as numbers, the upper part of a register as a negative number."""
    if mask >> (bits - 1):
        return str(mask - (1 << bits))
    return str(mask) if mask < 4096 else hex(mask)


def _rank(text: str) -> int:
    """Order of terms: blocks, parameters, loops and others, threads, numbers."""
    if "tid" in text.replace("ctaid", ""):
        return 3
    if "ctaid" in text:
        return 0
    return 1 if text else 4


def _monomial(monomial: Monomial, coefficient: int) -> str:
    factors = [str(abs(coefficient))] if abs(coefficient) != 1 or not monomial else []
    return "*".join([*factors, *monomial])


def _parts(value: Polynomial) -> list[str]:
    """Signed terms; those that share a named factor are gathered: ``stride*(a + b)``."""
    left = dict(value.terms)
    parts: list[tuple[int, str]] = []
    names = {
        atom: 0 for m in left if len(m) > 1 for atom in m if _NAME.match(atom) and _rank(atom) == 1
    }
    for name in names:
        names[name] = sum(name in m for m in left)
    for name in sorted(names, key=lambda n: (-names[n], n)):
        group = {m: c for m, c in left.items() if name in m}
        if len(group) < 2:
            continue
        inner: dict[Monomial, int] = {}
        for monomial, coefficient in group.items():
            rest = list(monomial)
            rest.remove(name)
            inner[tuple(rest)] = coefficient
            del left[monomial]
        content = _content(Polynomial(inner))
        if all(c < 0 for c in inner.values()):
            content = -content
        body = _print(_divided(Polynomial(inner), content))
        parts.append((_rank(body), _signed(content, f"{name}*({body})")))
    for monomial, coefficient in left.items():
        text = _monomial(monomial, coefficient)
        rank = _rank("*".join(monomial))
        parts.append((rank, text if coefficient > 0 else f"-{text}"))
    return [text for _, text in sorted(parts, key=lambda p: p[0])]


def _signed(factor: int, text: str) -> str:
    scaled = text if abs(factor) == 1 else f"{abs(factor)}*{text}"
    return scaled if factor > 0 else f"-{scaled}"


def _join(parts: list[str]) -> str:
    text = parts[0]
    for part in parts[1:]:
        text += f" - {part[1:]}" if part.startswith("-") else f" + {part}"
    return text


def _print(value: Polynomial) -> str:
    parts = _parts(value)
    positive = [p for p in parts if not p.startswith("-")]
    if positive and parts[0].startswith("-"):  # do not begin with a minus sign if it can be helped
        parts.remove(positive[0])
        parts.insert(0, positive[0])
    return _join(parts) if parts else "0"


def _balanced(text: str) -> bool:
    """Whether no parenthesis is closed in ``text`` that is not opened in it."""
    open_ones = 0
    for character in text:
        open_ones += {"(": 1, ")": -1}.get(character, 0)
        if open_ones < 0:
            return False
    return open_ones == 0


def _operand(value: Polynomial) -> str:
    """The text of an operand of ``&``, ``>>``, ``%``…: in parentheses unless it is one atom."""
    text = _print(value)
    single = len(value.terms) == 1 and next(iter(value.terms.values())) == 1
    if value.is_constant or (single and len(next(iter(value.terms))) == 1):
        return text
    return f"({text})"
