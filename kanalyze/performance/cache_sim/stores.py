"""How often the stores of a thread to one sector reach L2: which of them L1 sends on together.

What: writes of a sector over the sectors that are written, 1 where no thread stores to a sector
twice.
Formula: stores through one address register, whose places lie within a sector, are sent on
together as long as they follow each other closely in the machine code and none touches a word that
another has touched. The first one that does begins another write.
Source: ``l1tex__m_l1tex2xbar_write_sectors.sum`` of an H200 over the sectors of the stores'
requests: 0.39 for stores of 4 x 4 B (this rule: 0.38), 0.58 for 8 x 2 B (0.63).
Limits: stores of different warps or through different registers count each by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kanalyze.models.coalescing import SECTOR
from kanalyze.sass.cfg import SassCfg
from kanalyze.sass.ir import SassAddress, SassInstruction
from kanalyze.sass.memory import memory_access
from kanalyze.sass.registers import address_units, definitions

_WORD = 4
_CLOSE = 12  # instructions


@dataclass
class _OpenStores:
    """Stores that are sent on together: their first place, words, and the last one's number."""

    place: int
    words: set[int]
    number: int


def rewrites(cfg: SassCfg, runs: Iterable[tuple[int, int]]) -> float:
    """Writes over sectors, 1 at least.

    Args:
        cfg: the machine code.
        runs: its blocks with how many warps execute them.
    """
    times = dict(runs)
    state: dict[tuple[str, ...], list[_OpenStores]] = {}
    writes = sectors = number = 0
    for block in cfg.blocks:
        weight = times.get(block.index, 0)
        for instruction in block.instructions:
            number += 1
            written = set(definitions(instruction))
            for key in [key for key in state if written & set(key)]:
                del state[key]
            store = _store(instruction)
            if store is None:
                continue
            key, place, words = store
            known = state.setdefault(key, [])
            open_ = next((o for o in known if abs(o.place - place) < SECTOR), None)
            if open_ is None:
                known.append(_OpenStores(place, words, number))
                writes += weight
                sectors += weight
                continue
            if number - open_.number > _CLOSE or words & open_.words:
                writes += weight
                open_.words = set()
            open_.words = open_.words | words
            open_.number = number
    return max(1.0, writes / sectors) if sectors else 1.0


def _store(instruction: SassInstruction) -> tuple[tuple[str, ...], int, set[int]] | None:
    """Address registers, offset and words of a store to global memory."""
    access = memory_access(instruction)
    if access is None or (access.space, access.kind) != ("global", "store") or access.dummy:
        return None
    address = next((o for o in instruction.operands if isinstance(o, SassAddress)), None)
    if address is None or not access.bytes_per_thread:
        return None
    last = address.offset + access.bytes_per_thread - 1
    words = set(range(address.offset // _WORD, last // _WORD + 1))
    return tuple(address_units(instruction, address)), address.offset, words
