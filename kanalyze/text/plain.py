"""Results to JSON and back: the one conversion, of every command, by msgspec."""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec


def to_plain(value: Any) -> dict[str, Any]:
    """A result as dicts, lists, strings and numbers; numbers of NumPy become those of Python.

    Raises:
        TypeError: something in it has no place in JSON.
    """
    plain: dict[str, Any] = _listed(_builtins(value), "", None)
    return plain


def document(value: Any) -> dict[str, Any]:
    """A result that has a schema as JSON-ready data, the schema first.

    A number that is not finite becomes None and stands in ``unknown`` with the reason.

    Raises:
        TypeError: something in it has no place in JSON.
    """
    unknown: list[dict[str, str]] = []
    plain: dict[str, Any] = _listed(_builtins(value), "", unknown)
    if unknown:
        plain["unknown"] = [*plain.get("unknown", ()), *unknown]
    return {"schema": plain.pop("schema"), **plain} if "schema" in plain else plain


def dumps(value: Any) -> str:
    """A result as JSON: text as it is, but whatever could steer a terminal escaped."""
    text = json.dumps(document(value), indent=1, ensure_ascii=False, allow_nan=False)
    if text.replace("\n", "").isprintable():
        return text
    return "".join(c if c == "\n" or c.isprintable() else _escape(c) for c in text)


def _escape(character: str) -> str:
    return json.dumps(character)[1:-1] if ord(character) > 0x7F else f"\\u{ord(character):04x}"


def _builtins(value: Any) -> Any:
    return msgspec.to_builtins(value, str_keys=True, enc_hook=_known)


def _known(value: Any) -> Any:
    """What msgspec does not know: scalars and arrays of NumPy, mappings that cannot be written."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a {type(value).__name__} has no place in JSON")


def _listed(value: Any, path: str, unknown: list[dict[str, str]] | None) -> Any:
    """The same with lists for tuples; numbers that are not finite go to ``unknown``, if given."""
    if isinstance(value, dict):
        return {key: _listed(v, f"{path}.{key}", unknown) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [_listed(v, f"{path}[{i}]", unknown) for i, v in enumerate(value)]
    if unknown is None or not isinstance(value, float) or math.isfinite(value):
        return value
    unknown.append({"field": path[1:], "reason": f"not a finite number: {value}"})
    return None


def of_schema(data: Mapping[str, Any], schema: str) -> Mapping[str, Any]:
    """The data, if it has the schema.

    Raises:
        ValueError: it has another one.
    """
    if data.get("schema") != schema:
        raise ValueError(f"schema {data.get('schema')!r}, expected {schema!r}")
    return data


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def from_plain(kind: Any, data: Any) -> Any:
    """The inverse of `to_plain` for a document of type ``kind``.

    Raises:
        TypeError: a key is missing or not known.
    """
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType:
        if data is None:
            return None
        (kind,) = [a for a in arguments if a is not types.NoneType]
        return from_plain(kind, data)
    if origin is tuple:
        return tuple(from_plain(arguments[0], item) for item in data)
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        return {key: from_plain(arguments[1], item) for key, item in data.items()}
    if dataclasses.is_dataclass(kind):
        hints = _hints(kind)  # type: ignore[arg-type]
        made = {key: from_plain(hints.get(key, Any), item) for key, item in data.items()}
        return kind(**made)  # type: ignore[operator]
    return data
