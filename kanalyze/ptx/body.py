"""The body of a function: from text to a flat tuple of statements."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from functools import cache
from itertools import repeat
from typing import Any

from kanalyze.ptx import declarations, grammar, scan, shapes
from kanalyze.ptx.instructions import least_operands
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
#: A number that 64 bits cannot hold, in a text that is long enough for one.
_HUGE = re.compile(r"(?<![\w.$%])(?:0[xX][0-9a-fA-F]{17,}|0[bB][01]{65,}|[1-9][0-9]{20,})(?![\w.])")
_SHORT = 17
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

    def __init__(self, source: scan.PtxSource, locs: Locs, diagnostics: list[Diagnostic]):
        self._source = source
        self._text = source.text
        self._locs = locs
        self._diagnostics = diagnostics
        self._body: list[Any] = []
        self._scopes = [-1]
        self._stack = [0]
        self._loc: Loc | None = None
        self._asm = False
        # Instructions wait here for their shapes: indices in the body, matches, operand texts,
        # and what else belongs to them (see scan.Context).
        self._places: list[int] = []
        self._matches: list[re.Match[str]] = []
        self._texts: list[str] = []
        self._contexts: list[scan.ScanContext] = []

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
        places, texts = self._places, self._texts
        matches, contexts = self._matches, self._contexts
        loc, asm, scope = self._loc, self._asm, stack[-1]
        context = scan.ScanContext(source, loc, asm, scope, 0)
        for match in scan.BODY.finditer(self._text, start):
            kind = match.lastindex
            if kind == scan.INSTRUCTION:
                places.append(len(body))
                body.append(None)
                texts.append(match[3])
                matches.append(match)
                contexts.append(context)
                continue
            if kind == scan.LOC:
                if not asm:
                    loc = self._read_loc(match)
                    context = scan.ScanContext(source, loc, asm, scope, 0)
            elif kind == scan.MARK:
                asm = self._asm = match[5] == "begin"
                context = scan.ScanContext(source, loc, asm, scope, 0)
            elif kind == scan.LABEL:
                label = _new(Label)
                _set_raw(label, (scan.LabelContext(source, scope), match))
                body.append(label)
            elif kind == scan.OPEN:
                self._scopes.append(scope)
                scope = len(self._scopes) - 1
                stack.append(scope)
                context = scan.ScanContext(source, loc, asm, scope, 0)
                body.append(ScopeOpen(source.pos(match.start(7)), scope))
            elif kind == scan.CLOSE:
                if len(stack) == 1:
                    return match.end(), match.end()
                body.append(ScopeClose(source.pos(match.start(8)), scope))
                stack.pop()
                scope = stack[-1]
                context = scan.ScanContext(source, loc, asm, scope, 0)
            elif kind == scan.BLOCK_COMMENT:
                close = self._text.find("*/", match.end())
                if close < 0:
                    self._error("the comment is not terminated, expected '*/'", match.start(9))
                    return len(self._text), len(self._text)
                return close + 2, None
            elif kind == scan.END:
                break
            else:
                if len(texts) >= _BATCH:
                    self._flush()
                return self._slow(match.start(10)), None
        where = max(0, len(self._text.rstrip()))
        self._error("found the end of the file in a body, expected '}'", where)
        return len(self._text), len(self._text)

    def _read_loc(self, match: re.Match[str]) -> Loc | None:
        read = self._locs.read(match[4].strip())
        if read is None:
            message = "found an unreadable .loc, expected 'file line column'"
            self._error(message, match.start(4))
        else:
            self._loc = read
        return self._loc

    # ------------------------------------------------------------ the slow way

    def _slow(self, start: int) -> int:
        """Read one statement that `scan.BODY` does not know; return where it ends."""
        cut = scan.statement_at(self._text, start)
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
        except grammar.ShapeError as error:
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
        self._matches.append(match)
        self._contexts.append(scan.ScanContext(source, self._loc, self._asm, scope, start))
        return cut.end

    def _unended(self, cut: scan.Cut) -> int:
        """A statement that runs into a brace."""
        if cut.clean.startswith(".section") and cut.stop == "{":
            close = scan.SECTION.match(self._text, cut.end + 1)
            end = len(self._text) if close is None else close.end()
            text = self._text[cut.start : end]
            pos = self._source.pos(cut.start)
            self._body.append(Directive("section", text, pos, self._stack[-1]))
            return end
        if cut.clean.startswith(".file"):
            return cut.start + len(cut.clean.splitlines()[0])
        self._opaque(cut.start, cut.end, f"found {cut.stop!r}, expected ';'", cut.end)
        return cut.end + (cut.stop == "{" and not cut.clean.strip())

    def _directive(self, clean: str, text: str, pos: Any, scope: int) -> None:
        match = _DIRECTIVE.match(clean)
        if match is None:
            raise grammar.ShapeError("found '.', expected a directive", 0)
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
        texts, matches, contexts, body = self._texts, self._matches, self._contexts, self._body
        keys = shapes.shapes_of(texts)
        wrong = self._wrong_operands()
        binders = list(map(shapes.known_binder, keys))
        unreadable: list[tuple[int, Opaque]] = []
        for number in sorted({n for n, bind in enumerate(binders) if bind is None} | wrong.keys()):
            match, context = matches[number], contexts[number]
            try:
                if binders[number] is None:
                    call = match[2].partition(".")[0] == "call"
                    binders[number] = shapes.binder(keys[number], texts[number], call)
                if number in wrong:
                    raise grammar.ShapeError(wrong[number], match.start(2) - match.start(3))
            except grammar.ShapeError as error:
                self._error(error.message, context.base + match.start(3) + error.offset)
                unreadable.append((self._places[number], self._unreadable(match, context)))
        made = list(map(_new, repeat(Instruction, len(texts))))
        deque(map(_set_raw, made, zip(contexts, matches, binders, strict=True)), maxlen=0)
        for place, instruction in zip(self._places, made, strict=True):
            body[place] = instruction
        for place, opaque in unreadable:
            body[place] = opaque
        for waiting in (texts, matches, contexts, self._places):
            waiting.clear()

    def _wrong_operands(self) -> dict[int, str]:
        """What is wrong with the operands of waiting instructions, whatever their shape."""
        wrong: dict[int, str] = {}
        for number, (match, text) in enumerate(zip(self._matches, self._texts, strict=True)):
            least, address = _least(match[2])
            if text.count(",") + 1 < least or (address and "[" not in text):
                expected = f"at least {least} operands{', one in [ ]' if address else ''}"
                given = text.strip() or "none"
                wrong[number] = f"found {given[:40]!r} behind {match[2][:40]}, expected {expected}"
            elif len(text) > _SHORT and _HUGE.search(text):
                wrong[number] = "found a number of more than 64 bits"
        return wrong

    def _unreadable(self, match: re.Match[str], context: scan.ScanContext) -> Opaque:
        start = context.base + scan.statement_start(match)
        text = self._text[start : context.base + match.end()]
        return Opaque(text, self._source.pos(start), context.scope)


def _why_not(clean: str) -> tuple[str, int]:
    """Say why a statement is no instruction: message and offset."""
    try:
        grammar.tree_of("instruction", clean)
    except grammar.ShapeError as error:
        return error.message, error.offset
    return "found an unreadable statement, expected an instruction", 0


@cache
def _least(opcode: str) -> tuple[int, bool]:
    """How many operands an instruction has at least, and whether one of them is an address."""
    return least_operands("".join(opcode.split()))
