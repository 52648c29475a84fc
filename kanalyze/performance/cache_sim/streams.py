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
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from kanalyze.counting.ptx_launch import KernelLaunch
from kanalyze.performance.cache_sim import tiles
from kanalyze.performance.cache_sim.tiles import READ, AccessAxes, Patterns
from kanalyze.symbolic.accesses import AccessValue
from kanalyze.symbolic.parts import Array, TooLargeError, distinct_numbers
from kanalyze.symbolic.specials import THREAD


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
class _Column:
    """One group of accesses in one iteration: for each block a pattern (-1: none) and its base."""

    order: tuple[int, ...]
    burst: tuple[object, ...]
    kind: int
    cached: bool
    pattern: Array
    base: Array
    accesses: tuple[int, ...]


def stream(
    launched: KernelLaunch,
    staged: Sequence[tuple[str, int] | None],
    most_blocks: int | None = None,
    dropped: Collection[int] = (),
) -> Stream:
    """The stream of the first ``most_blocks`` blocks, or of all.

    Args:
        launched: the kernel with its launch.
        staged: for each access, whether it is prologue or steady part of a pipelined loop
            (`kanalyze.models.stages.stages`).
        most_blocks: how many blocks are wanted.
        dropped: accesses of which the machine code makes no requests.

    Raises:
        UnknownValueError: an address or a condition is not known.
        TooLargeError: there are too many different accesses.
    """
    return _Builder(launched, staged, most_blocks).run(dropped)


class _Builder:
    def __init__(
        self,
        launched: KernelLaunch,
        staged: Sequence[tuple[str, int] | None],
        most_blocks: int | None,
    ):
        self.launched = launched
        self.staged = staged
        self.all_blocks = math.prod(launched.launch.grid)
        self.blocks = min(self.all_blocks, most_blocks or self.all_blocks)
        self.position = {block: place for place, block in enumerate(launched.cfg.order)}
        self.barriers = self._barriers()
        self.patterns = Patterns()

    def run(self, dropped: Collection[int]) -> Stream:
        accesses = [
            (index, access)
            for index, access in enumerate(self.launched.addresses.accesses)
            if access.row.space in ("global", "generic")
            and access.row.kind != "prefetch"
            and index not in dropped
        ]
        depth = self._depth([index for index, _ in accesses])
        chunk = self._chunks([index for index, _ in accesses], depth)
        columns: list[_Column] = []
        for group in self._groups(accesses, chunk):
            for column in self._columns(group, chunk[group[0].index]):
                columns.append(column)
                if len(columns) * self.blocks > tiles.MOST_ENTRIES:
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
        by_loop: dict[int, list[int]] = {}
        for index in indices:
            stage = self.staged[index]
            if stage is not None and stage[0] == part:
                by_loop.setdefault(stage[1], []).append(index)
        return by_loop

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
        barriers: dict[int, int] = {}
        for block in self.launched.cfg.blocks:
            before = 0
            for instruction in block.instructions:
                before += instruction.base in ("bar", "barrier")
                barriers[id(instruction)] = before
        return barriers

    # ------------------------------------------------------------ groups

    def _groups(
        self, accesses: list[tuple[int, AccessValue]], chunk: dict[int, int]
    ) -> list[list[AccessAxes]]:
        """Accesses of one kind, block and burst whose addresses differ by a constant, together."""
        groups: list[list[AccessAxes]] = []
        for index, access in accesses:
            place = tiles.place(self.launched, index, access, self.blocks)
            for group in groups:
                first = group[0]
                if (
                    first.access.block == access.block
                    and (first.kind, first.cached) == (place.kind, place.cached)
                    and chunk[first.index] == chunk[index]
                    and self._before(first) == self._before(place)
                    and tiles.move_alike(first, place)
                ):
                    group.append(place)
                    break
            else:
                groups.append([place])
        return groups

    def _before(self, place: AccessAxes) -> int:
        """Barriers before an access; what a pipelined loop copies ahead waits for none."""
        ahead = self.staged[place.index] is not None
        return 0 if ahead else self.barriers[id(place.access.instruction)]

    # ------------------------------------------------------------ columns

    def _columns(self, group: list[AccessAxes], chunk: int) -> Iterator[_Column]:
        for pattern, base in tiles.touched_by(group, self.patterns):
            yield from self._iterations(group, chunk, pattern, base)

    def _iterations(
        self, group: list[AccessAxes], chunk: int, pattern: Array, base: Array
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

    # ------------------------------------------------------------ all together

    def _assemble(self, columns: list[_Column], depth: int) -> Stream:
        bursts = np.zeros(len(columns), np.int64)
        for place in range(1, len(columns)):
            fresh = columns[place].burst != columns[place - 1].burst
            bursts[place] = bursts[place - 1] + fresh
        pattern, base, tiles_of = _numbered(columns, self.blocks)
        lengths = [len(lines) for lines in self.patterns.lines]
        nothing = np.zeros(0, np.int64)
        return Stream(
            tiles=Tiles(
                pattern=pattern,
                base=base,
                starts=np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]),
                lines=np.concatenate([nothing, *self.patterns.lines]),
                masks=np.concatenate([nothing, *self.patterns.masks]),
            ),
            tiles_of=tiles_of,
            kind=np.array([column.kind for column in columns], np.int64),
            cached=np.array([column.cached for column in columns], bool),
            burst=bursts,
            depth=depth,
            blocks=self.all_blocks,
            accesses=tuple(column.accesses for column in columns),
        )


def _numbered(
    columns: Sequence[_Column], blocks: int
) -> tuple[Array, Array, npt.NDArray[np.int32]]:
    """Pattern and base of each different tile, and the tile of each block and column (or -1)."""
    asked = [column.pattern >= 0 for column in columns]
    bases = [column.base[some] for column, some in zip(columns, asked, strict=True)]
    low = min(int(base.min()) for base in bases if len(base))
    span = max(int(base.max()) for base in bases if len(base)) - low + 1
    codes: list[Array] = []
    places: list[Array] = []
    for column, some, base in zip(columns, asked, bases, strict=True):
        code, place = np.unique(column.pattern[some] * span + (base - low), return_inverse=True)
        codes.append(code)
        places.append(place)
    distinct = distinct_numbers(np.concatenate(codes))
    tiles_of = np.full((blocks, len(columns)), -1, np.int32)
    for number, (some, code, place) in enumerate(zip(asked, codes, places, strict=True)):
        number_of: Array = np.searchsorted(distinct, code)
        tiles_of[some, number] = number_of[place]
    return distinct // span, distinct % span + low, tiles_of


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
