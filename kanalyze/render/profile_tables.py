"""The report as CSV and as Markdown."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence

from kanalyze.profiles.describe import describe
from kanalyze.render.profile_text import product_text
from kanalyze.results.profile import ProfiledKernel, ProfileReport
from kanalyze.text.numbers import duration, launches, tenth_percent
from kanalyze.text.safe import cell_of, escaped

_KEYS = (
    "arch", "op_class", "dtype_a", "dtype_b", "dtype_acc", "dtype_d", "tile_m", "tile_n", "tile_k",
    "stages", "cluster_m", "cluster_n", "layout", "split_k", "functor", "fused_ops",
)  # fmt: skip
_MARKDOWN_NAME = 300


def csv_text(report: ProfileReport) -> str:
    """One row for each name (or group); times in microseconds, a point as decimal mark."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    if report.grouped_by is not None:
        writer.writerow([report.grouped_by, "names", "calls", "total_us", "share"])
        for group in report.groups:
            row = [group.key, group.kernels, group.calls, group.total_us, group.share]
            writer.writerow(_cells(row))
        return out.getvalue()
    writer.writerow(
        ["name", "family", "op", "kind", "calls", "total_us", "mean_us", "share", "tensor_core",
         *_KEYS, "truncated", "m", "n", "k", "tflops", "grid", "block", "registers_per_thread",
         "shared_bytes", "occupancy", "waves", "decoded"]
    )  # fmt: skip
    for row_ in report.kernels:
        writer.writerow(_cells(_row(row_)))
    return out.getvalue()


def _row(row: ProfiledKernel) -> list[object]:
    decoded = row.name.to_dict()["decoded"]
    launch = row.launches[0] if row.launches else None
    problem = row.problems[0] if row.problems else None
    return [
        row.name.name, row.name.family, row.op, row.kind, row.calls, row.total_us, row.mean_us,
        row.share, row.tensor_core, *(decoded.get(key) for key in _KEYS), row.name.truncated,
        *((problem.m, problem.n, problem.k, problem.tflops) if problem else (None,) * 4),
        *(
            (launch.grid and "x".join(map(str, launch.grid)),
             launch.block and "x".join(map(str, launch.block)),
             launch.registers_per_thread, launch.shared_bytes, launch.occupancy, launch.waves)
            if launch else (None,) * 6
        ),
        json.dumps(decoded, ensure_ascii=False),
    ]  # fmt: skip


def _cells(values: Sequence[object]) -> list[object]:
    return [str(v).lower() if isinstance(v, bool) else cell_of(v) for v in values]


def markdown(report: ProfileReport) -> str:
    """Summary, table and findings for an issue or a pull request."""
    lines = []
    summary = report.summary
    head = f"{len(report.kernels)} names, {launches(summary.calls)}"
    if summary.total_us is not None:
        head += f", {duration(summary.total_us)} on the GPU"
    lines += [head + ".", ""]
    if report.grouped_by is not None:
        lines += [f"| {_md(report.grouped_by)} | share | time | calls | names |",
                  "| --- | ---: | ---: | ---: | ---: |"]  # fmt: skip
        lines += [
            f"| {_md(g.key)} | {tenth_percent(g.share)} | {_time(g.total_us)} | {g.calls:,} | "
            f"{g.kernels} |"
            for g in report.groups
        ]
    else:
        lines += ["| share | time | calls | operation | what the name says | name |",
                  "| ---: | ---: | ---: | --- | --- | --- |"]  # fmt: skip
        for row in report.kernels:
            says = describe(row.name)
            if row.problems:
                says += f"; {product_text(row.problems[0])}"
            name = row.name.name
            name = name if len(name) <= _MARKDOWN_NAME else name[:_MARKDOWN_NAME] + "…"
            lines.append(
                f"| {tenth_percent(row.share)} | {_time(row.total_us)} | {row.calls:,} | "
                f"{_md(row.op)} | "
                f"{_md(says)} | {_md(name)} |"
            )
    if report.findings:
        lines.append("")
        lines += [f"- **{_md(f.id)}**: {_md(f.message)}. {_md(f.advice)}." for f in report.findings]
    if report.skipped:
        lines.append("")
        lines += [f"- not read: {_md(s.file)}:{s.line}: {_md(s.reason)}" for s in report.skipped]
    return "\n".join(lines) + "\n"


def _time(us: float | None) -> str:
    return "" if us is None else duration(us)


def _md(text: str) -> str:
    """Text that Markdown and HTML show as it is."""
    text = escaped(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|~#@])", r"\\\1", text)
