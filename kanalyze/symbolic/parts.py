"""Values over a whole launch: sums of arrays that each vary along few axes.

The axes of a launch are the block, the thread in the block and the iteration of each loop. A value
that is a sum of something per block and something per thread is kept as two arrays, not as their
product, so that a grid of 65,536 blocks costs about what a handful costs. Arrays have one dimension
an axis, of length 1 where they do not vary; what rises evenly along a long axis is not made into an
array (`Steps`) unless an operation needs it. Numbers are int64, exact: congruent to the register's
value modulo 2^bits; where an operation needs the register's own range (division, comparison,
widening) it is enforced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.int64]
Axes = tuple[int, ...]  # indices of the axes along which an array varies

LARGEST = 1 << 25  # elements of one array
LONG = 1 << 12  # places of an axis from which steps along it are not made into an array


class TooLargeError(Exception):
    """An array over these axes would be too large."""


def axes_of(array: Array) -> Axes:
    """The axes along which ``array`` can vary."""
    return tuple(i for i, n in enumerate(array.shape) if n > 1)


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """``step * i`` at place i of one axis, and the same along all others; ``step`` is not 0."""

    shape: tuple[int, ...]
    axis: int
    step: int

    @property
    def length(self) -> int:
        """Number of places."""
        return self.shape[self.axis]

    @property
    def low(self) -> int:
        """The least number."""
        return min(0, self.step * (self.length - 1))

    @property
    def high(self) -> int:
        """The greatest number."""
        return max(0, self.step * (self.length - 1))

    def array(self) -> Array:
        """The numbers themselves.

        Raises:
            TooLargeError: there are more than `LARGEST`.
        """
        if self.length > LARGEST:
            raise TooLargeError
        wrapped = (self.step + (1 << 63)) % (1 << 64) - (1 << 63)
        return (np.arange(self.length) * np.int64(wrapped)).reshape(self.shape)


Term = Array | Steps


def array_of(term: Term) -> Array:
    """A term as an array."""
    return term.array() if isinstance(term, Steps) else term


@dataclass(frozen=True, eq=False)
class Parts:
    """``Σ terms``; at most one for each set of axes, the one without axes is a number."""

    terms: dict[Axes, Term]
    low: int
    high: int

    @property
    def constant(self) -> int | None:
        """The number, if it is the same everywhere."""
        return self.low if self.low == self.high else None

    @property
    def dimensions(self) -> int:
        """Number of axes."""
        return len(next(iter(self.terms.values())).shape)

    @cached_property
    def parts(self) -> dict[Axes, Array]:
        """The terms as arrays."""
        return {axes: array_of(term) for axes, term in self.terms.items()}


def lowest(term: Term) -> int:
    """The least number of a term."""
    return term.low if isinstance(term, Steps) else int(term.min())


def highest(term: Term) -> int:
    """The greatest number of a term."""
    return term.high if isinstance(term, Steps) else int(term.max())


def of_arrays(arrays: Sequence[Term]) -> Parts:
    """The sum of ``arrays``."""
    terms: dict[Axes, Term] = {}
    for array in arrays:
        axes = (array.axis,) if isinstance(array, Steps) else axes_of(array)
        before = terms.pop(axes, None)
        added = array if before is None else _sum(before, array)
        if added is not None:
            terms[axes] = added
    if arrays and not terms:
        return number(0, len(arrays[0].shape))
    low, high = (sum(bound(t) for t in terms.values()) for bound in (lowest, highest))
    return Parts(terms, low, high)


def _sum(left: Term, right: Term) -> Term | None:
    """The sum of two terms over the same axes; None if it is 0 and one of steps."""
    if isinstance(left, Steps) and isinstance(right, Steps):
        step = left.step + right.step
        return Steps(left.shape, left.axis, step) if step else None
    return array_of(left) + array_of(right)


def steps(axis: int, dimensions: int, length: int) -> Parts:
    """0, 1, 2 … along an axis."""
    shape = tuple(length if i == axis else 1 for i in range(dimensions))
    if length > LONG:
        return of_arrays([Steps(shape, axis, 1)])
    return of_arrays([np.arange(length).reshape(shape)])


def number(value: int, dimensions: int) -> Parts:
    """A constant."""
    return Parts({(): np.full((1,) * dimensions, value, np.int64)}, value, value)


def add(left: Parts, right: Parts) -> Parts:
    """The sum."""
    return of_arrays([*left.terms.values(), *right.terms.values()])


def scale(value: Parts, factor: int) -> Parts:
    """The product with a number."""
    if factor == 0:
        return number(0, value.dimensions)
    terms: dict[Axes, Term] = {
        axes: Steps(term.shape, term.axis, term.step * factor)
        if isinstance(term, Steps)
        else term * np.int64(factor)
        for axes, term in value.terms.items()
    }
    bounds = sorted((value.low * factor, value.high * factor))
    return Parts(terms, bounds[0], bounds[1])


def distinct_numbers(numbers: Array) -> Array:
    """The distinct numbers of an array, ascending.

    By sorting: ``np.unique`` hashes them, 28 times slower on evenly spaced addresses (NumPy 2.3).
    """
    ordered = np.sort(numbers, axis=None)
    kept: Array = ordered[np.diff(ordered, prepend=ordered[:1] - 1) != 0]
    return kept


def dense(value: Parts) -> Array:
    """The value as one array.

    Raises:
        TooLargeError: it would have more than `LARGEST` elements.
    """
    shapes = [term.shape for term in value.terms.values()]
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
    """The congruent number that a register of this width and signedness holds.

    Of 64 bits it is the signed one, also where an unsigned one is wanted: that fits in int64.
    """
    minimum = -(1 << (bits - 1)) if signed else 0
    maximum = minimum + (1 << bits) - 1
    if minimum <= value.low and value.high <= maximum:
        return value
    wraps = (value.low - minimum) >> bits
    if bits < 63 and (value.high - minimum) >> bits == wraps:
        shifted = number(-(wraps << bits), value.dimensions)
        return add(value, shifted)
    if bits < 63:
        for part in value.parts.values():  # each place of one part in a range of its own
            low = value.low - int(part.min()) + part - minimum
            high = value.high - int(part.max()) + part - minimum
            wrapped = low >> bits
            if np.array_equal(wrapped, high >> bits):
                return of_arrays([*value.parts.values(), -(wrapped << bits)])
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
    quotients: list[Term] = [np.zeros((1,) * value.dimensions, np.int64)]
    remainders: list[Term] = [quotients[0]]
    total = 0
    for term in value.terms.values():
        if isinstance(term, Steps) and term.step % divisor == 0:
            quotients.append(Steps(term.shape, term.axis, term.step // divisor))
        elif isinstance(term, Steps) and term.low == 0 and term.high < divisor:
            remainders.append(term)
            total += term.high
        else:
            part = array_of(term)
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


def _used_bits(term: Term) -> int:
    """The bits that a number of the term can have; the term is not negative anywhere."""
    if isinstance(term, Steps):
        return (1 << term.high.bit_length()) - (term.step & -term.step)
    return int(np.bitwise_or.reduce(term, axis=None))


def _settled(value: Parts) -> Parts:
    """The same with parts that begin at 0; what they began at is in the constant."""
    constant = 0
    arrays: list[Term] = []
    for axes, term in value.terms.items():
        minimum = lowest(term)
        constant += minimum
        if axes:
            arrays.append(term if minimum == 0 else array_of(term) - np.int64(minimum))
    return add(of_arrays(arrays), number(constant, value.dimensions))


def bitwise(op: str, left: Parts, right: Parts) -> Parts:
    """``and``, ``or``, ``xor``; part by part where the parts use different bits."""
    if op == "and" and right.constant is not None and right.constant >= 0:
        return _mask(left, right.constant)
    if left.low >= 0 and right.low >= 0:
        left, right = _settled(left), _settled(right)
        places = list({**left.terms, **right.terms})
        pairs = [(left.terms.get(axes), right.terms.get(axes)) for axes in places]
        parts = [part for pair in pairs for part in pair if part is not None]
        used = [
            reduce(lambda x, y: x | y, (_used_bits(p) for p in pair if p is not None))
            for pair in pairs
        ]
        nonnegative = all(lowest(part) >= 0 for part in parts)
        if nonnegative and sum(used) == reduce(lambda x, y: x | y, used, 0):
            return of_arrays([_bits(op, a, b) for a, b in pairs])
    x, y = combined(left, right)
    return of_arrays([_bits(op, x, y)])


def _bits(op: str, left: Term | None, right: Term | None) -> Term:
    """The operation on the bits of both; None is 0 everywhere."""
    if left is None or right is None:
        there = right if left is None else left
        assert there is not None
        return there if op != "and" else np.zeros((1,) * len(there.shape), np.int64)
    function = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[op]
    result: Array = function(array_of(left), array_of(right))
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
    if all(lowest(term) >= 0 for term in inner.terms.values()):
        used = [_used_bits(term) for term in inner.terms.values()]
        if sum(used) == reduce(lambda x, y: x | y, used, 0):
            return of_arrays([_masked(term, mask) for term in inner.terms.values()])
    return of_arrays([dense(value) & np.int64(mask)])


def _masked(term: Term, mask: int) -> Term:
    if isinstance(term, Steps) and not _used_bits(term) & ~mask:
        return term
    return array_of(term) & np.int64(mask)
