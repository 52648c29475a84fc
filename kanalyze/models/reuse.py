"""Sectors that several blocks of a launch touch, and how many each block touches.

What: for some accesses together, how many sectors are touched by exactly one block, by two …; and
how many different sectors blocks touch.
Formula: blocks of which the same lanes take part in the same iterations, and whose addresses differ
by one number for all accesses, a multiple of 32 B, are one class: they touch the same pattern of
sectors, moved. The patterns of all blocks are added up: evenly moved ones as evenly repeated runs
(`kanalyze.models.boxes`). Where addresses do not part into blocks and threads, or blocks are few,
every block's sectors are listed.
Source: none needed, it is counting. Limits: launches with very many different blocks, or patterns
that lie irregularly, are not counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from kanalyze.models import boxes
from kanalyze.models.block_accesses import BlockAccess
from kanalyze.models.boxes import SectorRun
from kanalyze.models.coalescing import SECTOR
from kanalyze.models.features import (
    Codes,
    Feature,
    Remainders,
    axes_along,
    made,
    remainders,
    representatives,
)
from kanalyze.models.footprint import Footprint
from kanalyze.models.warps import MixedError
from kanalyze.symbolic.parts import Array, Steps, Term, TooLargeError, array_of, distinct_numbers

_MOST_CLASSES = 1 << 9
_MOST_RUNS = 1 << 16


@dataclass(frozen=True, slots=True)
class Reuse:
    """Sectors by the number of blocks that touch them, and blocks by the sectors that they touch.

    Blocks that touch none are left out.
    """

    by_blocks: dict[int, int]
    by_sectors: dict[int, int]


@dataclass(frozen=True, slots=True)
class Lattice:
    """Places ``first + Σ i·step`` with 0 <= i < times for each (step, times), inner first."""

    first: int
    steps: tuple[tuple[int, int], ...]
    weight: int


def reuse(accesses: Sequence[BlockAccess]) -> Reuse:
    """How blocks share the sectors of some accesses.

    Raises:
        TooLargeError: there are too many different blocks, or sectors lie too irregularly.
    """
    try:
        return _by_classes(accesses)
    except (MixedError, TooLargeError):
        return _one_by_one(accesses)


# ---------------------------------------------------------------- by classes of blocks


class _Kind(NamedTuple):
    """Alike blocks: one of them, how many there are, how far from it the others' sectors lie."""

    block: int
    number: int
    moved: list[Lattice]


def _by_classes(accesses: Sequence[BlockAccess]) -> Reuse:
    runs: list[SectorRun] = []
    weights: list[int] = []
    by_sectors: dict[int, int] = {}
    for kind in _kinds(accesses):
        pattern = _pattern(accesses, kind.block)
        if not pattern:
            continue
        size = sum(run.times * run.length for run in pattern)
        by_sectors[size] = by_sectors.get(size, 0) + kind.number
        for lattice in kind.moved:
            for run in pattern:
                _add(runs, weights, run, lattice)
    return Reuse(boxes.covered(runs, weights) if runs else {}, by_sectors)


def _kinds(accesses: Sequence[BlockAccess]) -> list[_Kind]:
    """The blocks by kind."""
    blocks = accesses[0].blocks
    alone = [access.moved() for access in accesses]
    moved = next((term for term in alone if term is not None), None)
    features: list[Feature] = [] if moved is None else [remainders(moved, SECTOR)]
    for access, term in zip(accesses, alone, strict=True):
        other = _difference(term, moved)
        features += [] if other is None else [other]
        features += access.features()
    features = [feature for feature in features if axes_along(feature)]
    rising = [feature for feature in features if not isinstance(feature, np.ndarray)]
    if len(rising) == len(features) and (moved is None or isinstance(moved, Steps)):
        kinds = _rising_kinds(blocks, 0 if moved is None else moved.step, rising)
        if kinds is not None:
            return kinds
    arrays = [np.broadcast_to(made(feature).reshape(-1), blocks) for feature in features]
    return _listed_kinds(np.broadcast_to(_places(moved), blocks), arrays)


