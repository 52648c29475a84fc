"""Bulk copies of a launch (TMA): sectors of boxes through tensor maps, and of runs of bytes.

What: how many copies are made, and the distinct 32-byte sectors that each reads from or writes to
global memory. Each thread that takes part makes a copy of its own; one that reaches several blocks
of a cluster (``.multicast::cluster``) reads once.
Formula: where the copies go is a few numbers that vary over the launch (coordinates; address and
size), made one number by mixed radix, so that equal ones are counted together
(`kanalyze.models.warps`); see `kanalyze.models.tensor_boxes` for a box.
Source: PTX ISA, "Data Movement and Conversion Instructions: Tensor copy", "Bulk copy".
Limits: Nsight Compute's counters of the load/store unit do not see these; the tensor map must be
given with the launch, or written by the kernel with fields that are the same all through it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kanalyze.launch.tensor_map import SWIZZLES, TensorMap
from kanalyze.models import tensor_boxes
from kanalyze.models.block_accesses import at_block, block_codes
from kanalyze.models.coalescing import SECTOR
from kanalyze.models.features import Feature, Lanes
from kanalyze.models.footprint import Footprint
from kanalyze.models.warps import Counted, CountingRule, Occurrences, classes, count
from kanalyze.symbolic import parts
from kanalyze.symbolic.accesses import AccessValue
from kanalyze.symbolic.descriptors import TensorValue, descriptor_of
from kanalyze.symbolic.grid import Condition, Grid, UnknownValueError
from kanalyze.symbolic.parts import Array, Parts, Term, TooLargeError, array_of, distinct_numbers
from kanalyze.symbolic.specials import BLOCK
from kanalyze.symbolic.value import Value

NO_MAP = "the kernel writes no valid tensor map"
"""How the reason begins where a launch breaks a rule of tensor maps."""
_PERIOD = 1 << 62
# PTX ISA, "tensormap.replace": values of .elemtype, in bytes of an element
_ELEMENT_BYTES = {0: 1, 1: 2, 2: 4, 3: 4, 4: 8, 5: 8, 6: 2, 7: 4, 8: 4, 9: 8, 10: 2, 11: 4, 12: 4}

Kind = Callable[[Array], Array]
"""Gives a number for each copy, from (copies, what they are told)."""


@dataclass(frozen=True, slots=True)
class CopyOperands:
    """What copies are told: numbers that vary over the launch, and the sectors of each by them.

    ``moved`` are the bytes of one copy, None if they differ.
    """

    numbers: tuple[Parts, ...]
    transactions: Kind
    ideal: Kind
    moved: int | None
    tensor: TensorMap | None


def told(access: AccessValue, grid: Grid, maps: Mapping[str, TensorMap]) -> CopyOperands:
    """What the copies of one instruction are told.

    Args:
        access: the instruction.
        grid: the axes of the launch around it.
        maps: parameter to its tensor map.

    Raises:
        UnknownValueError, TooLargeError: it is not known, or there are too many cases.
    """
    if access.tensor is not None:
        tensor = _map_of(access.tensor, grid, maps)
        if len(access.tensor.coordinates) != tensor.rank:
            raise UnknownValueError(
                f"{len(access.tensor.coordinates)} coordinates for a tensor map of "
                f"{tensor.rank} dimensions"
            )
        where = tuple(_signed(grid, value) for value in access.tensor.coordinates)
        return CopyOperands(
            where,
            lambda boxes: tensor_boxes.sectors(tensor, boxes),
            lambda boxes: -(-tensor_boxes.bytes_inside(tensor, boxes) // SECTOR),
            tensor.box_bytes,
            tensor,
        )
    if access.size is None:
        raise UnknownValueError(f"how much {access.instruction.opcode} copies")
    address = grid.value(access.address)
    size = parts.in_range(grid.value(access.size), 32, signed=False)
    return CopyOperands((address, size), _run_sectors, lambda runs: -(-runs[:, 1] // SECTOR),
                size.constant, None)  # fmt: skip


def _signed(grid: Grid, value: Value) -> Parts:
    return parts.in_range(grid.value(value), 32, signed=True)


def _run_sectors(runs: Array) -> Array:
    first, size = runs[:, 0], runs[:, 1]
    last = np.floor_divide(first + size - 1, SECTOR)
    sectors: Array = np.where(size > 0, last - np.floor_divide(first, SECTOR) + 1, 0)
    return sectors


# ---------------------------------------------------------------- counting


class _Codes:
    """Some numbers as one, by mixed radix, and back."""

    def __init__(self, numbers: Sequence[Parts]):
        self.lows = [number.low for number in numbers]
        self.radices: list[int] = []
        weight = 1
        code = parts.number(0, numbers[0].dimensions)
        for number in numbers:
            code = parts.add(code, parts.scale(number, weight))
            code = parts.add(code, parts.number(-number.low * weight, code.dimensions))
            self.radices.append(number.high - number.low + 1)
            weight *= self.radices[-1]
            if weight >= _PERIOD:
                raise TooLargeError
        self.code = code

    def back(self, codes: Array) -> Array:
        """(copies,) → (copies, numbers)."""
        rest = codes & np.int64(_PERIOD - 1)
        columns = []
        for low, radix in zip(self.lows, self.radices, strict=True):
            rest, digit = np.divmod(rest, np.int64(radix))
            columns.append(digit + low)
        return np.stack(columns, axis=-1)


def counted(copies: CopyOperands, condition: Condition, shape: Occurrences) -> tuple[Counted, int]:
    """Copies with their sectors, and the sectors that their bytes would take side by side.

    Raises:
        TooLargeError: there are too many different cases.
    """
    codes = _Codes(copies.numbers)

    def rule(kind: Kind) -> CountingRule:
        def transactions(addresses: Array, lanes: Lanes) -> Array:
            row, lane = np.nonzero(lanes)
            distinct, which = np.unique(addresses[row, lane], return_inverse=True)
            each = kind(codes.back(distinct)) if len(distinct) else np.zeros(0, np.int64)
            total = np.zeros(len(addresses), np.int64)
            np.add.at(total, row, each[which.reshape(-1)])
            return total

        return CountingRule(_PERIOD, transactions)

    totals = count(rule(copies.transactions), codes.code, condition, shape)
    ideal = count(rule(copies.ideal), codes.code, condition, shape).transactions
    return replace(totals, requests=totals.threads), min(ideal, totals.transactions)


def mark(
    copies: CopyOperands, condition: Condition, shape: Occurrences, footprint: Footprint
) -> None:
    """Mark the sectors that copies touch.

    Raises:
        TooLargeError: there are too many.
    """
    codes = _Codes(copies.numbers)
    seen = [np.zeros(0, np.int64)]
    for kind in classes(codes.code, condition, shape):
        if len(kind.bases) * len(kind.offsets) * kind.times > parts.LARGEST:
            raise TooLargeError
        bases = kind.bases[:, None] + kind.step * np.arange(kind.times)
        spread = bases.reshape(-1)[:, None] + kind.offsets[None, :]
        seen.append(distinct_numbers(spread & np.int64(_PERIOD - 1)))
    for starts, pattern in _patterns(copies, codes.back(distinct_numbers(np.concatenate(seen)))):
        footprint.mark(starts, pattern)


def _patterns(copies: CopyOperands, places: Array) -> Iterator[tuple[Array, Array]]:
    """Addresses of copies that touch alike, with the offsets of the sectors that they touch."""
    start, shape = placed(copies, places)
    kinds, which = np.unique(np.column_stack([start % SECTOR, shape]), axis=0, return_inverse=True)
    for index, kind in enumerate(kinds):
        sectors = touched(copies, int(kind[0]), kind[1:])
        if len(sectors):
            yield np.sort(start[which.reshape(-1) == index] - kind[0]), sectors * SECTOR


def placed(copies: CopyOperands, places: Array) -> tuple[Array, Array]:
    """Where copies begin (copies,), and what of them is within: see `touched`.

    Args:
        copies: what the instruction's copies are told.
        places: their numbers (copies, numbers).
    """
    if copies.tensor is None:
        return places[:, 0], places[:, 1:]
    return tensor_boxes.inside(copies.tensor, places)


def touched(copies: CopyOperands, start: int, shape: Array) -> Array:
    """The distinct sectors, in rising order, of a copy that begins at an address."""
    if copies.tensor is not None:
        return tensor_boxes.touched(copies.tensor, start, shape)
    size = int(shape[0])
    return np.arange(start // SECTOR, (start + size - 1) // SECTOR + 1 if size else 0)


def span(copies: CopyOperands) -> tuple[int, int]:
    """The lowest and the highest address that copies can touch."""
    if copies.tensor is not None:
        return copies.tensor.address, copies.tensor.address + copies.tensor.span - 1
    address, size = copies.numbers
    return address.low, address.high + max(size.high - 1, 0)


# ---------------------------------------------------------------- by block


class Copies:
    """Bulk copies, as blocks differ in them (`kanalyze.models.block_accesses.BlockAccess`).

    Args:
        copies, condition, shape: what they are told, when they are made, the axes of both.
    """

    def __init__(self, copies: CopyOperands, condition: Condition, shape: Occurrences):
        self.copies = copies
        self.condition = condition
        self.shape = shape
        self.blocks = shape.dimensions[BLOCK]

    def moved(self) -> Term | None:
        """The part of the addresses that depends on the block alone."""
        tensor, numbers = self.copies.tensor, self.copies.numbers
        if tensor is None:
            return numbers[0].terms.get((BLOCK,))
        sizes = (tensor.element_bytes, *tensor.strides)
        total = sum(
            (_of_blocks(n) * np.int64(size) for n, size in zip(numbers, sizes, strict=True)),
            start=np.zeros(1, np.int64),
        )
        return total if len(total) > 1 else None

    def features(self) -> list[Feature]:
        """Where boxes are cut off at the array's edge, sizes, lanes and iterations."""
        tensor, numbers = self.copies.tensor, self.copies.numbers
        features: list[Feature] = []
        for index, value in enumerate(numbers if tensor is not None else numbers[1:]):
            here = _of_blocks(value)
            if tensor is not None:
                step = (1, *tensor.element_strides[1:])[index]
                low = here + (value.low - int(here.min()))
                high = here + (value.high - int(here.max())) + (tensor.counts[index] - 1) * step
                within = (low >= 0) & (high < tensor.dims[index])
                here = np.where(within, 0, here - here.min() + 1)
            features.append(here)
        return features + block_codes(_Codes(numbers).code, self.condition, self.shape)

    def mark(self, block: int, footprint: Footprint) -> None:
        """Mark the sectors that the copies of one block touch."""
        numbers, condition, shape = self._at(block)
        mark(replace(self.copies, numbers=numbers), condition, shape, footprint)

    def span(self, block: int) -> tuple[int, int]:
        """The lowest and the highest address that the copies of one block can touch."""
        return span(replace(self.copies, numbers=self._at(block)[0]))

    def _at(self, block: int) -> tuple[tuple[Parts, ...], Condition, Occurrences]:
        cuts = [
            at_block(number, self.condition, self.shape, block) for number in self.copies.numbers
        ]
        return tuple(number for number, _, _ in cuts), cuts[0][1], cuts[0][2]

    def listed(self) -> Iterator[tuple[Array, Array]]:
        """Not done: a copy is many sectors."""
        raise TooLargeError


