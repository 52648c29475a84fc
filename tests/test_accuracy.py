"""The accuracy tables of the documents are those that the samples give now.

The tables are made from `samples/accuracy.csv.xz`, what `kanalyze check` found over all samples.
That takes minutes; here a stated part is checked anew: every launch of `samples/h200_records`,
every fourth of those in `samples/records`, every twentieth of
`unseen_h200.tar.xz` there, every fortieth of `samples/h200`.
"""

from __future__ import annotations

import importlib.util
from collections import Counter
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from kanalyze.measured.check import runner
from kanalyze.measured.check.comparison import compare
from kanalyze.measured.records.reader import Record, read_records
from kanalyze.render import check_csv
from kanalyze.results import check as document

pytestmark = pytest.mark.slow("estimates and simulates whole launches")

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def script(shared_cache: Path) -> ModuleType:
    path = ROOT / "benchmarks" / "accuracy.py"
    spec = importlib.util.spec_from_file_location("accuracy", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def samples(script: ModuleType) -> dict[str, list[Record]]:
    """The records of each of the samples."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        return {path: read_records(path)[0] for path in script.SOURCES}


def test_the_documents_are_those_of_the_file(script: ModuleType) -> None:
    for name in script.DOCUMENTS:
        text = (ROOT / name).read_text("utf-8")
        assert "<!-- accuracy: " in text
        assert script.renewed(text) == text, f"{name} is stale: make accuracy"


def test_the_file_holds_every_record(script: ModuleType, samples: dict[str, list[Record]]) -> None:
    own = Counter((launch.case, launch.kernel, launch.purpose) for launch in script.recorded())
    there = Counter(
        (record.case, record.entry, record.data.get("purpose"))
        for records in samples.values()
        for record in records
    )
    assert own == there, "samples/accuracy.csv.xz is stale: make accuracy"


def test_the_file_holds_what_is_found_now(
    script: ModuleType, samples: dict[str, list[Record]]
) -> None:
    """A part; `python benchmarks/accuracy.py --check` checks the whole."""
    steps = {
        script.BENCH: 40,
        script.UNSEEN: 20,
        script.OURS: 1,
        script.UNFITTED: 4,
        script.WITH_DATA: 4,
    }
    some = [r for path, records in samples.items() for r in records[:: steps[path]]]
    check = runner.document((), len(some), [compare(record) for record in some], ())
    again = script.launches(check_csv.render(check))
    kept = {(launch.file, launch.case): launch.comparisons for launch in script.recorded()}
    changed = [
        f"{launch.case}: {new.counter}: {old.estimate} before, {new.estimate} now"
        for launch in again
        for old, new in zip(kept[launch.file, launch.case], launch.comparisons, strict=True)
        if old != new
    ]
    assert changed == [], "samples/accuracy.csv.xz is stale: make accuracy"


def test_a_stale_table_would_be_noticed(script: ModuleType) -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    first = text.index("| executed instructions |")
    changed = text[:first] + text[first:].replace("equal", "equals", 1)
    assert script.renewed(changed) == text
    assert changed != text


def row(script: ModuleType, table: str, counter: str) -> list[str]:
    (line,) = (x for x in script.table(table).splitlines() if f"`{counter}` |" in x)
    return [cell.strip() for cell in line.strip("|").split("|")]


def comparisons(
    launches: list[document.CheckedLaunch], name: str
) -> list[document.ComparedCounter]:
    return [c for launch in launches for c in launch.comparisons if c.counter == name]


def test_rows_are_sums_of_the_launches(script: ModuleType) -> None:
    own = comparisons(script.recorded(), "instructions_executed")
    results = Counter(c.result for c in own)
    compared = results["equal"] + results["differs"]
    cells = row(script, "exact", "instructions_executed")
    assert cells[3:5] == [str(compared), str(results["equal"])]
    assert cells[-1] == str(results["unknown"])

    launches = [x for x in script.of_source(script.BENCH) if x.purpose == "report"]
    own = comparisons(launches, "time.predicted_us")
    errors = [
        100 * abs(c.estimate - c.measured) / c.measured
        for c in own
        if c.estimate is not None and c.measured
    ]
    cells = row(script, "estimated", "time.predicted_us")
    assert int(cells[2]) == len(errors) > 100
    shown = [float(cell.rstrip(" %").replace(",", "")) for cell in cells[5:9]]
    expected = [np.median(errors), np.mean(errors), np.percentile(errors, 90), max(errors)]
    assert shown == pytest.approx(expected, abs=0.501)
    assert f"{script.BENCH} --purpose report" in script.table("estimated")


def test_every_exact_counter_of_the_samples_is_equal_or_unknown(script: ModuleType) -> None:
    results = Counter(
        (c.counter, c.result)
        for launch in script.recorded()
        for c in launch.comparisons
        if c.kind != "estimate"
    )
    assert {result for _, result in results} <= {"equal", "holds", "unknown", "not measured"}
    assert results["global_load_sectors", "equal"] > 300
