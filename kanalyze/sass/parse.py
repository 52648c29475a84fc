"""Reading SASS: the listing of ``nvdisasm -c``, with or without ``-gi -gp``, or of
``cuobjdump -sass``.

The text is read line by line. One expression takes an instruction's line apart; operands are read
once per distinct text. A line of code that cannot be read becomes a `SassOpaque` and a diagnostic;
nothing raises.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kanalyze.sass import operands
from kanalyze.sass.ir import (
    Diagnostic,
    Guard,
    Operand,
    Pos,
    SassFunction,
    SassInstruction,
    SassModule,
    SassOpaque,
    SassSource,
)

_CODE = re.compile(
    r"\s*/\*(?P<address>[0-9a-fA-F]+)\*/\s+"
    r"(?:\{\s*)?"  # two instructions issued together (before Volta)
    r"(?:@(?P<negated>!?)(?P<guard>U?P(?:\d+|T))\s+)?"
    r"(?P<opcode>[A-Z][\w.:]*)"
    r"(?P<operands>[^;]*?)\s*"
    r"(?:[;}].*)?$"
)
_SCHEDULING = re.compile(r"(?:\s+[&?][\w=.{},-]+)+$")
_ANY_CODE = re.compile(r"\s*/\*(?P<address>[0-9a-fA-F]{4,})\*/\s+(?P<text>[^\s/].*)$")
_LOCATION = re.compile(
    r'\s*//## File "(?P<file>[^"]*)", line (?P<line>\d+)'
    r'(?: inlined at "(?P<at_file>[^"]*)", line (?P<at_line>\d+))?'
)
_LABEL = re.compile(r"\s*(?P<name>[^\s:/][^:]*):\s*$")
_SECTION = re.compile(r"\s*\.section\s+\.text\.(?P<name>[^,\s]+)")
_FUNCTION = re.compile(r"\s*Function\s*:\s*(?P<name>\S+)\s*$")
_TARGET = re.compile(r"\s*(?:\.target\s+|code for )(sm_\d+[af]?)\b|.*\bEF_CUDA_SM(\d+)\b")
_PIECE = re.compile(r"\(\*.*?\*\)|`\([^()]*\)\S*|\S+")


class _ListingReader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.target: str | None = None
        self.functions: list[SassFunction] = []
        self.diagnostics: list[Diagnostic] = []
        self._operands: dict[str, tuple[Operand, ...] | None] = {}
        self._lists: dict[str, tuple[Operand, ...] | None] = {}
        self._guards: dict[tuple[str, str], Guard] = {}
        self._chain: list[tuple[str, int]] = []
        self._awaited: tuple[str, int] | None = None
        self._source: SassSource | None = None
        self._ptx_line: int | None = None
        self._name: str | None = None
        self._start = Pos(1, 1)
        self._begin(None, 1)

    def _begin(self, name: str | None, number: int) -> None:
        self._instructions: list[SassInstruction] = []
        self._labels: dict[str, int] = {}
        self._pending: list[str] = []
        self._opaque: list[SassOpaque] = []
        self._chain, self._awaited, self._source, self._ptx_line = [], None, None, None
        self._name, self._start = name, Pos(number, 1)

    def _end(self) -> None:
        """Keep the function that was read, if it has any code."""
        if not (self._instructions or self._opaque):
            return
        end = self._instructions[-1].address + 1 if self._instructions else 0
        if len(self._instructions) > 1:
            end += self._instructions[-1].address - self._instructions[-2].address - 1
        for label in self._pending:
            self._labels.setdefault(label, end)
        name = self._name or ""
        self.functions.append(
            SassFunction(
                name, tuple(self._instructions), self._labels, self._start, tuple(self._opaque)
            )
        )

    def read(self) -> SassModule:
        for number, line in enumerate(self.text.splitlines(), 1):
            match = _CODE.match(line)
            if match:
                self._code(match, line, number)
            elif line and not line.isspace():
                self._other(line, number)
        self._end()
        return SassModule(self.target, tuple(self.functions), tuple(self.diagnostics), self.text)

    # ------------------------------------------------------------ code

    def _code(self, match: re.Match[str], line: str, number: int) -> None:
        address = int(match["address"], 16)
        column = match.start("opcode") + 1
        listed = self._operand_list(match["operands"])
        if listed is None:
            self._unreadable(line, number, match.start("operands") + 1, address)
            return
        guard: Guard | None = None
        if match["guard"] is not None:
            key = (match["guard"], match["negated"])
            guard = self._guards.get(key)
            if guard is None:
                guard = self._guards[key] = Guard(key[0], bool(key[1]))
        self._place(address)
        self._instructions.append(
            SassInstruction(
                address,
                match["opcode"],
                listed,
                guard,
                Pos(number, column),
                self._location(),
                self._ptx_line,
            )
        )

    def _place(self, address: int) -> None:
        for label in self._pending:
            self._labels.setdefault(label, address)
        self._pending.clear()

    def _unreadable(self, line: str, number: int, column: int, address: int) -> None:
        pos = Pos(number, column)
        self._place(address)
        self._opaque.append(SassOpaque(line.strip(), pos))
        self.diagnostics.append(
            Diagnostic("error", f"cannot read this instruction: {line.strip()[:120]}", pos)
        )

    def _operand_list(self, text: str) -> tuple[Operand, ...] | None:
        if text in self._lists:
            return self._lists[text]
        stripped = _SCHEDULING.sub("", text).strip()
        listed: list[Operand] = []
        for piece in stripped.split(", ") if stripped else []:
            one = self._operand(piece.strip())
            if one is None:
                self._lists[text] = None
                return None
            listed.extend(one)
        self._lists[text] = tuple(listed)
        return self._lists[text]

    def _operand(self, text: str) -> tuple[Operand, ...] | None:
        """Return the operand of a text, or several where blanks part them (``R4 `(.L_x_1)``)."""
        if text in self._operands:
            return self._operands[text]
        one = operands.read(text)
        several: tuple[Operand, ...] | None = None if one is None else (one,)
        if one is None and " " in text:
            pieces = [operands.read(piece) for piece in _PIECE.findall(text)]
            if all(piece is not None for piece in pieces):
                several = tuple(piece for piece in pieces if piece is not None)
        self._operands[text] = several
        return several

    # ------------------------------------------------------------ everything else

    def _other(self, line: str, number: int) -> None:
        match = _LOCATION.match(line)
        if match:
            self._locate(match)
            return
        match = _ANY_CODE.match(line)
        if match:
            self._unreadable(line, number, match.start("text") + 1, int(match["address"], 16))
            return
        match = _SECTION.match(line) or _FUNCTION.match(line)
        if match:
            self._end()
            self._begin(match["name"], number)
            return
        if line.lstrip().startswith((".section", "//-----")):
            self._end()
            self._begin(None, number)
            return
        match = _LABEL.match(line)
        if match:
            self._pending.append(match["name"])
            if self._name is None and match["name"].startswith(".text."):
                self._name = match["name"].removeprefix(".text.")
            return
        if self.target is None:
            match = _TARGET.match(line)
            if match:
                self.target = match[1] or f"sm_{match[2]}"

    def _locate(self, match: re.Match[str]) -> None:
        here = (match["file"], int(match["line"]))
        if here[0] == ".nv_debug_ptx_txt":
            self._ptx_line = here[1]
            return
        if self._awaited is None or here != self._awaited:
            self._chain = []
        self._chain.append(here)
        self._awaited = None
        if match["at_file"] is not None:
            self._awaited = (match["at_file"], int(match["at_line"]))

    def _location(self) -> SassSource | None:
        if self._chain:
            links = self._chain if self._awaited is None else [*self._chain, self._awaited]
            self._source = _linked(links)
            self._chain, self._awaited = [], None
        return self._source


def _linked(links: Sequence[tuple[str, int]]) -> SassSource | None:
    source: SassSource | None = None
    for file, line in reversed(links):
        source = SassSource(file, line, source)
    return source


def parse_sass(text: str) -> SassModule:
    """Read a listing of SASS.

    Args:
        text: what ``nvdisasm -c``, ``nvdisasm -c -gi -gp`` or ``cuobjdump -sass`` print.

    Lines that are no code, no label and no source line are passed over (directives, encodings).
    """
    return _ListingReader(text).read()
