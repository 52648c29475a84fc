"""The whole intermediate representation of PTX, on one page.

A `Module` is what `kanalyze.ptx.parse.parse_ptx` returns. Everything is frozen; sequences are
tuples; every node that stands in the source knows its 1-based line and column. The grammar
(``grammars/ptx.lark``) knows the shape of a statement, the table (`kanalyze.ptx.instructions`)
knows what an opcode means: nothing here does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Pos:
    """A place in the PTX text: 1-based line and column; ``calls`` lead there, outermost first."""

    line: int
    column: int
    calls: tuple[Pos, ...] = ()

    def __lt__(self, other: Pos) -> bool:
        """Whether it stands before another, of a called function at the place of the call."""
        mine, others = ([(p.line, p.column) for p in (*q.calls, q)] for q in (self, other))
        return mine < others


@dataclass(frozen=True, slots=True)
class Loc:
    """A ``.loc`` directive: the source line that the following statements came from.

    ``function`` and ``inlined_at`` are set where the line belongs to a function that was inlined
    (``.loc F L C, function_name LABEL, inlined_at F2 L2 C2``); ``inlined_at`` is the next link of
    the chain, towards the user's own line. ``line`` 0 means that the compiler knows no line.
    """

    file: int
    line: int
    column: int
    function: str | None = None
    inlined_at: Loc | None = None


# ---------------------------------------------------------------- operands


@dataclass(frozen=True, slots=True)
class Name:
    """An identifier: a register (``%r1``), a variable, a label, a special register (``%tid.x``).

    ``text`` is as written, with a component suffix if there is one.
    """

    text: str


@dataclass(frozen=True, slots=True)
class Immediate:
    """A literal or a constant expression.

    ``value`` is an int or a float (``0f3F800000`` is the float 1.0); None for a constant
    expression that was kept as text.
    """

    text: str
    value: int | float | None


@dataclass(frozen=True, slots=True)
class Address:
    """``[base+offset]``; ``coordinates`` for textures and tensor maps (``[map, {%r1, %r2}]``).

    ``subscript`` tells the spelling ``base[coordinate]`` of the same.
    """

    base: Operand
    offset: int = 0
    coordinates: tuple[Operand, ...] = ()
    subscript: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Vector:
    """``{%r1, %r2}``, also a parenthesised list of a call; ``_`` items are ``Name('_')``."""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """``%p1|%p2``: the two destinations of ``setp``, ``shfl``, ``match``…"""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class Not:
    """``!%p1`` as a source operand."""

    operand: Operand


Operand = Name | Immediate | Address | Vector | Pair | Not


# ---------------------------------------------------------------- statements


@dataclass(frozen=True, slots=True)
class Guard:
    """``@%p1`` or ``@!%p1`` before an instruction."""

    name: str
    negated: bool = False


class _Origin(Protocol):
    """Where a deferred node comes from: it makes an attribute when that is first asked for."""

    def attribute(self, raw: tuple[Any, ...], name: str) -> Any:
        """Return the value of an attribute."""


class _Deferred:
    """A node whose attributes are made on first use (a file has 100,000 instructions).

    ``_raw`` is set by the reader only: a tuple whose first item is the `_Origin`. Nodes made by
    their constructor have none.
    """

    __slots__ = ("_raw",)
    _raw: tuple[Any, ...]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        origin: _Origin = self._raw[0]
        value = origin.attribute(self._raw, name)
        object.__setattr__(self, name, value)
        return value


@dataclass(frozen=True, slots=True)
class Instruction(_Deferred):
    """One PTX instruction, predicated or not.

    ``opcode`` is the full mnemonic as written (``ld.global.v4.b32``); ``parts`` is it split at
    the dots. ``loc`` is the ``.loc`` in force where it stands (for inline assembly: the one before
    ``// begin inline asm``). ``inline_asm`` tells whether it came from inline assembly. ``scope``
    is the index of the innermost ``{ }`` it stands in (0 = the body), see `Function.scopes`.
    """

    opcode: str
    operands: tuple[Operand, ...]
    guard: Guard | None
    pos: Pos
    loc: Loc | None = None
    inline_asm: bool = False
    scope: int = 0

    @property
    def parts(self) -> tuple[str, ...]:
        """The mnemonic split at its dots: ``("ld", "global", "v4", "b32")``."""
        return tuple(self.opcode.split("."))

    @property
    def base(self) -> str:
        """The mnemonic without modifiers: ``ld``."""
        return self.opcode.partition(".")[0]


@dataclass(frozen=True, slots=True)
class Label(_Deferred):
    """``name:``"""

    name: str
    pos: Pos
    scope: int = 0


@dataclass(frozen=True, slots=True)
class RegisterDeclaration:
    """``.reg .b32 %r<121>;`` (``count`` 121: ``%r0``…``%r120``) or ``.reg .pred p, q;``"""

    type: str
    names: tuple[str, ...]
    counts: tuple[int | None, ...]
    pos: Pos
    scope: int = 0


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable in a state space: ``.extern .shared .align 16 .b8 smem[];``

    ``elements`` is the product of the array dimensions: None for ``[]``, 1 for a scalar.
    ``element_bytes`` is 0 for types without a size (``.texref``…). ``dimensions`` holds the array
    dimensions one by one (none for a scalar, None for ``[]``), ``attributes`` the texts of
    ``.attribute(…)``.
    """

    name: str
    space: str
    type: str
    element_bytes: int
    elements: int | None
    align: int | None
    linkage: str | None
    initializer: str | None
    pos: Pos
    scope: int = 0
    dimensions: tuple[int | None, ...] = ()
    attributes: tuple[str, ...] = ()

    @property
    def bytes(self) -> int | None:
        """Size in bytes; None where the declaration leaves it open."""
        return None if self.elements is None else self.elements * self.element_bytes


@dataclass(frozen=True, slots=True)
class ScopeOpen:
    """``{`` inside a body."""

    pos: Pos
    scope: int


@dataclass(frozen=True, slots=True)
class ScopeClose:
    """``}`` inside a body."""

    pos: Pos
    scope: int


@dataclass(frozen=True, slots=True)
class Directive:
    """Any other directive, as written (``.pragma "nounroll";``, ``.branchtargets``…)."""

    name: str
    text: str
    pos: Pos
    scope: int = 0


@dataclass(frozen=True, slots=True)
class Opaque:
    """A statement that could not be read; the reason is in `Module.diagnostics`."""

    text: str
    pos: Pos
    scope: int = 0


Statement = (
    Instruction
    | Label
    | RegisterDeclaration
    | Variable
    | ScopeOpen
    | ScopeClose
    | Directive
    | Opaque
)


# ---------------------------------------------------------------- functions and modules


@dataclass(frozen=True, slots=True)
class Parameter:
    """A formal parameter: ``.param .u64 .ptr .global .align 1 gelu_kernel_param_0``.

    ``pointer`` is the state space after ``.ptr`` (``generic`` if none is given), None for values.
    ``elements`` and ``dimensions`` are as in `Variable`. ``space`` is "reg" where a device function
    takes or returns a register.
    """

    name: str
    type: str
    element_bytes: int
    elements: int | None
    align: int | None
    pointer: str | None
    pointer_align: int | None
    pos: Pos
    dimensions: tuple[int | None, ...] = ()
    space: str = "param"

    @property
    def bytes(self) -> int | None:
        """Size in bytes of the parameter itself."""
        return None if self.elements is None else self.elements * self.element_bytes


@dataclass(frozen=True, slots=True)
class Function:
    """A kernel (``kind`` "entry") or a device function ("func").

    ``body`` is None for a declaration. It is flat: nested ``{ }`` are `ScopeOpen`/`ScopeClose`
    statements, and ``scopes[i]`` is the index of the scope that encloses scope ``i`` (``scopes[0]``
    is -1, the body itself). ``directives`` holds the performance directives, name to numbers:
    ``{"reqntid": (128,), "maxnreg": (64,)}``; ``pragmas`` the strings of ``.pragma`` in front of
    the body, with their quotes; ``attributes`` the texts of ``.attribute(…)``.
    """

    kind: str
    name: str
    returns: tuple[Parameter, ...]
    parameters: tuple[Parameter, ...]
    directives: Mapping[str, tuple[int, ...]]
    linkage: str | None
    body: tuple[Statement, ...] | None
    scopes: tuple[int, ...]
    pos: Pos
    end: Pos
    pragmas: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()

    @property
    def instructions(self) -> Iterator[Instruction]:
        """The instructions of the body in source order."""
        return (s for s in self.body or () if isinstance(s, Instruction))


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """Something the reader could not understand, or wants to warn about."""

    severity: str  # "error" or "warning"
    message: str
    pos: Pos


@dataclass(frozen=True, slots=True)
class Module:
    """One PTX module. ``text`` is the source exactly as it was given (CRLF and all).

    ``version`` is "8.7", ``target`` is ("sm_90a",) with further options behind. ``files`` maps
    the numbers that `Loc.file` holds to paths as written. ``directives`` holds the other
    directives of the module (``.pragma``, ``.alias``…), ``sections`` each ``.section`` with all it
    holds, as written.
    """

    name: str
    version: str | None
    target: tuple[str, ...]
    address_size: int | None
    variables: tuple[Variable, ...]
    functions: tuple[Function, ...]
    files: Mapping[int, str]
    diagnostics: tuple[Diagnostic, ...]
    text: str = field(repr=False, compare=False)
    directives: tuple[Directive, ...] = ()
    sections: tuple[Directive, ...] = ()

    @property
    def entries(self) -> tuple[Function, ...]:
        """The kernels."""
        return tuple(f for f in self.functions if f.kind == "entry")
