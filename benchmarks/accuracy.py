"""Writes the accuracy tables of the documents from recorded launches: ``make accuracy``.

``python benchmarks/accuracy.py [--check]`` runs ``kanalyze check`` over the samples and puts the
tables between the markers ``<!-- accuracy: NAME -->`` and ``<!-- end of accuracy -->`` of README.md
and docs/accuracy.md. ``--check`` writes nothing and exits 1 where a table is stale.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = ("README.md", "docs/accuracy.md")
BENCH = "samples/h200/records.tar.xz"
UNFITTED = ("samples/records",)
OTHERS = ("samples/h200_records", *UNFITTED)
GROUPS = {
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
    "sectors that miss L1": ["l1_miss_sectors"],
    "sectors read from L2": ["l2_read_sectors"],
    "sectors written to L2": ["l2_write_sectors"],
    "bytes read from DRAM": ["dram_read_bytes"],
    "bytes written to DRAM": ["dram_write_bytes"],
    "time": ["time.predicted_us"],
}
"""Rows of the summary."""
_MARKED = re.compile(
    r"(?P<head><!-- accuracy: (?P<name>\w+) -->\n).*?(?P<end><!-- end of accuracy -->)", re.DOTALL
)


def sources(name: str) -> tuple[str, ...]:
    """The samples that a table is made of: ``unfitted``, or all (``summary``, ``all``, ``kernels``)."""
    if name == "unfitted":
        return UNFITTED
    return (BENCH, *OTHERS) if (ROOT / BENCH).is_file() else OTHERS


@cache
def checked(paths: Sequence[str]) -> dict[str, Any]:
    """The JSON of ``kanalyze check``."""
    command = [sys.executable, "-m", "kanalyze", "check", *paths, "--format", "json"]
    command += ["-j", str(os.cpu_count() or 1)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr or f"{' '.join(command)}: exit {done.returncode}")
    data: dict[str, Any] = json.loads(done.stdout)
    return data


def table(name: str) -> str:
    """One table with the line that says what it was made of."""
    paths = sources(name)
    data = checked(paths)
    launches = data["launches"]
    devices = ", ".join(sorted({launch["device"] for launch in launches}))
    kernels = len({launch["kernel"] for launch in launches})
    head = f"{len(launches)} launches of {kernels} kernels on {devices} (`kanalyze check "
    head += f"{' '.join(paths)}`):\n\n"
    make = {"kernels": _by_kernel, "summary": _summary}.get(name, _by_counter)
    return head + make(data)


def _summary(data: dict[str, Any]) -> str:
    found = {s["counter"]: s for s in data["by_counter"]}
    heads = ["number", "claim", "compared", "holds", "median error", "90 %", "worst", "unknown"]
    rows = [heads, ["---", "---", *["---:"] * 6]]
    for title, counters in GROUPS.items():
        some = [found[counter] for counter in counters]
        compared, unknown = (sum(s[key] for s in some) for key in ("compared", "unknown"))
        kind = some[0]["kind"]
        claim = {"exact": "equal", "bound": "not above"}.get(kind, "estimate")
        holds = f"{sum(s['good'] for s in some)}" if kind != "estimate" else ""
        errors = ("median_percent", "p90_percent", "worst_percent")
        shown = [_percent(some[0][key]) if kind == "estimate" else "" for key in errors]
        rows.append([title, claim, str(compared), holds, *shown, str(unknown or "")])
    return _markdown(rows)


def _by_counter(data: dict[str, Any]) -> str:
    metrics = {c["counter"]: c["metric"] for x in data["launches"] for c in x["comparisons"]}
    rows = [
        ["number", "counter", "compared", "equal", "both 0", "median", "90 %", "worst",
         "in interval", "unknown"],
        ["---", "---", *["---:"] * 8],
    ]  # fmt: skip
    for s in data["by_counter"]:
        equal = "" if s["good"] is None else f"{s['good']} of {s['compared']}"
        if s["kind"] == "bound":
            equal = f"not above: {equal}"
        errors = ("median_percent", "p90_percent", "worst_percent")
        shown = [_percent(s[key]) for key in errors] if s["kind"] == "estimate" else [""] * 3
        inside = f"{s['in_interval']} of {s['with_interval']}" if s["with_interval"] else ""
        rows.append([f"`{s['counter']}`", f"`{metrics[s['counter']]}`", str(s["compared"]), equal,
                     str(s["zeros"] or ""), *shown, inside, str(s["unknown"] or "")])  # fmt: skip
    return _markdown(rows)


def _by_kernel(data: dict[str, Any]) -> str:
    estimated = [
        s["counter"] for s in data["by_counter"] if s["kind"] == "estimate" and s["compared"]
    ]
    rows = [["kernel", "launches", "exact and equal", *(f"`{name}`" for name in estimated)]]
    rows.append(["---", *["---:"] * (len(rows[0]) - 1)])
    groups: dict[str, dict[str, Any]] = {}
    for s in data["by_kernel"]:
        groups.setdefault(s["kernel"], {})[s["counter"]] = s
    for kernel, own in groups.items():
        exact = [s for s in own.values() if s["kind"] == "exact"]
        count = sum(launch["kernel"] == kernel for launch in data["launches"])
        good, compared = sum(s["good"] for s in exact), sum(s["compared"] for s in exact)
        cells = [_two(own[name]) for name in estimated]
        rows.append([f"`{kernel}`", str(count), f"{good} of {compared}", *cells])
    note = "\nEstimates: median / worst error.\n" if estimated else ""
    return _markdown(rows) + note


def _two(s: dict[str, Any]) -> str:
    if s["median_percent"] is None:
        return ""
    return f"{_percent(s['median_percent'])} / {_percent(s['worst_percent'])}"


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
    """Write the documents, or with ``--check`` say which are stale."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale = []
    for name in DOCUMENTS:
        path = ROOT / name
        text = path.read_text("utf-8")
        new = renewed(text)
        if new != text:
            stale.append(name)
            if not check:
                path.write_text(new, "utf-8")
    print("\n".join(f"{name}: {'stale' if check else 'written'}" for name in stale) or "up to date")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
