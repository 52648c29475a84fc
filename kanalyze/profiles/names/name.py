"""What a decoded kernel name is: ``KernelName`` with its ``Field`` and ``Span`` items."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from kanalyze.profiles.names.remarks import remarks
from kanalyze.text.plain import to_plain

Value = str | int | bool | tuple[str, ...]
Basis = Literal["documented", "generator", "observed", "inferred"]


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a name: ``text`` stands at ``start:end`` of :attr:`KernelName.text`."""

    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Field:
    """One fact that a name states, and the part of the name that states it.

    Attributes:
        text: the part of the name; ``KernelName.text[start:end]``.
        start: first character, counted from 0.
        end: one past the last character.
        key: what is stated; ``kanalyze.profiles.names.KEYS`` has one line for each key.
        value: the value, in the vocabulary of ``KEYS``.
        basis: where the reading comes from. ``documented``: the library's documentation or public
            source. ``generator``: the public program that writes such names. ``observed``: holds
            for every name of a shipped library, without a document. ``inferred``: follows from
            something documented, one step away.
    """

    text: str
    start: int
    end: int
    key: str
    value: Value
    basis: Basis


@dataclass(frozen=True, slots=True)
class KernelName:
    """A kernel name and everything that it states.

    Attributes:
        name: the name as it was given.
        family: one of ``kanalyze.profiles.names.families()``; ``other`` when no grammar accepts
        the name.
        truncated: the name was cut (by a profiler); what stands at the cut is not decoded.
        demangled: the C++ declaration when ``name`` was mangled (GNU spelling), else None.
        decoded: the values by key. A key that is absent is not stated by the name.
        fields: every value with the part of the name that states it, in the order of the name.
        undecoded: the parts that a grammar accepts but whose meaning is not publicly known.
    """

    name: str
    family: str
    truncated: bool
    demangled: str | None
    decoded: Mapping[str, Value] = field(hash=False)
    fields: tuple[Field, ...]
    undecoded: tuple[Span, ...]

    def __reduce__(self) -> tuple[Any, ...]:
        """Let a read-only mapping be pickled (``multiprocessing``, ``copy``)."""
        values = (self.name, self.family, self.truncated, self.demangled)
        return _restore, (*values, dict(self.decoded), self.fields, self.undecoded)

    @property
    def text(self) -> str:
        """The text that all spans count in: ``demangled`` where there is one, else ``name``."""
        return self.name if self.demangled is None else self.demangled

    @property
    def remarks(self) -> tuple[str, ...]:
        """What the name means for the kernel's speed, and what it leaves open, in sentences."""
        return remarks(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the name as plain dicts, lists, strings and numbers (for JSON)."""
        return {**to_plain(self), "remarks": list(self.remarks)}


def _restore(
    name: str,
    family: str,
    truncated: bool,
    demangled: str | None,
    decoded: dict[str, Value],
    fields: tuple[Field, ...],
    undecoded: tuple[Span, ...],
) -> KernelName:
    proxy = MappingProxyType(decoded)
    return KernelName(name, family, truncated, demangled, proxy, fields, undecoded)
