"""What blocks and iterations are told apart by, and how often each combination of it occurs.

What: features are numbers over the axes of a launch but the thread: addresses modulo a period, and
codes of comparisons. Where one rises evenly along a long axis, its numbers are not made: the axis
is cut where a comparison changes, and between two cuts the remainders repeat.
Formula: the remainder of ``s·i`` by ``p`` repeats after ``p / gcd(s, p)`` places; a comparison of
``l + c + s·i`` with 0 changes at ``i = -(l + c) / s``, for each level ``l`` of the threads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kanalyze.symbolic.parts import Array, Axes, Parts, Steps, axes_of, dense

Lanes = npt.NDArray[np.bool_]
_MOST_PLACES = 1 << 14


@dataclass(frozen=True, slots=True, eq=False)
class Remainders:
    """Steps along an axis modulo a number."""

    steps: Steps
    period: int

    @property
    def repeat(self) -> int:
        """After so many places the numbers come again."""
        return self.period // math.gcd(self.steps.step, self.period)

    def cuts(self) -> Array:
        """Places at which the numbers change for good."""
        return np.zeros(0, np.int64)

    def at(self, places: Array) -> Array:
        """The numbers at some places of the axis."""
        result: Array = np.mod(places * np.int64(self.steps.step % self.period), self.period)
        return result


@dataclass(frozen=True, slots=True, eq=False)
class Codes:
    """The code of a comparison in which ``constant`` and steps are added to the threads' levels.

    A code says for which levels the comparison holds: of kind "negative" for those below it, of
    kind "zero" for the one at that place (-1: for none).
    """

    steps: Steps
    constant: int
    levels: Array
    kind: str
    repeat: int = 1

    def cuts(self) -> Array:
        """Places from which on the code is another."""
        step, sums = self.steps.step, self.levels + np.int64(self.constant)
        if self.kind == "zero":
            places = -sums[sums % step == 0] // step
            return np.concatenate((places, places + 1))
        up: Array = -(sums // step) if step > 0 else sums // -step + 1
        return up

    def at(self, places: Array) -> Array:
        """The codes at some places of the axis."""
        return code(self.kind, self.levels, places * np.int64(self.steps.step) + self.constant)


Feature = Array | Remainders | Codes


def code(kind: str, levels: Array, elsewhere: Array) -> Array:
    """For which levels of the threads ``level + elsewhere`` is negative, or zero; see `Codes`."""
    place: Array = np.searchsorted(levels, -elsewhere, side="left").astype(np.int64)
    if kind == "negative":  # lanes whose level is below -elsewhere
        return place
    hit = levels[np.minimum(place, len(levels) - 1)] == -elsewhere
    return np.where(hit, place, -1)


def remainders(term: Array | Steps, period: int) -> Feature:
    """A term modulo a number."""
    if isinstance(term, Steps):
        if term.step % period == 0:
            return np.zeros((1,) * len(term.shape), np.int64)
        return Remainders(term, period)
    result: Array = np.mod(term, period)
    return result


def codes(kind: str, levels: Array, elsewhere: Parts) -> Feature:
    """The feature that decides a comparison of threads' levels and what is added elsewhere."""
    varying = [term for axes, term in elsewhere.terms.items() if axes]
    if len(varying) == 1 and isinstance(varying[0], Steps):
        return Codes(varying[0], elsewhere.low - varying[0].low, levels, kind)
    return code(kind, levels, dense(elsewhere))


def axes_along(feature: Feature) -> Axes:
    """The axes along which a feature can vary."""
    return (feature.steps.axis,) if not isinstance(feature, np.ndarray) else axes_of(feature)


def made(feature: Feature) -> Array:
    """A feature as an array."""
    if isinstance(feature, np.ndarray):
        return feature
    return feature.at(np.arange(feature.steps.length)).reshape(feature.steps.shape)


