"""Comments that leave findings out: ``# kanalyze: ignore[ID, ID]``, or ``# kanalyze: ignore``.

Behind ``#`` in Python, behind ``//`` or in ``/* */`` elsewhere. In Python a comment on any line of
a statement counts for all of it, so that it may stand where a formatter puts it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from kanalyze.source import SourceFile

_SUPPRESSION = re.compile(
    r"(?<!\w)kanalyze:\s*ignore(?:\s*\[([^\[\]]*)\]|(?![\w\[])(?!\s*\[))", re.I
)
_COMMENT = re.compile(r"//(.*)|/\*(.*?)\*/")


def comments_at(file: SourceFile, line: int) -> list[str]:
    """The comments that count for a line of a source file."""
    if file.path.suffix != ".py":
        text = file.line(line)
        return comments(text) if text is not None else []
    by_line, spans = file.comments
    first, last = min(
        ((a, b) for a, b in spans if a <= line <= b), key=lambda s: s[1] - s[0],
        default=(line, line),
    )  # fmt: skip
    return [by_line[number] for number in range(first, last + 1) if number in by_line]


def comments(text: str) -> list[str]:
    """The comments of a line of CUDA C++ or PTX."""
    return [comment[1] or comment[2] or "" for comment in _COMMENT.finditer(text)]


def ids_in(texts: Iterable[str]) -> Iterator[tuple[str, ...] | None]:
    """The ids that each comment leaves out; None for all."""
    for text in texts:
        for comment in _SUPPRESSION.finditer(text):
            if comment[1] is None:
                yield None
            else:
                ids = (part.strip().lower().replace("_", "-") for part in comment[1].split(","))
                yield tuple(id_ for id_ in ids if id_)


def suppressed(id_: str, texts: Iterable[str]) -> bool:
    """Whether some comments leave a finding out."""
    return any(ids is None or id_ in ids for ids in ids_in(texts))
