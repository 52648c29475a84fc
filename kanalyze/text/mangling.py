"""Itanium-mangled names through the ``demangle`` package.

``demangle`` is pure Python with limits on depth, size and output, so that a hostile name costs
milliseconds; LLVM's demangler (``pycxxfilt``) overflows the C stack on such names and takes the
process with it. It is imported when the first mangled name comes.
"""

from __future__ import annotations

import re

_LENGTH = re.compile(r"\d{1,4}")


def demangle(text: str) -> tuple[str | None, bool]:
    """Demangle a name.

    Returns:
        the GNU spelling, or None where the name cannot be read; and whether it breaks off.
    """
    import demangle as library

    try:
        return library.demangle_strict(text, style="gnu", language="itanium"), False
    except library.TruncatedError:
        return None, True
    except (library.DemanglingError, ValueError, RecursionError):
        return None, False


def leading_names(text: str) -> list[tuple[str, int]]:
    """Return the names with which a mangled name begins, each with its place.

    Only ``_ZN`` and ``_Z`` followed by length-prefixed names (Itanium C++ ABI, 5.1.3); enough to
    know the function of a mangled name that was cut. A name that the cut runs through is left out.
    """
    nested = text.startswith("_ZN")
    at = 3 if nested else 2
    names: list[tuple[str, int]] = []
    while match := _LENGTH.match(text, at):
        begin = match.end()
        end = begin + int(match.group())
        if end >= len(text):
            break
        names.append((text[begin:end], begin))
        at = end
        if not nested:
            return names
    if at >= len(text) or (nested and text[at] not in "IE"):
        return []
    return names
