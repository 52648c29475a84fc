"""Where a launch stands under the roofs of a GPU.

What: the rate that each level of the memory hierarchy and the units that compute allow a launch at
most, the lowest of these roofs, and the ridge of each level.
Formula: the units work at the same time, so the ceiling of a mix of operations is their sum over
the longest time that one unit needs for its own at its peak. A level allows intensity times its
bandwidth; its ridge is the ceiling over the bandwidth. What has a lower intensity than the ridge is
bound by memory at that level.
Source: Williams, Waterman and Patterson, "Roofline" (2009); several levels as in Nsight Compute's
hierarchical roofline chart.
Limits: throughput alone. What latency, launch and tail cost shows as a distance to the roof.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Level:
    """One level of memory: bytes/s, operations a byte, and the rate that they allow.

    ``intensity`` and ``attainable`` are None where the launch moves nothing there.
    """

    bandwidth: float
    intensity: float | None
    ridge: float
    attainable: float | None


@dataclass(frozen=True, slots=True)
class Roofline:
    """Rates in operations a second.

    ``unit`` needs the longest for its operations; ``ceiling`` is what the units allow this mix.
    ``roof`` is the lowest of all roofs, ``bound`` its name: a level, or the unit.
    """

    unit: str
    ceiling: float
    levels: Mapping[str, Level]
    roof: float
    bound: str


def roofline(
    operations: Mapping[str, float],
    peaks: Mapping[str, float],
    levels: Mapping[str, tuple[float, float]],
) -> Roofline | None:
    """The roofs over a launch; None if it does no operations.

    Args:
        operations: floating-point operations of the launch by unit.
        peaks: operations a second of each of these units.
        levels: for each level of memory the bytes that the launch moves, and bytes a second.
    """
    total = sum(operations.values())
    if not total:
        return None
    needs = {unit: number / peaks[unit] for unit, number in operations.items() if number}
    unit = max(needs, key=lambda name: needs[name])
    ceiling = total / needs[unit]
    by_level = {}
    for name, (size, bandwidth) in levels.items():
        intensity = total / size if size else None
        attainable = None if intensity is None else intensity * bandwidth
        by_level[name] = Level(bandwidth, intensity, ceiling / bandwidth, attainable)
    roofs = {name: level.attainable for name, level in by_level.items()}
    known = {name: rate for name, rate in roofs.items() if rate is not None} | {unit: ceiling}
    bound = min(known, key=lambda name: known[name])
    return Roofline(unit, ceiling, by_level, known[bound], bound)
