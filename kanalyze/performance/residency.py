"""How a launch fills a GPU: blocks on each SM, and waves of blocks."""

from __future__ import annotations

import math

from kanalyze.devices.table import Device
from kanalyze.errors import Unknown, UsageError
from kanalyze.frontend.argument import Resources
from kanalyze.launch.record import Launch
from kanalyze.models.occupancy import occupancy
from kanalyze.models.waves import waves
from kanalyze.results import traffic as doc


def shared_bytes(launch: Launch, resources: Resources) -> int | None:
    """Shared memory of a block, static and dynamic; None where a launch chooses it."""
    return launch.shared_bytes if launch.shared_bytes is not None else resources.shared_bytes


def occupancy_part(
    launch: Launch, resources: Resources, device: Device | None
) -> doc.OccupancyPart | Unknown:
    """Blocks and warps that fit on an SM; the reason where that is not known."""
    registers = launch.registers_per_thread or resources.registers
    if device is None or registers is None:
        return Unknown(resources.reason or "no device is known")
    shared = shared_bytes(launch, resources)
    if shared is None:
        return Unknown("dynamic shared memory: a launch chooses it")
    try:
        result = occupancy(
            threads=math.prod(launch.block),
            registers=registers,
            shared_bytes=shared,
            device=device,
        )
    except UsageError as error:
        return Unknown(str(error))
    return doc.OccupancyPart(
        blocks_per_sm=result.blocks_per_sm,
        warps_per_sm=result.warps_per_sm,
        percent=result.percent,
        limited_by=result.limited_by,
        limits=result.limits,
        better=tuple(cliff.text for cliff in result.better),
    )


def waves_part(
    launch: Launch, occupied: doc.OccupancyPart | None, device: Device | None
) -> doc.WavesPart | Unknown:
    """How the grid fills the device; the reason where that is not known."""
    if device is None or occupied is None or device.sms is None:
        return Unknown("the number of SMs or of blocks on one is not known")
    result = waves(
        blocks=math.prod(launch.grid), device=device, blocks_per_sm=occupied.blocks_per_sm
    )
    return doc.WavesPart(
        blocks=result.blocks,
        blocks_per_wave=result.blocks_per_wave,
        waves=result.waves,
        last_wave_blocks=result.last_wave_blocks,
        idle_share=result.idle_share,
    )
