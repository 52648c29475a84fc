"""Plots of estimated launches: the roofline of one, bytes and time of several over a size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kanalyze.errors import InputError
from kanalyze.render.figures import plain, write
from kanalyze.results import comparison
from kanalyze.results import traffic as doc
from kanalyze.text.numbers import decimal, percent_of, unit_name
from kanalyze.text.page import NBSP

_COLORS = {"l1": "tab:purple", "l2": "tab:blue", "hbm": "tab:orange"}
_NAMES = {"l1": "L1", "l2": "L2", "hbm": "HBM"}
_ROOM = 8.0  # the axis goes on by this factor on both sides of what is shown
_SIDES = (("tab:blue", "o"), ("tab:red", "s"))


def roofline(traffic: doc.Traffic, file: str) -> None:
    """Draw the roofs of the GPU and where the launch stands, both axes logarithmic.

    Raises:
        InputError: the roofline is not known, or the file cannot be written.
    """
    part = traffic.roofline
    if part is None or not part.achieved_tflops:
        reasons = [u.reason for u in traffic.unknown if u.field == "roofline"]
        raise InputError(f"nothing to plot: {(*reasons, 'no roofline is known')[0]}", file=file)
    write(file, (6.4, 4.4), lambda figure: _roofs(figure, traffic, part))


def _roofs(figure: Any, traffic: doc.Traffic, part: doc.RooflinePart) -> None:
    axes = figure.add_subplot()
    known = {name: level for name, level in part.levels.items() if level.intensity}
    places = [level.intensity or 0.0 for level in known.values()]
    places += [level.ridge for level in part.levels.values()]
    low, high = min(places) / _ROOM, max(places) * _ROOM
    for name, level in part.levels.items():
        top = min(high, level.ridge)
        rate = level.gb_per_s / 1e3
        label = f"{_NAMES[name]}, {decimal(rate)} TB/s, ridge at {decimal(level.ridge)} flop/B"
        axes.plot([low, top], [low * rate, top * rate], color=_COLORS[name], lw=1.2, label=label)
        axes.axvline(level.ridge, color=_COLORS[name], lw=0.5, ls=":")
    axes.plot([low, high], [part.ceiling_tflops] * 2, color="black", lw=1.2)
    for unit, peak in part.peaks_tflops.items():
        axes.axhline(peak, color="0.4", lw=0.6, ls="--")
        label = f"{unit_name(unit).removeprefix('the ')}, {decimal(peak)} Tflop/s "
        axes.annotate(plain(label), (high, peak), ha="right", va="bottom", color="0.3")
    for name, level in known.items():
        axes.plot(
            [level.intensity],
            [part.achieved_tflops],
            "o",
            color=_COLORS[name],
            ms=6,
            label=f"this launch, {_NAMES[name]}: {decimal(level.intensity or 0)} flop/B",
        )
    axes.set(xscale="log", yscale="log", xlim=(low, high))
    axes.set_ylim(top=4 * max([part.ceiling_tflops, *part.peaks_tflops.values()]))
    axes.set_xlabel("operations a byte moved, flop/B")
    axes.set_ylabel("Tflop/s")
    share = percent_of(part.roof_share or 0).replace(NBSP, " ")
    axes.set_title(
        f"{plain(traffic.kernel)}, {traffic.device}: {decimal(part.achieved_tflops)} "
        f"Tflop/s, {share} of its roof (estimated)"
    )
    figure.legend(loc="outside lower center", ncols=2)


def sweep(compared: comparison.Comparison, file: str) -> None:
    """Draw distinct bytes, HBM bytes and time over what was swept, all axes logarithmic.

    Raises:
        InputError: nothing is known, or the file cannot be written.
    """
    shown = [
        (title, unit, name, _series(compared, name))
        for title, unit, name in (
            ("distinct bytes", "bytes", "compulsory_bytes"),
            ("HBM, read and written (estimated)", "bytes", "dram_bytes"),
            ("time (estimated)", "µs", "predicted_us"),
        )
    ]
    shown = [entry for entry in shown if any(entry[3])]
    if not shown:
        raise InputError("nothing to plot: no number is known", file=file)

    def draw(figure: Any) -> None:
        for index, (title, unit, name, series) in enumerate(shown):
            axes = figure.add_subplot(1, len(shown), index + 1)
            _lines(axes, compared, name, series)
            axes.set(xscale="log", yscale="log", title=title, xlabel=compared.over, ylabel=unit)
            values = [point.value for point in compared.points if point.value is not None]
            axes.set_xticks(values, [str(value) for value in values], rotation=45)
            axes.minorticks_off()
            axes.legend()

    write(file, (3.6 * len(shown), 3.4), draw)


def _series(compared: comparison.Comparison, name: str) -> list[list[tuple[int, float]]]:
    """For each side the points that are known and above 0."""
    return [
        [
            (point.value, value)
            for point in compared.points
            if point.value is not None and (value := getattr(point.sides[side].totals, name))
        ]
        for side in range(len(compared.sides))
    ]


def _lines(
    axes: Any,
    compared: comparison.Comparison,
    name: str,
    series: Sequence[Sequence[tuple[int, float]]],
) -> None:
    exponents = next((g.exponents for g in compared.growth if g.quantity == name), ())
    for index, (side, points) in enumerate(zip(compared.sides, series, strict=True)):
        exponent = exponents[index] if exponents else None
        label = plain(side) + ("" if exponent is None else f", ~ {compared.over}^{exponent:.2f}")
        color, marker = _SIDES[index]
        if points:
            axes.plot(*zip(*points, strict=True), color=color, marker=marker, ms=4, label=label)
