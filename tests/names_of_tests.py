"""Whether tests are called the same whenever and wherever they are collected; for `make check`.

``python tests/names_of_tests.py``: two collections, side by side, with different hash
seeds, one in this checkout and one in a copy of it in another folder, give one list. pytest-xdist
runs nothing where its processes disagree.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from difflib import unified_diff
from itertools import islice
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COMMAND = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]


def collected(folder: Path, seed: int) -> list[str]:
    """Names of tests, as collected in a folder, with a seed of hashes."""
    environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
    done = subprocess.run(COMMAND, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout[-4000:] + done.stderr)
    return [line for line in done.stdout.splitlines() if "::" in line]


def main() -> None:
    """Compare two collections; print what differs."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*", "__pycache__", "build"))
        with ThreadPoolExecutor() as both:
            first, second = both.map(collected, (ROOT, copy), (1, 2))
    if first != second:
        differences = unified_diff(first, second, "in the checkout", "in a copy", "", "", 0)
        sys.exit("\n".join(["names of tests change:", *islice(differences, 20)]))
    print(f"{len(first)} tests are called the same in another folder and with another hash seed")


if __name__ == "__main__":
    main()
