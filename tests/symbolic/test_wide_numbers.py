"""64-bit numbers that are negative, or 2**63 and more, over a launch, against Python's integers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from kanalyze.symbolic import parts
from kanalyze.symbolic.grid import Grid, UnknownValueError, spread
from kanalyze.symbolic.value import Value, ValuePool

THREADS = 64
MOD = 1 << 64
STARTS = [0, -2, -40, -(1 << 63), (1 << 63) - 40, -(1 << 32)]


def numbers(pool: ValuePool, start: int) -> tuple[Value, list[int]]:
    """``start + tid.x``, which wraps, and the same as unsigned numbers."""
    lane = pool.node("zext", 64, pool.special("tid.x"))
    value = pool.node("add", 64, lane, pool.const(start, 64))
    return value, [(start + thread) % MOD for thread in range(THREADS)]


def grid() -> Grid:
    return Grid((1, 1, 1), (THREADS, 1, 1), {}, {}, {})


def signed(number: int) -> int:
    return number - MOD if number >> 63 else number


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("down", [1, 8, 31, 32, 62])
def test_shifts_to_the_right(start: int, down: int) -> None:
    pool = ValuePool()
    value, expected = numbers(pool, start)
    for op, shifted in (
        ("shru", [n >> down for n in expected]),
        ("shrs", [(signed(n) >> down) % MOD for n in expected]),
    ):
        made = grid().value(pool.node(op, 64, value, pool.const(down, 32)))
        found = np.broadcast_to(parts.dense(made), (1, THREADS)).reshape(-1)
        assert [int(n) % MOD for n in found] == shifted


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("limit", [0, 7, (1 << 63) - 20, -20, -(1 << 63)])
@pytest.mark.parametrize(
    ("op", "holds"),
    [
        ("ltu", lambda a, b: a < b),
        ("leu", lambda a, b: a <= b),
    ],
)
def test_unsigned_comparisons(
    start: int, limit: int, op: str, holds: Callable[[int, int], bool]
) -> None:
    pool = ValuePool()
    value, expected = numbers(pool, start)
    made = grid().condition(pool.node(op, 1, value, pool.const(limit, 64)))
    found = np.broadcast_to(spread(made, 2), (1, THREADS)).reshape(-1)
    assert list(found.astype(bool)) == [holds(n, limit % MOD) for n in expected]


def test_what_int64_cannot_hold_is_unknown() -> None:
    pool = ValuePool()
    value, _ = numbers(pool, -40)
    with pytest.raises(UnknownValueError):
        grid().value(pool.node("divu", 64, value, pool.const(10, 64)))
