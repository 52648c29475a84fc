"""How fast PTX is read, and with how much memory: ``python benchmarks/parse.py [FILE.ptx …]``.

Without files, it makes one of 5 MB from the bundled kernels (compiled with Triton, their bodies
repeated under other names) and, where ``nvcc`` is on the PATH, one from a CUDA source of its own.

Speeds are of one process and its processor time. "cold" is with no statement seen before; "bound"
with every operand made, not only on first use; "plain" the grammar applied to every statement, as
Lark is used without the cache of shapes, on a part of the same file in the same run. Memory is the
peak of a process that reads the file once (and has every operand made) over what it held before, by
the size of the file.
"""

from __future__ import annotations

import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kanalyze.ptx import declarations, grammar, ir, shapes
from kanalyze.ptx.parse import parse_ptx
from kanalyze.ptx.write import instruction_text, write_ptx

SIZE = 5_000_000
PLAIN_SIZE = 400_000
LEAST_SPEED = 12.0
MOST_MEMORY = 40.0
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


# ---------------------------------------------------------------- files


def triton_file() -> str:
    """The bundled kernels, each body again and again under another name."""
    from kanalyze.frontend.compile import compile_kernel

    texts = [compile_kernel(kernel, arch="sm_90").ptx for kernel in KERNELS]
    parts = [".version 8.7\n.target sm_90a\n.address_size 64\n"]
    parts.append(".extern .shared .align 16 .b8 global_smem[];\n")
    size = number = 0
    while size < SIZE:
        for text in texts:
            match = _BODY.search(text)
            assert match is not None
            body = match[0].replace(match[1], f"{match[1]}_{number}")
            parts.append(body.replace("$L__", f"$L__{number}_") + "\n")
            size += len(parts[-1])
            number += 1
    return "".join(parts)


def nvcc_file(nvcc: str) -> str:
    """A templated CUDA source through nvcc, with as many instances as give 5 MB."""
    text, last = "", 128
    while len(text) < SIZE:
        with tempfile.TemporaryDirectory() as place:
            source = Path(place) / "bench.cu"
            instances = "".join(f"A({n})\n" for n in range(8, last))
            source.write_text(CUDA + instances, encoding="utf-8")
            command = [nvcc, "-ptx", "-lineinfo", "-arch=sm_90", "-o", f"{source}.ptx", str(source)]
            subprocess.run(command, check=True)
            text = Path(f"{source}.ptx").read_text(encoding="utf-8")
        last += last // 4
    return text


# ---------------------------------------------------------------- speed


def forget() -> None:
    """Empty the caches of shapes."""
    for cache in (shapes._binders, shapes._literals, shapes._simple, declarations._trees):
        cache.clear()  # type: ignore[attr-defined]


def seconds_of_plain(module: ir.Module) -> float:
    """Apply the grammar to every statement of a module, each one anew."""
    statements: list[tuple[str, str]] = []
    for function in module.functions:
        for statement in function.body or ():
            match statement:
                case ir.Instruction():
                    start = "call" if statement.base == "call" else "instruction"
                    statements.append((start, f"{instruction_text(statement)};"))
                case ir.RegisterDeclaration(type=type_, names=names):
                    statements.append(("registers", f".reg .{type_} {', '.join(names)};"))
    begin = time.process_time()
    for start, text in statements:
        grammar.tree_of(start, text)
    return time.process_time() - begin


@dataclass(frozen=True)
class Speeds:
    """Megabytes a second."""

    cold: float
    best: float
    wall: float
    bound: float
    ours_on_part: float
    plain_on_part: float


def read(text: str, name: str) -> tuple[ir.Module, float, float]:
    """Read a text: the module, seconds of processor time, seconds on the clock."""
    clock, busy = time.perf_counter(), time.process_time()
    module = parse_ptx(text, name)
    return module, time.process_time() - busy, time.perf_counter() - clock


