"""The order in which each block of a launch asks for lines of global memory.

What: for every block of threads its accesses to global memory in program order, each a tile: a set
of 128-byte lines with the sectors asked for; in bursts, which are asked for at once.
Formula: accesses of one basic block whose addresses differ by a constant are one column for each
iteration; its tile is a pattern of lines, moved by the base of the block and the iteration. Program
order is that of the control-flow graph in reverse postorder, iteration by iteration; a new
iteration, a barrier, or a write after reads begins a new burst. A pipelined loop's prologue is cut
into bursts as large as those of its steady part.
Source: none needed; no name is looked at.
Limits: the warps of a block are not told apart within a burst; lines that several of them ask for
in one burst are asked for once. Reads that stand behind a write of the same basic block, without a
barrier between, are asked for before it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from kanalyze.address import parts
from kanalyze.address.accesses import AccessValue, is_bulk
from kanalyze.address.grid import THREAD, Condition, spread
from kanalyze.address.parts import Array, Parts, TooLargeError, array_of
from kanalyze.bulk import Told, placed, touched
from kanalyze.launched import Launched
from kanalyze.models.coalescing import SECTOR
from kanalyze.models.cutting import cut, cut_condition
from kanalyze.models.features import Feature, Tree, made
from kanalyze.models.warps import ANYWHERE, Counter, MixedError, Occurrences

LINE = 128
READ, WRITE, ATOMIC = 0, 1, 2
_KINDS = {"store": WRITE, "bulk_store": WRITE, "atomic": ATOMIC, "reduction": ATOMIC}
_PAST_L1 = frozenset(["cg", "cv", "volatile", "relaxed", "acquire", "mmio", "L1::no_allocate"])
_MOST_ENTRIES = 1 << 26  # blocks × columns
_MOST_LANES = 1 << 26
_MOST_PATTERNS = 1 << 15
_PACK = 1 << 40


@dataclass(frozen=True, slots=True, eq=False)
class Tiles:
    """Tile ``t``: lines ``base[t] + lines[starts[p]:starts[p + 1]]``, ``p = pattern[t]``.

    ``masks`` has four bits for each line: the sectors asked for.
    """

    pattern: npt.NDArray[np.int64]
    base: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]
    lines: npt.NDArray[np.int64]
    masks: npt.NDArray[np.int64]

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """Lines of each tile."""
        sizes: npt.NDArray[np.int64] = np.diff(self.starts)[self.pattern]
        return sizes


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """``tiles_of[block, column]`` is the tile that a block asks for, -1 for none.

    Of each column: ``kind`` (READ, WRITE, ATOMIC), whether L1 keeps what it reads, and its burst.
    ``depth`` bursts are asked for ahead of the one in use. ``blocks`` is the number of blocks of
    the launch, of which the first ``len(tiles_of)`` are here. ``accesses`` has the accesses that
    each column is of, by their places among those of the kernel.
    """

    tiles: Tiles
    tiles_of: npt.NDArray[np.int32]
    kind: npt.NDArray[np.int64]
    cached: npt.NDArray[np.bool_]
    burst: npt.NDArray[np.int64]
    depth: int
    blocks: int
    accesses: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class _Place:
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
    copies: Told | None = None

    @property
    def counter(self) -> Counter:
        return Counter(ANYWHERE, self.address, self.condition, self.axes)

    @property
    def constant(self) -> int:
        """What the address is where all axes but the thread's are at their first place."""
        return sum(int(array.reshape(-1)[0]) for array in self.elsewhere)

    @property
    def kind(self) -> int:
        return _KINDS.get(self.access.row.kind, READ)

    @property
    def cached(self) -> bool:
        return self.kind == READ and not past_l1(self.access)


@dataclass(frozen=True, slots=True, eq=False)
class _Column:
    """One group of accesses in one iteration: for each block a pattern (-1: none) and its base."""

    order: tuple[int, ...]
    burst: tuple[object, ...]
    kind: int
    cached: bool
    pattern: Array
    base: Array
    accesses: tuple[int, ...]


