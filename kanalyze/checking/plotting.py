"""Predicted against measured: one panel a counter, one colour a kernel, both axes logarithmic."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from kanalyze.checking import document as doc
from kanalyze.errors import InputError, MissingToolError, UsageError
from kanalyze.report.safe import escaped

SUFFIXES = (".svg", ".png")
_COLUMNS = 3
_PANEL_INCHES = 4.0
_MOST_LEGEND = 60
_MARKERS = "o^sDv"
"""Of the first twenty kernels, the next twenty …"""


def check_suffix(file: str) -> None:
    """Refuse a file that is neither SVG nor PNG, before anything is computed.

    Raises:
        UsageError: it is another one.
        MissingToolError: matplotlib is not installed.
    """
    if Path(file).suffix.lower() not in SUFFIXES:
        raise UsageError(f"--plot '{file}': expected a name that ends in {' or '.join(SUFFIXES)}")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise MissingToolError(
            "--plot needs matplotlib: pip install 'kanalyze[plot]' (or: pip install matplotlib)"
        ) from None


def points(check: doc.Check) -> dict[str, list[tuple[str, float, float]]]:
    """Counter to (kernel, measured, estimated); what is not above 0 has no place on these axes."""
    found: dict[str, list[tuple[str, float, float]]] = {}
    for launch in check.launches:
        for c in launch.comparisons:
            if (
                c.estimate is not None
                and c.measured is not None
                and min(c.estimate, c.measured) > 0
            ):
                found.setdefault(c.counter, []).append((launch.kernel, c.measured, c.estimate))
    return found


def plot(check: doc.Check, file: str) -> None:
    """Write the figure; the same check gives the same file.

    Raises:
        InputError: there is nothing to plot, or the file cannot be written.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    found = points(check)
    if not found:
        raise InputError("nothing to plot: no number is both estimated and measured", file=file)
    kernels = list(dict.fromkeys(launch.kernel for launch in check.launches))
    units = {c.counter: c.unit for launch in check.launches for c in launch.comparisons}
    columns = min(_COLUMNS, len(found))
    rows = math.ceil(len(found) / columns)
    with rc_context({"svg.hashsalt": "kanalyze", "svg.fonttype": "none", "font.size": 8}):
        figure = Figure(
            figsize=(_PANEL_INCHES * columns + 1.8, _PANEL_INCHES * rows), layout="constrained"
        )
        handles: dict[str, Any] = {}
        for index, (counter, some) in enumerate(found.items()):
            axes = figure.add_subplot(rows, columns, index + 1)
            _panel(axes, counter, units[counter], some, kernels, handles)
        names = [k for k in kernels if k in handles][:_MOST_LEGEND]
        figure.legend(
            [handles[k] for k in names], [_plain(k) for k in names], loc="outside right upper"
        )
        metadata = {"Date": None} if file.lower().endswith(".svg") else {"Software": None}
        try:
            figure.savefig(file, dpi=150, metadata=metadata)
        except OSError as error:
            raise InputError(f"cannot be written: {error.strerror or error}", file=file) from None


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


def _plain(text: str) -> str:
    """A name as matplotlib shows it as it is: ``$`` would start mathematics."""
    return escaped(text).replace("$", r"\$")[:60]
