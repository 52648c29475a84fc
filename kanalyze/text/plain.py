"""Results to JSON and back: the one conversion, of every command, by msgspec."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


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


def from_plain(kind: type[T], data: Any) -> T:
    """The inverse of `to_plain` for a result of type ``kind``; derived fields are made anew.

    Raises:
        TypeError: a key is missing, or a value has another type.
    """
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise TypeError(str(error)) from None
