"""What the GPU's events refer to in a Chrome trace: devices and calling operators."""

from __future__ import annotations

import os
import re
from array import array
from typing import Any

import msgspec

from kanalyze.profiles.readers.chrome_records import LaunchArgs
from kanalyze.profiles.readers.event import Operator, ProfiledDevice
from kanalyze.profiles.readers.source import DumpSource, open_source


class _DeviceFacts(msgspec.Struct):
    id: int
    name: str | None = None
    major: int | None = msgspec.field(name="computeMajor", default=None)
    minor: int | None = msgspec.field(name="computeMinor", default=None)
    multiprocessors: int | None = msgspec.field(name="numSms", default=None)


_PROPERTIES = re.compile(rb'"deviceProperties"\s*:\s*(?=\[)')


def devices_of(header: bytes) -> dict[int | None, ProfiledDevice]:
    """The devices that the text in front of the events describes."""
    match = _PROPERTIES.search(header)
    if match is None:
        return {}
    end = header.find(b"]", match.end())
    try:
        facts = msgspec.json.decode(header[match.end() : end + 1], type=list[_DeviceFacts])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return {
        f.id: ProfiledDevice(
            f.id,
            f.name,
            (f.major, f.minor) if f.major is not None and f.minor is not None else None,
            f.multiprocessors,
        )
        for f in facts
    }


_LOOK_BACK = 4 << 20


def devices_at_the_end(source: DumpSource) -> dict[int | None, ProfiledDevice]:
    """The devices that a text behind the events describes: of a small file, or of its end."""
    if source.path is None:
        return {}
    try:
        size = os.path.getsize(source.path)
        with source.path.open("rb") as file:
            if file.read(2) != b"\x1f\x8b":
                file.seek(max(0, size - _LOOK_BACK))
                return devices_of(file.read(_LOOK_BACK))
    except OSError:
        return {}
    if size > _LOOK_BACK:
        return {}
    last = b""
    with open_source(source.path, source.name) as again:
        for piece in again.pieces():
            last = last[-_LOOK_BACK // 4 :] + piece
            if b'"deviceProperties"' in last[: -_LOOK_BACK // 64]:
                break
    return devices_of(last)


class Operators:
    """Which operator has which external id: a number for each id, the distinct operators once.

    Memory is bounded: 4 bytes for each of at most `_WINDOW` ids, and `_DISTINCT` operators.
    """

    _WINDOW = 8 << 20
    _DISTINCT = 50_000
    _BEFORE = 1 << 16

    def __init__(self) -> None:
        self._base: int | None = None
        self._ids = array("I")
        self._numbers: dict[tuple[str, bytes, bytes], int] = {}
        self._keys: list[tuple[str, bytes, bytes]] = []
        self._made: dict[int, Operator] = {}

    def note(self, record: Any) -> None:
        """Remember an operator's call (an `OperatorRecord`)."""
        args = record.args
        if args is None:
            return
        identity = args.external_id
        if identity is None:
            return
        key = (record.name, bytes(args.input_dims), bytes(args.input_type))
        number = self._numbers.get(key)
        if number is None:
            if len(self._keys) >= self._DISTINCT:
                return
            self._keys.append(key)
            number = self._numbers[key] = len(self._keys)
        if self._base is None:
            self._base = max(0, identity - self._BEFORE)
        place = identity - self._base
        ids = self._ids
        try:
            if place >= 0:
                ids[place] = number
        except IndexError:
            if place < self._WINDOW:
                ids.frombytes(bytes(ids.itemsize * (place + 4096 - len(ids))))
                ids[place] = number

    def launched_by(self, args: LaunchArgs) -> Operator | None:
        """The operator that launched a kernel, or None.

        Where the external id is the correlation id, the profiler did not know the operator (as
        in traces of 2023), and an operator of the same number has nothing to do with it.
        """
        identity = args.external_id
        if identity is None or identity == args.correlation or self._base is None:
            return None
        place = identity - self._base
        if not 0 <= place < len(self._ids):
            return None
        number = self._ids[place]
        if not number:
            return None
        made = self._made.get(number)
        if made is None:
            made = self._made[number] = _operator(*self._keys[number - 1])
        return made


def _operator(name: str, shapes: bytes, types: bytes) -> Operator:
    def listed(data: bytes) -> list[Any]:
        try:
            value = msgspec.json.decode(data) if data else []
        except (msgspec.DecodeError, UnicodeDecodeError):
            return []
        return value if isinstance(value, list) else []

    return Operator(
        name,
        tuple(
            tuple(shape)
            if isinstance(shape, list) and all(type(v) is int and v >= 0 for v in shape)
            else None
            for shape in listed(shapes)
        ),
        tuple(t if isinstance(t, str) else "" for t in listed(types)),
    )
