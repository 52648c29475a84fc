"""What `kanalyze check` found as CSV: a row for each launch and counter."""

from __future__ import annotations

import csv
import io

from kanalyze.results import check as doc
from kanalyze.text.safe import cell_of

_HEAD = ("case", "kernel", "device", "arch", "dtype", "purpose", "counter", "metric", "kind",
         "unit", "estimate", "measured", "difference", "error_percent", "interval_least",
         "interval_most", "in_interval", "result", "reason", "file")  # fmt: skip


def render(check: doc.Check) -> str:
    """The check as CSV; a cell is empty where a number is not known."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_HEAD)
    for launch in check.launches:
        for c in launch.comparisons:
            least, most = (c.interval[0], c.interval[-1]) if c.interval else (None, None)
            cells = [launch.case, launch.kernel, launch.device, launch.arch, launch.dtype,
                     launch.purpose, c.counter, c.metric, c.kind, c.unit, c.estimate, c.measured,
                     c.difference, c.error_percent, least, most, c.in_interval, c.result, c.reason,
                     launch.file]  # fmt: skip
            writer.writerow([cell_of(cell) for cell in cells])
    return out.getvalue()
