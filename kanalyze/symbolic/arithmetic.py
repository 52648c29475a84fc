"""What the operations of `kanalyze.symbolic.value` do to arrays of unsigned 64-bit lanes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.uint64]


def mask(bits: int) -> np.uint64:
    """Ones in the low ``bits``."""
    return np.uint64((1 << bits) - 1)


def _signed(x: Array, bits: int) -> npt.NDArray[np.int64]:
    """The lanes of ``x`` (``bits`` wide, unsigned) as signed numbers."""
    shift = np.int64(64 - bits)
    result: npt.NDArray[np.int64] = (x.astype(np.int64) << shift) >> shift
    return result


def _shift_left(x: Array, y: Array, bits: int) -> Array:
    amount = np.minimum(y, np.uint64(63))
    return np.where(y >= bits, np.uint64(0), x << amount)


def _shift_right(x: Array, y: Array, bits: int) -> Array:
    amount = np.minimum(y, np.uint64(63))
    return np.where(y >= bits, np.uint64(0), x >> amount)


def _shift_right_signed(x: Array, y: Array, bits: int) -> Array:
    amount = np.minimum(y, np.uint64(bits - 1)).astype(np.int64)
    return (_signed(x, bits) >> amount).astype(np.uint64)


def _divide(x: Array, y: Array) -> Array:
    """Unsigned division; by zero: all ones, as the hardware's 32-bit division gives."""
    safe = np.where(y == 0, np.uint64(1), y)
    return np.where(y == 0, mask(64), x // safe)


def _remainder(x: Array, y: Array) -> Array:
    safe = np.where(y == 0, np.uint64(1), y)
    return np.where(y == 0, x, x % safe)


def _divide_signed(x: Array, y: Array, bits: int) -> tuple[Array, Array]:
    """Quotient and remainder, rounded toward zero."""
    a, b = _signed(x, bits), _signed(y, bits)
    q = _divide(np.abs(a).astype(np.uint64), np.abs(b).astype(np.uint64))
    quotient: Array = np.where((a < 0) != (b < 0), (~q) + np.uint64(1), q).astype(np.uint64)
    return quotient, x - quotient * y


def _multiply_high(x: Array, y: Array, bits: int, signed: bool) -> Array:
    if bits <= 32:
        if signed:
            return ((_signed(x, bits) * _signed(y, bits)) >> np.int64(bits)).astype(np.uint64)
        return (x * y) >> np.uint64(bits)
    low = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    x0, x1, y0, y1 = x & low, x >> half, y & low, y >> half
    middle = x1 * y0 + ((x0 * y0) >> half)
    cross = x0 * y1 + (middle & low)
    high: Array = x1 * y1 + (middle >> half) + (cross >> half)
    if signed:
        high = high - np.where(_signed(x, 64) < 0, y, np.uint64(0))
        high = high - np.where(_signed(y, 64) < 0, x, np.uint64(0))
    return high


# op -> function of (operands, width of the operands); results are masked by the caller.
_OPERATIONS: dict[str, Callable[[list[Array], int], Any]] = {
    "add": lambda a, w: a[0] + a[1],
    "sub": lambda a, w: a[0] - a[1],
    "mul": lambda a, w: a[0] * a[1],
    "mulhu": lambda a, w: _multiply_high(a[0], a[1], w, signed=False),
    "mulhs": lambda a, w: _multiply_high(a[0], a[1], w, signed=True),
    "and": lambda a, w: a[0] & a[1],
    "or": lambda a, w: a[0] | a[1],
    "xor": lambda a, w: a[0] ^ a[1],
    "shl": lambda a, w: _shift_left(a[0], a[1], w),
    "shru": lambda a, w: _shift_right(a[0], a[1], w),
    "shrs": lambda a, w: _shift_right_signed(a[0], a[1], w),
    "divu": lambda a, w: _divide(a[0], a[1]),
    "remu": lambda a, w: _remainder(a[0], a[1]),
    "divs": lambda a, w: _divide_signed(a[0], a[1], w)[0],
    "rems": lambda a, w: _divide_signed(a[0], a[1], w)[1],
    "minu": lambda a, w: np.minimum(a[0], a[1]),
    "maxu": lambda a, w: np.maximum(a[0], a[1]),
    "mins": lambda a, w: np.where(_signed(a[0], w) <= _signed(a[1], w), a[0], a[1]),
    "maxs": lambda a, w: np.where(_signed(a[0], w) >= _signed(a[1], w), a[0], a[1]),
    "eq": lambda a, w: a[0] == a[1],
    "ne": lambda a, w: a[0] != a[1],
    "ltu": lambda a, w: a[0] < a[1],
    "leu": lambda a, w: a[0] <= a[1],
    "lts": lambda a, w: _signed(a[0], w) < _signed(a[1], w),
    "les": lambda a, w: _signed(a[0], w) <= _signed(a[1], w),
    "zext": lambda a, w: a[0],
    "trunc": lambda a, w: a[0],
    "sext": lambda a, w: _signed(a[0], w).astype(np.uint64),
    "select": lambda a, w: np.where(a[0] != 0, a[1], a[2]),
    "popc": lambda a, w: sum((a[0] >> np.uint64(i)) & np.uint64(1) for i in range(w)),
}


def operate(op: str, bits: int, width: int, operands: list[Array]) -> Array:
    """One operation on operands of ``width`` bits; the result is masked to ``bits``."""
    result = np.asarray(_OPERATIONS[op](operands, width)).astype(np.uint64)
    return result & mask(bits)
