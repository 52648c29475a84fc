"""Loads that the assembler merges or drops are counted as it left them; the others as in the PTX.

The expected numbers are made by hand: which loads are left is read from the disassembly.
"""

from __future__ import annotations

import re
from collections import Counter

import pytest

from kanalyze import Launch, estimate, parse_ptx
from kanalyze.counting.sass_launch import SassKernelLaunch, Total
from kanalyze.errors import MissingToolError
from kanalyze.toolchain import ptxas, tools

WARPS = 4 * 8


def ptx(loads: str) -> str:
    return f""".version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 x, .param .u64 y)
.reqntid 256
{{
 .reg .b32 %r<12>;
 .reg .b64 %rd<8>;
 ld.param.u64 %rd1, [x];
 ld.param.u64 %rd2, [y];
 mov.u32 %r1, %tid.x;
 shr.u32 %r2, %r1, 3;
 mul.wide.u32 %rd3, %r2, 4;
 add.s64 %rd3, %rd1, %rd3;
 mul.wide.u32 %rd4, %r1, 4;
 add.s64 %rd4, %rd2, %rd4;
{loads}
 st.global.b32 [%rd4], %r8;
 ret;
}}
"""


LAUNCH = Launch.from_record(
    {
        "kernel": "k",
        "grid": [4],
        "block": [256],
        "params": [
            {"name": "x", "type": "*fp32", "address": 1 << 40},
            {"name": "y", "type": "*fp32", "address": 1 << 41},
        ],
    }
)
SAME = """ ld.global.nc.b32 %r3, [%rd3];
 ld.global.nc.b32 %r4, [%rd3];
 ld.global.nc.b32 %r5, [%rd3];
 add.s32 %r6, %r3, %r4;
 add.s32 %r8, %r6, %r5;"""
UNUSED = """ ld.global.nc.b32 %r3, [%rd3];
 ld.global.nc.b32 %r8, [%rd3+256];"""
KEPT = """ ld.global.nc.b32 %r3, [%rd3];
 ld.global.nc.b32 %r4, [%rd3+256];
 add.s32 %r8, %r3, %r4;"""


@pytest.mark.parametrize(
    ("loads", "left", "said"),
    [(SAME, 1, True), (UNUSED, 1, True), (KEPT, 2, False)],
    ids=["equal addresses", "nothing reads it", "all are needed"],
)
def test_global_loads_are_those_that_run(loads: str, left: int, said: bool) -> None:
    text = ptx(loads)
    try:
        listing = tools.disassemble(ptxas.assemble(text).cubin)
    except MissingToolError as error:
        pytest.skip(str(error))
    assert len(re.findall(r"\bLDG\b", listing)) == left  # else the assembler does otherwise
    traffic = estimate(parse_ptx(text), LAUNCH, simulate=False, findings=False)
    assert traffic.counters["global_load_requests"] == left * WARPS
    assert traffic.counters["global_load_sectors"] == left * WARPS  # 4 words of 4 B are a sector
    assert traffic.counters["global_store_sectors"] == 4 * WARPS
    assert any("global loads" in text for text in traffic.assumptions) is said


UNROLLED = """ mov.u32 %r3, 0;
 mov.u32 %r8, 0;
 ld.global.nc.b32 %r9, [%rd2];
LOOP:
 ld.global.nc.b32 %r4, [%rd3];
 add.s32 %r8, %r8, %r4;
 add.s64 %rd3, %rd3, 4;
 add.s32 %r3, %r3, 1;
 setp.lt.u32 %p1, %r3, 16;
 @%p1 bra LOOP;
 add.s32 %r8, %r8, %r9;"""


@pytest.mark.parametrize(
    ("loads", "left", "requests"),
    [
        (UNROLLED, {4: 2}, 17 * WARPS),  # the same instructions
        (UNROLLED, {4: 8}, 17 * WARPS),  # four copies, and nothing could be merged
        (UNROLLED, {4: 3}, None),
        (UNROLLED, {16: 2}, None),
        (SAME, {4: 3}, 3 * WARPS),
        (SAME, {4: 6}, None),  # two copies, or six of what was one load
    ],
)
def test_where_it_is_not_known_how_often_the_machine_code_loads(
    loads: str, left: dict[int, int], requests: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = ptx(loads).replace(".reg .b64", ".reg .pred %p<2>;\n .reg .b64")
    unknown = Total(None, "the length of a loop", 0)
    monkeypatch.setattr(SassKernelLaunch, "requests", lambda self, operation: unknown)
    monkeypatch.setattr(SassKernelLaunch, "sectors", lambda self, operation: unknown)
    widths = SassKernelLaunch.widths
    monkeypatch.setattr(
        SassKernelLaunch,
        "widths",
        lambda self, operation: Counter(left) if operation == "load" else widths(self, operation),
    )
    traffic = estimate(parse_ptx(text), LAUNCH, simulate=False, findings=False)
    assert traffic.counters["global_load_requests"] == requests
    assert (traffic.counters["global_load_sectors"] is None) is (requests is None)
