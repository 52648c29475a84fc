"""Launches of kernels that no rule was fitted to, against an H200's counters, to the last unit."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kanalyze.launch.record import Launch
from kanalyze.ptx.parse import parse_ptx
from tests.counted import estimate

pytestmark = pytest.mark.slow("estimates and simulates whole launches")

RECORDS = Path(__file__).parents[2] / "samples" / "records" / "unfitted_h200.json.gz"
PARTED = {
    "saxpy_stride": "went different ways stay apart",
    "histogram": "leave a loop in different iterations",
}
DATA_DEPENDENT = {"gather_rows": ("global_load",)}


@cache
def records() -> dict[str, dict[str, Any]]:
    with gzip.open(RECORDS, "rt") as file:
        return {record["case"]: record for record in json.load(file)}


@pytest.mark.parametrize("case", sorted(records()))
def test_requests_and_sectors_equal_the_counters(case: str) -> None:
    record = records()[case]
    launch = Launch.from_record(record)
    traffic = estimate(parse_ptx(record["ptx"], f"{case}.ptx"), launch)
    kinds = {"load": "ld", "store": "st", "reduction": "red", "atomic": "atom"}
    for kind, counter in kinds.items():
        for what in ("requests", "sectors"):
            name = f"global_{kind}_{what}"
            measured = record["counters"][f"l1tex__t_{what}_pipe_lsu_mem_global_op_{counter}.sum"]
            if what == "sectors" and f"global_{kind}" in DATA_DEPENDENT.get(case, ()):
                assert traffic.counters[name] is None
                reasons = {u.field: u.reason for u in traffic.unknown}
                assert "depends on data" in reasons[f"counters.{name}"]
            else:
                assert traffic.counters[name] == measured, name


@pytest.mark.parametrize("case", sorted(records()))
def test_executed_instructions_equal_the_counter(case: str) -> None:
    record = records()[case]
    launch = Launch.from_record(record)
    traffic = estimate(parse_ptx(record["ptx"]), launch, cubin=bytes.fromhex(record["cubin"]))
    executed = traffic.counters["instructions_executed"]
    if case in PARTED:
        assert executed is None
        reasons = {u.field: u.reason for u in traffic.unknown}
        assert PARTED[case] in reasons["counters.instructions_executed"]
    else:
        assert executed == record["counters"]["smsp__inst_executed.sum"]


@pytest.mark.parametrize("case", sorted(records()))
def test_occupancy_equals_the_counter(case: str) -> None:
    record = records()[case]
    traffic = estimate(parse_ptx(record["ptx"]), Launch.from_record(record))
    assert traffic.occupancy is not None
    assert traffic.occupancy.percent == pytest.approx(
        record["counters"]["sm__maximum_warps_per_active_cycle_pct"]
    )


def test_the_layout_that_removes_conflicts_is_the_one_of_the_padded_kernel() -> None:
    """The tile of the transpose padded by one float: counted beforehand, and measured."""
    conflicting, padded = records()["transpose_shared_2048"], records()["transpose_padded_2048"]
    traffic = estimate(parse_ptx(conflicting["ptx"]), Launch.from_record(conflicting))
    (layout,) = traffic.layouts
    assert layout.change == "each row of 128 bytes padded by 4 bytes"
    name = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{}.sum"
    conflicts = {op: conflicting["counters"][name.format(op)] for op in ("ld", "st")}
    assert conflicts["ld"] > 30 * 131072
    then = estimate(parse_ptx(padded["ptx"]), Launch.from_record(padded))
    assert then.layouts == ()
    assert layout.wavefronts_then == sum(
        then.counters[f"shared_{kind}_wavefronts"] or 0 for kind in ("load", "store")
    )
    wavefronts = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{}.sum"
    measured = sum(padded["counters"][wavefronts.format(op)] for op in ("ld", "st"))
    assert layout.wavefronts_then <= measured < 1.1 * layout.wavefronts_then
