"""Frozen documents to plain data and back."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any


def to_plain(value: Any) -> Any:
    """A document as JSON-ready data: dataclasses become dicts, tuples lists."""
    if dataclasses.is_dataclass(value):
        return {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [to_plain(item) for item in value]
    return value


def document(value: Any) -> dict[str, Any]:
    """A document that has a schema as JSON-ready data, the schema first."""
    plain: dict[str, Any] = to_plain(value)
    return {"schema": plain.pop("schema"), **plain}


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
    if origin is not None and issubclass(origin, Mapping):
        return {key: from_plain(arguments[1], item) for key, item in data.items()}
    if dataclasses.is_dataclass(kind):
        hints = _hints(kind)  # type: ignore[arg-type]
        made = {key: from_plain(hints.get(key, Any), item) for key, item in data.items()}
        return kind(**made)  # type: ignore[operator]
    return data
