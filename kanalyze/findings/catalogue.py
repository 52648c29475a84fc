"""The list of rules, and what is known of each without importing it."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from kanalyze.errors import UsageError, nearest

if TYPE_CHECKING:
    from kanalyze.findings.rule import ProfileRule, Rule

_KERNEL, _LAUNCH, _PROFILE = ("ptx", "traffic"), ("traffic",), ("decode",)

RULES: dict[str, tuple[str, ...]] = {
    "launch-mismatch": _LAUNCH,
    "tensor-map": _KERNEL,
    "offset-wraps": _KERNEL,
    "half-masked-block": _KERNEL,
    "narrow-access": _KERNEL,
    "uncoalesced-access": _KERNEL,
    "misaligned-access": _KERNEL,
    "repeated-loads": _LAUNCH,
    "generic-access": _KERNEL,
    "missing-nc": _KERNEL,
    "wide-256-bit": _KERNEL,
    "bank-conflicts": _KERNEL,
    "wave-quantisation": _LAUNCH + _PROFILE,
    "small-grid": _LAUNCH,
    "tile-quantisation": _LAUNCH + _PROFILE,
    "small-tiles": _LAUNCH,
    "block-order": _LAUNCH,
    "low-bytes-in-flight": _LAUNCH,
    "atomic-contention": _LAUNCH,
    "divergent-branch": _LAUNCH,
    "tensor-core-fallback": _KERNEL,
    "tf32-precision": _KERNEL,
    "register-spill": _KERNEL,
    "stack-array": _KERNEL,
    "local-indexing": _KERNEL,
    "occupancy-cliff": _KERNEL,
    "shared-memory-limit": _KERNEL,
    "unpipelined-loop": _KERNEL,
    "wgmma-serialized": _KERNEL,
    "layout-conversion": _KERNEL,
    "atomic-without-use": _KERNEL,
    "cas-loop": _KERNEL,
    "constant-by-lane": _KERNEL,
    "copies-waited-for": _KERNEL,
    "double-precision": _KERNEL,
    "fp32-simt-gemm": _PROFILE,
    "older-architecture": _PROFILE,
    "tensor-layout-conversion": _PROFILE,
    "tiny-kernels": _PROFILE,
    "unfused-elementwise": _PROFILE,
}
"""The id of each rule and the commands that report it, in the order of the documents.

Errors are reported in this order, too: first what keeps a launch from running.
"""

SECTIONS = (
    "What it says",
    "Why it is slow",
    "How it is detected",
    "How it is proven",
    "Example",
    "Source",
)
"""The headings of an explanation, in this order."""

_RULES, _PROFILE_RULES = "kanalyze.findings.rules", "kanalyze.findings.profile_rules"


@dataclass(frozen=True)
class Explanation:
    """What a rule says in general: the docstring of its module.

    ``title`` is one line; ``sections`` has the texts of `SECTIONS`; ``commands`` report it.
    """

    id: str
    title: str
    sections: dict[str, str]
    commands: tuple[str, ...]

    @property
    def text(self) -> str:
        """The sections as one text."""
        return "\n\n".join(f"{head}\n{body}" for head, body in self.sections.items())


def known_id(text: str) -> str:
    """The id that a text means: in any case, with ``_`` or ``-``.

    Raises:
        UsageError: there is none; with the nearest ids.
    """
    name = text.strip().lower().replace("_", "-")
    if name not in RULES:
        raise UsageError(f"there is no finding '{text}': {nearest(name, RULES)}")
    return name


def rules(command: str) -> Iterator[Rule]:
    """The rules on kernels and launches that a command reports; their modules are imported."""
    for id_, commands in RULES.items():
        if command in commands:
            yield _imported(_RULES, id_)


def profile_rules() -> Iterator[ProfileRule]:
    """The rules on profiles; only their modules are imported."""
    for id_, commands in RULES.items():
        if commands[-1:] == _PROFILE:
            yield _imported(_PROFILE_RULES, id_)


@cache
def explanation(id_: str) -> Explanation:
    """What a rule says in general (errors: see `known_id`); its module is read, not imported.

    That of a rule on launches and profiles stands with the rule on launches.
    """
    name = known_id(id_)
    package = _PROFILE_RULES if RULES[name] == _PROFILE else _RULES
    source = resources.files(package).joinpath(f"{_module(name)}.py").read_text("utf-8")
    title, sections = _parts(ast.get_docstring(ast.parse(source)) or "")
    return Explanation(name, title, sections, RULES[name])


def _module(id_: str) -> str:
    return id_.replace("-", "_")


def _imported(package: str, id_: str) -> Any:
    return importlib.import_module(f"{package}.{_module(id_)}").RULE


def _parts(docstring: str) -> tuple[str, dict[str, str]]:
    """The title of a docstring, and its sections: a heading is a line underlined with dashes."""
    head, *rest = re.split(r"(?m)^(\S.*)\n-{3,}\n", docstring)
    sections = dict(zip(rest[::2], (body.strip("\n") for body in rest[1::2]), strict=True))
    return head.strip(), sections
