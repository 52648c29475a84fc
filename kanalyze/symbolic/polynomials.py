"""Sums of products of texts, as a person would write them: ``4*(1024*ctaid.x + tid.x)``.

What: polynomials over named values, their arithmetic and their text. Terms stand in the order
blocks, parameters and loops, threads, numbers; those that share a named factor are gathered.
"""

from __future__ import annotations

import math
import re
from collections.abc import Container, Mapping
from dataclasses import dataclass

Monomial = tuple[str, ...]
_NAME = re.compile(r"[A-Za-z_$%][\w.$%]*$")


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


def constant_of(value: int) -> Polynomial:
    """A number alone."""
    return Polynomial({(): value} if value else {})


def atom_of(text: str) -> Polynomial:
    """One atom alone."""
    return Polynomial({(text,): 1})


def add(left: Polynomial, right: Polynomial, factor: int = 1) -> Polynomial:
    """``left + factor * right``."""
    terms = dict(left.terms)
    for monomial, coefficient in right.terms.items():
        total = terms.get(monomial, 0) + factor * coefficient
        if total:
            terms[monomial] = total
        else:
            terms.pop(monomial, None)
    return Polynomial(terms)


def scale(value: Polynomial, factor: int) -> Polynomial:
    """All coefficients times a factor."""
    return Polynomial({m: c * factor for m, c in value.terms.items()} if factor else {})


def divide(value: Polynomial, divisor: int) -> Polynomial:
    """All coefficients over a number that divides them."""
    return Polynomial({m: c // divisor for m, c in value.terms.items()})


def content_of(value: Polynomial) -> int:
    """The greatest common divisor of the coefficients; 0 for the number 0."""
    return math.gcd(*value.terms.values()) if value.terms else 0


def text_of(value: Polynomial) -> str:
    """The text; it begins without a minus sign where it can."""
    parts = _parts(value)
    positive = [p for p in parts if not p.startswith("-")]
    if positive and parts[0].startswith("-"):  # do not begin with a minus sign if it can be helped
        parts.remove(positive[0])
        parts.insert(0, positive[0])
    return _join(parts) if parts else "0"


def sum_text(head: str, value: Polynomial) -> str:
    """The text of ``head`` plus a polynomial other than 0, terms in order behind it."""
    return _join([head, *_parts(value)])


def operand_text(value: Polynomial) -> str:
    """The text of an operand of ``&``, ``>>``, ``%``…: in parentheses unless it is one atom."""
    text = text_of(value)
    single = len(value.terms) == 1 and next(iter(value.terms.values())) == 1
    if value.is_constant or (single and len(next(iter(value.terms))) == 1):
        return text
    return f"({text})"


def balanced(text: str) -> bool:
    """Whether no parenthesis is closed in ``text`` that is not opened in it."""
    open_ones = 0
    for character in text:
        open_ones += {"(": 1, ")": -1}.get(character, 0)
        if open_ones < 0:
            return False
    return open_ones == 0


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
        content = content_of(Polynomial(inner))
        if all(c < 0 for c in inner.values()):
            content = -content
        body = text_of(divide(Polynomial(inner), content))
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
