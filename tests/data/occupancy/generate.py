"""Write ``<architecture>.csv.gz``: what NVIDIA's cuda_occupancy.h says of random configurations.

    python tests/data/occupancy/generate.py [/usr/local/cuda/include]

Needs a C compiler and the header; the tests need neither. The device properties are written down
here, not read from kanalyze: threads and shared memory of an SM as in the CUDA C++ Programming
Guide's table of compute capabilities.
"""

from __future__ import annotations

import gzip
import random
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
KIB = 1024
PROPERTIES = {  # compute capability: threads of an SM, KiB of shared memory of an SM and a block
    "sm_70": (2048, 96, 96),
    "sm_75": (1024, 64, 64),
    "sm_80": (2048, 164, 163),
    "sm_86": (1536, 100, 99),
    "sm_87": (1536, 164, 163),
    "sm_88": (1536, 100, 99),
    "sm_89": (1536, 100, 99),
    "sm_90": (2048, 228, 227),
    "sm_100": (2048, 228, 227),
    "sm_103": (2048, 228, 227),
    "sm_110": (1536, 228, 227),
    "sm_120": (1536, 100, 99),
    "sm_121": (1536, 100, 99),
}
COUNT = 2000
CARVEOUTS = (-1, -1, -1, 0, 10, 25, 50, 75, 100)
COLUMNS = (
    "carveout_percent,threads,registers,shared_bytes,barriers,blocks,limit_registers,"
    "limit_shared,limit_warps,limit_blocks,limit_barriers,allocated_shared_bytes,factors"
)


def configuration(rng: random.Random, block_bytes: int) -> tuple[int, int, int, int, int]:
    """Carve-out, threads, registers, shared bytes, barriers; some of them cannot be launched."""
    threads = rng.choice((rng.randint(1, 1024), 32 * rng.randint(1, 32), 2 ** rng.randint(5, 10)))
    shared = rng.choice(
        (0, 0, rng.randint(0, 4096), rng.randint(0, block_bytes), KIB * rng.randint(0, 100))
    )
    shared = min(shared, block_bytes + 1024)
    registers = rng.choice((rng.randint(0, 255), 8 * rng.randint(1, 31), rng.randint(16, 128)))
    return rng.choice(CARVEOUTS), threads, registers, shared, rng.choice((0, 0, 1, 2, 5, 16))


def build(include: str, folder: str) -> str:
    """Compile ``oracle.c``; returns the program."""
    program = str(Path(folder) / "oracle")
    command = ["cc", "-O1", "-w", f"-I{include}", str(HERE / "oracle.c"), "-o", program]
    subprocess.run(command, check=True)
    return program


def ask(program: str, arch: str, cases: list[tuple[int, int, int, int, int]]) -> list[list[str]]:
    """What the header says of each case of an architecture."""
    threads, sm_kib, block_kib = PROPERTIES[arch]
    number = arch[3:]
    reserved = 0 if int(number) < 80 else KIB
    device = f"{number[:-1]} {number[-1]} {threads} {sm_kib * KIB} {block_kib * KIB} {reserved}"
    text = "".join(f"{device} {' '.join(map(str, case))}\n" for case in cases)
    out = subprocess.run([program], input=text, capture_output=True, text=True, check=True).stdout
    return [line.split() for line in out.splitlines()]


def main() -> None:
    """Write all tables."""
    include = sys.argv[1] if len(sys.argv) > 1 else "/usr/local/cuda/include"
    with tempfile.TemporaryDirectory() as folder:
        program = build(include, folder)
        for arch in PROPERTIES:
            rng = random.Random(arch)
            block_bytes = PROPERTIES[arch][2] * KIB
            cases = [configuration(rng, block_bytes) for _ in range(COUNT)]
            answers = ask(program, arch, cases)
            rows = [
                ",".join([*map(str, case), *answer])
                for case, answer in zip(cases, answers, strict=True)
            ]
            data = "\n".join([COLUMNS, *rows]) + "\n"
            path = HERE / f"{arch}.csv.gz"
            path.write_bytes(gzip.compress(data.encode("ascii"), mtime=0))


if __name__ == "__main__":
    main()
