"""Sectors of global memory, exactly as the hardware counts them.

What: the 32-byte sectors that one warp instruction touches.
Formula: for loads and stores the distinct values of ``address // 32`` over the lanes that take
part; for reductions and atomics each sector counts as often as the most frequent address in it,
since lanes at one address are serialized. Atomics whose lanes come back to a 128-byte line after
they were at another one are counted so only where they touch no more than two lines.
Source: Nsight Compute, ``l1tex__t_sectors_pipe_lsu_mem_global_op_{ld,st,red,atom}.sum``; measured
on an H200 with 854 patterns of lanes (``tests/data/patterns_h200.csv.gz``): equal for all 460 loads
and stores, all 108 reductions, and the 107 of 286 atomics that the rule counts; of the others 53
cost one to three sectors more than reductions do.
Limits: accesses are aligned to their width (misaligned ones fault).
"""

from __future__ import annotations

import numpy as np

from kanalyze.models.features import Lanes
from kanalyze.models.warps import CountingRule
from kanalyze.symbolic.grid import UnknownValueError
from kanalyze.symbolic.parts import Array

SECTOR = 32
_LINE = 128
_OFF = np.iinfo(np.int64).max


def sectors(addresses: Array, lanes: Lanes) -> Array:
    """Distinct sectors of each execution: (executions, 32) → (executions,)."""
    return distinct(np.floor_divide(addresses, SECTOR), lanes)


def distinct(values: Array, lanes: Lanes) -> Array:
    """Distinct values of each execution's active lanes: (executions, 32) → (executions,)."""
    ordered = np.sort(np.where(lanes, values, _OFF), axis=1)
    fresh = (ordered[:, 1:] != ordered[:, :-1]) & (ordered[:, 1:] != _OFF)
    counts: Array = fresh.sum(axis=1) + (ordered[:, 0] != _OFF)
    return counts


def serialization(addresses: Array, lanes: Lanes) -> Array:
    """Σ over sectors of the most lanes at one address: transactions of a reduction or an atomic."""
    ordered = np.sort(np.where(lanes, addresses, _OFF), axis=1)
    executions, width = ordered.shape
    place = np.broadcast_to(np.arange(width), ordered.shape)
    starts = np.ones_like(ordered, dtype=bool)
    starts[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    first = np.maximum.accumulate(np.where(starts, place, 0), axis=1)
    repeat = place - first + 1  # the n-th lane at its address
    sector = np.where(ordered == _OFF, _OFF, np.floor_divide(ordered, SECTOR))
    total = np.zeros(executions, np.int64)
    best = np.zeros(executions, np.int64)
    for column in range(width):
        here = ordered[:, column] != _OFF
        if column:
            changed = sector[:, column] != sector[:, column - 1]
            total += np.where(changed, best, 0)
            best = np.where(changed, 0, best)
        best = np.where(here, np.maximum(best, repeat[:, column]), best)
    return total + best


def atomic(addresses: Array, lanes: Lanes) -> Array:
    """What `serialization` says of atomics, whose results come back to the lanes.

    Raises:
        UnknownValueError: the lanes come back to a line, and touch more than two.
    """
    first = np.argsort(~lanes, axis=1, kind="stable")  # lanes that take part, in their order
    lines = np.take_along_axis(np.where(lanes, addresses // _LINE, _OFF), first, axis=1)
    runs = ((lines[:, 1:] != lines[:, :-1]) & (lines[:, 1:] != _OFF)).sum(axis=1) + lanes.any(
        axis=1
    )
    touched = distinct(lines, lines != _OFF)
    if ((runs > touched) & (touched > 2)).any():
        raise UnknownValueError("sectors of atomics whose lanes come back to a 128-byte line")
    return serialization(addresses, lanes)


def into_sector(addresses: Array, lanes: Lanes) -> Array:
    """How many bytes behind the beginning of a sector each execution's lowest address lies."""
    lowest = np.where(lanes, addresses, _OFF).min(axis=1)
    inside: Array = np.mod(lowest, SECTOR)
    return inside


def tensor_map(addresses: Array, lanes: Lanes) -> Array:
    """A warp writes 128 bytes, aligned (``tensormap.cp_fenceproxy``): counted as an atomic."""
    return np.full(len(addresses), 128 // SECTOR, np.int64)


SECTORS = CountingRule(SECTOR, sectors)
TENSOR_MAP = CountingRule(SECTOR, tensor_map)
SERIALIZATION = CountingRule(SECTOR, serialization)
ATOMIC = CountingRule(_LINE, atomic)
BEGINS = CountingRule(SECTOR, into_sector)


def of_atomics(kind: str) -> CountingRule | None:
    """The rule for "atomic" or "reduction"; None for another kind of access."""
    return {"atomic": ATOMIC, "reduction": SERIALIZATION}.get(kind)
