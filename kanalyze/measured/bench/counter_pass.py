"""The second pass: every measured launch and its rivals, counted in one run of Nsight Compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kanalyze.measured.bench import metrics, nsight, record, replay, rivals
from kanalyze.measured.bench.cases import BenchCase
from kanalyze.text.numbers import plural


@dataclass(frozen=True)
class LaunchToCount:
    """A launch whose counters are wanted, and the case that it belongs to."""

    launch: record.MeasuredLaunch
    case: BenchCase


@dataclass
class Done:
    """How a pass ended: notes, how many launches were not counted, whether it was stopped."""

    notes: list[str] = field(default_factory=list)
    missing: int = 0
    interrupted: bool = False


def count_all(
    ncu: str,
    wanted: Sequence[LaunchToCount],
    folder: Path,
    capability: int,
    seconds: float | None,
    progress: Callable[[str, int, int, str], None],
) -> Done:
    """Count launches, whose cubins are in a folder, and their rivals; fill in the counters.

    Raises:
        KanalyzeError: nothing can be counted; why.
    """
    ranges: list[dict[str, Any]] = []
    owners: list[tuple[record.MeasuredLaunch, rivals.Rival | None]] = []
    for one in wanted:
        cubin = (folder / f"{one.launch.name}.cubin").absolute()
        ranges.append(replay.kernel_range(one.launch.built, str(cubin)))
        owners.append((one.launch, None))
        for rival in one.launch.rivals:
            if rival.error is None:
                ranges.append(replay.rival_range(one.case, rival.provider))
                owners.append((one.launch, rival))
    done = Done()
    if not ranges:
        return done
    names = metrics.metrics(capability)

    def told(begun: int) -> None:
        progress("counting", begun, len(ranges), owners[begun - 1][0].name)

    counted, unknown, done.interrupted = nsight.count(ncu, ranges, names, told, seconds)
    if unknown:
        done.notes.append(
            f"this Nsight Compute does not know {plural(len(unknown), 'metric')}: "
            + ", ".join(unknown)
        )
    for index, result in counted.items():
        _assign(result, *owners[index], names)
    done.missing = len(ranges) - len(counted)
    if done.missing:
        done.notes.append(f"{done.missing} of {len(ranges)} launches were not counted")
    return done


def _assign(
    counted: nsight.RangeCounters,
    launch: record.MeasuredLaunch,
    rival: rivals.Rival | None,
    names: Sequence[str],
) -> None:
    if rival is not None:
        rival.counters = counted.total(names)
        return
    seen = [name.split("(")[0] for name, _ in counted.kernels]
    if seen == [launch.built.kernel]:
        launch.counters = counted.kernels[0][1]
    else:
        launch.no_counters = f"Nsight Compute saw {seen} where {launch.built.kernel} was launched"
