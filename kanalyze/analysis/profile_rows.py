"""Rows and summary out of what was collected."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from typing import Any, TypeVar

from kanalyze.errors import KanalyzeError, Unknown
from kanalyze.profiles.collector import Collector, KernelTotals, Tally
from kanalyze.profiles.operators import product_of
from kanalyze.profiles.peaks import peak_of
from kanalyze.profiles.readers.event import ProfiledDevice
from kanalyze.profiles.tensorcores import MATRIX
from kanalyze.results.kernel import UnknownField
from kanalyze.results.profile import (
    MatrixProduct,
    ProfiledKernel,
    ProfiledLaunch,
    ProfileGroup,
    ProfileSummary,
)

K = TypeVar("K")

SHOWN_LAUNCHES = 8
SHOWN_PROBLEMS = 16
_UNDECIDED = 0.01
"""Share of the time that may be undecided for the share on tensor cores to be a number."""


def row_of(
    kernel: KernelTotals, total_us: float | None, unknown: list[UnknownField]
) -> ProfiledKernel:
    """A row; what is not known of it is added to ``unknown``."""
    time = kernel.tally.time_us
    by_time = sorted(kernel.launches.items(), key=lambda i: (-i[1][1].total_us, -i[1][1].calls))
    launches = [
        _launch(key[:4], device, tally) for key, (device, tally) in by_time[:SHOWN_LAUNCHES]
    ]
    problems = _problems(kernel, unknown)
    operators = sorted(kernel.operators.values(), key=lambda o: -o[2].total_us)
    return ProfiledKernel(
        name=kernel.name,
        kind=kernel.kind,
        calls=kernel.tally.calls,
        total_us=time,
        share=None if time is None or not total_us else time / total_us,
        tensor_core=kernel.tensor_core,
        launches=tuple(
            launch for launch in launches if launch.grid or launch.registers_per_thread is not None
        ),
        problems=tuple(problems),
        counters={n: value / kernel.counted[n] for n, value in kernel.counters.items()},
        devices=tuple(dict.fromkeys(shown_device(device) for device in kernel.devices())),
        operators=tuple(dict.fromkeys(operator.name for operator, _, _ in operators)),
    )


def shown_device(device: ProfiledDevice) -> str:
    """A device by its name, else its number."""
    return device.name or (f"device {device.id}" if device.id is not None else "device")


def _by_time(tallies: dict[K, Tally]) -> list[tuple[K, Tally]]:
    return sorted(tallies.items(), key=lambda item: (-item[1].total_us, -item[1].calls))


def _launch(key: tuple[Any, ...], device: ProfiledDevice | None, tally: Tally) -> ProfiledLaunch:
    grid, block, registers, shared = key
    launch = ProfiledLaunch(grid, block, registers, shared, device, tally.calls, tally.time_us)
    if (
        device is None
        or device.capability is None
        or launch.block is None
        or launch.grid is None
        or launch.registers_per_thread is None
    ):
        return launch
    x, y, z = launch.block
    held = _held(
        x * y * z, launch.registers_per_thread, launch.shared_bytes or 0, device.capability
    )
    if held is None or launch.shared_bytes is None:
        return launch
    blocks_per_sm, percent = held
    gx, gy, gz = launch.grid
    waves = idle = None
    if device.multiprocessors and gx * gy * gz:
        from kanalyze.models.waves import waves as waves_of

        filled = waves_of(
            blocks=gx * gy * gz, sms=device.multiprocessors, blocks_per_sm=blocks_per_sm
        )
        waves, idle = filled.waves, filled.launch_idle_share
    return replace(
        launch,
        blocks_per_sm=blocks_per_sm,
        occupancy=percent / 100,
        waves=waves,
        idle_share=idle,
    )


@cache
def _held(
    threads: int, registers: int, shared: int, capability: tuple[int, int]
) -> tuple[int, float] | None:
    """Blocks that an SM holds and the occupancy in percent; None where the limits are not known."""
    from kanalyze.models.occupancy import occupancy

    name = f"sm_{capability[0]}{capability[1]}"
    try:
        held = occupancy(threads=threads, registers=registers, shared_bytes=shared, capability=name)
    except KanalyzeError:
        return None
    return held.blocks_per_sm, held.percent


def _problems(kernel: KernelTotals, unknown: list[UnknownField]) -> list[MatrixProduct]:
    if kernel.name.decoded.get("op") not in MATRIX or kernel.name.decoded.get("op") == "attention":
        return []
    problems = []
    for operator, device, tally in kernel.operators.values():
        product = product_of(operator)
        if product is None or not tally.timed or not tally.total_us:
            continue
        rate = product.flops * tally.calls / tally.total_us / 1e6
        peak = peak_of(device, product.dtype, kernel.name, kernel.tensor_core)
        if isinstance(peak, Unknown):
            add_unknown(unknown, "kernels[].problems[].peak_share", peak.reason)
        known = None if isinstance(peak, Unknown) else peak
        problems.append(
            MatrixProduct(
                operator.name, product.m, product.n, product.k, product.batch, product.dtype,
                tally.calls, tally.total_us, product.flops, rate,
                known[0] if known else None,
                rate / known[0] if known else None,
                known[1] if known else None,
            )
        )  # fmt: skip
    problems.sort(key=lambda p: -p.total_us)
    return problems[:SHOWN_PROBLEMS]


def add_unknown(unknown: list[UnknownField], field: str, reason: str) -> None:
    """Note a reason once."""
    if not any(u.field == field and u.reason == reason for u in unknown):
        unknown.append(UnknownField(field, reason))


def groups_of(
    rows: Iterable[ProfiledKernel], key: Callable[[ProfiledKernel], str], total_us: float | None
) -> list[ProfileGroup]:
    """Rows grouped by a key, those that take most time first."""
    tallies: dict[str, Tally] = {}
    kernels: dict[str, int] = {}
    for row in rows:
        name = key(row)
        tallies.setdefault(name, Tally()).add(row.calls, row.total_us)
        kernels[name] = kernels.get(name, 0) + 1
    return [
        ProfileGroup(
            name,
            kernels[name],
            tally.calls,
            tally.time_us,
            None if tally.time_us is None or not total_us else tally.time_us / total_us,
        )
        for name, tally in _by_time(tallies)
    ]


def summary_of(
    rows: list[ProfiledKernel], collector: Collector, unknown: list[UnknownField]
) -> ProfileSummary:
    """The summary of rows."""
    known = all(row.total_us is not None for row in rows) and bool(rows)
    total = sum(row.total_us or 0.0 for row in rows) if known else None
    if rows and not known:
        add_unknown(unknown, "summary.total_us", "an input does not say how long kernels ran")
    share, between = _tensor_core_share(rows, total, unknown)
    everything = collector.total.time_us
    return ProfileSummary(
        total,
        sum(row.calls for row in rows),
        tuple(groups_of(rows, lambda r: r.name.family, everything)),
        tuple(groups_of(rows, lambda r: r.op, everything)),
        tuple(groups_of(rows, lambda r: r.arch, everything)),
        share,
        between,
    )


def _tensor_core_share(
    rows: list[ProfiledKernel], total: float | None, unknown: list[UnknownField]
) -> tuple[float | None, tuple[float, float] | None]:
    field = "summary.tensor_core_share"
    if not total:
        add_unknown(unknown, field, "there are no times")
        return None, None
    low = sum(r.total_us or 0.0 for r in rows if r.tensor_core) / total
    open_rows = [r for r in rows if r.tensor_core is None]
    undecided = sum(r.total_us or 0.0 for r in open_rows) / total
    between = (low, min(1.0, low + undecided))
    if undecided > _UNDECIDED:
        kernels = f"{len(open_rows)} kernels" if len(open_rows) > 1 else "a kernel"
        add_unknown(
            unknown,
            field,
            f"the names of {kernels} with {undecided:.1%} of the time do not say whether they use "
            f"tensor cores: between {low:.1%} and {between[1]:.1%}",
        )
        return None, between
    return low, between
