"""Bytes that threads move and warps that branches split, against the trace of every thread."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kanalyze import estimate, parse_ptx
from kanalyze.counting.sass_launch import SassKernelLaunch
from kanalyze.errors import Unknown
from kanalyze.frontend.subject import Subject
from kanalyze.kernel.resources import assemble
from kanalyze.launch.record import Launch, LaunchParam
from kanalyze.models.intensity import intensity
from kanalyze.performance.cache_sim.results import COUNTERS
from kanalyze.render.traffic_text import render
from kanalyze.results import traffic as doc
from kanalyze.sass import cfg as sass_cfg
from tests.oracle.interpreter import Trace, run

pytestmark = pytest.mark.slow("runs every thread of whole launches in the interpreter")

ROOT = Path(__file__).parents[2]
HEAD = """.version 8.7
.target sm_90
.address_size 64
.visible .entry k(.param .u64 .ptr .global .align 16 x, .param .u32 n) .reqntid 96
{
.reg .pred %p<9>;
.reg .b32 %r<40>;
.reg .b64 %rd<40>;
.local .align 16 .b8 array[64];
.shared .align 16 .b8 tile[2048];
ld.param.u64 %rd1, [x];
ld.param.u32 %r1, [n];
mov.u32 %r2, %tid.x;
mov.u32 %r3, %ctaid.x;
mad.lo.s32 %r4, %r3, 96, %r2;
mul.wide.u32 %rd2, %r4, 16;
add.s64 %rd3, %rd1, %rd2;
"""
BODIES = {
    "bounds": """setp.ge.s32 %p1, %r4, %r1;
@%p1 bra END;
ld.global.v4.b32 {%r5, %r6, %r7, %r8}, [%rd3];
st.global.b32 [%rd3], %r5;
END:
ret;
}
""",
    "two sides": """and.b32 %r5, %r2, 1;
setp.eq.s32 %p1, %r5, 0;
setp.lt.s32 %p2, %r4, %r1;
@!%p2 bra JOIN;
@%p1 bra EVEN;
ld.global.b32 %r6, [%rd3];
bra.uni JOIN;
EVEN:
ld.global.v2.b32 {%r6, %r7}, [%rd3];
JOIN:
ret;
}
""",
    "different lengths": """and.b32 %r5, %r2, 3;
mov.u32 %r6, 0;
mov.u64 %rd4, %rd3;
LOOP:
ld.global.b32 %r7, [%rd4];
add.s32 %r6, %r6, 1;
setp.le.s32 %p1, %r6, %r5;
@%p1 bra LOOP;
setp.gt.s32 %p2, %r1, 100;
@%p2 bra END;
st.global.b32 [%rd3], %r6;
END:
ret;
}
""",
    "spaces": """mov.u32 %r5, tile;