def _of_blocks(value: Parts) -> Array:
    """The part of a number that depends on the block alone, over blocks."""
    term = value.terms.get((BLOCK,))
    return np.zeros(1, np.int64) if term is None else array_of(term).reshape(-1)


# ---------------------------------------------------------------- tensor maps


def _map_of(tensor: TensorValue, grid: Grid, maps: Mapping[str, TensorMap]) -> TensorMap:
    if tensor.reason is not None:
        raise UnknownValueError(tensor.reason)
    if tensor.fields is not None:
        return _from_fields(tensor.fields, grid)
    name = descriptor_of(tensor)
    if name is None:
        raise UnknownValueError("where the tensor map comes from is not followed (TMA)")
    if name not in maps:
        raise UnknownValueError("a tensor map says where the data is (TMA); the launch gives none")
    return maps[name]


def _from_fields(fields: Mapping[str, Value], grid: Grid) -> TensorMap:
    """The map that a kernel wrote; Triton writes all fields, others may change some only."""

    def number(name: str) -> int:
        value = fields.get(name)
        if value is None:
            raise UnknownValueError(f"the kernel writes a tensor map without its {name}")
        constant = grid.value(value).constant
        if constant is None:
            raise UnknownValueError(f"{name} of a tensor map differs over the launch")
        return constant % (1 << value.bits)

    rank = number("rank") + 1
    kind = number("elemtype")
    if kind not in _ELEMENT_BYTES:
        raise UnknownValueError(f"a tensor map of elements of kind {kind}")
    if "interleave_layout" in fields and number("interleave_layout"):
        raise UnknownValueError("a tensor map with an interleaved layout")
    swizzle = number("swizzle_mode") if "swizzle_mode" in fields else 0
    try:
        return TensorMap(
            address=number("global_address"),
            element_bytes=_ELEMENT_BYTES[kind],
            dims=tuple(number(f"global_dim.{i}") for i in range(rank)),
            strides=tuple(number(f"global_stride.{i}") for i in range(rank - 1)),
            box=tuple(number(f"box_dim.{i}") for i in range(rank)),
            element_strides=tuple(number(f"element_stride.{i}") for i in range(rank)),
            swizzle=SWIZZLES[swizzle] if swizzle < len(SWIZZLES) else 0,
        ).checked()
    except ValueError as error:
        raise UnknownValueError(f"{NO_MAP}: {error}") from None
