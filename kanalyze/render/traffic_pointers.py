"""What stands out in the bytes of a launch: those asked for again and again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kanalyze.render.traffic_rows import added
from kanalyze.results import traffic as doc
from kanalyze.text.numbers import decimal, percent, plural, whole
from kanalyze.text.page import NBSP

_SECTOR = 32
_MOST_SHARES = 4
_WRITES = ("store", "bulk_store")

# ---------------------------------------------------------------- bytes by pointer


@dataclass(frozen=True, slots=True)
class PointerTraffic:
    """Compulsory bytes of a pointer beside those of all sectors that requests ask for."""

    name: str
    read_bytes: int | None
    write_bytes: int | None
    read_asked: int | None
    write_asked: int | None
    read_sharing: doc.Sharing | None
    write_sharing: doc.Sharing | None
    reason: str | None


def per_pointer(traffic: doc.Traffic) -> list[PointerTraffic]:
    """For each pointer the bytes that must be moved and those asked for."""
    result = []
    for pointer in traffic.compulsory.pointers:
        mine = [
            a for a in traffic.accesses
            if a.space == "global" and (a.pointer or "unknown") == pointer.pointer
        ]  # fmt: skip
        reads = added(a.cost for a in mine if a.kind not in _WRITES)
        writes = added(a.cost for a in mine if a.kind in _WRITES)
        result.append(
            PointerTraffic(
                pointer.pointer,
                pointer.read_bytes,
                pointer.write_bytes,
                _asked(pointer.read_sharing, reads),
                _asked(pointer.write_sharing, writes),
                pointer.read_sharing,
                pointer.write_sharing,
                pointer.reason,
            )
        )
    return result


def _asked(sharing: doc.Sharing | None, sectors: int | None) -> int | None:
    """Bytes of all sectors that requests ask for."""
    if sharing is not None:
        return sharing.requested_bytes
    return None if sectors is None else sectors * _SECTOR


def again(asked: int | None, size: int, sharing: doc.Sharing | None) -> str:
    """How often sectors are asked for, where that is more than once, and by how many blocks."""
    if asked is None or asked <= size * 1.005:
        return ""
    text = f"each sector asked for {decimal(asked / size)} times"
    if sharing is not None:
        text += f": {_by_blocks(sharing.shares, size)}"
        if sharing.again_in_block_bytes:
            times = decimal(sharing.requested_bytes / sharing.by_block_bytes)
            text += f", {times} times by one block"
    return f" ({text})"


def _by_blocks(shares: Sequence[doc.Share], size: int) -> str:
    """``by 1 block``, ``99 % by 1 block, 1 % by 2``, or the range where there are many."""
    least, most = shares[0].least_blocks, shares[-1].most_blocks
    if least == most:
        return f"by {plural(most, 'block')}"
    if any(s.least_blocks < s.most_blocks for s in shares) or len(shares) > _MOST_SHARES:
        return f"by {whole(least)} to {plural(most, 'block')}"
    parts = [f"{percent(100 * share.bytes / size)} by {whole(share.most_blocks)}"
             for share in shares]  # fmt: skip
    return ", ".join([f"{parts[0]}{NBSP}{'block' if least == 1 else 'blocks'}", *parts[1:]])
