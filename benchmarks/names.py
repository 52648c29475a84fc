"""How fast ``kanalyze.profiles.names.decode`` is: names seen before, names never seen, the first import.

Run ``python benchmarks/names.py``; no GPU, no network. The names are the samples of the tests,
and variants of them with other numbers, so that no two are alike.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from kanalyze.profiles.names import decode  # noqa: E402
from kanalyze.profiles.names.decode import decode_uncached  # noqa: E402

SAMPLES = ROOT / "tests" / "data" / "names"


def samples() -> list[str]:
    names = []
    for path in sorted(SAMPLES.glob("*.jsonl")):
        lines = path.read_text(encoding="utf-8").splitlines()
        names.extend(json.loads(line)["name"] for line in lines)
    return names


_NUMBER = re.compile(r"(?<![A-Za-z0-9])(?:8|16|32|64|128|256)(?=x\d)|(?<=_)\d+$|(?<=<)\d+(?=,)")


def variants(names: list[str], count: int) -> list[str]:
    """Return ``count`` distinct names: samples whose tile sizes and counters are changed."""
    rng = random.Random(4)
    changeable = [name for name in names if _NUMBER.search(name)]
    made = set(names)
    while len(made) < count:
        made.add(_NUMBER.sub(lambda match: str(8 * rng.randrange(1, 99)), rng.choice(changeable)))
    return rng.sample(sorted(made), count)


def seconds_to_import() -> tuple[float, float]:
    """Return the seconds of an interpreter that imports the package, and of an idle one."""

    def run(code: str) -> float:
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
        return time.perf_counter() - begin

    return min(run("import kanalyze.profiles.names") for _ in range(3)), min(
        run("pass") for _ in range(3)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=1_000_000, help="calls on remembered names")
    parser.add_argument("--new", type=int, default=5_000, help="distinct names never seen before")
    options = parser.parse_args()

    names = samples()
    for name in names:
        decode_uncached(name)  # builds the grammars

    new = variants(names, options.new)
    begin, busy = time.perf_counter(), time.process_time()
    for name in new:
        decode_uncached(name)
    spent, busy = time.perf_counter() - begin, time.process_time() - busy
    length = sum(map(len, new)) / len(new)
    print(f"new names       {len(new) / spent:10,.0f} a second (mean length {length:.0f})")
    print(f"                {len(new) / busy:10,.0f} a second of processor time")

    known = variants(names, 1_000)
    for name in known:
        decode(name)
    rounds = max(1, options.calls // len(known))
    begin = time.perf_counter()
    for _ in range(rounds):
        for name in known:
            decode(name)
    spent = time.perf_counter() - begin
    print(f"known names     {rounds * len(known):10,} calls in {spent:.3f} s")

    importing, idle = seconds_to_import()
    print(f"import          {importing - idle:10.3f} s (an idle interpreter takes {idle:.3f} s)")


if __name__ == "__main__":
    main()
