"""Every error that kanalyze raises on purpose.

Each class stands for one exit code of the command line (``kanalyze.cli`` maps them), so a library
caller and a shell script see the same distinctions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches


class KanalyzeError(Exception):
    """Base of all errors that kanalyze raises on purpose."""

    exit_code = 3


class UsageError(KanalyzeError):
    """The request itself is wrong: unknown kernel, unknown ``--set`` name, bad value (exit 2)."""

    exit_code = 2


class MissingToolError(KanalyzeError):
    """Something the machine lacks is needed (exit 4); the message says which command gets it."""

    exit_code = 4


@dataclass(frozen=True, slots=True)
class SourceSpot:
    """A place in an input: file name, 1-based line and column, and the text of that line."""

    file: str
    line: int
    column: int
    text: str = ""

    @property
    def window(self) -> slice:
        """The part of the text that is shown: around the column, however long the line is."""
        start = max(0, self.column - 60)
        return slice(start, start + 120)


class InputError(KanalyzeError):
    """An input could not be read, parsed or compiled (exit 3).

    Args:
        message: what was found and what was expected, one line.
        spot: the place in the input, or None where only the file is known.
        file: the file, used when there is no spot.
    """

    exit_code = 3

    def __init__(self, message: str, spot: SourceSpot | None = None, file: str | None = None):
        super().__init__(message)
        self.message = message
        self.spot = spot
        self.file = spot.file if spot is not None else file

    def __str__(self) -> str:
        """Return ``FILE:LINE:COLUMN: message``, then the line and a caret where they are known."""
        if self.spot is None:
            return f"{self.file}: {self.message}" if self.file else self.message
        spot = self.spot
        head = f"{spot.file}:{spot.line}:{spot.column}: {self.message}"
        if not spot.text:
            return head
        shown = spot.text[spot.window].expandtabs(1)
        return f"{head}\n  {shown}\n  {' ' * (spot.column - 1 - spot.window.start)}^"


@dataclass(frozen=True, slots=True)
class Unknown:
    """Why something is not known: what a function returns in the place of its answer."""

    reason: str


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the tail of an error message that names the known words nearest to ``word``."""
    names = list(known)
    close = get_close_matches(word, names, n=3, cutoff=0.5)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"known: {', '.join(names)}" if names else "none is known"