shl.b32 %r6, %r2, 4;
add.s32 %r7, %r5, %r6;
setp.lt.s32 %p1, %r4, %r1;
selp.b32 %r10, 16, 0, %p1;
cp.async.cg.shared.global [%r7], [%rd3], 16, %r10;
cp.async.commit_group;
cp.async.wait_group 0;
mov.u32 %r20, 0;
mov.u64 %rd5, array;
st.local.v2.b32 [%rd5], {%r6, %r7};
ld.local.b32 %r8, [%rd5];
@%p1 ld.shared.v4.b32 {%r11, %r12, %r13, %r14}, [%r7];
@%p1 red.global.add.u32 [%rd3], 1;
@%p1 atom.global.add.u32 %r20, [%rd3], %r8;
st.global.b32 [%rd3], %r20;
ret;
}
""",
}
PLACE = 1 << 40


def estimated(body: str, n: int, blocks: int) -> tuple[doc.Traffic, Trace]:
    text = HEAD + BODIES[body]
    params = (LaunchParam("x", "*fp32", PLACE), LaunchParam("n", "i32", n))
    launch = Launch("k", (blocks, 1, 1), (96, 1, 1), params, registers_per_thread=32)
    data = np.zeros(96 * blocks * 4, np.uint32)
    indices = [(block, 0, 0) for block in range(blocks)]
    trace = run(text, "k", (blocks, 1, 1), (96, 1, 1), [(PLACE, data), n], indices)
    return estimate(parse_ptx(text), launch, simulate=False, findings=False), trace


@pytest.mark.parametrize("n", [0, 1, 33, 150, 288, 1000])
@pytest.mark.parametrize("body", BODIES)
def test_branches_and_bytes_equal_those_of_the_trace(body: str, n: int) -> None:
    found, trace = estimated(body, n, 3)
    executed, split = branches_of(trace)
    for branch in found.branches:
        assert branch.reason is None
        assert branch.executed_warps == executed.pop(branch.line, 0)
        assert branch.divergent_warps == split[branch.line]
    assert not executed
    assert moved(found) == traced(trace)


def branches_of(trace: Trace) -> tuple[dict[int, int], dict[int, int]]:
    """Warps that execute each branch, and those that take both sides, by line."""
    executed: dict[int, int] = defaultdict(int)
    split: dict[int, int] = defaultdict(int)
    for record in trace.branches:
        reached, taken = record.reached.reshape(-1, 32), record.taken.reshape(-1, 32)
        executed[record.line] += int(reached.any(axis=1).sum())
        both = taken.any(axis=1) & (reached & ~taken).any(axis=1)
        split[record.line] += int(both.sum())
    return executed, split


def moved(found: doc.Traffic) -> dict[tuple[str, str], int | None]:
    return {
        (space, kind): size
        for space, kinds in found.bytes_by_space.items()
        for kind, size in kinds.items()
        if space != "spill" and size != 0
    }


KINDS = {
    "ldmatrix": "load",
    "stmatrix": "store",
    "ld": "load",
    "st": "store",
    "cp": "async_copy",
    "atom": "atomic",
    "red": "reduction",
}


def traced(trace: Trace) -> dict[tuple[str, str], int]:
    total: dict[tuple[str, str], int] = defaultdict(int)
    for record in trace.accesses:
        parts = record.opcode.split(".")
        space, size = ("global" if parts[0] == "cp" else parts[1]), record.bytes
        if parts[0] in ("ldmatrix", "stmatrix"):  # a register of each thread for each matrix
            space, size = "shared", 4 * int(next(p for p in parts if p in ("x1", "x2", "x4"))[1])
        if space == "param":
            continue
        active = record.active
        if record.source_size is not None:
            active = active & (record.source_size > 0)
        if active.any():
            total[space, KINDS[parts[0]]] += int(active.sum()) * size
    return dict(total)


def test_what_is_split_is_told() -> None:
    found, _ = estimated("two sides", 150, 3)
    text = render(found)
    assert "5 of 5 warp executions take both sides (100 %)" in text
    assert "1 of 9 warp executions take both sides (11.1 %)" in text
    found, _ = estimated("bounds", 96, 1)
    assert "1 branch splits no warp" in render(found)


pytest.importorskip("triton")
from tests.counting.test_ptx_launch import CASES, compiled_of, launch_of  # noqa: E402


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0]}-{c[3]}-{'-'.join(map(str, c[1]))}")
def test_bundled_kernels_equal_their_traces(case: Any) -> None:
    compiled = compiled_of(case)
    launch, values = launch_of(compiled, 0)
    x, y, z = launch.grid
    indices = [(i, j, k) for k in range(z) for j in range(y) for i in range(x)]
    trace = run(compiled.ptx, compiled.name, launch.grid, launch.block, values, indices)
    found = estimate(compiled, launch, simulate=False, findings=False)
    executed, split = branches_of(trace)
    for branch in found.branches:
        if branch.reason is not None:
            assert "mbarrier" in branch.reason
            continue
        assert branch.executed_warps == executed[branch.line]
        assert branch.divergent_warps == split[branch.line]
    spaces = {(space, kind): size for (space, kind), size in traced(trace).items()}
    for (space, kind), size in moved(found).items():
        assert size == spaces[space, kind], (space, kind)


def test_a_sum_in_two_orders() -> None:
    """By hand: of 8 warps a block, 8 are split in 5 steps, then 4, 2, 1; or one in each of 5."""
    path = ROOT / "samples" / "cuda" / "reduce.ptx"
    launch = Launch.from_record(path.with_suffix(".json"))
    found = estimate(path, launch, simulate=False, findings=False)
    splits = [b.divergent_warps for b in found.branches]
    assert splits == [1024 * n for n in (8, 8, 8, 8, 8, 4, 2, 1, 1)]
    assert {b.executed_warps for b in found.branches} == {8 * 1024}
    text = " ".join(render(found, width=200).split())
    assert "8 branches, reduce.cu:19, PTX lines 56-154: 48,128 of 65,536 warp executions" in text
    halves = estimate(path, launch, kernel="reduce_halves", simulate=False, findings=False).branches
    assert [b.divergent_warps for b in halves] == [1024 * n for n in (0, 0, 0, 1, 1, 1, 1, 1, 1)]


def test_a_branch_on_data_is_unknown() -> None:
    text = (
        HEAD
        + """ld.global.b32 %r5, [%rd3];
