"""Texts that say what kernels need: ``ptxas -v`` of every age, nvlink, ``cuobjdump -res-usage``.

The text may be a whole build log. Statements are found wherever they stand: behind the prefixes of
build tools, in colours, after comment marks, wrapped behind a comma, several in one line. What
lies between them is not ours and is passed over; what a tool says and nobody here understands is
listed. A number that the text does not state is None.

Source: the texts themselves, from CUDA 2 ("28+16 bytes smem": declared, and the system's own) to
13 ("used 1 barriers", "cumulative stack size", "Compile time"); nvcc's manual, "Printing Code
Generation Statistics".
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from kanalyze.errors import Unknown

_PART = (
    r",\s*(?:used\s+)?\d+(?:\+\d+)?\s+"
    r"(?:bytes\s+(?:cumulative\s+stack\s+size|[a-z]+(?:\[\d+\])?)|[a-z]+)"
)
_HEAD = r"(?P<tool>ptxas|nvlink)[\w.-]*(?:\s+[^\n;]{1,500},\s*line\s+(?P<at>\d+);)?\s+"
_STATEMENT = re.compile(
    rf"""
    Compiling\ entry\ function\ '(?P<entry>[^\n]+?)'(?:\s+for\s+'(?P<arch>[^'\n]+)'|(?=[ \t]*$))
  | Function\ properties\ for\ (?:'(?P<linked>[^\n]+?)':?(?:\s*\(target:\s*(?P<target>\w+)\))?
        | (?P<function>\S+(?:\ \S+)*?))(?=\s+\d+\ bytes\ stack|[ \t]*$)
  | (?P<stack>\d+)\ bytes\ stack\ frame(?:,\s*(?P<stores>\d+)\ bytes\ spill\ stores)?
        (?:,\s*(?P<loads>\d+)\ bytes\ spill\ loads)?
  | \b[Uu]sed\s+(?P<registers>\d+)\s+registers?(?P<parts>(?:{_PART})*)
  | Compile\ time\ =\ (?P<time>\d+(?:\.\d+)?)\ ms
  | ^[ \t]*arch\ =\ (?P<fatbin>sm_\w+)
  | ^[ \t]*Function\ (?P<dumped>\S[^\n]*):[ \t]*\n[ \t]*(?P<dump>REG:[^\n]*)
  | {_HEAD}(?P<severity>info|warning|error|fatal)[ \t]*:[ \t]*(?=(?P<said>[^\n]*))
    """,
    re.VERBOSE | re.MULTILINE,
)
_NUMBER = re.compile(r"(?:used\s+)?(\d+)(?:\+(\d+))?\s+(?:bytes\s+)?(.+)")
_ABOUT = re.compile(r"(?:function|for)\s+'([^']+)'|for entry (\S+)")
_OF_MODULE = re.compile(r"\d+ bytes gmem\b")
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_LINES = {"barriers": "barriers", "cumulative stack size": "cumulative_stack_bytes",
          "smem": "shared_bytes", "lmem": "local_bytes", "stack": "stack_bytes",
          "textures": "textures", "surfaces": "surfaces", "samplers": "samplers"}  # fmt: skip
_DUMP = {"REG": "registers", "STACK": "stack_bytes", "SHARED": "shared_bytes",
         "LOCAL": "local_bytes", "TEXTURE": "textures", "SURFACE": "surfaces",
         "SAMPLER": "samplers", "BAR": "barriers"}  # fmt: skip

SYSTEM_SHARED_BYTES = 1024
"""What ``cuobjdump`` counts of the system's own shared memory, from sm_90 on."""


@dataclass(frozen=True, slots=True)
class Message:
    """Something else that a tool said; ``function`` is the one that it names."""

    line: int
    severity: str
    text: str
    function: str | None


@dataclass(frozen=True, slots=True)
class Unread:
    """A statement that was left out, and why."""

    line: int
    text: str
    reason: str


@dataclass(frozen=True, slots=True)
class Usage:
    """What one function needs, as one statement of a text says; None: it does not say.

    Attributes:
        name: the symbol as written (mangled, where the text has it so).
        kernel: False for a device function that is called, not launched.
        tool: ``ptxas``, ``nvlink`` or ``cuobjdump``.
        architecture: for example ``sm_90a``.
        registers: 32-bit registers of a thread.
        spill_store_bytes, spill_load_bytes: bytes of the spill instructions in the code. 0 where a
            text without them states that there is no local memory at all.
        stack_bytes: stack frame of a thread; ``cumulative_stack_bytes`` with its calls.
        local_bytes: local memory of a thread (``lmem``, of ptxas before CUDA 4 and others).
        shared_bytes: static shared memory of a block.
        barriers, textures, surfaces, samplers: how many.
        constant_bytes: constant banks, each with its bytes.
        compile_ms: how long it was compiled.
        line: where the function is named in the text; ``times``: how often the same was said.
        messages: warnings and remarks that name the function.
    """

    name: str
    kernel: bool
    tool: str
    architecture: str | None
    line: int
    registers: int | None = None
    spill_store_bytes: int | None = None
    spill_load_bytes: int | None = None
    stack_bytes: int | None = None
    cumulative_stack_bytes: int | None = None
    local_bytes: int | None = None
    shared_bytes: int | None = None
    barriers: int | None = None
    textures: int | None = None
    surfaces: int | None = None
    samplers: int | None = None
    constant_bytes: tuple[tuple[int, int], ...] = ()
    compile_ms: float | None = None
    times: int = 1
    messages: tuple[Message, ...] = ()

    @property
    def local_memory_bytes(self) -> int | None:
        """Local memory of a thread, however the text calls it."""
        said = (self.stack_bytes, self.cumulative_stack_bytes, self.local_bytes)
        known = [value for value in said if value is not None]
        return max(known) if known else None


