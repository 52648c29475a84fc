"""What a GPU reaches, beside the numbers of the device table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kanalyze.text.numbers import binary, whole_percent
from kanalyze.text.page import Page

_ROWS = (
    ("memory, copy", "copy_gb_per_s", "dram_gb_per_s", "GB/s"),
    ("memory, read", "read_gb_per_s", "dram_gb_per_s", "GB/s"),
    ("L2, read", "l2_gb_per_s", "l2_measured_gb_per_s", "GB/s"),
)
_BAR = 40


def measured_text(measured: Mapping[str, Any], table: Mapping[str, Any], page: Page) -> None:
    """Rates reached and their share of the table's; the curve of L2.

    Args:
        measured: `kanalyze.measured.bench.reached_rates.Rates` as plain data.
        table: the device table's numbers of this GPU; without those that are not known.
        page: where the lines go.
    """
    versions = ", ".join(f"{name} {version}" for name, version in measured["versions"].items())
    page.line((measured["device"], "title"), (f"  measured; {versions}", "dim"))
    page.line((f"  {'':<26}{'measured':>10}  {'table':>9}", "label"))
    for label, key, other, unit in _ROWS:
        _row(page, label, measured[key], table.get(other), unit, measured["shares"][key])
    for key, value in measured["tflops"].items():
        words, _, unit = key.rpartition("_")
        unit = "TOP/s" if unit == "tops" else "TFLOP/s"
        share = measured["shares"][key]
        _row(page, words.replace("_", " "), value, table.get(key), unit, share)
    for entry in measured["unknown"]:
        page.line((f"  {entry['field'].partition('.')[2]}: {entry['reason']}", "dim"), hang=4)
    page.blank()
    nominal = table.get("l2_bytes")
    page.line(
        ("L2 by the size of what is read", "title"),
        ("" if nominal is None else f" (table: {binary(nominal)})", "dim"),
    )
    best = measured["l2_gb_per_s"]
    for point in measured["l2_curve"]:
        bar = "#" * round(_BAR * point["gb_per_s"] / best)
        page.line(
            (f"  {binary(point['bytes']):>9} {point['gb_per_s']:>8.0f} GB/s  ", ""), (bar, "")
        )
    for plateau in measured["l2_plateaus"]:
        low, high = binary(plateau["from_bytes"]), binary(plateau["to_bytes"])
        text = f"{plateau['gb_per_s']:.0f} GB/s from {low} to {high}"
        page.line(("  level: ", "label"), (text, ""))


def _row(
    page: Page, label: str, value: float | None, known: float | None, unit: str, share: float | None
) -> None:
    left = "?" if value is None else f"{value:.0f}"
    right = "?" if known is None else f"{known:.6g}"
    part = "" if share is None else f"  {whole_percent(share)}"
    page.line((f"  {label:<26}", "label"), (f"{left:>10}  {right:>9} {unit}", ""), (part, "dim"))
