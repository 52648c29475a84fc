"""Occupancy: how many blocks and warps an SM holds at a time, what limits them, and the next cliff.

What: the most blocks of one kernel that are resident on an SM, by resource.
Formula: the least of
  blocks          max blocks per SM;
  warps           floor(max warps per SM / warps of a block), a block's last warp being whole;
  registers       a warp gets ceil(32 x registers per thread / 256) x 256; each of the 4
                  sub-partitions holds floor(16384 / that) warps; 4 x that / warps of a block;
  shared memory   floor(carve-out / (bytes + reserved bytes, rounded up to the unit));
  barriers        floor(barriers of an SM / barriers of a block), from sm_90 on, where given.
percent = 100 x blocks x warps of a block / max warps per SM. A cliff is found by evaluating this
formula for other values of one input, not by a rule of its own.
Source: NVIDIA's cuda_occupancy.h of CUDA 13.0 (limits and units: ``devices.toml``); equal to that
header over the table in ``tests/data/occupancy`` and to Nsight Compute's
``launch__occupancy_limit_*`` and ``sm__maximum_warps_per_active_cycle_pct`` on an H200.
Carve-out: an SM splits one memory into L1 and shared memory; the driver chooses the split for a
launch (``launch__shared_mem_config_size``, a number that is not documented). In recorded launches
on an H200 it was never so small that it cost a block, so the largest carve-out, which
cuda_occupancy.h takes too, gives the right blocks per SM; ncu's single limit for shared memory is
met when the driver's choice is given.
Limits: upper bounds for a full SM. Achieved occupancy is lower where blocks are few or uneven. A
cluster's blocks also need room in one GPC at the same time, which is not modelled. Tensor memory
(sm_100) and virtual resources of Blackwell are not counted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from kanalyze.devices.table import Capability, Device
from kanalyze.devices.table import capability as find_capability
from kanalyze.devices.table import device as find_device
from kanalyze.errors import UsageError
from kanalyze.text.plain import to_plain

WARP_THREADS = 32
MAX_BARRIERS = 16
"""Named barriers that a block can use (PTX ISA, ``bar``)."""
_BARRIERS_FROM = 90


@dataclass(frozen=True, slots=True)
class Cliff:
    """The nearest value of one input at which the blocks (threads: the warps) per SM change.

    ``resource`` is "registers" (per thread), "shared memory" (bytes of a block) or "threads" (of a
    block); ``change`` is ``value`` less what it is now. ``text`` says it in words.
    """

    resource: str
    value: int
    change: int
    blocks_per_sm: int
    warps_per_sm: int
    percent: float
    text: str


@dataclass(frozen=True, slots=True)
class Occupancy:
    """How many blocks an SM holds.

    ``limits`` has the most blocks by resource (registers, shared memory, warps, blocks, barriers
    where given; None: the block uses none of it); ``limiters`` those that are the least, and
    ``limited_by`` names them in one text. ``registers_allocated`` and ``shared_allocated_bytes``
    are what one block takes; ``shared_config_bytes`` is the carve-out reckoned with.
    ``better`` and ``worse`` are the nearest cliffs on either side.
    """

    architecture: str
    device: str | None
    threads: int
    registers: int
    shared_bytes: int
    blocks_per_sm: int
    warps_per_sm: int
    percent: float
    limited_by: str
    limiters: tuple[str, ...]
    limits: Mapping[str, int | None]
    warps_per_block: int
    max_warps_per_sm: int
    registers_allocated: int
    shared_allocated_bytes: int
    shared_config_bytes: int
    better: tuple[Cliff, ...]
    worse: tuple[Cliff, ...]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data: the ``occupancy`` object of the JSON."""
        return {**to_plain(self), "next_cliff": self.next_cliff}

    @property
    def next_cliff(self) -> str:
        """The nearest improvement in words."""
        if self.better:
            return self.better[0].text
        if self.warps_per_sm == self.max_warps_per_sm:
            return "none: every warp slot is taken"
        return f"no single change gives more: limited by {self.limited_by}"


@dataclass(frozen=True, slots=True)
class _BlockNeeds:
    """The inputs of the formula."""

    cap: Capability
    threads: int
    registers: int
    shared: int
    config: int | None
    barriers: int | None


