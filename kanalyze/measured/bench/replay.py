"""The process that Nsight Compute watches: runs each launch of a manifest once, in its NVTX range.

``python -m kanalyze.measured.bench.replay MANIFEST``. A range is a recorded kernel (its cubin,
with random data), or a rival of a kernel (PyTorch code), which is called twice before.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kanalyze.measured.bench import build, cases, driver, reference, rivals
from kanalyze.measured.bench.nsight import RANGE


def kernel_range(built: build.Launchable, cubin: str) -> dict[str, Any]:
    """A recorded kernel as a range of the manifest."""
    return {
        "cubin": cubin,
        "kernel": built.kernel,
        "grid": built.grid,
        "block": built.block,
        "shared": built.dynamic_shared_bytes,
        "params": [[p.name, p.type, p.value, p.dims] for p in built.params],
        "nulls": built.null_params,
    }


def rival_range(case: cases.BenchCase, provider: str) -> dict[str, Any]:
    """A rival as a range of the manifest."""
    return {
        "target": case.target.text,
        "dtype": case.plan.dtype,
        "settings": dict(case.settings),
        "provider": provider,
    }


def run(manifest: Path, torch: Any) -> int:
    """Run the ranges; return how many failed."""
    wanted = json.loads(manifest.read_text("utf-8"))
    stop, seconds = Path(wanted["stop"]), wanted["seconds"]
    began = time.monotonic()
    loaded = driver.Driver()
    torch.zeros(1, device="cuda")
    cudart = torch.cuda.cudart()
    failed = 0
    for index, one in enumerate(wanted["ranges"]):
        if stop.exists() or (seconds is not None and time.monotonic() - began > seconds):
            break
        print(f"{RANGE}{index} begins", flush=True)
        try:
            go = _rival(torch, one) if "provider" in one else _kernel(torch, loaded, one)
            torch.cuda.synchronize()
            torch.cuda.nvtx.range_push(f"{RANGE}{index}")
            cudart.cudaProfilerStart()
            try:
                go()
                torch.cuda.synchronize()
            finally:
                cudart.cudaProfilerStop()
                torch.cuda.nvtx.range_pop()
            del go
        except Exception as error:  # one launch that fails does not hide the others
            failed += 1
            print(f"{RANGE}{index}: {error!r}".splitlines()[0], flush=True)
        torch.cuda.empty_cache()
    return failed


def _kernel(torch: Any, loaded: driver.Driver, one: dict[str, Any]) -> Callable[[], Any]:
    params = [
        build.BenchParam(name, kind, value, None if dims is None else tuple(dims))
        for name, kind, value, dims in one["params"]
    ]
    tensors = [reference.tensor(torch, p) if p.type.startswith("*") else None for p in params]
    addresses = [None if t is None else t.data_ptr() for t in tensors]
    kernel = loaded.load(Path(one["cubin"]).read_bytes(), one["kernel"], one["shared"])
    values = driver.packed(params, addresses, one["nulls"])
    launch = kernel.launcher(
        tuple(one["grid"]), tuple(one["block"]), one["shared"], values,
        torch.cuda.current_stream().cuda_stream,
    )  # fmt: skip

    def go(kept: Any = tensors) -> None:
        launch()

    return go


def _rival(torch: Any, one: dict[str, Any]) -> Callable[[], Any]:
    request = cases.BenchRequest(
        (one["target"],), (one["dtype"],),
        values={name: (value,) for name, value in one["settings"].items()},
    )  # fmt: skip
    (case,) = cases.expand([request])
    rivals.prepared(torch)
    tensors = {
        name: reference.tensor(torch, build.BenchParam(name, f"*{value[1]}", None, value[2]))
        for name, value in case.plan.arguments.items()
        if isinstance(value, tuple)
    }
    go = rivals.of(case, tensors)[one["provider"]]
    for _ in range(2):
        go()
    return go


def main() -> int:
    """Run the manifest that the command line names."""
    import torch

    return 1 if run(Path(sys.argv[1]), torch) else 0


if __name__ == "__main__":
    sys.exit(main())
