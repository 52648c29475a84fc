"""Itanium-mangled names through the ``demangle`` package.

``demangle`` is pure Python with limits on depth, size and output, so that a hostile name costs
milliseconds; LLVM's demangler (``pycxxfilt``) overflows the C stack on such names and takes the
process with it. It is imported when the first mangled name comes.
"""

from __future__ import annotations

import re

_LENGTH = re.compile(r"\d{1,4}")


def demangle(text: str) -> str | None:
    """Return the GNU spelling of a mangled name, or None where it cannot be read."""
    import demangle as library

    try:
        spelled = library.demangle(text, style="gnu", language="itanium")
    except (ValueError, RecursionError):
        return None
    return None if spelled == text else spelled


def leading_names(text: str) -> list[tuple[str, int]]:
    """Return the names with which a mangled name begins, each with its place.

    Only ``_ZN`` and ``_Z`` followed by length-prefixed names (Itanium C++ ABI, 5.1.3); enough to
    know the function of a mangled name that was cut. A name that the cut runs through is left out.
    """
    at = 3 if text.startswith("_ZN") else 2
    names: list[tuple[str, int]] = []
    while match := _LENGTH.match(text, at):
        begin = match.end()
        end = begin + int(match.group())
        if end >= len(text):
            break
        names.append((text[begin:end], begin))
        at = end
    if at >= len(text) or text[at] not in "IE" and text.startswith("_ZN"):
        return []
    return names
