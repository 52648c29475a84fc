"""How far a command is, on standard error."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Self, TypeVar

from kanalyze.cli import output
from kanalyze.text.safe import escaped

_DELAY_S = 1.0
_BAR_EVERY_S = 0.1
_LINE_EVERY_S = 5.0

T = TypeVar("T")


class Progress:
    """A bar on a terminal, after a second of work; elsewhere nothing, or now and then a line.

    Args:
        total: how many steps there are; no bar is shown for one or two.
        unit: what the steps are, behind their number.
        lines: whether to write lines where standard error is not a terminal.
    """

    def __init__(self, total: int, unit: str = "", lines: bool = False):
        self.total = total
        self.done = 0
        self.shown = False
        self.terminal = sys.stderr.isatty()
        self.on = total > 2 and (self.terminal or lines)
        self.unit = unit
        self.start = time.monotonic()
        self.last = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def over(self, items: Iterable[T], name: Callable[[T], str]) -> Iterator[T]:
        """The items; each counts when the next one is asked for."""
        for item in items:
            self.show(self.done, name(item))
            yield item
            self.done += 1

    def show(self, done: int, name: str = "") -> None:
        """Say how many steps are done, and the name of the one at work."""
        self.done = done
        now = time.monotonic()
        every = _BAR_EVERY_S if self.terminal else _LINE_EVERY_S
        if not self.on or now - self.start < _DELAY_S or now - self.last < every:
            return
        self.last = now
        text = f"{done}/{self.total}{self.unit}  {escaped(name)}".rstrip()
        if not self.terminal:
            output.say(text)
            return
        self.shown = True
        columns = shutil.get_terminal_size().columns
        bar = "#" * round(20 * min(1.0, done / max(1, self.total)))
        sys.stderr.write(f"\r\x1b[K{f'[{bar:<20}] {text}'[: columns - 1]}")
        sys.stderr.flush()

    def clear(self) -> None:
        """Take the bar away, so that a message can stand there."""
        if self.shown:
            self.shown = False
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def close(self) -> None:
        """Take the bar away for good."""
        self.clear()
        self.on = False
