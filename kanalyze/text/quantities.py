"""Times, sizes and counts in words."""

from __future__ import annotations


def duration(us: float) -> str:
    """A time in the unit that fits."""
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if us >= size:
            return f"{us / size:.3g} {unit}" if us / size < 1000 else f"{us / size:,.0f} {unit}"
    return f"{us:.3g} us" if us < 100 else f"{us:.0f} us"


def size(count: float) -> str:
    """Bytes in the unit that fits (powers of ten)."""
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count:.0f} B"


def launches(count: int) -> str:
    """A number of launches."""
    return "1 launch" if count == 1 else f"{count:,} launches"
