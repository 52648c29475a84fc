"""Tensor maps: what a tensor-memory copy (TMA) is told of an array and of the box that it moves.

Names and limits are those of ``cuTensorMapEncodeTiled`` (CUDA Driver API, "Tensor Map Object
Management"); dimension 0 is the innermost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

_MOST_DIMS = 5
_LONGEST_DIM = 1 << 32
_LONGEST_STRIDE = 1 << 40
_LONGEST_BOX = 256
_GRANULE = 16  # bytes: of addresses, strides and the rows of a box
SWIZZLES = (0, 32, 64, 128)


@dataclass(frozen=True, slots=True)
class TensorMap:
    """One tensor map, for tiles.

    ``dims`` are extents of the array in elements, innermost first; ``strides`` bytes between
    neighbours along dimensions 1 and up; ``box`` extents of the box in elements; of a box only
    every ``element_strides``-th element along a dimension is moved (dimension 0 has no such
    stride). ``swizzle`` is the span in bytes in which rows are permuted in shared memory, which
    changes nothing in global memory.
    """

    address: int
    element_bytes: int
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    swizzle: int = 0

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.dims)

    @property
    def counts(self) -> tuple[int, ...]:
        """Elements that a box moves along each dimension."""
        steps = (1, *self.element_strides[1:])
        return tuple(-(-size // step) for size, step in zip(self.box, steps, strict=True))

    @property
    def box_bytes(self) -> int:
        """Bytes of one copy in shared memory, those of elements out of bounds included."""
        return prod(self.counts) * self.element_bytes

    @property
    def span(self) -> int:
        """Bytes from the first element of the array to behind the last."""
        outer = sum((n - 1) * step for n, step in zip(self.dims[1:], self.strides, strict=True))
        return outer + self.dims[0] * self.element_bytes

    @staticmethod
    def read(data: Any) -> TensorMap:
        """Read the object in a launch record.

        Raises:
            ValueError: a key is missing, or no such tensor map can be; the message says what was
                expected.
        """
        if not isinstance(data, Mapping):
            raise ValueError("expected an object with address, element_bytes, dims, strides, box")
        for key in ("address", "element_bytes", "dims", "box"):
            if key not in data:
                raise ValueError(f"there is no '{key}'")
        interleave = data.get("interleave") or "none"
        if str(interleave).lower() not in ("none", "0"):
            raise ValueError(f"interleave is {interleave!r}; only arrays without it are evaluated")
        dims = _numbers(data, "dims", None)
        if not 1 <= len(dims) <= _MOST_DIMS:
            raise ValueError(f"dims has {len(dims)} numbers, expected 1 to {_MOST_DIMS}")
        strides = _numbers({"strides": [], **data}, "strides", len(dims) - 1)
        ones = [1] * len(dims)
        element_strides = data.get("element_strides") or ones
        return TensorMap(
            address=_number(data["address"], "address"),
            element_bytes=_number(data["element_bytes"], "element_bytes"),
            dims=dims,
            strides=strides,
            box=_numbers(data, "box", len(dims)),
            element_strides=_numbers(
                {"element_strides": element_strides}, "element_strides", len(dims)
            ),
            swizzle=_number(data.get("swizzle") or 0, "swizzle"),
        ).checked()

    def checked(self) -> TensorMap:
        """The same, if there can be such a tensor map.

        Raises:
            ValueError: there cannot be; the message says what was expected.
        """
        within = (
            ("dims", self.dims, 1, _LONGEST_DIM),
            ("strides", self.strides, 0, _LONGEST_STRIDE - 1),
            ("box", self.box, 1, _LONGEST_BOX),
            ("element_strides", self.element_strides, 1, 8),
        )
        if self.element_bytes not in (1, 2, 4, 8):
            raise ValueError(f"element_bytes is {self.element_bytes}, expected 1, 2, 4 or 8")
        if self.swizzle not in SWIZZLES:
            raise ValueError(f"swizzle is {self.swizzle}, expected one of {SWIZZLES}")
        for name, numbers, low, high in within:
            for number in numbers:
                if not low <= number <= high:
                    raise ValueError(f"{name} has {number}, expected {low} to {high}")
        if self.address % _GRANULE or self.address < 0:
            raise ValueError(f"address is {self.address}, expected a multiple of {_GRANULE}")
        for stride in self.strides:
            if stride % _GRANULE:
                raise ValueError(f"strides has {stride}, expected multiples of {_GRANULE}")
        row = self.box[0] * self.element_bytes
        if row % _GRANULE:
            raise ValueError(f"rows of the box have {row} bytes, expected a multiple of {_GRANULE}")
        if self.swizzle and row > self.swizzle:
            raise ValueError(
                f"rows of the box have {row} bytes, expected at most the swizzle's {self.swizzle}"
            )
        return self


def _numbers(data: Mapping[str, Any], key: str, count: int | None) -> tuple[int, ...]:
    numbers = data[key]
    if not isinstance(numbers, list | tuple):
        raise ValueError(f"{key} is {numbers!r}, expected a list of numbers")
    if count is not None and len(numbers) != count:
        raise ValueError(f"{key} has {len(numbers)} numbers, expected {count}")
    return tuple(_number(number, key) for number in numbers)


def _number(value: Any, key: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{key} has {value!r}, expected a whole number")
    return value
