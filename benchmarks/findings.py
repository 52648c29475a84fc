"""What findings promise, and what a GPU says to it: both samples of each, counted and timed.

    python benchmarks/findings.py measure       on a GPU with Nsight Compute
    python benchmarks/findings.py table         anywhere
    python benchmarks/findings.py ways          anywhere, minutes

``measure`` runs ``samples/findings/ID/fires`` and ``mended`` (or the launches of ``matmul.toml``
there) of every finding that is about a kernel with a launch, and writes
``samples/findings/measured.json``. ``table`` estimates the same launches and writes the table in
``docs/findings.md`` between its marks. ``ways`` judges 20 kernels by `kanalyze.analyze` and
`kanalyze.estimate`, with their own example and with the same launch given, and says where a
severity differs.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kanalyze import Launch, analyze, compile_kernel, estimate, parse_ptx, read_records
from kanalyze.findings import catalogue
from kanalyze.frontend.subject import launch_of
from kanalyze.results.traffic import Traffic

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = ROOT / "samples" / "findings"
MEASURED = SAMPLES / "measured.json"
PRODUCTS = tomllib.loads((SAMPLES / "matmul.toml").read_text("utf-8"))
DOCUMENT = ROOT / "docs" / "findings.md"
MARKS = ("<!-- findings: measured -->", "<!-- end of findings -->")
SIDES = ("fires", "mended")
# their launches would access memory outside of arrays, or be refused; or were not measured yet
WRONG = ("offset-wraps", "launch-mismatch", "tensor-map", "half-masked-block")
METRICS = {
    "time_us": "gpu__time_duration.sum",
    "global_load_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "global_store_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "global_load_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "global_store_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "global_atomic_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_atom.sum",
    "global_reduction_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_red.sum",
    "shared_load_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "shared_store_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    "instructions_executed": "smsp__inst_executed.sum",
    "dram_read_bytes": "dram__bytes_read.sum",
    "dram_write_bytes": "dram__bytes_write.sum",
}
WORDS = {
    "requests": ("global_load_requests", "global_store_requests"),
    "sectors": ("global_load_sectors", "global_store_sectors"),
    "atomics with a result": ("global_atomic_requests",),
    "shared wavefronts": ("shared_load_wavefronts", "shared_store_wavefronts"),
    "HBM bytes": ("dram_read_bytes", "dram_write_bytes"),
    "instructions": ("instructions_executed",),
}


@dataclass(frozen=True)
class Sample:
    """A kernel file with settings, or PTX with a launch record beside it."""

    path: Path
    settings: Mapping[str, int] = field(default_factory=dict)


def sample(id_: str, side: str) -> Sample | None:
    """A sample that can be launched."""
    if id_ in PRODUCTS:
        return Sample(SAMPLES / "matmul.py", PRODUCTS[id_][side])
    folder = SAMPLES / id_
    python, ptx = folder / f"{side}.py", folder / f"{side}.ptx"
    if python.exists() and "# options:" not in python.read_text("utf-8"):
        return Sample(python)
    return Sample(ptx) if ptx.exists() and ptx.with_suffix(".json").exists() else None


def pairs() -> dict[str, tuple[Sample, Sample]]:
    """Both samples of each finding of which both can be launched."""
    both_of = {}
    for id_ in catalogue.RULES:
        both = [sample(id_, side) for side in SIDES]
        if id_ not in WRONG and both[0] is not None and both[1] is not None:
            both_of[id_] = (both[0], both[1])
    return both_of


# ---------------------------------------------------------------- ways in

KERNELS = (
    "gelu", "softmax", "row_sum", "matmul_relu", "flash_attention",
    *(str(SAMPLES / id_ / "fires.py") for id_ in (
        "half-masked-block", "misaligned-access", "narrow-access", "register-spill",
        "uncoalesced-access", "layout-conversion", "occupancy-cliff", "shared-memory-limit",
        "wgmma-serialized", "unpipelined-loop", "tensor-map", "atomic-without-use",
        "tensor-core-fallback", "tf32-precision", "low-bytes-in-flight",
    )),
)  # fmt: skip
"""20 kernels with an example of a launch."""


def ways(kernel: str) -> list[dict[tuple[str, int], str]]:
    """Severities by id and line, of findings that are about the kernel, one dict for each way in."""
    compiled = compile_kernel(kernel)
    of_kernels = {rule.id for rule in catalogue.rules("ptx")}
    result = []
    for launch in (None, launch_of(compiled)):
        (report,) = analyze(kernel, launch).kernels
        for findings in (report.findings, estimate(kernel, launch).findings):
            result.append({(f.id, f.line): f.severity for f in findings if f.id in of_kernels})
    return result


def differing() -> int:
    """Print the kernels whose findings differ; the exit code."""
    wrong = 0
    for kernel in KERNELS:
        first, *others = ways(kernel)
        differs = any(other != first for other in others)
        wrong += differs
        print(f"{'DIFFERS' if differs else 'the same'}  {len(first)} findings  {kernel}")
        for number, other in enumerate(others, 1):
            for key in sorted(first.items() ^ other.items(), key=str):
                print(f"    way {number}: {key}")
    return min(wrong, 1)


# ---------------------------------------------------------------- on a GPU


def measure() -> None:
    """Run everything; write `MEASURED`."""
    known = pairs()
    found = {id_: [_measured(each) for each in both] for id_, both in known.items()}
    counted = {id_: rows for id_, rows in found.items() if None not in rows}
    data = {
        "device": next(row["device"] for rows in counted.values() for row in rows if row),
        "findings": {
            id_: {side: row["counters"] for side, row in zip(SIDES, rows, strict=True) if row}
            for id_, rows in counted.items()
        },
    }
    MEASURED.write_text(json.dumps(data, indent=1) + "\n", "utf-8")
    for id_ in known.keys() - counted.keys():
        print(f"{id_}: not measured", file=sys.stderr)


def _measured(sample: Sample) -> dict[str, Any] | None:
    row = _benched(sample) if sample.path.suffix == ".py" else _launched(sample.path)
    if row is not None and row["counters"]["time_us"] is not None:
        row["counters"]["time_us"] /= 1000  # of ns
    return row


def _benched(sample: Sample) -> dict[str, Any] | None:
    with tempfile.TemporaryDirectory() as folder:
        options = [f"--set={name}={value}" for name, value in sample.settings.items()]
        command = [sys.executable, "-m", "kanalyze", "bench", str(sample.path), *options]
        subprocess.run([*command, "-o", folder], check=False)
        records, _ = read_records(folder)
        for record in records:
            counters = record.data["counters"] or {}
            named = {name: counters.get(metric) for name, metric in METRICS.items()}
            return {"device": record.data["device"], "counters": named}
    return None


def _launched(ptx: Path) -> dict[str, Any] | None:
    from kanalyze.measured.bench import gpu, nsight

    ncu = nsight.find_ncu()
    assert ncu is not None
    metrics = list(METRICS.values())
    rows, _, _ = nsight.count(ncu, [_range(ptx)], metrics, lambda done: None)
    for row in rows.values():
        total = row.total(metrics)
        named = {name: total.get(metric) for name, metric in METRICS.items()}
        return {"device": gpu.local_gpu().device, "counters": named}
    return None


def _range(ptx: Path) -> dict[str, Any]:
    """A launch record beside PTX as a range of `kanalyze.measured.bench.replay`; the driver compiles it."""
    record = json.loads(ptx.with_suffix(".json").read_text("utf-8"))
    params = [
        [p["name"], p["type"], p.get("value"), [p["bytes"] // 4] if "bytes" in p else None]
        for p in record["params"]
    ]
    return {
        "cubin": str(ptx), "kernel": record["kernel"], "grid": record["grid"],
        "block": record["block"], "shared": 0, "params": params, "nulls": 0,
    }  # fmt: skip


# ---------------------------------------------------------------- anywhere


def estimated(sample: Sample, simulate: bool = True) -> Traffic:
    """The estimate of a sample's launch on an H200."""
    path, launch = sample.path, None
    if path.suffix == ".py":
        kernel: Any = compile_kernel(str(path), settings=sample.settings)
    else:
        kernel, launch = parse_ptx(path.read_text("utf-8")), path.with_suffix(".json")
    given = Launch.from_record(launch) if launch is not None else None
    return estimate(kernel, given, device="H200", findings=False, simulate=simulate)


