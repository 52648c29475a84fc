"""Schemas beside the types of the results: the same keys, the same kinds of values."""

from __future__ import annotations

import copy
import dataclasses
import functools
import operator
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import msgspec
import pytest

from kanalyze import schemas
from kanalyze.devices.table import LectureComparison
from kanalyze.findings.catalogue import Explanation
from kanalyze.frontend.ttir import Ttir
from kanalyze.models.occupancy import Occupancy
from kanalyze.models.tiling import Tiling
from kanalyze.models.waves import Waves
from kanalyze.profiles.names.name import KernelName
from kanalyze.profiles.readers.event import ProfiledDevice
from kanalyze.results.check import Check
from kanalyze.results.comparison import Comparison
from kanalyze.results.device import DescribedDevice, SharedFit
from kanalyze.results.inventory import CacheState, KernelList
from kanalyze.results.kernel import Report, UnknownField
from kanalyze.results.profile import ProfiledKernel, ProfileReport, ProfileSummary
from kanalyze.results.resources import ResourcesReport
from kanalyze.results.traffic import Traffic
from kanalyze.toolchain.resources import KernelResources

Unknowns = tuple[UnknownField, ...]
TYPES: dict[tuple[str, ...], Any] = {
    ("cache",): CacheState,
    ("check",): Check,
    ("comparison",): Comparison,
    ("compile", "resources"): KernelResources,
    ("decode",): ProfileReport,
    ("device", "devices"): DescribedDevice,
    ("device", "fits"): SharedFit,
    ("device", "lecture", "rows"): LectureComparison,
    ("explain", "rules"): Explanation,
    ("list",): KernelList,
    ("occupancy",): Occupancy,
    ("ptx",): Report,
    ("resources",): ResourcesReport,
    ("traffic",): Traffic,
    ("ttir",): Ttir,
    ("waves", "gemm"): Tiling,
}
"""A schema, the way to a part of it, and the type of that part."""

WRITTEN: dict[Any, dict[str, Any]] = {
    Occupancy: {"schema": str, "next_cliff": str, "unknown": Unknowns},
    ProfileReport: {"schema": str},
    ProfileSummary: {f"by_{key}": Mapping[str, float | None] for key in ("family", "op", "arch")},
    ProfiledDevice: {"capability": str | None, "multiprocessors": None, "sms": int | None},
    ProfiledKernel: {**typing.get_type_hints(KernelName), "remarks": tuple[str, ...],
                     "mean_us": float | None},
    Tiling: {"waves": None},
    Ttir: {"schema": str, "unknown": Unknowns},
}  # fmt: skip
"""What ``to_dict`` adds, writes in another way, or leaves out (None)."""

SCALARS = {str: "string", int: "integer", float: "number", bool: "boolean"}
Schema = Mapping[str, Any]


def differences(kind: Any, schema: Schema, root: Schema, path: str = "") -> Iterator[str]:
    """Where a schema allows what values of the type are not, or the other way round."""
    kinds = parts(kind)
    if Any in kinds:
        return
    allowed = list(alternatives(schema, root))
    says, has = {name for one in allowed for name in names_of(one)}, set(map(name_of, kinds))
    if says != has:
        yield f"{path}: {sorted(says)} in the schema, {sorted(has)} in the type"
    for one in allowed:
        for name in names_of(one) & {"object", "array"}:
            same = [part for part in kinds if name_of(part) == name]
            records = [part for part in same if is_record(part)]
            if records:
                yield from of_fields(records, one, root, path)
            for part in same:
                if part not in records:
                    yield from of_members(part, one, root, path)


def parts(kind: Any) -> tuple[Any, ...]:
    """The types of a union, or the type."""
    union = typing.get_origin(kind) in (types.UnionType, typing.Union)
    return typing.get_args(kind) if union else (kind,)


def alternatives(schema: Schema, root: Schema) -> Iterator[Schema]:
    """A schema without references, its alternatives one by one."""
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].removeprefix("#/$defs/")]
    some = schema.get("anyOf") or schema.get("oneOf")
    if some is None:
        yield schema
    for one in some or ():
        yield from alternatives(one, root)


def names_of(schema: Schema) -> set[str]:
    """The types of JSON that a schema without references allows."""
    if "type" in schema:
        return {schema["type"]} if isinstance(schema["type"], str) else set(schema["type"])
    values = schema["enum"] if "enum" in schema else [schema["const"]]
    return {"null" if value is None else SCALARS[type(value)] for value in values}


def is_record(kind: Any) -> bool:
    return dataclasses.is_dataclass(kind) or isinstance(kind, type(msgspec.Struct))


