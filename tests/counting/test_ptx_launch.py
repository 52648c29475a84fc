"""A launch counted by classes against the same launch run thread by thread.

The interpreter (tests/oracle/interpreter.py) runs every block of small launches; requests, sectors
and bank wavefronts are then counted from its trace, one warp at a time, in plain Python.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from kanalyze.counting.ptx_launch import KernelLaunch, rule_of
from kanalyze.launch.record import Launch, LaunchParam
from kanalyze.models.footprint import Footprint
from kanalyze.ptx import ir
from kanalyze.ptx.cfg import build
from kanalyze.ptx.parse import parse_ptx
from kanalyze.symbolic import accesses as addresses
from tests.oracle.interpreter import Access, run
from tests.oracle.lanes import warps_of, wavefronts

pytest.importorskip("triton")

from kanalyze.frontend.compile import Compiled, compile_kernel

pytestmark = pytest.mark.slow("runs every thread of whole launches in the interpreter")

CASES: list[tuple[str, dict[str, int], str | None, str]] = [
    ("gelu", {"n": 3001}, None, "sm_90"),
    ("gelu", {"n": 4096}, "fp16", "sm_100"),
    ("softmax", {"M": 3, "N": 1001}, "fp16", "sm_80"),
    ("softmax", {"M": 3, "N": 4099}, None, "sm_90"),
    ("row_sum", {"M": 5, "N": 5000}, None, "sm_120"),
    ("matmul_relu", {"M": 300, "N": 272, "K": 136, "GROUP_M": 2}, None, "sm_90"),
    ("matmul_relu", {"M": 200, "N": 193, "K": 70}, None, "sm_80"),
    ("matmul_relu", {"M": 160, "N": 144, "K": 100}, "fp32", "sm_100"),
    ("flash_attention", {"B": 2, "H": 2, "T": 200, "D": 64, "causal": 1}, None, "sm_90"),
    ("flash_attention", {"B": 1, "H": 3, "T": 131, "D": 40, "causal": 0}, "bf16", "sm_120"),
]
STORAGE = {"fp32": np.float32, "fp16": np.uint16, "bf16": np.uint16, "i8": np.uint8}
PLACES = 1 << 40


def compiled_of(case: tuple[str, dict[str, int], str | None, str]) -> Compiled:
    name, settings, dtype, arch = case
    return compile_kernel(name, arch=arch, settings=settings, dtype=dtype)


def launch_of(compiled: Compiled, shift: int) -> tuple[Launch, list[Any]]:
    """The launch for kanalyze and the interpreter's arguments; pointers moved by ``shift``."""
    params: list[LaunchParam] = []
    values: list[Any] = []
    for name, kind in compiled.signature.items():
        if kind == "constexpr":
            continue
        value = compiled.arguments[name]
        if isinstance(value, tuple):
            place = PLACES * (len(params) + 1) + shift
            params.append(LaunchParam(name, kind, place))
            values.append((place, np.zeros(value[2], STORAGE[value[1]])))
        else:
            params.append(LaunchParam(name, kind, value if isinstance(value, int) else None))
            values.append(value)
    x, y, z = (*(compiled.grid or ()), 1, 1)[:3]
    threads = 32 * compiled.metadata["num_warps"]
    return Launch(compiled.name, (x, y, z), (threads, 1, 1), tuple(params)), values


@pytest.mark.parametrize("shift", [0, 4112], ids=["aligned", "moved by 4112 bytes"])
@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0]}-{c[3]}-{'-'.join(map(str, c[1]))}")
def test_counts_equal_those_of_the_trace(case: Any, shift: int) -> None:
    compiled = compiled_of(case)
    launch, values = launch_of(compiled, shift)
    blocks = [
        (x, y, z)
        for z in range(launch.grid[2])
        for y in range(launch.grid[1])
        for x in range(launch.grid[0])
    ]
    trace = run(compiled.ptx, compiled.name, launch.grid, launch.block, values, blocks)
    by_line: dict[int, list[Access]] = defaultdict(list)
    for record in trace.accesses:
        by_line[record.line].append(record)

    module = parse_ptx(compiled.ptx)
    function = module.entries[0]
    cfg = build(function)
    variables = {v.name: v for v in module.variables}
    variables |= {s.name: s for s in function.body or () if isinstance(s, ir.Variable)}
    found = addresses.find(cfg, variables)
    launched = KernelLaunch(cfg, found, variables, launch)
    counted = 0
    for access in found.accesses:
        if rule_of(access) is None:
            continue
        cost = launched.transactions(access)
        assert cost.counted is not None, cost.reason
        warps = [w for r in by_line[access.instruction.pos.line] for w in warps_of(r)]
        executed = [(where, on) for where, on in warps if on.any()]
        assert cost.counted.requests == len(executed)
        assert cost.counted.threads == sum(int(on.sum()) for _, on in executed)
        if access.row.space == "global":
            expected = sum(len({int(a) // 32 for a in where[on]}) for where, on in executed)
        else:
            expected = sum(
                wavefronts(access.instruction.base, access.row.kind, access.row.bytes_per_thread,
                           access.row.vector, where, on)
                for where, on in executed
            )  # fmt: skip
        assert cost.counted.transactions == expected, access.instruction.opcode
        if access.row.space == "global":
            low, high = launched.span(access)
            footprint = Footprint.over(low, high + 16)
            launched.mark(access, footprint)
            width = access.row.bytes_per_thread or 0
            touched = {
                s for where, on in executed for a in where[on]
                for s in range(int(a) // 32, (int(a) + width - 1) // 32 + 1)
            }  # fmt: skip
            assert footprint.sectors == len(touched)
        counted += 1
    assert counted >= 2
    for index in cfg.order:
        runs = launched.runs(index)
        if runs.reason is not None:
            assert "mbarrier" in runs.reason
            continue
        lines = [i.pos.line for i in cfg.blocks[index].instructions if i.pos.line in by_line]
        for line in lines[:1]:
            reached = sum(int(r.reached.sum()) for r in by_line[line])
            assert runs.threads == reached


def test_a_launch_of_many_blocks_costs_what_its_classes_cost() -> None:
    """65,536 blocks of GeLU, counted by hand: two vectors of 16 bytes for each thread."""
    compiled = compile_kernel("gelu")
    launch = launch_of_example(compiled)
    module = parse_ptx(compiled.ptx)
    function = module.entries[0]
    cfg = build(function)
    found = addresses.find(cfg, {})
    launched = KernelLaunch(cfg, found, {}, launch)
    blocks, warps = math.prod(launch.grid), launch.block[0] // 32
    for access in found.accesses:
        counted = launched.transactions(access).counted
        assert counted is not None
        assert (counted.requests, counted.transactions) == (blocks * warps, blocks * warps * 16)


def launch_of_example(compiled: Compiled) -> Launch:
    params = [
        LaunchParam(name, kind, PLACES if kind.startswith("*") else compiled.arguments[name])
        for name, kind in compiled.signature.items()
        if kind != "constexpr"
    ]
    x, y, z = (*(compiled.grid or ()), 1, 1)[:3]
    return Launch(compiled.name, (x, y, z), (128, 1, 1), tuple(params))
