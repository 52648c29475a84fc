"""What kanalyze says of 60 inputs, kept and compared: a move of code must change nothing.

    python benchmarks/outputs.py save FOLDER           (run in the checkout that is asked)
    python benchmarks/outputs.py compare BEFORE AFTER  (exit 1 where a value changed or went)

Keys that were added are counted and are no difference; neither are file paths of temporary folders.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
KERNELS = ("gelu", "softmax", "row_sum", "matmul_relu", "flash_attention")
DUMPS = 12
RECORDS = 20


def commands(records: Path) -> dict[str, list[str]]:
    """Name to arguments of the commands."""
    made = {
        f"ptx_{kernel}_{arch}": ["ptx", kernel, "--arch", arch]
        for kernel in KERNELS
        for arch in ("sm_80", "sm_90", "sm_100", "sm_120")
    }
    launches = sorted(records.rglob("*.json"))
    fitting = [p for p in launches if p.with_suffix(".ptx").is_file()]
    for path in fitting[:: max(1, len(fitting) // RECORDS)][:RECORDS]:
        made[f"traffic_{path.stem}"] = ["traffic", "--launch", str(path)]
    samples = ROOT / "samples"
    dumps = sorted(p for p in (samples / "dumps").iterdir() if p.suffix in (".gz", ".txt", ".csv"))
    for path in dumps[:DUMPS]:
        made[f"decode_{path.name}"] = ["decode", str(path.relative_to(ROOT))]
    made["check"] = ["check", "samples/h200_records"]
    made["check_data"] = ["check", "samples/records/with_data_h200.json.gz", "--counter", "exact"]
    blocks = ["--threads", "128", "--registers", "160"]
    made["occupancy_b200"] = ["occupancy", *blocks, "--device", "B200"]
    made["occupancy_sm_90"] = ["occupancy", *blocks, "--shared", "50000", "--arch", "sm_90"]
    made["waves_b200"] = ["waves", "--blocks", "160", "--device", "B200"]
    made["waves_h200"] = ["waves", "--blocks", "1000", "--blocks-per-sm", "3", "--device", "H200"]
    made["device_h200"] = ["device", "H200"]
    made["device_t4"] = ["device", "T4"]
    return made


def save(folder: Path) -> None:
    """Write the JSON of every command, and its exit code, into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        with tarfile.open(ROOT / "samples/h200/records.tar.xz") as archive:
            archive.extractall(temporary, filter="data")
        for name, arguments in commands(Path(temporary)).items():
            done = subprocess.run(
                [sys.executable, "-m", "kanalyze", *arguments, "--format", "json"],
                cwd=ROOT, capture_output=True, text=True,
            )  # fmt: skip
            output = done.stdout.replace(temporary, "RECORDS")
            (folder / f"{name}.json").write_text(
                f'{{"exit": {done.returncode}, "output": {output or "null"}}}'
            )
            print(done.returncode, name, flush=True)


def differences(before: object, after: object, place: str = "") -> tuple[list[str], int]:
    """What changed or went, and how many keys came."""
    changed: list[str] = []
    added = 0
    if isinstance(before, dict) and isinstance(after, dict):
        added = len(after.keys() - before.keys())
        for key, value in before.items():
            if key not in after:
                changed.append(f"{place}.{key} went")
                continue
            inner, more = differences(value, after[key], f"{place}.{key}")
            changed += inner
            added += more
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, pair in enumerate(zip(before, after, strict=True)):
            inner, more = differences(*pair, f"{place}[{index}]")
            changed += inner
            added += more
    elif before != after:
        changed.append(f"{place}: {str(before)[:80]} -> {str(after)[:80]}")
    return changed, added


def compare(before: Path, after: Path) -> int:
    """Print what differs between two folders of `save`; the number of inputs that differ."""
    names = sorted(p.name for p in before.glob("*.json"))
    wrong = 0
    for name in names:
        if not (after / name).is_file():
            print(f"{name}: not there")
            wrong += 1
            continue
        both = (json.loads((folder / name).read_text("utf-8")) for folder in (before, after))
        changed, added = differences(*both)
        wrong += bool(changed)
        if changed or added:
            print(f"{name}: {len(changed)} changed, {added} keys came")
        for line in changed[:10]:
            print(f"  {line}")
    print(f"{len(names)} inputs, {len(names) - wrong} equal but for added keys, {wrong} not")
    return wrong


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["save", folder]:
            save(Path(folder))
        case ["compare", before, after]:
            sys.exit(compare(Path(before), Path(after)) > 0)
        case _:
            sys.exit(__doc__)
