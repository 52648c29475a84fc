"""Wavefronts of shared memory, as the hardware counts them where warps do not compete.

What: how many passes one warp instruction needs through the 32 banks of 4 bytes.
Formula: the lanes are served in groups: all 32 for up to 4 bytes a lane, 16 for 8 bytes, 8 for 16
bytes. A group takes as many wavefronts as there are distinct 4-byte words in its fullest bank;
equal words are broadcast. A load of 8 or 16 bytes serves two groups at once if every lane has the
address of its neighbour (lane xor 1), or every lane that of lane xor 2, where both take part.
``ldmatrix`` and ``stmatrix`` serve 8 rows of 16 bytes at a time.
Source: Nsight Compute, ``l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{ld,st}.sum``; measured on
an H200 with 1,048 patterns of lanes (``tests/data/patterns_h200.csv.gz``), equal in all of them.
Limits: under load the counters add arbitration between warps, no property of the access.
"""

from __future__ import annotations

import numpy as np

from kanalyze.models.features import Lanes
from kanalyze.models.warps import WARP, CountingRule
from kanalyze.symbolic.parts import Array

BANKS = 32
WORD = 4
PERIOD = BANKS * WORD
MATRIX_ROW = 16


def _fullest_bank(addresses: Array, lanes: Lanes, width: int) -> Array:
    """Distinct words in the fullest bank: (executions, lanes) → (executions,)."""
    per_lane = max(1, width // WORD)
    words = np.floor_divide(addresses, WORD)[:, :, None] + np.arange(per_lane)
    flat = np.where(lanes[:, :, None], words, -1).reshape(
        len(addresses), per_lane * addresses.shape[1]
    )
    ordered = np.sort(flat, axis=1)
    fresh = ordered >= 0
    fresh[:, 1:] &= ordered[:, 1:] != ordered[:, :-1]
    rows = np.broadcast_to(np.arange(len(ordered))[:, None], ordered.shape)
    counts = np.zeros((len(ordered), BANKS), np.int64)
    np.add.at(counts, (rows[fresh], ordered[fresh] % BANKS), 1)
    fullest: Array = counts.max(axis=1, initial=0)
    return fullest


def _in_groups(addresses: Array, lanes: Lanes, width: int, group: int) -> Array:
    total = np.zeros(len(addresses), np.int64)
    for start in range(0, WARP, group):
        some = slice(start, start + group)
        total += _fullest_bank(addresses[:, some], lanes[:, some], width)
    return total


def _paired(addresses: Array, lanes: Lanes) -> Lanes:
    """Executions in which each lane has the address of lane xor 1, or each that of lane xor 2."""
    result = np.zeros(len(addresses), bool)
    for other in (1, 2):
        partner = np.arange(WARP) ^ other
        both = lanes & lanes[:, partner]
        result |= (~both | (addresses == addresses[:, partner])).all(axis=1)
    return result


def _load(width: int) -> CountingRule:
    def transactions(addresses: Array, lanes: Lanes) -> Array:
        if width <= WORD:
            return _in_groups(addresses, lanes, width, WARP)
        group = WARP * WORD // width
        by_group = _in_groups(addresses, lanes, width, group)
        by_pair = _in_groups(addresses, lanes, width, 2 * group)
        return np.where(_paired(addresses, lanes), by_pair, by_group)

    return CountingRule(PERIOD, transactions)


def _store(width: int) -> CountingRule:
    def transactions(addresses: Array, lanes: Lanes) -> Array:
        return _in_groups(addresses, lanes, width, min(WARP, WARP * WORD // width))

    return CountingRule(PERIOD, transactions)


def _matrix(number: int) -> CountingRule:
    def transactions(addresses: Array, lanes: Lanes) -> Array:
        total = np.zeros(len(addresses), np.int64)
        for start in range(0, 8 * number, 8):
            rows = addresses[:, start : start + 8]
            total += _fullest_bank(rows, np.ones(rows.shape, bool), MATRIX_ROW)
        return total

    return CountingRule(PERIOD, transactions)


def rule(kind: str, width: int, matrices: int | None = None) -> CountingRule:
    """The rule for a shared access.

    Args:
        kind: "load" or "store".
        width: bytes per lane: 1, 2, 4, 8 or 16.
        matrices: number of 8x8 matrices of ``ldmatrix`` or ``stmatrix``, None for others.
    """
    if matrices is not None:
        return _matrix(matrices)
    return _load(width) if kind == "load" else _store(width)


def ideal(kind: str, width: int, matrices: int | None = None) -> int:
    """Wavefronts of an execution by a full warp without conflicts and without broadcast."""
    if matrices is not None:
        return matrices
    return max(1, WARP * width // PERIOD)
