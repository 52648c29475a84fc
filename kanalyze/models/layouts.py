"""Layouts of a shared array that would remove its bank conflicts, tried out.

What: the wavefronts that all accesses of one shared variable would take together if its rows were
padded, or their 16-byte (4-byte) pieces swizzled.
Formula: an address ``row * row_bytes + column`` becomes ``row * (row_bytes + padding) + column``,
or ``row * row_bytes + (column xor piece * (row mod pieces))``; the wavefronts are counted again by
`kanalyze.models.banks` with the moved addresses.
Source: CUDA C++ Best Practices Guide, "Shared Memory in Matrix Multiplication" (padding); the xor
swizzle as in lecture notes and CUTLASS. Limits: one row length for the whole array; ``ldmatrix``
and ``stmatrix`` keep rows of 16 bytes together: only paddings and swizzles of 16 bytes suit them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kanalyze.address.parts import Array
from kanalyze.models.warps import Lanes, Rule

_ROWS = (64, 128, 256, 512, 1024, 2048)
_ANYWHERE = 1 << 62


@dataclass(frozen=True, slots=True)
class Layout:
    """Rows of ``row_bytes`` with ``padding`` bytes behind each, or pieces of ``swizzle`` bytes."""

    row_bytes: int
    padding: int = 0
    swizzle: int = 0

    def moved(self, addresses: Array) -> Array:
        """Where the bytes at ``addresses`` would lie."""
        row, column = np.divmod(addresses, self.row_bytes)
        if self.swizzle:
            pieces = min(self.row_bytes, 128) // self.swizzle
            column = column ^ (row % pieces * self.swizzle)
        moved: Array = row * (self.row_bytes + self.padding) + column
        return moved

    @property
    def words(self) -> str:
        """The change in words."""
        if self.swizzle:
            return (
                f"swizzle {self.swizzle}-byte pieces of {self.row_bytes}-byte rows (column xor row)"
            )
        return f"pad each row of {self.row_bytes} bytes by {self.padding} bytes"


def candidates(piece: int) -> Iterator[Layout]:
    """Layouts worth trying; ``piece`` is the widest access in bytes, which must stay whole."""
    for row in _ROWS:
        yield Layout(row, padding=piece)
        if piece < min(row, 128):
            yield Layout(row, swizzle=piece)


def with_layout(rule: Rule, layout: Layout) -> Rule:
    """A rule for what an access would cost with another layout."""

    def cost(addresses: Array, lanes: Lanes) -> Array:
        return rule.cost(layout.moved(addresses), lanes)

    return Rule(_ANYWHERE, cost)


def best(
    before: int, piece: int, total: Callable[[Layout], int | None]
) -> tuple[Layout, int] | None:
    """The layout with the fewest wavefronts, and how many; None if none is better.

    Args:
        before: wavefronts of all accesses as they are.
        piece: the widest access in bytes.
        total: wavefronts of all accesses with a layout, None if not known.
    """
    found: tuple[Layout, int] | None = None
    for layout in candidates(piece):
        after = total(layout)
        if after is not None and after < (before if found is None else found[1]):
            found = (layout, after)
    return found


def widest(sizes: Sequence[int]) -> int:
    """The piece that must stay whole, at least a bank's word."""
    return max(4, *sizes) if sizes else 4