def occupancy(
    *,
    threads: int,
    registers: int,
    shared_bytes: int = 0,
    device: Device | str | None = None,
    capability: Capability | str | None = None,
    shared_config_bytes: int | None = None,
    cluster: int | None = None,
    barriers: int | None = None,
) -> Occupancy:
    """Blocks and warps per SM of a kernel.

    Args:
        threads: threads of a block.
        registers: 32-bit registers per thread, as ``ptxas -v`` or the cubin says.
        shared_bytes: shared memory of a block, static and dynamic, without the driver's share.
        device: the GPU, or
        capability: its compute capability (``sm_90``).
        shared_config_bytes: the carve-out that the driver chose (ncu's
            ``launch__shared_mem_config_size``); the largest one if left out. As the driver, the
            formula takes the next size that exists and in which one block fits.
        cluster: blocks of a cluster; only checked, and noted as not modelled.
        barriers: barriers that a block uses; counted from sm_90 on.

    Raises:
        UsageError: no such block can be launched there; the limit that it breaks is named.
    """
    gpu = find_device(device) if isinstance(device, str) else device
    if capability is None:
        if gpu is None:
            raise UsageError("a device or a compute capability is needed")
        cap = gpu.capability
    else:
        cap = find_capability(capability) if isinstance(capability, str) else capability
        if gpu is not None and gpu.capability is not cap:
            raise UsageError(f"{gpu.name} is {gpu.capability.name}, not {cap.name}")
    where = gpu.name if gpu is not None else cap.name
    case = _BlockNeeds(cap, threads, registers, shared_bytes, shared_config_bytes, barriers)
    broken = _broken(case, where) or _broken_cluster(cap, cluster, where)
    if broken:
        raise UsageError(broken)
    limits = _limits(case)
    blocks = _minimum(limits)
    limiters = tuple(name for name, most in limits.items() if most == blocks)
    warps = _warps(threads)
    notes = []
    if cluster is not None and cluster > 1:
        notes.append(
            f"clusters of {cluster} blocks: how many fit at a time also depends on the SMs of "
            "each GPC, which is not known"
        )
    better, worse = _cliffs(case, blocks)
    return Occupancy(
        architecture=cap.name,
        device=gpu.name if gpu is not None else None,
        threads=threads,
        registers=registers,
        shared_bytes=shared_bytes,
        blocks_per_sm=blocks,
        warps_per_sm=blocks * warps,
        percent=_percent(case, blocks),
        limited_by=" and ".join(limiters),
        limiters=limiters,
        limits=MappingProxyType(limits),
        warps_per_block=warps,
        max_warps_per_sm=cap.max_warps_per_sm,
        registers_allocated=_registers_per_warp(case) * warps,
        shared_allocated_bytes=_shared_per_block(case),
        shared_config_bytes=_carveout(case),
        better=better,
        worse=worse,
        notes=tuple(notes),
    )


