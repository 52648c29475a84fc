"""The simulation of a launch: what must hold whatever the program, and hand-computed times."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from kanalyze.performance.cache_sim import levels, simulate
from kanalyze.performance.cache_sim.levels import (
    COUNTS,
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
from tests.simulated import ATOMIC, READ, WRITE, Ask, caches_of, chip_of, program_of

pytestmark = pytest.mark.slow("estimates and simulates whole launches")

JITTER = {"age": 0.3, "block_jitter": 0.05, "burst_jitter": 0.05, "launch": 700.0, "gap": 700.0}
EMPTY: list[Ask] = [(READ, False, [])]


def simulated(
    program: simulate.Program, chip: simulate.Chip, seed: int = 1, **caches: int
) -> tuple[float, Any, simulate.Caches]:
    counts = np.zeros(COUNTS)
    memory = caches_of(chip, **caches)
    assert program.lines.set.max(initial=0) < memory.l2.tag.shape[1]
    end = simulate.run(program, chip, memory, counts, seed)
    return end, counts, memory


def bits(mask: int) -> int:
    return mask.bit_count()


# ---------------------------------------------------------------- conservation


def random_blocks(
    chance: random.Random, blocks: int, lines: int, kinds: tuple[int, ...] = (READ, WRITE, ATOMIC)
) -> list[list[list[Ask]]]:
    shape = [
        [(chance.choice(kinds), chance.random() < 0.5) for _ in range(chance.randint(1, 3))]
        for _ in range(chance.randint(1, 6))
    ]

    def asked() -> list[tuple[int, int]] | None:
        if chance.random() < 0.1:
            return None
        some = sorted(chance.sample(range(lines), chance.randint(0, min(8, lines))))
        return [(line, chance.randint(1, 15)) for line in some]

    return [
        [[(k, c and k == READ, asked()) for k, c in burst] for burst in shape]
        for _ in range(blocks)
    ]


@pytest.mark.parametrize("depth", [0, 2])
@pytest.mark.parametrize("seed", range(12))
def test_what_blocks_ask_for_is_counted_once(seed: int, depth: int) -> None:
    chance = random.Random(seed)
    blocks = random_blocks(chance, chance.randint(1, 60), 300)
    program = program_of(blocks, depth=depth, work=50.0, homes=2)
    chip = chip_of([0, 0, 1, 1, 1], sides=2, per_sm=chance.randint(1, 3), window=50.0, **JITTER)
    _, counts, memory = simulated(program, chip, seed, l2_sets=64, l2_ways=1)
    total = dict.fromkeys(("cached", "uncached", "written"), 0)
    for block in blocks:
        for kind, cached, asked in (ask for burst in block for ask in burst):
            name = "written" if kind != READ else "cached" if cached else "uncached"
            total[name] += sum(bits(mask) for _, mask in asked or ())
    assert counts[L1_ASKED] == total["cached"]
    assert counts[UNCACHED] == total["uncached"]
    assert counts[L2_WRITE] == total["written"]
    assert 0 <= counts[L1_MISSES] <= counts[L1_ASKED]
    assert counts[L2_READ] <= counts[L1_MISSES] + counts[UNCACHED]
    dirty = sum(bits(int(mask)) for mask in memory.l2.dirty.reshape(-1))
    assert counts[RESIDUE] == dirty
    assert counts[HBM_WRITE] + dirty <= total["written"]


@pytest.mark.parametrize("seed", range(12))
def test_what_fits_is_fetched_once(seed: int) -> None:
    """Read alone, and L2 keeps all: each half line of 64 bytes once, and all of them."""
    chance = random.Random(seed)
    blocks = random_blocks(chance, chance.randint(1, 40), 200, kinds=(READ,))
    granules = {
        (line, bit // 2)
        for block in blocks
        for burst in block
        for _, _, asked in burst
        for line, mask in asked or ()
        for bit in range(4)
        if mask >> bit & 1
    }
    program = program_of(blocks, sets=8, work=50.0, homes=2)
    chip = chip_of([0, 0, 1, 1], sides=2, per_sm=2, window=50.0, **JITTER)
    _, counts, _ = simulated(program, chip, seed, l2_sets=8, l2_ways=25)
    assert counts[HBM_READ] == 2 * len(granules)
    assert counts[HBM_WRITE] == counts[RESIDUE] == 0
    _, small, _ = simulated(program, chip, seed, l2_sets=8, l2_ways=2)
    assert small[HBM_READ] > counts[HBM_READ]


@pytest.mark.parametrize("per_sm", [1, 3])
@pytest.mark.parametrize("blocks", [1, 7, 8, 100])
def test_every_block_runs_once(blocks: int, per_sm: int) -> None:
    """Each block writes a line of its own: all are there in the end, each was written once."""
    asked: list[list[list[Ask]]] = [[EMPTY, [(WRITE, False, [(n, 5)])]] for n in range(blocks)]
    chip = chip_of([0, 0, 1], per_sm=per_sm, **JITTER)
    _, counts, memory = simulated(program_of(asked, work=100.0), chip, l2_sets=64, l2_ways=4)
    tags = memory.l2.tag[memory.l2.dirty > 0]
    assert sorted(tags.tolist()) == list(range(blocks))
    assert counts[L2_WRITE] == counts[RESIDUE] == 2 * blocks


def test_the_same_seed_gives_the_same_run() -> None:
    blocks = random_blocks(random.Random(3), 80, 2000)
    program = program_of(blocks, work=80.0, homes=2)
    chip = chip_of([0, 0, 1, 1], sides=2, per_sm=2, **JITTER)
    one, two, other = (simulated(program, chip, seed, l2_ways=2) for seed in (5, 5, 6))
    assert one[0] == two[0]
    assert one[1].tolist() == two[1].tolist()
    assert one[0] != other[0]


# ---------------------------------------------------------------- time


@pytest.mark.parametrize(
    ("blocks", "sms", "rounds"), [(1, 4, 1), (4, 4, 1), (5, 4, 2), (99, 4, 25)]
)
def test_work_alone_takes_its_rounds(blocks: int, sms: int, rounds: int) -> None:
    asked = [[EMPTY, EMPTY, EMPTY] for _ in range(blocks)]
    program = program_of(asked, work=[100.0, 20.0, 3.0])
    end, counts, _ = simulated(program, chip_of([0] * sms, gap=7.0))
    assert end == pytest.approx(rounds * 123 + 7 * (rounds - 1))
    assert not counts.any()


@pytest.mark.parametrize("age", [0.0, 0.5])
@pytest.mark.parametrize("per_sm", [2, 3, 16])
def test_blocks_of_an_sm_share_it(per_sm: int, age: float) -> None:
    """Whatever the shares: the SM is never idle, so all end after the sum of the work."""
    program = program_of([[EMPTY] * 4] * (2 * per_sm), work=25.0)
    end, _, _ = simulated(program, chip_of([0], per_sm=per_sm, age=age))
    assert end == pytest.approx(2 * per_sm * 100.0)


@pytest.mark.parametrize("age", [0.0, 0.1, 0.35])
@pytest.mark.parametrize("busy", [[0], [0, 1], [2, 0, 1], [3, 1, 0, 2]])
def test_shares_by_age(busy: list[int], age: float) -> None:
    """By hand: two blocks get (1 + a)/2 and (1 - a)/2; all together the SM."""
    number = 5
    flags = np.zeros(number, bool)
    flags[busy] = True
    order = np.array([*busy, *(n for n in range(number) if n not in busy)])
    left = np.full(number, 60.0)
    zero, share = np.zeros(number), np.zeros(number)
    slots = simulate.Slots(order, order, order, left, share, zero, flags, np.zeros((number, 2)))
    soonest = simulate._shares(slots, order, number, age, 1000.0)
    shares = [float(share[slot]) for slot in busy]
    assert sum(shares) == pytest.approx(1)
    assert shares == sorted(shares, reverse=True)
    expected = {
        1: [1.0],
        2: [(1 + age) / 2, (1 - age) / 2],
        3: [(1 + age) / 3, 1 / 3, (1 - age) / 3],
        4: [(1 + age) / 4, (1 + age / 3) / 4, (1 - age / 3) / 4, (1 - age) / 4],
    }[len(busy)]
    assert shares == pytest.approx(expected)
    assert soonest == pytest.approx(1000 + 60 / max(expected))
    flags[:] = False
    assert simulate._shares(slots, order, number, age, 0.0) == np.inf


def test_a_slow_sm_is_slower() -> None:
    program = program_of([[EMPTY]] * 2, work=100.0)
    end, _, _ = simulated(program, chip_of([0, 0], slowness=[1.0, 1.5]))
    assert end == pytest.approx(150)


def pipelined(work: list[float], latency: float, depth: int) -> float:
    """A block's bursts: asked for ``depth`` ahead, computed one after the other once arrived."""
    arrival: dict[int, float] = {n: latency for n in range(max(depth, 1))}
    end = 0.0
    for n, needed in enumerate(work):
        if depth == 0 and n:
            arrival[n] = end + latency
        begin = max(end, arrival[n])
        if depth:
            arrival[n + depth] = begin + latency
        end = begin + needed
    return end


