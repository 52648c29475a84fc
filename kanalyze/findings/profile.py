"""What a rule may look at in a profile: the rows of `kanalyze decode`, and what they add up to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kanalyze.profiles.collector import Collector
from kanalyze.results.profile import ProfiledKernel

WORTH = 0.05
"""Share of the time below which nothing is said."""


@dataclass(frozen=True)
class Profile:
    """A profile.

    Attributes:
        rows: the kernels that are shown.
        collector: everything that was read.
        total_us: the time of all of it.
    """

    rows: list[ProfiledKernel]
    collector: Collector
    total_us: float


def sums(rows: Iterable[ProfiledKernel]) -> tuple[int, float]:
    """Launches and microseconds of some rows."""
    chosen = list(rows)
    return sum(r.calls for r in chosen), sum(r.total_us or 0.0 for r in chosen)


def names(rows: Iterable[ProfiledKernel]) -> tuple[str, ...]:
    """Their names, the costliest first."""
    ordered = sorted(rows, key=lambda r: -(r.total_us or 0.0))
    return tuple(dict.fromkeys(r.name.name for r in ordered))[:20]


def capability(row: ProfiledKernel) -> tuple[int, int] | None:
    """The compute capability of the device that a kernel ran on, where that is known."""
    for launch in row.launches:
        if launch.device is not None and launch.device.capability is not None:
            return launch.device.capability
    return None
