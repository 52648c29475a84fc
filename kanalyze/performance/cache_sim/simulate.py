"""Blocks on SMs over time: when each asks for what, and what reaches L2 and HBM.

What: one run of a launch. Blocks are taken in linear order by whichever slot of an SM is free. A
block asks for its bursts in order, ``depth`` ahead of the one that it computes; it computes a burst
once it has arrived and the one before is done. Blocks on an SM share it by age.
Formula: a burst computed alone takes its work; ``n`` blocks that compute get shares
``w / Σ w`` with ``w = 1 + a (1 - 2 r / (n - 1))``, ``r`` the age rank. Where L2 or HBM cannot keep
up, a pipelined block's work takes ``(tc^p + t2^p)^(1/p)``, ``t2`` the time that L2 or HBM takes for
the running mean of what a burst moves on all SMs. What is asked for arrives when the level that has
it answers and the SM's link has carried it.
Source: block order, drift of SMs and shares by age were measured on H200s.
Limits: bursts are asked for at one time; a run is one of many possible ones (``seed``).
One file: it is one loop over events, and all its steps change the same arrays.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kanalyze.performance.cache_sim import levels
from kanalyze.performance.cache_sim.compiled import compiled, making_arrays
from kanalyze.performance.cache_sim.levels import (
    FABRIC,
    HBM_READ,
    HBM_WRITE,
    L1,
    L1_ASKED,
    L1_MISSES,
    L2,
    L2_READ,
    L2_WRITE,
    RESIDUE,
    UNCACHED,
    Coalescer,
)
from kanalyze.performance.cache_sim.placement import CacheLines

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

READ, WRITE, ATOMIC = 0, 1, 2
_AT_MOST = 64  # blocks on an SM
_MEMORY = 0.0005  # weight of a burst in the running means
_NOTICED = 0.3  # share of the work from which on L2 or HBM slow a block down


class Program(NamedTuple):
    """What blocks ask for: ``tiles_of[block, column]``, -1 for nothing.

    ``kind`` of a column is READ, WRITE or ATOMIC; burst ``b`` has the columns ``first[b]`` to
    ``first[b + 1]``; ``work[b]`` is the time (ns) of an SM that it takes if it has any tile. A
    sector that is stored to is written ``rewrites`` times. A warp waits for a burst ``extra_waits``
    times more, one wait after the other, at a time for one line in ``together`` of the burst's, of
    which the share ``fresh`` was not asked for before within the burst.
    """

    tiles_of: npt.NDArray[np.int32]
    kind: Ints
    cached: Flags
    first: Ints
    depth: int
    work: Floats
    rewrites: float
    extra_waits: float
    together: float
    fresh: float
    lines: CacheLines


class Chip(NamedTuple):
    """By SM: its GPC, its side of L2, and how long its work takes against the mean.

    ``slot_sm`` is the SM of each slot for a block, in the order in which the first ones are given
    out. Rates are bytes a ns, latencies and times ns; ``rate``: one set in so many is simulated.
    """

    gpc: Ints
    side: Ints
    slowness: Floats
    slot_sm: Ints
    sides: int
    rate: float
    fill: int
    l1_latency: float
    l2_latency: float
    hbm_latency: float
    l2_rate: float
    hbm_rate: float
    fabric_rate: float
    link_rate: float
    atomic_rate: float
    window: float
    launch: float
    gap: float
    dispatch: float
    age: float
    block_jitter: float
    burst_jitter: float
    power: float


class Caches(NamedTuple):
    """All levels."""

    l1: L1
    coalescer: Coalescer
    l2: L2


class Queues(NamedTuple):
    """When what is shared is free again: (HBM, L2, what gives out blocks, what joins the sides of
    L2), and each SM's link.

    ``means`` are running means of the sectors that a burst moves through L2, HBM and between sides.
    """

    free: Floats
    link: Floats
    means: Floats


class Slots(NamedTuple):
    """By slot: its block (-1: none), the burst that is computed or waited for, bursts asked for.

    ``left`` is the work left of the burst, ``arrival`` a ring of arrivals of the bursts asked for.
    """

    block: Ints
    burst: Ints
    asked: Ints
    left: Floats
    share: Floats
    slowness: Floats
    busy: Flags
    arrival: Floats


class Events(NamedTuple):
    """A heap of times: of slots, and of SMs (numbered behind the slots)."""

    time: Floats
    what: Ints


@compiled
def _push(events: Events, number: int, time: float, what: int) -> int:
    i = number
    while i > 0:
        parent = (i - 1) >> 1
        if events.time[parent] <= time:
            break
        events.time[i] = events.time[parent]
        events.what[i] = events.what[parent]
        i = parent
    events.time[i] = time
    events.what[i] = what
    return number + 1


@compiled
def _pop(events: Events, number: int) -> int:
    """Take out the first event; the rest is a heap again."""
    last = number - 1
    time, what = events.time[last], events.what[last]
    i = 0
    while True:
        child = 2 * i + 1
        if child >= last:
            break
        if child + 1 < last and events.time[child + 1] < events.time[child]:
            child += 1
        if events.time[child] >= time:
            break
        events.time[i] = events.time[child]
        events.what[i] = events.what[child]
        i = child
    events.time[i] = time
    events.what[i] = what
    return last


@compiled
def _fetch(
    chip: Chip, cache: L2, queues: Queues, counts: Floats, home: int, where: int, way: int,
    missing: int, now: float,
) -> None:  # fmt: skip
    """Missing sectors of a line come from HBM to its home side."""
    fetched = levels.filled(missing, cache.valid[home, where, way], chip.fill)
    number = levels.sectors(fetched)
    counts[HBM_READ] += number
    cache.valid[home, where, way] |= fetched
    queues.free[0] = max(queues.free[0], now) + 32.0 * number * chip.rate / chip.hbm_rate
    cache.ready[home, where, way] = chip.l2_latency + max(now + chip.hbm_latency, queues.free[0])


@compiled
def _read(
    chip: Chip, caches: Caches, queues: Queues, counts: Floats, sm: int, home: int, where: int,
    line: int, mask: int, clock: int, now: float,
) -> float:  # fmt: skip
    """Sectors that L1 does not have; when they are there, less the way to the SM."""
    arrival = now + chip.l2_latency
    if levels.merged(caches.coalescer, chip.gpc[sm], line, mask, now, chip.window):
        return arrival
    counts[L2_READ] += levels.sectors(mask)
    side = chip.side[sm]
    cache = caches.l2
    if home != side:
        way = levels.way_of(cache, side, where, line, clock, now, counts)
        lacking = mask & ~cache.valid[side, where, way]
        cache.valid[side, where, way] |= mask
        if lacking == 0:
            return float(max(arrival, cache.ready[side, where, way]))
        counts[FABRIC] += levels.sectors(lacking)
    way = levels.way_of(cache, home, where, line, clock, now, counts)
    missing = mask & ~cache.valid[home, where, way]
    if missing:
        _fetch(chip, cache, queues, counts, home, where, way, missing, now)
    arrival = max(arrival, cache.ready[home, where, way])
    if home != side:
        way = levels.way_of(cache, side, where, line, clock, now, counts)
        cache.ready[side, where, way] = arrival
    return float(arrival)


@compiled
def _ask(
    program: Program, chip: Chip, caches: Caches, queues: Queues, counts: Floats, sm: int,
    block: int, burst: int, now: float, clock: int,
) -> tuple[float, int]:  # fmt: skip
    """A block asks for a burst; returns when it is there, and the clock of the caches."""
    lines = program.lines
    done = now
    reads = False
    asked, beyond, far = 0, 0, 0  # lines; those that L1 did not have, nor L2
    before = counts[L2_READ] + counts[L2_WRITE]
    moved = counts[HBM_READ] + counts[HBM_WRITE]
    crossed = counts[FABRIC]
    for column in range(program.first[burst], program.first[burst + 1]):
        tile = program.tiles_of[block, column]
        if tile < 0:
            continue
        kind = program.kind[column]
        for j in range(lines.starts[tile], lines.starts[tile + 1]):
            clock += 1
            line, mask, where = lines.line[j], lines.mask[j], lines.set[j]
            home = lines.home[j] if chip.sides > 1 else 0
            evicted = counts[HBM_WRITE]
            if program.cached[column]:
                missing = levels.in_l1(caches.l1, sm, line, mask, clock)
                if kind == READ:
                    counts[L1_ASKED] += levels.sectors(mask)
                    counts[L1_MISSES] += levels.sectors(missing)
                    mask = missing
            elif kind == READ:
                counts[UNCACHED] += levels.sectors(mask)
            if mask == 0:
                done = max(done, now + chip.l1_latency)
                asked += 1
            elif kind == READ:
                reads = True
                fetched = counts[HBM_READ]
                done = max(
                    done,
                    _read(chip, caches, queues, counts, sm, home, where, line, mask, clock, now),
                )
                asked += 1
                beyond += 1
                if counts[HBM_READ] > fetched:
                    far += 1
            else:
                counts[L2_WRITE] += levels.sectors(mask)
                if kind == ATOMIC:
                    way = levels.way_of(caches.l2, home, where, line, clock, now, counts)
                    missing = mask & ~caches.l2.valid[home, where, way]
                    if missing:
                        _fetch(chip, caches.l2, queues, counts, home, where, way, missing, now)
                    queues.free[1] = (
                        max(queues.free[1], now)
                        + 32.0 * levels.sectors(mask) * chip.rate / chip.atomic_rate
                    )
                    done = max(done, queues.free[1] + chip.l2_latency)
                    caches.l2.valid[home, where, way] |= mask
                    caches.l2.dirty[home, where, way] |= mask
                else:
                    across = counts[FABRIC]
                    levels.written(
                        caches.l2, home, chip.side[sm] if chip.sides > 1 else 0, where, line, mask,
                        clock, now, counts,
                    )  # fmt: skip
                    counts[FABRIC] += (counts[FABRIC] - across) * (program.rewrites - 1.0)
                    counts[L2_WRITE] += levels.sectors(mask) * (program.rewrites - 1.0)
            evicted = counts[HBM_WRITE] - evicted
            if evicted > 0:
                queues.free[0] = (
                    max(queues.free[0], now) + 32.0 * evicted * chip.rate / chip.hbm_rate
                )
    through_l2 = counts[L2_READ] + counts[L2_WRITE] - before
    through_hbm = counts[HBM_READ] + counts[HBM_WRITE] - moved
    scale = 32.0 * chip.rate
    queues.free[1] = max(queues.free[1], now) + scale * (through_l2 + through_hbm) / chip.l2_rate
    across = counts[FABRIC] - crossed
    queues.free[3] = max(queues.free[3], now) + scale * across / chip.fabric_rate
    queues.link[sm] = max(queues.link[sm], now) + scale * through_l2 / chip.link_rate
    if reads:
        if program.depth == 0:
            done = max(done, max(queues.free[1], queues.free[3]) + chip.l2_latency)
        done = max(done, queues.link[sm] + chip.l2_latency)
    if asked > 0 and program.extra_waits > 0.0:
        number = max(1.0, asked * chip.rate / program.together)
        done += program.extra_waits * (
            chip.l1_latency
            + chip.l2_latency * (1.0 - (1.0 - program.fresh * beyond / asked) ** number)
            + chip.hbm_latency * (1.0 - (1.0 - program.fresh * far / asked) ** number)
        )
    queues.means[0] += (through_l2 + through_hbm - queues.means[0]) * _MEMORY
    queues.means[1] += (through_hbm - queues.means[1]) * _MEMORY
    queues.means[2] += (across - queues.means[2]) * _MEMORY
    return done, clock


@compiled
def _work(
    program: Program, chip: Chip, queues: Queues, block: int, burst: int, slowness: float,
    active: int,
) -> float:  # fmt: skip
    """The time (ns) that a burst takes on an SM of its own."""
    alone = 0.0
    for column in range(program.first[burst], program.first[burst + 1]):
        if program.tiles_of[block, column] >= 0:
            alone = program.work[burst]
            break
    if alone <= 0.0:
        return 1e-3
    work = alone * slowness * (1.0 + chip.burst_jitter * np.random.standard_normal())
    if program.depth > 0:
        scale = 32.0 * chip.rate * active
        slowest = max(queues.means[0] / chip.l2_rate, queues.means[1] / chip.hbm_rate)
        others = max(slowest, queues.means[2] / chip.fabric_rate) * scale / alone
        if others > _NOTICED:
            work *= (1.0 + others**chip.power) ** (1.0 / chip.power)
    return max(work, 1e-3)


@compiled
def _youngest(on_sm: Ints, number: int, slot: int) -> None:
    """Move a slot behind all others of its SM, which are in the order of age."""
    k = 0
    while on_sm[k] != slot:
        k += 1
    while k < number - 1:
        on_sm[k] = on_sm[k + 1]
        k += 1
    on_sm[number - 1] = slot


@compiled
def _shares(slots: Slots, on_sm: Ints, number: int, age: float, now: float) -> float:
    """Give the blocks that compute on an SM their shares; returns when the next one is done."""
    computing = 0
    for k in range(number):
        if slots.busy[on_sm[k]]:
            computing += 1
    if computing == 0:
        return np.inf
    soonest = np.inf
    rank = 0
    for k in range(number):
        slot = on_sm[k]
        if slots.busy[slot]:
            weight = 1.0  # their sum is the number of blocks
            if computing > 1:
                weight += age * (1.0 - 2.0 * rank / (computing - 1))
            slots.share[slot] = weight / computing
            soonest = min(soonest, now + max(slots.left[slot], 0.0) / slots.share[slot])
            rank += 1
    return soonest


@making_arrays
def run(program: Program, chip: Chip, caches: Caches, counts: Floats, seed: int) -> float:
    """Run a launch; returns when the last block ends (ns), and adds up ``counts``."""
    np.random.seed(seed)
    blocks = program.tiles_of.shape[0]
    bursts = len(program.first) - 1
    number, sms = len(chip.slot_sm), len(chip.gpc)
    ring = program.depth + 2
    queues = Queues(np.zeros(4), np.zeros(sms), np.zeros(3))
    slots = Slots(
        np.full(number, -1), np.zeros(number, np.int64), np.zeros(number, np.int64),
        np.zeros(number), np.zeros(number), np.ones(number),
        np.zeros(number, np.bool_), np.zeros((number, ring)),
    )  # fmt: skip
    on_sm = np.full((sms, _AT_MOST), -1)
    many = np.zeros(sms, np.int64)
    for slot in range(number):
        sm = chip.slot_sm[slot]
        on_sm[sm, many[sm]] = slot
        many[sm] += 1
    since = np.zeros(sms)
    due = np.full(sms, np.inf)
    events = Events(np.zeros(8 * (number + sms)), np.zeros(8 * (number + sms), np.int64))
    waiting = min(number, blocks)
    given, clock, last, heap = 0, 0, 0.0, 0
    active = min(sms, blocks)
    for slot in range(waiting):
        slots.block[slot] = given
        slots.burst[slot] = -1
        given += 1
        heap = _push(events, heap, chip.launch * np.random.random(), slot)
    ended = np.zeros(_AT_MOST, np.int64)
    while heap > 0:
        now, what = events.time[0], events.what[0]
        heap = _pop(events, heap)
        of_sm = what >= number
        sm = what - number if of_sm else chip.slot_sm[what]
        if of_sm and now != due[sm]:
            continue  # the shares have changed since
        passed = now - since[sm]
        since[sm] = now
        ends = 0
        for k in range(many[sm]):
            slot = on_sm[sm, k]
            if slots.busy[slot]:
                slots.left[slot] -= passed * slots.share[slot]
                if of_sm and slots.left[slot] <= 1e-6:
                    slots.busy[slot] = False
                    ended[ends] = slot
                    ends += 1
        if not of_sm:
            ended[0] = what
            ends = 1
        for k in range(ends):
            slot = ended[k]
            burst = slots.burst[slot]
            arrived = not of_sm and burst >= 0
            upto = burst  # bursts to ask for
            if burst < 0:  # a block begins
                _youngest(on_sm[sm], many[sm], slot)
                slots.slowness[slot] = chip.slowness[sm] * (
                    1.0 + chip.block_jitter * np.random.standard_normal()
                )
                slots.asked[slot] = 0
                burst, upto = 0, max(program.depth, 1)
            elif not arrived:  # a burst is done
                burst += 1
                if burst == bursts:
                    last = max(last, now)
                    slots.block[slot] = -1
                    if given < blocks:
                        slots.block[slot] = given
                        slots.burst[slot] = -1
                        given += 1
                        queues.free[2] = max(queues.free[2], now) + chip.dispatch
                        heap = _push(events, heap, queues.free[2] + chip.gap, slot)
                    continue
                upto = burst + 1
            slots.burst[slot] = burst
            for turn in range(2):
                while slots.asked[slot] < min(upto, bursts):
                    wanted = slots.asked[slot]
                    slots.asked[slot] += 1
                    done, clock = _ask(
                        program, chip, caches, queues, counts, sm, slots.block[slot], wanted, now,
                        clock,
                    )  # fmt: skip
                    slots.arrival[slot, wanted % ring] = done
                if turn == 0:
                    if not arrived and slots.arrival[slot, burst % ring] > now:
                        heap = _push(events, heap, slots.arrival[slot, burst % ring], slot)
                        break
                    upto = burst + program.depth + 1
                else:
                    slots.left[slot] = _work(
                        program, chip, queues, slots.block[slot], burst, slots.slowness[slot],
                        active,
                    )  # fmt: skip
                    slots.busy[slot] = True
        due[sm] = _shares(slots, on_sm[sm], many[sm], chip.age, now)
        if due[sm] < np.inf:
            heap = _push(events, heap, due[sm], number + sm)
            if heap > len(events.time) - 8:  # drop what is out of date
                kept = 0
                for k in range(heap):
                    if events.what[k] < number or events.time[k] == due[events.what[k] - number]:
                        kept = _push(events, kept, events.time[k], events.what[k])
                heap = kept
    for side in range(caches.l2.dirty.shape[0]):
        for where in range(caches.l2.dirty.shape[1]):
            for way in range(caches.l2.dirty.shape[2]):
                counts[RESIDUE] += levels.sectors(caches.l2.dirty[side, where, way])
    return last
