"""How fast PTX is read: ``python benchmarks/parse.py [FILE.ptx …]``.

Without files, it makes one of 5 MB from the bundled kernels (compiled with Triton, their bodies
repeated under other names) and, where ``nvcc`` is on the PATH, one from a CUDA source of its own.
"""

from __future__ import annotations

import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kanalyze.ptx.ir import Module
from kanalyze.ptx.parse import parse_ptx

SIZE = 5_000_000
KERNELS = ("gelu", "softmax", "row_sum", "matmul_relu", "flash_attention")
_BODY = re.compile(r"^\.visible \.entry (\w+)\(.*?^\}$", re.MULTILINE | re.DOTALL)

CUDA = """
template <int N, typename T> __device__ T work(const T *x, int n, int i) {
  T sum = 0;
  #pragma unroll
  for (int k = 0; k < N; k++) if (i + k * 32 < n) sum += x[i + k * 32] * T(k + N);
  return sum;
}
template <int N, typename T> __global__ void kernel(const T *x, T *y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = work<N>(x, n, i) / work<N + 1>(x, n, i + 1);
}
#define A(N) template __global__ void kernel<N, float>(const float *, float *, int); \\
  template __global__ void kernel<N, double>(const double *, double *, int);
"""


def triton_file() -> str:
    """The bundled kernels, each body again and again under another name."""
    from kanalyze.compile import compile_kernel

    texts = [compile_kernel(kernel, arch="sm_90").ptx for kernel in KERNELS]
    parts = [".version 8.7\n.target sm_90a\n.address_size 64\n"]
    parts.append(".extern .shared .align 16 .b8 global_smem[];\n")
    size = number = 0
    while size < SIZE:
        for text in texts:
            found = _BODY.search(text)
            assert found is not None
            body = found[0].replace(found[1], f"{found[1]}_{number}")
            parts.append(body.replace("$L__", f"$L__{number}_") + "\n")
            size += len(parts[-1])
            number += 1
    return "".join(parts)


def nvcc_file(nvcc: str) -> str:
    """A templated CUDA source through nvcc."""
    with tempfile.TemporaryDirectory() as place:
        source = Path(place) / "bench.cu"
        source.write_text(CUDA + "".join(f"A({n})\n" for n in range(8, 128)), encoding="utf-8")
        subprocess.run(
            [nvcc, "-ptx", "-lineinfo", "-arch=sm_90", "-o", f"{source}.ptx", str(source)],
            check=True,
        )
        return Path(f"{source}.ptx").read_text(encoding="utf-8")


def measure(name: str, text: str) -> None:
    """Read a text five times; print the best time, then what binding every operand adds."""
    best = float("inf")
    module: Module | None = None
    for _ in range(5):
        start = time.perf_counter()
        module = parse_ptx(text, name)
        best = min(best, time.perf_counter() - start)
    assert module is not None
    statements = sum(len(f.body or ()) for f in module.functions)
    start = time.perf_counter()
    for function in module.functions:
        for instruction in function.instructions:
            _ = instruction.operands
    bound = best + time.perf_counter() - start
    megabytes = len(text) / 1e6
    errors = sum(d.severity == "error" for d in module.diagnostics)
    print(
        f"{name}: {megabytes:.2f} MB, {statements} statements, {errors} errors: "
        f"{megabytes / best:.1f} MB/s ({megabytes / bound:.1f} MB/s with every operand bound)"
    )


def main() -> None:
    """Measure the files of the command line, or those made here."""
    if sys.argv[1:]:
        for file in sys.argv[1:]:
            measure(file, Path(file).read_bytes().decode("utf-8", "replace"))
    else:
        measure("triton", triton_file())
        nvcc = shutil.which("nvcc")
        if nvcc:
            measure("nvcc", nvcc_file(nvcc))
        else:
            print("nvcc: not on the PATH, left out")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory of the process: {peak:.0f} MiB")


if __name__ == "__main__":
    main()
