"""Run the bundled kernels on this machine's GPU and compare them with PyTorch in float64.

From the repository's root, with torch and triton installed (kanalyze itself need not be):

    PYTHONPATH=. python benchmarks/gpu_check.py [KERNEL...] [--no-large]

For each launch: fresh random inputs, an output full of NaN, one run, then the relative norm
``||out - reference|| / ||reference||`` and the largest absolute difference, over all elements, and
the median time. The exit code is 1 when a launch fails, 4 without a GPU. The largest launch (gelu
beyond 2**31 elements, left out with ``--no-large``) holds 9 GB. ``--dry-run`` lists the launches
and needs no GPU.

Bounds on the relative norm. u is the unit roundoff of the output's type: 2**-24 for fp32, 2**-11
for fp16, 2**-8 for bf16; rounding the output costs at most u, and fp32 arithmetic some 2**-24 more.
Outputs too small for a normal fp16 (long rows of softmax) are each off by up to 2**-25 besides.
In attention the weights are rounded too: 2 u. fp32 operands of the tensor cores lose the lower 13
bits: each is off by up to 2**-10, a product by up to 2**-9.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from kanalyze.errors import nearest
from kanalyze.kernelfile import KernelFile, LaunchPlan, bundled, plan

ROUNDOFF = {"fp32": 2**-24, "fp16": 2**-11, "bf16": 2**-8}
RAGGED: dict[str, tuple[dict[str, int], ...]] = {
    "gelu": ({"n": 1}, {"n": 4097}, {"n": 33554431}),
    "softmax": (
        {"M": 1, "N": 1},
        {"M": 1000, "N": 777},
        {"M": 333, "N": 4097},
        {"M": 77, "N": 131072},
    ),
    "row_sum": ({"M": 1, "N": 1}, {"M": 77, "N": 65537}, {"M": 1000, "N": 2048}),
    "matmul_relu": (
        {"M": 1, "N": 1, "K": 1},
        {"M": 129, "N": 127, "K": 65},
        {"M": 1000, "N": 1001, "K": 1003},
        {"M": 1000, "N": 1008, "K": 1040, "GROUP_M": 3},
    ),
    "flash_attention": (
        {"B": 1, "H": 1, "T": 1, "D": 64, "causal": 1},
        {"B": 2, "H": 8, "T": 1000, "D": 64, "causal": 0},
        {"B": 2, "H": 8, "T": 1000, "D": 128, "causal": 1},
        {"B": 1, "H": 4, "T": 333, "D": 32, "causal": 1},
        {"B": 1, "H": 2, "T": 257, "D": 96, "causal": 0},
        {"B": 1, "H": 2, "T": 130, "D": 40, "causal": 1},
    ),
}
LARGE_N = 2**31 + 2**20 + 5  # elements; past what 32-bit offsets can reach
CHUNK = 2**26  # elements compared at a time


@dataclass(frozen=True)
class Result:
    """How far one launch was from the reference, how far it may be, and how long it took."""

    relative_norm: float
    bound: float
    largest_difference: float
    not_finite: int
    ms: float

    @property
    def good(self) -> bool:
        return self.relative_norm <= self.bound and self.not_finite == 0


def launches(files: dict[str, KernelFile]) -> Iterator[tuple[str, str, dict[str, int]]]:
    """Every kernel with every dtype on every shape, each once: (kernel, dtype, settings)."""
    for name, file in files.items():
        shapes: list[dict[str, int]] = []
        for launch in (*file.example, *RAGGED.get(name, ())):
            settings = {key: int(value) for key, value in launch.items() if key != "dtype"}
            if settings not in shapes:
                shapes.append(settings)
        for dtype in file.dtypes:
            for settings in shapes:
                yield name, dtype, settings


def bound(name: str, dtype: str) -> float:
    """The relative norm allowed; the module's docstring says where it comes from."""
    if name == "row_sum":  # its output is fp32 for every input type
        return 32 * ROUNDOFF["fp32"]
    if name in ("matmul_relu", "flash_attention") and dtype == "fp32":
        return 2**-9
    rounded = 2 if name == "flash_attention" else 1
    return rounded * ROUNDOFF[dtype] + 16 * ROUNDOFF["fp32"]


