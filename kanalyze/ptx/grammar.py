"""The grammar of PTX statements (``grammars/ptx.lark``), and in words what does not fit it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kanalyze._bundled import folder

if TYPE_CHECKING:
    from lark import Lark, Tree

STARTS = (
    "instruction", "call", "registers", "variable", "header", "prototype", "targets", "pragma",
    "numbers",
)  # fmt: skip

_MAX_DEPTH = 32
_WORD = re.compile(r"[\w$%.]+|:+")

#: How the terminals of the grammar are called in messages.
_TERMINALS = {
    "NAME": "a name",
    "NUMBER": "a number",
    "STRING": "a string",
    "DOTWORD": "a directive",
    "OPCODE": "an opcode",
    "KIND": "'.entry' or '.func'",
}


class ShapeError(Exception):
    """A statement does not fit the grammar: what is wrong, and where in the given text."""

    def __init__(self, message: str, offset: int):
        super().__init__(message)
        self.message = message
        self.offset = offset


@lru_cache(maxsize=1)
def grammar() -> Lark:
    """Return the compiled grammar (about 0.05 s, once per process)."""
    from lark import Lark

    text = (folder("grammars") / "ptx.lark").read_text(encoding="utf-8")
    return Lark(
        text,
        parser="lalr",
        start=list(STARTS),
        maybe_placeholders=False,
        propagate_positions=True,
    )


def tree_of(start: str, text: str) -> Tree[Any]:
    """Parse one statement with the grammar.

    Raises:
        ShapeError: the text does not fit; the offset is into ``text``.
    """
    from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedToken

    depth = deepest = at = 0
    for match in re.finditer(r"[\[({]|[\])}]", text):
        depth += 1 if match[0] in "[({" else -1
        if depth > deepest:
            deepest, at = depth, match.start()
    if deepest > _MAX_DEPTH:
        raise ShapeError(f"brackets are nested more than {_MAX_DEPTH} deep", at)
    try:
        return grammar().parse(text, start=start)
    except UnexpectedCharacters as error:
        where = error.pos_in_stream or 0
        word = _WORD.match(text, where)
        problem = f"found {(word[0] if word else text[where : where + 1])!r}"
        raise ShapeError(_expected(problem, error.allowed), where) from None
    except UnexpectedToken as error:
        where = error.token.start_pos
        problem = f"found {str(error.token)!r}"
        if error.token.type == "$END":
            problem, where = "found the end of the statement", len(text)
        raise ShapeError(
            _expected(problem, error.accepts or error.expected), where if where else 0
        ) from None
    except UnexpectedEOF as error:
        message = _expected("found the end of the statement", error.expected)
        raise ShapeError(message, len(text)) from None


def _expected(problem: str, terminals: Iterable[str] | None) -> str:
    """Return ``found X, expected A, B or C``."""
    lark = grammar()
    words: list[str] = []
    operators: list[str] = []
    for terminal in sorted(terminals or ()):
        if terminal in _TERMINALS:
            words.append(_TERMINALS[terminal])
            continue
        if terminal == "$END" or terminal in ("CAST",):
            continue
        if terminal == "MODULO":
            operators.append("'%'")
            continue
        pattern = lark.get_terminal(terminal).pattern
        if pattern.type == "str":
            quoted = repr(pattern.value)
            (words if pattern.value in "[](){},;:" else operators).append(quoted)
    if operators:
        words.append("an operator")
    if not words:
        return problem
    tail = words[-1] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
    return f"{problem}, expected {tail}"
