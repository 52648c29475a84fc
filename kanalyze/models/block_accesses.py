"""One memory instruction of a launch block by block: what blocks have in common."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Protocol

import numpy as np

from kanalyze.models.block_slices import cut, cut_condition
from kanalyze.models.features import Feature, axes_along, made
from kanalyze.models.footprint import Footprint
from kanalyze.models.warps import ANYWHERE, InstructionLaunch, MixedError, Occurrences, classes
from kanalyze.symbolic import parts
from kanalyze.symbolic.grid import Condition
from kanalyze.symbolic.parts import Array, Parts, Term, TooLargeError, array_of
from kanalyze.symbolic.specials import BLOCK, THREAD

_MOST_LANES = 1 << 22

Placed = tuple[Parts, Condition, Occurrences]
"""An instruction in a launch: its address, when it is executed, and the axes of both."""


class BlockAccess(Protocol):
    """An access to memory, as blocks differ in it."""

    @property
    def blocks(self) -> int:
        """Number of blocks."""

    def moved(self) -> Term | None:
        """A term over the blocks by which all their addresses differ; None: by none."""

    def features(self) -> list[Feature]:
        """What else blocks differ in, along the axis of blocks.

        Blocks that agree in it access the same addresses, but for what they are moved by.

        Raises:
            MixedError: something in which blocks and threads do not part.
            TooLargeError: there are too many different cases.
        """

    def mark(self, block: int, footprint: Footprint) -> None:
        """Mark the sectors that one block touches.

        Raises:
            TooLargeError: there are too many.
        """

    def span(self, block: int) -> tuple[int, int]:
        """The lowest and the highest address that one block can touch."""

    def listed(self) -> Iterator[tuple[Array, Array]]:
        """The block and the address of each thread that takes part, one by one.

        Raises:
            TooLargeError: there are too many.
        """


class ThreadAccess:
    """An instruction by which each thread accesses its own address.

    Args:
        address, condition, occurrences: see `Placed`.
    """

    def __init__(self, address: Parts, condition: Condition, occurrences: Occurrences):
        self.placed = (address, condition, occurrences)
        self.blocks = occurrences.dimensions[BLOCK]

    def moved(self) -> Term | None:
        """See `BlockAccess`."""
        return self.placed[0].terms.get((BLOCK,))

    def features(self) -> list[Feature]:
        """See `BlockAccess`."""
        return block_codes(*self.placed)

    def mark(self, block: int, footprint: Footprint) -> None:
        """See `BlockAccess`."""
        for kind in classes(*at_block(*self.placed, block)):
            footprint.mark(*kind)

    def span(self, block: int) -> tuple[int, int]:
        """See `BlockAccess`."""
        address, _, _ = at_block(*self.placed, block)
        return address.low, address.high

    def listed(self) -> Iterator[tuple[Array, Array]]:
        """See `BlockAccess`."""
        if math.prod(self.placed[2].dimensions) > _MOST_LANES:
            raise TooLargeError
        return all_lanes(*self.placed)


def all_lanes(address: Parts, condition: Condition, occurrences: Occurrences) -> Iterator[
    tuple[Array, Array]
]:  # fmt: skip
    """The block and the address of each thread that executes an instruction, one by one.

    Raises:
        TooLargeError: there are too many.
    """
    counter = InstructionLaunch(ANYWHERE, address, condition, occurrences)
    others = occurrences.dimensions[THREAD + 1 :]
    done = 0
    for addresses, active, _ in counter.lane_by_lane():
        block = done + np.arange(len(addresses)) // math.prod(others)
        done += len(addresses) // math.prod(others)
        yield np.broadcast_to(block[:, None], active.shape)[active], addresses[active]


def at_block(address: Parts, condition: Condition, occurrences: Occurrences, block: int) -> Placed:
    """An instruction in one block of the launch."""
    alone = slice(block, block + 1)
    here = parts.of_arrays([cut(p, alone) for p in address.terms.values()])
    axes = Occurrences((1, *occurrences.dimensions[1:]))
    return here, cut_condition(condition, alone), axes


def block_codes(address: Parts, condition: Condition, occurrences: Occurrences) -> list[Feature]:
    """What blocks differ in besides a number added to all addresses, along the axis of blocks.

    Blocks that agree in them execute the instruction with the same lanes in the same iterations,
    at addresses that differ by one number.

    Raises:
        MixedError: something in which blocks and threads do not part.
        TooLargeError: there are too many different cases.
    """
    counter = InstructionLaunch(ANYWHERE, address, condition, occurrences)
    by_lane, _ = counter.split(address)
    if by_lane is None:
        raise MixedError
    features: list[Feature] = [
        array_of(term) for axes, term in address.terms.items() if BLOCK in axes and len(axes) > 1
    ]
    counter.classify(condition, features)
    return [
        feature if axes_along(feature) == (BLOCK,) else _alike(made(feature))
        for feature in features
        if BLOCK in axes_along(feature)
    ]


def _alike(feature: Array) -> Array:
    """A number for each block, the same for blocks with the same numbers along all other axes."""
    rows = feature.reshape(len(feature), -1)
    mixer = np.random.default_rng(0).integers(1, 1 << 62, rows.shape[1]) | 1
    _, first, kinds = np.unique(rows @ mixer, return_index=True, return_inverse=True)
    if not np.array_equal(rows[first][kinds], rows):  # two rows with the same sum
        kinds = np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1)
    result: Array = kinds.astype(np.int64)
    return result.reshape(-1, *[1] * (feature.ndim - 1))
