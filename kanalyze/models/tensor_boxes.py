"""Sectors of boxes that tensor-memory copies (TMA) move.

What: for each copy of a box the 32-byte sectors of global memory that hold its elements, each once;
elements outside of the array (coordinates below 0, or at an extent or beyond) make no traffic.
Formula: along dimension d the box has the elements ``coordinate + k·element_stride``; what is left
of it within the array is rows of bytes; two boxes whose rows have the same length and number, and
that begin alike within a sector, touch as many sectors. Sectors of all rows are counted as a union
of intervals.
Source: PTX ISA, "Tensors" (tiled mode, out-of-boundary access); CUDA Driver API,
``cuTensorMapEncodeTiled``.
Limits: no im2col, no gather and scatter of rows, no interleaved layouts.
"""

from __future__ import annotations

import numpy as np

from kanalyze.launch.tensor_map import TensorMap
from kanalyze.models.coalescing import SECTOR
from kanalyze.symbolic.parts import Array, TooLargeError, distinct_numbers

_MOST_ROWS = 1 << 22


def inside(tensor: TensorMap, coordinates: Array) -> tuple[Array, Array]:
    """What is within the array of boxes at (boxes, rank) coordinates.

    Returns:
        The address of the first element of each (boxes,), and the number of elements along each
        dimension (boxes, rank): 0 where nothing is within.
    """
    steps = np.array((1, *tensor.element_strides[1:]), np.int64)
    dims, counts = np.array(tensor.dims, np.int64), np.array(tensor.counts, np.int64)
    first = np.clip(-np.floor_divide(coordinates, steps), 0, counts)
    behind = np.clip(-np.floor_divide(coordinates - dims, steps), 0, counts)
    number = np.maximum(behind - first, 0)
    number = np.where((number == 0).any(axis=1)[:, None], 0, number)
    sizes = np.array((tensor.element_bytes, *tensor.strides), np.int64)
    start = tensor.address + ((coordinates + first * steps) * sizes).sum(axis=1)
    return start, number


def rows(tensor: TensorMap, number: Array) -> Array:
    """Byte offsets of the rows of a box of which ``number`` (rank,) elements are within."""
    if int(np.prod(number[1:])) > _MOST_ROWS:
        raise TooLargeError
    offsets = np.zeros(1, np.int64)
    for count, stride, step in zip(
        number[1:], tensor.strides, tensor.element_strides[1:], strict=True
    ):
        offsets = (offsets[None, :] + np.arange(count)[:, None] * (stride * step)).reshape(-1)
    return offsets


def touched(tensor: TensorMap, start: int, number: Array) -> Array:
    """The distinct sectors (their numbers, in rising order) of a box that begins at ``start``."""
    if not number.all():
        return np.zeros(0, np.int64)
    begins = start + rows(tensor, number)
    length = int(number[0]) * tensor.element_bytes
    first, last = begins // SECTOR, (begins + length - 1) // SECTOR
    width = int((last - first).max()) + 1
    if len(begins) * width > _MOST_ROWS * 4:
        raise TooLargeError
    sectors = first[:, None] + np.arange(width)
    return distinct_numbers(sectors[sectors <= last[:, None]])


def sectors(tensor: TensorMap, coordinates: Array) -> Array:
    """Distinct sectors of each box: (boxes, rank) coordinates → (boxes,)."""
    start, number = inside(tensor, coordinates)
    kinds, which = np.unique(np.column_stack([start % SECTOR, number]), axis=0, return_inverse=True)
    of_kind = np.array([len(touched(tensor, int(k[0]), k[1:])) for k in kinds], np.int64)
    of_box: Array = of_kind[which.reshape(-1)]
    return of_box


def bytes_inside(tensor: TensorMap, coordinates: Array) -> Array:
    """Bytes of the elements of each box that lie within the array."""
    _, number = inside(tensor, coordinates)
    sizes: Array = number.prod(axis=1) * tensor.element_bytes
    return sizes
