"""Numbers of 64 bits in two registers of 32 bits: taken apart, put together, recognised."""

from __future__ import annotations

from kanalyze.address.linear import Sum, combine, sum_of
from kanalyze.address.value import Pool, Value


def pair(pool: Pool, low: Value, high: Value) -> Value:
    """The 64-bit number of two registers; what `halves` took apart is whole again."""
    if high.op == "trunc" and high.args[0].op == "shru" and high.args[0].args[0].bits == 64:
        whole, amount = high.args[0].args
        if amount.unsigned == 32 and is_lower(pool, low, whole):
            return whole
    if high.op == "shrs" and high.args[0] is low and (high.args[1].unsigned or 0) >= 31:
        return pool.make("sext", 64, low)
    moved = pool.make("shl", 64, pool.make("zext", 64, high), pool.const(32, 64))
    return pool.make("add", 64, moved, pool.make("zext", 64, low))


def halves(pool: Pool, value: Value) -> tuple[Value, Value]:
    """The two registers of a 64-bit number."""
    upper = pool.make("shru", 64, value, pool.const(32, 64))
    return pool.make("trunc", 32, value), pool.make("trunc", 32, upper)


def is_lower(pool: Pool, low: Value, whole: Value) -> bool:
    """Whether ``low`` is the lower half of ``whole``, by what they are sums of."""
    return low is pool.make("trunc", 32, whole) or sum_of(low, {}).equals(lower_sum(pool, whole))


def lower_sum(pool: Pool, whole: Value) -> Sum:
    """The lower half of a 64-bit sum, term by term."""
    total = sum_of(whole, {})
    memo: dict[Value, Sum] = {}
    terms = [
        (sum_of(pool.make("trunc", 32, term), memo), coefficient)
        for term, coefficient in total.terms
    ]
    return combine(32, terms, total.constant)


def joined(pool: Pool, total: Sum) -> Sum:
    """A sum in which two halves of one number, each with its weight, are that number."""
    for high, weight in total.terms:
        if high.op != "zext" or high.args[0].op != "trunc" or total.bits != 64:
            continue
        shifted = high.args[0].args[0]
        if shifted.op != "shru" or shifted.args[1].unsigned != 32 or weight % (1 << 32):
            continue
        whole, coefficient = shifted.args[0], weight >> 32
        low = pool.make("zext", 64, pool.make("trunc", 32, whole))
        if total.coefficient(low) == coefficient:
            rest = total.without(high).without(low)
            return joined(pool, combine(64, [(rest, 1), (sum_of(whole, {}), coefficient)]))
    return total