def name_of(kind: Any) -> str:
    """The type of JSON that values of a type become."""
    origin = typing.get_origin(kind)
    if origin is Literal:
        return "string"
    if origin in (tuple, list):
        return "array"
    if is_record(kind) or (origin is not None and issubclass(origin, Mapping)):
        return "object"
    return "null" if kind is types.NoneType else SCALARS[kind]


def hints_of(kind: Any) -> dict[str, Any]:
    """The keys of a type in the JSON, with what they hold."""
    hints = {**typing.get_type_hints(kind), **WRITTEN.get(kind, {})}
    return {name: hint for name, hint in hints.items() if hint is not None}


def of_fields(kinds: list[Any], schema: Schema, root: Schema, path: str) -> Iterator[str]:
    """Objects: of several classes all keys are there, null where a class has no such field."""
    every = [hints_of(kind) for kind in kinds]
    names = {name for hints in every for name in hints}
    properties = schema.get("properties", {})
    if schema.get("additionalProperties") is not False:
        yield f"{path}: the schema allows other keys"
    for name in sorted(names | properties.keys()):
        at = f"{path}.{name}"
        if name not in names or name not in properties:
            yield f"{at}: not in the {'type' if name in properties else 'schema'}"
            continue
        if name not in schema.get("required", ()):
            yield f"{at}: not required"
        hint = functools.reduce(operator.or_, {hints.get(name): None for hints in every})
        yield from differences(hint, properties[name], root, at)


def of_members(kind: Any, schema: Schema, root: Schema, path: str) -> Iterator[str]:
    """The values of a mapping, under names that the schema has or others; the items of an array."""
    arguments = [one for one in typing.get_args(kind) if one is not ...]
    if name_of(kind) == "array":
        members, held = {"[]": schema.get("items", True)}, arguments[:1]
    else:
        others = schema.get("additionalProperties", True)
        members, held = {**schema.get("properties", {}), "*": others}, arguments[1:]
    for name, member in members.items():
        for one in held:
            if isinstance(member, Mapping):
                yield from differences(one, member, root, f"{path}.{name}")
            elif member and one is not Any:
                yield f"{path}.{name}: the schema allows anything"


def at(way: tuple[str, ...]) -> tuple[Schema, Schema]:
    """The part of a schema that describes a type, without null; the whole schema."""
    root = part = schemas.load(way[0])
    for key in way[1:]:
        part = part["additionalProperties"] if key == "*" else part["properties"][key]
        part = part.get("items", part)
        (part,) = (one for one in alternatives(part, root) if names_of(one) != {"null"})
    if isinstance(part["type"], list):
        part = {**part, "type": "object"}
    return part, root


@pytest.mark.parametrize("way", TYPES, ids=".".join)
def test_a_schema_says_what_the_type_holds(way: tuple[str, ...]) -> None:
    assert list(differences(TYPES[way], *at(way))) == []


def _waves() -> list[str]:
    """The schema of ``waves`` has keys of the command's beside those of the type."""
    return list(differences(Waves, *at(("waves",))))


def test_the_keys_of_waves() -> None:
    beside = ("device", "gemm", "schema", "slots", "tile_efficiency", "tiles", "unknown")
    assert _waves() == [f".{name}: not in the type" for name in beside]


def _changed(change: Callable[[dict[str, Any]], object]) -> list[str]:
    schema = copy.deepcopy(schemas.load("traffic"))
    change(schema)
    return list(differences(Traffic, schema, schema))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda s: s["properties"].pop("flops"), ".flops: not in the schema"),
        (lambda s: s["properties"].update(more={"type": "null"}), ".more: not in the type"),
        (lambda s: s["required"].remove("grid"), ".grid: not required"),
        (lambda s: s.pop("additionalProperties"), ": the schema allows other keys"),
    ],
)
def test_a_missing_key_is_seen(change: Callable[[dict[str, Any]], object], says: str) -> None:
    assert _changed(change) == [says]


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("kernel", "integer"),  # string
        ("flops", ["integer", "null"]),  # number
        ("blocks", "number"),  # integer
        ("flops", "number"),  # number or null
        ("grid", "object"),  # array
        ("analysed", "array"),  # object
        ("kernel", ["string", "null"]),
    ],
)
def test_another_type_is_seen(key: str, kind: object) -> None:
    changed = _changed(lambda schema: schema["properties"][key].update(type=kind))
    assert len(changed) == 1
    assert changed[0].startswith(f".{key}: ")


def test_another_type_of_items_and_values_is_seen() -> None:
    changed = _changed(lambda s: s["properties"]["grid"]["items"].update(type="number"))
    assert changed == [".grid.[]: ['number'] in the schema, ['integer'] in the type"]
    changed = _changed(lambda s: s["properties"]["flops_by_unit"].pop("additionalProperties"))
    assert changed == [".flops_by_unit.*: the schema allows anything"]
