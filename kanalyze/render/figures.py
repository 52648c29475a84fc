"""Figures: SVG and PNG by matplotlib, which is imported when one is drawn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from kanalyze.errors import InputError, MissingToolError, UsageError
from kanalyze.text.safe import escaped

SUFFIXES = (".svg", ".png")
_STYLE: Any = {"svg.hashsalt": "kanalyze", "svg.fonttype": "none", "font.size": 8}
_MOST_LETTERS = 60


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


def write(file: str, inches: tuple[float, float], draw: Callable[[Any], None]) -> None:
    """Draw a figure and write it; the same data give the same file.

    Args:
        file: its name, which ends in one of `SUFFIXES`.
        inches: width and height.
        draw: draws on a matplotlib ``Figure``.

    Raises:
        InputError: the file cannot be written.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(_STYLE):
        figure = Figure(figsize=inches, layout="constrained")
        draw(figure)
        metadata = {"Date": None} if file.lower().endswith(".svg") else {"Software": None}
        try:
            figure.savefig(file, dpi=150, metadata=metadata)
        except OSError as error:
            raise InputError(f"cannot be written: {error.strerror or error}", file=file) from None


def plain(text: str) -> str:
    """A name as matplotlib shows it as it is: ``$`` would start mathematics."""
    return escaped(text).replace("$", r"\$")[:_MOST_LETTERS]
