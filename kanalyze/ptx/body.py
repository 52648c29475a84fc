"""The body of a function: from text to a flat tuple of statements."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from itertools import repeat
from typing import Any

from kanalyze.ptx import declarations, scan, shapes
from kanalyze.ptx.ir import (
    Diagnostic,
    Directive,
    Instruction,
    Label,
    Loc,
    Opaque,
    ScopeClose,
    ScopeOpen,
    Statement,
    _Deferred,
)
from kanalyze.ptx.locs import Locs

_DIRECTIVE = re.compile(r"\.([A-Za-z_]\w*)")
_RULES = {
    "callprototype": "prototype",
    "branchtargets": "targets",
    "calltargets": "targets",
    "alias": "targets",
    "pragma": "pragma",
}
#: Instructions made per round; bounds the text that is normalised at once.
_BATCH = 50_000

_new = object.__new__
_set_raw = _Deferred.__dict__["_raw"].__set__


@dataclass
class Body:
    """What a body gave: its statements, scopes and the offset behind its closing brace.

    A declaration has no statements (None).
    """

    statements: tuple[Statement, ...] | None
    scopes: tuple[int, ...]
    end: int


class BodyReader:
    """Reads one body; see `read`."""

    def __init__(self, source: scan.Source, locs: Locs, diagnostics: list[Diagnostic]):
        self._source = source
        self._text = source.text
        self._locs = locs
        self._diagnostics = diagnostics
        self._body: list[Any] = []
        self._scopes = [-1]
        self._stack = [0]
        self._loc: Loc | None = None
        self._asm = False
        # Instructions wait here for their shapes: matches, operand texts, what else they need.
        self._places: list[int] = []
        self._texts: list[str] = []
        self._raws: list[tuple[Any, ...]] = []

    def read(self, start: int) -> Body:
        """Read the body that begins behind the ``{`` before ``start``."""
        at = start
        end: int | None = None
        while end is None:
            at, end = self._run(at)
        self._flush()
        return Body(tuple(self._body), tuple(self._scopes), end)

    def _run(self, start: int) -> tuple[int, int | None]:
        """Read statements until one needs the slow way: (where to go on, the end of the body)."""
        source, body, stack = self._source, self._body, self._stack
        places, texts, raws = self._places, self._texts, self._raws
        locs = self._locs
        loc, asm, scope = self._loc, self._asm, stack[-1]
        for match in scan.BODY.finditer(self._text, start):
            kind = match.lastindex
            if kind == scan.INSTRUCTION:
                places.append(len(body))
                body.append(None)
                texts.append(match[3])
                raws.append((source, match, None, loc, asm, scope, 0))
                continue
            if kind == scan.LOC:
                if not asm:
                    read = locs.read(match[4].strip())
                    if read is None:
                        self._error("found an unreadable .loc, expected 'file line column'",
                                    match.start(4))  # fmt: skip
                    else:
                        loc = self._loc = read
            elif kind == scan.MARK:
                asm = self._asm = match[5] == "begin"
            elif kind == scan.LABEL:
                body.append(Label(match[6], source.pos(match.start(6)), scope))
            elif kind == scan.OPEN:
                self._scopes.append(scope)
                scope = len(self._scopes) - 1
                stack.append(scope)
                body.append(ScopeOpen(source.pos(match.start(7)), scope))
            elif kind == scan.CLOSE:
                if len(stack) == 1:
                    return match.end(), match.end()
                body.append(ScopeClose(source.pos(match.start(8)), scope))
                stack.pop()
                scope = stack[-1]
            elif kind == scan.BLOCK_COMMENT:
                close = self._text.find("*/", match.end())
                if close < 0:
                    self._error("the comment is not terminated, expected '*/'", match.start(9))
                    return len(self._text), len(self._text)
                return close + 2, None
            else:
                if len(raws) >= _BATCH:
                    self._flush()
                return self._slow(match.start(10)), None
        where = max(0, len(self._text.rstrip()))
        self._error("found the end of the file in a body, expected '}'", where)
        return len(self._text), len(self._text)

    # ------------------------------------------------------------ the slow way

    def _slow(self, start: int) -> int:
        """Read one statement that `scan.BODY` does not know; return where it ends."""
        cut = scan.statement_at(self._text, start, in_body=True)
        clean, source, scope = cut.clean, self._source, self._stack[-1]
        pos = source.pos(start)
        if cut.problem is not None:
            self._opaque(start, cut.end, cut.problem, cut.problem_at)
            return cut.end
        if cut.stop == "":
            self._opaque(start, cut.end, "found the end of the file, expected ';'",
                         len(self._text.rstrip()))  # fmt: skip
            return cut.end
        if cut.stop in "{}":
            return self._unended(cut)
        try:
            if clean.startswith("."):
                self._directive(clean, self._text[start : cut.end], pos, scope)
                return cut.end
        except shapes.ShapeError as error:
            self._opaque(start, cut.end, error.message, start + error.offset)
            return cut.end
        match = scan.PLAIN_INSTRUCTION.fullmatch(clean)
        if match is None:
            message, offset = _why_not(clean)
            self._opaque(start, cut.end, message, start + offset)
            return cut.end
        self._places.append(len(self._body))
        self._body.append(None)
        self._texts.append(match[3])
        self._raws.append((source, match, None, self._loc, self._asm, scope, start))
        return cut.end

    def _unended(self, cut: scan.Cut) -> int:
        """A statement that runs into a brace."""
        if cut.clean.startswith(".section") and cut.stop == "{":
            close = self._text.find("}", cut.end)
            return len(self._text) if close < 0 else close + 1
        if cut.clean.startswith(".file"):
            return cut.start + len(cut.clean.splitlines()[0])
        self._opaque(cut.start, cut.end, f"found {cut.stop!r}, expected ';'", cut.end)
        return cut.end + (cut.stop == "{" and not cut.clean.strip())

    def _directive(self, clean: str, text: str, pos: Any, scope: int) -> None:
        match = _DIRECTIVE.match(clean)
        if match is None:
            raise shapes.ShapeError("found '.', expected a directive", 0)
        name = match[1]
        if name == "reg":
            self._body.append(declarations.registers(clean, pos, scope))
        elif name in declarations.SPACES or name in declarations.LINKAGES:
            self._body.extend(declarations.variables(text, clean, pos, scope))
        else:
            declarations.bound(_RULES.get(name, "numbers"), clean)
            self._body.append(Directive(name, text, pos, scope))

    def _error(self, message: str, offset: int) -> None:
        self._diagnostics.append(Diagnostic("error", message, self._source.pos(offset)))

    def _opaque(self, start: int, end: int, message: str, offset: int) -> None:
        self._error(message, offset)
        text = self._text[start:end].rstrip()
        self._body.append(Opaque(text, self._source.pos(start), self._stack[-1]))

    # ------------------------------------------------------------ shapes

    def _flush(self) -> None:
        """Make the waiting instructions: every shape that is new goes through the grammar."""
        texts, raws, places, body = self._texts, self._raws, self._places, self._body
        made = list(map(_new, repeat(Instruction, len(raws))))
        known = shapes.known_binder
        ready: list[tuple[Any, ...]] = []
        for shape, raw, text in zip(shapes.shapes_of(texts), raws, texts, strict=True):
            bind = None if "(" in shape else known(shape)
            if bind is None:
                bind = self._binder(shape, raw, text)
            ready.append((raw[0], raw[1], bind, raw[3], raw[4], raw[5], raw[6]))
        deque(map(_set_raw, made, ready), maxlen=0)
        for place, instruction, raw in zip(places, made, ready, strict=True):
            body[place] = instruction if raw[2] is not None else self._unreadable(raw)
        texts.clear()
        raws.clear()
        places.clear()

    def _binder(self, shape: str, raw: tuple[Any, ...], text: str) -> Any:
        match, base = raw[1], raw[6]
        call = "(" in text and match[2].partition(".")[0] == "call"
        try:
            return shapes.binder(shape, text, call)
        except shapes.ShapeError as error:
            self._error(error.message, base + match.start(3) + error.offset)
            return None

    def _unreadable(self, raw: tuple[Any, ...]) -> Opaque:
        match, base = raw[1], raw[6]
        start = base + scan.statement_start(match)
        text = self._text[start : base + match.end()]
        return Opaque(text, self._source.pos(start), raw[5])


def _why_not(clean: str) -> tuple[str, int]:
    """Say why a statement is no instruction: message and offset."""
    try:
        shapes.tree_of("instruction", clean)
    except shapes.ShapeError as error:
        return error.message, error.offset
    return "found an unreadable statement, expected an instruction", 0