def _up(number: int, unit: int) -> int:
    return -(-number // unit) * unit


def _warps(threads: int) -> int:
    return -(-threads // WARP_THREADS)


def _registers_per_warp(case: _BlockNeeds) -> int:
    return _up(case.registers * WARP_THREADS, case.cap.register_unit)


def _shared_per_block(case: _BlockNeeds) -> int:
    return _up(case.shared + case.cap.shared_reserved_bytes, case.cap.shared_unit_bytes)


def _carveout(case: _BlockNeeds) -> int:
    """The size of shared memory that an SM is set to."""
    if case.config is None:
        return case.cap.shared_per_sm_bytes
    wanted = max(case.config, _shared_per_block(case))
    return next(size for size in case.cap.shared_carveouts_bytes if size >= wanted)


def _limits(case: _BlockNeeds) -> dict[str, int | None]:
    """The most blocks by resource; the case is one that can be launched."""
    cap, warps = case.cap, _warps(case.threads)
    per_warp, per_block = _registers_per_warp(case), _shared_per_block(case)
    room = cap.registers_per_sm // cap.sub_partitions
    limits: dict[str, int | None] = {
        "registers": room // per_warp * cap.sub_partitions // warps if per_warp else None,
        "shared memory": _carveout(case) // per_block if per_block else None,
        "warps": cap.max_warps_per_sm // warps,
        "blocks": cap.max_blocks_per_sm,
    }
    if case.barriers and int(cap.name[3:]) >= _BARRIERS_FROM:
        limits["barriers"] = cap.barriers_per_sm // case.barriers
    return limits


def _minimum(limits: Mapping[str, int | None]) -> int:
    return min(most for most in limits.values() if most is not None)


def _percent(case: _BlockNeeds, blocks: int) -> float:
    return 100.0 * blocks * _warps(case.threads) / case.cap.max_warps_per_sm


def _broken(case: _BlockNeeds, where: str) -> str | None:
    """Why no such block can be launched; None where it can."""
    cap = case.cap
    if case.threads < 1:
        return f"{case.threads} threads: a block has at least one"
    if case.threads > cap.max_threads_per_block:
        return f"{case.threads} threads: a block on {where} has at most {cap.max_threads_per_block}"
    if case.registers < 0:
        return f"{case.registers} registers per thread"
    if case.registers > cap.max_registers_per_thread:
        most = cap.max_registers_per_thread
        return f"{case.registers} registers: a thread on {where} has at most {most}"
    warps = _up(_warps(case.threads), cap.sub_partitions)
    taken = _registers_per_warp(case) * warps
    if taken > cap.registers_per_block:
        return (
            f"{case.threads} threads with {case.registers} registers each take {taken} registers "
            f"as they are allocated: a block on {where} has at most {cap.registers_per_block}"
        )
    if case.shared < 0:
        return f"{case.shared} B of shared memory"
    if case.shared > cap.shared_per_block_bytes:
        return (
            f"{case.shared} B of shared memory: a block on {where} has at most "
            f"{cap.shared_per_block_bytes} B"
        )
    if case.config is not None and not 0 <= case.config <= cap.shared_per_sm_bytes:
        sizes = ", ".join(str(size) for size in cap.shared_carveouts_bytes)
        return f"a carve-out of {case.config} B: {where} has {sizes}"
    if case.barriers is not None and not 0 <= case.barriers <= MAX_BARRIERS:
        return f"{case.barriers} barriers: a block has at most {MAX_BARRIERS}"
    return None


def _broken_cluster(cap: Capability, cluster: int | None, where: str) -> str | None:
    if cluster is None or cluster == 1:
        return None
    if not 1 <= cluster <= 16:
        return f"a cluster of {cluster} blocks: from 1 to 16 (8 on every GPU that has clusters)"
    if int(cap.name[3:]) < 90:
        return f"a cluster of {cluster} blocks: {where} has no clusters (from sm_90 on)"
    return None


def _cliffs(case: _BlockNeeds, blocks: int) -> tuple[tuple[Cliff, ...], tuple[Cliff, ...]]:
    """The nearest cliffs by registers, shared memory and threads: better ones, and worse ones."""
    cap = case.cap
    unit, reserved = cap.shared_unit_bytes, cap.shared_reserved_bytes
    top = _shared_per_block(case) - reserved  # the most bytes that are allocated alike
    warps = _warps(case.threads)
    better = [
        _first(case, blocks, "registers", range(case.registers - 1, 0, -1), 1),
        _first(case, blocks, "shared memory", [*range(top - unit, 0, -unit), 0], 1)
        if case.shared
        else None,
    ]
    worse = [
        _first(case, blocks, "registers", range(case.registers + 1, 256), -1),
        _first(
            case, blocks, "shared memory", range(top + 1, cap.shared_per_block_bytes + 1, unit), -1
        ),
    ]
    fewer = range(32 * (warps - 1), 0, -32)
    more = range(32 * (warps + 1), cap.max_threads_per_block + 1, 32)
    for values in (fewer, more):
        better.append(_first(case, blocks, "threads", values, 1))
        worse.append(_first(case, blocks, "threads", values, -1))
    return tuple(c for c in better if c), tuple(c for c in worse if c)


def _first(
    case: _BlockNeeds, blocks: int, resource: str, values: Sequence[int], sign: int
) -> Cliff | None:
    """The first of some values with more (sign 1) or fewer (-1) blocks, of threads: warps.

    Blocks only grow with fewer registers and less shared memory, so these are searched by halves.
    """
    by_warps = resource == "threads"
    now = blocks * (_warps(case.threads) if by_warps else 1)

    def crossed(value: int) -> bool:
        other = _with(case, resource, value)
        if _broken(other, ""):
            return sign < 0 and not by_warps
        return sign * (_minimum(_limits(other)) * (_warps(value) if by_warps else 1) - now) > 0

    if by_warps:
        step = next((value for value in values if crossed(value)), None)
    else:
        index = bisect_left(values, True, key=crossed)
        step = values[index] if index < len(values) else None
    if step is None or _broken(_with(case, resource, step), ""):
        return None
    return _cliff(case, blocks, resource, step)


def _with(case: _BlockNeeds, resource: str, value: int) -> _BlockNeeds:
    if resource == "registers":
        return replace(case, registers=value)
    if resource == "threads":
        return replace(case, threads=value)
    return replace(case, shared=value)


_UNIT = {
    "registers": "{} register{s} {} per thread",
    "shared memory": "{} B of shared memory {}",
    "threads": "{} thread{s} {} per block",
}


def _cliff(case: _BlockNeeds, blocks: int, resource: str, value: int) -> Cliff:
    other = _with(case, resource, value)
    there = _minimum(_limits(other))
    now = {"registers": case.registers, "shared memory": case.shared, "threads": case.threads}
    change = value - now[resource]
    way = "more" if change > 0 else "less" if resource == "shared memory" else "fewer"
    what = _UNIT[resource].format(abs(change), way, s="" if abs(change) == 1 else "s")
    warps = there * _warps(other.threads)
    percent = _percent(other, there)
    if resource == "threads":
        result = f"{there} block{'s' if there != 1 else ''}, {warps} warps per SM"
    else:
        step = abs(there - blocks)
        number = "one block" if step == 1 else f"{step} blocks"
        result = f"{number} {'more' if there > blocks else 'less' if step == 1 else 'fewer'} per SM"
    text = f"{what} ({value}): {result} ({percent:.4g} %)"
    return Cliff(resource, value, change, there, warps, percent, text)
