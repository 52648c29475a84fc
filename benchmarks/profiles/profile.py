"""Profiles the lectures' examples on a GPU: ``python3 profile.py OUT`` writes a table and a trace each.

add and matmul of square fp32 matrices of 2048 and 128; ten calls after a warm-up.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile


def main() -> None:
    out = Path(sys.argv[1])
    for name, function in (("add", torch.add), ("matmul", torch.matmul)):
        for size in (2048, 128):
            a, b = (torch.randn(size, size, device="cuda") for _ in range(2))
            for _ in range(3):
                function(a, b)
            torch.cuda.synchronize()
            activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
            with profile(activities=activities, record_shapes=True) as seen:
                for _ in range(10):
                    function(a, b)
                torch.cuda.synchronize()
            stem = f"{name}_{size}"
            table = seen.key_averages().table(sort_by="cuda_time_total", row_limit=10)
            (out / f"{stem}.table.txt").write_text(table)
            trace = out / f"{stem}.json"
            seen.export_chrome_trace(str(trace))
            data = json.loads(trace.read_text())
            data.pop("traceName", None)
            trace.unlink()
            with gzip.open(out / f"{stem}.trace.json.gz", "wt") as file:
                json.dump(data, file)
            kernels = [e for e in data["traceEvents"] if e.get("cat") == "kernel"]
            print(stem, len(kernels), sorted({k["name"][:90] for k in kernels}))


if __name__ == "__main__":
    main()
