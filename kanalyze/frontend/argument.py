"""A parameter of a kernel as its author knows it."""

from __future__ import annotations

from dataclasses import dataclass

_ELEMENT_BYTES = {"1": 1, "8": 1, "16": 2, "32": 4, "64": 8}


@dataclass(frozen=True, slots=True)
class Argument:
    """What is known of a parameter beyond the PTX: the author's name and type, facts, its value."""

    name: str
    type: str | None = None
    facts: tuple[str, ...] = ()
    value: int | None = None

    @property
    def element_bytes(self) -> int | None:
        """Size of what a pointer points to: 4 for ``*fp32``; None for values."""
        if self.type is None or not self.type.startswith("*"):
            return None
        digits = "".join(c for c in self.type.split("e", 1)[0] if c.isdigit())
        return _ELEMENT_BYTES.get(digits)

    @property
    def divisor(self) -> int:
        """The greatest power of two known to divide the value."""
        return max(
            (int(f.rsplit(" ", 1)[1]) for f in self.facts if f.startswith("divisible")), default=1
        )


@dataclass(frozen=True, slots=True)
class Resources:
    """What the assembler reports, and how it is known; ``reason`` where it is not.

    ``remarks`` are what else it said of the kernel.
    """

    registers: int | None = None
    spill_store_bytes: int | None = None
    spill_load_bytes: int | None = None
    stack_bytes: int | None = None
    shared_bytes: int | None = None
    tool: str | None = None
    reason: str | None = None
    remarks: tuple[str, ...] = ()