@dataclass
class _Patterns:
    """Sets of lines, each once."""

    numbers: dict[bytes, int] = field(default_factory=dict)
    lines: list[Array] = field(default_factory=list)
    masks: list[Array] = field(default_factory=list)

    def number(self, sectors: Array) -> int:
        """The number of a set of sectors, -1 for the empty one."""
        if not len(sectors):
            return -1
        sectors = np.unique(sectors)
        key = sectors.tobytes()
        if key not in self.numbers:
            lines, begins = np.unique(sectors >> 2, return_index=True)
            self.numbers[key] = len(self.lines)
            self.lines.append(lines)
            self.masks.append(np.bitwise_or.reduceat(np.int64(1) << (sectors & 3), begins))
        return self.numbers[key]


def stream(
    launched: Launched, staged: Sequence[tuple[str, int] | None], most_blocks: int | None = None
) -> Stream:
    """The stream of the first ``most_blocks`` blocks, or of all.

    Args:
        launched: the kernel with its launch.
        staged: for each access, whether it is prologue or steady part of a pipelined loop
            (`kanalyze.models.stages.stages`).
        most_blocks: how many blocks are wanted.

    Raises:
        UnknownValueError: an address or a condition is not known.
        TooLargeError: there are too many different accesses.
    """
    return _Builder(launched, staged, most_blocks).run()


