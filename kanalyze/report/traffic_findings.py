"""What stands out in the numbers of a launch: bytes asked for again and again, and findings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kanalyze.report import traffic_document as doc
from kanalyze.report.document import Finding
from kanalyze.report.layout import NBSP
from kanalyze.report.traffic_rows import Row, added, decimal, percent, plural, rows, whole

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


# ---------------------------------------------------------------- findings


def wasteful(traffic: doc.Traffic) -> list[Finding]:
    """What an expert would say on seeing these numbers, the costliest first."""
    merged = rows(traffic.accesses)
    ranked: list[tuple[int, Finding]] = []
    for row in merged:
        if row.table == "shared" or not row.requests or not row.wasteful:
            continue
        if row.cost is not None and row.ideal_cost is not None:
            found = _found("uncoalesced_access", _uncoalesced(row), row)
            ranked.append((row.cost - row.ideal_cost, found))
    ranked.sort(key=lambda item: -item[0])
    result = list({finding.message: finding for _, finding in ranked}.values())
    result += [_found("narrow_access", text, row) for row in merged if (text := _narrow(row))]
    return result


def _found(name: str, message: str, row: Row) -> Finding:
    return Finding(name, "warning", row.line, message, "")


def _uncoalesced(row: Row) -> str:
    assert row.cost is not None
    assert row.ideal_cost is not None
    assert row.requests
    per, ideal = row.cost / row.requests, row.ideal_cost / row.requests
    lanes = (row.threads or 0) / row.requests
    what = "sectors"
    text = f"{row.where}: {decimal(per)} {what} per request where {decimal(ideal)} would do"
    if row.kind in ("atomic", "reduction"):
        return f"{text} ({row.opcode} {row.pointer or ''}): lanes at one address take turns"
    text += f" ({row.opcode} {row.pointer or ''}".rstrip() + ")"
    if lanes >= 2 and math.isclose(per, lanes, rel_tol=1e-3):
        return f"{text}: every lane is in a sector of its own, {_over(row)} the bytes needed"
    if row.worst is not None and row.worst <= math.ceil(ideal) + 1:
        return f"{text}: one sector more, as where lanes in a row begin inside a sector"
    return f"{text}: {_over(row)} the bytes needed"


def _over(row: Row) -> str:
    assert row.cost is not None
    assert row.ideal_cost
    return f"{decimal(row.cost / row.ideal_cost)} times"


def _narrow(row: Row) -> str | None:
    """Lanes that move less than a word."""
    size = row.bytes_per_thread
    if row.table != "global" or row.kind not in ("load", "store") or not row.requests:
        return None
    if size is None or size >= 4:
        return None
    return (
        f"{row.where}: {size} B per lane and request ({row.opcode} {row.pointer or ''}".rstrip()
        + f"): accesses of 16 B would need up to {16 // size} times fewer requests"
    )
