"""Executed instructions of SASS, computed, against the counters of recorded launches and the PTX.

``tests/data/sass`` holds four launches recorded on an H200; more of them are used where they lie
beside this checkout. Nothing is tuned to them: every number follows from the code and the launch.
"""

from __future__ import annotations

import json
import math
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from kanalyze.counting.ptx_launch import KernelLaunch
from kanalyze.counting.sass_launch import SassKernelLaunch
from kanalyze.launch.record import Launch, LaunchParam
from kanalyze.ptx import cfg as ptx_cfg
from kanalyze.ptx.parse import parse_ptx
from kanalyze.sass.cfg import build
from kanalyze.sass.counts import access_class
from kanalyze.sass.crosscheck import compare
from kanalyze.sass.parse import parse_sass
from kanalyze.symbolic import accesses
from kanalyze.toolchain import tools
from tests.recorded import BESIDE, each_record

pytestmark = pytest.mark.slow("disassembles and counts machine code")

BUNDLED = Path(__file__).parents[1] / "data" / "sass"

RECORDS = sorted(path.stem for path in BUNDLED.glob("*.json"))
UNKNOWN = {"inductor_gelu_naive_0": "floating point"}  # erf takes one of two ways, by the number

EXECUTED = {
    "smsp__inst_executed_op_global_ld.sum": "global load",
    "smsp__inst_executed_op_global_st.sum": "global store",
    "smsp__inst_executed_op_ldgsts.sum": "asynchronous copy",
    "smsp__inst_executed_op_ldsm.sum": "matrix load",
    "smsp__inst_executed_op_shared_stsm.sum": "matrix store",
    "smsp__inst_executed_op_shared_ld.sum": "shared load",
    "smsp__inst_executed_op_shared_st.sum": "shared store",
}
ACTIVE = {
    "smsp__sass_inst_executed_op_global_ld.sum": "global load",
    "smsp__sass_inst_executed_op_global_st.sum": "global store",
    "smsp__sass_inst_executed_op_shared_ld.sum": "shared load",
    "smsp__sass_inst_executed_op_shared_st.sum": "shared store",
    "sm__sass_l1tex_t_requests_pipe_lsu_mem_global_op_ldgsts.sum": "asynchronous copy",
}

every_record = each_record(RECORDS)


@lru_cache
def loaded(name: str) -> tuple[SassKernelLaunch, dict[str, int], str]:
    if name in RECORDS:
        folder, text = BUNDLED, (BUNDLED / f"{name}.sass").read_text("utf-8")
    else:
        folder, text = BESIDE, tools.disassemble((BESIDE / f"{name}.cubin").read_bytes())
    module = parse_sass(text)
    (entry,) = parse_ptx((folder / f"{name}.ptx").read_text("utf-8")).entries
    launch = Launch.from_record(folder / f"{name}.json")
    counters = json.loads((folder / f"{name}.json").read_text("utf-8"))["counters"]
    found = SassKernelLaunch(build(module.functions[0]), module, entry.parameters, launch)
    return found, counters, text


def active(found: SassKernelLaunch, name: str) -> int:
    """Warps that execute an instruction of a class with a lane taking part."""
    total = 0
    for cost in found.accesses:
        if access_class(cost.instruction) == name:
            assert cost.active is not None, cost.reason
            total += cost.active
    return total


@every_record
def test_executed_instructions_equal_the_counter(name: str) -> None:
    found, counters, _ = loaded(name)
    total, counter = found.instructions_executed, counters["smsp__inst_executed.sum"]
    if name in UNKNOWN:
        assert total.value is None
        assert UNKNOWN[name] in (total.reason or "")
        assert 0 < total.at_least < counter
    else:
        assert (total.value, total.reason, total.at_least) == (counter, None, counter)


@every_record
def test_executed_accesses_equal_the_counters(name: str) -> None:
    found, counters, _ = loaded(name)
    for counter, kind in EXECUTED.items():
        assert (kind, found.by_class[kind].value) == (kind, counters[counter])


@every_record
def test_accesses_with_a_lane_taking_part_equal_the_counters(name: str) -> None:
    found, counters, _ = loaded(name)
    for counter, kind in ACTIVE.items():
        assert (kind, active(found, kind)) == (kind, counters[counter])


