"""PTX text to `Module`: the one door is `parse_ptx`."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from kanalyze.errors import InputError
from kanalyze.ptx import declarations, grammar, scan
from kanalyze.ptx.body import Body, BodyReader
from kanalyze.ptx.ir import Diagnostic, Directive, Function, Module, Parameter, Pos, Variable
from kanalyze.ptx.locs import Locs
from kanalyze.ptx.recognise import looks_like

_MODULE_START = re.compile(r"^[ \t]*\.version\b", re.MULTILINE)
_PTX_START = re.compile(
    r"^[ \t]*\.(?:version|target|address_size|(?:(?:visible|extern|weak)\s+\.)?(?:entry|func))\b",
    re.MULTILINE,
)
_KIND = re.compile(r"\.(entry|func)\b")
_HEADER = re.compile(r"(?:\.(?:visible|extern|weak|common)\s+)*\.(?:entry|func)\b")
_SIMPLE = re.compile(
    r"""\.version\s+(?P<version>\d+\.\d+);?
      | \.target\s+(?P<target>\w+(?:\s*,\s*\w+)*);?
      | \.address_size\s+(?P<size>\d+);?
      | \.file\s+(?P<file>\d+)\s+"(?P<path>(?:[^"\\\r\n]|\\.)*)"
        (?:\s+"(?P<leaf>(?:[^"\\\r\n]|\\.)*)")?(?:\s*,\s*\d+\s*,\s*\d+)?;?
      | (?P<section>\.section\s+[.\w]+\s*)\{
      | (?P<nested>\.\w+_section\s*)\{
      | (?P<line>\.loc\b[^\r\n]*|@@DWARF[^\r\n]*)
    """,
    re.VERBOSE,
)
_BRACE = re.compile(r'"(?:[^"\\\r\n]|\\.)*"|//[^\r\n]*|([{}])')
_NEXT_LINE = re.compile(r"[\r\n]+[ \t]*(?=\.(?!b(?:8|16|32|64)\b))")
_CUOBJDUMP = re.compile(r"Fatbin (?:ptx|elf) code|^=+$", re.MULTILINE)


def parse_ptx(text: str, name: str = "<string>") -> Module:
    """Read PTX.

    A statement that cannot be read becomes an `Opaque` and an error in ``diagnostics``; the rest
    is delivered.

    Args:
        text: the PTX, with any line ends; a byte order mark, trailing NULs and the preamble that
            ``cuobjdump -ptx`` writes are skipped.
        name: how messages call the text.

    Raises:
        InputError: there is no PTX module in it, or more than one (see `parse_ptx_modules`).
    """
    modules = parse_ptx_modules(text, name)
    if len(modules) > 1:
        source = scan.PtxSource(text, name)
        starts = [match.start() for match in _MODULE_START.finditer(text)]
        spot = source.spot(starts[1]) if len(starts) > 1 else None
        raise InputError(
            f"found {len(modules)} PTX modules, expected one: use parse_ptx_modules", spot, name
        )
    return modules[0]


def parse_ptx_modules(text: str, name: str = "<string>") -> tuple[Module, ...]:
    """Read PTX with one module or several, as ``cuobjdump -ptx`` and ``cat`` write them.

    Raises:
        InputError: there is no PTX module in the text.
    """
    source = scan.PtxSource(text, name)
    start = 1 if text.startswith("\ufeff") else 0
    start = _blank_end(source, start)
    other = looks_like(text, start)
    if other is not None:
        first = len(text) - len(text.lstrip("\ufeff \t\r\n"))
        spot = source.spot(first if first < len(text) else 0)
        if not spot.text.isprintable():
            spot = replace(spot, text="")
        raise InputError(f"found {other}, expected PTX", spot)
    junk: tuple[int, int] | None = None
    if not text.startswith((".", "@@"), start):
        match = _PTX_START.search(text, start)
        if match is None:
            raise InputError("found no PTX, expected a '.version' directive", source.spot(start))
        junk = (start, match.start())
        start = match.start()
    with _without_collector():
        return _modules(source, start, junk)


def _modules(
    source: scan.PtxSource, start: int, junk: tuple[int, int] | None
) -> tuple[Module, ...]:
    modules: list[Module] = []
    while True:
        reader = _ModuleReader(source, start)
        if not modules and source.text.startswith("\ufeff"):
            reader.warn("found a byte order mark, which is skipped (ptxas refuses it)", 1)
        if junk is not None and not _CUOBJDUMP.search(source.text, *junk):
            reader.warn("found text before the PTX, which is skipped", junk[0])
        junk = None
        start, more = reader.read()
        modules.append(reader.module())
        if not more:
            return tuple(modules)


@contextmanager
def _without_collector() -> Iterator[None]:
    """Keep Python's cycle collector off while nodes are made.

    They form no cycles, and looking through them again and again takes longer than making them.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _blank_end(source: scan.PtxSource, start: int) -> int:
    """Return the offset behind blanks and comments."""
    match = scan.BLANK.match(source.text, start)
    end = match.end() if match else start
    if source.text.startswith("/*", end):
        raise InputError("the comment is not terminated, expected '*/'", source.spot(end))
    return end


def _closing_brace(text: str, start: int) -> int | None:
    """Return the offset behind the ``}`` that closes the ``{`` before ``start``."""
    depth = 1
    for match in _BRACE.finditer(text, start):
        depth += {"{": 1, "}": -1, None: 0}[match[1]]
        if not depth:
            return match.end()
    return None


def _unfinished(cut: scan.Cut) -> tuple[str, int]:
    """Say what a function header lacks that the text ends in: message and offset."""
    clean = cut.clean.rstrip()
    message = "found the end of the file in a function header"
    try:
        grammar.tree_of("header", clean)
    except grammar.ShapeError as error:
        if error.offset < len(clean):
            return error.message, cut.start + error.offset
        expected = error.message.partition(", expected ")[2]
        message = f"{message}, expected {expected}" if expected else message
    return message, cut.start + len(clean)


class _ModuleReader:
    """Reads one module."""

    def __init__(self, source: scan.PtxSource, start: int):
        self._source = source
        self._text = source.text
        self._start = start
        self._diagnostics: list[Diagnostic] = []
        self._version: str | None = None
        self._target: tuple[str, ...] = ()
        self._target_at = start
        self._next_ptx = -1
        self._address_size: int | None = None
        self._variables: list[Variable] = []
        self._functions: list[Function] = []
        self._directives: list[Directive] = []
        self._sections: list[Directive] = []
        self._files: dict[int, str] = {}
        self._locs = Locs()

    def warn(self, message: str, offset: int) -> None:
        """Add a warning."""
        self._diagnostics.append(Diagnostic("warning", message, self._source.pos(offset)))

    def error(self, message: str, offset: int) -> None:
        """Add an error."""
        self._diagnostics.append(Diagnostic("error", message, self._source.pos(offset)))

    def read(self) -> tuple[int, bool]:
        """Read up to the end of the module: (where it ends, whether another one follows)."""
        at = self._start
        text = self._text
        end = len(text.rstrip("\0 \t\r\n\f\v\x1a"))
        while True:
            match = scan.BLANK.match(text, at)
            at = match.end() if match else at
            if at >= end:
                return at, False
            simple = _SIMPLE.match(text, at)
            if simple is not None and simple["version"] and self._version is not None:
                return at, True
            if simple is not None:
                at = self._simple(simple)
            elif text.startswith("/*", at):
                self.error("the comment is not terminated, expected '*/'", at)
                return end, False
            elif text[at] == ".":
                at = self._statement(at)
            else:
                at = self._junk(at, end)

    def module(self) -> Module:
        """Return what was read."""
        if self._version is None:
            self.warn("found no .version directive", self._start)
        if not self._target:
            self.warn("found no .target directive", self._start)
        elif not self._target[0].startswith(("sm_", "compute_")):
            self.error(
                f"found the target {self._target[0]!r}, expected an NVIDIA one (sm_90, …)",
                self._target_at,
            )
        self._duplicates()
        self._diagnostics.sort(key=lambda diagnostic: diagnostic.pos)
        return Module(
            name=self._source.name,
            version=self._version,
            target=self._target,
            address_size=self._address_size,
            variables=tuple(self._variables),
            functions=tuple(self._functions),
            files=MappingProxyType(self._files),
            diagnostics=tuple(self._diagnostics),
            directives=tuple(self._directives),
            sections=tuple(self._sections),
            text=self._text,
        )

    def _duplicates(self) -> None:
        seen: dict[str, Function] = {}
        for function in self._functions:
            if function.body is None:
                continue
            if function.name in seen:
                first = seen[function.name].pos.line
                message = f"found a second body of {function.name!r}, the first is in line {first}"
                self._diagnostics.append(Diagnostic("warning", message, function.pos))
            seen.setdefault(function.name, function)

    def _simple(self, match: re.Match[str]) -> int:
        if match["version"]:
            self._version = match["version"]
        elif match["target"]:
            self._target_at = match.start()
            self._target = tuple(word.strip() for word in match["target"].split(","))
        elif match["size"]:
            self._address_size = int(match["size"])
        elif match["file"]:
            leaf = match["leaf"]
            inside = leaf is not None and not leaf.startswith("/")
            path = f"{match['path']}/{leaf}" if inside else leaf or match["path"]
            self._files[int(match["file"])] = path
        elif match["section"]:
            start, close = match.start(), scan.SECTION.match(self._text, match.end())
            if close is None:
                self.error("the section is not terminated, expected '}'", start)
                return len(self._text)
            text = self._text[start : close.end()]
            self._sections.append(Directive("section", text, self._source.pos(start)))
            return close.end()
        elif match["nested"]:
            end = _closing_brace(self._text, match.end())
            if end is None:
                self.error("the section is not terminated, expected '}'", match.start())
                return len(self._text)
            text = self._text[match.start() : end]
            self._sections.append(Directive("section", text, self._source.pos(match.start())))
            return end
        elif match["line"] and match["line"].startswith(".loc"):
            self._locs.read(match["line"][4:].partition("//")[0].strip(" \t;"))
        return match.end()

    def _junk(self, at: int, end: int) -> int:
        """Skip text that is no PTX; return where PTX may go on."""
        if self._next_ptx < at:
            match = _PTX_START.search(self._text, at)
            self._next_ptx = match.start() if match else end
        stop = self._next_ptx
        if stop < end and _CUOBJDUMP.search(self._text, at, min(stop, at + 1000)):
            return stop
        if self._functions and (stop >= end or _MODULE_START.match(self._text, stop)):
            self.warn("found text behind the PTX, which is skipped", at)
        else:
            word = self._text[at : at + 20].split()[0]
            self.error(f"found {word!r}, expected a directive", at)
            line = _NEXT_LINE.search(self._text, at)
            stop = min(line.end() if line else end, stop)
        return max(stop, at + 1)

    # ------------------------------------------------------------ declarations and functions

    def _statement(self, start: int) -> int:
        cut = scan.statement_at(self._text, start)
        kind = _KIND.search(cut.clean)
        following = _HEADER.search(cut.clean, kind.end()) if kind is not None else None
        if following is not None and cut.problem is None:  # a prototype without its ';'
            clean = cut.clean[: following.start()].rstrip() + ";"
            cut = scan.Cut(clean, start, start + following.start(), ";")
        if cut.problem is not None:
            self.error(cut.problem, cut.problem_at)
            return cut.end
        if cut.stop == "" and kind is not None:
            self.error(*_unfinished(cut))
            return cut.end
        if cut.stop in ("", "}") or (cut.stop == "{" and kind is None):
            stop = repr(cut.stop) if cut.stop else "the end of the file"
            where = cut.end if cut.stop else len(self._text.rstrip())
            self.error(f"found {stop} in a declaration, expected ';'", where)
            return max(self._after_line(start), cut.end) if cut.stop else cut.end
        try:
            if kind is not None:
                return self._function(cut)
            name = cut.clean[1:].split(None, 1)[0] if cut.clean[1:].strip() else ""
            pos = self._source.pos(start)
            text = self._text[start : cut.end]
            if name.split(".")[0] in declarations.SPACES | declarations.LINKAGES:
                self._variables.extend(declarations.variables(text, cut.clean, pos, 0))
            else:
                rule = {"pragma": "pragma", "alias": "targets"}.get(name, "numbers")
                declarations.bound(rule, cut.clean)
                self._directives.append(Directive(name, text, pos))
        except grammar.ShapeError as error:
            self.error(error.message, start + error.offset)
            if cut.stop == "{":  # the header of a function: leave its body out
                return self._skip_body(cut.end + 1)
        return cut.end

    def _after_line(self, at: int) -> int:
        match = _NEXT_LINE.search(self._text, at)
        return match.end() if match else len(self._text)

    def _skip_body(self, at: int) -> int:
        reader = BodyReader(self._source, Locs(), [])
        return reader.read(at).end

    def _function(self, cut: scan.Cut) -> int:
        clean = cut.clean if cut.stop == ";" else cut.clean + "{"
        statement = declarations.bound("header", clean)
        kind = name = ""
        linkage: str | None = None
        before: list[Any] = []
        after: list[Any] = []
        directives: dict[str, tuple[int, ...]] = {}
        pragmas: list[str] = []
        for child in statement.tree.children:
            data = getattr(child, "data", None)
            if data is None and child.type == "KIND":
                kind = str(child)[1:]
            elif data is None and child.type == "NAME":
                name = statement.text(child)
            elif data == "word":
                word = str(child.children[0])[1:]
                if word in declarations.LINKAGES:
                    linkage = word
            elif data == "parameters":
                (after if name else before).append(child)
            elif data == "tail":
                numbers = [statement.number(c) for c in child.children[1:] if c.type == "NUMBER"]
                directives[str(child.children[0])[1:]] = tuple(numbers)
                pragmas += [statement.text(c) for c in child.children[1:] if c.type == "STRING"]
        returns = self._parameters(statement, before, cut.start)
        formals = self._parameters(statement, after, cut.start)
        read = Body(None, (-1,), cut.end)
        if cut.stop == "{":
            self._locs.begin_function()
            reader = BodyReader(self._source, self._locs, self._diagnostics)
            read = reader.read(cut.end + 1)
        self._functions.append(
            Function(
                kind=kind,
                name=name,
                returns=returns,
                parameters=formals,
                directives=MappingProxyType(directives),
                linkage=linkage,
                body=read.statements,
                scopes=read.scopes,
                pos=self._source.pos(cut.start),
                end=self._source.pos(read.end - 1),
                pragmas=tuple(pragmas),
                attributes=declarations.attributes_of(statement.tree),
            )
        )
        return read.end

    def _parameters(
        self, statement: declarations.BoundStatement, nodes: list[Any], start: int
    ) -> tuple[Parameter, ...]:
        def place(offset: int) -> Pos:
            return self._source.pos(start + offset)

        return tuple(p for node in nodes for p in declarations.parameters(statement, node, place))
