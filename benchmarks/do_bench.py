"""Compare the times of records with ``triton.testing.do_bench``, on the GPU that wrote them.

    PYTHONPATH=. python benchmarks/do_bench.py FOLDER [--most N]

Each record of a kernel file's kernel is launched again, by Triton's own launcher from the source,
under ``do_bench(…, return_mode="median")``, and the medians (cold L2, both) are put side by side.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from kanalyze.bench import build, cases, checking


def again(torch: Any, record: dict[str, Any]) -> float:
    """The median time of a record's launch in milliseconds, by do_bench."""
    import triton

    target = cases.load(record["target"])
    own = {
        **record["constexprs"],
        "num_warps": record["num_warps"],
        "num_stages": record["num_stages"],
    }
    known = {*target.file.shape, *target.file.constexprs, *target.file.options}
    settings = {n: v for n, v in {**own, **record["shape"]}.items() if n in known}
    request = cases.Request(
        (record["target"],), (record["dtype"],), values={n: (v,) for n, v in settings.items()}
    )
    (case,) = cases.expand([request])
    assert case.name == record["case"], (case.name, record["case"])
    plan = case.plan
    call = [
        checking.tensor(torch, build.Param(name, f"*{value[1]}", None, value[2]))
        if isinstance(value, tuple)
        else value
        for name, value in plan.arguments.items()
    ]
    kernel = getattr(target.module, target.file.function)[plan.grid]
    return triton.testing.do_bench(
        lambda: kernel(*call, **plan.constexprs, **plan.options), return_mode="median"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--most", type=int, default=60, help="records to launch, evenly spread")
    options = parser.parse_args()
    import torch

    records = [json.loads(p.read_text()) for p in sorted(options.folder.glob("*.json"))]
    records = [r for r in records if r.get("provider") == "kernel"]
    long = [r for r in records if r["time_ms"]["median"] > 0.02]
    step = max(1, len(long) // options.most)
    differences = []
    for record in long[::step]:
        ours, theirs = record["time_ms"]["median"], again(torch, record)
        differences.append(ours / theirs - 1)
        print(
            f"{record['case']:64}{1e3 * ours:10.1f}{1e3 * theirs:10.1f}{100 * differences[-1]:8.2f} %"
        )
        torch.cuda.empty_cache()
    ordered = sorted(abs(d) for d in differences)
    print(
        f"{len(ordered)} launches over 20 us: |difference| median "
        f"{100 * ordered[len(ordered) // 2]:.2f} %, largest {100 * ordered[-1]:.2f} %"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
