"""What each block of a launch touches of global memory, one group of accesses at a time.

What: over blocks and iterations a set of sectors: a pattern of 128-byte lines, and the line that it
is moved by.
Formula: where blocks and threads part, only the first address within a line and the outcome of each
comparison tell patterns apart, so each is made once; elsewhere every lane is looked at. Boxes of
bulk copies (TMA) that begin alike within a line, and are cut off alike at the array's edge, are one
pattern.
Source: none needed; no name is looked at.
Limits: up to a number of lanes, and of patterns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from kanalyze.counting.bulk_copies import CopyOperands, placed, touched
from kanalyze.counting.ptx_launch import KernelLaunch
from kanalyze.models.block_slices import cut, cut_condition
from kanalyze.models.coalescing import SECTOR
from kanalyze.models.features import Feature, Tree, made
from kanalyze.models.warps import ANYWHERE, InstructionLaunch, MixedError, Occurrences
from kanalyze.symbolic import parts
from kanalyze.symbolic.accesses import AccessValue, is_bulk
from kanalyze.symbolic.grid import Condition, spread
from kanalyze.symbolic.parts import Array, Parts, TooLargeError, array_of, distinct_numbers
from kanalyze.symbolic.specials import BLOCK, THREAD

LINE = 128
READ, WRITE, ATOMIC = 0, 1, 2
MOST_ENTRIES = 1 << 26  # blocks × columns
_KINDS = {"store": WRITE, "bulk_store": WRITE, "atomic": ATOMIC, "reduction": ATOMIC}
_PAST_L1 = frozenset(["cg", "cv", "volatile", "relaxed", "acquire", "mmio", "L1::no_allocate"])
_MOST_LANES = 1 << 26
_MOST_PATTERNS = 1 << 15
_PACK = 1 << 40

Patterned = tuple[Array, Array]
"""Numbers of patterns (-1: nothing), and bases in lines, over blocks and iterations."""


def past_l1(access: AccessValue) -> bool:
    """Whether L1 does not keep what an access reads: ``.cg``, TMA, atomics, strong loads."""
    plain = access.row.kind in ("load", "async_copy")
    return not plain or bool(_PAST_L1 & set(access.instruction.parts))


@dataclass(frozen=True, slots=True, eq=False)
class AccessAxes:
    """An access on its axes; ``lanes`` is None where blocks and threads do not part.

    ``copies`` is what a bulk copy (TMA) is told, for which ``address`` says nothing.
    """

    index: int
    access: AccessValue
    address: Parts
    condition: Condition
    axes: Occurrences
    loops: tuple[int, ...]
    lanes: Array | None
    elsewhere: tuple[Array, ...]
    copies: CopyOperands | None = None

    @property
    def counter(self) -> InstructionLaunch:
        """What tells blocks and iterations apart."""
        return InstructionLaunch(ANYWHERE, self.address, self.condition, self.axes)

    @property
    def constant(self) -> int:
        """What the address is where all axes but the thread's are at their first place."""
        return sum(int(array.reshape(-1)[0]) for array in self.elsewhere)

    @property
    def kind(self) -> int:
        """READ, WRITE or ATOMIC."""
        return _KINDS.get(self.access.row.kind, READ)

    @property
    def cached(self) -> bool:
        """Whether L1 keeps what is read."""
        return self.kind == READ and not past_l1(self.access)

    @property
    def extent(self) -> tuple[int, ...]:
        """Blocks, and iterations of each loop.

        Raises:
            TooLargeError: there are too many of them together.
        """
        extent = tuple(n for axis, n in enumerate(self.axes.dimensions) if axis != THREAD)
        if math.prod(extent) > MOST_ENTRIES:
            raise TooLargeError
        return extent


@dataclass
class Patterns:
    """Sets of lines, each once; ``masks`` has four bits for each line: the sectors."""

    numbers: dict[bytes, int] = field(default_factory=dict)
    lines: list[Array] = field(default_factory=list)
    masks: list[Array] = field(default_factory=list)

    def number(self, sectors: Array) -> int:
        """The number of a set of sectors, -1 for the empty one."""
        if not len(sectors):
            return -1
        sectors = distinct_numbers(sectors)
        key = sectors.tobytes()
        if key not in self.numbers:
            lines, begins = np.unique(sectors >> 2, return_index=True)
            self.numbers[key] = len(self.lines)
            self.lines.append(lines)
            self.masks.append(np.bitwise_or.reduceat(np.int64(1) << (sectors & 3), begins))
        return self.numbers[key]


