"""Which bytes of a pointer are touched more than once, and by how many blocks."""

from __future__ import annotations

from collections.abc import Sequence

from kanalyze.counting.ptx_launch import AccessTransactions, KernelLaunch
from kanalyze.errors import Unknown
from kanalyze.models.coalescing import SECTOR, SECTORS
from kanalyze.models.reuse import Reuse, reuse
from kanalyze.models.warps import count
from kanalyze.results import traffic as doc
from kanalyze.symbolic.accesses import is_bulk
from kanalyze.symbolic.grid import UnknownValueError
from kanalyze.symbolic.parts import TooLargeError

_MOST_SHARES = 8


def shared(
    launched: KernelLaunch, transfers: Sequence[AccessTransactions]
) -> doc.Sharing | Unknown:
    """How blocks share the sectors that some accesses of one pointer touch, or why it is unknown.

    Args:
        launched: the kernel in its launch.
        transfers: the accesses, with their counts.
    """
    for transfer in transfers:  # accesses through generic addresses have no rule, but sectors
        if transfer.reason is not None and transfer.access.row.space != "generic":
            return Unknown(transfer.reason)
    try:
        asked = sum(_asked(launched, transfer) for transfer in transfers)
        reused = reuse([launched.by_block(transfer.access) for transfer in transfers])
    except UnknownValueError as error:
        return Unknown(str(error))
    except TooLargeError:
        return Unknown("blocks differ in too many ways to be compared")
    return _document(reused, asked)


def _asked(launched: KernelLaunch, transfer: AccessTransactions) -> int:
    """Sectors that the executions of an access touch, added up."""
    row = transfer.access.row
    serialized = row.space != "global" or row.kind in ("atomic", "reduction")
    if transfer.counted is None or (serialized and not is_bulk(transfer.access.instruction, row)):
        return count(SECTORS, *launched.place(transfer.access)).transactions
    return transfer.counted.transactions


def _document(reused: Reuse, asked: int) -> doc.Sharing:
    sizes = reused.by_sectors
    by_block = sum(size * blocks for size, blocks in sizes.items())
    blocks = sum(sizes.values())
    return doc.Sharing(
        requested_bytes=asked * SECTOR,
        by_block_bytes=by_block * SECTOR,
        again_in_block_bytes=(asked - by_block) * SECTOR,
        blocks=blocks,
        most_blocks=max(reused.by_blocks, default=0),
        shares=_shares(reused.by_blocks),
        sectors_per_block=doc.SectorsPerBlock(
            min(sizes, default=0), _median(sizes), max(sizes, default=0)
        ),
    )


def _median(numbers: dict[int, int]) -> int:
    """The lower median of numbers, given with how often each occurs."""
    left = (sum(numbers.values()) + 1) // 2
    for number in sorted(numbers):
        left -= numbers[number]
        if left <= 0:
            return number
    return 0


def _shares(by_blocks: dict[int, int]) -> tuple[doc.Share, ...]:
    """Bytes by number of blocks; by powers of two where there are many numbers."""
    groups: dict[int, list[int]] = {}
    many = len(by_blocks) > _MOST_SHARES
    for blocks in sorted(by_blocks):
        groups.setdefault(blocks.bit_length() if many else blocks, []).append(blocks)
    return tuple(
        doc.Share(some[0], some[-1], sum(by_blocks[n] for n in some) * SECTOR)
        for some in groups.values()
    )
