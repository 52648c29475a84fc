"""``decode(name)``: from a profiler's string to a :class:`KernelName`."""

from __future__ import annotations

from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from kanalyze.names.cpp import ANONYMOUS, Qualified, Source, read
from kanalyze.names.families import Family, candidates
from kanalyze.names.grammar import parse
from kanalyze.names.keys import KEYS
from kanalyze.names.mangling import demangle, leading_names
from kanalyze.names.name import Field, KernelName, Span, Value
from kanalyze.names.reading import Reading
from kanalyze.names.text import Prepared, prepare

CACHE_SIZE = 65_536
"""Distinct names that ``decode`` remembers."""

_CUT_LENGTHS = frozenset({55, 63, 64, 100})
"""Lengths at which profilers cut names, some without leaving a mark."""

_SHORTEST_CUT = 48
"""A name without a mark counts as cut only when it is at least this long."""

_WRAPPERS = frozenset({"Kernel", "Kernel2", "device_kernel"})
"""CUTLASS's entry functions: the kernel is their template argument (cutlass/device_kernel.h)."""

_NOTHING: MappingProxyType[str, Value] = MappingProxyType({})


@lru_cache(maxsize=CACHE_SIZE)
def decode(name: str) -> KernelName:
    """Decode one kernel name; never raises, whatever the string.

    Args:
        name: the name as the profiler wrote it: mangled or not, cut or not.

    Returns:
        what the name states. ``family`` is ``other`` when no grammar accepts the name.
    """
    return decode_uncached(name)


def decode_uncached(name: str) -> KernelName:
    """Like :func:`decode`, computed anew."""
    prepared = prepare(name)
    text = prepared.text
    if text.startswith(("_Z", "__Z", "___Z")) and not prepared.cut:
        spelled = demangle(text.lstrip("_").join(("_", "")) + _suffix(prepared))
        if spelled is not None:
            inner = prepare(spelled)
            return _decode_text(name, spelled, inner, False, "mangled")
    if text.startswith("_Z"):
        return _decode_mangled(name, prepared)
    return _decode_text(name, None, prepared, prepared.cut, "other")


def _suffix(prepared: Prepared) -> str:
    return ".kd" if prepared.device_suffix else ""


def _decode_text(
    name: str, demangled: str | None, prepared: Prepared, cut: bool, fallback: str
) -> KernelName:
    source = Source(prepared.text, cut)
    whole = read(source)
    readings = _accepted(source, whole, cut)
    if readings is None and not source.cut and len(prepared.text) >= _SHORTEST_CUT:
        readings = _accepted(source, whole, True)
        cut = cut or readings is not None
    if readings is not None:
        family, reading = readings
        if not cut and demangled is None and len(name) in _CUT_LENGTHS:
            _drop_number_at_end(reading)
        return _finish(name, demangled, prepared, family.name, cut or source.cut, reading)
    return _finish(name, demangled, prepared, fallback, cut or source.cut, _other(source, whole))


class _Subject(NamedTuple):
    text: str
    base: int
    cut: bool
    form: str
    name: Qualified


def _accepted(source: Source, whole: Qualified | None, cut: bool) -> tuple[Family, Reading] | None:
    for subject in _subjects(source, whole, cut):
        for family in candidates(subject.text):
            if family.form != subject.form:
                continue
            tokens = parse(family.grammar, subject.text, subject.cut)
            if tokens is None or (subject.cut and len(tokens) < 2):
                continue
            reading = Reading(source.text, tokens, subject.base, subject.cut, subject.name)
            family.transformer()(reading)
            return family, reading
    return None


def _subjects(source: Source, whole: Qualified | None, cut: bool) -> list[_Subject]:
    """What the grammars may read: the kernel inside a wrapper first, then the name itself."""
    found: list[_Subject] = []
    name = whole
    chain = []
    while name is not None and len(chain) < 4:
        chain.append(name)
        if name.last.text not in _WRAPPERS or name.last.args < 0:
            break
        args = name.args()
        name = read(source, args[0].start, args[0].end) if args else None
    for name in reversed(chain):
        found.extend(_forms(source, name, cut))
    if whole is None:
        found.append(_Subject(source.text, 0, cut, "word", Qualified(source, (), 0)))
    return found


def _forms(source: Source, name: Qualified, cut: bool) -> list[_Subject]:
    path = name.path
    first = path[0]
    open_end = cut and name.last.end >= source.end
    head = _Subject(name.head(), first.start, open_end, "path", name)
    if len(path) > 1 or first.args >= 0:
        return [head]
    return [_Subject(first.text, first.start, open_end, "word", name), head]


def _drop_number_at_end(reading: Reading) -> None:
    """Forget a number that ends a name of suspect length, unless such names end in that number."""
    end = len(reading.text)
    keys = {field.key for field in reading.fields}
    natural = {"align", "index"} | ({"stages"} if "dims" in keys else set())
    reading.fields = [
        f for f in reading.fields if f.end < end or f.key in natural or not f.text[-1:].isdigit()
    ]


def _other(source: Source, whole: Qualified | None) -> Reading:
    name = whole or Qualified(source, (), 0)
    reading = Reading(source.text, [], 0, source.cut, name)
    if whole is not None and whole.last.text not in (ANONYMOUS, "lambda"):
        reading.function(basis="inferred")
    return reading


def _decode_mangled(name: str, prepared: Prepared) -> KernelName:
    source = Source(prepared.text, True)
    reading = Reading(prepared.text, [], 0, True, Qualified(source, (), 0))
    names = leading_names(prepared.text)
    if names and prepared.cut:
        function, start = names[-1]
        reading.add_span("function", function, start, start + len(function))
    return _finish(name, None, prepared, "mangled", prepared.cut, reading)


def _finish(
    name: str,
    demangled: str | None,
    prepared: Prepared,
    family: str,
    truncated: bool,
    reading: Reading,
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


class Row(NamedTuple):
    """One line of ``kanalyze decode --explain``."""

    text: str
    start: int
    end: int
    key: str
    value: Value
    meaning: str
    basis: str


def explain(name: str | KernelName) -> list[Row]:
    """Return what each part of a name means, in the order of the name.

    The places count in :attr:`KernelName.text`. Parts of unknown meaning have the key ``unknown``.
    """
    kernel = decode(name) if isinstance(name, str) else name
    rows = [
        Row(f.text, f.start, f.end, f.key, f.value, KEYS.get(f.key, ""), f.basis)
        for f in kernel.fields
    ]
    rows.extend(
        Row(s.text, s.start, s.end, "unknown", s.text, "meaning not public", "")
        for s in kernel.undecoded
    )
    return sorted(rows, key=lambda row: (row.start, row.end))
