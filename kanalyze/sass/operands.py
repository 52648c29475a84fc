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
    match = _REGISTER.fullmatch(text)
    if match:
        return _register(match)
    match = _PREDICATE.fullmatch(text)
    if match:
        negated, file, number, suffixes = match.groups()
        index = None if number == "T" else int(number)
        return Predicate(file, index, bool(negated), _suffixes(suffixes))
    number_read = immediate(text)
    if number_read is not None:
        return number_read
    match = _CONSTANT.fullmatch(text)
    if match:
        return _constant(match)
    match = _ADDRESS.fullmatch(text)
    if match:
        return _address(match)
    match = _LABEL.fullmatch(text)
    if match:
        return SassLabel(match["name"], int(match["offset"] or "0", 16))
    match = _RELOCATED.fullmatch(text)
    if match:
        return SassLabel(match["name"])
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
    match = _ODD_FLOAT.fullmatch(text)
    if match:
        size = math.inf if match[2].upper() == "INF" else math.nan
        return SassImmediate(text, -size if match[1] == "-" else size)
    return None


def _suffixes(text: str) -> tuple[str, ...]:
    return tuple(text.split(".")[1:])


def _register(match: re.Match[str]) -> Register:
    sign, bar, file, number, inner, _, outer = match.groups()
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
        match = _REGISTER.fullmatch(plain)
        if match:
            registers.append(_register(match))
        elif _INTEGER.fullmatch(plain):
            offset += int(plain, 16 if "0x" in plain else 10)
        else:
            return None
    return tuple(registers), offset


def _constant(match: re.Match[str]) -> Operand | None:
    sign, bar, bank_text, inside, inner, _, outer = match.groups()
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


def _address(match: re.Match[str]) -> Operand | None:
    place = _sum(match["inside"])
    if place is None:
        return None
    descriptor: Register | None = None
    if match["descriptor"] is not None:
        one = _REGISTER.fullmatch(match["descriptor"])
        if one is None:
            return None
        descriptor = _register(one)
    return SassAddress(place[0], place[1], match["space"], descriptor, _suffixes(match["suffixes"]))
