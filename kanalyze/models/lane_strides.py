"""How far apart neighbouring lanes of a warp are, also where that depends on arguments.

What: the address of lane i + 1 less that of lane i, in bytes, as a sum of arguments and a number.
Formula: each lane's address less lane 0's is evaluated with all arguments at a base value and with
one of them moved by one: the differences are the coefficients; the most frequent difference between
neighbours is the stride, if at least half of the lanes are so far apart.
Source: PTX ISA, "Special Registers" (lanes of a warp are consecutive in ``tid.x``, then ``tid.y``).
Limits: block 0 and the first iteration of every loop; addresses that are not linear in an argument
(found by a second base value) have no stride.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from kanalyze.models.warp_patterns import WARP
from kanalyze.symbolic.parts import Array
from kanalyze.symbolic.value import Value, evaluate, in_order

_BASES = (1 << 12, 3 << 12)  # of arguments: products with indices stay within 32 bits


@dataclass(frozen=True, slots=True)
class AffineForm:
    """``number + Σ coefficient · argument`` in bytes; arguments by their names in the PTX."""

    number: int
    terms: Mapping[str, int] = field(default_factory=dict)

    def evaluate(self, values: Mapping[str, int]) -> int | None:
        """The number for arguments of these values; None where one is missing."""
        if not self.terms.keys() <= values.keys():
            return None
        return self.number + sum(c * values[name] for name, c in self.terms.items())

    def substitute(self, values: Mapping[str, int]) -> AffineForm:
        """The sum with these arguments put in."""
        number = self.number + sum(c * values[n] for n, c in self.terms.items() if n in values)
        return AffineForm(number, {n: c for n, c in self.terms.items() if n not in values})

    def key(self) -> tuple[int, tuple[tuple[str, int], ...]]:
        """Equal for equal sums."""
        return self.number, tuple(sorted(self.terms.items()))


@dataclass(frozen=True, slots=True)
class LaneOffsets:
    """Each lane's address less lane 0's."""

    forms: tuple[AffineForm, ...]

    @property
    def stride(self) -> AffineForm | None:
        """Between most neighbours; None where there is no such distance."""
        steps = [_less(b, a) for a, b in pairwise(self.forms)]
        if not steps:
            return None
        counted = Counter(step.key() for step in steps)
        key, times = counted.most_common(1)[0]
        if 2 * times < len(steps):
            return None
        return AffineForm(key[0], dict(key[1]))

    def offsets(self, values: Mapping[str, int]) -> tuple[int, ...] | None:
        """The offsets for arguments of these values; None where one is missing."""
        offsets = [form.evaluate(values) for form in self.forms]
        known = [n for n in offsets if n is not None]
        return tuple(known) if len(known) == len(offsets) else None


@dataclass(frozen=True, slots=True)
class LanePlace:
    """A thread of a block (by its number), blocks by axis ("x") and iterations by loop; else 0."""

    thread: int = 0
    blocks: Mapping[str, int] = field(default_factory=dict)
    iterations: Mapping[int, int] = field(default_factory=dict)


def of_lanes(address: Value, threads: tuple[int, int, int]) -> LaneOffsets | None:
    """Where the lanes of a block's first warp point; None where that is not known, or not linear.

    Args:
        address: without phi leaves.
        threads: extents of the block.
    """
    lanes = range(min(WARP, threads[0] * threads[1] * threads[2]))
    rows = differences([address], threads, [LanePlace(lane) for lane in lanes])
    return LaneOffsets(tuple(row[0] for row in rows)) if rows is not None else None


def differences(
    addresses: Iterable[Value],
    threads: tuple[int, int, int],
    places: Sequence[LanePlace] = (LanePlace(),),
) -> list[list[AffineForm]] | None:
    """The addresses at some places, less the first address at the first place.

    Rows are places, columns addresses. None as in `of_lanes`.
    """
    rows = _sums(list(addresses), threads, places)
    if rows is None:
        return None
    start = rows[0][0]
    return [[_less(form, start) for form in row] for row in rows]


def start(address: Value, threads: tuple[int, int, int]) -> AffineForm | None:
    """The address of the launch's first thread, pointers among its terms; None as in `of_lanes`."""
    rows = _sums([address], threads, [LanePlace()])
    return rows[0][0] if rows is not None else None


