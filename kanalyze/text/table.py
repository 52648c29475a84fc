"""Columns of text, of which the last ones are left out where there is no room."""

from __future__ import annotations

from collections.abc import Sequence

_BETWEEN = 2


class Columns:
    """Right-aligned columns; with ``left`` the first one is left-aligned."""

    def __init__(
        self, heads: Sequence[str], lines: Sequence[Sequence[str]], left: bool = False
    ) -> None:
        self.heads = heads
        self.left = left
        self.widths = [
            max(len(cell) for cell in column) for column in zip(heads, *lines, strict=True)
        ]

    def width(self, shown: int, begin: int = 0) -> int:
        """Columns of text that those from ``begin`` to ``shown`` take."""
        return sum(self.widths[begin:shown]) + _BETWEEN * (shown - begin - 1)

    def fitting(self, room: int) -> int:
        """How many fit, two at least."""
        count = len(self.widths)
        while count > 2 and self.width(count) > room:
            count -= 1
        return count

    def line(self, cells: Sequence[str], shown: int) -> str:
        """One line."""
        aligned = [
            f"{cell:<{width}}" if self.left and index == 0 else f"{cell:>{width}}"
            for index, (cell, width) in enumerate(
                zip(cells[:shown], self.widths[:shown], strict=True)
            )
        ]
        return (" " * _BETWEEN).join(aligned)

    def head(self, shown: int) -> str:
        """The line above."""
        return self.line(self.heads, shown)