def _difference(term: Term | None, moved: Term | None) -> Array | None:
    """How an access's addresses move from block to block besides; None: as the first one's."""
    if term is moved or (
        isinstance(term, Steps) and isinstance(moved, Steps) and term.step == moved.step
    ):
        return None
    difference = _places(term) - _places(moved)
    return None if bool((difference == difference[0]).all()) else difference


def _places(term: Term | None) -> Array:
    """A term over blocks as an array with that axis alone."""
    return np.zeros(1, np.int64) if term is None else array_of(term).reshape(-1)


def _rising_kinds(
    blocks: int, step: int, features: Sequence[Remainders | Codes]
) -> list[_Kind] | None:
    """Kinds of blocks whose addresses rise evenly; None: there are too many."""
    places, numbers, repeat = np.array([0]), np.array([blocks]), 1
    if features:
        classes = representatives(features)
        if classes is None or len(classes[0]) > _MOST_CLASSES:
            return None
        places, numbers, repeat = classes
    stride = step * repeat // SECTOR
    kinds = []
    for block, number in zip(places.tolist(), numbers.tolist(), strict=True):
        if stride and number > 1:
            first = min(0, stride * (number - 1))
            lattice = Lattice(first, ((abs(stride), number),), 1)
        else:
            lattice = Lattice(0, (), number)
        kinds.append(_Kind(block, number, [lattice]))
    return kinds