class _Builder:
    def __init__(
        self,
        launched: Launched,
        staged: Sequence[tuple[str, int] | None],
        most_blocks: int | None,
    ):
        self.launched = launched
        self.staged = staged
        self.all_blocks = math.prod(launched.launch.grid)
        self.blocks = min(self.all_blocks, most_blocks or self.all_blocks)
        self.position = {block: place for place, block in enumerate(launched.cfg.order)}
        self.barriers = self._barriers()
        self.patterns = _Patterns()

    def run(self) -> Stream:
        accesses = [
            (index, access)
            for index, access in enumerate(self.launched.found.accesses)
            if access.row.space in ("global", "generic") and access.row.kind != "prefetch"
        ]
        depth = self._depth([index for index, _ in accesses])
        chunk = self._chunks([index for index, _ in accesses], depth)
        columns: list[_Column] = []
        for group in self._groups(accesses, chunk):
            for column in self._columns(group, chunk[group[0].index]):
                columns.append(column)
                if len(columns) * self.blocks > _MOST_ENTRIES:
                    raise TooLargeError
        columns.sort(key=lambda column: column.order)
        if not any((column.pattern >= 0).any() for column in columns):
            columns = [self._nothing()]
        return self._assemble(columns, depth)

    def _nothing(self) -> _Column:
        """A burst without lines, so that blocks that access nothing still do their work."""
        self.patterns.lines.append(np.zeros(0, np.int64))
        self.patterns.masks.append(np.zeros(0, np.int64))
        every = np.zeros(self.blocks, np.int64)
        return _Column((), (), READ, False, every, every, ())

    # ------------------------------------------------------------ pipelining, barriers

    def _of_loops(self, indices: list[int], part: str) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for index in indices:
            stage = self.staged[index]
            if stage is not None and stage[0] == part:
                found.setdefault(stage[1], []).append(index)
        return found

    def _depth(self, indices: list[int]) -> int:
        """How many iterations ahead a pipelined loop copies: prologue over steady copies."""
        steady = self._of_loops(indices, "steady")
        ahead = self._of_loops(indices, "prologue")
        return max((len(ahead.get(loop, ())) // len(copies) for loop, copies in steady.items()),
                   default=0)  # fmt: skip

    def _chunks(self, indices: list[int], depth: int) -> dict[int, int]:
        """Of which iteration the prologue's copies are; 0 for all others."""
        chunk = dict.fromkeys(indices, 0)
        for members in self._of_loops(indices, "prologue").values():
            for place, index in enumerate(members):
                chunk[index] = place * max(depth, 1) // len(members)
        return chunk

    def _barriers(self) -> dict[int, int]:
        """How many barriers stand before an instruction in its basic block, by its identity."""
        found: dict[int, int] = {}
        for block in self.launched.cfg.blocks:
            before = 0
            for instruction in block.instructions:
                before += instruction.base in ("bar", "barrier")
                found[id(instruction)] = before
        return found

    # ------------------------------------------------------------ groups

    def _groups(
        self, accesses: list[tuple[int, AccessValue]], chunk: dict[int, int]
    ) -> list[list[_Place]]:
        """Accesses of one kind, block and burst whose addresses differ by a constant, together."""
        groups: list[list[_Place]] = []
        for index, access in accesses:
            place = self._place(index, access)
            for group in groups:
                first = group[0]
                if (
                    first.access.block == access.block
                    and (first.kind, first.cached) == (place.kind, place.cached)
                    and chunk[first.index] == chunk[index]
                    and self._before(first) == self._before(place)
                    and _move_alike(first, place)
                ):
                    group.append(place)
                    break
            else:
                groups.append([place])
        return groups

    def _before(self, place: _Place) -> int:
        """Barriers before an access; what a pipelined loop copies ahead waits for none."""
        ahead = self.staged[place.index] is not None
        return 0 if ahead else self.barriers[id(place.access.instruction)]

    def _place(self, index: int, access: AccessValue) -> _Place:
        loops = self.launched.loops(access)
        if is_bulk(access.instruction, access.row):
            copies, condition, axes = self.launched.copies(access)
            numbers = tuple(self._cut(number) for number in copies.numbers)
            copies = replace(copies, numbers=numbers)
            condition, axes = self._cut_when(condition, axes)
            return _Place(index, access, numbers[0], condition, axes, loops, None, (), copies)
        address, condition, axes = self.launched.place(access)
        address = self._cut(address)
        condition, axes = self._cut_when(condition, axes)
        lanes, elsewhere = Counter(ANYWHERE, address, condition, axes).split(address)
        arrays = () if lanes is None else tuple(array_of(term) for term in elsewhere)
        return _Place(index, access, address, condition, axes, loops, lanes, arrays)

    def _cut(self, value: Parts) -> Parts:
        """A value over the blocks that are wanted."""
        if self.blocks == self.all_blocks:
            return value
        some = slice(0, self.blocks)
        return parts.of_arrays([cut(term, some) for term in value.terms.values()])

    def _cut_when(self, when: Condition, axes: Occurrences) -> tuple[Condition, Occurrences]:
        if self.blocks == self.all_blocks:
            return when, axes
        some = cut_condition(when, slice(0, self.blocks))
        return some, Occurrences((self.blocks, *axes.dimensions[1:]))

    # ------------------------------------------------------------ columns

    def _columns(self, group: list[_Place], chunk: int) -> Iterator[_Column]:
        first = group[0]
        if first.copies is not None:
            found = self._by_copies(first)
        else:
            try:
                found = [self._by_classes(group)]
            except MixedError:
                found = [self._by_lanes(group)]
        for pattern, base in found:
            yield from self._iterations(group, chunk, pattern, base)

    def _iterations(
        self, group: list[_Place], chunk: int, pattern: Array, base: Array
    ) -> Iterator[_Column]:
        """A column for each iteration of the loops around a group of accesses."""
        first = group[0]
        position = self.position[first.access.block]
        for iteration in np.ndindex(*first.axes.dimensions[THREAD + 1 :]):
            at: tuple[int, ...] = ()
            for loop, number in zip(first.loops, iteration, strict=True):
                at += (self.position[loop], number)
            alone = position if not at else -1
            yield _Column(
                order=(*at, position, first.index),
                burst=(at, alone, self._before(first), chunk, first.kind == READ),
                kind=first.kind,
                cached=first.cached,
                pattern=pattern[(slice(None), *iteration)],
                base=base[(slice(None), *iteration)],
                accesses=tuple(place.index for place in group),
            )

    def _by_classes(self, group: list[_Place]) -> tuple[Array, Array]:
        """Patterns and bases over blocks and iterations: one pattern for each class of them.

        Raises:
            MixedError: blocks and threads do not part, or the classes are too many.
        """
        first = group[0]
        if first.lanes is None:
            raise MixedError
        extent = [n for axis, n in enumerate(first.axes.dimensions) if axis != THREAD]
        if math.prod(extent) > _MOST_ENTRIES:
            raise TooLargeError
        features: list[Feature] = []
        trees = [place.counter.classify(place.condition, features) for place in group]
        base = np.zeros(extent, np.int64)
        for array in first.elsewhere:
            base = base + np.squeeze(array, THREAD)
        arrays = [np.squeeze(made(feature), THREAD) for feature in features]
        code, radix = np.mod(base, LINE), LINE
        for array in arrays:
            levels, places = np.unique(array, return_inverse=True)
            if len(levels) > 1:
                code = code + radix * places.reshape(array.shape)
                radix *= len(levels)
            if radix > _PACK:
                packed, places = np.unique(code, return_inverse=True)
                code, radix = places.reshape(code.shape), len(packed)
        _, one, class_of = np.unique(code, return_index=True, return_inverse=True)
        if len(one) * len(group) > _MOST_PATTERNS:
            raise MixedError
        rows = np.zeros((len(one), len(arrays)), np.int64)
        for place, array in enumerate(arrays):
            rows[:, place] = np.broadcast_to(array, extent).reshape(-1)[one]
        within = np.mod(np.broadcast_to(base, extent).reshape(-1)[one], LINE)
        numbers = np.array(
            [
                self.patterns.number(_touched(group, trees, rows[k : k + 1], int(within[k])))
                for k in range(len(one))
            ],
            np.int64,
        )
        return numbers[class_of].reshape(extent), np.floor_divide(base, LINE)

    def _by_copies(self, place: _Place) -> list[tuple[Array, Array]]:
        """The same of a bulk copy, for each of the different ones that threads of a block make."""
        assert place.copies is not None
        extent = [n for axis, n in enumerate(place.axes.dimensions) if axis != THREAD]
        if math.prod(extent) > _MOST_ENTRIES:
            raise TooLargeError
        by_thread, elsewhere = [], []
        for number in place.copies.numbers:
            lanes, others = place.counter.split(number)
            if lanes is None:
                raise TooLargeError
            by_thread.append(lanes)
            sums = np.zeros(extent, np.int64)
            for term in others:
                sums = sums + np.squeeze(array_of(term), THREAD)
            elsewhere.append(sums.reshape(-1))
        features: list[Feature] = []
        tree = place.counter.classify(place.condition, features)
        codes = np.zeros((math.prod(extent), len(features)), np.int64)
        for index, feature in enumerate(features):
            array = np.squeeze(made(feature), THREAD)
            codes[:, index] = np.broadcast_to(array, extent).reshape(-1)
        rows, class_of = np.unique(codes, axis=0, return_inverse=True)
        shape = (len(rows), len(by_thread[0]))
        active = np.broadcast_to(tree.lanes(rows), shape)
        makers = np.flatnonzero(active.any(axis=0))
        kinds, kind_of = np.unique(np.stack(by_thread, axis=1)[makers], axis=0, return_inverse=True)
        found = []
        for which, kind in enumerate(kinds):
            who = makers[kind_of.reshape(-1) == which]
            copying = np.asarray(active[:, who].any(axis=1))[class_of.reshape(-1)]
            told = np.stack(elsewhere, axis=1)[copying] + kind
            found.append(self._copied(place.copies, told, copying, extent))
        return found

    def _copied(
        self, copies: Told, told: Array, copying: npt.NDArray[np.bool_], extent: list[int]
    ) -> tuple[Array, Array]:
        """Patterns and bases of copies, at the blocks and iterations that make one."""
        numbers = np.full(len(copying), -1, np.int64)
        bases = np.zeros(len(copying), np.int64)
        start, shape = placed(copies, told)
        kinds, kind_of = np.unique(
            np.column_stack([np.mod(start, LINE), shape]), axis=0, return_inverse=True
        )
        if len(kinds) > _MOST_PATTERNS:
            raise TooLargeError
        patterns = np.array(
            [self.patterns.number(touched(copies, int(k[0]), k[1:])) for k in kinds], np.int64
        )
        numbers[copying] = patterns[kind_of.reshape(-1)]
        bases[copying] = np.floor_divide(start, LINE)
        return numbers.reshape(extent), bases.reshape(extent)

    def _by_lanes(self, group: list[_Place]) -> tuple[Array, Array]:
        """The same lane by lane: each block and iteration has a pattern of its own."""
        shape = group[0].axes.dimensions
        if math.prod(shape) > _MOST_LANES:
            raise TooLargeError
        extent = [n for axis, n in enumerate(shape) if axis != THREAD]
        found = np.concatenate([_lane_sectors(place) for place in group], axis=1)
        numbers = np.full(len(found), -1, np.int64)
        bases = np.zeros(len(found), np.int64)
        for row, sectors in enumerate(found):
            some = sectors[sectors >= 0]
            if len(some):
                bases[row] = int(some.min()) >> 2
                numbers[row] = self.patterns.number(some - (bases[row] << 2))
        return numbers.reshape(extent), bases.reshape(extent)

    # ------------------------------------------------------------ all together

    def _assemble(self, columns: list[_Column], depth: int) -> Stream:
        shape = (self.blocks, len(columns))
        patterns, bases = np.full(shape, -1, np.int64), np.zeros(shape, np.int64)
        bursts = np.zeros(len(columns), np.int64)
        for place, column in enumerate(columns):
            patterns[:, place], bases[:, place] = column.pattern, column.base
            if place:
                fresh = column.burst != columns[place - 1].burst
                bursts[place] = bursts[place - 1] + fresh
        asked = patterns >= 0
        low, high = (int(bases[asked].min()), int(bases[asked].max())) if asked.any() else (0, 0)
        span = high - low + 1
        code = np.where(asked, patterns * span + (bases - low), -1)
        distinct, tile = np.unique(code, return_inverse=True)
        empty = int(len(distinct) > 0 and distinct[0] < 0)
        distinct = distinct[empty:]
        lengths = [len(lines) for lines in self.patterns.lines]
        nothing = np.zeros(0, np.int64)
        tiles = Tiles(
            pattern=distinct // span,
            base=distinct % span + low,
            starts=np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]),
            lines=np.concatenate([nothing, *self.patterns.lines]),
            masks=np.concatenate([nothing, *self.patterns.masks]),
        )
        return Stream(
            tiles=tiles,
            tiles_of=(tile.reshape(shape) - empty).astype(np.int32),
            kind=np.array([column.kind for column in columns], np.int64),
            cached=np.array([column.cached for column in columns], bool),
            burst=bursts,
            depth=depth,
            blocks=self.all_blocks,
            accesses=tuple(column.accesses for column in columns),
        )


