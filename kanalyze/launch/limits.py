"""What every launch keeps to: CUDA's limits, and the types of its record.

Source: CUDA C++ Programming Guide, "Compute Capabilities", table "Technical Specifications per
Compute Capability" (7.5 and later: the same numbers).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

GRID = ((1 << 31) - 1, 65_535, 65_535)
"""Most blocks along x, y and z."""
BLOCK = (1024, 1024, 64)
"""Most threads along x, y and z."""
THREADS = 1024
"""Most threads of a block."""
CLUSTER = 16
"""Most blocks of a cluster (above 8 the kernel must allow it)."""

_INTEGER = re.compile(r"([iu])(1|8|16|32|64)")

Fault = tuple[str, str]
"""The field of the record, and what was found and expected."""


def extents(field: str, value: Any, most: Sequence[int]) -> Iterator[Fault]:
    """Yield what is wrong with a grid, block or cluster: one to three whole numbers."""
    if not isinstance(value, list | tuple) or not 1 <= len(value) <= 3:
        yield field, f"found {shown(value)}, expected one to three whole numbers [x, y, z]"
        return
    for index, (number, limit) in enumerate(zip(value, most, strict=False)):
        if not is_whole(number) or not 1 <= number <= limit:
            expected = f"a whole number from 1 to {limit:,}"
            yield f"{field}[{index}]", f"found {shown(number)}, expected {expected}"


def dimensions(
    grid: Sequence[int], block: Sequence[int], cluster: Sequence[int] | None
) -> Iterator[Fault]:
    """Yield what is wrong with grid, block and cluster of a launch (whole numbers are given)."""
    wrong = [*extents("grid", grid, GRID), *extents("block", block, BLOCK)]
    if cluster is not None:
        wrong += extents("cluster", cluster, (CLUSTER,) * 3)
    yield from wrong
    if wrong:
        return
    threads, blocks = math.prod(block), math.prod(cluster or ())
    if threads > THREADS:
        yield "block", f"found {_by(block)} = {threads:,} threads, expected at most {THREADS:,}"
    if cluster is None:
        return
    if blocks > CLUSTER:
        yield "cluster", f"found {_by(cluster)} = {blocks} blocks, expected at most {CLUSTER}"
    for index, (all_, some) in enumerate(zip((*grid, 1, 1), (*cluster, 1, 1), strict=False)):
        if index < 3 and all_ % some:
            yield f"grid[{index}]", f"found {all_:,}, expected a multiple of the cluster's {some}"


def argument(field: str, data: Any) -> Iterator[Fault]:
    """Yield what is wrong with an argument of a record."""
    if not isinstance(data, Mapping):
        yield field, f"found {shown(data)}, expected an object with name, type and value"
        return
    for key in ("name", "type"):
        if not isinstance(data.get(key), str):
            yield f"{field}.{key}", _other(data, key, "a text")
    for key in ("value", "address"):
        value = data.get(key)
        if isinstance(value, bool) or value is None or isinstance(value, int | float):
            continue
        yield f"{field}.{key}", f"found {shown(value)}, expected a number or null"
    size = data.get("bytes")
    if size is not None and not (is_whole(size) and size >= 0):
        yield f"{field}.bytes", f"found {shown(size)}, expected a number of bytes or null"
    if isinstance(data.get("type"), str):
        key = "value" if "value" in data else "address"
        wrong = number(data["type"], data.get(key))
        if wrong:
            yield f"{field}.{key}", wrong


def number(type_: str, value: Any) -> str | None:
    """Why an argument of a type (``i32``, ``*fp16``) cannot have a value; None where it can."""
    if not is_whole(value):
        return None
    if type_.startswith("*"):
        fits, expected = 0 <= value < 1 << 64, "an address of 64 bits"
    else:
        named = _INTEGER.fullmatch(type_)
        if named is None:
            return None
        bits = int(named[2])
        low = 0 if named[1] == "u" or bits == 1 else -(1 << bits - 1)
        high = (1 << bits) - 1 if low == 0 else (1 << bits - 1) - 1
        fits, expected = low <= value <= high, f"{type_}, from {low:,} to {high:,}"
    return None if fits else f"found {shown(value)}, expected {expected}"


def record(data: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield what is wrong with the launch of a record."""
    for key in ("kernel", "grid", "block", "params"):
        if key not in data:
            yield key, "is missing"
    if not isinstance(data.get("kernel", ""), str):
        yield "kernel", _other(data, "kernel", "the name of a kernel")
    if "grid" in data and "block" in data:
        yield from dimensions(data["grid"], data["block"], data.get("cluster") or None)
    if not isinstance(data.get("params", []), list | tuple):
        yield "params", _other(data, "params", "a list of arguments")
    else:
        for index, given in enumerate(data.get("params", [])):
            yield from argument(f"params[{index}]", given)
    for key in ("shared_bytes", "registers_per_thread"):
        value = data.get(key)
        if value is not None and not (is_whole(value) and value >= 0):
            yield key, f"found {shown(value)}, expected a whole number or null"
    if not isinstance(data.get("device"), str | None):
        yield "device", _other(data, "device", "the name of a GPU or null")


def is_whole(value: Any) -> bool:
    """Whether a value is an integer (a truth value is none)."""
    return isinstance(value, int) and not isinstance(value, bool)


def shown(value: Any) -> str:
    """A value as messages show it: short, numbers with their separators."""
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e30:
        return f"{value:,}"
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _other(data: Mapping[str, Any], key: str, expected: str) -> str:
    return f"found {shown(data.get(key))}, expected {expected}"


def _by(numbers: Sequence[int]) -> str:
    return " x ".join(map(str, numbers))