def place(launched: KernelLaunch, index: int, access: AccessValue, blocks: int) -> AccessAxes:
    """An access in the first ``blocks`` blocks of a launch.

    Raises:
        UnknownValueError, TooLargeError: where it is, or when, is not known, or too much.
    """
    loops = launched.loops(access)
    if is_bulk(access.instruction, access.row):
        copies, condition, axes = launched.copies(access)
        numbers = tuple(_cut(number, axes, blocks) for number in copies.numbers)
        condition, axes = _cut_when(condition, axes, blocks)
        copies = replace(copies, numbers=numbers)
        return AccessAxes(index, access, numbers[0], condition, axes, loops, None, (), copies)
    address, condition, axes = launched.place(access)
    address = _cut(address, axes, blocks)
    condition, axes = _cut_when(condition, axes, blocks)
    lanes, elsewhere = InstructionLaunch(ANYWHERE, address, condition, axes).split(address)
    arrays = () if lanes is None else tuple(array_of(term) for term in elsewhere)
    return AccessAxes(index, access, address, condition, axes, loops, lanes, arrays)


def _cut(value: Parts, axes: Occurrences, blocks: int) -> Parts:
    """A value over the first blocks."""
    if blocks == axes.dimensions[BLOCK]:
        return value
    return parts.of_arrays([cut(term, slice(0, blocks)) for term in value.terms.values()])


def _cut_when(when: Condition, axes: Occurrences, blocks: int) -> tuple[Condition, Occurrences]:
    if blocks == axes.dimensions[BLOCK]:
        return when, axes
    some = cut_condition(when, slice(0, blocks))
    return some, Occurrences((blocks, *axes.dimensions[1:]))


def move_alike(one: AccessAxes, other: AccessAxes) -> bool:
    """The addresses of two accesses differ by the same number in all blocks and iterations."""
    if one.lanes is None or other.lanes is None or one.loops != other.loops:
        return False
    return len(one.elsewhere) == len(other.elsewhere) and all(
        a.shape == b.shape and np.array_equal(a - a.reshape(-1)[0], b - b.reshape(-1)[0])
        for a, b in zip(one.elsewhere, other.elsewhere, strict=True)
    )


def touched_by(group: Sequence[AccessAxes], patterns: Patterns) -> list[Patterned]:
    """What a group of accesses touches (`move_alike`): of bulk copies, of each that threads make.

    Args:
        group: one access or more.
        patterns: takes the patterns that are new.

    Raises:
        TooLargeError: there are too many different ones.
    """
    copies = group[0].copies
    try:
        if copies is not None:
            return by_copies(group[0], copies, patterns)
        return [by_classes(group, patterns)]
    except MixedError:
        if copies is not None:
            raise TooLargeError from None
        return [by_lanes(group, patterns)]


# ---------------------------------------------------------------- by classes


def by_classes(group: Sequence[AccessAxes], patterns: Patterns) -> Patterned:
    """One pattern for each class of blocks and iterations.

    Raises:
        MixedError: blocks and threads do not part, or the classes are too many.
    """
    first = group[0]
    if first.lanes is None:
        raise MixedError
    features: list[Feature] = []
    trees = [place.counter.classify(place.condition, features) for place in group]
    base = np.zeros(first.extent, np.int64)
    for array in first.elsewhere:
        base = base + np.squeeze(array, THREAD)
    arrays = [np.squeeze(made(feature), THREAD) for feature in features]
    _, one, class_of = np.unique(_codes(base, arrays), return_index=True, return_inverse=True)
    if len(one) * len(group) > _MOST_PATTERNS:
        raise MixedError
    rows = np.zeros((len(one), len(arrays)), np.int64)
    for place, array in enumerate(arrays):
        rows[:, place] = np.broadcast_to(array, base.shape).reshape(-1)[one]
    within = np.mod(base.reshape(-1)[one], LINE)
    numbers = np.array(
        [
            patterns.number(_sectors(group, trees, rows[k : k + 1], int(within[k])))
            for k in range(len(one))
        ],
        np.int64,
    )
    return numbers[class_of].reshape(base.shape), np.floor_divide(base, LINE)


def _codes(base: Array, features: Sequence[Array]) -> Array:
    """A number for each block and iteration, the same for those that touch alike."""
    code, radix = np.mod(base, LINE), LINE
    for array in features:
        levels, places = np.unique(array, return_inverse=True)
        if len(levels) > 1:
            code = code + radix * places.reshape(array.shape)
            radix *= len(levels)
        if radix > _PACK:
            packed, places = np.unique(code, return_inverse=True)
            code, radix = places.reshape(code.shape), len(packed)
    return code


