"""Waves: how a launch's blocks fill the SMs, round after round.

What: a GPU holds ``SMs x blocks per SM`` blocks at a time, one wave; the last wave may be partly
empty. Formula: waves = blocks / (SMs x blocks per SM), a fraction; rounds = ceil(waves); the last
wave's blocks are what the rounds before it leave; idle share of the last wave = 1 - its blocks /
blocks per wave; idle share of the launch = 1 - waves / rounds; efficiency = waves / rounds.
Source: Nsight Compute's ``launch__waves_per_multiprocessor`` is this fraction (equal in recorded
launches on an H200); the rest as in texts on wave quantization. Limits: the shares take every
block to last equally long and blocks of a round to start together; in truth a slot is refilled as
soon as its block ends. Clusters, which need room in one GPC, can leave further slots empty.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kanalyze.devices.table import Device
from kanalyze.devices.table import device as find_device
from kanalyze.errors import UsageError
from kanalyze.text.plain import to_plain


@dataclass(frozen=True, slots=True)
class Waves:
    """How the blocks of one launch fill a GPU.

    ``waves`` is ncu's fraction; ``full_waves`` fill every slot; ``rounds`` count a partly filled
    one, too. ``last_wave_blocks`` is ``blocks_per_wave`` where the last wave is full.
    ``idle_share``: of the block slots in the last wave; ``launch_idle_share``: of the slots over
    all rounds; ``efficiency`` is 1 minus that. ``fewer_blocks`` and ``more_blocks`` are the nearest
    grids whose last wave is full (None: this one's is, or there is no smaller one).
    """

    blocks: int
    sms: int
    blocks_per_sm: int
    blocks_per_wave: int
    waves: float
    full_waves: int
    rounds: int
    last_wave_blocks: int
    idle_share: float
    launch_idle_share: float
    efficiency: float
    fewer_blocks: int | None
    more_blocks: int | None

    def to_dict(self) -> dict[str, Any]:
        """Plain data: the ``waves`` object of the JSON."""
        return to_plain(self)


def waves(
    *,
    blocks: int,
    device: Device | str | None = None,
    sms: int | None = None,
    blocks_per_sm: int = 1,
) -> Waves:
    """Waves of a launch.

    Args:
        blocks: blocks of the grid.
        device: the GPU, whose number of SMs counts.
        sms: number of SMs, instead of (or over) the device's.
        blocks_per_sm: blocks that an SM holds at a time (see `kanalyze.models.occupancy`).

    Raises:
        UsageError: a number is not positive, or the number of SMs is not known.
    """
    if sms is None:
        if device is None:
            raise UsageError("a device, or a number of SMs, is needed")
        gpu = find_device(device) if isinstance(device, str) else device
        if gpu.sms is None:
            reason = gpu.why_unknown("sms")
            raise UsageError(f"the number of SMs of {gpu.name} is not known: {reason}")
        sms = gpu.sms
    for what, number in (("blocks", blocks), ("SMs", sms), ("blocks per SM", blocks_per_sm)):
        if number < 1:
            raise UsageError(f"{what}: {number} is not a positive number")
    per_wave = sms * blocks_per_sm
    full, rest = divmod(blocks, per_wave)
    rounds = full + (rest > 0)
    last = rest or per_wave
    return Waves(
        blocks=blocks,
        sms=sms,
        blocks_per_sm=blocks_per_sm,
        blocks_per_wave=per_wave,
        waves=blocks / per_wave,
        full_waves=full,
        rounds=rounds,
        last_wave_blocks=last,
        idle_share=(per_wave - last) / per_wave,
        launch_idle_share=(per_wave - last) / (rounds * per_wave),
        efficiency=blocks / (rounds * per_wave),
        fewer_blocks=full * per_wave if rest and full else None,
        more_blocks=rounds * per_wave if rest else None,
    )
