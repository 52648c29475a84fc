"""Predicted against measured: one panel a counter, one colour a kernel, both axes logarithmic."""

from __future__ import annotations

import math
from typing import Any

from kanalyze.errors import InputError
from kanalyze.render.figures import plain, write
from kanalyze.results import check as doc

_COLUMNS = 3
_PANEL_INCHES = 4.0
_MOST_LEGEND = 60
_MARKERS = "o^sDv"
"""Of the first twenty kernels, the next twenty …"""


def points(check: doc.Check) -> dict[str, list[tuple[str, float, float]]]:
    """Counter to (kernel, measured, estimated); what is not above 0 has no place on these axes."""
    by_counter: dict[str, list[tuple[str, float, float]]] = {}
    for launch in check.launches:
        for c in launch.comparisons:
            if (
                c.estimate is not None
                and c.measured is not None
                and min(c.estimate, c.measured) > 0
            ):
                by_counter.setdefault(c.counter, []).append((launch.kernel, c.measured, c.estimate))
    return by_counter


def plot(check: doc.Check, file: str) -> None:
    """Write the figure; the same check gives the same file.

    Raises:
        InputError: there is nothing to plot, or the file cannot be written.
    """
    by_counter = points(check)
    if not by_counter:
        raise InputError("nothing to plot: no number is both estimated and measured", file=file)
    kernels = list(dict.fromkeys(launch.kernel for launch in check.launches))
    units = {c.counter: c.unit for launch in check.launches for c in launch.comparisons}
    columns = min(_COLUMNS, len(by_counter))
    rows = math.ceil(len(by_counter) / columns)

    def draw(figure: Any) -> None:
        handles: dict[str, Any] = {}
        for index, (counter, some) in enumerate(by_counter.items()):
            axes = figure.add_subplot(rows, columns, index + 1)
            _panel(axes, counter, units[counter], some, kernels, handles)
        names = [k for k in kernels if k in handles][:_MOST_LEGEND]
        figure.legend(
            [handles[k] for k in names], [plain(k) for k in names], loc="outside right upper"
        )

    write(file, (_PANEL_INCHES * columns + 1.8, _PANEL_INCHES * rows), draw)


def _panel(
    axes: Any,
    counter: str,
    unit: str,
    some: list[tuple[str, float, float]],
    kernels: list[str],
    handles: dict[str, Any],
) -> None:
    from matplotlib import colormaps

    least = min(min(m, e) for _, m, e in some) / 1.5
    most = max(max(m, e) for _, m, e in some) * 1.5
    axes.fill_between(
        [least, most], [0.9 * least, 0.9 * most], [1.1 * least, 1.1 * most], color="0.9", lw=0
    )
    axes.plot([least, most], [least, most], color="0.5", lw=0.8)
    colors = colormaps["tab20"]
    for kernel in dict.fromkeys(k for k, _, _ in some):
        own = [(m, e) for k, m, e in some if k == kernel]
        place = kernels.index(kernel)
        dots = axes.scatter(
            *zip(*own, strict=True),
            s=14,
            color=[colors(place % colors.N)],
            marker=_MARKERS[place // colors.N % len(_MARKERS)],
        )
        handles.setdefault(kernel, dots)
    axes.set(xscale="log", yscale="log", xlim=(least, most), ylim=(least, most))
    axes.set_title(f"{counter} (band: ±10 %)")
    axes.set_xlabel(f"measured, {unit}")
    axes.set_ylabel(f"estimated, {unit}")
