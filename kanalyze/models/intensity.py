"""Arithmetic intensity at each level of the memory hierarchy.

What: floating-point operations for each byte that crosses L1, L2 and HBM.
Formula: operations over bytes. L1: 32 B for each sector that requests to global memory ask for. L2:
32 B for each sector that L1 fetches (``l1_miss_sectors``) or passes on (stores, atomics and
reductions write through). HBM: the compulsory bytes, each sector once.
Source: Williams, Waterman and Patterson, "Roofline" (2009), for one level; Nsight Compute's
hierarchical roofline chart, for several.
Limits: what HBM really moves is more where the caches do not hold what is read again.
"""

from __future__ import annotations

from collections.abc import Mapping

from kanalyze.errors import Unknown
from kanalyze.models.coalescing import SECTOR

LEVELS = ("l1", "l2", "hbm")
_WRITTEN = (
    "global_store_sectors",
    "global_atomic_sectors",
    "global_reduction_sectors",
    "bulk_store_sectors",
    "bulk_reduction_sectors",
)
_CROSSING = {
    "l1": ("global_load_sectors", "bulk_load_sectors", *_WRITTEN),
    "l2": ("l1_miss_sectors", *_WRITTEN),
}


def intensity(
    flops: float | None, counters: Mapping[str, int | None], compulsory_bytes: int | None
) -> dict[str, float | Unknown]:
    """Operations per byte by level (`LEVELS`); in the place of one that is not known, the reason.

    Args:
        flops: operations of the launch.
        counters: sectors by counter, under the names of the JSON.
        compulsory_bytes: bytes that are read and written at least.
    """
    levels: dict[str, float | Unknown] = {}
    for level in LEVELS:
        if level == "hbm":
            size, missing = compulsory_bytes, "bytes"
        else:
            size, missing = _bytes(counters, _CROSSING[level])
        if flops is None:
            levels[level] = Unknown("operations are not known")
        elif size is None:
            levels[level] = Unknown(f"{missing} are not known")
        else:
            levels[level] = flops / size if size else Unknown("no bytes are moved")
    return levels


def crossing(counters: Mapping[str, int | None], level: str) -> int | None:
    """Bytes that cross "l1" or "l2"; None where a counter is not known."""
    return _bytes(counters, _CROSSING[level])[0]


def _bytes(counters: Mapping[str, int | None], names: tuple[str, ...]) -> tuple[int | None, str]:
    total = 0
    for name in names:
        sectors = counters.get(name)
        if sectors is None:
            return None, name
        total += sectors
    return total * SECTOR, ""
