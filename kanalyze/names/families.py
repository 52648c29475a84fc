"""The families of kernel names: which grammar reads them and what tells what they mean.

Adding one: a grammar in ``grammars/names/``, a transformer beside this file, a line here, a sample
file in ``tests/data/names/``. From another package: an entry point of group ``kanalyze.families``
that names a :class:`Family`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Literal

from kanalyze.names.reading import Reading

Form = Literal["word", "path"]
Transform = Callable[[Reading], None]

GROUP = "kanalyze.families"

_FIRST = re.compile(r"[A-Za-z]+")


@dataclass(frozen=True, slots=True)
class Family:
    """One family of kernel names.

    Attributes:
        name: its name in ``KernelName.family``.
        grammar: file in ``grammars/names/`` (without ``.lark``), or the path of a ``.lark`` file.
        transform: what notes the fields: a function, or ``module:function``.
        form: ``word`` when the grammar reads the function's name, ``path`` when it reads the
            qualified name without its arguments (``at::native::f``).
        first: the letters with which names of the family begin; empty: any. Only the grammar
            decides; this saves trying it.
        what: one line for people.
    """

    name: str
    grammar: str
    transform: Transform | str
    form: Form
    first: tuple[str, ...]
    what: str

    def transformer(self) -> Transform:
        """Return the function that notes the fields, importing its module."""
        if not isinstance(self.transform, str):
            return self.transform
        module, _, function = self.transform.partition(":")
        found: Transform = getattr(import_module(module), function or "transform")
        return found


def _family(name: str, form: Form, first: str, what: str) -> Family:
    return Family(name, name, f"kanalyze.names.{name}:transform", form, tuple(first.split()), what)


FAMILIES: tuple[Family, ...] = (
    _family("cutlass2x", "word", "cutlass", "CUTLASS 2.x, also inside cuBLAS and cuDNN"),
    _family("cutlass3x", "word", "cutlass", "CUTLASS 3.x and 4.x, also inside cuBLASLt and cuDNN"),
    _family(
        "cublas_legacy",
        "word",
        "maxwell pascal volta turing ampere ada hopper",
        "cuBLAS's own matrix products",
    ),
    _family("triton_inductor", "word", "triton", "kernels that TorchInductor generates"),
    _family("at_native", "path", "at anonymous softmax", "PyTorch's own CUDA kernels (ATen)"),
)
"""The built-in families. A name is accepted by one grammar at most; the order does not matter."""


@cache
def families() -> tuple[Family, ...]:
    """Return all families: the built-in ones, then those of other packages' entry points."""
    found = list(FAMILIES)
    for entry in entry_points(group=GROUP):
        extra = entry.load()
        if isinstance(extra, Family):
            found.append(extra)
    return tuple(found)


@cache
def _by_first() -> tuple[dict[str, tuple[Family, ...]], tuple[Family, ...]]:
    table: dict[str, list[Family]] = {}
    anything: list[Family] = []
    for family in families():
        for first in family.first:
            table.setdefault(first, []).append(family)
        if not family.first:
            anything.append(family)
    return {first: tuple(found) for first, found in table.items()}, tuple(anything)


def candidates(text: str) -> tuple[Family, ...]:
    """Return the families whose names can begin as ``text`` does."""
    table, anything = _by_first()
    match = _FIRST.search(text, 0, 64)
    return table.get(match.group() if match else "", ()) + anything