@every_record
def test_wavefronts_are_the_counters_without_arbitration(name: str) -> None:
    found, counters, text = loaded(name)
    for kind, total in (
        ("ld", found.shared_load_wavefronts),
        ("st", found.shared_store_wavefronts),
    ):
        counter = counters[f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{kind}.sum"]
        conflicts = counters[f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{kind}.sum"]
        assert total.value is not None, total.reason
        assert total.value <= counter
        if conflicts == 0 or "HGMMA" not in text:  # warpgroups read shared memory meanwhile
            assert total.value == counter - conflicts


@every_record
def test_sums_of_blocks_are_consistent(name: str) -> None:
    found, _, _ = loaded(name)
    assert found.block_runs[0].warps == math.prod(found.launch.grid) * -(
        -math.prod(found.launch.block) // 32
    )
    for block, runs in found.block_runs.items():
        if runs.warps is not None and runs.threads is not None:
            assert runs.warps <= runs.threads <= 32 * runs.warps
        arriving = found.arrivals.get(block)
        if arriving is not None and runs.warps is not None:
            assert runs.warps <= arriving <= 32 * runs.warps


# ---------------------------------------------------------------- the bundled kernels

SETTINGS: list[tuple[str, dict[str, int], str | None]] = [
    ("gelu", {"n": 100_003}, None),
    ("gelu", {"n": 65_536}, "fp16"),
    ("softmax", {"M": 300, "N": 1001}, None),
    ("softmax", {"M": 64, "N": 4096}, "bf16"),
    ("row_sum", {"M": 77, "N": 5000}, None),
    ("row_sum", {"M": 8, "N": 1}, None),
    ("matmul_relu", {"M": 1000, "N": 776, "K": 520}, None),
    ("matmul_relu", {"M": 300, "N": 193, "K": 70}, None),
    ("matmul_relu", {"M": 512, "N": 512, "K": 64}, "fp32"),
    ("flash_attention", {"B": 2, "H": 3, "T": 500, "D": 64, "causal": 1}, None),
    ("flash_attention", {"B": 1, "H": 2, "T": 256, "D": 128, "causal": 0}, "bf16"),
]
ARCHS = ("sm_80", "sm_90", "sm_100", "sm_120")
WAITS = "mbarrier|tensor memory"


@lru_cache
def of_bundled(number: int, arch: str) -> tuple[SassKernelLaunch, KernelLaunch, Any]:
    pytest.importorskip("triton")
    from kanalyze.frontend.compile import compile_kernel

    kernel, settings, dtype = SETTINGS[number]
    compiled = compile_kernel(kernel, arch=arch, settings=settings, dtype=dtype)
    params = []
    for name, kind in compiled.signature.items():
        if kind == "constexpr":
            continue
        value = compiled.arguments[name]
        if isinstance(value, tuple):
            params.append(LaunchParam(name, kind, (len(params) + 1) << 40))
        else:
            params.append(LaunchParam(name, kind, int(value)))
    launch = Launch(
        kernel, compiled.grid, (32 * compiled.metadata["num_warps"], 1, 1), tuple(params)
    )
    ptx = parse_ptx(compiled.ptx)
    (entry,) = ptx.entries
    variables = {v.name: v for v in ptx.variables}
    cfg = ptx_cfg.build(entry)
    found = accesses.find(cfg, variables)
    above = KernelLaunch(cfg, found, variables, launch)
    module = parse_sass(tools.disassemble(compiled.cubin))
    (function,) = module.functions
    below = SassKernelLaunch(build(function), module, entry.parameters, launch)
    return below, above, compare(entry, function, found.places)


bundled = pytest.mark.parametrize("arch", ARCHS)
settings = pytest.mark.parametrize(
    "number", range(len(SETTINGS)), ids=[f"{k}-{d}-{n}" for n, (k, _, d) in enumerate(SETTINGS)]
)


@bundled
@settings
def test_every_block_is_counted_except_what_waits(number: int, arch: str) -> None:
    below, _, _ = of_bundled(number, arch)
    for runs in below.block_runs.values():
        assert runs.warps is not None or re.search(WAITS, runs.reason or ""), runs.reason
    total = below.instructions_executed
    if arch != "sm_100":
        assert total.value is not None, total.reason


@bundled
@settings
def test_accesses_are_executed_as_often_as_those_of_the_ptx(number: int, arch: str) -> None:
    below, above, rows = of_bundled(number, arch)
    compared = 0
    for category in ("global load", "global store", "asynchronous copy"):
        here = [row for row in rows if row.category == category]
        if not here or not all(row.equal for row in here):
            continue
        kind = {"asynchronous copy": "async_copy"}.get(category, category.split()[-1])
        costs = [
            above.transactions(a)
            for a in above.addresses.accesses
            if a.row.kind == kind and a.row.space == "global"
        ]
        assert all(cost.counted is not None for cost in costs)
        requests = sum(cost.counted.requests for cost in costs if cost.counted is not None)
        assert active(below, category) == requests
        issued = sum(above.runs(cost.access.block).warps or 0 for cost in costs)
        executed = below.by_class[category].value
        assert executed is not None
        assert requests <= executed <= issued  # a branch may lead around what the PTX guards
        compared += 1
    assert compared > 0


@bundled
@settings
def test_wavefronts_equal_those_of_the_ptx(number: int, arch: str) -> None:
    below, above, rows = of_bundled(number, arch)
    for kind, total in (
        ("load", below.shared_load_wavefronts),
        ("store", below.shared_store_wavefronts),
    ):
        names = (f"shared {kind}", f"matrix {kind}")
        if not all(row.equal for row in rows if row.category in names):
            continue
        costs = [
            above.transactions(a)
            for a in above.addresses.accesses
            if a.row.kind == kind and a.row.space == "shared"
        ]
        known = [cost.counted.transactions for cost in costs if cost.counted is not None]
        if len(known) == len(costs):
            assert total.value is not None, total.reason
            assert total.value <= sum(known)
            issued = sum(above.runs(cost.access.block).warps or 0 for cost in costs)
            if issued <= sum(below.by_class[name].value or 0 for name in names):
                assert total.value == sum(known)  # else threads that need it not left before it
