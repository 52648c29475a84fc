"""Numbers as people read them: counts, bytes, times, shares, names of bounds."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kanalyze.text.page import NBSP


def whole(number: float) -> str:
    """A whole number with separators."""
    return f"{number:,.0f}"


def decimal(number: float) -> str:
    """Three digits, or all of those in front of the point."""
    if number == 0 or abs(number) >= 100:
        return f"{number:,.0f}"
    text = f"{number:.{max(0, 2 - math.floor(math.log10(abs(number))))}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def human(size: int) -> str:
    """Bytes exactly, and in binary units where that is shorter: ``67,108,864 B = 64 MiB``."""
    exact = f"{whole(size)}{NBSP}B"
    return exact if size < 1024 else f"{exact} = {binary(size)}"


def binary(size: int) -> str:
    """Bytes in the binary unit that fits: ``64 MiB``."""
    power = min(5, int(math.log2(size)) // 10) if size else 0
    return f"{decimal(size / 1024**power)}{NBSP}{' KMGTP'[power]}iB" if power else f"{size}{NBSP}B"


def extents(sizes: Sequence[int]) -> str:
    """A grid or block: ``16 x 16 x 1``."""
    return f"{NBSP}x{NBSP}".join(whole(n) for n in sizes)


def plural(count: int, noun: str) -> str:
    """A number and what is counted: ``1 access``, ``2 branches``, ``3 loops``."""
    ending = "" if count == 1 else "es" if noun.endswith(("s", "ch")) else "s"
    return f"{whole(count)} {noun}{ending}"


def figure(value: float | None) -> str:
    """A number whole where it is or is large, else with four digits; ``?`` for None."""
    if value is None:
        return "?"
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 1000 else f"{value:,.4g}"


def percent(value: float) -> str:
    """Percent with three digits."""
    return f"{decimal(value)}{NBSP}%"


def percent_of(share: float) -> str:
    """A share in percent with three digits."""
    return percent(100 * share)


def whole_percent(share: float) -> str:
    """A share in whole percent."""
    return f"{100 * share:.0f} %"


def tenth_percent(share: float | None) -> str:
    """A share in percent with one digit behind the point; nothing where it is not known."""
    return "" if share is None else f"{100 * share:.1f} %"


def share_of_all(share: float) -> str:
    """A share in percent; 100 only where it is all."""
    return f"{100 if share == 1 else min(100 * share, 99.9):.3g} %"


def tera(number: float) -> str:
    """10^12 times the number with a decimal prefix for the unit behind it."""
    return engineering(number * 1e12)


def giga(number: float) -> str:
    """10^9 times the number with a decimal prefix for the unit behind it."""
    return engineering(number * 1e9)


def engineering(number: float) -> str:
    """A number with a decimal prefix for the unit behind it: ``2.15 G``."""
    power = min(5, int(math.log10(number)) // 3) if number >= 1 else 0
    return f"{decimal(number / 1000**power)}{NBSP}{' kMGTP'[power].strip()}"


_BOUNDS = {"hbm": "HBM", "l2": "L2", "l1": "L1", "fabric": "L2 fabric",
           "link": "links between SMs and L2", "fp32": "FP32",
           "alu": "ALU", "sfu": "special functions", "lsu": "load/store unit", "fp64": "FP64",
           "tensor": "tensor cores", "issue": "issue slots", "shared": "shared memory",
           "int_multiply": "integer multiply", "uniform": "uniform datapath",
           "atomics": "atomics on one address", "launch": "launch overhead",
           "latency": "latency"}  # fmt: skip


_UNITS = {"fp32": "FP32 units", "fp64": "FP64 units", "fp16": "FP16 units"}


def unit_name(unit: str) -> str:
    """A unit of the roofline in words."""
    kind = unit.removeprefix("tensor ")
    return f"the {_UNITS[unit]}" if unit in _UNITS else f"the tensor cores ({kind})"


def bound_name(bound: str | None) -> str:
    """A bound of ``time.bounds_us`` in words."""
    return _BOUNDS.get(bound or "", bound or "unknown")


def duration(us: float) -> str:
    """A time in the unit that fits."""
    for unit, factor in (("s", 1e6), ("ms", 1e3)):
        if us >= factor:
            shown = us / factor
            return f"{shown:.3g} {unit}" if shown < 1000 else f"{shown:,.0f} {unit}"
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