def table() -> None:
    """Write the table of the document."""
    data = json.loads(MEASURED.read_text("utf-8"))
    known = pairs()
    lines = [
        f"Measured on an {data['device']} (`ncu`, caches flushed, clocks left alone):",
        "",
        "| finding | time, estimated | time, measured | what else changes, estimated | measured |",
        "| --- | ---: | ---: | --- | --- |",
    ]
    for id_, sides in data["findings"].items():
        both = [estimated(each) for each in known[id_]]
        times = [microseconds(traffic.time.predicted_us) for traffic in both]
        measured = [microseconds(sides[side]["time_us"]) for side in SIDES]
        ours = [{**t.counters} for t in both]
        lines.append(
            f"| `{id_}` | {' → '.join(times)} µs | {' → '.join(measured)} µs "
            f"| {changed(*ours)} | {changed(*(sides[side] for side in SIDES))} |"
        )
    text = DOCUMENT.read_text("utf-8")
    head, _, rest = text.partition(MARKS[0])
    tail = rest.partition(MARKS[1])[2]
    body = "\n".join(lines)
    DOCUMENT.write_text(f"{head}{MARKS[0]}\n\n{body}\n\n{MARKS[1]}{tail}", "utf-8")


def changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """The first number of `WORDS` that differs by a tenth: ``sectors 8.39 M → 1.05 M``."""
    for words, names in WORDS.items():
        one, two = (
            None if any(side.get(n) is None for n in names) else sum(side[n] for n in names)
            for side in (before, after)
        )
        if one is None or two is None:
            continue
        if abs(one - two) > 0.1 * max(one, two):
            return f"{words} {amount(one)} → {amount(two)}"
    return "-"


def microseconds(time: float | None) -> str:
    """Three digits, or all of those in front of the point."""
    return "unknown" if time is None else f"{time:,.0f}" if time >= 100 else f"{time:.3g}"


def amount(number: float) -> str:
    """A count with three digits: ``8.39 M``."""
    for size, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:.0f}"


if __name__ == "__main__":
    sys.exit({"measure": measure, "table": table, "ways": differing}[sys.argv[1]]())
