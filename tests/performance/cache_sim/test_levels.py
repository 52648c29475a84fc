"""Caches against a second implementation: dictionaries in order of use, from the documented rules.

Nothing of the package is used to say what is expected, but the hash (MurmurHash3's finalizer, whose
values are known), written again here with Python's integers.
"""

from __future__ import annotations

import random
from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from kanalyze.performance.cache_sim import levels, placement, simulate
from kanalyze.performance.cache_sim.levels import (
    COUNTS,
    EVICTED,
    FABRIC,
    HBM_READ,
    HBM_WRITE,
    L1_ASKED,
    L1_MISSES,
    L2_READ,
    L2_WRITE,
    RESIDUE,
    UNCACHED,
)
from tests.simulated import ATOMIC, READ, WRITE, ask, caches_of, chip_of

BITS = 64


def mixed(number: int) -> int:
    x = number & (1 << BITS) - 1
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        x ^= x >> 33
        x = x * factor & (1 << BITS) - 1
    return x ^ x >> 33


def test_the_hash_is_the_one_that_is_published() -> None:
    """Values of MurmurHash3's fmix64 from its reference implementation."""
    assert mixed(0) == 0
    assert mixed(1) == 0xB456BCFC34C2CB2C
    for number in (0, 1, 2, 12345, 1 << 40, (1 << 62) + 7):
        assert int(placement.mix(number)) == mixed(number)


# ---------------------------------------------------------------- the caches again


class Lru:
    """A set of lines, the one used last behind; ``state`` of each is what the caller keeps."""

    def __init__(self, ways: int):
        self.ways = ways
        self.lines: OrderedDict[int, Any] = OrderedDict()

    def use(self, line: int, fresh: Any) -> tuple[Any, Any]:
        """The state of a line, used last now, and what was evicted for it."""
        gone = None
        if line not in self.lines:
            if len(self.lines) == self.ways:
                gone = self.lines.popitem(last=False)[1]
            self.lines[line] = fresh
        self.lines.move_to_end(line)
        return self.lines[line], gone


@dataclass
class Line:
    valid: set[int] = field(default_factory=set)
    dirty: set[int] = field(default_factory=set)


