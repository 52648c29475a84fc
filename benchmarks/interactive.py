"""How soon commands answer: ``python benchmarks/interactive.py [WORD …]`` (rows that have a WORD).

Processor time of a command and all that it starts (user and system), Python's start included: the
median of five, of fewer where they take long. A bar is in seconds on a core that imports NumPy in
0.12 s; a row fails where it takes more imports of NumPy, measured in the same run, than that. The
caches are a folder of its own: "first" finds them empty, all others filled by a run before.

Parsing is in ``benchmarks/parse.py``, traces in ``benchmarks/decode.py``.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NUMPY_S = 0.12
RUNS, LONG_S = 5, 15.0  # no further run of a row after so many seconds
RAGGED = [part for at in ("M=5000", "N=3000", "K=7000") for part in ("--set", at)]
ODD = [part for at in ("M=1000", "N=513", "K=777") for part in ("--set", at)]
ROWS: list[tuple[str, float, list[str]]] = [
    ("--help", 0.06, ["--help"]),
    ("traffic gelu, first", 4.0, ["traffic", "gelu"]),
    ("traffic gelu", 0.8, ["traffic", "gelu"]),
    ("traffic 5000x3000x7000, exact", 1.0,
     ["traffic", "matmul_relu", *RAGGED, "--exact", "--no-proof"]),
    ("traffic 5000x3000x7000", 3.0, ["traffic", "matmul_relu", *RAGGED, "--no-proof"]),
    ("ptx gelu", 0.7, ["ptx", "gelu"]),
    ("ptx 1000x513x777, proofs", 5.0, ["ptx", "matmul_relu", *ODD]),
    ("ptx FILE, 1,000 lines", 0.4, ["ptx", "long.ptx", "--no-proof"]),
    ("decode, 55 names", 0.3, ["decode", "names.csv"]),
]  # fmt: skip


def ptx_of(lines: int) -> str:
    """A kernel of so many lines: each element is loaded, scaled and stored."""
    head = [
        ".version 8.0", ".target sm_90", ".address_size 64",
        ".visible .entry long(.param .u64 x)", "{",
        ".reg .b64 %rd<3>;", ".reg .b32 %r<2>;", ".reg .f32 %f<3>;",
        "ld.param.u64 %rd0, [x];", "mov.u32 %r0, %tid.x;", "mul.wide.u32 %rd1, %r0, 4;",
        "add.s64 %rd2, %rd0, %rd1;",
    ]  # fmt: skip
    each = "ld.global.f32 %f0, [%rd2+{0}];\nmul.f32 %f1, %f0, 0f40000000;\n"
    each += "st.global.f32 [%rd2+{0}], %f1;"
    body = [each.format(128 * i) for i in range((lines - len(head)) // 3)]
    return "\n".join([*head, *body, "ret;", "}", ""])


def names_of(rows: int) -> str:
    """A table of names of kernels with times."""
    made = (f"triton_poi_fused_add_mul_{i},{10 + i}" for i in range(rows))
    return "\n".join(["Name,Duration (us)", *made, ""])


def used(command: list[str], folder: Path) -> float:
    """Seconds of processor time of one run; the command must not fail to run."""
    environment = {**os.environ, "KANALYZE_CACHE_DIR": str(folder / "cache"),
                   "PYTHONPYCACHEPREFIX": str(folder / "code"), "PYTHONPATH": str(ROOT)}  # fmt: skip
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def median(command: list[str], folder: Path) -> float:
    """Of several runs, behind one that fills the caches."""
    used(command, folder)
    times: list[float] = []
    while len(times) < RUNS and sum(times) < LONG_S:
        times.append(used(command, folder))
    return statistics.median(times)


def main() -> int:
    """Print the table; 1 where a row is over its bar."""
    missed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "long.ptx").write_text(ptx_of(1000))
        (folder / "names.csv").write_text(names_of(55))
        yard = median(["-c", "import numpy"], folder)
        used(["-m", "kanalyze", "device"], folder)  # Python's own code of most modules
        print(f"{'':32}{'bar s':>8}{'s':>8}{'x numpy':>9}{'most':>8}")
        print(f"{'import numpy':32}{NUMPY_S:8.2f}{yard:8.2f}")
        for words, bar, arguments in ROWS:
            if sys.argv[1:] and not any(word in words for word in sys.argv[1:]):
                continue
            command = ["-m", "kanalyze", *arguments]
            took = used(command, folder) if "first" in words else median(command, folder)
            over = took / yard > bar / NUMPY_S
            missed += over
            print(f"{words:32}{bar:8.2f}{took:8.2f}{took / yard:9.1f}{bar / NUMPY_S:8.1f}"
                  f"{'  over' if over else ''}", flush=True)  # fmt: skip
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