def past_l1(access: AccessValue) -> bool:
    """Whether L1 does not keep what an access reads: ``.cg``, TMA, atomics, strong loads."""
    plain = access.row.kind in ("load", "async_copy")
    return not plain or bool(_PAST_L1 & set(access.instruction.parts))


def coarser(given: Stream, factor: int) -> Stream:
    """The same with up to ``factor`` consecutive bursts of reads as one."""
    reads = np.zeros(int(given.burst[-1]) + 1, bool)
    reads[given.burst] = given.kind == READ
    number, together, merged = 0, 0, np.zeros(len(reads), np.int64)
    for burst in range(len(reads)):
        together = together + 1 if burst and reads[burst] and reads[burst - 1] else 0
        if burst and together % factor == 0:
            number, together = number + 1, 0
        merged[burst] = number
    return replace(given, burst=merged[given.burst], depth=-(-given.depth // factor))


def _touched(group: list[_Place], trees: list[Tree], row: Array, within: int) -> Array:
    """The sectors that a group touches where the first base lies ``within`` bytes into a line."""
    found = []
    for place, tree in zip(group, trees, strict=True):
        assert place.lanes is not None
        active = np.broadcast_to(tree.lanes(row), (1, len(place.lanes)))[0]
        where = place.lanes[active] + (within + place.constant - group[0].constant)
        found += [(where + byte) // SECTOR for byte in _ends(place.access)]
    return np.concatenate(found)


def _lane_sectors(place: _Place) -> Array:
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


def _move_alike(one: _Place, other: _Place) -> bool:
    """The addresses of two accesses differ by the same number in all blocks and iterations."""
    if one.lanes is None or other.lanes is None or one.loops != other.loops:
        return False
    return len(one.elsewhere) == len(other.elsewhere) and all(
        a.shape == b.shape and np.array_equal(a - a.reshape(-1)[0], b - b.reshape(-1)[0])
        for a, b in zip(one.elsewhere, other.elsewhere, strict=True)
    )
