"""The words of ``words.toml``, which several families share: types, architectures, keys."""

from __future__ import annotations

import tomllib
from pathlib import Path
from types import MappingProxyType
from typing import Any

_TABLES: dict[str, dict[str, Any]] = tomllib.loads(
    Path(__file__).with_name("words.toml").read_text("utf-8")
)
_TYPES = (
    "f64 f32 tf32 f16 bf16 e4m3 e5m2 e2m1 s32 s8 ...; c... complex; f8 f6 f4 chosen at run time"
)
KEYS = MappingProxyType(
    {key: text.replace("{types}", _TYPES) for key, text in _TABLES["keys"].items()}
)
"""Meaning of each key. ``Field.key`` of the built-in families is always one of these."""


def words(table: str) -> dict[str, Any]:
    """A table of ``words.toml``."""
    return _TABLES[table]


ACC_LETTER: dict[str, str] = words("acc_letter")
INSTRUCTIONS: dict[str, list[int]] = words("instructions")
_ARCH_NAMES = {digits: name for name, some in words("arch_names").items() for digits in some}
_CPP_TYPES = {spelling: kind for kind, some in words("cpp_types").items() for spelling in some}


def arch_name(digits: str) -> str | None:
    """Return ``ampere`` for ``80``; None for a capability without a public name."""
    return _ARCH_NAMES.get(digits)


def cpp_dtype(text: str) -> str | None:
    """Return the vocabulary's word for a C++ element type, or None."""
    text = text.strip()
    if text.startswith("const "):
        text = text[6:]
    text = text.removesuffix(" const").removesuffix("const").strip()
    return _CPP_TYPES.get(text.replace(" >", ">"))
