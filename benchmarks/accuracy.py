"""Writes the accuracy tables of the documents from recorded launches: ``make accuracy``.

``python benchmarks/accuracy.py`` runs ``kanalyze check`` over the samples (minutes), keeps its CSV in
``samples/accuracy.csv.xz`` and puts the tables made from it between the markers
``<!-- accuracy: NAME -->`` and ``<!-- end of accuracy -->`` of README.md and docs/accuracy.md.
``--tables`` makes the tables from the CSV that is there; ``--check`` writes nothing and exits 1 where
the CSV or a table is stale.
"""

from __future__ import annotations

import argparse
import csv
import io
import lzma
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from kanalyze.measured.check import summary
from kanalyze.results import check as doc

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = ("README.md", "docs/accuracy.md")
FOUND = ROOT / "samples" / "accuracy.csv.xz"
BENCH = "samples/h200/records.tar.xz"
OURS = "samples/h200_records"
UNFITTED = "samples/records/unfitted_h200.json.gz"
WITH_DATA = "samples/records/with_data_h200.json.gz"
UNSEEN = "samples/records/unseen_h200.tar.xz"
REPORTED = (BENCH, "--purpose", "report")
SOURCES = (BENCH, UNSEEN, OURS, UNFITTED, WITH_DATA)
Launches = Sequence[doc.CheckedLaunch]
EXACT = {
    "requests and sectors of global loads and stores": [
        f"global_{kind}_{what}" for kind in ("load", "store") for what in ("requests", "sectors")
    ],
    "requests and sectors of atomics and reductions": [
        f"global_{kind}_{what}"
        for kind in ("atomic", "reduction")
        for what in ("requests", "sectors")
    ],
    "executed instructions": ["instructions_executed"],
    "occupancy and waves": ["occupancy.percent", "waves.waves"],
    "shared-memory wavefronts": ["shared_load_wavefronts", "shared_store_wavefronts"],
}
ESTIMATED = {
    "sectors that miss L1": "l1_miss_sectors",
    "sectors read from L2": "l2_read_sectors",
    "sectors written to L2": "l2_write_sectors",
    "bytes read from DRAM": "dram_read_bytes",
    "bytes written to DRAM": "dram_write_bytes",
    "time": "time.predicted_us",
}
"""Rows of the summary: what they are called, and the counters in them."""
_MARKED = re.compile(
    r"(?P<head><!-- accuracy: (?P<name>\w+) -->\n).*?(?P<end><!-- end of accuracy -->)", re.DOTALL
)