@pytest.mark.parametrize("depth", [0, 1, 2, 3, 5])
@pytest.mark.parametrize("seed", range(5))
def test_what_is_asked_for_ahead_hides_latency(seed: int, depth: int) -> None:
    chance = random.Random(seed)
    work = [chance.choice([10.0, 200.0, 900.0]) for _ in range(20)]
    asked: list[list[Ask]] = [[(READ, False, [(n, 15)])] for n in range(len(work))]
    program = program_of([asked], depth=depth, work=work)
    end, _, _ = simulated(program, chip_of([0], l2_rate=1e12, hbm_rate=1e12, link_rate=1e12))
    assert end == pytest.approx(pipelined(work, 600.0, depth), rel=1e-6)
    if depth == 0:
        assert end == pytest.approx(sum(work) + 600 * len(work))


@pytest.mark.parametrize("depth", [0, 2])
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("tight", ["hbm_rate", "l2_rate", "link_rate"])
def test_no_rate_is_surpassed(tight: str, seed: int, depth: int) -> None:
    """HBM, L2 and each link take the time that their rate needs for what was read."""
    blocks = random_blocks(random.Random(seed), 40, 5000, kinds=(READ,))
    rate = {"hbm_rate": 3.0, "l2_rate": 9.0, "link_rate": 2.0}[tight]
    chip = chip_of([0, 0, 1, 1], sides=2, per_sm=2)
    program = program_of(blocks, sets=16, depth=depth, work=1.0, homes=2)
    size = {"l2_sets": 16, "l2_ways": 2}
    fast, _, _ = simulated(program, chip, seed, **size)
    end, counts, _ = simulated(program, chip._replace(**{tight: rate}), seed, **size)
    moved = {
        "hbm_rate": counts[HBM_READ],
        "l2_rate": counts[HBM_READ] + counts[L2_READ],
        "link_rate": counts[L2_READ] / 4,
    }[tight]
    assert moved > 50
    if tight == "l2_rate" and depth:
        return  # pipelined blocks are slowed by a running mean: see below
    assert end > fast
    assert end >= 32 * moved / rate


