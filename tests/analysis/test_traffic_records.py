"""The estimate against Nsight Compute on an H200, to the last unit."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kanalyze import Launch, Traffic
from kanalyze.cli.app import cli
from tests.counted import estimate
from tests.recorded import BESIDE, NAMES, WHY_NOT, each_record

pytestmark = [
    pytest.mark.usefixtures("shared_cache"),
    pytest.mark.slow("estimates and simulates whole launches"),
]

ROOT = Path(__file__).parents[2]
OURS = ROOT / "samples" / "h200_records"
BUNDLED = sorted(path.stem for path in OURS.glob("*.json"))
KINDS = {"load": "ld", "store": "st", "atomic": "atom", "reduction": "red"}
ON_DATA = {"inductor_embedding_add_0": ("load",)}
"""Records in which accesses of these kinds depend on data that the record does not hold."""


@pytest.fixture
def path(name: str) -> Path:
    return (OURS if name in BUNDLED else BESIDE) / f"{name}.json"


@cache
def measured(path: Path) -> Mapping[str, Any]:
    counters: dict[str, Any] = json.loads(path.read_text("utf-8"))["counters"]
    return counters


@cache
def estimated(path: Path) -> Mapping[str, Any]:
    result = CliRunner().invoke(
        cli, ["traffic", "--launch", str(path), "--exact", "--format", "json"]
    )
    assert result.exit_code == 0, result.stderr
    data: dict[str, Any] = json.loads(result.stdout)
    return data


def test_there_are_records() -> None:
    assert len(BUNDLED) == 4
    assert set(BUNDLED) < set(NAMES)
    if not BESIDE.is_dir():
        pytest.skip(WHY_NOT)
    assert sorted(path.stem for path in BESIDE.glob("*.json")) == list(NAMES)


@each_record(BUNDLED)
def test_requests_and_sectors_are_those_of_the_hardware(path: Path) -> None:
    counters, unknown = estimated(path)["counters"], estimated(path)["unknown"]
    for kind, op in KINDS.items():
        for what in ("requests", "sectors"):
            name = f"global_{kind}_{what}"
            if what == "sectors" and kind in ON_DATA.get(path.stem, ()):
                assert counters[name] is None
                (reason,) = (u["reason"] for u in unknown if u["field"] == f"counters.{name}")
                assert "data" in reason
            else:
                metric = f"l1tex__t_{what}_pipe_lsu_mem_global_op_{op}.sum"
                assert counters[name] == measured(path)[metric], name


@each_record(BUNDLED)
def test_occupancy_and_waves_are_those_of_the_profiler(path: Path) -> None:
    """The driver's carve-out of shared memory costs no block in any of these launches."""
    data, counters = estimated(path), measured(path)
    assert data["device"] == "NVIDIA H200"
    percent = data["occupancy"]["percent"]
    assert percent == pytest.approx(counters["sm__maximum_warps_per_active_cycle_pct"], abs=0.005)
    waves = data["waves"]["waves"]
    assert round(waves, 2) == counters["launch__waves_per_multiprocessor"]
    limits = [v for k, v in counters.items() if k.startswith("launch__occupancy_limit_")]
    assert data["occupancy"]["blocks_per_sm"] == min(limits)


@each_record(BUNDLED)
def test_shared_wavefronts_are_at_most_those_counted(path: Path) -> None:
    """The counters add arbitration between warps."""
    for kind, op in (("load", "ld"), ("store", "st")):
        counted = measured(path)[f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum"]
        ideal = estimated(path)["counters"][f"shared_{kind}_wavefronts"]
        assert ideal is not None
        if counted == 0 or ideal == 0:
            assert ideal == counted
        assert ideal <= counted <= 1.9 * ideal


@each_record(BUNDLED)
def test_executed_instructions_are_those_of_the_hardware(path: Path) -> None:
    """Of the machine code beside the record: the counter, or unknown where data decide."""
    data, counter = estimated(path), measured(path)["smsp__inst_executed.sum"]
    executed = data["counters"]["instructions_executed"]
    if path.stem == "inductor_gelu_naive_0":
        assert executed is None
        (reason,) = (
            u["reason"] for u in data["unknown"] if u["field"] == "counters.instructions_executed"
        )
        assert "floating point" in reason
    else:
        assert executed == counter


@each_record(BUNDLED)
def test_compulsory_bytes_are_at_most_those_asked_for(path: Path) -> None:
    data = estimated(path)
    for kind in ("read", "write"):
        size = data["compulsory"][f"{kind}_bytes"]
        asked = data["counters"][f"global_{'load' if kind == 'read' else 'store'}_sectors"]
        if size is not None and asked is not None:
            assert size <= 32 * asked
            pointers = data["compulsory"]["pointers"]
            assert size == sum(p[f"{kind}_bytes"] for p in pointers)


@each_record(BUNDLED)
def test_rows_add_up_to_the_counters(path: Path) -> None:
    data = estimated(path)
    rows = data["accesses"]
    assert data["analysed"] == {
        "accesses": sum(row["requests"] is not None for row in rows),
        "of": len(rows),
        "missing": sum(row["requests"] is None for row in rows),
    }
    for kind in ("load", "store"):
        kinds = (kind, "async_copy") if kind == "load" else (kind,)
        some = [r for r in rows if r["space"] == "global" and r["kind"] in kinds]
        total = data["counters"][f"global_{kind}_sectors"]
        if total is not None:
            assert total == sum(r["cost"] for r in some)
    for row in rows:
        assert (row["requests"] is None) == (row["reason"] is not None)
        if row["requests"] is not None:
            assert row["ideal_cost"] <= row["cost"] <= row["worst"] * row["requests"]


def numbers(traffic: Traffic) -> dict[str, Any]:
    """Everything but names."""
    data = traffic.to_dict()
    for key in ("kernel", "file", "arguments", "unknown", "assumptions"):
        del data[key]
    for pointer in data["pointers"]:
        del pointer["pointer"]
    data["findings"] = [
        {key: finding[key] for key in ("id", "severity", "line", "saves")}
        for finding in data["findings"]
    ]
    for row in data["accesses"]:
        for key in ("pointer", "address", "condition", "reason"):
            del row[key]
    for row in data["compulsory"]["pointers"]:
        del row["pointer"]
    return data


@pytest.mark.parametrize("name", BUNDLED)
def test_names_mean_nothing(path: Path, tmp_path: Path) -> None:
    launch = Launch.from_record(path)
    assert launch.ptx is not None
    text = launch.ptx.read_text("utf-8")
    found = re.search(r"\.entry\s+(\w+)", text)
    assert found is not None
    renamed = re.sub(rf"\b{found[1]}(?=\b|_param_)", "zebra", text)
    renamed = re.sub(r"_param_(\d+)", r"_unlike_\1", renamed)
    other = tmp_path / "zebra.ptx"
    other.write_text(renamed, "utf-8")
    names = [dataclasses.replace(p, name=f"q{99 - i}") for i, p in enumerate(launch.params)]
    relabelled = dataclasses.replace(launch, kernel="other", params=tuple(names))
    alone = tmp_path / "before.ptx"  # without the cubin, which has the old names
    alone.write_text(text, "utf-8")
    before = estimate(alone, launch, findings=True)
    after = estimate(other, relabelled, findings=True)
    assert after.kernel == "zebra"
    assert numbers(before) == numbers(after)
