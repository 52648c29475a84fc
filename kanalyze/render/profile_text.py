"""The report as text for a terminal or a pipe. It computes nothing about the kernels."""

from __future__ import annotations

import io

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len, set_cell_size
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from kanalyze.profiles.describe import describe
from kanalyze.results.profile import (
    MatrixProduct,
    ProfiledKernel,
    ProfiledLaunch,
    ProfileFinding,
    ProfileReport,
)
from kanalyze.text.numbers import duration, launches, share_of_all, size, tenth_percent
from kanalyze.text.page import NBSP, Page
from kanalyze.text.safe import escaped

DEFAULT_TOP = 25
_NAME_MOST = 4000
_BETWEEN = 3
"""Columns that rich puts between two columns of a table (padding and divider)."""


def render(
    report: ProfileReport, *, width: int = 100, color: bool = False, top: int | None = None,
    details: bool = False,
) -> str:  # fmt: skip
    """The report as text.

    Args:
        report: the report.
        width: columns.
        color: whether to use ANSI colours.
        top: rows of the table.
        details: whether launches, matrix products and counters of each kernel are shown, too.
    """
    out = io.StringIO()
    console = Console(
        file=out, width=width, force_terminal=color, no_color=not color, highlight=False,
        markup=False, emoji=False, color_system="standard" if color else None,
        legacy_windows=False,
    )  # fmt: skip
    page = Page(width)
    _head(page, report)
    out.write(page.text(color))
    if report.groups:
        console.print(_groups(report))
    elif report.kernels:
        console.print(_kernels(report, DEFAULT_TOP if top is None else top, width))
    page = Page(width)
    if details:
        for row in report.kernels[: DEFAULT_TOP if top is None else top]:
            _details(page, row)
    _tail(page, report)
    tail = page.text(color)
    if tail.strip():
        out.write("\n" + tail)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _time(us: float | None) -> str:
    return "" if us is None else duration(us)


def _head(page: Page, report: ProfileReport) -> None:
    summary = report.summary
    files = f"{len(report.files)} files" if len(report.files) > 1 else "".join(report.files)
    names = len(report.kernels)
    parts = [f"{names:,} names" if names != 1 else "1 name", launches(summary.calls)]
    if summary.total_us is not None:
        parts.append(f"{duration(summary.total_us)} on the GPU")
    if files:
        parts.append(files)
    devices = list(dict.fromkeys(d for row in report.kernels for d in row.devices))
    if devices:
        shown_devices = [d.replace(" ", NBSP) for d in devices[:4]]
        parts.append(", ".join(shown_devices) + (" …" if len(devices) > 4 else ""))
    page.line((", ".join(parts), "title"), hang=2)
    for label, groups in (("by operation", summary.by_op), ("by family", summary.by_family),
                          ("by architecture", summary.by_arch)):  # fmt: skip
        shown = [
            f"{g.key} {tenth_percent(g.share) if g.share is not None else launches(g.calls)}"
            for g in groups[:8]
        ]
        if len(groups) > 8:
            shown.append(f"{len(groups) - 8} more")
        page.line((", ".join(shown), ""), lead=[(f"{label:<16}", "label")], hang=2)
    if summary.tensor_core_share is not None:
        text = f"{tenth_percent(summary.tensor_core_share)} of the time"
    else:
        reason = next(
            (u.reason for u in report.unknown if u.field == "summary.tensor_core_share"), ""
        )
        text = f"unknown ({reason})"
    page.line((text, "tensor"), lead=[(f"{'tensor cores':<16}", "label")], hang=2)


def _kernels(report: ProfileReport, top: int, width: int) -> Table:
    timed = report.summary.total_us is not None
    heads = ["share", "time", "mean"] if timed else []
    heads += ["calls", "operation"]
    body: list[tuple[list[str], str, str, bool]] = []
    for row in report.kernels[:top]:
        cells = [tenth_percent(row.share), _time(row.total_us), _time(row.mean_us)] if timed else []
        cells += [f"{row.calls:,}", escaped(row.op)]
        name = escaped(row.name.name[:_NAME_MOST])
        body.append((cells, escaped(_says(row)), name, bool(row.tensor_core)))
    beyond = report.beyond(top)
    if beyond.kernels:
        cells = []
        if timed:
            cells = [tenth_percent(beyond.share), _time(beyond.total_us), ""]
        cells += [f"{beyond.calls:,}", ""]
        body.append((cells, f"{beyond.kernels:,} more (--top)", "", False))
    widths = [max(map(len, column)) for column in zip(heads, *(b[0] for b in body), strict=True)]
    widths[-1] = min(widths[-1], 24)
    last = max(24, width - sum(widths) - _BETWEEN * len(widths))
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1))
    for head, columns in zip(heads, widths, strict=True):
        justify: JustifyMethod = "left" if head == "operation" else "right"
        table.add_column(head, justify=justify, no_wrap=True, width=columns, overflow="ellipsis")
    table.add_column("what the name says, and the name", width=last)
    for cells, says, name, tensor in body:
        texts = [Text(cell) for cell in cells]
        if tensor:
            texts[-1].stylize("magenta")
        texts.append(_two_lines(says, name, last))
        table.add_row(*texts)
    return table


def _says(row: ProfiledKernel) -> str:
    says = describe(row.name)
    if row.problems:
        more = f" (+{len(row.problems) - 1} shapes)" if len(row.problems) > 1 else ""
        says += ("; " if says else "") + product_text(row.problems[0]) + more
    return says