@pytest.mark.parametrize("tight", ["hbm_rate", "l2_rate", "link_rate"])
def test_many_pipelined_blocks_take_what_their_rate_needs(tight: str) -> None:
    """600 blocks of 40 steps of 512 fresh bytes each: 12.3 MB through all levels."""
    asked: list[list[list[Ask]]] = [
        [[(READ, False, [(4 * (40 * n + step) + k, 15) for k in range(4)])] for step in range(40)]
        for n in range(600)
    ]
    program = program_of(asked, depth=2, work=10.0)
    rate = {"hbm_rate": 3.0, "l2_rate": 6.0, "link_rate": 0.75}[tight]
    end, counts, _ = simulated(program, chip_of([0, 0, 1, 1], per_sm=2, **{tight: rate}))
    assert counts[HBM_READ] == counts[L2_READ] == 600 * 40 * 16
    assert end == pytest.approx(600 * 40 * 512 / 3.0, rel=0.15)


@pytest.mark.parametrize("sides", [1, 2])
def test_a_line_in_flight_is_waited_for(sides: int) -> None:
    """Two GPCs of one side ask for a line at once: fetched once, there after HBM's latency.

    With two sides its home is the other one, and what is waited for is the copy on the own side.
    """
    line: Ask = (READ, False, [(9, 15)])
    blocks: list[list[list[Ask]]] = [[[line], [(READ, False, None)]], [[line], EMPTY]]
    program = program_of(blocks, work=[1.0, 1000.0], homes=sides)
    assert program.lines.home[0] == sides - 1
    end, counts, memory = simulated(program, chip_of([0, 2], sides=sides))
    assert counts[HBM_READ] == 4
    assert counts[L2_READ] == 8
    assert end == pytest.approx(600 + 1001, abs=1)  # the second block's: it works on
    assert (memory.l2.tag == 9).sum() == sides


