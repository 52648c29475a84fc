"""What it costs to count a launch: ``python benchmarks/traffic.py [RECORDS …]``.

Ratios in one run: a GeLU of 2^30 elements against one of 2^26, and the work that sharing between
blocks adds. Then launches one by one, each in a process of its own that has loaded everything: the
time that the estimate takes (of the processor, of the clock), the part of it that runs other
programs (assembler, disassembler), and the peak of memory. What is measured is counting; with
``--simulate`` the caches and the time are estimated, too. Records are folders, files or archives
as ``kanalyze check`` reads them; without any, those under ``samples/``.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kanalyze.analysis.launch import estimate
from kanalyze.errors import KanalyzeError
from kanalyze.frontend.compile import Compiled, compile_kernel
from kanalyze.measured.records.reader import read_records
from kanalyze.traffic import totals

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = (ROOT / "samples" / "h200_records", ROOT / "samples" / "records")
MOST_RATIO = 1.2
MOST_SECONDS = 1.0
MOST_MEMORY = 1000.0
LAUNCHES: tuple[tuple[str, dict[str, int]], ...] = (
    ("gelu", {"n": 1 << 26}),
    ("gelu", {"n": 1 << 30}),
    ("matmul_relu", {"M": 16384, "N": 16384, "K": 4096}),
    ("matmul_relu", {"M": 16384, "N": 16384, "K": 4096, "GROUP_M": 8}),
    ("flash_attention", {"B": 1, "H": 16, "T": 16384, "D": 64, "causal": 1}),
)


def compiled(name: str, settings: dict[str, int]) -> Compiled:
    """A bundled kernel."""
    return compile_kernel(name, settings=settings)


def seconds(work: Callable[[], Any], repeat: int) -> float:
    """The least processor time of several runs; the first, which warms caches, is left out."""
    work()
    times = []
    for _ in range(repeat):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def ratios(repeat: int) -> list[str]:
    """GeLU of 2^30 over 2^26, and estimates without sharing over those with it."""
    missed = []
    small, large = (compiled("gelu", {"n": 1 << bits}) for bits in (26, 30))
    one, other = (seconds(lambda c=c: estimate(c, simulate=False), repeat) for c in (small, large))
    print(f"gelu 2^30 over 2^26: {other / one:.2f} ({1e3 * other:.1f} ms, {1e3 * one:.1f} ms)")
    if other > MOST_RATIO * one:
        missed.append(f"gelu of 2^30 takes {other / one:.2f} times as long as of 2^26")
    for name, settings in LAUNCHES:
        target = compiled(name, settings)
        whole = seconds(lambda t=target: estimate(t, simulate=False), repeat)
        shared = totals.shared
        totals.shared = lambda *_: "left out"  # type: ignore[assignment]
        without = seconds(lambda t=target: estimate(t, simulate=False), repeat)
        totals.shared = shared
        print(f"sharing adds {1e3 * (whole - without):.0f} ms to {1e3 * without:.0f} ms: "
              f"{described(name, settings)}")  # fmt: skip
    return missed


def described(name: str, settings: dict[str, int]) -> str:
    """A launch in one line."""
    return f"{name} {' '.join(f'{key}={value}' for key, value in settings.items())}"


def launches(paths: list[str], simulate: bool) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Names of launches and what estimates them."""
    for name, settings in LAUNCHES:
        target = compiled(name, settings)
        yield described(name, settings), lambda t=target: estimate(t, simulate=simulate)
    for path in paths:
        records, skipped = read_records(path)
        for item in skipped:
            print(f"left out: {item.error}", file=sys.stderr)
        for record in records:
            yield (
                record.case,
                lambda r=record: estimate(
                    r.module, r.launch, kernel=r.entry, cubin=r.cubin, simulate=simulate
                ),
            )


def alone(work: Callable[[], Any]) -> dict[str, float | str]:
    """Time and memory of some work in a process of its own."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        wall, cpu = time.perf_counter(), time.process_time()
        result: dict[str, float | str] = {}
        try:
            work()
        except KanalyzeError as error:
            result["error"] = str(error)
        programs = resource.getrusage(resource.RUSAGE_CHILDREN)
        result |= {
            "wall": time.perf_counter() - wall,
            "cpu": time.process_time() - cpu,
            "programs": programs.ru_utime + programs.ru_stime,
            "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }
        os.write(writing, json.dumps(result).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        result = json.loads(pipe.read() or b'{"error": "it died"}')
    os.waitpid(child, 0)
    return result


def main() -> int:
    """Run everything; 1 where a limit is passed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("records", nargs="*", default=[str(path) for path in SAMPLES])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--simulate", action="store_true")
    options = parser.parse_args()
    missed = ratios(options.repeat)
    print(f"\n{'cpu s':>7} {'clock s':>8} {'programs s':>11} {'peak MB':>8}  launch")
    rows = []
    for name, work in launches(options.records, options.simulate):
        result = alone(work)
        if "error" in result:
            print(f"{'':37}  {name}: {result['error']}")
            continue
        cpu, wall, programs, peak = (float(result[k]) for k in ("cpu", "wall", "programs", "peak"))
        print(f"{cpu:7.2f} {wall:8.2f} {programs:11.2f} {peak:8.0f}  {name}")
        rows.append((cpu, wall, programs, peak, name))
    slowest, largest = max(rows), max(rows, key=lambda row: row[3])
    print(f"\n{len(rows)} launches; slowest {slowest[0]:.2f} s ({slowest[4]}), most memory "
          f"{largest[3]:.0f} MB ({largest[4]})")  # fmt: skip
    missed += [f"{row[4]}: {row[0]:.2f} s" for row in rows if row[0] > MOST_SECONDS]
    missed += [f"{row[4]}: {row[3]:.0f} MB" for row in rows if row[3] > MOST_MEMORY]
    for text in missed:
        print(f"past the limit: {text}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
