"""Operands of SASS: text to node. `read` is called once per distinct text (see `parse`)."""

from __future__ import annotations

import math
import re

from kanalyze.sass.ir import (
    Barrier,
    Constant,
    Keyword,
    Operand,
    Predicate,
    Register,
    SassAddress,
    SassImmediate,
    SassLabel,
    Special,
)

_REGISTER = re.compile(r"(-|~|)(\|?)(U?R)(\d+|Z)((?:\.\w+)*)(\|?)((?:\.\w+)*)")
_PREDICATE = re.compile(r"(!?)(U?P)(\d+|T)((?:\.\w+)*)")
_INTEGER = re.compile(r"[-+]?(?:0x[0-9a-f]+|\d+)", re.IGNORECASE)
_FLOAT = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?", re.IGNORECASE)
_ODD_FLOAT = re.compile(r"([-+]?)(INF|[QS]?NAN)", re.IGNORECASE)
_CONSTANT = re.compile(r"(-|~|)(\|?)cx?\[([^][]+)\]\[([^][]+)\]((?:\.\w+)*)(\|?)((?:\.\w+)*)")
_ADDRESS = re.compile(
    r"(?:desc\[(?P<descriptor>[^][]+)\](?:\.\w+)*)?"
    r"(?P<space>[a-z]*)\[(?P<inside>[^][]*)\](?P<suffixes>(?:\.\w+)*)"
)
_LABEL = re.compile(r"`\((?P<name>[^()]+)\)(?P<offset>[-+]0x[0-9a-f]+)?")
_RELOCATED = re.compile(r"[\w@]+@?\w*\(\(?(?P<name>[^()]+)\)?\)")
_SPECIAL = re.compile(r"SR\w*(?:\.\w+)*|U?PR(?:\.\w+)*|CC|SRZ")
_BARRIER = re.compile(r"S?B\d+|gsb\d+|B\d+")
_TERM = re.compile(r"[-+]?[^-+]+")


def read(text: str) -> Operand | None:
    """Return the operand that a text means, None where it is no operand at all."""
    found = _REGISTER.fullmatch(text)
    if found:
        return _register(found)
    found = _PREDICATE.fullmatch(text)
    if found:
        negated, file, number, suffixes = found.groups()
        index = None if number == "T" else int(number)
        return Predicate(file, index, bool(negated), _suffixes(suffixes))
    number_read = immediate(text)
    if number_read is not None:
        return number_read
    found = _CONSTANT.fullmatch(text)
    if found:
        return _constant(found)
    found = _ADDRESS.fullmatch(text)
    if found:
        return _address(found)
    found = _LABEL.fullmatch(text)
    if found:
        return SassLabel(found["name"], int(found["offset"] or "0", 16))
    found = _RELOCATED.fullmatch(text)
    if found:
        return SassLabel(found["name"])
    if _SPECIAL.fullmatch(text):
        return Special(text)
    if _BARRIER.fullmatch(text):
        return Barrier(text)
    if text.startswith("(*") or re.fullmatch(r"[!-]?\w[\w.:]*", text):
        return Keyword(text)
    return None


def immediate(text: str) -> SassImmediate | None:
    """Return a number, None where the text is none."""
    if _INTEGER.fullmatch(text):
        digits = text.lstrip("+-").lower()
        value = int(digits, 16) if digits.startswith("0x") else int(digits)
        return SassImmediate(text, -value if text.startswith("-") else value)
    if _FLOAT.fullmatch(text):
        return SassImmediate(text, float(text))
    found = _ODD_FLOAT.fullmatch(text)
    if found:
        size = math.inf if found[2].upper() == "INF" else math.nan
        return SassImmediate(text, -size if found[1] == "-" else size)
    return None


def _suffixes(text: str) -> tuple[str, ...]:
    return tuple(text.split(".")[1:])


def _register(found: re.Match[str]) -> Register:
    sign, bar, file, number, inner, _, outer = found.groups()
    return Register(
        file,
        None if number == "Z" else int(number),
        _suffixes(inner) + _suffixes(outer),
        negated=sign == "-",
        inverted=sign == "~",
        absolute=bool(bar),
    )


def _sum(text: str) -> tuple[tuple[Register, ...], int] | None:
    """Return the registers and the offset of ``R2.64+UR4+-0x10``."""
    registers: list[Register] = []
    offset = 0
    for term in _TERM.findall(text.replace("+-", "-").replace(" ", "")):
        plain = term.removeprefix("+")
        found = _REGISTER.fullmatch(plain)
        if found:
            registers.append(_register(found))
        elif _INTEGER.fullmatch(plain):
            offset += int(plain, 16 if "0x" in plain else 10)
        else:
            return None
    return tuple(registers), offset


def _constant(found: re.Match[str]) -> Operand | None:
    sign, bar, bank_text, inside, inner, _, outer = found.groups()
    bank = _sum(bank_text)
    place = _sum(inside)
    if bank is None or place is None or len(place[0]) > 1 or len(bank[0]) > 1:
        return None
    registers, offset = place
    return Constant(
        bank[0][0] if bank[0] else bank[1],
        offset,
        registers[0] if registers else None,
        _suffixes(inner) + _suffixes(outer),
        negated=sign == "-",
        inverted=sign == "~",
        absolute=bool(bar),
    )


def _address(found: re.Match[str]) -> Operand | None:
    place = _sum(found["inside"])
    if place is None:
        return None
    descriptor: Register | None = None
    if found["descriptor"] is not None:
        one = _REGISTER.fullmatch(found["descriptor"])
        if one is None:
            return None
        descriptor = _register(one)
    return SassAddress(place[0], place[1], found["space"], descriptor, _suffixes(found["suffixes"]))
