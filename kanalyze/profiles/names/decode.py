"""``decode(name)``: from a profiler's string to a :class:`KernelName`."""

from __future__ import annotations

from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from kanalyze.profiles.names.cpp import CppText, Qualified, read
from kanalyze.profiles.names.families import Family, candidates, fallback
from kanalyze.profiles.names.fields import NameFields, Reject
from kanalyze.profiles.names.grammar import Parsed, parse
from kanalyze.profiles.names.name import Field, KernelName, Span, Value
from kanalyze.profiles.names.text import Prepared, prepare
from kanalyze.profiles.names.words import KEYS
from kanalyze.text.mangling import demangle

CACHE_SIZE = 8_192
"""Distinct names that ``decode`` remembers (some 4 KB each)."""

_LONGEST_REMEMBERED = 8_192
"""Longer names are decoded anew each time, so that the memory stays bounded."""

_CUT_LENGTHS = frozenset({55, 63, 64, 100})
"""Lengths at which profilers cut names, some without leaving a mark."""

_SHORTEST_CUT = 48
"""A name without a mark counts as cut only when it is at least this long."""

_FEWEST_TOKENS = 2
"""A cut name belongs to a family when its grammar has read at least this many tokens."""

_MOST_WRAPPERS = 4

_WRAPPERS = frozenset({"Kernel", "Kernel2", "device_kernel"})
"""CUTLASS's entry functions: the kernel is their template argument (cutlass/device_kernel.h)."""

_NOTHING: MappingProxyType[str, Value] = MappingProxyType({})


def decode(name: str) -> KernelName:
    """Decode one kernel name; never raises, whatever the string.

    Args:
        name: the name as the profiler wrote it: mangled or not, cut or not.

    Returns:
        what the name states. ``family`` is ``other`` when no grammar accepts the name.
    """
    return _remembered(name) if len(name) <= _LONGEST_REMEMBERED else decode_uncached(name)


def decode_uncached(name: str) -> KernelName:
    """Like :func:`decode`, computed anew."""
    prepared = prepare(name)
    text = prepared.text
    if text.startswith("_Z"):
        spelled, cut = None, prepared.cut
        if not cut:
            spelled, cut = demangle(f"{text}.kd" if prepared.device_suffix else text)
        if spelled is None:
            return _fallback(name, None, prepared, cut, "mangled")
        return _decode_text(name, spelled, prepare(spelled), "mangled")
    return _decode_text(name, None, prepared, "other")


_remembered = lru_cache(maxsize=CACHE_SIZE)(decode_uncached)


def _decode_text(
    name: str, demangled: str | None, prepared: Prepared, otherwise: str
) -> KernelName:
    source = CppText(prepared.text, prepared.cut)
    whole = read(source)
    if len(name) in _CUT_LENGTHS and not source.cut and whole and _breaks_off(whole):
        source = CppText(prepared.text, True)
        whole = read(source)
    accepted = _accepted(source, whole, source.cut)
    cut = source.cut
    if accepted is None and not cut and len(prepared.text) >= _SHORTEST_CUT:
        accepted = _accepted(source, whole, True)
        cut = accepted is not None
    if accepted is None:
        return _fallback(name, demangled, prepared, cut, otherwise, source, whole)
    family, reading = accepted
    if not cut and demangled is None and len(name) in _CUT_LENGTHS:
        _drop_number_at_end(reading)
    return _finish(name, demangled, prepared, family.name, cut, reading)


def _breaks_off(name: Qualified) -> bool:
    """Whether a declaration with a return type ends in a name: parameters always follow one."""
    return name.path[0].start > 0 and name.last.args < 0 and name.last.params < 0


class _Subject(NamedTuple):
    """What a grammar may read: a text, its place, whether it is cut at its end."""

    text: str
    base: int
    cut: bool
    form: str
    name: Qualified
    wrapped: bool


def _accepted(
    source: CppText, whole: Qualified | None, cut: bool
) -> tuple[Family, NameFields] | None:
    for subject in _subjects(source, whole, cut):
        for family in candidates(subject.text):
            if family.form != subject.form or (subject.wrapped and not family.wrapped):
                continue
            reading = _read(family, source, subject)
            if reading is not None:
                return family, reading
    return None


def _read(family: Family, source: CppText, subject: _Subject) -> NameFields | None:
    parsed = parse(family.grammar, subject.text, subject.cut)
    if parsed is None or (subject.cut and len(parsed.tokens) < _FEWEST_TOKENS):
        return None
    reading = NameFields(source.text, parsed, subject.base, subject.cut, subject.name, family.table)
    try:
        family.note(reading)
    except Reject:
        return None
    return reading