def _sectors(group: Sequence[AccessAxes], trees: Sequence[Tree], row: Array, within: int) -> Array:
    """The sectors that a group touches where the first base lies ``within`` bytes into a line."""
    sectors = []
    for place, tree in zip(group, trees, strict=True):
        assert place.lanes is not None
        active = np.broadcast_to(tree.lanes(row), (1, len(place.lanes)))[0]
        where = place.lanes[active] + (within + place.constant - group[0].constant)
        sectors += [(where + byte) // SECTOR for byte in _ends(place.access)]
    return np.concatenate(sectors)


# ---------------------------------------------------------------- bulk copies


def by_copies(place: AccessAxes, copies: CopyOperands, patterns: Patterns) -> list[Patterned]:
    """The same of a bulk copy, for each of the different ones that threads of a block make.

    Raises:
        MixedError, TooLargeError: blocks and threads do not part, or there are too many.
    """
    by_thread, elsewhere = [], []
    for number in copies.numbers:
        lanes, others = place.counter.split(number)
        if lanes is None:
            raise TooLargeError
        by_thread.append(lanes)
        sums = np.zeros(place.extent, np.int64)
        for term in others:
            sums = sums + np.squeeze(array_of(term), THREAD)
        elsewhere.append(sums.reshape(-1))
    features: list[Feature] = []
    tree = place.counter.classify(place.condition, features)
    codes = np.zeros((math.prod(place.extent), len(features)), np.int64)
    for index, feature in enumerate(features):
        array = np.squeeze(made(feature), THREAD)
        codes[:, index] = np.broadcast_to(array, place.extent).reshape(-1)
    rows, class_of = np.unique(codes, axis=0, return_inverse=True)
    active = np.broadcast_to(tree.lanes(rows), (len(rows), len(by_thread[0])))
    makers = np.flatnonzero(active.any(axis=0))
    kinds, kind_of = np.unique(np.stack(by_thread, axis=1)[makers], axis=0, return_inverse=True)
    patterned = []
    for which, kind in enumerate(kinds):
        who = makers[kind_of.reshape(-1) == which]
        copying = np.asarray(active[:, who].any(axis=1))[class_of.reshape(-1)]
        told = np.stack(elsewhere, axis=1)[copying] + kind
        numbers, bases = _boxes(copies, told, copying, patterns)
        patterned.append((numbers.reshape(place.extent), bases.reshape(place.extent)))
    return patterned


def _boxes(
    copies: CopyOperands, told: Array, copying: npt.NDArray[np.bool_], patterns: Patterns
) -> Patterned:
    """Patterns and bases of copies, at the blocks and iterations that make one."""
    numbers, bases = np.full(len(copying), -1, np.int64), np.zeros(len(copying), np.int64)
    start, shape = placed(copies, told)
    kinds, kind_of = np.unique(
        np.column_stack([np.mod(start, LINE), shape]), axis=0, return_inverse=True
    )
    if len(kinds) > _MOST_PATTERNS:
        raise TooLargeError
    made_once = np.array(
        [patterns.number(touched(copies, int(k[0]), k[1:])) for k in kinds], np.int64
    )
    numbers[copying] = made_once[kind_of.reshape(-1)]
    bases[copying] = np.floor_divide(start, LINE)
    return numbers, bases


# ---------------------------------------------------------------- lane by lane


def by_lanes(group: Sequence[AccessAxes], patterns: Patterns) -> Patterned:
    """Lane by lane: each block and iteration has a pattern of its own.

    Raises:
        TooLargeError: there are too many lanes.
    """
    first = group[0]
    if math.prod(first.axes.dimensions) > _MOST_LANES:
        raise TooLargeError
    by_lane = np.concatenate([_lane_sectors(place) for place in group], axis=1)
    numbers, bases = np.full(len(by_lane), -1, np.int64), np.zeros(len(by_lane), np.int64)
    for row, sectors in enumerate(by_lane):
        some = sectors[sectors >= 0]
        if len(some):
            bases[row] = int(some.min()) >> 2
            numbers[row] = patterns.number(some - (bases[row] << 2))
    return numbers.reshape(first.extent), bases.reshape(first.extent)


def _lane_sectors(place: AccessAxes) -> Array:
    """For each block and iteration the distinct sectors that an access touches, -1 for none."""
    shape = place.axes.dimensions
    address = np.broadcast_to(parts.dense(place.address), shape)
    active = np.broadcast_to(spread(place.condition, len(shape)), shape).astype(bool)
    columns = []
    for byte in _ends(place.access):
        sector = np.where(active, np.floor_divide(address + byte, SECTOR), -1)
        columns.append(np.moveaxis(sector, THREAD, -1).reshape(-1, shape[THREAD]))
    ordered = np.sort(np.concatenate(columns, axis=1), axis=1)
    ordered[:, 1:][ordered[:, 1:] == ordered[:, :-1]] = -1
    ordered = np.sort(ordered, axis=1)
    most = int((ordered >= 0).sum(axis=1).max(initial=0))
    return ordered[:, ordered.shape[1] - most :]


def _ends(access: AccessValue) -> list[int]:
    """Bytes of an access of which each sector that it can touch holds one."""
    size = access.row.bytes_per_thread or 1
    return [*range(0, size, SECTOR), size - 1]
