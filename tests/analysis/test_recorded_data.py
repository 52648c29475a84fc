"""Gathers whose data are known, and copies through tensor maps, against an H200's counters."""

from __future__ import annotations

import dataclasses
import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kanalyze import Launch, Traffic, parse_ptx
from tests.counted import estimate

pytestmark = pytest.mark.slow("estimates and simulates whole launches")

RECORDS = Path(__file__).parents[2] / "samples" / "records" / "with_data_h200.json.gz"
KINDS = {"load": "ld", "store": "st", "reduction": "red", "atomic": "atom"}
GATHERS = (
    "elements_1000", "elements_50000", "elements_4000000", "rows_300", "chained", "segments",
    "bins", "chosen",
)  # fmt: skip
COPIES = ("host_copy", "device_copy", "device_add", "matmul_tma")
THROUGH_SHARED = {"bins": "reduction"}
"""Accesses whose index passes through shared memory first, which is not followed."""


@cache
def records() -> dict[str, dict[str, Any]]:
    with gzip.open(RECORDS, "rt") as file:
        return {record["case"]: record for record in json.load(file)}


def array(made: list[Any]) -> Any:
    """The array that was recorded: see benchmarks/records/with_data.py."""
    seed, low, high, shape, kind = made
    if kind != "starts":
        return np.random.default_rng(seed).integers(low, high, shape).astype(kind)
    lengths = np.random.default_rng(seed).integers(0, high, shape)
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)


def launch_of(case: str) -> Launch:
    return Launch.from_record(records()[case])


def estimated(case: str, assume: dict[str, Any] | None = None) -> Traffic:
    record = records()[case]
    return estimate(
        parse_ptx(record["ptx"], f"{case}.ptx"), launch_of(case),
        cubin=bytes.fromhex(record["cubin"]), assume=assume,
    )  # fmt: skip


@cache
def with_data(case: str) -> Traffic:
    params = records()[case]["params"]
    return estimated(case, {p["name"]: array(p["integers"]) for p in params if "integers" in p})


def test_all_launches_are_here() -> None:
    assert sorted(records()) == sorted((*GATHERS, *COPIES))


@pytest.mark.parametrize("case", [*GATHERS, *COPIES])
def test_requests_and_sectors_equal_the_counters(case: str) -> None:
    measured = records()[case]["counters"]
    for kind, op in KINDS.items():
        for what in ("requests", "sectors"):
            name = f"global_{kind}_{what}"
            if what == "sectors" and THROUGH_SHARED.get(case) == kind:
                assert with_data(case).counters[name] is None
                reasons = {u.field: u.reason for u in with_data(case).unknown}
                assert "data loaded by LDS" in reasons[f"counters.{name}"]
            else:
                counter = measured[f"l1tex__t_{what}_pipe_lsu_mem_global_op_{op}.sum"]
                assert with_data(case).counters[name] == counter, name


@pytest.mark.parametrize("case", GATHERS)
def test_executed_instructions_equal_the_counter(case: str) -> None:
    measured = records()[case]["counters"]["smsp__inst_executed.sum"]
    assert with_data(case).counters["instructions_executed"] == measured


@pytest.mark.parametrize("case", GATHERS)
def test_without_the_data_it_is_unknown(case: str) -> None:
    traffic = estimated(case)
    unknown = {u.field for u in traffic.unknown}
    assert unknown & {"counters.global_load_sectors", "counters.global_reduction_sectors"}


@pytest.mark.parametrize(
    ("case", "array_of", "lanes", "floats"),
    [
        ("elements_1000", 1000, 32, 1000),
        ("elements_50000", 50000, 32, 50000),
        ("elements_4000000", 4000000, 32, 4000000),
    ],
)
def test_a_draw_of_the_same_kind_is_as_near_as_chance_allows(
    case: str, array_of: int, lanes: int, floats: int
) -> None:
    """The measured launch is a draw, too: both lie about the mean, some deviations apart."""
    traffic = estimated(case, {"index_ptr": f"uniform:0:{array_of}:1234"})
    measured = records()[case]["counters"]["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"]
    sectors, warps = floats // 8, (1 << 20) // lanes
    empty, two_empty = (1 - 1 / sectors) ** lanes, (1 - 2 / sectors) ** lanes
    variance = sectors * (sectors - 1) * two_empty + sectors * empty - (sectors * empty) ** 2
    deviation = (2 * warps * variance) ** 0.5
    counted = traffic.counters["global_load_sectors"]
    assert counted is not None
    assert 0 < abs(counted - measured) < 4 * deviation
    assert deviation < 0.001 * measured
    low, high = traffic.interval["global_load_sectors"]
    assert low <= counted <= high


# ---------------------------------------------------------------- tensor maps


@pytest.mark.parametrize("case", COPIES)
def test_boxes_that_are_written_are_the_sectors_written(case: str) -> None:
    """All that these kernels write goes through tensor maps; two write the maps themselves, too."""
    counters, measured = with_data(case).counters, records()[case]["counters"]
    written = (counters["bulk_store_sectors"] or 0) + (counters["bulk_reduction_sectors"] or 0)
    maps = counters["global_atomic_sectors"] or 0
    assert written > 0
    assert written + maps == measured["l1tex__m_l1tex2xbar_write_sectors.sum"]


@pytest.mark.parametrize("case", ["host_copy", "matmul_tma"])
def test_boxes_that_are_read_are_within_the_sectors_read(case: str) -> None:
    """The counter has elements out of bounds, too, and the maps: boxes are counted whole with it.

    Extents that are multiples of the box, in the tensor map alone, put all elements in bounds.
    """
    measured = records()[case]["counters"]["l1tex__m_xbar2l1tex_read_sectors.sum"]
    within = with_data(case).counters["bulk_load_sectors"]
    launch = launch_of(case)
    params = []
    for param in launch.params:
        tensor = param.tensor_map
        if tensor is not None:
            whole = tuple(1 << 20 for _ in tensor.dims)
            param = dataclasses.replace(param, tensor_map=dataclasses.replace(tensor, dims=whole))
        params.append(param)
    whole_boxes = estimate(
        parse_ptx(records()[case]["ptx"]), dataclasses.replace(launch, params=tuple(params))
    )
    read = whole_boxes.counters["bulk_load_sectors"]
    assert within is not None
    assert read is not None
    copies = sum(row.requests or 0 for row in whole_boxes.accesses if row.kind == "bulk_load")
    assert within < read <= measured <= read + 4 * copies


def test_bytes_that_boxes_move() -> None:
    traffic = with_data("host_copy")
    assert traffic.bytes_by_space["global"] == {
        "bulk_load": 16 * 18 * 64 * 64 * 2,
        "bulk_store": 16 * 18 * 64 * 64 * 2,
    }
    for pointer in traffic.compulsory.pointers:
        assert (pointer.read_bytes or 0) + (pointer.write_bytes or 0) == 1000 * 1096 * 2
