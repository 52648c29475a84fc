"""The whole intermediate representation of SASS, on one page.

A `SassModule` is what `kanalyze.sass.parse.parse_sass` returns. Everything is frozen; sequences
are tuples. The reader knows the shape of a line; what an opcode means stands in the table
(`kanalyze.sass.table`).

Operand texts repeat thousands of times in a listing, so equal texts give the same object.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from kanalyze.ptx.ir import Diagnostic, Guard, Pos

__all__ = [
    "Barrier",
    "Constant",
    "Diagnostic",
    "Guard",
    "Keyword",
    "Operand",
    "Pos",
    "Predicate",
    "Register",
    "SassAddress",
    "SassFunction",
    "SassImmediate",
    "SassInstruction",
    "SassLabel",
    "SassModule",
    "SassOpaque",
    "SassSource",
    "Special",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class SassSource:
    """The source line that an instruction came from.

    ``inlined_at`` is set where the line belongs to an inlined function: the next link of the
    chain, towards the user's own line.
    """

    file: str
    line: int
    inlined_at: SassSource | None = None

    @property
    def outermost(self) -> SassSource:
        """The last link of the chain: the line in the kernel itself."""
        return self if self.inlined_at is None else self.inlined_at.outermost


# ---------------------------------------------------------------- operands


@dataclass(frozen=True, slots=True)
class Register:
    """``R5``, ``UR4``, ``RZ``, ``-R5.reuse``, ``|R5|``, ``~R5``, ``R5.H0_H0``, ``R2.64``.

    ``file`` is "R" (of a thread) or "UR" (uniform, one for the warp). ``number`` is None for RZ
    and URZ, which read as zero. ``suffixes`` are those behind the name, "reuse" among them.
    """

    file: str
    number: int | None
    suffixes: tuple[str, ...] = ()
    negated: bool = False
    inverted: bool = False
    absolute: bool = False

    @property
    def name(self) -> str:
        """The register without modifiers: ``R5``, ``URZ``."""
        return f"{self.file}{'Z' if self.number is None else self.number}"


@dataclass(frozen=True, slots=True)
class Predicate:
    """``P0``, ``!P3``, ``PT``, ``UP1``, ``!UPT``. ``number`` is None for PT and UPT (true)."""

    file: str  # "P" or "UP"
    number: int | None
    negated: bool = False
    suffixes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The predicate without modifiers: ``P0``, ``UPT``."""
        return f"{self.file}{'T' if self.number is None else self.number}"


@dataclass(frozen=True, slots=True)
class SassImmediate:
    """``0x10``, ``-126``, ``0.5``, ``+INF``, ``-QNAN``; ``value`` is an int or a float."""

    text: str
    value: int | float


@dataclass(frozen=True, slots=True)
class Constant:
    """``c[0x0][0x210]``: a constant bank; also ``c[0x3][R4+0x8]``, ``cx[UR4][0x8]``.

    ``bank`` is a number, or the uniform register that holds the bank's handle (``bindless``).
    ``base`` is the register that ``offset`` (in bytes) is added to, if any.
    """

    bank: int | Register
    offset: int
    base: Register | None = None
    suffixes: tuple[str, ...] = ()
    negated: bool = False
    inverted: bool = False
    absolute: bool = False


@dataclass(frozen=True, slots=True)
class SassAddress:
    """``[R2.64+UR4+0x10]``, ``desc[UR4][R2.64+0x10]``, ``gdesc[UR4].tnspB``, ``tmem[UR4+0x20]``.

    ``space`` is the word before the bracket: "" (a plain address), "gdesc" (matrix descriptors in
    shared memory), "tmem" (tensor memory), "idesc" (an instruction descriptor)… ``desc[…]`` is no
    space but the ``descriptor`` of a plain address. ``registers`` are added up, with ``offset``
    in bytes.
    """

    registers: tuple[Register, ...]
    offset: int = 0
    space: str = ""
    descriptor: Register | None = None
    suffixes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SassLabel:
    """`` `(.L_x_3) ``: a place in the code, or another symbol. ``offset`` is added to it."""

    name: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Special:
    """A special register: ``SR_TID.X``, ``SRZ``, ``PR`` (all predicates as one number)."""

    name: str


@dataclass(frozen=True, slots=True)
class Barrier:
    """``B0`` (convergence), ``SB0`` (scoreboard), ``gsb0`` (warpgroup)."""

    name: str


@dataclass(frozen=True, slots=True)
class Keyword:
    """Any other word: ``2D``, ``ARRAY_2D``, ``(*"BRANCH_TARGETS .L_x_1,.L_x_2"*)``."""

    text: str


Operand = (
    Register
    | Predicate
    | SassImmediate
    | Constant
    | SassAddress
    | SassLabel
    | Special
    | Barrier
    | Keyword
)


# ---------------------------------------------------------------- instructions, functions, modules


@dataclass(frozen=True, slots=True)
class SassInstruction:
    """One instruction: ``/*00f0*/ @!P6 LDG.E R3, desc[UR4][R10.64] ;``

    ``address`` is its byte offset in the function; ``pos`` its place in the listing. ``guard`` is
    the predicate that switches single threads off (``@!P6``, ``@UP0``, ``@!PT``). ``ptx_line`` is
    the line of the PTX that it was made of, where the line table tells it.
    """

    address: int
    opcode: str
    operands: tuple[Operand, ...]
    guard: Guard | None
    pos: Pos
    source: SassSource | None = None
    ptx_line: int | None = None

    @property
    def parts(self) -> tuple[str, ...]:
        """The mnemonic split at its dots: ``("LDG", "E", "128")``."""
        return tuple(self.opcode.split("."))

    @property
    def base(self) -> str:
        """The mnemonic without modifiers: ``LDG``."""
        return self.opcode.partition(".")[0]


@dataclass(frozen=True, slots=True)
class SassOpaque:
    """A line of code that could not be read; the reason is in `SassModule.diagnostics`."""

    text: str
    pos: Pos


@dataclass(frozen=True, slots=True)
class SassFunction:
    """The code of one kernel or device function: one ``.text.NAME`` section.

    ``labels`` maps the labels in it to byte offsets (a label behind the last instruction has the
    size of the code). ``opaque`` holds the lines that could not be read.
    """

    name: str
    instructions: tuple[SassInstruction, ...]
    labels: Mapping[str, int]
    pos: Pos
    opaque: tuple[SassOpaque, ...] = ()


@dataclass(frozen=True, slots=True)
class SassModule:
    """A listing. ``target`` is ``sm_90``, None where the listing does not tell."""

    target: str | None
    functions: tuple[SassFunction, ...]
    diagnostics: tuple[Diagnostic, ...] = ()
    text: str = field(default="", repr=False, compare=False)

    @property
    def instructions(self) -> Iterator[SassInstruction]:
        """The instructions of all functions."""
        return (i for function in self.functions for i in function.instructions)

    def function(self, name: str) -> SassFunction:
        """Return the function of a name.

        Raises:
            KeyError: there is none.
        """
        for function in self.functions:
            if function.name == name:
                return function
        raise KeyError(name)
