"""Values as sums: ``constant + Σ coefficient · term``, exact modulo 2^bits."""

from __future__ import annotations

from dataclasses import dataclass

from kanalyze.symbolic.value import Value, ValuePool, in_order


@dataclass(frozen=True, slots=True)
class Sum:
    """``constant + Σ coefficient · term``; coefficients are signed and never 0.

    Terms are in order of first use. Two values with equal sums are equal for all inputs.
    """

    bits: int
    terms: tuple[tuple[Value, int], ...]
    constant: int

    def coefficient(self, term: Value) -> int:
        """The coefficient of ``term``; 0 if it is not there."""
        return dict(self.terms).get(term, 0)

    def without(self, term: Value) -> Sum:
        """The sum without ``term``."""
        rest = tuple((t, c) for t, c in self.terms if t is not term)
        return Sum(self.bits, rest, self.constant)

    def equals(self, other: Sum) -> bool:
        """Whether both are the same sum, whatever the order of terms."""
        return self.constant == other.constant and dict(self.terms) == dict(other.terms)


def _wrap(number: int, bits: int) -> int:
    number &= (1 << bits) - 1
    return number - (1 << bits) if bits > 1 and number >> (bits - 1) else number


def combine(bits: int, parts: list[tuple[Sum, int]], constant: int = 0) -> Sum:
    """``constant + Σ factor · sum``."""
    terms: dict[Value, int] = {}
    for part, factor in parts:
        constant += part.constant * factor
        for term, coefficient in part.terms:
            terms[term] = terms.get(term, 0) + coefficient * factor
    kept = ((t, _wrap(c, bits)) for t, c in terms.items())
    return Sum(bits, tuple((t, c) for t, c in kept if c), _wrap(constant, bits))


def sum_of(value: Value, memo: dict[Value, Sum]) -> Sum:
    """``value`` as a `Sum`; ``memo`` is shared between calls."""
    for node in in_order([value], stop=memo):
        memo[node] = _sum_of_node(node, memo)
    return memo[value]


def _sum_of_node(node: Value, memo: dict[Value, Sum]) -> Sum:
    if node.op == "const":
        assert node.constant is not None
        return Sum(node.bits, (), node.constant)
    if node.op in ("add", "sub"):
        left, right = (memo[a] for a in node.args)
        return combine(node.bits, [(left, 1), (right, 1 if node.op == "add" else -1)])
    if node.op == "mul":
        left, right = (memo[a] for a in node.args)
        if not left.terms:
            return combine(node.bits, [(right, left.constant)])
        if not right.terms:
            return combine(node.bits, [(left, right.constant)])
    if node.op == "shl":
        amount = node.args[1].unsigned
        if amount is not None and amount < node.bits:
            return combine(node.bits, [(memo[node.args[0]], 1 << amount)])
    return Sum(node.bits, ((node, 1),), 0)


def value_of(pool: ValuePool, total: Sum) -> Value:
    """The value of a sum."""
    result: Value | None = None
    for term, coefficient in total.terms:
        factor = pool.const(coefficient, total.bits)
        scaled = pool.node("mul", total.bits, term, factor)
        result = scaled if result is None else pool.node("add", total.bits, result, scaled)
    constant = pool.const(total.constant, total.bits)
    return constant if result is None else pool.node("add", total.bits, result, constant)
