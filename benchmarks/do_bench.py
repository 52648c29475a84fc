"""Compare `kanalyze bench`'s times with ``triton.testing.do_bench``, launch by launch, on a GPU.

    PYTHONPATH=. python benchmarks/do_bench.py FOLDER [--most N]

Each record of a kernel file's kernel is launched again: its cubin under kanalyze's stopwatch, its
source by Triton's own launcher under ``do_bench(…, return_mode="median")``, in turn, twice each, on
the same arrays. The clocks of a GPU that is at its limit of power move by 10 % within minutes, so
times of different minutes are not compared; the record's own time stands beside for that reason.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kanalyze.measured.bench import build, cases, driver, event_times, reference


def case_of(record: dict[str, Any]) -> cases.BenchCase:
    """The launch that a record was made of."""
    target = cases.load(record["target"])
    own = {
        **record["constexprs"],
        "num_warps": record["num_warps"],
        "num_stages": record["num_stages"],
    }
    known = {*target.file.shape, *target.file.constexprs, *target.file.options}
    settings = {n: v for n, v in {**own, **record["shape"]}.items() if n in known}
    request = cases.BenchRequest(
        (record["target"],), (record["dtype"],), values={n: (v,) for n, v in settings.items()}
    )
    (case,) = cases.expand([request])
    assert case.name == record["case"], (case.name, record["case"])
    return case


def both(torch: Any, loaded: driver.Driver, case: cases.BenchCase) -> tuple[Callable[[], Any], ...]:
    """Functions that launch a case: its cubin through the driver, its source through Triton."""
    plan = case.plan
    major, minor = torch.cuda.get_device_capability()
    built = build.build(
        case.target.text, plan.dtype, dict(case.settings), f"sm_{major}{minor}", None
    )
    assert isinstance(built, build.Launchable), built
    tensors = {
        name: reference.tensor(torch, build.BenchParam(name, f"*{value[1]}", None, value[2]))
        for name, value in plan.arguments.items()
        if isinstance(value, tuple)
    }
    addresses = [tensors[p.name].data_ptr() if p.name in tensors else None for p in built.params]
    stream = torch.cuda.current_stream().cuda_stream
    _, ours = driver.launcher(loaded, built, addresses, stream)
    call = [tensors.get(name, value) for name, value in plan.arguments.items()]
    kernel = getattr(case.target.module, case.target.file.function)[plan.grid]
    return ours, lambda: kernel(*call, **plan.constexprs, **plan.options)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--most", type=int, default=60, help="records to launch, evenly spread")
    options = parser.parse_args()
    import torch
    import triton

    torch.zeros(1, device="cuda")
    loaded, stopwatch = driver.Driver(), event_times.Stopwatch(torch)
    records = [json.loads(p.read_text()) for p in sorted(options.folder.glob("*.json"))]
    records = [r for r in records if r.get("provider") == "kernel"]
    long = [r for r in records if r["time_ms"]["median"] > 0.02]
    step = max(1, len(long) // options.most)
    differences = []
    for record in long[::step]:
        ours, theirs = both(torch, loaded, case_of(record))
        times: dict[str, list[float]] = {"ours": [], "theirs": []}
        for _ in range(2):
            times["ours"].append(stopwatch.measure(ours)[0].median)
            times["theirs"].append(triton.testing.do_bench(theirs, return_mode="median"))
        a, b = (statistics.mean(measured) for measured in times.values())
        differences.append(a / b - 1)
        numbers = (record["time_ms"]["median"], a, b)
        shown = "".join(f"{1e3 * n:10.1f}" for n in numbers)
        print(f"{record['case']:72}{shown}{100 * differences[-1]:8.2f} %", flush=True)
        torch.cuda.empty_cache()
    ordered = sorted(abs(d) for d in differences)
    print(
        f"{len(ordered)} launches over 20 us (columns: record, kanalyze, do_bench): |difference| "
        f"median {100 * ordered[len(ordered) // 2]:.2f} %, largest {100 * ordered[-1]:.2f} %, "
        f"{sum(d <= 0.05 for d in ordered)} within 5 %"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
