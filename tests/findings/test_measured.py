"""What findings promise beside what an H200 measured of their samples, in ``measured.json`` there.

The GPU ran what another Triton compiled: executed instructions are not compared.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("triton")
pytestmark = [
    pytest.mark.usefixtures("shared_cache"),
    pytest.mark.slow("compiles samples and proves its findings"),
]

ROOT = Path(__file__).parents[2]
MEASURED: dict[str, Any] = json.loads(
    (ROOT / "samples" / "findings" / "measured.json").read_text("utf-8")
)["findings"]
EQUAL = ("global_load_requests", "global_store_requests", "global_load_sectors",
         "global_store_sectors", "global_atomic_requests", "global_reduction_requests")  # fmt: skip
SIDES = ("fires", "mended")


@cache
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "benchmarks_findings", ROOT / "benchmarks" / "findings.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for it
    spec.loader.exec_module(module)
    return module


def estimated(id_: str, side: str, simulate: bool) -> Any:
    return script().estimated(script().sample(id_, side), simulate)


def test_every_finding_that_can_be_launched_was_measured() -> None:
    assert set(MEASURED) == set(script().pairs())


@pytest.mark.parametrize("id_", MEASURED)
@pytest.mark.parametrize("side", SIDES)
def test_what_is_counted_equals_the_counters(id_: str, side: str) -> None:
    counters = estimated(id_, side, simulate=False).counters
    known = {name: counters[name] for name in EQUAL if counters.get(name) is not None}
    assert len(known) >= 2
    assert known == {name: MEASURED[id_][side][name] for name in known}


@pytest.mark.parametrize(
    "id_", ["bank-conflicts", "low-bytes-in-flight", "wave-quantisation", "atomic-contention"]
)
def test_the_time_that_is_promised_is_gained(id_: str) -> None:
    before, after = (estimated(id_, side, simulate=True).time.predicted_us for side in SIDES)
    was, became = (MEASURED[id_][side]["time_us"] for side in SIDES)
    assert before == pytest.approx(was, rel=0.25)
    assert after == pytest.approx(became, rel=0.25)
    assert before / after == pytest.approx(was / became, rel=0.3)


def test_the_table_says_what_was_measured() -> None:
    text = (ROOT / "docs" / "findings.md").read_text("utf-8")
    for id_, sides in MEASURED.items():
        (line,) = [row for row in text.splitlines() if row.startswith(f"| `{id_}` |")]
        shown = " → ".join(script().microseconds(sides[side]["time_us"]) for side in SIDES)
        assert f"| {shown} µs |" in line
        assert line.endswith(f"| {script().changed(*(sides[side] for side in SIDES))} |")
