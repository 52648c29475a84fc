"""Layouts of a shared array that would remove its bank conflicts, tried out.

What: the wavefronts that all accesses of one shared variable would take together if its rows were
padded, or their 16-byte (4-byte) pieces swizzled.
Formula: an address ``row * row_bytes + column`` from the array's start on becomes
``row * (row_bytes + padding) + column``, or ``row * row_bytes + (column xor piece * (row mod
pieces))``; the wavefronts are counted again by `kanalyze.models.banks` with the moved addresses.
Rows are as long as neighbouring lanes lie apart, else a power of two.
Source: CUDA C++ Best Practices Guide, "Shared Memory in Matrix Multiplication" (padding); the xor
swizzle as in lecture notes and CUTLASS. Limits: one row length for the whole array; ``ldmatrix``
and ``stmatrix`` keep rows of 16 bytes together: only paddings and swizzles of 16 bytes suit them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from kanalyze.models.features import Lanes
from kanalyze.models.warps import CountingRule
from kanalyze.symbolic.parts import Array

_ROWS = (64, 128, 256, 512, 1024, 2048)
_ANYWHERE = 1 << 62


@dataclass(frozen=True, slots=True)
class Layout:
    """Rows of ``row_bytes`` with ``padding`` bytes behind each, or pieces of ``swizzle`` bytes.

    ``start`` is the address of the array.
    """

    row_bytes: int
    padding: int = 0
    swizzle: int = 0
    start: int = 0

    def moved(self, addresses: Array) -> Array:
        """Where the bytes at ``addresses`` would lie."""
        row, column = np.divmod(addresses - self.start, self.row_bytes)
        if self.swizzle:
            pieces = min(self.row_bytes, 128) // self.swizzle
            column = column ^ (row % pieces * self.swizzle)
        moved: Array = self.start + row * (self.row_bytes + self.padding) + column
        return moved

    @property
    def words(self) -> str:
        """The change in words, behind "with"."""
        if self.swizzle:
            return (
                f"{self.swizzle}-byte pieces of {self.row_bytes}-byte rows swizzled (column xor "
                "row)"
            )
        return f"each row of {self.row_bytes} bytes padded by {self.padding} bytes"


def candidates(piece: int, strides: Iterable[int] = (), start: int = 0) -> Iterator[Layout]:
    """Layouts worth trying.

    Args:
        piece: the widest access in bytes, which must stay whole.
        strides: bytes between neighbouring lanes of accesses: likely lengths of rows.
        start: the address of the array.
    """
    likely = [n for n in strides if n >= 2 * piece and n % piece == 0]
    for row in dict.fromkeys([*sorted(likely, reverse=True), *_ROWS]):
        yield Layout(row, padding=piece, start=start)
        if piece < min(row, 128) and row & (row - 1) == 0:
            yield Layout(row, swizzle=piece, start=start)


def lane_stride(offsets: Sequence[int]) -> int:
    """Bytes between neighbouring lanes, where most are as far apart; 0 where they are not.

    Args:
        offsets: where the lanes of a warp point.
    """
    gaps = Counter(abs(b - a) for a, b in pairwise(offsets))
    gap, times = gaps.most_common(1)[0] if gaps else (0, 0)
    return gap if 2 * times > len(offsets) else 0


def with_layout(rule: CountingRule, layout: Layout) -> CountingRule:
    """A rule for what an access would cost with another layout."""

    def transactions(addresses: Array, lanes: Lanes) -> Array:
        return rule.transactions(layout.moved(addresses), lanes)

    return CountingRule(_ANYWHERE, transactions)


def best(
    before: int, layouts: Iterable[Layout], total: Callable[[Layout], int | None]
) -> tuple[Layout, int] | None:
    """The layout with the fewest wavefronts, and how many; None if none is better.

    Args:
        before: wavefronts of all accesses as they are.
        layouts: those to try; of equally good ones the first is taken.
        total: wavefronts of all accesses with a layout, None if not known.
    """
    lowest: tuple[Layout, int] | None = None
    for layout in layouts:
        after = total(layout)
        if after is not None and after < (before if lowest is None else lowest[1]):
            lowest = (layout, after)
    return lowest


def widest(sizes: Sequence[int]) -> int:
    """The piece that must stay whole, at least a bank's word."""
    return max(4, *sizes) if sizes else 4
