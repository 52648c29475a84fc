"""Values over a whole launch: sums of arrays that each vary along few axes.

The axes of a launch are the block, the thread in the block and the iteration of each loop. A value
that is a sum of something per block and something per thread is kept as two arrays, not as their
product, so that a grid of 65,536 blocks costs about what a handful costs. Arrays have one dimension
an axis, of length 1 where they do not vary. Numbers are int64, exact: congruent to the register's
value modulo 2^bits; where an operation needs the register's own range (division, comparison,
widening) it is enforced.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.int64]
Axes = tuple[int, ...]  # indices of the axes along which an array varies

LARGEST = 1 << 25  # elements of one array


class TooLargeError(Exception):
    """An array over these axes would be too large."""


def axes_of(array: Array) -> Axes:
    """The axes along which ``array`` can vary."""
    return tuple(i for i, n in enumerate(array.shape) if n > 1)


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """``Σ parts``; at most one part for each set of axes, the one without axes is a number."""

    parts: dict[Axes, Array]
    low: int
    high: int

    @property
    def constant(self) -> int | None:
        """The number, if it is the same everywhere."""
        return self.low if self.low == self.high else None


def _range(parts: dict[Axes, Array]) -> tuple[int, int]:
    return (
        sum(int(p.min()) for p in parts.values()),
        sum(int(p.max()) for p in parts.values()),
    )


def of_arrays(arrays: list[Array]) -> Parts:
    """The sum of ``arrays``."""
    parts: dict[Axes, Array] = {}
    for array in arrays:
        axes = axes_of(array)
        parts[axes] = parts[axes] + array if axes in parts else array
    return Parts(parts, *_range(parts))


def number(value: int, dimensions: int) -> Parts:
    """A constant."""
    return Parts({(): np.full((1,) * dimensions, value, np.int64)}, value, value)


def add(left: Parts, right: Parts) -> Parts:
    """The sum."""
    return of_arrays([*left.parts.values(), *right.parts.values()])


def scale(value: Parts, factor: int) -> Parts:
    """The product with a number."""
    parts = {axes: part * np.int64(factor) for axes, part in value.parts.items()}
    bounds = sorted((value.low * factor, value.high * factor))
    return Parts(parts, bounds[0], bounds[1])


def dense(value: Parts) -> Array:
    """The value as one array.

    Raises:
        TooLargeError: it would have more than `LARGEST` elements.
    """
    shapes = [p.shape for p in value.parts.values()]
    shape = np.broadcast_shapes(*shapes)
    if int(np.prod([int(n) for n in shape])) > LARGEST:
        raise TooLargeError
    result: Array = reduce(np.add, value.parts.values())
    return result


def combined(*values: Parts) -> list[Array]:
    """Each value as one array; they broadcast with each other.

    Raises:
        TooLargeError: the result of an operation on them would be too large.
    """
    arrays = [dense(value) for value in values]
    shape = np.broadcast_shapes(*(a.shape for a in arrays))
    if int(np.prod([int(n) for n in shape])) > LARGEST:
        raise TooLargeError
    return arrays


def multiply(left: Parts, right: Parts) -> Parts:
    """The product."""
    if right.constant is not None:
        return scale(left, right.constant)
    if left.constant is not None:
        return scale(right, left.constant)
    x, y = combined(left, right)
    return of_arrays([x * y])


def in_range(value: Parts, bits: int, signed: bool) -> Parts:
    """The congruent number that a register of this width and signedness holds."""
    least = -(1 << (bits - 1)) if signed else 0
    most = least + (1 << bits) - 1
    if least <= value.low and value.high <= most:
        return value
    turns = (value.low - least) >> bits
    if (value.high - least) >> bits == turns:
        shifted = number(-(turns << bits), next(iter(value.parts.values())).ndim)
        return add(value, shifted)
    if bits < 64:
        for part in value.parts.values():  # each place of one part in a range of its own
            low = value.low - int(part.min()) + part - least
            high = value.high - int(part.max()) + part - least
            turned = low >> bits
            if np.array_equal(turned, high >> bits):
                return of_arrays([*value.parts.values(), -(turned << bits)])
    array = dense(value)
    if bits == 64:
        return of_arrays([array])  # int64 wraps as a 64-bit register does
    wrapped = array & np.int64((1 << bits) - 1)
    if signed:
        wrapped = np.where(wrapped >> (bits - 1) != 0, wrapped - np.int64(1 << bits), wrapped)
    return of_arrays([wrapped])


def divide(value: Parts, divisor: int) -> tuple[Parts, Parts] | None:
    """Quotient and remainder (floor) by a positive number, part by part if nothing carries.

    Every part is written as ``q · divisor + r`` with ``0 <= r < divisor``; where the greatest
    remainders together stay below the divisor, quotients and remainders add up. None if they do
    not.
    """
    quotients: list[Array] = []
    remainders: list[Array] = []
    total = 0
    for part in value.parts.values():
        quotient: Array = np.floor_divide(part, np.int64(divisor))
        remainder: Array = part - quotient * np.int64(divisor)
        quotients.append(quotient)
        remainders.append(remainder)
        total += int(remainder.max())
    if total < divisor:
        return of_arrays(quotients), of_arrays(remainders)
    return None


def floor_divide(value: Parts, divisor: int) -> Parts:
    """``floor(value / divisor)``, divisor positive."""
    split = divide(value, divisor)
    if split is not None:
        return split[0]
    return of_arrays([np.floor_divide(dense(value), np.int64(divisor))])


def remainder(value: Parts, divisor: int) -> Parts:
    """``value - divisor · floor(value / divisor)``, divisor positive."""
    split = divide(value, divisor)
    if split is not None:
        return split[1]
    return of_arrays([np.mod(dense(value), np.int64(divisor))])


def _used_bits(array: Array) -> int:
    return int(np.bitwise_or.reduce(array, axis=None))


def _settled(value: Parts) -> Parts:
    """The same with parts that begin at 0; what they began at is in the constant."""
    constant = 0
    arrays: list[Array] = []
    for axes, part in value.parts.items():
        least = int(part.min())
        constant += least
        if axes:
            arrays.append(part - np.int64(least))
    return add(of_arrays(arrays), number(constant, next(iter(value.parts.values())).ndim))


def bitwise(op: str, left: Parts, right: Parts) -> Parts:
    """``and``, ``or``, ``xor``; part by part where the parts use different bits."""
    if op == "and" and right.constant is not None and right.constant >= 0:
        return _mask(left, right.constant)
    if left.low >= 0 and right.low >= 0:
        left, right = _settled(left), _settled(right)
        places = list({**left.parts, **right.parts})
        pairs = [(left.parts.get(axes), right.parts.get(axes)) for axes in places]
        parts = [part for pair in pairs for part in pair if part is not None]
        used = [
            reduce(lambda x, y: x | y, (_used_bits(p) for p in pair if p is not None))
            for pair in pairs
        ]
        nonnegative = all(int(part.min()) >= 0 for part in parts)
        if nonnegative and sum(used) == reduce(lambda x, y: x | y, used, 0):
            return of_arrays([_bits(op, a, b) for a, b in pairs])
    x, y = combined(left, right)
    return of_arrays([_bits(op, x, y)])


def _bits(op: str, left: Array | None, right: Array | None) -> Array:
    """The operation on the bits of both; None is 0 everywhere."""
    if left is None or right is None:
        there = right if left is None else left
        assert there is not None
        return there if op != "and" else np.zeros((1,) * there.ndim, np.int64)
    function = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[op]
    result: Array = function(left, right)
    return result


def _mask(value: Parts, mask: int) -> Parts:
    """``value & mask`` for a mask that is not negative: a run of ones is a division's remainder."""
    if mask == 0:
        return scale(value, 0)
    low = mask & -mask
    run = mask // low + 1
    if run & (run - 1) == 0:  # the ones are contiguous
        return scale(floor_divide(remainder(value, low * run), low), low)
    split = divide(value, 1 << mask.bit_length())
    inner = _settled(split[1] if split is not None else value)
    used = [_used_bits(p) for p in inner.parts.values()]
    if all(int(p.min()) >= 0 for p in inner.parts.values()) and sum(used) == reduce(
        lambda x, y: x | y, used, 0
    ):
        return of_arrays([p & np.int64(mask) for p in inner.parts.values()])
    return of_arrays([dense(value) & np.int64(mask)])
