"""What the lanes of one warp cost, by the book: sectors of global memory, wavefronts of shared."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.oracle.interpreter import WARP, Access


def warps_of(record: Access) -> Iterator[tuple[Any, Any]]:
    """Address and participation of each lane, a warp at a time."""
    active = record.active
    if record.source_size is not None:
        active = active & (record.source_size > 0)
    missing = -len(active) % WARP
    addresses = np.pad(record.addresses, (0, missing)).reshape(-1, WARP)
    return zip(addresses, np.pad(active, (0, missing)).reshape(-1, WARP), strict=True)


def sectors(where: Any, on: Any, width: int) -> int:
    """Distinct sectors of 32 bytes that the lanes touch."""
    return len({int(a + b) // 32 for a in where[on] for b in (0, width - 1)})


def serialized(where: Any, on: Any) -> int:
    """Of an atomic: each sector as often as the address that most lanes share in it."""
    lanes: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for a in where[on]:
        lanes[int(a) // 32][int(a)] += 1
    return sum(max(same.values()) for same in lanes.values())


def fullest_bank(addresses: list[int], width: int) -> int:
    """How many distinct words the lanes need of one of the 32 banks."""
    words = {a // 4 + i for a in addresses for i in range(max(1, width // 4))}
    banks: dict[int, int] = defaultdict(int)
    for word in words:
        banks[word % 32] += 1
    return max(banks.values(), default=0)


def wavefronts(base: str, kind: str, width: int, vector: int, where: Any, on: Any) -> int:
    """Whole warps up to 4 bytes a lane, halves for 8, quarters for 16."""
    if base in ("ldmatrix", "stmatrix"):
        rows = [[int(a) for a in where[8 * i : 8 * i + 8]] for i in range(vector)]
        return sum(fullest_bank(r, 16) for r in rows)
    size = {8: 16, 16: 8}.get(width, 32)
    lanes = [i for i in range(32) if on[i]]
    together = (
        kind == "load"
        and size < 32
        and any(
            all(not on[i ^ other] or where[i] == where[i ^ other] for i in lanes)
            for other in (1, 2)
        )
    )
    size = 2 * size if together else size
    groups = [[int(where[i]) for i in lanes if i // size == g] for g in range(32 // size)]
    return sum(fullest_bank(g, width) for g in groups)