def test_sectors_of_a_mask() -> None:
    assert [int(levels.sectors(mask)) for mask in range(16)] == [bits(mask) for mask in range(16)]


def test_events_come_in_order() -> None:
    """The heap against sorting."""
    chance = random.Random(0)
    events = simulate.Events(np.zeros(4000), np.zeros(4000, np.int64))
    number, waiting = 0, []
    for turn in range(3000):
        if waiting and chance.random() < 0.45:
            assert events.time[0] == min(waiting)
            waiting.remove(events.time[0])
            number = simulate._pop(events, number)
        else:
            time = chance.choice([chance.random(), float(chance.randint(0, 5))])
            number = simulate._push(events, number, time, turn)
            waiting.append(time)
        assert number == len(waiting)


# ---------------------------------------------------------------- dispatch, waits, writes


def test_blocks_are_given_out_one_after_the_other() -> None:
    """200 empty blocks on 10 SMs: those behind the first ten come 5 ns apart."""
    program = program_of([[EMPTY]] * 200)
    chip = chip_of(range(10), dispatch=5.0)
    end, _, _ = simulated(program, chip)
    assert end == pytest.approx(190 * 5.0, rel=0.02)


def test_a_warp_that_waits_again_waits_as_long_as_what_it_waits_for() -> None:
    one: list[list[Ask]] = [[(READ, True, [(7, 15)])]]
    chip = chip_of()
    once, _, _ = simulated(program_of([one]), chip)
    twice, _, _ = simulated(program_of([one], extra_waits=1.0), chip)
    assert twice - once == pytest.approx(20 + 250 + 350)  # L1, L2, HBM
    half, _, _ = simulated(program_of([one], extra_waits=1.0, fresh=0.5), chip)
    assert half - once == pytest.approx(20 + 0.5 * (250 + 350))  # half of the loads hit L1
    both: list[list[Ask]] = [*one, [(READ, True, [(7, 15)])]]
    hits, _, _ = simulated(program_of([both], extra_waits=1.0), chip)
    assert hits - twice == pytest.approx(2 * 20, abs=0.01)  # the second burst finds all in L1


def test_sectors_that_are_stored_to_again_are_written_again() -> None:
    block: list[list[Ask]] = [[(WRITE, False, [(line, 15) for line in range(30)])]]
    chip = chip_of([0, 0], sides=2)
    _, once, _ = simulated(program_of([block], homes=2), chip)
    _, more, _ = simulated(program_of([block], homes=2, rewrites=2.5), chip)
    assert once[L2_WRITE] == 120
    assert more[L2_WRITE] == 300
    assert more[FABRIC] == 2.5 * once[FABRIC] > 0
    assert more[RESIDUE] == once[RESIDUE]


def test_what_passes_between_the_sides_takes_its_time() -> None:
    block: list[list[Ask]] = [[(READ, False, [(line, 15)])] for line in range(200)]
    usual, counts, _ = simulated(program_of([block], sets=256, homes=2), chip_of([1], sides=2),
                                 l2_sets=256)  # fmt: skip
    slow, _, _ = simulated(
        program_of([block], sets=256, homes=2), chip_of([1], sides=2, fabric_rate=0.01),
        l2_sets=256,
    )  # fmt: skip
    assert counts[FABRIC] > 200
    assert slow > 32 * counts[FABRIC] / 0.01 > 3 * usual