def _subjects(source: CppText, whole: Qualified | None, cut: bool) -> list[_Subject]:
    """What the grammars may read: the kernel inside a wrapper first, then the name itself."""
    chain: list[Qualified] = []
    name = whole
    while name is not None and len(chain) < _MOST_WRAPPERS:
        chain.append(name)
        if name.last.text not in _WRAPPERS or name.last.args < 0:
            break
        args = name.args()
        name = read(source, args[0].start, args[0].end) if args else None
    subjects: list[_Subject] = []
    for depth in range(len(chain) - 1, -1, -1):
        subjects.extend(_forms(source, chain[depth], cut, depth > 0))
    raw = Qualified(source, (), 0) if whole is None else whole
    subjects.append(_Subject(source.text, 0, cut, "raw", raw, False))
    return subjects


def _forms(source: CppText, name: Qualified, cut: bool, wrapped: bool) -> list[_Subject]:
    first = name.path[0]
    last = name.last
    # Cut inside the last name, not behind it (in its arguments or parameters).
    open_end = cut and max(last.end, last.params) >= source.end
    path = _Subject(name.head(), first.start, open_end, "path", name, wrapped)
    if len(name.path) > 1 or first.args >= 0:
        return [path]
    return [_Subject(first.text, first.start, open_end, "word", name, wrapped), path]


def _fallback(
    name: str,
    demangled: str | None,
    prepared: Prepared,
    cut: bool,
    family: str,
    source: CppText | None = None,
    whole: Qualified | None = None,
) -> KernelName:
    source = source or CppText(prepared.text, cut)
    which = fallback("mangled" if demangled is None and family == "mangled" else "other")
    qualified = whole or Qualified(source, (), 0)
    text = qualified.head() if which.name == "other" else source.text
    parsed = parse(which.grammar, text, False) if text else None
    reading = NameFields(source.text, parsed or Parsed([], None), 0, cut, qualified, which.table)
    if parsed is not None:
        which.note(reading)
    return _finish(name, demangled, prepared, family, cut, reading)


def _drop_number_at_end(reading: NameFields) -> None:
    """Forget a number that ends a name of suspect length, unless such names end in that number."""
    end = len(reading.text)
    keys = {field.key for field in reading.fields}
    natural = {"align", "index"} | ({"stages"} if "dims" in keys else set())
    reading.fields = [
        f for f in reading.fields if f.end < end or f.key in natural or not f.text[-1:].isdigit()
    ]


def _finish(
    name: str,
    demangled: str | None,
    prepared: Prepared,
    family: str,
    truncated: bool,
    reading: NameFields,
) -> KernelName:
    text = name if demangled is None else demangled
    origin = prepared.origin
    fields = sorted(reading.fields, key=lambda field: (field.start, field.end))
    spans = sorted(reading.unknown, key=lambda span: span.start)
    if not isinstance(origin, range) or origin[0]:
        moved = []
        for f in fields:
            start, end = origin[f.start], origin[f.end]
            moved.append(Field(text[start:end], start, end, f.key, f.value, f.basis))
        fields = moved
        spans = [
            Span(text[origin[s.start] : origin[s.end]], origin[s.start], origin[s.end])
            for s in spans
        ]
    decoded = MappingProxyType({f.key: f.value for f in fields}) if fields else _NOTHING
    return KernelName(name, family, truncated, demangled, decoded, tuple(fields), tuple(spans))


class NamePart(NamedTuple):
    """One line of ``kanalyze decode --explain``."""

    text: str
    start: int
    end: int
    key: str
    value: Value
    meaning: str
    basis: str


def explain(name: str | KernelName) -> list[NamePart]:
    """Return what each part of a name means, in the order of the name.

    The places count in :attr:`KernelName.text`. Parts of unknown meaning have the key ``unknown``.
    """
    kernel = decode(name) if isinstance(name, str) else name
    rows = [
        NamePart(f.text, f.start, f.end, f.key, f.value, KEYS.get(f.key, ""), f.basis)
        for f in kernel.fields
    ]
    rows.extend(
        NamePart(s.text, s.start, s.end, "unknown", s.text, "meaning not public", "")
        for s in kernel.undecoded
    )
    return sorted(rows, key=lambda row: (row.start, row.end))