def cuts(features: Sequence[Remainders | Codes]) -> Array:
    """Where the stretches begin in which the features repeat, and behind it the axis's end."""
    length = features[0].steps.length
    places = np.concatenate([[0, length], *(feature.cuts() for feature in features)])
    return np.unique(np.clip(places, 0, length)).astype(np.int64)


def representatives(
    features: Sequence[Remainders | Codes],
) -> tuple[Array, Array, int] | None:
    """Places of an axis that stand for all: the places, how many each stands for, how far apart.

    A place stands for those that many ``repeat`` behind it. None: there are too many.
    """
    repeat = math.lcm(*(feature.repeat for feature in features))
    edges = cuts(features)
    lengths = np.diff(edges)
    numbers = np.minimum(lengths, repeat)
    if int(numbers.sum()) > _MOST_PLACES:
        return None
    begins, stretches = np.repeat(edges[:-1], numbers), np.repeat(edges[1:], numbers)
    within = np.arange(len(begins)) - np.repeat(np.cumsum(numbers) - numbers, numbers)
    places = begins + within
    return places, (stretches - 1 - places) // repeat + 1, repeat


def along(features: Sequence[Feature], axis: int) -> list[Remainders | Codes] | None:
    """The features along one axis, if none of them is an array and none varies along others."""
    varying = [feature for feature in features if axis in axes_along(feature)]
    rising = [feature for feature in varying if not isinstance(feature, np.ndarray)]
    return rising if rising and len(rising) == len(varying) else None


def distinct_rows(columns: Sequence[Array]) -> tuple[Array, Array]:
    """Distinct rows of a table given by its columns, with how often each occurs."""
    if bool((columns[0][1:] > columns[0][:-1]).all()):
        return np.stack(columns, axis=1), np.ones(len(columns[0]), np.int64)
    lows = [int(c.min()) for c in columns]
    sizes = [int(c.max()) - low + 1 for c, low in zip(columns, lows, strict=True)]
    if math.prod(sizes) >= 1 << 62:
        rows, counts = np.unique(np.stack(columns, axis=1), axis=0, return_counts=True)
        return rows, counts
    code = np.zeros(len(columns[0]), np.int64)
    for column, low, size in zip(columns, lows, sizes, strict=True):
        code = code * size + (column - low)
    if math.prod(sizes) <= max(1 << 16, 4 * len(code)):
        tally = np.bincount(code)
        kinds = np.flatnonzero(tally)
        counts = tally[kinds]
    else:
        kinds, counts = np.unique(code, return_counts=True)
    result = []
    for low, size in zip(reversed(lows), reversed(sizes), strict=True):
        kinds, place = np.divmod(kinds, size)
        result.append(place + low)
    return np.stack(result[::-1], axis=1), counts


def alike(rows: Array, weights: Array) -> tuple[Array, Array]:
    """The distinct rows of a table, with the sums of their weights."""
    distinct, places = np.unique(rows, axis=0, return_inverse=True)
    total = np.zeros(len(distinct), np.int64)
    np.add.at(total, places.reshape(-1), weights)
    return distinct, total


@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """A condition, with the feature that decides each comparison."""

    kind: str
    operands: tuple[Tree, ...] = ()
    feature: int = -1
    rank: npt.NDArray[np.int64] | None = None  # place of each thread's value among the levels

    def lanes(self, codes: Array) -> Lanes:
        """Which threads take part, for each row of feature values: (rows, threads)."""
        match self.kind:
            case "true" | "false":
                return np.full((len(codes), 1), self.kind == "true")
            case "not":
                return ~self.operands[0].lanes(codes)
            case "and" | "or":
                left, right = (o.lanes(codes) for o in self.operands)
                return left & right if self.kind == "and" else left | right
        assert self.rank is not None
        decided = codes[:, self.feature, None]
        if self.kind == "negative":
            below: Lanes = self.rank[None, :] < decided
            return below
        equal: Lanes = self.rank[None, :] == decided
        return equal