def load(file: KernelFile) -> ModuleType:
    """Load a kernel file by its path, as a user's file is loaded."""
    spec = importlib.util.spec_from_file_location(f"kernel_{file.name}", file.path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(torch: Any, file: KernelFile, module: ModuleType, launch: LaunchPlan) -> Result:
    """Launch once on poisoned outputs, compare, then measure."""
    import triton

    types = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
    tensors: dict[str, Any] = {}
    for name, value in launch.arguments.items():
        if isinstance(value, tuple):
            _, element, dims = value
            make = torch.randn if name not in file.outputs else nan_filled(torch)
            tensors[name] = make(dims, dtype=types[element], device="cuda")
    call = [tensors.get(name, value) for name, value in launch.arguments.items()]
    kernel = getattr(module, file.function)[launch.grid]

    def go() -> None:
        kernel(*call, **launch.constexprs, **launch.options)

    go()
    torch.cuda.synchronize()
    error = size = largest = 0.0
    count = not_finite = 0
    for inputs, outputs, shape in pieces(file, tensors, launch.shape):
        wide = {name: tensor.double() for name, tensor in inputs.items()}
        for name, expected in module.reference(wide, shape).items():
            out = outputs[name].double()
            difference = (out - expected).abs()
            error += float(difference.square().sum())
            size += float(expected.square().sum())
            largest = max(largest, float(difference.max()))
            count += out.numel()
            not_finite += int((~out.isfinite()).sum())
    ms = triton.testing.do_bench(go, return_mode="median")
    norm = max(size**0.5, 1e-150)
    limit = bound(file.name, launch.dtype)
    if any(tensors[name].dtype == torch.float16 for name in file.outputs):
        limit += 2**-25 * count**0.5 / norm
    return Result(error**0.5 / norm, limit, largest, not_finite, ms)


def nan_filled(torch: Any) -> Callable[..., Any]:
    """Return a function that makes a tensor full of NaN."""
    return lambda dims, **options: torch.full(dims, float("nan"), **options)


def pieces(
    file: KernelFile, tensors: dict[str, Any], shape: Any
) -> Iterator[tuple[dict[str, Any], dict[str, Any], dict[str, int]]]:
    """Cut a launch into parts whose float64 reference fits in memory: (inputs, outputs, shape).

    gelu, softmax and row_sum are cut along the first dimension, attention into its batches and
    heads (each dims (1, 1, T, D)); a matrix product stays whole.
    """
    outputs = {name: tensors[name] for name in file.outputs}
    inputs = {name: tensor for name, tensor in tensors.items() if name not in outputs}
    first = next(iter(inputs.values()))
    if file.name == "flash_attention":
        for b in range(shape["B"]):
            for h in range(shape["H"]):
                cut = {n: t[b : b + 1, h : h + 1] for n, t in inputs.items()}
                out = {n: t[b : b + 1, h : h + 1] for n, t in outputs.items()}
                yield cut, out, {**shape, "B": 1, "H": 1}
    elif file.name in ("gelu", "softmax", "row_sum"):
        rows = max(1, CHUNK * first.shape[0] // first.numel())
        for start in range(0, first.shape[0], rows):
            cut = {n: t[start : start + rows] for n, t in inputs.items()}
            out = {n: t[start : start + rows] for n, t in outputs.items()}
            yield cut, out, dict(shape)
    else:
        yield inputs, outputs, dict(shape)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kernels", nargs="*", help="kernels to run; all when none is named")
    parser.add_argument("--no-large", action="store_true", help="leave out gelu beyond 2**31")
    parser.add_argument("--dry-run", action="store_true", help="list the launches; needs no GPU")
    options = parser.parse_args()
    files = bundled()
    for name in options.kernels:
        if name not in files:
            parser.error(f"unknown kernel {name!r}; {nearest(name, files)}")
    files = {name: f for name, f in files.items() if name in (options.kernels or files)}
    todo = list(launches(files))
    if "gelu" in files and not options.no_large:
        todo.append(("gelu", "fp16", {"n": LARGE_N}))

    modules = {name: load(file) for name, file in files.items()}
    torch: Any = None
    if not options.dry_run:
        import torch

        if not torch.cuda.is_available():
            print("PyTorch finds no GPU here; --dry-run needs none", file=sys.stderr)
            return 4
        print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}", flush=True)
    print(
        f"{'kernel':16}{'dtype':6}{'shape':44}{'rel. norm':>10}{'bound':>10}{'max abs':>10}", end=""
    )
    print(f"{'ms':>9}")
    failed = 0
    for name, dtype, settings in todo:
        launch = plan(files[name], modules[name], settings, dtype)
        shown = " ".join(f"{k}={v}" for k, v in settings.items())
        line = f"{name:16}{dtype:6}{shown:44}"
        if options.dry_run:
            print(line, f"grid={launch.grid}")
            continue
        try:
            result = run(torch, files[name], modules[name], launch)
        except Exception as error:  # one launch that fails does not hide the others
            failed += 1
            print(f"{line} FAIL {repr(error).splitlines()[0]}", flush=True)
            torch.cuda.empty_cache()
            continue
        failed += not result.good
        numbers = (
            f"{result.relative_norm:10.2e}{result.bound:10.2e}{result.largest_difference:10.2e}"
        )
        verdict = "pass" if result.good else "FAIL"
        print(f"{line}{numbers}{result.ms:9.4f} {verdict}", flush=True)
    if not options.dry_run:
        print(f"{len(todo) - failed} of {len(todo)} launches passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
