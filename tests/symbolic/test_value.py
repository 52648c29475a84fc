"""Values are simplified as they are made, and bits that cannot be 1 are known: against Python."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from kanalyze.symbolic.bits import Bits
from kanalyze.symbolic.value import Value, ValuePool, evaluate

LANES = np.arange(1024, dtype=np.uint64)


def numbers(value: Value) -> list[int]:
    """A value by ``tid.x``, of 1,024 threads in block 3."""
    (found,) = evaluate([value], {"tid.x": LANES, "ctaid.x": 3}, {}, {}, {})
    return [int(number) for number in np.broadcast_to(found, LANES.shape)]


# ---------------------------------------------------------------- counters that go round


@pytest.mark.parametrize("length", [2, 3, 7])
@pytest.mark.parametrize("off", [-2, -1, 0, 1, 2])
@pytest.mark.parametrize("op", ["lts", "ltu", "eq"])
@pytest.mark.parametrize("inverted", [False, True])
def test_the_next_turn_of_a_counter(length: int, off: int, op: str, inverted: bool) -> None:
    """``0 if y % n + 1 > bound else y % n + 1`` is (y + 1) % n for the bound n - 1 alone."""
    pool = ValuePool()
    turn = pool.node("remu", 32, pool.special("tid.x"), pool.const(length, 32))
    later, zero = pool.node("add", 32, turn, pool.const(1, 32)), pool.const(0, 32)
    bound = length + off - (op != "eq")
    limit = pool.const(bound, 32)
    ends = pool.node(op, 1, *((later, limit) if op == "eq" else (limit, later)))
    if inverted:
        value = pool.node("select", 32, pool.node("xor", 1, ends, pool.const(1, 1)), later, zero)
    else:
        value = pool.node("select", 32, ends, zero, later)
    assert (value.op == "remu") == (off == 0)

    def after(y: int) -> int:
        up = y % length + 1
        passed = up == bound % 2**32 if op == "eq" else up > bound
        if op == "ltu":
            passed = up > bound % 2**32
        return 0 if passed else up

    assert numbers(value) == [after(y) for y in range(1024)]


# ---------------------------------------------------------------- bits that can be 1

T, C = "tid.x", "ctaid.x"
MASKS: dict[str, tuple[Callable[[ValuePool], Value], int]] = {
    "threads": (lambda p: p.special(T), 0x3FF),
    "four times a thread": (lambda p: shifted(p, T, 2), 0xFFC),
    "a sum of multiples of 4 and 8": (
        lambda p: p.node("add", 32, shifted(p, T, 2), shifted(p, C, 3)), 0xFFFF_FFFC,
    ),
    "a sum of two multiples of 16": (
        lambda p: p.node("add", 32, shifted(p, T, 4), p.node("mul", 32, p.special(T),
                                                             p.const(48, 32))), 0x1_FFF0,
    ),
    "a sum without common bits": (
        lambda p: p.node("add", 32, shifted(p, T, 10), p.special(T)), 0xF_FFFF,
    ),
    "a product of multiples of 4 and 6": (
        lambda p: p.node("mul", 32, shifted(p, T, 2), p.const(6, 32)), 0x7FF8,
    ),
    "a parameter that 16 divides": (lambda p: p.param("n", 0, 32), 0xFFFF_FFF0),
}  # fmt: skip


def shifted(pool: ValuePool, name: str, by: int) -> Value:
    return pool.node("shl", 32, pool.special(name), pool.const(by, 32))


@pytest.mark.parametrize("case", MASKS)
def test_bits_that_can_be_one(case: str) -> None:
    make, mask = MASKS[case]
    value = make(ValuePool())
    assert hex(Bits({"n": 16}).possible_ones(value)) == hex(mask)
    if value.op != "param":
        assert not any(number & ~mask for number in numbers(value))