def _sums(
    values: list[Value], threads: tuple[int, int, int], places: Sequence[LanePlace]
) -> list[list[AffineForm]] | None:
    names = list(dict.fromkeys(n.payload for n in in_order(values) if n.op == "param"))
    # At each base all parameters, then each of them one greater: a row each.
    count = len(names) + 1
    given: dict[tuple[str, int], Any] = {}
    for index, name in enumerate(names):
        given[name] = np.repeat(np.array(_BASES) * (2 * index + 1), count)[:, None]
        given[name][index + 1 :: count] += 1
    table = _evaluated(values, threads, places, given, count * len(_BASES))
    if table is None:
        return None
    taken = []
    for row in range(0, len(table), count):
        begin = table[row]
        slopes = {name: table[row + 1 + index] - begin for index, name in enumerate(names)}
        parts = [slope * given[name][row, 0] for name, slope in slopes.items()]
        taken.append((begin - sum(parts, np.zeros_like(begin)), slopes))
    (numbers, slopes), (other_numbers, other_slopes) = taken
    if not np.array_equal(numbers, other_numbers) or any(
        not np.array_equal(slopes[name], other_slopes[name]) for name in names
    ):
        return None
    return [
        [_form(numbers[place, column], slopes, place, column) for column in range(len(values))]
        for place in range(len(places))
    ]


def _form(number: int, slopes: Mapping[tuple[str, int], Array], lane: int, at: int) -> AffineForm:
    terms: dict[str, int] = {}
    for (name, offset), slope in slopes.items():
        if slope[lane, at]:
            terms[name if offset == 0 else f"{name}[{offset}]"] = int(slope[lane, at])
    return AffineForm(int(number), terms)


def _evaluated(
    values: list[Value],
    threads: tuple[int, int, int],
    places: Sequence[LanePlace],
    given: Mapping[tuple[str, int], Any],
    rows: int,
) -> Array | None:
    """The addresses, (rows, places, addresses), the parameters (rows, 1)."""
    numbers = np.asarray([place.thread for place in places])
    specials: dict[str, object] = {
        "tid.x": numbers % threads[0],
        "tid.y": numbers // threads[0] % threads[1],
        "tid.z": numbers // (threads[0] * threads[1]),
        "laneid": numbers % WARP,
    }
    for axis, extent in zip("xyz", threads, strict=True):
        specials[f"ntid.{axis}"] = extent
        specials[f"ctaid.{axis}"] = np.asarray([p.blocks.get(axis, 0) for p in places])
    iterations: dict[int, object] = {}
    variables: dict[str, int] = {}
    for leaf in in_order(values):
        if leaf.op == "special":
            specials.setdefault(leaf.payload, 0)
        elif leaf.op == "iter":
            own = [place.iterations.get(leaf.payload, 0) for place in places]
            iterations[leaf.payload] = np.asarray(own)
        elif leaf.op == "address":
            variables[leaf.payload] = 0
    try:
        columns = evaluate(values, specials, given, iterations, variables)
    except KeyError:
        return None
    shape = rows, len(places)
    table = np.stack([np.broadcast_to(column, shape) for column in columns], axis=-1)
    signed: Array = table.astype(np.int64)
    return signed


def _less(left: AffineForm, right: AffineForm) -> AffineForm:
    terms = dict(left.terms)
    for name, coefficient in right.terms.items():
        terms[name] = terms.get(name, 0) - coefficient
    return AffineForm(left.number - right.number, {n: c for n, c in terms.items() if c})
