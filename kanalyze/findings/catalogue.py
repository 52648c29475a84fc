"""The list of rules, and what is known of each without running it."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from kanalyze.errors import UsageError, nearest

if TYPE_CHECKING:
    from kanalyze.findings.facts import Facts
    from kanalyze.report.document import Finding

RULES: tuple[str, ...] = (
    "offset-wraps",
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

Check = Callable[["Facts"], Iterable["Finding"]]
Proving = Callable[["Facts", "Finding"], "Finding | None"]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: its checks (None where it has none of that kind), its proof, its explanation.

    ``title`` is one line; ``sections`` has the texts of `SECTIONS`.
    """

    id: str
    title: str
    sections: dict[str, str]
    check_kernel: Check | None
    check_launch: Check | None
    check_profile: Callable[[Any], Iterable[Any]] | None
    prove: Proving | None

    @property
    def text(self) -> str:
        """The explanation as one text."""
        return "\n\n".join(f"{head}\n{body}" for head, body in self.sections.items())

    @property
    def commands(self) -> tuple[str, ...]:
        """The commands that report it."""
        return (
            *(("ptx",) if self.check_kernel else ()),
            *(("traffic",) if self.check_kernel or self.check_launch else ()),
            *(("decode",) if self.check_profile else ()),
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
    module = importlib.import_module(f"kanalyze.findings.rules.{name.replace('-', '_')}")
    title, sections = explanation(inspect.getdoc(module) or "")
    parts = {
        part: getattr(module, part, None)
        for part in ("check_kernel", "check_launch", "check_profile", "prove")
    }
    return Rule(name, title, sections, **parts)


def rules() -> Iterator[Rule]:
    """All rules."""
    return map(rule, RULES)


def explanation(text: str) -> tuple[str, dict[str, str]]:
    """The title of a docstring, and its sections: a heading is a line underlined with dashes."""
    head, *rest = re.split(r"(?m)^(\S.*)\n-{3,}\n", text)
    sections = dict(zip(rest[::2], (body.strip("\n") for body in rest[1::2]), strict=True))
    return head.strip(), sections
