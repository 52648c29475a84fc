"""Cutting PTX text into statements, with regular expressions.

The common statements of a body are recognised by one expression, `BODY`; anything else (comments
inside a statement, nested braces, directives) goes through `statement_at`.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

from kanalyze.errors import SourceSpot
from kanalyze.ptx.ir import Guard, Loc, Pos

_ASM_MARK = r"//[ \t]*(?:begin|end)[ ]inline[ ]asm\b"

#: Blanks and comments, except the marks around inline assembly. Repeated groups are not possessive:
#: Python before 3.11.5 matches those wrongly (gh-106052).
_BLANK = rf"(?:\s++|(?!{_ASM_MARK})//[^\r\n]*+)*"

#: The kinds of `BODY` matches, by ``match.lastindex``. One of them matches at every place: a
#: search that failed would try again behind every character of a comment.
INSTRUCTION, LOC, MARK, LABEL, OPEN, CLOSE, BLOCK_COMMENT, OTHER, END = 3, 4, 5, 6, 7, 8, 9, 10, 11

_INSTRUCTION = r"""
    (?:@(!?\s*+[%$\w]++)\s++)?
    ([A-Za-z_]\w*+(?:(?:\.|::)\w++)*)(?![\w$:%])\s*+(?!\.[A-Za-z_])
    ([^;{}":/@]*+(?:\{[^;{}":/@]*+\}[^;{}":/@]*+)*);
"""

BODY = re.compile(
    rf"""{_BLANK}(?:
        {_INSTRUCTION}
      | \.loc[ \t]++([^\r\n/;]*+);?+
      | //[ \t]*+(begin|end)[ ]inline[ ]asm[^\r\n]*+
      | ([%$\w]++)\s*+:(?!:)
      | (\{{)
      | (\}})
      | (/\*)
      | ([^\s])
      | (\Z)
    )""",
    re.VERBOSE | re.ASCII,
)

#: One instruction, in text without comments; ptxas takes blanks before a modifier, and none behind
#: the last one.
PLAIN_INSTRUCTION = re.compile(
    r"""\s*+
    (?:@(!?\s*+[%$\w]++)\s*+)?
    ([A-Za-z_]\w*+(?:\s*(?:\.|::)\w++)*)(?![\w$])
    ([^;]*+);""",
    re.VERBOSE | re.ASCII,
)

BLANK = re.compile(r"(?:\s+|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)

#: What a ``.section`` holds behind its ``{``, with the ``}``.
SECTION = re.compile(r"(?:[^}/]++|//[^\r\n]*+|/)*\}")

_PIECE = re.compile(
    r"""[^"'/(){};=]++ | (//[^\r\n]*+|/\*.*?\*/) | ("(?:[^"\\\r\n]|\\.)*") | (.)""",
    re.VERBOSE | re.DOTALL,
)
_NOT_NEWLINE = re.compile(r"[^\r\n]")
_NEWLINE = re.compile(r"\r\n|\r|\n")


class PtxSource:
    """A text with its name, and the way from an offset to line and column."""

    def __init__(self, text: str, name: str):
        self.text = text
        self.name = name
        self._starts: list[int] = []

    def pos(self, offset: int) -> Pos:
        """Return the 1-based line and column of an offset; a byte order mark has no width."""
        starts = self._line_starts()
        line = bisect_right(starts, offset)
        return Pos(line, offset - starts[line - 1] + 1)

    def spot(self, offset: int) -> SourceSpot:
        """Return the place of an offset with the text of its line, for an error."""
        pos = self.pos(offset)
        start = self._line_starts()[pos.line - 1]
        newline = _NEWLINE.search(self.text, start)
        line = self.text[start : newline.start() if newline else len(self.text)]
        return SourceSpot(self.name, pos.line, pos.column, line)

    def _line_starts(self) -> list[int]:
        if not self._starts:
            first = 1 if self.text.startswith("\ufeff") else 0
            if "\r" in self.text:
                ends: Iterable[int] = (match.end() for match in _NEWLINE.finditer(self.text))
            else:  # the same, faster
                lengths = map(len, self.text.split("\n")[:-1])
                ends = accumulate(map((1).__add__, lengths))
            self._starts = [first, *ends]
        return self._starts


class ScanContext(NamedTuple):
    """What neighbouring instructions share; ``base`` is the offset of the text of a match."""

    source: PtxSource
    loc: Loc | None
    inline_asm: bool
    scope: int
    base: int

    def attribute(self, raw: tuple[Any, ...], name: str) -> Any:
        """Return an attribute of an instruction (see `kanalyze.ptx.ir._Deferred`)."""
        _, match, bind = raw
        if name == "operands":
            return bind(match[3])
        if name == "opcode":
            return mnemonic(match)
        if name == "guard":
            return guard_of(match[1])
        if name == "pos":
            return self.source.pos(self.base + statement_start(match))
        if name in ("loc", "inline_asm", "scope"):
            return getattr(self, name)
        raise AttributeError(f"'Instruction' object has no attribute {name!r}")


class LabelContext(NamedTuple):
    """What the labels of a scope share."""

    source: PtxSource
    scope: int

    def attribute(self, raw: tuple[Any, ...], name: str) -> Any:
        """Return an attribute of a label (see `kanalyze.ptx.ir._Deferred`)."""
        _, match = raw
        if name == "name":
            return match[LABEL]
        if name == "pos":
            return self.source.pos(match.start(LABEL))
        if name == "scope":
            return self.scope
        raise AttributeError(f"'Label' object has no attribute {name!r}")


def statement_start(match: re.Match[str]) -> int:
    """Return the offset of the first character of a matched instruction."""
    return match.start(2) if match[1] is None else match.start(1) - 1


def mnemonic(match: re.Match[str]) -> str:
    """Return the full mnemonic of a matched instruction, without blanks."""
    return "".join(match[2].split())


def guard_of(text: str | None) -> Guard | None:
    """Return the guard that ``%p1`` or ``!%p1`` stands for."""
    if text is None:
        return None
    return Guard(text[1:].strip(), True) if text[0] == "!" else Guard(text)


@dataclass(frozen=True, slots=True)
class Cut:
    """A statement cut from the text.

    ``clean`` has its comments blanked out, so that offsets stay; ``stop`` is the character that
    ended it: ``;``, ``{``, ``}`` (both not consumed) or the empty string at the end of the text.
    ``problem`` tells what is unterminated, and where.
    """

    clean: str
    start: int
    end: int
    stop: str
    equals: int = -1
    problem: str | None = None
    problem_at: int = 0


def statement_at(text: str, start: int) -> Cut:
    """Cut the statement that begins at ``start``.

    It ends at a ``;`` outside strings and comments. A ``{`` ends it where it cannot belong to the
    statement: before a ``=`` and outside parentheses in a directive.
    """
    pieces: list[str] = []
    at = start
    parentheses = braces = 0
    equals = -1
    directive = text.startswith(".", start)
    pragma = re.compile(r"\.pragma\b").match(text, start) is not None
    for match in _PIECE.finditer(text, start):
        at = match.end()
        if match.lastindex is None or match.lastindex == 2:
            pieces.append(match[0])
            continue
        if match.lastindex == 1:
            pieces.append(_NOT_NEWLINE.sub(" ", match[0]))
            continue
        mark = match[0]
        if mark == "/" and text.startswith("/*", match.start()):
            return Cut("".join(pieces), start, len(text), "", equals,
                       "the comment is not terminated, expected '*/'", match.start())  # fmt: skip
        if mark == '"':
            return Cut("".join(pieces), start, len(text), "", equals,
                       "the string is not terminated, expected '\"'", match.start())  # fmt: skip
        if mark == ";" and (pragma or not _ends_with_pragma(pieces)):
            pieces.append(mark)
            return Cut("".join(pieces), start, at, ";", equals)
        if mark == "{" and not parentheses and directive and equals < 0:
            return Cut("".join(pieces), start, match.start(), "{", equals)
        if mark == "}" and braces == 0:
            return Cut("".join(pieces), start, match.start(), "}", equals)
        if mark == "=" and equals < 0:
            equals = match.start() - start
        parentheses += (mark == "(") - (mark == ")")
        braces += (mark == "{") - (mark == "}")
        pieces.append(mark)
    return Cut("".join(pieces), start, len(text), "", equals)


def _ends_with_pragma(pieces: list[str]) -> bool:
    """Tell whether a header is at the ``;`` of a ``.pragma "…";`` between it and its body."""
    return len(pieces) >= 2 and pieces[-1][:1] == '"' and ".pragma" in pieces[-2]