@dataclass
class Reference:
    """L1 of each SM, coalescers and L2 of a small GPU, by the rules; counts sectors."""

    gpc: list[int]
    side: list[int]
    l1_sets: int
    l1_ways: int
    l2_sets: int
    l2_ways: int
    window: float
    fill: int
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.l1 = [[Lru(self.l1_ways) for _ in range(self.l1_sets)] for _ in self.gpc]
        self.l2 = [[Lru(self.l2_ways) for _ in range(self.l2_sets)] for _ in range(2)]
        self.asked: dict[tuple[int, int], tuple[int, set[int], float]] = {}

    def line(self, side: int, where: int, line: int) -> Line:
        kept, gone = self.l2[side][where].use(line, Line())
        if gone is not None:
            self.counts["evicted"] += 1
            self.counts["hbm_write"] += len(gone.dirty)
        return kept

    def fetch(self, kept: Line, missing: set[int]) -> None:
        piece = self.fill // 32
        wanted = {s for m in missing for s in range(m // piece * piece, m // piece * piece + piece)}
        self.counts["hbm_read"] += len(wanted - kept.valid)
        kept.valid |= wanted

    def access(
        self, sm: int, kind: int, cached: bool, where: int, home: int, line: int, some: set[int],
        now: float,
    ) -> None:  # fmt: skip
        some = set(some)
        if cached or kind == WRITE:
            kept, _ = self.l1[sm][mixed(line) % (1 << 28) % self.l1_sets].use(line, set())
            missing = some - kept
            kept |= some
            if kind == READ:
                self.counts["l1_asked"] += len(some)
                self.counts["l1_misses"] += len(missing)
                some = missing
        elif kind == READ:
            self.counts["uncached"] += len(some)
        if not some:
            return
        if kind == READ:
            self.read(sm, where, home, line, some, now)
        else:
            self.counts["l2_write"] += len(some)
            kept = self.line(home, where, line)
            if kind == ATOMIC and some - kept.valid:
                self.fetch(kept, some - kept.valid)
            kept.valid |= some
            kept.dirty |= some
            if kind == WRITE and home != self.side[sm]:
                self.counts["fabric"] += len(some)
                self.line(self.side[sm], where, line).valid.update(some)

    def read(self, sm: int, where: int, home: int, line: int, some: set[int], now: float) -> None:
        key = (self.gpc[sm], mixed(line) % (1 << 12))
        tag, had, at = self.asked.get(key, (-1, set(), -1e18))
        if tag == line and now - at < self.window and some <= had:
            return
        self.asked[key] = (line, set(some), now)
        self.counts["l2_read"] += len(some)
        side = self.side[sm]
        if side != home:
            copy = self.line(side, where, line)
            if some <= copy.valid:
                return
            self.counts["fabric"] += len(some - copy.valid)
            copy.valid |= some
        kept = self.line(home, where, line)
        if some - kept.valid:
            self.fetch(kept, some - kept.valid)
        if side != home:
            self.line(side, where, line)

    @property
    def residue(self) -> int:
        return sum(
            len(kept.dirty) for side in self.l2 for some in side for kept in some.lines.values()
        )


NAMES = {"l1_asked": L1_ASKED, "l1_misses": L1_MISSES, "uncached": UNCACHED, "l2_read": L2_READ,
         "l2_write": L2_WRITE, "hbm_read": HBM_READ, "hbm_write": HBM_WRITE,
         "evicted": EVICTED, "fabric": FABRIC}  # fmt: skip


@pytest.mark.parametrize("fill", [32, 64, 128])
@pytest.mark.parametrize("sides", [1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_all_levels_count_what_the_second_implementation_counts(
    seed: int, sides: int, fill: int
) -> None:
    """4,000 accesses of 6 SMs to 150 lines, in caches of 6 and of 40 lines a side."""
    chance = random.Random(seed)
    gpc = [0, 0, 0, 1, 1, 2]
    chip = chip_of(gpc=gpc, sides=sides, fill=fill, window=50.0)
    side = [g % sides for g in gpc]
    reference = Reference(gpc, side, 3, 2, 10, 4, 50.0, fill)
    caches = caches_of(chip, l1_lines=6, l1_ways=2, l2_sets=10, l2_ways=4)
    counts = np.zeros(COUNTS)
    queues = simulate.Queues(np.zeros(4), np.zeros(len(gpc)), np.zeros(3))
    places = {line: (chance.randrange(10), chance.randrange(sides)) for line in range(150)}
    now, clock = 0.0, 0
    for _ in range(4000):
        now += chance.choice([0.0, 5.0, 30.0, 200.0])
        sm, kind = chance.randrange(6), chance.choice([READ, READ, READ, WRITE, ATOMIC])
        cached = kind == READ and chance.random() < 0.6
        line = min(chance.randrange(150), chance.randrange(150))
        mask = chance.choice([1, 2, 3, 6, 8, 12, 15, 15])
        where, home = places[line]
        some = {bit for bit in range(4) if mask >> bit & 1}
        reference.access(sm, kind, cached, where, home, line, some, now)
        clock = ask(
            chip, caches, queues, counts, sm, kind, cached, where, home, line, mask, now, clock
        )
        found = {name: int(counts[place]) for name, place in NAMES.items()}
        assert found == {name: reference.counts[name] for name in NAMES}
    crossing = {"fabric"} if sides == 1 else set()
    assert all(reference.counts[name] > 50 for name in NAMES.keys() - crossing)
    assert (reference.counts["fabric"] > 50) == (sides == 2)
    assert sum(levels.sectors(int(m)) for m in caches.l2.dirty.reshape(-1)) == reference.residue
    assert reference.residue > 0
    assert counts[RESIDUE] == 0  # only counted at the end of a launch
