"""The list of rules, and what is known of each without running it."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from kanalyze.errors import UsageError, nearest

if TYPE_CHECKING:
    from kanalyze.findings.facts import Facts
    from kanalyze.findings.profile import Profile
    from kanalyze.results.kernel import Finding

RULES: tuple[str, ...] = (
    "offset-wraps",
    "launch-mismatch",
    "narrow-access",
    "uncoalesced-access",
    "misaligned-access",
    "repeated-loads",
    "generic-access",
    "missing-nc",
    "wide-256-bit",
    "bank-conflicts",
    "wave-quantisation",
    "small-grid",
    "tile-quantisation",
    "small-tiles",
    "block-order",
    "low-bytes-in-flight",
    "atomic-contention",
    "divergent-branch",
    "tensor-core-fallback",
    "tf32-precision",
    "register-spill",
    "stack-array",
    "local-indexing",
    "occupancy-cliff",
    "shared-memory-limit",
    "unpipelined-loop",
    "wgmma-serialized",
    "layout-conversion",
    "atomic-without-use",
    "fp32-simt-gemm",
    "older-architecture",
    "tensor-layout-conversion",
    "tiny-kernels",
    "unfused-elementwise",
)
"""The ids of all rules, in the order of the documents."""

SECTIONS = (
    "What it says",
    "Why it is slow",
    "How it is detected",
    "How it is proven",
    "Example",
    "Source",
)
"""The headings of an explanation, in this order."""

_RULES = "kanalyze.findings.rules"

Check = Callable[["Facts"], Iterable["Finding"]]
Proving = Callable[["Facts", "Finding"], "Finding | None"]


@dataclass(frozen=True)
class Rule:
    """A rule, read from its file; it is imported when one of its functions is asked for.

    ``title`` is one line; ``sections`` has the texts of `SECTIONS`; ``functions`` are the names of
    those that it has.
    """

    id: str
    title: str
    sections: dict[str, str]
    functions: frozenset[str]

    @property
    def check_kernel(self) -> Check | None:
        """What it finds in a kernel."""
        found: Check | None = self._function("check_kernel")
        return found

    @property
    def check_launch(self) -> Check | None:
        """What it finds in a launch."""
        found: Check | None = self._function("check_launch")
        return found

    @property
    def check_profile(self) -> Callable[[Profile], Iterable[Any]] | None:
        """What it finds in a profile."""
        found: Callable[[Profile], Iterable[Any]] | None = self._function("check_profile")
        return found

    @property
    def prove(self) -> Proving | None:
        """The change that a finding advises, made."""
        found: Proving | None = self._function("prove")
        return found

    def _function(self, name: str) -> Any:
        if name not in self.functions:
            return None
        return getattr(importlib.import_module(f"{_RULES}.{_module(self.id)}"), name)

    @property
    def text(self) -> str:
        """The explanation as one text."""
        return "\n\n".join(f"{head}\n{body}" for head, body in self.sections.items())

    @property
    def commands(self) -> tuple[str, ...]:
        """The commands that report it."""
        of_kernels = "check_kernel" in self.functions
        of_launches = of_kernels or "check_launch" in self.functions
        return (
            *(("ptx",) if of_kernels else ()),
            *(("traffic",) if of_launches else ()),
            *(("decode",) if "check_profile" in self.functions else ()),
        )


def known_id(text: str) -> str:
    """The id that a text means: in any case, with ``_`` or ``-``.

    Raises:
        UsageError: there is none; with the nearest ids.
    """
    name = text.strip().lower().replace("_", "-")
    if name not in RULES:
        raise UsageError(f"there is no finding '{text}': {nearest(name, RULES)}")
    return name


@cache
def rule(id_: str) -> Rule:
    """The rule of an id (errors: see `known_id`)."""
    name = known_id(id_)
    text = resources.files(_RULES).joinpath(f"{_module(name)}.py").read_text("utf-8")
    title, sections = explanation(text.split('"""')[1])
    return Rule(name, title, sections, frozenset(re.findall(r"(?m)^def (\w+)\(", text)))


def _module(id_: str) -> str:
    return id_.replace("-", "_")


def rules() -> Iterator[Rule]:
    """All rules."""
    return map(rule, RULES)


def explanation(text: str) -> tuple[str, dict[str, str]]:
    """The title of a docstring, and its sections: a heading is a line underlined with dashes."""
    head, *rest = re.split(r"(?m)^(\S.*)\n-{3,}\n", text)
    sections = dict(zip(rest[::2], (body.strip("\n") for body in rest[1::2]), strict=True))
    return head.strip(), sections
