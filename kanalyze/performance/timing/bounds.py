"""Independent bounds on the time of a launch, each from one resource.

What: the least time (microseconds) that each resource needs for what the launch asks of it.
Formula: bytes, operations or cycles over the rate of the resource; those of an SM on the SM that
gets most blocks (``ceil(blocks / SMs)`` of them). Latency: an SM holds a number of blocks at a
time; each block waits for its bursts one after the other, so the launch takes at least the rounds
of blocks times a block's chain of waits (Little's law, from the side of time).
Source: Williams, Waterman and Patterson, "Roofline" (2009), extended to every unit.
Limits: bounds; what resources cost together, and drift, is left to the simulation
(`kanalyze.performance.cache_sim.simulate`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kanalyze.models.coalescing import SECTOR


@dataclass(frozen=True, slots=True)
class DeviceRates:
    """bytes a ns; GHz; shares that loops reach of a peak (1: all of it)."""

    hbm: float
    l2: float
    fabric: float
    link: float
    clock: float
    sms: int


def hbm(read_bytes: float, write_bytes: float, rates: DeviceRates) -> float:
    """What HBM reads and writes."""
    return (read_bytes + write_bytes) / rates.hbm / 1000


def l2(read_sectors: float, write_sectors: float, fill_bytes: float, rates: DeviceRates) -> float:
    """What passes L2: to the SMs, from the SMs, and from HBM."""
    return ((read_sectors + write_sectors) * SECTOR + fill_bytes) / rates.l2 / 1000


def fabric(sectors: float, rates: DeviceRates) -> float:
    """What passes between the sides of L2."""
    return sectors * SECTOR / rates.fabric / 1000


def links(sectors: float, blocks: int, rates: DeviceRates) -> float:
    """What the SM with most blocks moves between itself and L2."""
    return on_busiest(sectors * SECTOR / rates.link, blocks, rates) / 1000


def cycles(total: float, share: float, blocks: int, rates: DeviceRates) -> float:
    """A pipe of the SM with most blocks: cycles over the launch, of which ``share`` is reached."""
    return on_busiest(total / share / rates.clock, blocks, rates) / 1000


def latency(
    blocks: int, per_sm: int, bursts: float, wait_ns: float, gap_ns: float, rates: DeviceRates
) -> float:
    """Rounds of blocks times a block's waits for ``bursts`` that nothing is asked for ahead of."""
    rounds = -(-blocks // (rates.sms * per_sm))
    return rounds * (bursts * wait_ns + gap_ns) / 1000


def on_busiest(total: float, blocks: int, rates: DeviceRates) -> float:
    """The part of a sum over all blocks that falls to the SM with most of them."""
    return total * -(-blocks // rates.sms) / blocks


def ranked(bounds: Mapping[str, float | None]) -> list[tuple[str, float]]:
    """The known bounds, the largest first."""
    known = [(name, value) for name, value in bounds.items() if value is not None]
    return sorted(known, key=lambda pair: -pair[1])