def speeds(name: str, text: str) -> tuple[Speeds, ir.Module]:
    size = len(text) / 1e6
    grammar.grammar()
    forget()
    module, cold, _ = read(text, name)
    runs = [read(text, name) for _ in range(5)]
    best, wall = min(run[1] for run in runs), min(run[2] for run in runs)
    module = runs[-1][0]
    begin = time.process_time()
    bind(module)
    bound = best + time.process_time() - begin

    kept: list[ir.Function] = []
    length = 0
    for function in module.functions:
        kept.append(function)
        length += 40 * len(function.body or ())
        if length > PLAIN_SIZE:
            break
    part = write_ptx(replace(module, functions=tuple(kept)))
    ours = min(read(part, name)[1] for _ in range(5))
    plain = seconds_of_plain(parse_ptx(part, name))
    part_size = len(part) / 1e6
    reached = Speeds(
        size / cold, size / best, size / wall, size / bound, part_size / ours, part_size / plain
    )
    return reached, module


def bind(module: ir.Module) -> None:
    """Have every operand made."""
    for function in module.functions:
        for instruction in function.instructions:
            _ = instruction.operands


# ---------------------------------------------------------------- memory


def resident() -> int:
    """The greatest resident size of this process so far, in bytes.

    Linux hands ``ru_maxrss`` down from the parent, so its own count is asked first.
    """
    status = Path("/proc/self/status")
    if status.is_file():
        match = re.search(r"^VmHWM:\s*(\d+) kB", status.read_text("utf-8"), re.MULTILINE)
        if match is not None:
            return int(match[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def show_memory(file: str) -> None:
    """Run in a process of its own: bytes before, after reading, after binding every operand."""
    grammar.grammar()
    parse_ptx(".version 8.7\n.target sm_90\n.entry k() { add.s32 %r1, %r2, 1; ret; }\n")
    text = Path(file).read_bytes().decode("utf-8", "replace")
    before = resident()
    module = parse_ptx(text, file)
    after = resident()
    bind(module)
    print(before, after, resident())


def memory(text: str) -> tuple[float, float, float]:
    """Peaks by the size of the file: of reading, of reading and binding, of the whole process."""
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "bench.ptx"
        file.write_bytes(text.encode("utf-8"))
        size = file.stat().st_size
        command = [sys.executable, __file__, "--memory-of", str(file)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    before, after, bound = map(int, done.stdout.split())
    return (after - before) / size, (bound - before) / size, bound / size


def measure(name: str, text: str) -> bool:
    """Print all figures of a text; whether they keep what the parser promises."""
    reached, module = speeds(name, text)
    reading, binding, process = memory(text)
    statements = sum(len(f.body or ()) for f in module.functions)
    errors = sum(d.severity == "error" for d in module.diagnostics)
    ratio = reached.ours_on_part / reached.plain_on_part
    print(f"{name}: {len(text) / 1e6:.2f} MB, {statements} statements, {errors} errors")
    print(f"  read        {reached.best:6.1f} MB/s ({reached.wall:.1f} by the clock)")
    print(f"  cold        {reached.cold:6.1f} MB/s")
    print(f"  bound       {reached.bound:6.1f} MB/s")
    print(f"  plain Lark  {reached.plain_on_part:6.2f} MB/s on a part: {ratio:.0f} times slower")
    print(
        f"  memory      {reading:6.1f} x the file ({binding:.1f} bound; the process {process:.1f})"
    )
    good = reached.best >= LEAST_SPEED and process < MOST_MEMORY
    if not good and len(text) >= SIZE:
        print(f"  NOT KEPT: {LEAST_SPEED:.0f} MB/s, {MOST_MEMORY:.0f} x the file")
    return good or len(text) < SIZE


def main() -> int:
    """Measure the files of the command line, or those made here."""
    if sys.argv[1:2] == ["--memory-of"]:
        show_memory(sys.argv[2])
        return 0
    if sys.argv[1:]:
        files = [(f, Path(f).read_bytes().decode("utf-8", "replace")) for f in sys.argv[1:]]
        return int(not all([measure(name, text) for name, text in files]))
    kept = [measure("triton", triton_file())]
    nvcc = shutil.which("nvcc")
    if nvcc:
        kept.append(measure("nvcc", nvcc_file(nvcc)))
    else:
        print("nvcc: not on the PATH, left out")
    return int(not all(kept))


if __name__ == "__main__":
    sys.exit(main())
