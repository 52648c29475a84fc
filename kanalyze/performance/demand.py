"""What a launch asks of its SMs: cycles by pipe, wavefronts, tensor operations, local memory."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator

from kanalyze.counting import atomics
from kanalyze.counting.ptx_launch import AccessTransactions
from kanalyze.counting.sass_launch import SassKernelLaunch
from kanalyze.devices.table import Device
from kanalyze.errors import Unknown
from kanalyze.models import tensor
from kanalyze.performance.cache_sim.tiles import past_l1
from kanalyze.performance.timing import pipes
from kanalyze.performance.timing.chain import chain
from kanalyze.performance.timing.model import SmWork
from kanalyze.ptx import ir
from kanalyze.ptx.cfg import Cfg
from kanalyze.sass.ir import SassInstruction
from kanalyze.sass.memory import memory_access
from kanalyze.traffic.totals import LaunchTotals

_LANES = 32
_WARPS_OF_A_GROUP = 4
_SECTORS_OF_A_WAVEFRONT = 4
_THROUGH_L1 = 0.9


def demand(
    totals: LaunchTotals,
    code: SassKernelLaunch,
    cfg: Cfg,
    sectors: int,
    spilled: int,
    device: Device,
) -> SmWork | Unknown:
    """What the launch asks for; the reason where a part of it is not known.

    Args:
        totals: the launch, counted.
        code: its machine code.
        cfg: the control-flow graph of the PTX.
        sectors: of requests to global memory.
        spilled: bytes that go to local memory and back.
        device: the GPU.
    """
    cycles = pipes.cycles(_executed(code), device.capability)
    wavefronts = (
        code.shared_load_wavefronts.at_least
        + code.shared_store_wavefronts.at_least
        + _copied(totals.transactions)
    )
    for instruction, times in _tensor(totals, cfg):
        wavefronts += tensor.operand_wavefronts(instruction) * times / _WARPS_OF_A_GROUP
    cycles["shared"] = wavefronts
    operations = totals.tensor_flops()
    if isinstance(operations, Unknown):
        return operations
    for kind, number in operations.items():
        rate = tensor.operations_per_clock(kind, device)
        if rate is None:
            reason = f"the rate of the tensor cores of {device.name} for {kind} is not known"
            return Unknown(reason)
        cycles["tensor"] = cycles.get("tensor", 0.0) + number / rate
    blocks = math.prod(code.launch.grid)
    warps = blocks * -(-math.prod(code.launch.block) // _LANES)
    alone = chain(code.cfg, runs(code), warps)
    return SmWork(
        cycles,
        sectors,
        alone.cycles * blocks,
        alone.waits,
        alone.local_waits * blocks,
        spilled,
        serialization(totals),
        _alternates(code),
    )


def unrolled(totals: LaunchTotals, code: SassKernelLaunch) -> int:
    """How many iterations of its loops the machine code asks for at once, where it unrolls them.

    Told by the loads from global memory in the innermost loop that has most of them, in PTX and in
    machine code.
    """
    in_ptx: Counter[int] = Counter()
    for access in totals.launched.addresses.accesses:
        loop = totals.launched.cfg.innermost_loop(access.block)
        if loop is not None and access.row.space == "global" and access.row.kind == "load":
            in_ptx[loop.header] += 1
    in_code: Counter[int] = Counter()
    for block in code.cfg.blocks:
        loop = code.cfg.innermost_loop(block.index)
        if loop is None:
            continue
        for instruction in block.instructions:
            access_of = memory_access(instruction)
            if access_of is not None and (access_of.space, access_of.kind) == ("global", "load"):
                in_code[loop.header] += not access_of.dummy
    if not in_ptx or not in_code:
        return 1
    return max(1, round(max(in_code.values()) / max(in_ptx.values())))


def _executed(code: SassKernelLaunch) -> Iterator[tuple[SassInstruction, int]]:
    """Instructions with how many warps execute them."""
    for index, warps in runs(code):
        for instruction in code.cfg.blocks[index].instructions:
            yield instruction, warps


def runs(code: SassKernelLaunch) -> Iterator[tuple[int, int]]:
    """Blocks with how many warps execute them.

    Where data decide, a warp is taken to go both ways: its threads seldom agree. A block whose runs
    are not known counts as often as the next one that dominates it.
    """
    for index in code.block_runs:
        at: int | None = index
        while at is not None and (at not in code.block_runs or code.block_runs[at].warps is None):
            at = code.cfg.idom.get(at)
        warps = code.block_runs[at].warps if at is not None else None
        if warps:
            yield index, warps


def _tensor(totals: LaunchTotals, cfg: Cfg) -> Iterator[tuple[ir.Instruction, int]]:
    for block in cfg.blocks:
        for instruction in block.instructions:
            if tensor.operand_type(instruction) is not None:
                yield instruction, totals.launched.runs(block.index).warps or 0


def _copied(transfers: Iterable[AccessTransactions]) -> float:
    """Wavefronts in which asynchronous copies write to shared memory.

    Copies that bypass L1 write whole lines; through L1 each sector is written by itself (on an H200
    14.5 wavefronts for a 4-byte ``cp.async`` of 16 sectors).
    """
    total = 0.0
    for transfer in transfers:
        if transfer.counted is None or transfer.access.row.kind not in ("async_copy", "bulk_load"):
            continue
        if past_l1(transfer.access):
            total += transfer.counted.transactions / _SECTORS_OF_A_WAVEFRONT
        else:
            total += _THROUGH_L1 * transfer.counted.transactions
    return total


def serialization(totals: LaunchTotals) -> float:
    """Atomics that go to the same address, in the mean of those of a pointer; the most of any."""
    groups: dict[str | None, list[AccessTransactions]] = {}
    rows = zip(totals.transactions, totals.description.kernel.accesses, strict=True)
    pointers = {id(transfer): row.pointer for transfer, row in rows}
    for transfer in atomics.counted_atomics(totals.transactions):
        groups.setdefault(pointers[id(transfer)], []).append(transfer)
    operations = [atomics.operations(totals.launched, group) for group in groups.values()]
    return max((known.each for known in operations if known is not None), default=0.0)


def _alternates(code: SassKernelLaunch) -> bool:
    """Whether a loop has both tensor and special-function instructions: one waits for the other."""
    for loop in code.cfg.loops:
        names = {
            instruction.base
            for index in loop.body
            for instruction in code.cfg.blocks[index].instructions
        }
        if "MUFU" in names and any(name.endswith(("GMMA", "MMA")) for name in names):
            return True
    return False
