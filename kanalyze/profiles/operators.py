"""What an operator's shapes and types say about the kernel that it launched: products and bytes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kanalyze.profiles.readers.event import Operator

_PLACES = {
    "aten::mm": (0, 1),
    "aten::addmm": (1, 2),
    "aten::_addmm_activation": (1, 2),
    "aten::bmm": (0, 1),
    "aten::baddbmm": (1, 2),
    "aten::_scaled_mm": (0, 1),
    "aten::_int_mm": (0, 1),
}
"""Operators that compute one matrix product (of each batch), and which inputs are A and B."""

DTYPES = {
    "float": "f32", "double": "f64", "c10::Half": "f16", "c10::BFloat16": "bf16",
    "c10::Float8_e4m3fn": "e4m3", "c10::Float8_e5m2": "e5m2", "signed char": "s8",
    "unsigned char": "u8", "short": "s16", "short int": "s16", "int": "s32", "long": "s64",
    "long int": "s64", "bool": "bool", "c10::complex<float>": "cf32",
    "c10::complex<double>": "cf64", "c10::Float8_e4m3fnuz": "e4m3", "c10::Float8_e5m2fnuz": "e5m2",
}  # fmt: skip
"""Element types in the words of PyTorch's profiler."""

BYTES = {
    "f32": 4, "f64": 8, "f16": 2, "bf16": 2, "e4m3": 1, "e5m2": 1, "s8": 1, "u8": 1, "s16": 2,
    "s32": 4, "s64": 8, "bool": 1, "cf32": 8, "cf64": 16,
}  # fmt: skip
_RANK = ("bool", "u8", "s8", "s16", "s32", "s64", "e5m2", "e4m3", "f16", "bf16", "f32", "f64",
         "cf32", "cf64")  # fmt: skip
_BOOLEAN = frozenset(
    f"aten::{n}"
    for n in ("eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isfinite", "logical_and",
              "logical_or", "logical_not", "logical_xor", "signbit")
)  # fmt: skip
_WRITE_ONLY = frozenset(("aten::fill_", "aten::zero_", "aten::normal_", "aten::uniform_"))
_MORE_OUTPUTS = frozenset(("aten::native_dropout", "aten::frexp", "aten::_fused_dropout"))


@dataclass(frozen=True, slots=True)
class Product:
    """A product of an M x K and a K x N matrix, ``batch`` times."""

    m: int
    n: int
    k: int
    batch: int
    dtype: str

    @property
    def flops(self) -> int:
        """Operations: a multiplication and an addition for each of M x N x K."""
        return 2 * self.m * self.n * self.k * self.batch


def product_of(operator: Operator) -> Product | None:
    """The matrix product that an operator computes; None where it is none or not real."""
    places = _PLACES.get(operator.name)
    if places is None or len(operator.shapes) <= places[1] or len(operator.dtypes) <= places[1]:
        return None
    a, b = (operator.shapes[p] for p in places)
    dtype = DTYPES.get(operator.dtypes[places[0]])
    if a is None or b is None or dtype is None or dtype.startswith("c"):
        return None
    if len(a) != len(b) or len(a) not in (2, 3) or a[-1] != b[-2] or a[:-2] != b[:-2]:
        return None
    return Product(a[-2], b[-1], a[-1], a[0] if len(a) == 3 else 1, dtype)


@dataclass(frozen=True, slots=True)
class OperatorBytes:
    """What an element-wise operator moves: bytes that it reads and writes, elements written.

    ``largest_input`` is the largest of its inputs in bytes.
    """

    read: int
    written: int
    elements: int
    largest_input: int


def elements_of(operator: Operator) -> int | None:
    """Elements of the largest input of an operator."""
    sizes = [math.prod(s) for s in operator.shapes if s]
    return max(sizes) if sizes else None


def moved_by(operator: Operator) -> OperatorBytes | None:
    """The bytes that an element-wise operator has to move if each input is read once.

    None where shapes or types are not all known. A tensor that is used twice (x * x) counts
    twice, as the profiler does not say that it is the same; the output takes PyTorch's promoted
    type.
    """
    if operator.name in _MORE_OUTPUTS or len(operator.shapes) != len(operator.dtypes):
        return None
    inputs: list[tuple[tuple[int, ...], str]] = []
    for shape, words in zip(operator.shapes, operator.dtypes, strict=True):
        if shape is None:
            return None
        if not shape:
            continue  # a scalar
        dtype = DTYPES.get(words)
        if dtype is None:
            return None
        inputs.append((shape, dtype))
    if not inputs:
        return None
    sizes = [math.prod(shape) * BYTES[dtype] for shape, dtype in inputs]
    in_place = operator.name.endswith("_")
    shape = inputs[0][0] if in_place else _broadcast([s for s, _ in inputs])
    if shape is None:
        return None
    if operator.name in _BOOLEAN:
        dtype = "bool"
    elif in_place:
        dtype = inputs[0][1]
    else:
        dtype = max((d for _, d in inputs), key=_RANK.index)
    read = sizes
    if operator.name == "aten::copy_":
        read = sizes[1:]
    elif operator.name in _WRITE_ONLY:
        read = []
    elements = math.prod(shape)
    return OperatorBytes(sum(read), elements * BYTES[dtype], elements, max(read, default=0))


def _broadcast(shapes: list[tuple[int, ...]]) -> tuple[int, ...] | None:
    result: list[int] = []
    for place in range(1, max(map(len, shapes)) + 1):
        sizes = {s[-place] for s in shapes if len(s) >= place} - {1}
        if len(sizes) > 1:
            return None
        result.append(sizes.pop() if sizes else 1)
    return tuple(reversed(result))
