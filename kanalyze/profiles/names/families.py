"""The families of kernel names: which grammar reads them and what tells what they mean.

Adding one: a grammar in ``grammars/names/``, a table in ``families.toml`` (and code beside this
file, where a table cannot say it), a sample file in ``tests/data/names/``. From another package: an
entry point of group ``kanalyze.families`` that names a :class:`Family`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from kanalyze.profiles.names.fields import NameFields

Form = Literal["word", "path", "raw", "fallback"]
Transform = Callable[[NameFields], None]

GROUP = "kanalyze.families"

_FIRST = re.compile(r"[A-Za-z]+")


@dataclass(frozen=True, slots=True)
class Family:
    """One family of kernel names.

    Attributes:
        name: its name in ``KernelName.family``.
        grammar: file in ``grammars/names/`` (without ``.lark``), or the path of a ``.lark`` file.
        transform: what notes the fields: a function, or ``module:function``; None: the table alone.
        form: ``word`` when the grammar reads the function's name, ``path`` when it reads the
            qualified name without its arguments (``at::native::f``), ``raw`` when it reads the
            whole text, ``fallback`` when no other grammar accepted it.
        first: the letters with which names of the family begin; empty: any. Only the grammar
            decides; this saves trying it.
        what: one line for people.
        wrapped: names of the family also stand in CUTLASS's wrappers (``cutlass::Kernel2<…>``);
            what is inside is tried first.
        table: what is noted without code; see the head of ``families.toml``.
    """

    name: str
    grammar: str
    transform: Transform | str | None
    form: Form
    first: tuple[str, ...]
    what: str
    wrapped: bool = False
    table: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def note(self, reading: NameFields) -> None:
        """Note the fields of a name.

        Raises:
            Reject: it is none of the family's.
        """
        reading.declared()
        transform = self.transform
        if isinstance(transform, str):
            module, _, function = transform.partition(":")
            transform = getattr(import_module(module), function or "transform")
        if callable(transform):
            transform(reading)


def _builtin(name: str, table: Mapping[str, Any]) -> Family:
    module = f"kanalyze.profiles.names.{name}:transform" if "code" in table else None
    first, wrapped = tuple(table.get("first", "").split()), table.get("wrapped", False)
    return Family(name, name, module, table["form"], first, table["what"], wrapped, table)


FAMILIES = tuple(
    _builtin(name, table)
    for name, table in tomllib.loads(
        Path(__file__).with_name("families.toml").read_text("utf-8")
    ).items()
)
"""The built-in families. A name is accepted by one grammar at most, whatever the order."""


@cache
def families() -> tuple[Family, ...]:
    """Return all families: the built-in ones, then those of other packages' entry points."""
    from importlib.metadata import entry_points

    every = list(FAMILIES)
    for entry in entry_points(group=GROUP):
        extra = entry.load()
        if isinstance(extra, Family):
            every.append(extra)
    return tuple(every)


@cache
def fallback(name: str) -> Family:
    """Return the family ``mangled`` or ``other``."""
    return next(family for family in FAMILIES if family.name == name)


@cache
def _by_first() -> tuple[dict[str, tuple[Family, ...]], tuple[Family, ...]]:
    table: dict[str, list[Family]] = {}
    anything: list[Family] = []
    for family in families():
        for first in family.first:
            table.setdefault(first, []).append(family)
        if not family.first and family.form != "fallback":
            anything.append(family)
    return {first: tuple(some) for first, some in table.items()}, tuple(anything)


def candidates(text: str) -> tuple[Family, ...]:
    """Return the families whose names can begin as ``text`` does."""
    table, anything = _by_first()
    match = _FIRST.search(text, 0, 64)
    return table.get(match.group() if match else "", ()) + anything
