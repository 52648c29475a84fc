"""``kanalyze device``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from kanalyze.cli import measurement, options, output

if TYPE_CHECKING:
    from kanalyze.devices.table import Capability, Device, Fact, LectureComparison
    from kanalyze.results.device import SharedFit
    from kanalyze.text.page import Page

UNITS = {
    "_gb_per_s": "GB/s",
    "_tb_per_s": "TB/s",
    "_kib_per_sm": "KiB",
    "_tflops": "TFLOP/s",
    "_bytes": "B",
    "_bytes_per_sm": "B",
    "_mhz": "MHz",
    "_tops": "TOP/s",
    "_mib": "MiB",
    "_gb": "GB",
}
"""Endings of keys, and the unit that they stand for."""


@click.command("device")
@click.argument("name", nargs=-1, metavar="[NAME]")
@click.option(
    "--lecture",
    "compare",
    is_flag=True,
    help="The table of accelerators of a public lecture, with where our numbers differ.",
)
@click.option(
    "--measure",
    is_flag=True,
    help="Measure this machine's GPU: copy and L2 rates, steps of L2's capacity, matrix products.",
)
@click.option(
    "--calibrate",
    is_flag=True,
    help="Measure parameters of the memory model on this machine's GPU, for 'kanalyze traffic "
    "--calibration FILE'.",
)
@click.option(
    "--fits",
    type=click.IntRange(0),
    metavar="BYTES",
    help="On which compute capabilities a block with so much shared memory can be launched.",
)
@options.output_options()
def command(
    name: tuple[str, ...],
    compare: bool,
    measure: bool,
    calibrate: bool,
    fits: int | None,
    to: output.Destination,
) -> None:
    """The GPUs known: their numbers, with units, sources and grades.

    Without NAME the table of all GPUs; with it all that is known of one, what is unknown and why,
    and the limits of its compute capability. Grades: A printed by the device or stated by its
    vendor's header, B vendor documentation, C another's table, D inferred.

    \b
    Examples:
      kanalyze device
      kanalyze device H200
      kanalyze device --fits 147456
      kanalyze device --calibrate -o mine.toml
    """
    from kanalyze.devices import table as devices
    from kanalyze.errors import UsageError
    from kanalyze.results.device import described_device, shared_fit

    if bool(name) + compare + measure + calibrate + (fits is not None) > 1:
        raise UsageError("give NAME, --lecture, --measure, --calibrate or --fits, not both")
    page = to.page()
    chosen: list[devices.Device] = []
    lecture = rates = calibrated = fitting = None
    if calibrate:
        text, calibrated = measurement.calibrated()
        if to.format == "text":
            to.data(text)
            return
    elif measure:
        rates = measurement.measured(page)
    elif fits is not None:
        fitting = shared_fit(fits)
        _show_fitting(page, fitting)
    elif compare:
        title, rows = devices.lecture()
        lecture = {"title": title, "rows": rows}
        _show_lecture(page, title, rows)
    elif name:
        chosen = [devices.device(" ".join(name))]
        _show_device(page, chosen[0], devices.sources())
    else:
        chosen = list(devices.devices().values())
        _show_table(page, chosen)
        title, rows = devices.lecture()
        page.blank()
        page.line((f"where {title}, has other numbers ('--lecture': all of its table)", "label"))
        _show_differences(page, rows)
    if to.format == "json":
        described = [described_device(device) for device in chosen]
        data = {
            "schema": "kanalyze.device/1",
            "devices": described,
            "lecture": lecture,
            "measured": rates,
            "calibrated": calibrated,
            "fits": fitting,
            "sources": dict(devices.sources()),
            "unknown": [
                {"field": f"{one.name}: {entry.field}", "reason": entry.reason}
                for one in described
                for entry in one.unknown
            ],
        }
        to.json(data)
        return
    to.show(page)


def _show_fitting(page: Page, fitting: SharedFit) -> None:
    needed, rows = fitting.shared_bytes, fitting.architectures
    count = sum(row.fits for row in rows)
    page.line(
        (f"{needed} B of shared memory in a block", "title"),
        (f": fits on {count} of {len(rows)} compute capabilities", ""),
    )
    for row in rows:
        limit = row.limit_bytes
        says = "fits" if row.fits else f"does not fit, {needed - limit} B too much"
        names = [name.removeprefix("NVIDIA ") for name in row.devices]
        lead = [
            (f"  {row.architecture:<8}", "title"),
            (f"{limit:>7} B  ", ""),
            (f"{says:<33}", "good" if row.fits else "bad"),
        ]
        page.line((", ".join(names) or "-", "dim"), lead=lead)
    if fitting.opt_in:
        page.line(
            ("  above 49152 B it must be dynamic and opted into ", "dim"),
            ("(cudaFuncAttributeMaxDynamicSharedMemorySize; Triton does so)", "dim"),
            hang=2,
        )


def _number(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(_number(v) for v in value)
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def _label(key: str) -> tuple[str, str]:
    """A key in words, and its unit."""
    for ending in sorted(UNITS, key=len, reverse=True):
        if key.endswith(ending):
            rest = " per SM" if ending.endswith("_per_sm") else ""
            return key.removesuffix(ending).replace("_", " ") + rest, UNITS[ending]
    return re.sub(r"\bsms?\b", lambda m: m[0].replace("sm", "SM"), key.replace("_", " ")), ""


_COLUMNS = (
    ("SMs", 4, "sms", 1.0),
    ("MHz", 5, "clock_max_mhz", 1.0),
    ("L2 MiB", 7, "l2_bytes", 2.0**-20),
    ("parts", 6, "l2_partitions", 1.0),
    ("GB", 5, "dram_nominal_gb", 1.0),
    ("GB/s", 7, "dram_gb_per_s", 1.0),
    ("FP32", 7, "fp32_tflops", 1.0),
    ("FP16 TC", 8, "fp16_tensor_tflops", 1.0),
)


def _show_table(page: Page, devices: list[Device]) -> None:
    head = "".join(f"{title:>{width + 1}}" for title, width, _, _ in _COLUMNS)
    page.line((f"{'device':<30}{'arch':<7}{head}", "label"))
    for device in devices:
        cells = [(f"{device.name:<30}", "title"), (f"{device.capability.name:<7}", "")]
        for _, width, key, factor in _COLUMNS:
            value = getattr(device, key)
            text = "?" if value is None else f"{value * factor:.6g}"
            cells.append((f"{text:>{width + 1}}", "dim" if value is None else ""))
        page.line(*cells)
    page.blank()
    page.line(
        (
            "FP32 and FP16 on tensor cores (TC): peak TFLOP/s, dense. ? is unknown; 'kanalyze ",
            "dim",
        ),
        ("device NAME' says why, and where each number comes from.", "dim"),
    )


def _show_facts(page: Page, facts: Mapping[str, Fact]) -> None:
    for key, fact in facts.items():
        words, unit = _label(key)
        page.line(
            (f"  {words:<26}", "label"),
            (f"{_number(fact.value)} {unit}".rstrip(), ""),
            (f"  [{fact.grade}] {fact.source}{': ' + fact.note if fact.note else ''}", "dim"),
            hang=28,
        )


def _show_device(page: Page, device: Device, sources: Mapping[str, str]) -> None:
    from kanalyze.devices.table import DEVICE_FACTS
    from kanalyze.results.device import unknown_facts

    page.line((device.name, "title"), (f" ({device.capability.name})", ""))
    _show_facts(page, {k: device.facts[k] for k in DEVICE_FACTS if k in device.facts})
    page.blank()
    page.line((f"{device.capability.name}, limits", "title"))
    _show_facts(page, device.capability.facts)
    missing = unknown_facts(device)
    if missing:
        page.blank()
        page.line(("unknown", "title"))
        for entry in missing:
            words = _label(entry.field.removeprefix("capability."))[0]
            page.line((f"  {words:<26}", "label"), (entry.reason, ""), hang=28)
    page.blank()
    page.line(("sources", "title"))
    _show_sources(page, device, device.capability, sources)


def _show_sources(
    page: Page, device: Device, capability: Capability, sources: Mapping[str, str]
) -> None:
    used = {f.source for f in (*device.facts.values(), *capability.facts.values())}
    for short in sorted(used, key=str.lower):
        page.line((f"  {short:<26}", "label"), (sources[short], ""), hang=28)


def _range(row: LectureComparison) -> str:
    low, high = f"{row.low:.6g}", f"{row.high:.6g}"
    return low if low == high else f"{low}-{high}"


def _show_lecture(page: Page, title: str, rows: tuple[LectureComparison, ...]) -> None:
    names = list(dict.fromkeys(row.device for row in rows))
    page.line((title, "title"), (": their number, ours in brackets where it differs", "dim"))
    page.line(
        ("".join([f"  {'':<28}", *(f"{n.removeprefix('NVIDIA '):<20}" for n in names)]), "label")
    )
    for quantity in dict.fromkeys(row.quantity for row in rows):
        words, unit = _label(quantity)
        cells = [(f"  {words + (', ' + unit if unit else ''):<28}", "label")]
        for row in rows:
            if row.quantity != quantity:
                continue
            text = _range(row)
            if row.differs:
                text += f" [{row.value:.4g}]"
            elif row.value is None:
                text += " [unknown]"
            cells.append((f"{text:<20}", "warn" if row.differs else ""))
        page.line(*cells)
    page.blank()
    page.line(("differences", "title"))
    _show_differences(page, rows)


def _show_differences(page: Page, rows: tuple[LectureComparison, ...]) -> None:
    for row in rows:
        if row.differs:
            words, unit = _label(row.quantity)
            how = f" ({row.how})" if row.how else ""
            page.line(
                (f"  {row.device}, {words}: ", ""),
                (f"{_range(row)} {unit}".rstrip(), ""),
                (f" there, {row.value:.4g} here{how}", ""),
                hang=4,
            )