@dataclass(frozen=True, slots=True)
class Text:
    """What a text says: functions, other messages, and what could not be read."""

    usages: tuple[Usage, ...]
    messages: tuple[Message, ...]
    unread: tuple[Unread, ...]


def decoded(data: bytes) -> str:
    """The text of a file: UTF-8, or UTF-16 with its mark (PowerShell's ``>``)."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", "replace")
    return data.decode("utf-8-sig", "replace")


def read(text: str, architecture: str | None = None) -> Text:
    """Read a text; nothing is raised, whatever it is.

    Args:
        text: the text.
        architecture: of what ``cuobjdump`` wrote, where the text itself does not say.
    """
    text = _COLOURS.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    reader = _LogReader(text, architecture)
    for statement in _STATEMENT.finditer(text):
        reader.take(statement)
    return reader.whole()


@dataclass(slots=True)
class _Function:
    """A function while its statements are read."""

    name: str
    kernel: bool
    tool: str
    architecture: str | None
    at: int
    facts: dict[str, int | float] = field(default_factory=dict)
    constants: dict[int, int] = field(default_factory=dict)

    @property
    def open(self) -> bool:
        """Whether it is a kernel whose registers are still to come."""
        return self.kernel and "registers" not in self.facts


class _LogReader:
    """The statements of one text, in their order."""

    def __init__(self, text: str, architecture: str | None):
        self.starts = [0, *(m.end() for m in re.finditer("\n", text))]
        self.text = text
        self.functions: list[_Function] = []
        self.last: dict[str, _Function] = {}  # by name
        self.places: dict[str, list[int]] = {}  # all of a name
        self.entry: _Function | None = None
        self.named: _Function | None = None
        self.used: _Function | None = None
        self.fatbin = architecture
        self.messages: list[tuple[int, Message]] = []
        self.unread: list[Unread] = []

    def take(self, statement: re.Match[str]) -> None:
        """One statement."""
        at, said = statement.start(), statement.groupdict()
        if said["severity"]:
            self._said(statement)
        elif said["entry"]:
            self.entry = self.named = self._new(said["entry"], True, "ptxas", said["arch"], at)
        elif said["linked"]:
            self.entry = None
            self.named = self._new(said["linked"], True, "nvlink", said["target"], at)
        elif said["function"]:
            self._properties(said["function"].strip(), at)
        elif said["stack"]:
            self._stack(said, at)
        elif said["registers"]:
            self._used(statement)
        elif said["time"] and self.used is not None:
            self.used.facts["compile_ms"] = float(said["time"])
        elif said["fatbin"]:
            self.fatbin = said["fatbin"]
        elif said["dumped"]:
            self._dumped(said["dumped"], said["dump"], at)

    def line(self, at: int) -> int:
        """The line, from 1, of a place in the text."""
        return bisect_right(self.starts, at)

    def _new(self, name: str, kernel: bool, tool: str, arch: str | None, at: int) -> _Function:
        function = _Function(name, kernel, tool, arch, at)
        self.functions.append(function)
        self.last[name] = function
        return function

    def _properties(self, name: str, at: int) -> None:
        """A function's name before its stack: an entry's, or a device function's."""
        function = self.last.get(name)
        if function is not None and function.open and "stack_bytes" not in function.facts:
            self.named = function
            return
        architecture = self.entry.architecture if self.entry is not None else None
        self.named = self._new(name, False, "ptxas", architecture, at)

    def _stack(self, said: Mapping[str, str | None], at: int) -> None:
        if self.named is None:
            self._skip(at, "no function was named before")
            return
        keys = {"stack": "stack_bytes", "stores": "spill_store_bytes", "loads": "spill_load_bytes"}
        for short, key in keys.items():
            if (value := said[short]) is not None:
                self.named.facts[key] = int(value)

    def _used(self, statement: re.Match[str]) -> None:
        at = statement.start()
        function = self._used_by()
        if isinstance(function, Unknown):
            self._skip(at, function.reason)
            return
        self.used = function
        function.kernel = True
        function.facts["registers"] = int(statement["registers"])
        for part in re.split(r",\s*", statement["parts"])[1:]:
            number = _NUMBER.fullmatch(" ".join(part.split()))
            if number is None or not self._part(function, number):
                self._skip(at, f"of '{part}' it is not known what it counts")
        if function.tool == "ptxas":  # ptxas leaves out what a function has none of
            function.facts.setdefault("shared_bytes", 0)

    def _used_by(self) -> _Function | Unknown:
        """The function that registers belong to, or why it is not clear.

        ptxas writes them right behind the function's properties (before CUDA 4: behind its name),
        so that the lines of several processes (make -j) can be told apart by these.
        """
        named, entry = self.named, self.entry
        if named is not None and named is not entry and named.open:
            return named
        if entry is not None and entry.open:
            before = self.functions[-2] if len(self.functions) > 1 else None
            if "stack_bytes" not in entry.facts and before is not None and before.open:
                return Unknown(
                    f"it belongs to '{before.name}' or to '{entry.name}': the lines of two "
                    "compilations are mixed"
                )
            return entry
        if named is not None and not named.kernel and "registers" not in named.facts:
            return named
        return Unknown("no function was named before, or it has its registers already")

    def _part(self, function: _Function, number: re.Match[str]) -> bool:
        value, what = int(number[1]) + int(number[2] or 0), number[3]
        if bank := re.fullmatch(r"cmem\[(\d+)\]", what):
            function.constants[int(bank[1])] = value
            return True
        key = _LINES.get(what) or _LINES.get(what + "s")
        if key is not None:
            function.facts[key] = value
        return key is not None

    def _dumped(self, name: str, row: str, at: int) -> None:
        function = self._new(name, True, "cuobjdump", self.fatbin, at)
        for key, bank, number in re.findall(r"([A-Z]+)(?:\[(\d+)\])?:(\d+)", row):
            if key == "CONSTANT" and bank:
                function.constants[int(bank)] = int(number)
            elif key in _DUMP:
                function.facts[_DUMP[key]] = int(number)
            else:
                self._skip(at, f"of '{key}:{number}' it is not known what it counts")
        number = re.search(r"\d+", self.fatbin or "")
        if number is not None and int(number[0]) >= 90:
            shared = function.facts.get("shared_bytes", 0)
            function.facts["shared_bytes"] = max(0, shared - SYSTEM_SHARED_BYTES)

    def _said(self, statement: re.Match[str]) -> None:
        """What a tool said: a statement of ours is read behind its head, anything else is kept."""
        text = statement["said"].strip()
        if _STATEMENT.match(self.text, statement.end()) is not None:
            return
        if statement["severity"] == "info" and (_OF_MODULE.match(text) or not text):
            return
        about = _ABOUT.search(text)
        function = (about[1] or about[2]) if about else None
        message = Message(self.line(statement.start()), statement["severity"], text, function)
        self.messages.append((statement.start(), message))

    def _skip(self, at: int, reason: str) -> None:
        line = self.line(at)
        end = self.starts[line] - 1 if line < len(self.starts) else len(self.text)
        self.unread.append(Unread(line, self.text[self.starts[line - 1] : end].strip(), reason))

    def whole(self) -> Text:
        """Everything that was read."""
        of: dict[int, list[Message]] = {}
        general = []
        for place, function in enumerate(self.functions):
            self.places.setdefault(function.name, []).append(place)
        for at, message in self.messages:
            index = self._meant(at, message.function)
            if index is None:
                general.append(message)
            else:
                of.setdefault(index, []).append(message)
        usages = []
        for index, function in enumerate(self.functions):
            if function.facts.keys() - {"compile_ms"}:
                usages.append(self._usage(function, of.get(index, [])))
            else:
                self._skip(function.at, f"nothing is said of '{function.name}' after its name")
        return Text(tuple(_distinct(usages)), tuple(general), tuple(self.unread))

    def _meant(self, at: int, name: str | None) -> int | None:
        """The function that a message names: the next of that name, else the last before it."""
        same = self.places.get(name or "", [])
        behind = bisect_right(same, at, key=lambda index: self.functions[index].at)
        return same[min(behind, len(same) - 1)] if same else None

    def _usage(self, function: _Function, messages: Iterable[Message]) -> Usage:
        usage = Usage(
            function.name, function.kernel, function.tool, function.architecture,
            self.line(function.at), constant_bytes=tuple(sorted(function.constants.items())),
            messages=tuple(messages), **function.facts,  # type: ignore[arg-type]
        )  # fmt: skip
        silent = usage.spill_store_bytes is None and usage.spill_load_bytes is None
        if silent and usage.local_memory_bytes == 0:
            return replace(usage, spill_store_bytes=0, spill_load_bytes=0)
        return usage


def _distinct(usages: Iterable[Usage]) -> Iterator[Usage]:
    """Each statement once: a header's kernel is compiled with every file that includes it."""
    alike: dict[object, list[Usage]] = {}
    for usage in usages:
        said = tuple((message.severity, message.text) for message in usage.messages)
        key = (replace(usage, line=0, compile_ms=None, messages=()), said)
        alike.setdefault(key, []).append(usage)
    for same in alike.values():
        yield replace(same[0], times=len(same))
