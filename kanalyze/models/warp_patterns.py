"""Where the 32 lanes of a warp point.

What: the bytes that one warp touches with one instruction, and how they lie.
Formula: the address is evaluated for the lanes of the block's first warp, in block 0 and the first
iteration of every loop, with all lanes taking part; the distinct bytes are counted.
Source: PTX ISA, "Special Registers" (lanes of a warp are consecutive in ``tid.x``, then ``tid.y``).
Limits: arguments that are not known are tried with several values; if the pattern changes with
them it is unknown. Requests and sectors of a whole launch are another model's work.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from kanalyze.symbolic.arithmetic import Array
from kanalyze.symbolic.value import Value, evaluate

WARP = 32
MATRIX_ROW = 16  # bytes of a row of ldmatrix and stmatrix
_TRIALS = (4096, 12288, 81920, 20483, 98325)  # values for arguments that are not known


@dataclass(frozen=True, slots=True)
class WarpPattern:
    """Distinct bytes that a warp touches, their lie in words, and lane 0's to 31's byte offsets."""

    bytes_per_warp: int
    words: str
    offsets: tuple[int, ...]


class FirstWarp:
    """The lanes of a block's first warp, where an address points for them.

    Args:
        threads: extents of the block.
        arguments: parameter name (as in the PTX) to its number, as far as known.
    """

    def __init__(self, threads: tuple[int, int, int], arguments: Mapping[str, int]):
        lanes = np.arange(min(WARP, threads[0] * threads[1] * threads[2]))
        specials: dict[str, object] = {
            "tid.x": lanes % threads[0],
            "tid.y": lanes // threads[0] % threads[1],
            "tid.z": lanes // (threads[0] * threads[1]),
            "laneid": lanes,
        }
        specials |= {f"ntid.{axis}": n for axis, n in zip("xyz", threads, strict=True)}
        self._shape = len(_TRIALS), len(lanes)
        self._specials = defaultdict(int, specials)
        self._params = _Tried(arguments)
        self._done: dict[Value, Array] = {}

    def offsets(self, address: Value) -> tuple[int, ...] | None:
        """Each lane's address less lane 0's; None where it depends on what is not known."""
        nothing: defaultdict[Any, int] = defaultdict(int)
        try:
            (numbers,) = evaluate(
                [address], self._specials, self._params, nothing, nothing, self._done
            )
        except KeyError:
            return None
        numbers = np.broadcast_to(numbers, self._shape)
        signed = (numbers - numbers[:, :1]).astype(np.int64)
        if address.bits == 32:
            signed = (signed << 32) >> 32
        return tuple(signed[0].tolist()) if bool((signed == signed[0]).all()) else None


class _Tried(dict[tuple[str, int], Any]):
    """Parameters; what is not known is each of the trials times a factor of its own."""

    def __init__(self, arguments: Mapping[str, int]):
        super().__init__({(name, 0): number for name, number in arguments.items()})
        self._known = len(self)

    def __missing__(self, param: tuple[str, int]) -> Any:
        self[param] = np.array(_TRIALS)[:, None] * (2 * (len(self) - self._known) + 1)
        return self[param]


def warp_pattern(offsets: tuple[int, ...], size: int) -> WarpPattern:
    """Describe lanes that access ``size`` bytes each at the given byte offsets."""
    touched = sorted({o + b for o in offsets for b in range(size)})
    runs: list[list[int]] = []
    for byte in touched:
        if runs and byte == runs[-1][1] + 1:
            runs[-1][1] = byte
        else:
            runs.append([byte, byte])
    lengths = {last - first + 1 for first, last in runs}
    gaps = {b[0] - a[0] for a, b in pairwise(runs)}
    if len(runs) == 1:
        words = "contiguous" if len(set(offsets)) > 1 else "all lanes at one address"
        if len(set(offsets)) > 1 and len(touched) < len(offsets) * size:
            words = f"contiguous, {len(offsets) * size // len(touched)} lanes at each address"
    elif len(lengths) == 1 and len(gaps) == 1:
        length, gap = lengths.pop(), gaps.pop()
        if length == size and len(runs) == len(offsets):
            words = f"stride {gap} B"
        else:
            words = f"{len(runs)} runs of {length} B, {gap} B apart"
    else:
        words = f"scattered over {len(runs)} places"
    return WarpPattern(len(touched), words, offsets)
