"""Where the 32 lanes of a warp point.

What: the bytes that one warp touches with one instruction, and how they lie.
Formula: the address is evaluated for the lanes of the block's first warp, in block 0 and the first
iteration of every loop, with all lanes taking part; the distinct bytes are counted.
Source: PTX ISA, "Special Registers" (lanes of a warp are consecutive in ``tid.x``, then ``tid.y``).
Limits: arguments that are not known are tried with several values; if the pattern changes with
them it is unknown. Requests and sectors of a whole launch are another model's work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from kanalyze.symbolic.value import Value, evaluate, in_order

WARP = 32
MATRIX_ROW = 16  # bytes of a row of ldmatrix and stmatrix
_TRIALS = (4096, 12288, 81920, 20483, 98325)  # values for arguments that are not known


@dataclass(frozen=True, slots=True)
class WarpPattern:
    """Distinct bytes that a warp touches, their lie in words, and lane 0's to 31's byte offsets."""

    bytes_per_warp: int
    words: str
    offsets: tuple[int, ...]


def lane_offsets(
    address: Value,
    threads: tuple[int, int, int],
    arguments: Mapping[str, int],
) -> tuple[int, ...] | None:
    """Each lane's address less lane 0's; None where it depends on what is not known.

    Args:
        address: the address, without phi leaves.
        threads: extents of the block.
        arguments: parameter name (as in the PTX) to its number, as far as known.
    """
    lanes = np.arange(min(WARP, threads[0] * threads[1] * threads[2]))
    specials: dict[str, object] = {
        "tid.x": lanes % threads[0],
        "tid.y": lanes // threads[0] % threads[1],
        "tid.z": lanes // (threads[0] * threads[1]),
        "laneid": lanes,
    }
    for axis, extent in zip("xyz", threads, strict=True):
        specials[f"ntid.{axis}"] = extent
    below: dict[str, list[Value]] = {}
    for node in in_order([address]):
        below.setdefault(node.op, []).append(node)
    for leaf in below.get("special", []):
        specials.setdefault(leaf.payload, 0)
    iterations = {leaf.payload: 0 for leaf in below.get("iter", [])}
    variables = {leaf.payload: 0 for leaf in below.get("address", [])}
    needed = [leaf.payload for leaf in below.get("param", [])]
    known = {(name, at): arguments[name] for name, at in needed if at == 0 and name in arguments}
    seen: set[tuple[int, ...]] = set()
    for trial in _TRIALS if len(known) < len(needed) else _TRIALS[:1]:
        tried = {leaf: trial * (2 * index + 1) for index, leaf in enumerate(needed)}
        try:
            (numbers,) = evaluate([address], specials, tried | known, iterations, variables)
        except KeyError:
            return None
        numbers = np.broadcast_to(numbers, lanes.shape)
        signed = (numbers - numbers[0]).astype(np.int64)
        if address.bits == 32:
            signed = (signed << 32) >> 32
        seen.add(tuple(int(x) for x in signed))
    return seen.pop() if len(seen) == 1 else None


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