def checked() -> str:
    """The CSV of ``kanalyze check`` over all samples."""
    command = [sys.executable, "-m", "kanalyze", "check", *SOURCES, "--format", "csv"]
    command += ["-j", str(os.cpu_count() or 1)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: exit {done.returncode}")
    return done.stdout


@cache
def recorded() -> Launches:
    """The launches of the CSV that is there."""
    return launches(lzma.decompress(FOUND.read_bytes()).decode())


def launches(text: str) -> Launches:
    """The launches of a CSV of ``kanalyze check``."""
    groups: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in csv.DictReader(io.StringIO(text)):
        groups.setdefault((row["file"], row["case"]), []).append(row)
    read = []
    for (file, case), rows in groups.items():
        device, arch, dtype, purpose = (
            rows[0][key] or None for key in ("device", "arch", "dtype", "purpose")
        )
        own = tuple(map(_comparison, rows))
        kernel = rows[0]["kernel"]
        read.append(doc.CheckedLaunch(case, kernel, file, device, arch, dtype, purpose, own))
    return read


def _comparison(row: dict[str, str]) -> doc.ComparedCounter:
    def number(name: str) -> float | None:
        return float(row[name]) if row[name] else None

    least, most, measured = (number(x) for x in ("interval_least", "interval_most", "measured"))
    return doc.ComparedCounter(
        counter=row["counter"],
        metric=row["metric"],
        kind=row["kind"],
        unit=row["unit"],
        estimate=number("estimate"),
        measured=measured,
        difference=number("difference"),
        error_percent=number("error_percent"),
        interval=(least, most) if least is not None and most is not None else None,
        in_interval=row["in_interval"] == "True" if row["in_interval"] else None,
        result=row["result"],
        reason=row["reason"] or None,
    )


def of_source(path: str) -> Launches:
    """The launches of one of the samples."""
    return [launch for launch in recorded() if launch.file.startswith(path)]


def reported() -> Launches:
    """The launches of ``kanalyze bench`` that nothing may be fitted to."""
    return [launch for launch in of_source(BENCH) if launch.purpose == "report"]


def table(name: str) -> str:
    """One of the tables, with the line that says what it was made of."""
    return {
        "summary": lambda: (
            _said(recorded(), SOURCES) + _exact_rows() + "\n" + _said(of_source(UNSEEN), (UNSEEN,))
            + _estimated_rows()
        ),
        "exact": lambda: _said(recorded(), SOURCES) + _exact(recorded()),
        "estimated": lambda: _said(reported(), REPORTED) + _estimated(reported()),
        "unseen": lambda: _said(of_source(UNSEEN), (UNSEEN,)) + _estimated(of_source(UNSEEN)),
        "unfitted": lambda: _both(UNFITTED),
        "with_data": lambda: _both(WITH_DATA),
        "kernels": lambda: _said(of_source(UNSEEN), (UNSEEN,)) + _by_kernel(of_source(UNSEEN)),
    }[name]()  # fmt: skip


def _both(path: str) -> str:
    own = of_source(path)
    return f"{_said(own, (path,))}{_exact(own)}\n{_estimated(own)}"


def _said(some: Launches, arguments: Sequence[str]) -> str:
    devices = ", ".join(sorted({launch.device or "an unknown GPU" for launch in some}))
    kernels = len({launch.kernel for launch in some})
    head = f"{len(some)} launches of {kernels} kernels on {devices}"
    if len(arguments) > 3:
        return f"{head}:\n\n"
    return f"{head} (`kanalyze check {' '.join(arguments)}`):\n\n"


def _exact_rows() -> str:
    own = {s.counter: s for s in summary.by_counter(recorded())}
    rows = [["number", "claim", "compared", "holds", "unknown"], ["---", "---", *["---:"] * 3]]
    for title, counters in EXACT.items():
        some = [own[counter] for counter in counters]
        claim = {"exact": "equal", "bound": "not above"}[some[0].kind]
        counts = (sum(s.compared for s in some), sum(s.good or 0 for s in some))
        unknown = sum(s.unknown for s in some)
        rows.append([title, claim, *map(str, counts), str(unknown or "")])
    return _markdown(rows)


def _estimated_rows() -> str:
    own = {s.counter: s for s in summary.by_counter(of_source(UNSEEN))}
    rows = [["estimate", "compared", "median error", "90 %", "worst", "within 10 %", "unknown"]]
    rows.append(["---", *["---:"] * 6])
    for title, counter in ESTIMATED.items():
        s = own[counter]
        rows.append(
            [title, str(s.compared), *_errors(s), _share(s.within_10), str(s.unknown or "")]
        )
    return _markdown(rows)


def _exact(some: Launches) -> str:
    rows = [["number", "counter", "claim", "compared", "holds", "both 0", "unknown"]]
    rows.append(["---", "---", "---", *["---:"] * 4])
    for s, metric in _summaries(some, ("exact", "bound")):
        claim = {"exact": "equal", "bound": "not above"}[s.kind]
        numbers = [str(s.compared), str(s.good), str(s.zeros or ""), str(s.unknown or "")]
        rows.append([f"`{s.counter}`", f"`{metric}`", claim, *numbers])
    return _markdown(rows)


def _estimated(some: Launches) -> str:
    rows = [["number", "counter", "compared", "both 0", "only estimated", "median", "mean", "90 %",
             "worst", "within 10 %", "in interval", "unknown"]]  # fmt: skip
    rows.append(["---", "---", *["---:"] * 10])
    for s, metric in _summaries(some, ("estimate",)):
        counts = [str(s.compared), str(s.zeros or ""), str(s.off_zero or "")]
        median, p90, worst = _errors(s)
        inside = f"{s.in_interval} of {s.with_interval}" if s.with_interval else ""
        errors = [median, _percent(s.mean_percent), p90, worst, _share(s.within_10)]
        name = [f"`{s.counter}`", f"`{metric}`"]
        rows.append([*name, *counts, *errors, inside, str(s.unknown or "")])
    return _markdown(rows)


def _summaries(some: Launches, kinds: Sequence[str]) -> list[tuple[doc.CounterSummary, str]]:
    metrics = {c.counter: c.metric for launch in some for c in launch.comparisons}
    return [(s, metrics[s.counter]) for s in summary.by_counter(some) if s.kind in kinds]


def _by_kernel(some: Launches) -> str:
    groups: dict[str, dict[str, doc.CounterSummary]] = {}
    for s in summary.by_kernel(some):
        groups.setdefault(s.kernel or "", {})[s.counter] = s
    rows = [
        ["kernel", "launches", "exact and equal", *(f"`{name}`" for name in ESTIMATED.values())]
    ]
    rows.append(["---", *["---:"] * (len(rows[0]) - 1)])
    for kernel, own in groups.items():
        exact = [s for s in own.values() if s.kind == "exact"]
        count = sum(launch.kernel == kernel for launch in some)
        good, compared = sum(s.good or 0 for s in exact), sum(s.compared for s in exact)
        errors = [_two(own[name]) for name in ESTIMATED.values()]
        rows.append([f"`{kernel}`", str(count), f"{good} of {compared}", *errors])
    return _markdown(rows) + "\nEstimates: median / worst error.\n"


def _two(s: doc.CounterSummary) -> str:
    median, _, worst = _errors(s)
    return f"{median} / {worst}" if median else ""


def _errors(s: doc.CounterSummary) -> tuple[str, str, str]:
    return _percent(s.median_percent), _percent(s.p90_percent), _percent(s.worst_percent)


def _share(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.0f} %"


def _percent(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.1f} %" if value < 100 else f"{value:,.0f} %"


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def renewed(text: str) -> str:
    """A document with its tables made anew."""
    return _MARKED.sub(lambda m: f"{m['head']}\n{table(m['name'])}\n{m['end']}", text)


def main() -> int:
    """Write the CSV and the documents, or with ``--check`` say which are stale."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--tables", action="store_true")
    options = parser.parse_args()
    stale = []
    if not options.tables:
        text = checked()
        if not FOUND.is_file() or lzma.decompress(FOUND.read_bytes()).decode() != text:
            stale.append(str(FOUND.relative_to(ROOT)))
            if not options.check:
                FOUND.write_bytes(lzma.compress(text.encode(), preset=9))
    for name in DOCUMENTS:
        path = ROOT / name
        old = path.read_text("utf-8")
        new = renewed(old)
        if new != old:
            stale.append(name)
            if not options.check:
                path.write_text(new, "utf-8")
    word = "stale" if options.check else "written"
    print("\n".join(f"{name}: {word}" for name in stale) or "up to date")
    return 1 if options.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
