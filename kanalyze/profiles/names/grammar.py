"""Runs a family's Lark grammar over a text: the tokens with their places, or None.

The grammars hold shape only and are LALR with a contextual lexer, so that a terminal stands for a
position: ``TILE_M`` and ``TILE_N`` match the same digits, in different places. Terminals whose
name begins with ``U_`` are words whose meaning is not public. Each grammar is built when the first
name of its family comes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from kanalyze._bundled import folder

if TYPE_CHECKING:
    from lark import Lark

UNKNOWN = "U_"


@dataclass(frozen=True, slots=True)
class Token:
    """One terminal of a grammar as it stands in the text."""

    name: str
    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a grammar read: the tokens, and the one that the cut runs through (or touches)."""

    tokens: list[Token]
    partial: Token | None


def _bundled(grammar: str) -> Path:
    return folder("grammars") / "names" / f"{grammar}.lark"


@cache
def _parser(grammar: str) -> Lark:
    from lark import Lark

    path = Path(grammar) if grammar.endswith(".lark") else _bundled(grammar)
    text = path.read_text(encoding="utf-8")
    return Lark(text, parser="lalr", lexer="contextual", keep_all_tokens=True)


LIMIT = 4096
"""Longest text that a grammar reads (the longest names that libraries write are below 2,000)."""


def parse(grammar: str, text: str, cut: bool) -> Parsed | None:
    """Return the tokens of ``text``, or None when the grammar does not accept it.

    A ``cut`` text is accepted when the grammar accepts a text that begins with it, up to the word
    that the cut runs through. The token that touches the cut is not trusted: it may go on.
    """
    from lark.exceptions import UnexpectedInput

    if len(text) > LIMIT:
        return None
    parser = _parser(grammar)
    tokens: list[Token] = []
    interactive = parser.parse_interactive(text)
    at = 0
    try:
        for token in interactive.iter_parse():
            at = token.end_pos or 0
            tokens.append(Token(token.type, str(token), token.start_pos or 0, at))
        if not cut:
            interactive.feed_eof()  # type: ignore[no-untyped-call]
    except UnexpectedInput:
        if not cut or not _inside_last_word(text, at):
            return None
    partial = None
    if cut:
        while tokens and tokens[-1].end >= len(text):
            partial = tokens.pop()
    return Parsed(tokens, partial)


def _inside_last_word(text: str, at: int) -> bool:
    """Whether nothing but one unfinished word (and the separator before it) is left at ``at``."""
    return not any(mark in text[at + 1 :] for mark in "_:")