def _two_lines(says: str, name: str, width: int) -> Text:
    """What a name says (if it is not the name itself), and the name on a line, cut to fit."""
    text = Text()
    if says and says != name:
        text.append(says)
        if name:
            text.append("\n")
    if cell_len(name) > width:
        name = set_cell_size(name, width - 1).rstrip() + "…"
    text.append(name, style="dim" if says and says != name else "")
    return text


def _groups(report: ProfileReport) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column(escaped(report.grouped_by or ""))
    for label in ("share", "time", "calls", "names"):
        table.add_column(label, justify="right", no_wrap=True)
    for group in report.groups:
        table.add_row(
            Text(escaped(group.key)),
            Text(tenth_percent(group.share)),
            Text(_time(group.total_us)),
            Text(f"{group.calls:,}"),
            Text(f"{group.kernels:,}"),
        )
    return table


def _details(page: Page, row: ProfiledKernel) -> None:
    page.blank()
    page.line((row.name.name[:_NAME_MOST], "title"), hang=2)
    says = describe(row.name)
    page.line((f"{row.name.family}: {row.op} {says}", ""), lead=[("  ", "")], hang=2)
    for remark in row.name.remarks:
        page.line((remark, ""), lead=[("  remark    ", "label")], hang=2)
    if row.operators:
        page.line((", ".join(row.operators), ""), lead=[("  called by ", "label")], hang=2)
    for problem in row.problems:
        page.line(
            (product_text(problem), ""),
            (f" ({problem.operator}, {launches(problem.calls)})", "dim"),
            lead=[("  product   ", "label")], hang=2,
        )  # fmt: skip
    for launch in row.launches:
        text = _launch_text(launch)
        if text:
            text += f"; {launches(launch.calls)}"
            page.line((text, ""), lead=[("  launch    ", "label")], hang=2)
    counters = _counters_text(row)
    if counters:
        page.line((counters, ""), lead=[("  ncu       ", "label")], hang=2)


def _tail(page: Page, report: ProfileReport) -> None:
    for finding in report.findings:
        page.blank()
        _finding(page, finding)
    notes = [u for u in report.unknown if u.field != "summary.tensor_core_share"]
    if notes:
        page.blank()
    for field in dict.fromkeys(u.field for u in notes):
        reasons = [u.reason for u in notes if u.field == field]
        more = f" (and {len(reasons) - 1} more reasons)" if len(reasons) > 1 else ""
        what = field.rpartition(".")[2].replace("_", " ")
        page.line((f"{what} unknown: {reasons[0]}{more}", "dim"), hang=2)
    if report.skipped:
        page.blank()
    for skipped in report.skipped:
        where = f"{skipped.file}:{skipped.line}" if skipped.line else skipped.file
        page.line((f"not read: {where}: {skipped.reason}", "warn"), hang=2)


def _finding(page: Page, finding: ProfileFinding) -> None:
    style = "warn" if finding.severity == "warning" else "source"
    page.line((f"{finding.severity}[{finding.id}] ", style), (finding.message, ""), hang=2)
    page.line((finding.advice, "note"), lead=[("  > ", "note")], hang=0)


def product_text(problem: MatrixProduct) -> str:
    """A matrix product in a few words."""
    batch = f"{problem.batch} x " if problem.batch != 1 else ""
    text = f"{batch}{problem.m} x {problem.n} x {problem.k} {problem.dtype}"
    if problem.tflops is not None:
        text += f", {problem.tflops:.3g} TFLOP/s"
    if problem.peak_share is not None:
        text += f" ({problem.peak_share:.0%} of peak)"
    return text


def _launch_text(launch: ProfiledLaunch) -> str:
    """A launch in a few words."""
    parts = []
    if launch.grid is not None and launch.block is not None:
        grid, block = ("x".join(map(str, d)) for d in (launch.grid, launch.block))
        parts.append(f"grid {grid} block {block}")
    if launch.registers_per_thread is not None:
        parts.append(f"{launch.registers_per_thread} registers")
    if launch.shared_bytes:
        parts.append(f"{launch.shared_bytes:,} B shared")
    if launch.occupancy is not None:
        parts.append(f"occupancy {share_of_all(launch.occupancy)}")
    if launch.waves is not None:
        parts.append(f"{launch.waves:.3g} waves")
    return ", ".join(parts)


def _counters_text(kernel: ProfiledKernel) -> str:
    """The counters of a row that say most, in a few words."""
    values = kernel.counters
    parts = []
    for label, names in _SHOWN:
        value = next((values[n] for n in names if n in values), None)
        if value is not None:
            parts.append(f"{label} {value:.0f} %")
    for label, metric in (("read", "dram__bytes_read.sum"), ("written", "dram__bytes_write.sum")):
        if metric in values:
            parts.append(f"DRAM {label} {size(values[metric])}")
    return ", ".join(parts)


_SHOWN = (
    ("compute", ("Compute (SM) Throughput", "sm__throughput.avg.pct_of_peak_sustained_elapsed")),
    ("memory", ("Memory Throughput", "Memory [%]",
                "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed")),
    ("DRAM", ("DRAM Throughput", "dram__throughput.avg.pct_of_peak_sustained_elapsed")),
)  # fmt: skip