def _listed_kinds(place: Array, signatures: Sequence[Array]) -> list[_Kind]:
    """Kinds of blocks by what they agree in."""
    code = np.zeros(len(place), np.int64)
    for signature in signatures:
        levels, places = np.unique(signature, return_inverse=True)
        code = code * len(levels) + places.reshape(-1)
        if int(code.max()) > 1 << 40:
            code = np.unique(code, return_inverse=True)[1].reshape(-1)
    _, representatives, inverse = np.unique(code, return_index=True, return_inverse=True)
    if len(representatives) > _MOST_CLASSES:
        raise TooLargeError
    kinds = []
    for kind, block in enumerate(representatives.tolist()):
        there = place[inverse.reshape(-1) == kind]
        moved, amounts = np.unique((there - place[block]) // SECTOR, return_counts=True)
        kinds.append(_Kind(block, len(there), lattices(moved, amounts)))
    return kinds


def _pattern(accesses: Sequence[BlockAccess], block: int) -> list[SectorRun]:
    """The sectors that one block touches, as runs that do not overlap."""
    spans = [access.span(block) for access in accesses]
    footprint = Footprint.over(min(low for low, _ in spans), max(high for _, high in spans))
    for access in accesses:
        access.mark(block, footprint)
    return _joined(footprint.disjoint())


def _joined(runs: list[SectorRun]) -> list[SectorRun]:
    """Single runs of one length that lie evenly, as one that is repeated."""
    single: dict[int, list[int]] = {}
    for run in runs:
        if run.times == 1:
            single.setdefault(run.length, []).append(run.first)
    result = [run for run in runs if run.times > 1]
    for length, firsts in single.items():
        places = np.array(sorted(firsts), np.int64)
        for lattice in lattices(places, np.ones(len(places), np.int64)):
            step, times = lattice.steps[0] if lattice.steps else (0, 1)
            result += [SectorRun(first, step, times, length) for first in _spread(lattice, 1)]
    return result


# ---------------------------------------------------------------- evenly spaced places


def lattices(places: Array, weights: Array) -> list[Lattice]:
    """Places in rising order, each with a weight, as lattices; those alike in weight together."""
    pieces = []
    for weight in np.unique(weights).tolist():
        pieces += [
            Lattice(first, steps, weight) for first, steps in _lattices(places[weights == weight])
        ]
    if len(pieces) > _MOST_RUNS:
        raise TooLargeError
    return pieces


_Steps = tuple[tuple[int, int], ...]


def _lattices(places: Array) -> list[tuple[int, _Steps]]:
    if len(places) < 2:
        return [(int(place), ()) for place in places]
    gaps = np.diff(places)
    steps, counts = np.unique(gaps, return_counts=True)
    step = int(steps[np.argmax(counts)])
    begins = np.concatenate(([0], np.flatnonzero(gaps != step) + 1))
    lengths = np.diff(begins, append=len(places))
    if int(counts.max()) == 1 and len(places) > 2:
        return [(int(place), ()) for place in places]
    pieces: list[tuple[int, _Steps]] = []
    for length in np.unique(lengths).tolist():
        inner = ((step, length),) if length > 1 else ()
        firsts = places[begins[lengths == length]]
        if not inner and len(firsts) == len(places):
            pieces += [(int(first), ()) for first in firsts]
        else:
            pieces += [(first, (*inner, *outer)) for first, outer in _lattices(firsts)]
    return pieces


def _spread(lattice: Lattice, kept: int) -> list[int]:
    """The first places of a lattice, all steps but the first ``kept`` spread out."""
    firsts = np.array([lattice.first], np.int64)
    for step, times in lattice.steps[kept:]:
        firsts = (firsts[:, None] + step * np.arange(times)).reshape(-1)
    places: list[int] = firsts.tolist()
    return places


def _add(runs: list[SectorRun], weights: list[int], run: SectorRun, lattice: Lattice) -> None:
    """Add a run at each place of a lattice."""
    steps = sorted((s, n) for s, n in ((run.step, run.times), *lattice.steps) if n > 1)
    merged = _merged(run.first + lattice.first, steps, run.length)
    runs += merged
    weights += [lattice.weight] * len(merged)
    if len(runs) > _MOST_RUNS:
        raise TooLargeError


def _merged(first: int, steps: list[tuple[int, int]], length: int) -> list[SectorRun]:
    """A run at each place ``first + Σ i·step`` (steps rising) as few runs with the same sum."""
    if not steps:
        return [SectorRun(first, 0, 1, length)]
    (step, times), rest = steps[0], steps[1:]
    if step <= length:  # they touch or overlap: whole turns lie one behind the other
        whole, left = divmod(length, step)
        if whole + (left > 0) > times:
            starts = [first + i * step for i in range(times)]
            return [run for start in starts for run in _merged(start, rest, length)]
        runs = []
        for i in range(whole):
            runs += _merged(first + i * step, rest, times * step)
        return runs + (_merged(first + whole * step, steps, left) if left else [])
    if rest and rest[0][0] == step * times:
        return _merged(first, [(step, times * rest[0][1]), *rest[1:]], length)
    (step, times), *rest = sorted(steps, key=lambda pair: -pair[1])
    firsts = [first]
    for other, number in rest:
        firsts = [place + i * other for place in firsts for i in range(number)]
        if len(firsts) > _MOST_RUNS:
            raise TooLargeError
    return [SectorRun(place, step, times, length) for place in firsts]


# ---------------------------------------------------------------- one by one


def _one_by_one(accesses: Sequence[BlockAccess]) -> Reuse:
    """Every lane of every block looked at."""
    blocks, places = (np.concatenate(each) for each in zip(*_listed(accesses), strict=True))
    if not len(places):
        return Reuse({}, {})
    sectors = np.floor_divide(places, SECTOR) - int(places.min()) // SECTOR
    extent = int(sectors.max()) + 1
    if extent * accesses[0].blocks >= 1 << 62:
        raise TooLargeError
    touched = distinct_numbers(blocks * extent + sectors)
    return Reuse(_histogram(touched % extent), _histogram(touched // extent))


def _listed(accesses: Sequence[BlockAccess]) -> Iterator[tuple[Array, Array]]:
    yield np.zeros(0, np.int64), np.zeros(0, np.int64)
    for access in accesses:
        yield from access.listed()


def _histogram(values: Array) -> dict[int, int]:
    """How many different values occur how often."""
    often, numbers = np.unique(np.unique(values, return_counts=True)[1], return_counts=True)
    return dict(zip(often.tolist(), numbers.tolist(), strict=True))
