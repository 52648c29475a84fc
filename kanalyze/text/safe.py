"""Text that is safe to show: nothing in it steers a terminal."""

from __future__ import annotations

import unicodedata


def is_hostile(character: str) -> bool:
    """Whether a character could steer a terminal or turn text around (controls, bidi, …)."""
    return unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")


def escaped(text: str, keep: str = "") -> str:
    r"""The text with hostile characters as escapes: ``\x1b``; those in ``keep`` stay."""
    if text.isprintable():
        return text
    return "".join(
        c if c in keep or not is_hostile(c) else c.encode("unicode_escape").decode() for c in text
    )


def cell_of(value: object) -> object:
    """A cell of CSV that neither steers a terminal nor is a formula for a spreadsheet."""
    if not isinstance(value, str):
        return value
    text = escaped(value)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text
