"""GPUs as data: what `kanalyze device` shows and its JSON holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kanalyze.devices.table import (
    CAPABILITY_FACTS,
    DEVICE_FACTS,
    NO_SOURCE,
    SHARED_WITHOUT_OPT_IN_BYTES,
    Device,
    Fact,
    devices,
    shared_limits,
)
from kanalyze.results.kernel import UnknownField


@dataclass(frozen=True, slots=True)
class DescribedDevice:
    """A GPU and its compute capability: ``facts`` that are not known are None, with the reason."""

    name: str
    aliases: tuple[str, ...]
    architecture: str
    facts: Mapping[str, Fact | None]
    capability: Mapping[str, Fact]
    unknown: tuple[UnknownField, ...]


def described_device(device: Device) -> DescribedDevice:
    """What is known of a GPU, and what is not."""
    return DescribedDevice(
        device.name,
        device.aliases,
        device.capability.name,
        {key: device.facts.get(key) for key in DEVICE_FACTS},
        device.capability.facts,
        unknown_facts(device),
    )


def unknown_facts(device: Device) -> tuple[UnknownField, ...]:
    """What is not known of a GPU and of its compute capability, and why."""
    missing = [key for key in DEVICE_FACTS if key not in device.facts]
    capability = [key for key in CAPABILITY_FACTS if key not in device.capability.facts]
    return (
        *(UnknownField(key, device.why_unknown(key) or "") for key in missing),
        *(UnknownField(f"capability.{key}", NO_SOURCE) for key in capability),
    )


@dataclass(frozen=True, slots=True)
class ArchitectureFit:
    """Whether a block's shared memory fits on a compute capability."""

    architecture: str
    limit_bytes: int
    fits: bool
    source: str
    grade: str
    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SharedFit:
    """On which compute capabilities a block can have so much shared memory.

    ``opt_in``: it must be dynamic, and opted into.
    """

    shared_bytes: int
    opt_in: bool
    architectures: tuple[ArchitectureFit, ...]


def shared_fit(shared_bytes: int) -> SharedFit:
    """Which compute capabilities have room for a block's shared memory."""
    return SharedFit(
        shared_bytes,
        shared_bytes > SHARED_WITHOUT_OPT_IN_BYTES,
        tuple(
            ArchitectureFit(
                name,
                limit.value,
                shared_bytes <= limit.value,
                limit.source,
                limit.grade,
                tuple(d.name for d in devices().values() if d.capability.name == name),
            )
            for name, limit in shared_limits().items()
        ),
    )
