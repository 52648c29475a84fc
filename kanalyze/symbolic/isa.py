"""What the evaluation of registers needs from an instruction set, and from a control-flow graph.

`kanalyze.symbolic.registers` follows registers through any code whose graph is a `Flow` and whose
instructions an `Isa` explains: PTX (`kanalyze.symbolic.ptx_isa`) and SASS
(`kanalyze.symbolic.sass_isa`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from kanalyze.ptx.graph import Graph, NaturalLoop
from kanalyze.symbolic.value import Value, ValuePool

Lookup = Callable[[str, int], Value]
"""Gives the value of a register, by its unique name, at a width in bits."""


class FlowBlock(Protocol):
    """A basic block."""

    @property
    def index(self) -> int:
        """Its number."""

    @property
    def instructions(self) -> Sequence[Any]:
        """Its instructions."""


class Flow(Protocol):
    """A control-flow graph; the attributes are those of `kanalyze.ptx.cfg.Cfg`."""

    @property
    def blocks(self) -> Sequence[FlowBlock]:
        """The basic blocks, the entry first."""

    @property
    def graph(self) -> Graph:
        """The edges."""

    @property
    def exit(self) -> int:
        """The node that stands for the end of the function."""

    @property
    def idom(self) -> Mapping[int, int]:
        """Immediate dominators."""

    @property
    def loops(self) -> Sequence[NaturalLoop]:
        """Natural loops, outer ones first."""

    @property
    def order(self) -> Sequence[int]:
        """The reachable blocks in reverse post-order."""

    def dominates(self, first: int, second: int) -> bool:
        """Whether every way to ``second`` goes through ``first``."""


class Isa(Protocol):
    """An instruction set, for one function.

    Names of registers are unique: two registers of the code that have nothing to do with one
    another have different names.
    """

    def definitions(self, instruction: Any) -> tuple[str, ...]:
        """The registers that an instruction writes."""

    def sources(self, instruction: Any) -> tuple[str, ...]:
        """The registers that its results depend on, as far as they are evaluated."""

    def operand_names(self, instruction: Any, operand: Any) -> tuple[str, ...]:
        """The registers that one operand reads."""

    def guard_names(self, instruction: Any) -> tuple[str, ...]:
        """The registers that decide whether an instruction is executed."""

    def width(self, name: str) -> int:
        """Width of a register in bits."""

    def read(self, instruction: Any, operand: Any, bits: int, lookup: Lookup) -> Value:
        """The value of one operand."""

    def guard(self, instruction: Any, lookup: Lookup) -> Value | None:
        """When a thread executes an instruction; None if always."""

    def results(self, instruction: Any, lookup: Lookup) -> Sequence[Value]:
        """What an instruction writes, in the order of `definitions`, its guard left aside."""

    def stored(self, instruction: Any, name: str, value: Value) -> Value:
        """What register ``name`` holds when ``value`` is written to it."""

    def branch(self, block: FlowBlock) -> Any | None:
        """The instruction at the end of a block that goes one of two ways; None if it does not."""

    def branch_names(self, branch: Any) -> tuple[str, ...]:
        """The registers that decide which way it goes."""

    def branch_condition(self, branch: Any, lookup: Lookup) -> Value:
        """When it jumps (or leaves the function)."""


def resize(pool: ValuePool, value: Value, bits: int, signed: bool = False) -> Value:
    """``value`` at another width; what is wider than the value is filled by sign or zeros."""
    if value.op == "unknown" and value.bits != bits:
        key, reason = value.payload
        return pool.unknown(key, reason, bits)
    if value.bits > bits:
        return pool.node("trunc", bits, value)
    return pool.node("sext" if signed and value.bits > 1 else "zext", bits, value)


def negation(pool: ValuePool, condition: Value) -> Value:
    """The predicate that holds where ``condition`` does not."""
    return pool.node("xor", 1, condition, pool.const(1, 1))
