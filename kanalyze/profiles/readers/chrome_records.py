"""The fields that are used of a Chrome trace's events, and how they are decoded."""

from __future__ import annotations

import functools
import json
import math
import operator
import re
from collections.abc import Iterable
from typing import Any

import msgspec

from kanalyze.profiles.readers.event import Dims, dims
from kanalyze.profiles.readers.source import clean

_NONE = msgspec.Raw()


class OperatorArgs(msgspec.Struct, gc=False):
    """The fields that are used of an operator's ``args``; shapes and types stay JSON."""

    external_id: int | None = msgspec.field(name="External id", default=None)
    input_type: msgspec.Raw = msgspec.field(name="Input type", default=_NONE)
    input_dims: msgspec.Raw = msgspec.field(name="Input Dims", default=_NONE)


class LaunchArgs(msgspec.Struct, gc=False):
    """The fields that are used of the ``args`` of what ran on the GPU."""

    external_id: int | None = msgspec.field(name="External id", default=None)
    device: int | None = None
    stream: int | None = None
    correlation: int | None = None
    registers: int | None = msgspec.field(name="registers per thread", default=None)
    shared: int | None = msgspec.field(name="shared memory", default=None)
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None


class OperatorRecord(msgspec.Struct, gc=False, tag_field="cat", tag="cpu_op"):
    """A call of an operator."""

    name: str = ""
    args: OperatorArgs | None = None


class KernelRecord(msgspec.Struct, gc=False, tag_field="cat", tag="kernel"):
    """A kernel that ran."""

    name: str = ""
    ts: float = 0.0
    dur: float = 0.0
    args: LaunchArgs | None = None


class MemcpyRecord(KernelRecord, gc=False, tag="gpu_memcpy"):
    """A copy."""


class MemsetRecord(KernelRecord, gc=False, tag="gpu_memset"):
    """A fill."""


class Unused(msgspec.Struct, gc=False):
    """An event that is not used."""


Record = OperatorRecord | KernelRecord | Unused

KINDS: dict[type, str] = {KernelRecord: "kernel", MemcpyRecord: "memcpy", MemsetRecord: "memset"}
_TYPES: dict[str, Any] = {
    "cpu_op": OperatorRecord,
    "Operator": OperatorRecord,
    "kernel": KernelRecord,
    "gpu_memcpy": MemcpyRecord,
    "gpu_memset": MemsetRecord,
    "Kernel": KernelRecord,
    "Memcpy": MemcpyRecord,
    "Memset": MemsetRecord,
}
"""Categories that are used (capital ones: Kineto of 2021). Annotations are no kernels."""


class Decoder:
    """Decodes batches: by category, so that nothing is made of events that are not used.

    A category is added when it first occurs. A batch with an event of no category, or with a
    field of an unexpected type, is decoded without types.
    """

    _MOST = 200

    def __init__(self, old: bool):
        self._plain = old
        self._misses = 0
        self._types: list[Any] = [OperatorRecord, KernelRecord, MemcpyRecord, MemsetRecord]
        self._known = {"cpu_op", "kernel", "gpu_memcpy", "gpu_memset"}
        self._add(("cuda_runtime", "cuda_driver", "ac2g", "fwdbwd", "python_function"))

    def _add(self, categories: Iterable[str]) -> None:
        for category in categories:
            if category not in self._known and len(self._known) < self._MOST:
                self._known.add(category)
                self._types.append(
                    msgspec.defstruct("Skipped", [], tag_field="cat", tag=category, gc=False)
                )
        union: Any = functools.reduce(operator.or_, self._types)
        self._decoder: Any = msgspec.json.Decoder(list[union])

    def many(self, data: bytes) -> list[Record]:
        """The events of a JSON list that are used, and perhaps others."""
        if not self._plain:
            try:
                records: list[Record] = self._decoder.decode(data)
                return records
            except msgspec.ValidationError:
                pass
        events = [e for e in msgspec.json.decode(data) if isinstance(e, dict)]
        if not self._plain:
            self._misses += 1
            self._plain = self._misses > self._MOST
            new = {e["cat"] for e in events if isinstance(e.get("cat"), str)} - self._known
            if new - _TYPES.keys():
                self._add(sorted(new - _TYPES.keys()))
        return [_loose(event) for event in events]


_UNUSED = Unused()


def one(data: bytes) -> Record | None:
    """A single event, read as well as can be; None where it is no JSON object."""
    event = loads(data)
    return None if event is None else _loose(event)


_BARE = re.compile(rb"(?<=[:\[,])\s*-?(?:nan|inf(?:inity)?)\b(?=\s*[,}\]])", re.IGNORECASE)


_ESCAPED_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def loads(data: bytes) -> dict[str, Any] | None:
    """One event, also with what writers of traces get wrong: bare nan and inf, control
    characters in strings, lone surrogates, bytes that are no UTF-8. None where it is no JSON
    object."""
    for attempt in (data, _BARE.sub(b"NaN", data)):
        try:
            event = json.loads(attempt.decode("utf-8", "replace"), strict=False)
            if _ESCAPED_SURROGATE.search(attempt):
                event = json.loads(clean(json.dumps(event, ensure_ascii=False)), strict=False)
        except (ValueError, RecursionError):
            continue
        return event if isinstance(event, dict) else None
    return None


def _loose(event: dict[str, Any]) -> Record:
    """A record out of an event with fields of unexpected types; what does not fit is left out."""
    category = event.get("cat")
    made = _TYPES.get(category) if isinstance(category, str) else None
    if made is None:
        return _UNUSED
    args = event.get("args")
    args = args if isinstance(args, dict) else {}
    identity = _integer(args.get("External id", args.get("external id")))
    name = _text(event.get("name"))
    if made is OperatorRecord:
        types, shapes = args.get("Input type"), args.get("Input Dims", args.get("Input dims"))
        return OperatorRecord(name, OperatorArgs(identity, _raw(types), _raw(shapes)))
    record: Record = made(
        name,
        _number(event.get("ts")),
        _duration(event.get("dur")),
        LaunchArgs(
            identity,
            _integer(args.get("device")),
            _integer(args.get("stream")),
            _integer(args.get("correlation")),
            _integer(args.get("registers per thread")),
            _integer(args.get("shared memory")),
            _dims(args.get("grid")),
            _dims(args.get("block")),
        ),
    )
    return record


def _raw(value: Any) -> msgspec.Raw:
    return _NONE if value is None else msgspec.Raw(msgspec.json.encode(value))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _number(value: Any) -> float:
    number = _duration(value)
    return number if math.isfinite(number) else 0.0


def _duration(value: Any) -> float:
    """A number; 0 where there is none, NaN where there is something else."""
    try:
        return 0.0 if value is None else float(value)
    except (TypeError, ValueError):
        return math.nan
    except OverflowError:
        return math.inf


_MOST = 2.0**63


def _integer(value: Any) -> int | None:
    number = _number(value)
    if abs(number) >= _MOST:
        return None
    return int(number) if number or value in (0, "0") else None


def _dims(value: Any) -> Dims | None:
    return dims([_integer(v) for v in value]) if isinstance(value, list) else None
