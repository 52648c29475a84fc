"""A small interpreter of PTX: runs blocks of a kernel and records every memory access.

It shares no code with the package under test. All threads of a block run together, as numpy
arrays with one entry per thread; threads that part at a branch form groups, and the group with the
smallest program counter runs first, so that they meet again where paths join.

Simplifications, none of which touches an address: products of matrices (mma, wgmma, tcgen05) give
zeros, asynchronous copies happen at once, an mbarrier is always complete. Generic addresses are
the same numbers as those of the space. An instruction that is not known raises `PtxError`, and so
do accesses out of bounds or misaligned, with the line.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

U64 = np.uint64
WARP = 32
SHARED_BASE = 0x400
LOCAL_BASE = 0x1000_0000
VARIABLE_BASE = 0x0010_0000_0000
GLOBAL_BASE = 0x7F10_0000_0000
GLOBAL_STRIDE = 0x0003_0000_0100
DYNAMIC_SHARED = 227 * 1024
STEP_LIMIT = 3_000_000


class PtxError(Exception):
    """The program does something that is wrong or not known; the message names the line."""


# ---------------------------------------------------------------- reading


@dataclass(frozen=True)
class Op:
    """An operand: ``reg``, ``imm``, ``special``, ``variable``, ``mem``, ``list``…"""

    kind: str
    name: str = ""
    value: int = 0
    items: tuple[Op, ...] = ()
    negated: bool = False


@dataclass
class Instruction:
    """One statement; ``target`` is the index that a branch jumps to."""

    line: int
    opcode: str
    parts: tuple[str, ...]
    operands: list[Op]
    guard: Op | None
    target: int = -1
    run: Any = None


@dataclass
class Variable:
    """A variable in memory: ``size`` None if it is as long as the launch says."""

    name: str
    space: str
    align: int
    size: int | None
    data: bytes = b""
    address: int = 0


@dataclass
class Program:
    """An entry function, decoded."""

    name: str
    parameters: list[tuple[str, str, int]]  # name, type, bytes
    instructions: list[Instruction]
    variables: dict[str, Variable]
    widths: dict[str, int]
    loops: dict[int, set[int]]  # first statement of a natural loop to its statements
    written: set[str]  # registers that some statement writes


def _strip_comments(text: str) -> str:
    def blank(match: re.Match[str]) -> str:
        return "".join(c if c == "\n" else " " for c in match[0])

    return re.sub(r"//[^\n]*|/\*.*?\*/", blank, text, flags=re.S)


def _bits(kind: str) -> int:
    if kind == "pred":
        return 1
    found = re.fullmatch(r"(?:[busf]|bf|tf)(\d+)(x2)?", kind)
    if not found:
        raise PtxError(f"type .{kind}")
    return int(found[1]) * (2 if found[2] else 1)


_VARIABLE = re.compile(
    r"\s*(?:\.(?:extern|visible|weak|common)\s+)?\.(global|shared|const|local)\s+"
    r"(?:\.attribute\([^)]*\)\s*)?(?:\.align\s+(\d+)\s+)?(?:\.ptr\s+)?(?:\.v\d\s+)?\.(\w+)\s+([\w$%.]+)\s*"
    r"((?:\[\s*\d*\s*\])*)\s*(?:=\s*([^;]+))?$"
)


def _variable(statement: str) -> Variable | None:
    found = _VARIABLE.match(statement)
    if not found:
        return None
    space, align, kind, name, extents, initial = found.groups()
    width = _bits(kind) // 8
    size: int | None = width
    for extent in re.findall(r"\[\s*(\d*)\s*\]", extents):
        size = None if extent == "" or size is None else size * int(extent)
    data = b""
    if initial is not None and re.fullmatch(r"[\s{},\dxa-fA-F+-]*", initial):
        numbers = [int(n, 0) for n in re.findall(r"-?(?:0x[0-9a-fA-F]+|\d+)", initial)]
        data = b"".join((n & (1 << 8 * width) - 1).to_bytes(width, "little") for n in numbers)
        size = len(data) if size is None else size
    return Variable(name, space, int(align or width), size, data)


def _split(text: str) -> list[str]:
    """Operands: split at commas outside of brackets."""
    parts, depth, current = [], 0, ""
    for c in text:
        depth += (c in "[{(") - (c in "]})")
        if c == "," and depth == 0:
            parts.append(current.strip())
            current = ""
        else:
            current += c
    if current.strip():
        parts.append(current.strip())
    return parts


class _Scope:
    def __init__(self, parent: _Scope | None, number: int):
        self.parent = parent
        self.number = number
        self.registers: dict[str, str] = {}
        self.ranges: dict[str, tuple[int, str]] = {}
        self.labels: dict[str, int] = {}
        self.parameters: dict[str, str] = {}  # in memory, by name: the variable for their bytes

    def parameter(self, name: str) -> str | None:
        """The variable that holds the bytes of a parameter that is passed in memory."""
        scope: _Scope | None = self
        while scope is not None and name not in scope.parameters:
            scope = scope.parent
        return None if scope is None else scope.parameters[name]

    def register(self, name: str) -> tuple[str, int] | None:
        """Unique name and width of a register that is declared here or further out."""
        scope: _Scope | None = self
        stem = name.rstrip("0123456789")
        while scope is not None:
            kind = scope.registers.get(name)
            if kind is None and stem in scope.ranges and stem != name:
                count, of_range = scope.ranges[stem]
                kind = of_range if int(name[len(stem) :]) < count else None
            if kind is not None:
                return (f"{name}#{scope.number}" if scope.number else name), _bits(kind)
            scope = scope.parent
        return None

    def label(self, name: str) -> int | None:
        scope: _Scope | None = self
        while scope is not None:
            if name in scope.labels:
                return scope.labels[name]
            scope = scope.parent
        return None


def parse(ptx: str, kernel: str) -> Program:
    """Decode one entry of a module."""
    text = _strip_comments(ptx)
    entry = re.search(rf"\.entry\s+{re.escape(kernel)}\s*(\(|\{{|\.)", text)
    if entry is None:
        raise PtxError(f"no entry {kernel}")
    variables: dict[str, Variable] = {}
    depth, start = 0, 0
    for position, c in enumerate(text):  # statements outside of functions
        depth += (c in "{(") - (c in "})")
        if (c == ";" and depth == 0) or (c == "}" and depth == 0):
            statement = text[start:position]
            at = re.search(r"\.(?:extern|visible|weak|common|global|shared|const)\b", statement)
            found = _variable(statement[at.start() :]) if at and c == ";" else None
            if found:
                variables[found.name] = found
            start = position + 1
    position = entry.start(1)
    parameters: list[tuple[str, str, int]] = []
    if text[position] == "(":
        close = text.index(")", position)
        parameters = [_formal(item) for item in _split(text[position + 1 : close])]
        position = close + 1
    position = text.index("{", position) + 1
    return _Body(kernel, text, position, parameters, variables).program


def _formal(item: str) -> tuple[str, str, int]:
    """Name, type and bytes of a parameter."""
    words = item.split()
    kind = next(w[1:] for w in words if re.fullmatch(r"\.(?:pred|(?:[busf]|bf)\d+)", w))
    name, _, extent = words[-1].partition("[")
    return name, kind, -(-_bits(kind) // 8) * (int(extent.rstrip("]")) if extent else 1)


def natural_loops(instructions: list[Instruction]) -> dict[int, set[int]]:
    """First statement of each natural loop to all its statements (by the textbook)."""
    count = len(instructions)
    starts = {0} | {i.target for i in instructions if i.target >= 0}
    for index, instruction in enumerate(instructions):
        if instruction.parts[0] in ("bra", "ret", "exit", "trap"):
            starts.add(index + 1)
    blocks = sorted(s for s in starts if s < count)
    ends = {start: end for start, end in zip(blocks, [*blocks[1:], count], strict=True)}
    after: dict[int, list[int]] = {}
    for start in blocks:
        last = instructions[ends[start] - 1]
        following = [ends[start]] if ends[start] < count else []
        if last.parts[0] == "bra":
            after[start] = [last.target, *(following if last.guard else [])]
        elif last.parts[0] in ("ret", "exit", "trap") and last.guard is None:
            after[start] = []
        else:
            after[start] = following
        after[start] = [s for s in after[start] if s < count]
    reachable, stack = {0}, [0]
    while stack:
        for successor in after[stack.pop()]:
            if successor not in reachable:
                reachable.add(successor)
                stack.append(successor)
    before: dict[int, list[int]] = {b: [] for b in reachable}
    for block in reachable:
        for successor in after[block]:
            before[successor].append(block)
    dominators = {b: set(reachable) for b in reachable} | {0: {0}}
    changed = True
    while changed:
        changed = False
        for block in sorted(reachable - {0}):
            new = {block} | set.intersection(*(dominators[p] for p in before[block]))
            if new != dominators[block]:
                dominators[block], changed = new, True
    loops: dict[int, set[int]] = {}
    for block in reachable:
        for header in after[block]:
            if header not in dominators[block]:
                continue
            body, stack = {header}, [block]
            while stack:
                inside = stack.pop()
                if inside not in body:
                    body.add(inside)
                    stack.extend(before[inside])
            statements = loops.setdefault(header, set())
            for inside in body:
                statements.update(range(inside, ends[inside]))
    return loops


class _Body:
    def __init__(
        self,
        name: str,
        text: str,
        position: int,
        parameters: list[tuple[str, str, int]],
        variables: dict[str, Variable],
    ):
        self.text = text
        self.parameters = {p[0] for p in parameters}
        self.variables = variables
        self.widths: dict[str, int] = {}
        self.instructions: list[Instruction] = []
        self.lines = [m.start() for m in re.finditer("\n", text)]
        self.scopes = 0
        jumps = self._read(position, _Scope(None, 0))
        for instruction, label, scope in jumps:
            target = scope.label(label)
            if target is None:
                raise PtxError(f"line {instruction.line}: no label {label}")
            instruction.target = target
        loops = natural_loops(self.instructions)
        written = {
            o.name for i in self.instructions for first in i.operands[:1]
            for o in (first.items if first.kind in ("list", "pair") else (first,))
            if o.kind == "reg"
        }  # fmt: skip
        self.program = Program(
            name, parameters, self.instructions, variables, self.widths, loops, written
        )

    def _line(self, position: int) -> int:
        return int(np.searchsorted(self.lines, position)) + 1

    def _read(
        self, position: int, scope: _Scope, returns: list[Instruction] | None = None
    ) -> list[tuple[Instruction, str, _Scope]]:
        """Read a body; ``returns`` collects the ``ret`` of a called one."""
        text, outermost = self.text, scope.parent
        jumps = []
        while True:
            while text[position].isspace():
                position += 1
            if text[position] == "{":
                self.scopes += 1
                scope = _Scope(scope, self.scopes)
                position += 1
                continue
            if text[position] == "}":
                if scope.parent is outermost:
                    return jumps
                assert scope.parent is not None
                scope = scope.parent
                position += 1
                continue
            if text[position] == ";":
                position += 1
                continue
            label = re.compile(r"([\w$%.]+)\s*:(?!:)").match(text, position)
            if label:
                scope.labels[label[1]] = len(self.instructions)
                position = label.end()
                continue
            if re.compile(r"\.loc\s").match(text, position):
                position = text.index("\n", position)
                continue
            end = text.index(";", position)
            statement, line = text[position:end], self._line(position)
            position = end + 1
            if statement.startswith("."):
                self._directive(statement, scope)
                continue
            instruction = self._instruction(statement, line, scope)
            if instruction.parts[0] == "call":
                jumps += self._call(statement, instruction, scope)
                continue
            if instruction.parts[0] == "ret" and returns is not None:
                instruction.opcode, instruction.parts = "bra", ("bra",)
                returns.append(instruction)
            elif instruction.parts[0] == "bra":
                jumps.append((instruction, statement.split()[-1], scope))
            self.instructions.append(instruction)

    def _call(
        self, statement: str, call: Instruction, scope: _Scope
    ) -> list[tuple[Instruction, str, _Scope]]:
        """A called function: its bytes of parameters are local memory, its body stands here."""
        found = re.search(
            r"call\S*\s+(?:\(([^)]*)\)\s*,)?\s*([\w$]+)\s*(?:,\s*\(([^)]*)\))?", statement
        )
        assert found is not None
        head = re.search(
            rf"\.func\s*(?:\(([^)]*)\))?\s*{re.escape(found[2])}\s*(?:\(([^)]*)\))?[^;{{]*\{{",
            self.text,
        )
        if head is None:
            raise PtxError(f"line {call.line}: {found[2]} has no body")
        skip = None
        if call.guard is not None:
            guard = Op("reg", call.guard.name, negated=not call.guard.negated)
            skip = Instruction(call.line, "bra", ("bra",), [], guard)
            self.instructions.append(skip)
        self.scopes += 1
        inner = _Scope(None, self.scopes)
        pairs = []
        for formals, actuals in ((head[2], found[3]), (head[1], found[1])):
            some = []
            for formal, actual in zip(_split(formals or ""), _split(actuals or ""), strict=True):
                name, kind, size = _formal(formal)
                if ".reg" in formal:
                    inner.registers[name] = kind
                else:
                    self._bytes(inner, name, size)
                some.append((name, kind, size, actual))
            pairs.append(some)
        for name, kind, size, actual in pairs[0]:
            self._copy(call.line, (inner, name), (scope, actual), kind, size)
        returns: list[Instruction] = []
        jumps = self._read(head.end(), inner, returns)
        for instruction in returns:
            instruction.target = len(self.instructions)
        for name, kind, size, actual in pairs[1]:
            self._copy(call.line, (scope, actual), (inner, name), kind, size)
        if skip is not None:
            skip.target = len(self.instructions)
        return jumps

    def _bytes(self, scope: _Scope, name: str, size: int) -> None:
        variable = f"{name}#{scope.number}"
        scope.parameters[name] = variable
        self.variables[variable] = Variable(variable, "local", 16, size)

    def _copy(
        self, line: int, to: tuple[_Scope, str], origin: tuple[_Scope, str], kind: str, size: int
    ) -> None:
        """Copy a parameter byte by byte, or from or to a register."""
        target, source = to[0].parameter(to[1]), origin[0].parameter(origin[1])

        def add(opcode: str, *operands: Op) -> None:
            parts = tuple(opcode.split("."))
            self.instructions.append(Instruction(line, opcode, parts, list(operands), None))

        def at(variable: str, offset: int) -> Op:
            return Op("mem", "", offset, (Op("variable", variable),))

        if target is not None and source is not None:
            self.widths["copied#"] = 32
            for offset in range(size):
                add("ld.param.b8", Op("reg", "copied#"), at(source, offset))
                add("st.param.b8", at(target, offset), Op("reg", "copied#"))
        elif target is not None:
            add(f"st.param.{kind}", at(target, 0), self._operand(origin[1], origin[0]))
        elif source is not None:
            add(f"ld.param.{kind}", self._operand(to[1], to[0]), at(source, 0))
        else:
            add(f"mov.{kind}", self._operand(to[1], to[0]), self._operand(origin[1], origin[0]))

    def _directive(self, statement: str, scope: _Scope) -> None:
        if statement.startswith(".reg"):
            words = statement.replace(",", " ").split()
            kind = words[1][1:]
            for name in words[2:]:
                found = re.fullmatch(r"([\w$%.]+?)<(\d+)>", name)
                if found:
                    scope.ranges[found[1]] = (int(found[2]), kind)
                else:
                    scope.registers[name] = kind
            return
        found = _variable(statement)
        if found:
            self.variables[found.name] = found
        elif statement.startswith(".param"):
            name, _, size = _formal(statement)
            self._bytes(scope, name, size)
        elif not statement.startswith((".pragma", ".branchtargets", ".callprototype")):
            raise PtxError(f"directive {statement}")

    def _instruction(self, statement: str, line: int, scope: _Scope) -> Instruction:
        guard = None
        found = re.match(r"@(!?)\s*([\w$%.]+)\s+", statement)
        if found:
            guard = self._operand(found[1] + found[2], scope)
            statement = statement[found.end() :]
        opcode, _, rest = statement.strip().partition(" ")
        tab = re.match(r"(\S+)\s*(.*)", statement.strip(), re.S)
        assert tab is not None
        opcode, rest = tab[1], tab[2]
        parts = tuple(opcode.split("."))
        operands = [] if parts[0] in ("bra", "call") else [
            self._operand(o, scope) for o in _split(rest)
        ]  # fmt: skip
        return Instruction(line, opcode, parts, operands, guard)

    def _operand(self, text: str, scope: _Scope) -> Op:
        text = text.strip()
        if text.startswith("!"):
            inner = self._operand(text[1:], scope)
            return Op(inner.kind, inner.name, inner.value, inner.items, True)
        if text.startswith("["):
            inside = text[1 : text.rindex("]")].strip()
            found = re.fullmatch(r"([\w$%.]+)\s*(?:([+-])\s*(-?\w+))?", inside)
            if not found:
                return Op("list", items=tuple(self._operand(o, scope) for o in _split(inside)))
            offset = int(found[3].rstrip("U"), 0) if found[3] else 0
            return Op("mem", "", -offset if found[2] == "-" else offset,
                      (self._operand(found[1], scope),))  # fmt: skip
        if text.startswith("{"):
            return Op("list", items=tuple(self._operand(o, scope) for o in _split(text[1:-1])))
        if text == "_":
            return Op("sink")
        if re.fullmatch(r"0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}", text):
            return Op("imm", value=int(text[2:], 16))
        if re.fullmatch(r"[+-]?(0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)[uU]?", text):
            number = text.rstrip("uU")
            octal = re.fullmatch(r"([+-]?)0([0-7]+)", number)
            return Op("imm", value=int(octal[1] + octal[2], 8) if octal else int(number, 0))
        if "|" in text:
            return Op("pair", items=tuple(self._operand(o, scope) for o in text.split("|")))
        register = scope.register(text)
        if register is not None:
            self.widths[register[0]] = register[1]
            return Op("reg", register[0])
        if (parameter := scope.parameter(text)) is not None:
            return Op("variable", parameter)
        if text in self.variables or text in self.parameters:
            return Op("variable", text)
        if text.startswith("%"):
            return Op("special", text[1:])
        return Op("variable", text)


# ---------------------------------------------------------------- what is recorded


@dataclass
class Access:
    """A memory instruction executed once by the threads of a block that stand at it.

    Attributes:
        line, opcode: the statement.
        block: index of the block.
        ordinal: how often the block had come to this statement before.
        addresses: of each thread (meaningless where it is not active).
        shared: for copies, the addresses on the shared side.
        bytes: moved by one thread.
        reached: the threads that came to the statement.
        active: those of them that executed it (not masked off by a guard).
        source_size: for ``cp.async``, the bytes that each thread reads.
        iterations: line of the first statement of a loop to the iteration of each thread.
    """

    line: int
    opcode: str
    block: tuple[int, int, int]
    ordinal: int
    addresses: np.ndarray
    bytes: int
    reached: np.ndarray
    active: np.ndarray
    shared: np.ndarray | None = None
    source_size: np.ndarray | None = None
    iterations: dict[int, np.ndarray] = field(default_factory=dict)


@dataclass
class Branch:
    """A predicated branch executed once by the threads that stand at it, and those that take it."""

    line: int
    reached: np.ndarray
    taken: np.ndarray


@dataclass
class Passes:
    """How often each thread of a block entered a loop, and how often it came to its start."""

    entered: np.ndarray
    started: np.ndarray


@dataclass
class Trace:
    """What a run did. ``bases`` has the value of each parameter (addresses for arrays)."""

    accesses: list[Access]
    bases: list[Any]
    variables: dict[str, int]
    loops: dict[tuple[tuple[int, int, int], int], Passes]
    steps: int = 0
    branches: list[Branch] = field(default_factory=list)


# ---------------------------------------------------------------- memory


@dataclass
class _Buffer:
    base: int
    data: np.ndarray  # bytes; two-dimensional, a row per thread, for local memory
    space: str


class _Memory:
    def __init__(self) -> None:
        self.buffers: list[_Buffer] = []

    def add(self, base: int, data: np.ndarray, space: str) -> None:
        self.buffers.append(_Buffer(base, data, space))

    def _places(
        self, space: str, addresses: np.ndarray, size: int, line: int
    ) -> list[tuple[_Buffer, np.ndarray, np.ndarray]]:
        """Buffers with the lanes that lie in them and where."""
        left = np.ones(len(addresses), bool)
        places = []
        if size & (size - 1) == 0 and (addresses % U64(size)).any():
            bad = addresses[addresses % U64(size) != 0][0]
            raise PtxError(f"line {line}: misaligned address {int(bad):#x} for {size} bytes")
        for buffer in self.buffers:
            if space != "generic" and buffer.space != space:
                continue
            offsets = addresses - U64(buffer.base)
            length = buffer.data.shape[-1]
            if length < size:
                continue
            inside = left & (addresses >= buffer.base) & (offsets <= length - size)
            if inside.any():
                places.append((buffer, inside, offsets[inside].astype(np.int64)))
                left &= ~inside
                if not left.any():
                    return places
        bad = addresses[left][0]
        raise PtxError(f"line {line}: address {int(bad):#x} of {space} memory is out of bounds")

    def load(
        self, space: str, addresses: np.ndarray, lanes: np.ndarray, size: int, line: int
    ) -> np.ndarray:
        """Bytes (lanes × size) at the addresses; ``lanes`` are thread numbers."""
        result = np.zeros((len(addresses), size), np.uint8)
        steps = np.arange(size)
        for buffer, inside, offsets in self._places(space, addresses, size, line):
            index = offsets[:, None] + steps
            if buffer.data.ndim == 2:
                result[inside] = buffer.data[lanes[inside][:, None], index]
            else:
                result[inside] = buffer.data[index]
        return result

    def store(
        self, space: str, addresses: np.ndarray, lanes: np.ndarray, data: np.ndarray, line: int
    ) -> None:
        """Store bytes (lanes × size)."""
        steps = np.arange(data.shape[1])
        for buffer, inside, offsets in self._places(space, addresses, data.shape[1], line):
            index = offsets[:, None] + steps
            if buffer.data.ndim == 2:
                buffer.data[lanes[inside][:, None], index] = data[inside]
            else:
                buffer.data[index] = data[inside]


def _to_bytes(values: np.ndarray, size: int) -> np.ndarray:
    return np.ascontiguousarray(values.astype("<u8")).view(np.uint8).reshape(-1, 8)[:, :size]


def _from_bytes(data: np.ndarray) -> np.ndarray:
    wide = np.zeros((len(data), 8), np.uint8)
    wide[:, : data.shape[1]] = data
    return wide.view("<u8")[:, 0].astype(U64)


# ---------------------------------------------------------------- numbers


def _mask(x: np.ndarray, bits: int) -> np.ndarray:
    return x if bits == 64 else x & U64((1 << bits) - 1)


def _signed(x: np.ndarray, bits: int) -> np.ndarray:
    """Lanes as signed numbers, sign-extended from ``bits``."""
    shift = np.int64(64 - bits)
    return (x.astype(np.int64) << shift) >> shift


def _float(x: np.ndarray, kind: str) -> np.ndarray:
    match kind:
        case "f64":
            return x.view(np.float64)
        case "f32" | "tf32":
            return x.astype(np.uint32).view(np.float32)
        case "f16":
            return x.astype(np.uint16).view(np.float16).astype(np.float32)
        case "bf16":
            return (x.astype(np.uint32) << np.uint32(16)).view(np.float32)
    raise PtxError(f"floating-point type .{kind}")


def _raw(x: np.ndarray, kind: str) -> np.ndarray:
    """The bits of floating-point lanes."""
    match kind:
        case "f64":
            return np.ascontiguousarray(x, np.float64).view(U64)
        case "f32" | "tf32":
            return np.ascontiguousarray(x, np.float32).view(np.uint32).astype(U64)
        case "f16":
            return np.ascontiguousarray(x.astype(np.float16)).view(np.uint16).astype(U64)
        case "bf16":
            word = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(U64)
            rounded = (word + U64(0x7FFF) + ((word >> U64(16)) & U64(1))) >> U64(16)
            return np.where(np.isnan(x), U64(0x7FFF), rounded & U64(0xFFFF))
    raise PtxError(f"floating-point type .{kind}")


def _is_float(kind: str) -> bool:
    return re.fullmatch(r"(f16|bf16|f32|f64|tf32)(x2)?", kind) is not None


def _trunc_div(a: np.ndarray, b: np.ndarray, bits: int, signed: bool) -> np.ndarray:
    """Quotient towards zero; of a division by zero: all ones."""
    if not signed:
        return np.where(b == 0, U64(2**64 - 1), a // np.where(b == 0, U64(1), b))
    x, y = _signed(a, bits), _signed(b, bits)
    magnitude = np.abs(x).view(U64) // np.where(y == 0, U64(1), np.abs(y).view(U64))
    quotient = np.where((x < 0) != (y < 0), U64(0) - magnitude, magnitude)
    return np.where(y == 0, U64(2**64 - 1), quotient)


def _high(a: np.ndarray, b: np.ndarray, bits: int, signed: bool) -> np.ndarray:
    if signed:
        x = [int(v) for v in _signed(a, bits)]
        y = [int(v) for v in _signed(b, bits)]
    else:
        x, y = [int(v) for v in a], [int(v) for v in b]
    return np.array([((p * q) >> bits) & (2**64 - 1) for p, q in zip(x, y, strict=True)], U64)


_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
_UNSIGNED_COMPARE = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
_BOOLEAN: dict[str, Callable[[Any, Any], Any]] = {
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
}
_FLOAT_UNARY: dict[str, Callable[[Any], Any]] = {
    "neg": lambda a: -a,
    "abs": np.abs,
    "sqrt": np.sqrt,
    "rsqrt": lambda a: 1 / np.sqrt(a),
    "rcp": lambda a: 1 / a,
    "ex2": np.exp2,
    "lg2": np.log2,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
}
_FLOAT_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "copysign": lambda a, b: np.copysign(b, a),
}
_NOTHING = (
    "fence", "membar", "prefetch", "prefetchu", "discard", "applypriority", "nanosleep",
    "griddepcontrol", "setmaxnreg", "pmevent", "cp.async.commit_group", "cp.async.wait_group",
    "cp.async.wait_all", "cp.async.mbarrier", "bar.warp", "bar.arrive", "barrier.cluster",
    "wgmma.fence", "wgmma.commit_group", "wgmma.wait_group", "mbarrier.init", "mbarrier.inval",
    "mbarrier.expect_tx", "tcgen05.relinquish_alloc_permit", "tcgen05.dealloc", "tcgen05.wait",
    "tcgen05.st", "tcgen05.mma", "tcgen05.commit", "tcgen05.cp", "tcgen05.fence", "tcgen05.shift",
)  # fmt: skip


# ---------------------------------------------------------------- a block


class _Block:
    """Runs one block."""

    def __init__(
        self,
        program: Program,
        memory: _Memory,
        trace: Trace,
        grid: tuple[int, int, int],
        shape: tuple[int, int, int],
        index: tuple[int, int, int],
        parameters: dict[str, bytes],
    ):
        self.program = program
        self.memory = memory
        self.trace = trace
        self.index = index
        self.parameters = parameters
        n = self.n = shape[0] * shape[1] * shape[2]
        self.threads = np.arange(n)
        self.lane = self.threads % WARP
        self.specials: dict[str, np.ndarray] = {}
        linear = self.threads
        tid = (linear % shape[0], linear // shape[0] % shape[1], linear // (shape[0] * shape[1]))
        for axis, letter in enumerate("xyz"):
            self._special(f"tid.{letter}", tid[axis])
            self._special(f"ntid.{letter}", shape[axis])
            self._special(f"ctaid.{letter}", index[axis])
            self._special(f"nctaid.{letter}", grid[axis])
            self._special(f"clusterid.{letter}", index[axis])
            self._special(f"nclusterid.{letter}", grid[axis])
            self._special(f"cluster_ctaid.{letter}", 0)
            self._special(f"cluster_nctaid.{letter}", 1)
        self._special("cluster_ctarank", 0)
        self._special("cluster_nctarank", 1)
        self._special("laneid", self.lane)
        self._special("warpid", self.threads // WARP)
        self._special("nwarpid", -(-n // WARP))
        self._special("smid", 0)
        for name in ("clock", "clock64", "globaltimer"):
            self._special(name, 0)
        one = self.lane.astype(U64)
        self._special("lanemask_eq", U64(1) << one)
        self._special("lanemask_lt", (U64(1) << one) - U64(1))
        self._special("lanemask_le", (U64(2) << one) - U64(1))
        self.registers: dict[str, np.ndarray] = {}
        self.constants: dict[int, np.ndarray] = {}
        self.counts: dict[int, int] = {}
        self.carry = np.zeros(n, U64)
        zeros = np.zeros(n, np.int64)
        self.iterations = {h: zeros.copy() for h in program.loops}
        self.passes = {h: Passes(zeros.copy(), zeros.copy()) for h in program.loops}
        self.active = np.ones(n, bool)
        self.reached = self.active
        self.all = True
        self.now = program.instructions[0] if program.instructions else None

    def _special(self, name: str, value: Any) -> None:
        self.specials[name] = np.broadcast_to(np.asarray(value), (self.n,)).astype(U64)

    # ------------------------------------------------------------ scheduling

    def run(self) -> None:
        instructions = self.program.instructions
        groups: dict[int, np.ndarray] = {0: np.ones(self.n, bool)}
        self._arrive(0, groups[0], -1)
        waiting: dict[int, list[tuple[int, np.ndarray, int]]] = {}
        steps = 0
        while groups or waiting:
            if not groups:
                for barrier in list(waiting):
                    for pc, mask, _ in waiting.pop(barrier):
                        self._join(groups, pc, mask, pc - 1)
            pc = min(groups)
            mask = groups.pop(pc)
            if pc >= len(instructions):
                continue
            steps += 1
            if steps > STEP_LIMIT:
                raise PtxError(f"line {instructions[pc].line}: no end after {steps} steps")
            instruction = self.now = instructions[pc]
            self.reached = mask
            guard = instruction.guard
            active = mask if guard is None else mask & (self.read(guard, 1) != 0)
            self.active = active
            self.all = bool(active.all())
            base = instruction.parts[0]
            if base == "bra":
                if guard is not None:
                    self.trace.branches.append(Branch(instruction.line, mask, active))
                self._join(groups, instruction.target, active, pc)
                self._join(groups, pc + 1, mask & ~active, pc)
                continue
            if base in ("ret", "exit", "trap"):
                self._join(groups, pc + 1, mask & ~active, pc)
                continue
            if instruction.opcode in _BARRIERS:
                self._join(groups, pc + 1, mask & ~active, pc)
                if active.any():
                    self._wait(instruction, pc, active, waiting, groups)
                continue
            if active.any() or base in _RECORDED:
                self.execute(instruction)
            self._join(groups, pc + 1, mask, pc)
        self.trace.steps += steps
        for header, passes in self.passes.items():
            line = instructions[header].line
            self.trace.loops[self.index, line] = passes

    def _wait(
        self,
        instruction: Instruction,
        pc: int,
        active: np.ndarray,
        waiting: dict[int, list[tuple[int, np.ndarray, int]]],
        groups: dict[int, np.ndarray],
    ) -> None:
        """Threads stop at a barrier; with a thread count, they go on when so many are there."""
        numbers = [o for o in instruction.operands if o.kind == "imm"]
        barrier = numbers[0].value if numbers else 0
        here = waiting.setdefault(barrier, [])
        here.append((pc + 1, active, 0))
        if len(numbers) > 1 and sum(int(m.sum()) for _, m, _ in here) >= numbers[1].value:
            for after, mask, _ in waiting.pop(barrier):
                self._join(groups, after, mask, pc)

    def _join(self, groups: dict[int, np.ndarray], pc: int, mask: np.ndarray, source: int) -> None:
        """Threads come to ``pc`` from ``source``."""
        if not mask.any():
            return
        self._arrive(pc, mask, source)
        groups[pc] = groups[pc] | mask if pc in groups else mask

    def _arrive(self, pc: int, mask: np.ndarray, source: int) -> None:
        if pc not in self.iterations:
            return
        if source in self.program.loops[pc]:
            self.iterations[pc][mask] += 1
        else:
            self.iterations[pc][mask] = 0
            self.passes[pc].entered[mask] += 1
        self.passes[pc].started[mask] += 1

    # ------------------------------------------------------------ operands

    def error(self, message: str) -> PtxError:
        return PtxError(f"line {self.now.line}: {self.now.opcode}: {message}")

    def read(self, operand: Op, bits: int) -> np.ndarray:
        """The lanes of an operand, as unsigned numbers of ``bits``."""
        match operand.kind:
            case "reg":
                if operand.name not in self.registers:
                    if operand.name in self.program.written:
                        raise self.error(f"{operand.name} is read before it is written")
                    return np.zeros(self.n, U64)  # what compilers make of undefined values
                value = self.registers[operand.name]
            case "imm":
                number = operand.value & (1 << 64) - 1 if bits > 1 else int(operand.value != 0)
                if number not in self.constants:
                    self.constants[number] = np.full(self.n, number, U64)
                value = self.constants[number]
            case "special":
                if operand.name not in self.specials:
                    raise self.error(f"%{operand.name} is not known")
                value = self.specials[operand.name]
            case "variable":
                if operand.name not in self.program.variables:
                    raise self.error(f"{operand.name} is not known")
                value = np.full(self.n, self.program.variables[operand.name].address, U64)
            case "mem":
                base = self.read(operand.items[0], bits)
                value = base + U64(operand.value & (1 << 64) - 1)
            case _:
                raise self.error(f"operand {operand}")
        value = _mask(value, bits)
        return value ^ U64(1) if operand.negated else value

    def source(self, index: int, bits: int) -> np.ndarray:
        return self.read(self.now.operands[index], bits)

    def write(self, operand: Op, value: np.ndarray, bits: int, signed: bool = False) -> None:
        """Write a register; a signed value is extended to its width."""
        if operand.kind == "sink":
            return
        if operand.kind == "pair":
            operand = operand.items[0]
        if operand.kind != "reg":
            raise self.error(f"cannot write {operand}")
        value = _mask(np.asarray(value).astype(U64), bits)
        width = self.program.widths[operand.name]
        if width < bits:
            value = _mask(value, width)
        elif signed and width > bits:
            value = _mask(_signed(value, bits).view(U64), width)
        old = self.registers.get(operand.name)
        if not self.all:
            value = np.where(self.active, value, U64(0) if old is None else old)
        self.registers[operand.name] = value

    def result(self, value: np.ndarray, bits: int, signed: bool = False) -> None:
        self.write(self.now.operands[0], value, bits, signed)

    def kind(self) -> str:
        return self.now.parts[-1]

    # ------------------------------------------------------------ dispatch

    def execute(self, instruction: Instruction) -> None:
        if instruction.run is None:
            base = instruction.parts[0]
            opcode = instruction.opcode.replace("::", ".")
            if any(opcode == n or opcode.startswith(n + ".") for n in _NOTHING):
                instruction.run = _Block.do_nothing
            else:
                handler = getattr(_Block, f"do_{base}", None)
                if handler is None:
                    raise self.error("unknown instruction")
                instruction.run = handler
        instruction.run(self)

    def do_nothing(self) -> None:
        pass

    # ------------------------------------------------------------ integers

    def _lanewise(self, function: Callable[..., Any], count: int) -> None:
        """A floating-point operation, each half on its own for packed types."""
        kind = self.kind()
        bits = _bits(kind)
        sources = [self.source(i + 1, bits) for i in range(count)]
        if kind.endswith("x2"):
            half, single = bits // 2, kind[:-2]
            low = function(*[_float(_mask(s, half), single) for s in sources])
            high = function(*[_float(s >> U64(half), single) for s in sources])
            self.result(_raw(low, single) | _raw(high, single) << U64(half), bits)
            return
        value = function(*[_float(s, kind) for s in sources])
        if "sat" in self.now.parts:
            value = np.clip(value, 0, 1)
        self.result(_raw(value, kind), bits)

    def _binary(self, function: Callable[[Any, Any, int, bool], Any]) -> None:
        kind = self.kind()
        bits = _bits(kind)
        a, b, signed = self.source(1, bits), self.source(2, bits), kind[0] == "s"
        if kind.endswith("x2"):
            low = _mask(function(_mask(a, 16), _mask(b, 16), 16, signed), 16)
            high = function(a >> U64(16), b >> U64(16), 16, signed)
            return self.result(low | high << U64(16), bits)
        return self.result(function(a, b, bits, signed), bits)

    def do_dp4a(self) -> None:
        sources = [self.source(i, 32) for i in (1, 2, 3)]
        first, second = (part == "s32" for part in self.now.parts[-2:])
        wide, skip = (1, 0) if self.now.parts[0] == "dp4a" else (2, 2 * ("hi" in self.now.parts))

        def number(word: int, at: int, size: int, signed: bool) -> int:
            data = int(word).to_bytes(4, "little")[at : at + size]
            return int.from_bytes(data, "little", signed=signed)

        sums = [
            int(c) + sum(
                number(a, i * wide, wide, first) * number(b, i + skip, 1, second)
                for i in range(4 // wide)
            )
            for a, b, c in zip(*sources, strict=True)
        ]  # fmt: skip
        self.result(np.array([s & 0xFFFFFFFF for s in sums], U64), 32)

    do_dp2a = do_dp4a

    def do_add(self) -> None:
        if _is_float(self.kind()):
            return self._lanewise(_FLOAT_BINARY["add"], 2)
        bits = _bits(self.kind())
        if "sat" in self.now.parts:
            total = _signed(self.source(1, 32), 32) + _signed(self.source(2, 32), 32)
            return self.result(np.clip(total, -(2**31), 2**31 - 1).view(U64), 32)
        if "cc" in self.now.parts:
            total = self.source(1, bits) + self.source(2, bits)
            overflow = _mask(total, bits) < self.source(1, bits)
            self.carry = np.where(self.active, overflow.astype(U64), self.carry)
            return self.result(total, bits)
        return self._binary(lambda a, b, w, s: a + b)

    def do_addc(self) -> None:
        bits = _bits(self.kind())
        total = sum(1 * self.source(i, bits).astype(object) for i in (1, 2)) + self.carry.astype(
            object
        )
        if "cc" in self.now.parts:
            overflow = np.array([int(t) >> bits for t in total], U64)
            self.carry = np.where(self.active, overflow, self.carry)
        self.result(np.array([int(t) & (1 << bits) - 1 for t in total], U64), bits)

    def do_sub(self) -> None:
        if _is_float(self.kind()):
            return self._lanewise(_FLOAT_BINARY["sub"], 2)
        if {"sat", "cc"} & set(self.now.parts):
            raise self.error("unknown instruction")
        return self._binary(lambda a, b, w, s: a - b)

    def _product(self) -> tuple[np.ndarray, int]:
        kind = self.kind()
        bits, signed = _bits(kind), kind[0] == "s"
        a, b = self.source(1, bits), self.source(2, bits)
        if "wide" in self.now.parts:
            if signed:
                a, b = _signed(a, bits).view(U64), _signed(b, bits).view(U64)
            return a * b, 2 * bits
        if "hi" in self.now.parts:
            return _high(a, b, bits, signed), bits
        return a * b, bits

    def do_mul(self) -> None:
        if _is_float(self.kind()):
            return self._lanewise(_FLOAT_BINARY["mul"], 2)
        return self.result(*self._product())

    def do_mad(self) -> None:
        if _is_float(self.kind()):
            return self.do_fma()
        if {"sat", "cc"} & set(self.now.parts):
            raise self.error("unknown instruction")
        product, bits = self._product()
        return self.result(product + self.source(3, bits), bits)

    def do_fma(self) -> None:
        def fused(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
            return a.astype(np.float64) * b.astype(np.float64) + c.astype(np.float64)

        self._lanewise(fused, 3)

    def do_mul24(self) -> None:
        kind = self.kind()
        shift = np.int64(40)
        pair = []
        for index in (1, 2):
            x = self.source(index, 32)
            pair.append((x.astype(np.int64) << shift) >> shift if kind[0] == "s"
                        else (x & U64(0xFFFFFF)).astype(np.int64))  # fmt: skip
        product = pair[0] * pair[1]
        if "hi" in self.now.parts:
            product = product >> np.int64(16)
        if self.now.parts[0] == "mad24":
            product = product + self.source(3, 32).astype(np.int64)
        self.result(product.view(U64), 32)

    do_mad24 = do_mul24

    def do_div(self) -> None:
        if _is_float(self.kind()):
            return self._lanewise(_FLOAT_BINARY["div"], 2)
        return self._binary(_trunc_div)

    def do_rem(self) -> None:
        def remainder(a: np.ndarray, b: np.ndarray, bits: int, signed: bool) -> np.ndarray:
            return np.where(b == 0, a, a - _trunc_div(a, b, bits, signed) * b)

        self._binary(remainder)

    def _least(self, greater: bool) -> None:
        kind = self.kind()
        if _is_float(kind):
            count = len(self.now.operands) - 1
            pick = np.maximum if greater else np.minimum
            if "NaN" not in self.now.parts:
                pick = np.fmax if greater else np.fmin
            function = (lambda a, b: pick(a, b)) if count == 2 else (
                lambda a, b, c: pick(pick(a, b), c))  # fmt: skip
            return self._lanewise(function, count)

        def choose(a: np.ndarray, b: np.ndarray, bits: int, signed: bool) -> np.ndarray:
            x, y = (_signed(a, bits), _signed(b, bits)) if signed else (a, b)
            return np.where((x > y) == greater, a, b)

        return self._binary(choose)

    def do_min(self) -> None:
        self._least(False)

    def do_max(self) -> None:
        self._least(True)

    def do_and(self) -> None:
        self._binary(lambda a, b, w, s: a & b)

    def do_or(self) -> None:
        self._binary(lambda a, b, w, s: a | b)

    def do_xor(self) -> None:
        self._binary(lambda a, b, w, s: a ^ b)

    def do_not(self) -> None:
        bits = _bits(self.kind())
        self.result(~self.source(1, bits), bits)

    def do_cnot(self) -> None:
        bits = _bits(self.kind())
        self.result(self.source(1, bits) == 0, bits)

    def do_neg(self) -> None:
        if _is_float(self.kind()):
            return self._lanewise(_FLOAT_UNARY["neg"], 1)
        bits = _bits(self.kind())
        return self.result(U64(0) - self.source(1, bits), bits)

    def do_abs(self) -> None:
        if _is_float(self.kind()):
            return self._lanewise(_FLOAT_UNARY["abs"], 1)
        bits = _bits(self.kind())
        return self.result(np.abs(_signed(self.source(1, bits), bits)).view(U64), bits)

    def do_shl(self) -> None:
        bits = _bits(self.kind())
        amount = self.source(2, 32)
        shifted = self.source(1, bits) << np.minimum(amount, U64(63))
        self.result(np.where(amount >= bits, U64(0), shifted), bits)

    def do_shr(self) -> None:
        kind = self.kind()
        bits = _bits(kind)
        amount, value = self.source(2, 32), self.source(1, bits)
        if kind[0] == "s":
            by = np.minimum(amount, U64(bits - 1)).astype(np.int64)
            return self.result((_signed(value, bits) >> by).view(U64), bits)
        shifted = value >> np.minimum(amount, U64(63))
        return self.result(np.where(amount >= bits, U64(0), shifted), bits)

    def do_shf(self) -> None:
        direction, mode = self.now.parts[1:3]
        pair = self.source(2, 32) << U64(32) | self.source(1, 32)
        amount = self.source(3, 32)
        amount = amount & U64(31) if mode == "wrap" else np.minimum(amount, U64(32))
        if direction == "r":
            return self.result(pair >> amount, 32)
        return self.result((pair << amount) >> U64(32), 32)

    def do_bfe(self) -> None:
        """Straight from the ISA's pseudocode, bit by bit."""
        kind = self.kind()
        bits, signed = _bits(kind), kind[0] == "s"
        value = self.source(1, bits)
        position, length = self.source(2, 8), self.source(3, 8)
        sign_at = np.minimum(position + length - U64(1), U64(bits - 1))
        sign = (value >> sign_at) & U64(1) if signed else np.zeros(self.n, U64)
        sign = np.where(length == 0, U64(0), sign)
        result = np.zeros(self.n, U64)
        for i in range(bits):
            at = position + U64(i)
            inside = (U64(i) < length) & (at < bits)
            bit = np.where(inside, (value >> np.minimum(at, U64(63))) & U64(1), sign)
            result |= bit << U64(i)
        self.result(result, bits)

    def do_bfi(self) -> None:
        bits = _bits(self.kind())
        low, result = self.source(1, bits), self.source(2, bits).copy()
        position, length = self.source(3, 8), self.source(4, 8)
        for i in range(bits):
            at = position + U64(i)
            inside = (U64(i) < length) & (at < bits)
            place = U64(1) << np.minimum(at, U64(63))
            bit = (low >> U64(i)) & U64(1)
            changed = (result & ~place) | np.where(bit == 1, place, U64(0))
            result = np.where(inside, changed, result)
        self.result(result, bits)

    def _bit_by_bit(self, function: Callable[[int, int], int]) -> None:
        bits = _bits(self.kind())
        values = [function(int(v), bits) for v in self.source(1, bits)]
        wide = self.program.widths.get(self.now.operands[0].name, 32)
        self.result(np.array([v & (1 << 64) - 1 for v in values], U64), wide)

    def do_popc(self) -> None:
        self._bit_by_bit(lambda v, bits: v.bit_count())

    def do_clz(self) -> None:
        self._bit_by_bit(lambda v, bits: bits - v.bit_length())

    def do_brev(self) -> None:
        self._bit_by_bit(lambda v, bits: int(f"{v:0{bits}b}"[::-1], 2))

    def do_bfind(self) -> None:
        signed = self.kind()[0] == "s"

        def find(v: int, bits: int) -> int:
            if signed and v >> (bits - 1):
                v = ~v & (1 << bits) - 1
            if v == 0:
                return 0xFFFFFFFF
            top = v.bit_length() - 1
            return bits - 1 - top if "shiftamt" in self.now.parts else top

        self._bit_by_bit(find)

    def do_lop3(self) -> None:
        table = self.now.operands[4].value
        inputs = [self.source(i, 32) for i in (1, 2, 3)]
        result = np.zeros(self.n, U64)
        for row in range(8):
            if table >> row & 1:
                term = np.full(self.n, 0xFFFFFFFF, U64)
                for bit, value in zip((4, 2, 1), inputs, strict=True):
                    term &= value if row & bit else ~value
                result |= term
        self.result(result, 32)

    def do_prmt(self) -> None:
        mode = self.now.parts[2] if len(self.now.parts) > 2 else ""
        if mode:
            raise self.error("unknown instruction")
        both = self.source(2, 32) << U64(32) | self.source(1, 32)
        selector = self.source(3, 32)
        result = np.zeros(self.n, U64)
        for i in range(4):
            choice = (selector >> U64(4 * i)) & U64(15)
            byte = (both >> ((choice & U64(7)) * U64(8))) & U64(0xFF)
            sign = np.where(byte >> U64(7) == 1, U64(0xFF), U64(0))
            result |= np.where(choice & U64(8) != 0, sign, byte) << U64(8 * i)
        self.result(result, 32)

    def do_sad(self) -> None:
        kind = self.kind()
        bits = _bits(kind)
        a, b = self.source(1, bits), self.source(2, bits)
        if kind[0] == "s":
            distance = np.abs(_signed(a, bits) - _signed(b, bits)).view(U64)
        else:
            distance = np.where(a > b, a - b, b - a)
        self.result(distance + self.source(3, bits), bits)

    # ------------------------------------------------------------ moves, choices

    def do_mov(self) -> None:
        kind = self.kind()
        bits = _bits(kind)
        to, origin = self.now.operands
        if origin.kind == "list":
            each = bits // len(origin.items)
            value = np.zeros(self.n, U64)
            for i, item in enumerate(origin.items):
                value |= self.read(item, each) << U64(each * i)
        else:
            value = self.read(origin, bits)
        if to.kind == "list":
            each = bits // len(to.items)
            for i, item in enumerate(to.items):
                self.write(item, value >> U64(each * i), each)
        else:
            self.write(to, value, bits)

    def do_selp(self) -> None:
        bits = _bits(self.kind())
        chosen = self.source(3, 1) != 0
        self.result(np.where(chosen, self.source(1, bits), self.source(2, bits)), bits)

    def do_slct(self) -> None:
        bits = _bits(self.now.parts[-2])
        third = self.source(3, 32)
        ge = _float(third, "f32") >= 0 if self.kind() == "f32" else _signed(third, 32) >= 0
        self.result(np.where(ge, self.source(1, bits), self.source(2, bits)), bits)

    def _comparison(self, comparison: str, kind: str) -> np.ndarray:
        bits = _bits(kind)
        a, b = self.source(1, bits), self.source(2, bits)
        if _is_float(kind):
            x, y = _float(a, kind), _float(b, kind)
            unordered = np.isnan(x) | np.isnan(y)
            if comparison in ("num", "nan"):
                return unordered == (comparison == "nan")
            if comparison in ("equ", "neu", "ltu", "leu", "gtu", "geu"):
                return unordered | _COMPARE[comparison[:2]](x, y)
            return ~unordered & _COMPARE[comparison](x, y)
        if kind[0] == "s":
            return _COMPARE[comparison](_signed(a, bits), _signed(b, bits))
        return _COMPARE[_UNSIGNED_COMPARE.get(comparison, comparison)](a, b)

    def do_setp(self) -> None:
        parts = self.now.parts
        value = self._comparison(parts[1], parts[-1]).astype(U64)
        opposite = value ^ U64(1)
        combine = [p for p in parts[2:-1] if p in _BOOLEAN]
        if combine:
            third = self.source(3, 1)
            value = _BOOLEAN[combine[0]](value, third)
            opposite = _BOOLEAN[combine[0]](opposite, third)
        to = self.now.operands[0]
        if to.kind == "pair":
            self.write(to.items[0], value, 1)
            self.write(to.items[1], opposite, 1)
        else:
            self.write(to, value, 1)

    def do_set(self) -> None:
        parts = self.now.parts
        value = self._comparison(parts[1], parts[-1])
        combine = [p for p in parts[2:-2] if p in _BOOLEAN]
        if combine:
            value = _BOOLEAN[combine[0]](value, self.source(3, 1) != 0)
        if parts[-2] == "f32":
            return self.result(np.where(value, U64(0x3F800000), U64(0)), 32)
        bits = _bits(parts[-2])
        return self.result(np.where(value, U64((1 << bits) - 1), U64(0)), bits)

    def do_cvta(self) -> None:
        bits = _bits(self.kind())
        self.result(self.source(1, bits), bits)

    def do_isspacep(self) -> None:
        address = self.source(1, 64)
        low, high = {"shared": (SHARED_BASE, LOCAL_BASE), "local": (LOCAL_BASE, VARIABLE_BASE),
                     "global": (VARIABLE_BASE, 2**63)}[self.now.parts[1]]  # fmt: skip
        self.result((address >= low) & (address < high), 1)

    def do_cvt(self) -> None:
        parts = self.now.parts
        if "pack" in parts:
            raise self.error("unknown instruction")
        to, origin = parts[-2], parts[-1]
        if to in ("f16x2", "bf16x2"):  # the first source becomes the upper half
            high, low = (_raw(_float(self.source(i, 32), origin), to[:-2]) for i in (1, 2))
            return self.result(high << U64(16) | low, 32)
        bits = _bits(to)
        value = self.source(1, _bits(origin))
        if not _is_float(origin):
            number: np.ndarray = _signed(value, _bits(origin)) if origin[0] == "s" else value
            if _is_float(to):
                exact = number.astype(np.float64 if to == "f64" else np.float32)
                return self.result(_raw(exact, to), bits)
            if "sat" in parts:
                low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if to[0] == "s" else (
                    0, (1 << bits) - 1)  # fmt: skip
                number = np.array([min(max(int(v), low), high) & 2**64 - 1 for v in number], U64)
            return self.result(number.astype(U64), bits, signed=to[0] == "s")
        exact = _float(value, origin).astype(np.float64)
        if "relu" in parts:
            exact = np.maximum(exact, 0)
        for mode, function in (("rzi", np.trunc), ("rni", np.rint), ("rmi", np.floor),
                               ("rpi", np.ceil)):  # fmt: skip
            if mode in parts:
                exact = function(exact)
        if _is_float(to):
            return self.result(_raw(exact if to == "f64" else exact.astype(np.float32), to), bits)
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if to[0] == "s" else (
            0, (1 << bits) - 1)  # fmt: skip
        whole = [0 if v != v else int(min(max(v, low), high)) & (1 << 64) - 1 for v in exact]
        return self.result(np.array(whole, U64), bits, signed=to[0] == "s")

    # ------------------------------------------------------------ floating point

    def do_sqrt(self) -> None:
        self._lanewise(_FLOAT_UNARY[self.now.parts[0]], 1)

    do_rsqrt = do_rcp = do_ex2 = do_lg2 = do_sin = do_cos = do_tanh = do_sqrt

    def do_copysign(self) -> None:
        self._lanewise(_FLOAT_BINARY["copysign"], 2)

    def do_testp(self) -> None:
        value = _float(self.source(1, _bits(self.kind())), self.kind())
        test = {"nan": np.isnan, "infinite": np.isinf, "finite": np.isfinite,
                "number": lambda v: ~np.isnan(v)}[self.now.parts[1]]  # fmt: skip
        self.result(test(value), 1)

    # ------------------------------------------------------------ memory

    def _space(self) -> str:
        for part in self.now.parts[1:]:
            space = part.partition("::")[0]
            if space in ("global", "shared", "local", "param", "const"):
                return space
        return "generic"

    def _vector(self) -> int:
        found = [p for p in self.now.parts if re.fullmatch(r"v\d", p)]
        return int(found[0][1:]) if found else 1

    def _record(self, addresses: np.ndarray, size: int, **more: Any) -> None:
        now = self.now
        ordinal = self.counts.get(id(now), 0)
        self.counts[id(now)] = ordinal + 1
        iterations = {
            self.program.instructions[h].line: count.copy() for h, count in self.iterations.items()
        }
        self.trace.accesses.append(
            Access(now.line, now.opcode, self.index, ordinal, addresses, size, self.reached,
                   self.active, iterations=iterations, **more)
        )  # fmt: skip

    def _address_bits(self, space: str) -> int:
        return 32 if space in ("shared", "local") else 64

    def _address(self, operand: Op, space: str) -> np.ndarray:
        base = operand.items[0]
        width = self.program.widths.get(base.name, 64) if base.kind == "reg" else 64
        return self.read(operand, width if space != "generic" else 64)

    def do_ld(self) -> None:
        space, kind, vector = self._space(), self.kind(), self._vector()
        size = _bits(kind) // 8
        to, origin = self.now.operands[:2]
        registers = to.items if to.kind == "list" else (to,)
        if space == "param" and origin.items[0].name in self.parameters:
            data = self.parameters[origin.items[0].name]
            for i, register in enumerate(registers):
                at = origin.value + i * size
                number = int.from_bytes(data[at : at + size], "little")
                self.write(register, np.full(self.n, number, U64), 8 * size, kind[0] == "s")
            return
        addresses = self._address(origin, space)
        if space == "param":
            space = "local"
        else:
            self._record(addresses, size * vector)
        if not self.active.any():
            return
        lanes = self.threads[self.active]
        data = self.memory.load(space, addresses[self.active], lanes, size * vector, self.now.line)
        for i, register in enumerate(registers):
            value = np.zeros(self.n, U64)
            value[self.active] = _from_bytes(data[:, size * i : size * (i + 1)])
            self.write(register, value, 8 * size, kind[0] == "s")

    do_ldu = do_ld

    def do_st(self) -> None:
        space, kind, vector = self._space(), self.kind(), self._vector()
        size = _bits(kind) // 8
        to, origin = self.now.operands[:2]
        addresses = self._address(to, space)
        if space == "param":
            space = "local"
        else:
            self._record(addresses, size * vector)
        if not self.active.any():
            return
        items = origin.items if origin.kind == "list" else (origin,)
        data = np.concatenate(
            [_to_bytes(self.read(item, 8 * size)[self.active], size) for item in items], axis=1
        )
        lanes = self.threads[self.active]
        self.memory.store(space, addresses[self.active], lanes, data, self.now.line)

    def do_cp(self) -> None:
        if self.now.opcode.startswith("cp.async.bulk") or self.now.parts[1] != "async":
            raise self.error("unknown instruction")
        to, origin, amount = self.now.operands[:3]
        size = amount.value
        target, source = self._address(to, "shared"), self._address(origin, "global")
        read = np.full(self.n, size, np.int64)
        if len(self.now.operands) > 3 and "L2::cache_hint" not in self.now.opcode:
            extra = self.now.operands[3]
            if extra.kind == "reg" and self.program.widths[extra.name] == 1:
                read = np.where(self.read(extra, 1) != 0, 0, size)  # "ignore-src"
            else:
                read = np.minimum(self.read(extra, 32), U64(size)).astype(np.int64)
        self._record(source, size, shared=target, source_size=read)
        line = self.now.line
        for count in np.unique(read[self.active]):
            some = self.active & (read == count)
            lanes = self.threads[some]
            data = np.zeros((len(lanes), size), np.uint8)
            if count:
                data[:, :count] = self.memory.load("global", source[some], lanes, int(count), line)
            self.memory.store("shared", target[some], lanes, data, line)

    def _matrix(self) -> tuple[int, bool]:
        parts = self.now.parts
        if "m8n8" not in parts or parts[-1] != "b16":
            raise self.error("unknown instruction")
        return int(next(p[1:] for p in parts if re.fullmatch(r"x[124]", p))), "trans" in parts

    def _warps(self) -> list[int]:
        """First threads of the warps that are active; these must be whole."""
        warps = []
        for first in range(0, self.n, WARP):
            part = self.active[first : first + WARP]
            if part.any():
                if not part.all() or len(part) < WARP:
                    raise self.error("a warp has parted")
                warps.append(first)
        return warps

    def do_ldmatrix(self) -> None:
        count, transposed = self._matrix()
        to, origin = self.now.operands
        registers = to.items if to.kind == "list" else (to,)
        addresses = self._address(origin, "shared")
        self._record(addresses, 16)
        values = np.zeros((count, self.n), U64)
        lane = np.arange(WARP)
        for first in self._warps():
            for matrix in range(count):
                rows = np.arange(first + 8 * matrix, first + 8 * matrix + 8)
                data = self.memory.load("shared", addresses[rows], rows, 16, self.now.line)
                elements = data.copy().view("<u2").astype(U64)  # 8 x 8
                if transposed:
                    elements = elements.T
                low = elements[lane // 4, 2 * (lane % 4)]
                high = elements[lane // 4, 2 * (lane % 4) + 1]
                values[matrix, first : first + WARP] = low | high << U64(16)
        for register, value in zip(registers, values, strict=True):
            self.write(register, value, 32)

    def do_stmatrix(self) -> None:
        count, transposed = self._matrix()
        to, origin = self.now.operands
        registers = origin.items if origin.kind == "list" else (origin,)
        addresses = self._address(to, "shared")
        self._record(addresses, 16)
        lane = np.arange(WARP)
        for first in self._warps():
            for matrix in range(count):
                value = self.read(registers[matrix], 32)[first : first + WARP]
                elements = np.zeros((8, 8), np.uint16)
                elements[lane // 4, 2 * (lane % 4)] = value & U64(0xFFFF)
                elements[lane // 4, 2 * (lane % 4) + 1] = value >> U64(16)
                if transposed:
                    elements = elements.T
                rows = np.arange(first + 8 * matrix, first + 8 * matrix + 8)
                data = np.ascontiguousarray(elements).view(np.uint8)
                self.memory.store("shared", addresses[rows], rows, data, self.now.line)

    def _combined(self, operation: str, kind: str, old: int, new: int, third: int | None) -> int:
        bits = _bits(kind)

        def number(x: int) -> Any:
            if _is_float(kind):
                return _float(np.array([x], U64), kind)[0]
            return x - (1 << bits) if kind[0] == "s" and x >> (bits - 1) else x

        match operation:
            case "exch":
                return new
            case "cas":
                assert third is not None
                return third if old == new else old
            case "add" if _is_float(kind):
                return int(_raw(np.array([number(old) + number(new)]), kind)[0])
            case "add":
                return old + new & (1 << bits) - 1
            case "min" | "max":
                larger = number(new) > number(old)
                return new if larger == (operation == "max") else old
            case "and" | "or" | "xor":
                return int(_BOOLEAN[operation](old, new))
            case "inc":
                return 0 if old >= new else old + 1
            case "dec":
                return new if old == 0 or old > new else old - 1
        raise self.error("unknown instruction")

    def _atomic(self, to: Op | None, operands: list[Op]) -> None:
        space, kind = self._space(), self.kind()
        bits = _bits(kind)
        operations = ("add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec")
        operation = next((p for p in self.now.parts if p in operations), None)
        if operation is None or kind.endswith("x2") or self._vector() > 1:
            raise self.error("unknown instruction")
        addresses = self._address(operands[0], space)
        self._record(addresses, bits // 8)
        new = self.read(operands[1], bits)
        third = self.read(operands[2], bits) if operation == "cas" else None
        before = np.zeros(self.n, U64)
        for i in self.threads[self.active]:
            here, lane = addresses[i : i + 1], self.threads[i : i + 1]
            old = _from_bytes(self.memory.load(space, here, lane, bits // 8, self.now.line))
            before[i] = old[0]
            value = self._combined(operation, kind, int(old[0]), int(new[i]),
                                   None if third is None else int(third[i]))  # fmt: skip
            data = _to_bytes(np.array([value], U64), bits // 8)
            self.memory.store(space, here, lane, data, self.now.line)
        if to is not None and self.active.any():
            self.write(to, before, bits)

    def do_atom(self) -> None:
        self._atomic(self.now.operands[0], self.now.operands[1:])

    def do_red(self) -> None:
        self._atomic(None, self.now.operands)

    # ------------------------------------------------------------ between lanes

    def _members(self, operand: Op) -> np.ndarray:
        """Threads named by a member mask; they must be here, unless they do not exist."""
        named = (self.read(operand, 32) >> self.lane.astype(U64)) & U64(1) == 1
        warp_has = np.zeros(self.n, bool)
        for first in range(0, self.n, WARP):
            warp_has[first : first + WARP] = self.active[first : first + WARP].any()
        missing = named & warp_has & ~self.active
        if missing.any():
            raise self.error("a warp has parted")
        return named & self.active

    def do_shfl(self) -> None:
        if self.now.parts[1] != "sync":
            raise self.error("unknown instruction")
        mode = self.now.parts[2]
        self._members(self.now.operands[4])
        value = self.source(1, 32)
        b = (self.source(2, 32) & U64(31)).astype(np.int64)
        c = self.source(3, 32).astype(np.int64)
        clamp, segment = c & 31, (c >> 8) & 31
        last = (self.lane & segment) | (clamp & ~segment)
        first = self.lane & segment
        if mode == "up":
            j = self.lane - b
            valid = j >= last
        elif mode == "down":
            j = self.lane + b
            valid = j <= last
        elif mode == "bfly":
            j = self.lane ^ b
            valid = j <= last
        else:
            j = first | (b & ~segment)
            valid = j <= last
        j = np.where(valid, j, self.lane)
        origin = np.minimum(self.threads - self.lane + j, self.n - 1)
        to = self.now.operands[0]
        self.write(to.items[0] if to.kind == "pair" else to, value[origin], 32)
        if to.kind == "pair":
            self.write(to.items[1], valid, 1)

    def _per_warp(self, function: Callable[[np.ndarray], Any], result_type: Any) -> np.ndarray:
        result = np.zeros(self.n, result_type)
        for first in range(0, self.n, WARP):
            here = np.arange(first, min(first + WARP, self.n))
            here = here[self.active[here]]
            if len(here):
                result[here] = function(here)
        return result

    def do_vote(self) -> None:
        mode = self.now.parts[2]
        members = self._members(self.now.operands[2])
        votes = (self.source(1, 1) != 0) & members

        def count(here: np.ndarray) -> int:
            yes = votes[here]
            if mode == "ballot":
                return sum(1 << int(self.lane[t]) for t in here if votes[t])
            if mode == "uni":
                return int(yes.all() or not yes.any())
            return int(yes.all() if mode == "all" else yes.any())

        self.result(self._per_warp(count, U64), 32 if mode == "ballot" else 1)

    def do_activemask(self) -> None:
        def mask(here: np.ndarray) -> int:
            return sum(1 << int(self.lane[t]) for t in here)

        self.result(self._per_warp(mask, U64), 32)

    def do_redux(self) -> None:
        operation, kind = self.now.parts[2], self.kind()
        value = self.source(1, 32)

        def combine(here: np.ndarray) -> int:
            total = int(value[here[0]])
            for t in here[1:]:
                total = self._combined(operation, kind, total, int(value[t]), None)
            return total

        self._members(self.now.operands[2])
        self.result(self._per_warp(combine, U64), 32)

    def do_elect(self) -> None:
        self._members(self.now.operands[1])
        leader = self._per_warp(lambda here: int(self.lane[here[0]]), U64)
        to = self.now.operands[0]
        self.write(to.items[0], leader, 32)
        self.write(to.items[1], leader == self.lane.astype(U64), 1)

    # ------------------------------------------------------------ matrices and barriers

    def _zero(self, operand: Op) -> None:
        for item in operand.items if operand.kind in ("list", "pair") else (operand,):
            if item.kind == "reg":
                self.write(item, np.zeros(self.n, U64), self.program.widths[item.name])

    def do_mma(self) -> None:
        self._zero(self.now.operands[0])

    def do_wgmma(self) -> None:
        if self.now.parts[1] != "mma_async":
            raise self.error("unknown instruction")
        self._zero(self.now.operands[0])

    def do_tcgen05(self) -> None:
        if self.now.parts[1] == "ld":
            return self._zero(self.now.operands[0])
        if self.now.parts[1] != "alloc":
            raise self.error("unknown instruction")
        address = self._address(self.now.operands[0], "shared")[self.active][:1]
        data = np.zeros((1, 4), np.uint8)
        return self.memory.store("shared", address, self.threads[:1], data, self.now.line)

    def do_mbarrier(self) -> None:
        what = self.now.parts[1]
        if what in ("try_wait", "test_wait"):
            self.result(np.ones(self.n, U64), 1)
        elif what.startswith("arrive"):
            if self.now.operands[0].kind == "reg":
                self.result(np.zeros(self.n, U64), 64)
        else:
            raise self.error("unknown instruction")

    def do_createpolicy(self) -> None:
        self.result(np.zeros(self.n, U64), 64)

    def do_mapa(self) -> None:
        bits = _bits(self.kind())
        self.result(self.source(1, bits), bits)


_RECORDED = ("ld", "ldu", "st", "cp", "atom", "red", "ldmatrix", "stmatrix")


_BARRIERS = ("bar.sync", "barrier.sync", "bar.cta.sync", "barrier.cta.sync", "barrier.sync.aligned",
             "barrier.cta.sync.aligned")  # fmt: skip


# ---------------------------------------------------------------- launching


def _packed(kind: str, size: int, value: Any) -> bytes:
    if isinstance(value, bytes):
        return value.ljust(size, b"\0")
    if _is_float(kind):
        if kind in ("f32", "f64"):
            return struct.pack("<f" if kind == "f32" else "<d", value)
        return int(_raw(np.array([value], np.float32), kind)[0]).to_bytes(2, "little")
    return (int(value) & (1 << 8 * size) - 1).to_bytes(size, "little")


def run(
    ptx: str,
    kernel: str,
    grid: Sequence[int],
    block: Sequence[int],
    params: Sequence[Any],
    blocks: Sequence[tuple[int, int, int]] = ((0, 0, 0),),
    memory: Sequence[tuple[int, np.ndarray]] = (),
    shared_bytes: int = DYNAMIC_SHARED,
) -> Trace:
    """Run some blocks of a launch, one after the other.

    Args:
        ptx: text of a module.
        kernel: name of the entry.
        grid: number of blocks, up to three numbers.
        block: number of threads, up to three numbers.
        params: for each parameter a number, a numpy array (changed in place; it gets an address),
            or (address, array). Missing ones at the end are 0.
        blocks: indices of the blocks to run.
        memory: more arrays with their addresses.
        shared_bytes: size of dynamic shared memory.

    Raises:
        PtxError: an instruction is not known; an access is out of bounds or misaligned.
    """
    program = parse(ptx, kernel)
    shape = tuple((*block, 1, 1)[:3])
    extent = tuple((*grid, 1, 1)[:3])
    threads = shape[0] * shape[1] * shape[2]
    everything = _Memory()
    for address, array in memory:
        everything.add(address, array.reshape(-1).view(np.uint8), "global")
    bases: list[Any] = []
    parameters: dict[str, bytes] = {}
    for i, (name, kind, size) in enumerate(program.parameters):
        value = params[i] if i < len(params) else 0
        if isinstance(value, np.ndarray):
            value = (GLOBAL_BASE + i * GLOBAL_STRIDE, value)
        if isinstance(value, tuple):
            address, array = value
            if not array.flags.c_contiguous:
                raise PtxError(f"parameter {i}: the array is not contiguous")
            everything.add(address, array.reshape(-1).view(np.uint8), "global")
            value = address
        bases.append(value)
        parameters[name] = _packed(kind, size, value)
    places = {"shared": SHARED_BASE, "local": LOCAL_BASE, "global": VARIABLE_BASE,
              "const": VARIABLE_BASE + 2**32}  # fmt: skip
    ordered = sorted(program.variables.values(), key=lambda v: v.size is None)
    for variable in ordered:
        align = max(variable.align, 1)
        variable.address = -(-places[variable.space] // align) * align
        if variable.size is not None:
            places[variable.space] = variable.address + variable.size
    for variable in ordered:
        if variable.space in ("global", "const"):
            data = np.zeros(variable.size or 0, np.uint8)
            data[: len(variable.data)] = np.frombuffer(variable.data, np.uint8)
            everything.add(variable.address, data, variable.space)
    trace = Trace([], bases, {v.name: v.address for v in ordered}, {})
    shared_size = places["shared"] - SHARED_BASE + shared_bytes
    with np.errstate(all="ignore"):
        for index in blocks:
            local = _Memory()
            local.buffers = list(everything.buffers)
            local.add(SHARED_BASE, np.zeros(shared_size, np.uint8), "shared")
            stack = places["local"] - LOCAL_BASE
            if stack:
                local.add(LOCAL_BASE, np.zeros((threads, stack), np.uint8), "local")
            _Block(program, local, trace, extent, shape, tuple(index), parameters).run()
    return trace