setp.eq.s32 %p1, %r5, 0;
@%p1 bra END;
st.global.b32 [%rd3], %r2;
END:
ret;
}
"""
    )
    params = (LaunchParam("x", "*fp32", PLACE), LaunchParam("n", "i32", 5))
    found = estimate(
        parse_ptx(text), Launch("k", (2, 1, 1), (96, 1, 1), params), simulate=False, findings=False
    )
    (branch,) = found.branches
    assert (branch.executed_warps, branch.divergent_warps) == (6, None)
    assert branch.reason is not None
    assert found.bytes_by_space["global"] == {"load": 2 * 96 * 4, "store": None}
    reasons = {unknown.field: unknown.reason for unknown in found.unknown}
    assert reasons["bytes_by_space.global.store"]
    assert "is unknown (" in render(found)


def test_spills_are_those_of_the_machine_code() -> None:
    """40 values that stay alive over a barrier with 24 registers: spilled by each thread."""
    pytest.importorskip("triton")
    numbers = range(40)
    loads = "".join(f"ld.global.b32 %r{i}, [%rd3+{512 * i}];\n" for i in numbers)
    stores = "".join(f"st.global.b32 [%rd3+{512 * i}], %r{i};\n" for i in reversed(numbers))
    head = HEAD.replace(".local .align 16 .b8 array[64];\n", "").replace(
        ".reqntid 96", ".maxnreg 24"
    )
    text = f"{head}{loads}bar.sync 0;\n{stores}ret;\n}}\n"
    params = (LaunchParam("x", "*fp32", PLACE), LaunchParam("n", "i32", 5))
    found = estimate(
        parse_ptx(text), Launch("k", (4, 1, 1), (96, 1, 1), params), simulate=False, findings=False
    )
    spills = found.bytes_by_space["spill"]
    threads = 4 * 96
    assert spills["store"] is not None
    assert spills["store"] > 0
    assert spills["store"] % threads == 0
    assert spills["load"] == spills["store"]
    assert f"spill load {spills['store']:,}" in render(found, width=300)


LOCAL = """mov.u64 %rd5, array;
and.b32 %r6, %r2, 15;
mul.wide.u32 %rd6, %r6, 4;
add.s64 %rd7, %rd5, %rd6;
st.volatile.local.b32 [%rd5], %r2;
st.volatile.local.b32 [%rd5+32], %r2;
ld.global.b32 %r9, [%rd3];
mov.u32 %r8, 0;
"""


@pytest.mark.parametrize(
    ("body", "loads"),
    [
        ("ld.volatile.local.b32 %r8, [%rd7];\n", 2 * 96 * 4),
        ("setp.lt.u32 %p1, %r2, %r1;\n@%p1 ld.volatile.local.b32 %r8, [%rd7];\n", 2 * 5 * 4),
        ("setp.lt.u32 %p1, %r2, %r9;\n@%p1 ld.volatile.local.b32 %r8, [%rd7];\n", None),
        ("LOOP:\nld.volatile.local.b32 %r8, [%rd7];\nadd.s32 %r9, %r9, %r8;\n"
         "setp.lt.s32 %p1, %r9, 9;\n@%p1 bra LOOP;\n", None),
    ],
    ids=["always", "condition", "data decide", "loop that data end"],
)  # fmt: skip
def test_what_is_unknown_of_local_memory_makes_bytes_and_time_unknown(
    body: str, loads: int | None
) -> None:
    """2 blocks of 96 threads; 5 of each block load where n decides."""
    pytest.importorskip("triton")
    head = HEAD.replace("8.7", "9.1")
    module = parse_ptx(head + LOCAL + body + "st.global.b32 [%rd3], %r8;\nret;\n}\n")
    params = (LaunchParam("x", "*fp32", PLACE), LaunchParam("n", "i32", 5))
    launch = Launch("k", (2, 1, 1), (96, 1, 1), params)
    subject = Subject(module, "k.ptx", launch=launch)
    code = assemble(subject).code()
    assert not isinstance(code, Unknown)
    (function,) = code.module.functions
    parameters = module.entries[0].parameters
    launched = SassKernelLaunch(sass_cfg.build(function), code.module, parameters, launch)
    told = launched.local_bytes()
    found = estimate(module, launch, device="H200", findings=False)
    numbers = [*(found.counters[name] for name in COUNTERS), found.time.predicted_us]
    if loads is None:
        assert isinstance(told, Unknown)
        assert numbers == [None] * len(numbers)
        reasons = {unknown.field: unknown.reason for unknown in found.unknown}
        assert told.reason in reasons["counters.dram_read_bytes"]
        assert told.reason in reasons["time.predicted_us"]
    else:
        assert not isinstance(told, Unknown)
        assert (told["load"], told["store"] % (2 * 96 * 4)) == (loads, 0)
        assert None not in numbers


def test_intensity_by_level() -> None:
    sectors: dict[str, int | None] = {
        "global_load_sectors": 100, "global_store_sectors": 20, "global_atomic_sectors": 3,
        "global_reduction_sectors": 2, "l1_miss_sectors": 40,
        "bulk_load_sectors": 0, "bulk_store_sectors": 0, "bulk_reduction_sectors": 0,
    }  # fmt: skip
    found: dict[str, Any] = intensity(64_000.0, sectors, 1000)
    assert found == {"l1": 64_000 / (125 * 32), "l2": 64_000 / (65 * 32), "hbm": 64.0}
    found = intensity(64_000.0, {**sectors, "l1_miss_sectors": None}, None)
    assert found["l1"] == 16
    assert found["l2"] == Unknown("l1_miss_sectors are not known")
    assert found["hbm"] == Unknown("bytes are not known")
    found = intensity(None, sectors, 0)
    assert set(found.values()) == {Unknown("operations are not known")}
    assert intensity(0.0, sectors, 0) == {"l1": 0, "l2": 0, "hbm": Unknown("no bytes are moved")}
