"""Numbers of 64 bits in two registers of 32 bits: taken apart, put together, recognised."""

from __future__ import annotations

from kanalyze.symbolic.linear import Sum, combine, sum_of, value_of
from kanalyze.symbolic.value import Value, ValuePool


def pair(pool: ValuePool, low: Value, high: Value) -> Value:
    """The 64-bit number of two registers; what `halves` took apart is whole again."""
    if high.op == "trunc" and high.args[0].op == "shru" and high.args[0].args[0].bits == 64:
        whole, amount = high.args[0].args
        if amount.unsigned == 32 and is_lower(pool, low, whole):
            return whole
    if high.op == "shrs" and high.args[0] is low and (high.args[1].unsigned or 0) >= 31:
        return pool.node("sext", 64, low)
    if low.op == high.op == "select" and low.args[0] is high.args[0]:
        sides = [pair(pool, *both) for both in zip(low.args[1:], high.args[1:], strict=True)]
        return pool.node("select", 64, low.args[0], *sides)
    if (scaled := _scaled(pool, low, high)) is not None:
        return scaled
    moved = pool.node("shl", 64, pool.node("zext", 64, high), pool.const(32, 64))
    return pool.node("add", 64, moved, pool.node("zext", 64, low))


def _scaled(pool: ValuePool, low: Value, high: Value) -> Value | None:
    """``a << s`` of 64 bits, from what is kept of the lower register and what is shifted out."""
    amount = low.args[1].unsigned if low.op == "shl" else None
    if amount is None or not 0 < amount < 32:
        return None
    base = low.args[0]
    shifted = high.args[0] if high.op == "trunc" else high
    if shifted.op not in ("shrs", "shru") or shifted.args[1].unsigned != 32 - amount:
        return None
    inner = shifted.args[0]
    if inner.bits == 64 and is_lower(pool, base, inner):
        whole = inner
    elif inner is base:
        whole = pool.node("sext" if shifted.op == "shrs" else "zext", 64, base)
    else:
        return None
    return pool.node("shl", 64, whole, pool.const(amount, 64))


def gathered(pool: ValuePool, whole: Value) -> Value:
    """A 64-bit sum in which lower and upper registers of one number, added apart, are together."""
    total = sum_of(whole, pool.sums)
    for high, weight in total.terms:
        if weight != 1 << 32 or high.op != "zext" or high.args[0].bits != 32:
            continue
        for low, once in total.terms:
            if once != 1 or low.op != "zext" or low.args[0].bits != 32:
                continue
            number = pair(pool, low.args[0], high.args[0])
            if number.op != "add" or number.args[0].op != "shl":  # recognised
                rest = total.without(high).without(low)
                return gathered(
                    pool, value_of(pool, combine(64, [(rest, 1), (sum_of(number, pool.sums), 1)]))
                )
    return whole


def halves(pool: ValuePool, value: Value) -> tuple[Value, Value]:
    """The two registers of a 64-bit number."""
    upper = pool.node("shru", 64, value, pool.const(32, 64))
    return pool.node("trunc", 32, value), pool.node("trunc", 32, upper)


def is_lower(pool: ValuePool, low: Value, whole: Value) -> bool:
    """Whether ``low`` is the lower half of ``whole``, by what they are sums of."""
    if low.op == whole.op == "select" and low.args[0] is whole.args[0]:
        sides = zip(low.args[1:], whole.args[1:], strict=True)
        return all(is_lower(pool, *side) for side in sides)
    if low is pool.node("trunc", 32, whole) or sum_of(low, pool.sums).equals(
        lower_sum(pool, whole)
    ):
        return True
    return _chosen_lower(pool, sum_of(low, pool.sums), sum_of(whole, pool.sums))


def _chosen_lower(pool: ValuePool, low: Sum, whole: Sum) -> bool:
    """The same for sums of which one term is chosen by a predicate: ``select(p, a, b)``."""
    chosen = [(t, c) for t, c in whole.terms if t.op == "select"]
    lower = [(t, c) for t, c in low.terms if t.op == "select"]
    if len(chosen) != 1 or len(lower) != 1 or (chosen[0][1] - lower[0][1]) % (1 << 32):
        return False
    (number, _), (half, _) = chosen[0], lower[0]
    rest = value_of(pool, whole.without(number))
    return low.without(half).equals(lower_sum(pool, rest)) and is_lower(pool, half, number)


def lower_sum(pool: ValuePool, whole: Value) -> Sum:
    """The lower half of a 64-bit sum, term by term."""
    total = sum_of(whole, pool.sums)
    terms = [
        (sum_of(pool.node("trunc", 32, term), pool.sums), coefficient)
        for term, coefficient in total.terms
    ]
    return combine(32, terms, total.constant)


def joined(pool: ValuePool, total: Sum) -> Sum:
    """A sum in which two halves of one number, each with its weight, are that number."""
    for high, weight in total.terms:
        if high.op != "zext" or high.args[0].op != "trunc" or total.bits != 64:
            continue
        shifted = high.args[0].args[0]
        if shifted.op != "shru" or shifted.args[1].unsigned != 32 or weight % (1 << 32):
            continue
        whole, coefficient = shifted.args[0], weight >> 32
        low = pool.node("zext", 64, pool.node("trunc", 32, whole))
        if total.coefficient(low) == coefficient:
            rest = total.without(high).without(low)
            return joined(pool, combine(64, [(rest, 1), (sum_of(whole, pool.sums), coefficient)]))
    return total
