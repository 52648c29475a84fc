"""Hardware counters: one run of Nsight Compute over every launch, and what it says.

The launches run in one other process (`kanalyze.measured.bench.replay`) under ``ncu``, each in an
NVTX range
of its own, so that each row of the output says which launch it belongs to. Caches are flushed
before each pass, clocks are left alone.
"""

from __future__ import annotations

import contextlib
import csv
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kanalyze.errors import KanalyzeError, MissingToolError

RANGE = "kanalyze-launch-"
_PLACES = (
    "/usr/local/cuda/bin/ncu",
    "/opt/nvidia/nsight-compute/*/ncu",
    "/usr/local/cuda-*/bin/ncu",
    "/usr/local/NVIDIA-Nsight-Compute*/ncu",
)
OPTIONS = (
    "--replay-mode", "kernel", "--cache-control", "all", "--clock-control", "none",
    "--profile-from-start", "off", "--csv", "--page", "raw", "--print-units", "base",
)  # fmt: skip
"""What is measured and how it is printed: `table_rows` reads it."""
NOT_PERMITTED = (
    "the driver permits counters to administrators only (ERR_NVGPUCTRPERM): run as root, or load "
    "the nvidia module with NVreg_RestrictProfilingToAdminUsers=0 "
    "(developer.nvidia.com/ERR_NVGPUCTRPERM)"
)
_UNKNOWN = re.compile(r"(?:failed to find|unknown) metrics?:?\s*([\w.,\s]+?)\s*(?:$|\.\s)", re.I)
_PATIENCE_S = 90.0


@dataclass
class RangeCounters:
    """The kernels of one range: name and counters each, in the order of their launches."""

    kernels: list[tuple[str, dict[str, float | None]]] = field(default_factory=list)

    def total(self, wanted: Sequence[str]) -> dict[str, float | None]:
        """Counters of all kernels together: sums of those that are sums, else None."""
        if len(self.kernels) == 1:
            return self.kernels[0][1]
        totals: dict[str, float | None] = {}
        for name in wanted:
            values = [counters.get(name) for _, counters in self.kernels]
            known = [v for v in values if v is not None]
            whole = name.endswith(".sum") and len(known) == len(values)
            totals[name] = sum(known) if whole else None
        return totals


def find_ncu() -> str | None:
    """The ``ncu`` of ``$PATH``, or of a usual place."""
    ncu = shutil.which("ncu")
    if ncu is not None:
        return ncu
    for place in _PLACES:
        for path in sorted(glob.glob(place), reverse=True):
            if os.access(path, os.X_OK):
                return path
    return None


