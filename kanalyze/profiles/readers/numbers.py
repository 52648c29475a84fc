"""Numbers and units as profilers print them, in whatever country."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

TIME_UNITS = {
    "ns": 1e-3, "nsecond": 1e-3, "nsec": 1e-3, "nanosecond": 1e-3,
    "us": 1.0, "usecond": 1.0, "usec": 1.0, "μs": 1.0, "µs": 1.0, "microsecond": 1.0,
    "ms": 1e3, "msecond": 1e3, "msec": 1e3, "millisecond": 1e3,
    "s": 1e6, "second": 1e6, "sec": 1e6,
}  # fmt: skip
"""Microseconds in a unit of time."""

MOST_US = 1e15
"""Microseconds (31 years) of the longest time that is believed."""
_MOST_WHOLE = 1 << 63

_PREFIX = {"k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "ki": 1024.0, "mi": 2.0**20, "gi": 2.0**30}
_BLANKS = " \u00a0\u202f\u2009'’"
_DIGITS = re.compile(rf"[-+]?\d[\d.,{_BLANKS}]*(?:[eE][-+]?\d+)?")
_GROUPED = re.compile(rf"[-+]?\d{{1,3}}(?:[.,{_BLANKS}]\d{{3}})+")


def is_time(us: float) -> bool:
    """Whether a time in microseconds can be one: neither negative, absurd nor NaN."""
    return 0.0 <= us <= MOST_US


def wrong_time(name: str, us: float) -> str:
    """What to say of a row left out because its time is none."""
    return f"left out '{name[:40]}': found a time of {us:g} us, expected 0 to {MOST_US:g}"


def whole(text: str) -> int | None:
    """The number that a text of digits is, or None, also where it is absurd."""
    try:
        number = int(text)
    except ValueError:  # also: thousands of digits
        return None
    return number if abs(number) < _MOST_WHOLE else None


def time_us(text: str) -> float | None:
    """A time with its unit, as PyTorch prints it ("3.559ms"), in microseconds."""
    match = re.fullmatch(r"\s*([\d.,]+)\s*([a-zµμ]+)\s*", text)
    if match is None or match[2] not in TIME_UNITS:
        return None
    number = NumberForm().number(match[1])
    return None if number is None else number * TIME_UNITS[match[2]]


def base_unit(value: float, unit: str) -> float:
    """A counter's value in the base unit: byte, hz, ns, instructions, %."""
    name = unit.strip()
    if name.lower() in TIME_UNITS:
        return value * TIME_UNITS[name.lower()] * 1e3
    head = name.split("/")[0]
    for stem in ("byte", "hz", "inst", "cycle", "sector", "thread", "warp", "block", "request"):
        if head.lower().endswith(stem):
            return value * _PREFIX.get(head[: -len(stem)].lower(), 1.0)
    return value


@dataclass(frozen=True)
class NumberForm:
    """How a table writes numbers: the decimal mark; every other mark groups digits."""

    decimal: str = "."

    def number(self, text: str) -> float | None:
        """A number (infinite where it has too many digits), or None."""
        text = text.strip().strip('"').removesuffix("%").strip(_BLANKS)
        if _DIGITS.fullmatch(text) is None:
            return None
        other = "," if self.decimal == "." else "."
        for mark in (other, *_BLANKS):
            text = text.replace(mark, "")
        if text.count(self.decimal) > 1:
            text = text.replace(self.decimal, "")
        try:
            return float(text.replace(self.decimal, "."))
        except ValueError:
            return None

    def integer(self, text: str) -> int | None:
        """A whole number, or None: a lone decimal mark in front of three digits groups digits."""
        bare = text.strip().strip('"').strip(_BLANKS)
        if _GROUPED.fullmatch(bare):
            return whole(re.sub(rf"[.,{_BLANKS}]", "", bare))
        number = self.number(bare)
        if number is None or not abs(number) < _MOST_WHOLE or number != int(number):
            return None
        return int(number)


def form_of(
    numbers: Iterable[str], whole: Iterable[str] = (), semicolons: bool = False
) -> NumberForm:
    """How the numbers of a table are written, by those that can be read in one way only.

    Args:
        numbers: numbers of the table.
        whole: numbers that cannot have decimals.
        semicolons: whether semicolons stand between the columns, as where the comma is decimal.
    """
    votes = {".": 0, ",": 0}
    other = {".": ",", ",": "."}
    for text in numbers:
        bare = text.strip()
        if _DIGITS.fullmatch(bare) is None:
            continue
        marks = [c for c in bare if c in ".,"]
        if not marks:
            continue
        last = marks[-1]
        if len(set(marks)) == 2:
            votes[last] += 10  # 1.234,5: the last one is decimal
        elif len(marks) > 1:
            votes[other[last]] += 10  # 1.234.567: groups
        else:
            before, _, after = bare.partition(last)
            before = before.lstrip("+-")
            grouped = len(after) == 3 and 1 <= len(before) <= 3 and before != "0"
            if not grouped or any(c in bare for c in _BLANKS):
                votes[last] += 10
    for text in whole:
        match = re.fullmatch(r"[-+]?\d{1,3}([.,])\d{3}", text.strip())
        if match:
            votes[other[match[1]]] += 10  # 1.234 calls: groups
    if votes["."] == votes[","]:
        return NumberForm("," if semicolons else ".")
    return NumberForm("," if votes[","] > votes["."] else ".")
