"""The time of a launch: what an SM needs for it, all bounds, and the prediction.

What: from executed instructions, tensor operations, wavefronts and sectors: the work of the SMs
(which the simulation of the caches spreads over blocks and bursts), the bounds, and which binds.
Formula: the work of a block is the most that any pipe needs for it, at the share of its peak that
loops were seen to reach; and no less than what one of its warps needs alone
(`kanalyze.performance.timing.chain`) over the ``n`` blocks that an SM works on together. Where
tensor
instructions wait for special functions (a loop with both, as in attention) or for many spilled
registers, a warp waits for its tensor instructions and what it spills, too, and blocks hide each
other's waits in part: ``(most^p + (chain / n)^p)^(1/p)``.
Source: shares and ``p`` were fitted to launches on an H200 (``memory/machine.toml``).
Limits: warps of a block are alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kanalyze.performance.cache_sim.parameters import MemoryMachine
from kanalyze.performance.timing import bounds as limits

_L1_SECTORS_PER_CLOCK = 4  # a line of 128 bytes
_SHARES = {"tensor": "tensor_share", "issue": "issue_share", "shared": "shared_share",
           "lsu": "issue_share", "fma": "pipe_share", "fma_heavy": "pipe_share",
           "alu": "pipe_share", "sfu": "pipe_share", "fp64": "pipe_share"}  # fmt: skip
_NAMES = {"fma": "fp32", "fma_heavy": "int_multiply"}
_TENSOR_BOUND = 0.75  # of the busiest pipe: where shared memory only feeds the tensor cores
_SPILLS_MATTER = 0.1  # of the work of an SM: moving what is spilled, from where on it is waited for
_LATENCY_BOUND = 0.6  # of the prediction: if no resource explains more, it is latency


@dataclass(frozen=True, slots=True)
class SmWork:
    """What a launch asks of its SMs, over all of them.

    ``cycles`` by pipe (`kanalyze.performance.timing.pipes`), "tensor" and "shared" among them;
    ``sectors`` of
    requests to global memory; ``alone`` cycles of one warp of each block by itself, ``waits`` how
    often a warp waits for global memory, ``local_waits`` how often one of each block does for local
    memory, of which ``local_bytes`` are moved; ``serialization`` atomics that go to one address;
    ``alternates``: tensor instructions and special functions do in a loop.
    """

    cycles: Mapping[str, float]
    sectors: float
    alone: float = 0.0
    waits: float = 0.0
    local_waits: float = 0.0
    local_bytes: int = 0
    serialization: float = 0.0
    alternates: bool = False


@dataclass(frozen=True, slots=True)
class PredictedTimes:
    """Bounds in microseconds by resource, the prediction, what binds, and the runner-up."""

    bounds_us: Mapping[str, float]
    predicted_us: float
    bound_by: str
    next_bound: str | None
    next_share: float | None


def sm_work(
    demand: SmWork, machine: MemoryMachine, blocks: int, per_sm: int, local_in_l1: bool = True
) -> tuple[float, bool]:
    """ns of SM time over all blocks, and whether the tensor cores need the most.

    Args:
        demand: what the launch asks for.
        machine: the GPU.
        blocks: of the launch.
        per_sm: blocks that an SM holds at a time.
        local_in_l1: whether L1 holds the local memory of all of them.
    """
    needs = {
        name: total / _share(name, machine) / machine.clock for name, total in demand.cycles.items()
    }
    needs["l1"] = demand.sectors / _L1_SECTORS_PER_CLOCK / machine.clock
    most = max(needs.values(), default=0.0)
    tensor = needs.get("tensor", 0.0)
    together = min(per_sm, -(-blocks // machine.sms))
    chain = demand.alone / machine.clock
    spilled = demand.local_bytes / machine["link_rate"]
    if not local_in_l1:
        spilled += demand.local_waits * machine["l2_latency"]
    if tensor and (demand.alternates or spilled > _SPILLS_MATTER * most):
        chain = machine["chain_tensor"] * tensor + max(chain, needs["issue"]) + spilled
        power = machine["chain_power"]
        return float((most**power + (chain / together) ** power) ** (1 / power)), False
    most = max(most, chain / together)
    return most, tensor > 0 and tensor >= _TENSOR_BOUND * max(needs.values())


def _share(name: str, machine: MemoryMachine) -> float:
    return machine[_SHARES[name]] if name in _SHARES else 1.0


def times(
    demand: SmWork,
    moved: Mapping[str, float],
    end_us: float,
    machine: MemoryMachine,
    blocks: int,
    per_sm: int,
    waits: float,
) -> PredictedTimes:
    """All bounds and the prediction.

    Args:
        demand: what the launch asks of its SMs.
        moved: sectors and bytes by counter, and ``fabric_sectors``: those that pass between the
            sides of L2.
        end_us: when the simulated launch ended.
        machine: the GPU.
        blocks: of the launch.
        per_sm: blocks that an SM holds at a time.
        waits: bursts of a block that nothing is asked for ahead of.
    """
    rates = limits.DeviceRates(
        machine["hbm_rate"],
        machine["l2_rate"],
        machine["fabric_rate"],
        machine["link_rate"],
        machine.clock,
        machine.sms,
    )
    read, write = moved["l2_read_sectors"], moved["l2_write_sectors"]
    bounds_us = {
        "hbm": limits.hbm(moved["dram_read_bytes"], moved["dram_write_bytes"], rates),
        "l2": limits.l2(read, write, moved["dram_read_bytes"], rates),
        "fabric": limits.fabric(moved["fabric_sectors"], rates),
        "link": limits.links(moved["l1_miss_sectors"] + write, blocks, rates),
        "l1": limits.cycles(demand.sectors / _L1_SECTORS_PER_CLOCK, 1.0, blocks, rates),
        "latency": limits.latency(
            blocks,
            per_sm,
            waits,
            machine["l2_latency"] + machine["hbm_latency"],
            machine["gap"],
            rates,
        ),
        "atomics": demand.serialization * machine["atomic_turn"] / 1000,
        "launch": (machine["launch"] + machine["end"]) / 1000,
    }
    for name, total in demand.cycles.items():
        bounds_us[_NAMES.get(name, name)] = limits.cycles(total, 1.0, blocks, rates)
    ranked = limits.ranked(bounds_us)
    predicted = max(end_us, ranked[0][1])
    best = ranked[0][0] if ranked[0][1] >= _LATENCY_BOUND * predicted else "latency"
    others = [(name, value) for name, value in ranked if name != best]
    return PredictedTimes(
        bounds_us=bounds_us,
        predicted_us=predicted,
        bound_by=best,
        next_bound=others[0][0] if others else None,
        next_share=others[0][1] / predicted if others else None,
    )
