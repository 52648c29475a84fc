"""The measured tables of the lessons against the recorded launches; what the lessons claim."""

from __future__ import annotations

import io
import json
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow("estimates and simulates whole launches")

ROOT = Path(__file__).parents[1]
ARCHIVE = ROOT / "samples/h200/records.tar.xz"
_CASE = r"\| (?P<case>[a-z_]+-[^ ,|]+)(?:, (?P<rival>[\w. ]+))?"
ROW = re.compile(_CASE + r" \| (?P<cells>[^|]+(?:\|[^|]+)*) \|$")


def rows() -> list[tuple[str, str | None, list[str]]]:
    """Case, rival and cells of each row of a measured table."""
    found = []
    for line in (ROOT / "docs/lessons.md").read_text("utf-8").splitlines():
        row = ROW.match(line)
        if row is not None:
            found.append((row["case"], row["rival"], [c.strip() for c in row["cells"].split("|")]))
    return found


@pytest.fixture(scope="module")
def records() -> dict[str, dict[str, Any]]:
    """The recorded launches that the document names."""
    wanted = {f"{case}.json": case for case, _, _ in rows()}
    found = {}
    with tarfile.open(fileobj=io.BytesIO(ARCHIVE.read_bytes())) as archive:
        for member in archive:
            case = wanted.get(Path(member.name).name)
            if case is not None:
                file = archive.extractfile(member)
                assert file is not None
                found[case] = json.load(file)
    return found


def test_measured_tables_are_the_records(records: dict[str, dict[str, Any]]) -> None:
    assert len(rows()) >= 17
    for case, rival, cells in rows():
        counters = records[case]["counters"]
        expected = [
            f"{counters['dram__bytes_read.sum'] / 1e6:,.1f}",
            f"{counters['dram__bytes_write.sum'] / 1e6:,.1f}",
            f"{counters['gpu__time_duration.sum'] / 1e3:,.1f}",
        ]
        if rival is not None:
            (other,) = [r for r in records[case]["rivals"] if r["provider"] == rival]
            time = other["times_cold_ms"]
            expected.append(f"{1e3 * (time['median'] if isinstance(time, dict) else time):,.1f}")
        assert cells == expected, case


def test_the_lessons_hold_on_the_gpu(records: dict[str, dict[str, Any]]) -> None:
    def read(case: str) -> float:
        return float(records[case]["counters"]["dram__bytes_read.sum"])

    flash = "flash_attention-fp16-B1-H8-T{}-D64-causal0"
    assert read(flash.format(8192)) / read(flash.format(4096)) == pytest.approx(2, rel=0.01)  # O(T)
    grouped = "matmul_relu-fp16-M16384-N16384-K4096"
    assert read(f"{grouped}-GROUP_M1") > 6 * read(grouped)


@pytest.mark.parametrize("T", [1024, 8192])
def test_predicted_beside_recorded(records: dict[str, dict[str, Any]], T: int) -> None:
    """HBM reads of flash attention, estimated from the kernel as it compiles here."""
    pytest.importorskip("triton")
    from kanalyze.analysis.versus.running import Asked, compare
    from kanalyze.frontend.subject import Settings

    case = f"flash_attention-fp16-B1-H8-T{T}-D64-causal0"
    found = compare(Asked("flash_attention", Settings(settings={"B": 1, "H": 8, "T": T, "D": 64})))
    estimated = found.points[0].sides[0].totals.dram_read_bytes
    measured = records[case]["counters"]["dram__bytes_read.sum"]
    assert estimated == pytest.approx(measured, rel=0.02)