def version(ncu: str) -> str | None:
    """Nsight Compute's version, such as 2025.3.1.0."""
    try:
        done = subprocess.run([ncu, "--version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"Version\s+([\d.]+\d)", done.stdout)
    return match[1] if match else None


def command(ncu: str, names: Sequence[str], log: Path, manifest: Path) -> list[str]:
    """How the launches of a manifest are counted."""
    return [
        ncu, *OPTIONS, "--nvtx", "--log-file", str(log), "--force-overwrite", "--metrics",
        ",".join(names), sys.executable, "-m", "kanalyze.measured.bench.replay", str(manifest),
    ]  # fmt: skip


def count(
    ncu: str,
    ranges: Sequence[dict[str, Any]],
    names: Sequence[str],
    progress: Callable[[int], None],
    seconds: float | None = None,
) -> tuple[dict[int, RangeCounters], tuple[str, ...], bool]:
    """Count the launches of some ranges in one run of ncu.

    Args:
        ncu: the program.
        ranges: what `kanalyze.measured.bench.replay` runs, one after the other.
        names: metrics.
        progress: is told how many ranges have begun.
        seconds: after which no further range begins.

    Returns:
        By the index of the range what was counted; the metrics that this ncu does not know; and
        whether the run was interrupted (then what was counted until then is there).

    Raises:
        KanalyzeError: nothing can be counted; why.
    """
    wanted = list(names)
    unknown: list[str] = []
    while True:
        run = _NcuRun(ncu, ranges, wanted, progress, seconds)
        text = run.text
        refused = [n for n in unknown_metrics(text) if n in wanted]
        if not refused:
            break
        unknown += refused
        wanted = [n for n in wanted if n not in refused]
    counted = parse(text.splitlines(), wanted)
    if not counted and ranges and not run.interrupted:
        raise _nothing(run)
    return counted, tuple(unknown), run.interrupted


class _NcuRun:
    """One run of ncu: its log as ``text``, what the program printed, whether it was interrupted."""

    def __init__(
        self,
        ncu: str,
        ranges: Sequence[dict[str, Any]],
        names: Sequence[str],
        progress: Callable[[int], None],
        seconds: float | None,
    ):
        self.interrupted = False
        self.printed: list[str] = []
        with tempfile.TemporaryDirectory(prefix="kanalyze-ncu-") as name:
            folder = Path(name)
            log, manifest, stop = folder / "log.csv", folder / "ranges.json", folder / "stop"
            manifest.write_text(
                json.dumps({"ranges": list(ranges), "stop": str(stop), "seconds": seconds})
            )
            place = str(Path(__file__).resolve().parents[3])
            paths = [place, *filter(None, [os.environ.get("PYTHONPATH")])]
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
            try:
                process = subprocess.Popen(
                    command(ncu, names, log, manifest),
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                    env=environment, start_new_session=True,
                )  # fmt: skip
            except OSError as error:
                raise MissingToolError(f"{ncu} cannot be run: {error.strerror}") from None
            with process:
                try:
                    self._follow(process, progress)
                except KeyboardInterrupt:
                    self.interrupted = True
                    stop.touch()
                    self._end(process)
            self.code = process.returncode
            self.text = log.read_text("utf-8", "replace") if log.is_file() else ""

    def _follow(self, process: subprocess.Popen[str], progress: Callable[[int], None]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            begun = re.match(rf"{RANGE}(\d+) ", line)
            if begun:
                progress(int(begun[1]) + 1)
            else:
                self.printed = [*self.printed[-40:], line.rstrip()]
        process.wait()

    def _end(self, process: subprocess.Popen[str]) -> None:
        """Let the launch that runs end; after a while, or a second Ctrl-C, end the process."""
        try:
            process.communicate(timeout=_PATIENCE_S)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def _nothing(run: _NcuRun) -> KanalyzeError:
    """Why a run counted nothing."""
    said = [*run.text.splitlines(), *run.printed]
    if any("ERR_NVGPUCTRPERM" in line for line in said):
        return KanalyzeError(NOT_PERMITTED)
    errors = [line for line in said if "==ERROR==" in line] or [s for s in said if s.strip()][-1:]
    why = re.sub(r"^==\w+==\s*", "", errors[0]).strip()[:300] if errors else "it says nothing"
    return KanalyzeError(f"Nsight Compute counted nothing (exit {run.code}): {why}")


def unknown_metrics(text: str) -> list[str]:
    """The metrics that ncu says it does not know."""
    names: list[str] = []
    for line in text.splitlines():
        match = _UNKNOWN.search(line) if "==ERROR==" in line else None
        if match:
            names += [n for n in re.split(r"[,\s]+", match[1]) if "__" in n]
    return list(dict.fromkeys(names))


def parse(lines: Iterable[str], names: Sequence[str]) -> dict[int, RangeCounters]:
    """By the number in the NVTX range, the kernels of a table and their counters."""
    ranges: dict[int, RangeCounters] = {}
    for row in table_rows(lines):
        where = re.search(rf"{RANGE}(\d+)", "\n".join(v for k, v in row.items() if "Domain" in k))
        if where is not None:
            kernels = ranges.setdefault(int(where[1]), RangeCounters()).kernels
            kernels.append((row.get("Kernel Name", ""), counters_of(row, names)))
    return ranges


def table_rows(lines: Iterable[str]) -> Iterator[dict[str, str]]:
    """The launches of ncu's raw page in CSV: column to cell; what else is printed is left out."""
    header: list[str] | None = None
    for row in csv.reader(line for line in lines if not line.startswith("==")):
        if row and row[0] == "ID":
            header = row
        elif header is not None and len(row) == len(header) and row[0].isdigit():
            yield dict(zip(header, row, strict=True))  # not the row of units, nor what is cut off


def counters_of(row: Mapping[str, str], names: Iterable[str]) -> dict[str, float | None]:
    """Counters of a launch; one without a number (``n/a``, ``nan``, no column) is None."""
    return {name: _number(row.get(name)) for name in names}


def _number(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    if value != value or abs(value) == float("inf"):
        return None
    return int(value) if value == int(value) else value
