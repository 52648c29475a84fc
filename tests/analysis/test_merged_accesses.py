"""Accesses are counted as the assembler left them: merged, dropped, split, moved, or as in the PTX.

The expected numbers are made by hand; which machine accesses there are is read from the listing.
"""

from __future__ import annotations

import re
from collections import Counter

import pytest

from kanalyze import Launch, analyze, estimate, parse_ptx
from kanalyze.counting.sass_launch import SassKernelLaunch, Total
from kanalyze.errors import MissingToolError, Unknown
from kanalyze.render.traffic_text import render
from kanalyze.results import traffic as doc
from kanalyze.results.kernel import Kernel
from kanalyze.toolchain import ptxas, tools

W = 4 * 8  # warps


def ptx(loads: str) -> str:
    return f""".version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 x, .param .u64 y)
.reqntid 256
{{
 .reg .b32 %r<12>;
 .reg .b64 %rd<8>;
 .reg .pred %p<2>;
 .shared .align 16 .b8 s[4096];
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
 mul.lo.s32 %r4, %r3, 5;
 ld.global.nc.b32 %r8, [%rd3+256];"""
NEVER = """ ld.global.nc.b32 %r8, [%rd3];
 setp.gt.u32 %p1, %r1, 4095;
 @%p1 ld.global.nc.b32 %r8, [%rd3+256];"""
KEPT = """ ld.global.nc.b32 %r3, [%rd3];
 ld.global.nc.b32 %r4, [%rd3+256];
 add.s32 %r8, %r3, %r4;"""
UNROLLED = """ mov.u32 %r3, 0;
 mov.u32 %r8, 0;
LOOP:
 ld.global.nc.b32 %r4, [%rd3];
 ld.global.nc.b32 %r5, [%rd2];
 add.s32 %r8, %r8, %r4;
 xor.b32 %r8, %r8, %r5;
 add.s64 %rd3, %rd3, 4;
 add.s32 %r3, %r3, 1;
 setp.lt.u32 %p1, %r3, 16;
 @%p1 bra LOOP;"""
NO_LENGTH = UNROLLED.replace("%r3, 16", "%r3, %r7").replace("global.nc.b32 %r5", "global.b32 %r5")
NO_LENGTH = " ld.global.b32 %r7, [%rd1+4096];" + NO_LENGTH
SHARED = """ mov.u32 %r9, s;
 shl.b32 %r10, %r1, 4;
 add.u32 %r9, %r9, %r10;
 st.shared.b32 [%r9], %r1;
 st.shared.b32 [%r9+4], %r2;
 st.shared.b32 [%r9+8], %r1;
 st.shared.b32 [%r9+12], %r2;
 bar.sync 0;
 xor.b32 %r10, %r10, 496;
 mov.u32 %r9, s;
 add.u32 %r9, %r9, %r10;
 ld.shared.b32 %r3, [%r9];
 ld.shared.b32 %r4, [%r9+4];
 ld.shared.b32 %r5, [%r9+8];
 ld.shared.b32 %r6, [%r9+12];
 add.s32 %r3, %r3, %r4;
 add.s32 %r5, %r5, %r6;
 add.s32 %r8, %r3, %r5;"""
STORED_TWICE = """ mov.u32 %r8, 1;
 st.global.b32 [%rd4], %r1;"""
ATOMICS = """ mov.u32 %r8, 1;
 red.global.add.u32 [%rd1], %r1;
 red.global.add.u32 [%rd4], %r1;
 setp.gt.u32 %p1, %r1, 16;
 @%p1 bra END;
 red.global.add.u32 [%rd4+4096], %r1;
END:"""
HALF = """ ld.global.nc.v2.b32 {%r8, %r9}, [%rd4];"""


def listed(text: str) -> str:
    try:
        return tools.disassemble(ptxas.assemble(text).cubin)
    except MissingToolError as error:
        pytest.skip(str(error))


def counted(text: str) -> doc.Traffic:
    return estimate(parse_ptx(text), LAUNCH, simulate=False, findings=False)


Row = tuple[str, str | None, int | None, int | None]


def rows(traffic: doc.Traffic) -> list[Row]:
    """Of each access but the last store: fate, words, requests, sectors or wavefronts."""
    return [(a.fate or "", a.machine, a.requests, a.cost) for a in traffic.accesses[:-1]]


VECTOR = "4 merged: neighbours of 4 B became 16 B"
EQUAL = "2 merged: the same address as another"
NOTHING = 0, 0


@pytest.mark.parametrize(
    ("code", "machine", "expected"),
    [
        (SAME, {"LDG": 1}, [("merged", EQUAL, W, W), *2 * [("merged", EQUAL, *NOTHING)]]),
        (
            UNUSED,
            {"LDG": 1},
            [("dropped", "1 dropped: nothing reads the result", *NOTHING), ("same", None, W, W)],
        ),
        (
            NEVER,
            {"LDG": 1},
            [("same", None, W, W), ("dropped", "1 dropped: never executed", *NOTHING)],
        ),
        (KEPT, {"LDG": 2}, 2 * [("same", None, W, W)]),
        (
            UNROLLED,  # a sector of eight words; the group of four words begins at any of them
            {"LDG": 17},
            [("copied", None, 16 * W, 22 * W), ("moved", "1 moved out of the loop", W, W)],
        ),
        (
            SHARED,  # 512 bytes: four wavefronts
            {"LDS": 1, "STS": 1},
            2 * [("merged", VECTOR, W, 4 * W), *3 * [("merged", VECTOR, *NOTHING)]],
        ),
        (HALF, {"LDG": 1}, [("split", "1 narrowed from 8 B to 4 B", W, 4 * W)]),
        (
            ATOMICS,  # REDUX adds up the lanes of a warp: one of them asks
            {"REDUX": 1, "REDG": 3},
            [
                ("aggregated", "1 aggregated: one lane of a warp makes it for all", W, W),
                ("same", None, W, 4 * W),
                ("same", None, 4, 4 * 3),  # one warp a block, 17 lanes: the guard is another one
            ],
        ),
    ],
    ids=["equal", "unread", "never", "kept", "unrolled", "shared", "narrowed", "atomics"],
)
def test_each_access_is_what_the_machine_code_made_of_it(
    code: str, machine: dict[str, int], expected: list[Row]
) -> None:
    text = ptx(code)
    found = Counter(re.findall(r"\b(LDG|LDS|STS|REDG|REDUX)\b", listed(text)))
    assert dict(found) == machine  # else the assembler does otherwise
    traffic = counted(text)
    assert rows(traffic) == expected
    assert not [text for text in traffic.assumptions if "not the sum" in text]
    for total in traffic.access_totals:
        assert total.reason is None  # every total is the sum of its rows


def test_stores_to_one_address_are_one() -> None:
    text = ptx(STORED_TWICE)
    assert len(re.findall(r"\bSTG\b", listed(text))) == 1
    stores = [(a.machine, a.requests, a.cost) for a in counted(text).accesses]
    words = "1 merged: the same address as another"
    assert sorted(stores, key=lambda s: s[1] or 0) == [(words, 0, 0), (words, W, 4 * W)]


def test_a_load_that_an_unrolled_loop_makes_once_is_not_counted_as_often() -> None:
    """The loop's length is not known; the four iterations at once load the second one once."""
    text = ptx(NO_LENGTH)
    assert len(re.findall(r"\bLDG\b", listed(text))) > 8
    first, *loop = rows(counted(text))
    assert first == ("same", None, W, W)
    assert [(fate, requests) for fate, _, requests, _ in loop] == [
        ("copied", None),
        ("merged", None),
    ]


def test_where_only_the_ptx_is_known_its_counts_are_those_of_what_has_not_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The machine code does not tell how often it loads: then merged loads are unknown."""
    unknown = Total(None, "the length of a loop", 0)
    for name in ("requests", "sectors"):
        monkeypatch.setattr(SassKernelLaunch, name, lambda self, operation: unknown)
    monkeypatch.setattr(SassKernelLaunch, "counted", lambda self, address: Unknown("a loop"))
    assert counted(ptx(KEPT)).counters["global_load_requests"] == 2 * W
    traffic = counted(ptx(SAME))
    assert traffic.counters["global_load_requests"] is None
    assert traffic.counters["global_store_requests"] == W


def test_without_a_line_table_of_the_ptx_only_totals_are_those_of_the_machine_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A cubin that was made without -lineinfo, or of another text: lines that hold no access."""
    disassemble = tools.disassemble
    pattern = re.compile(r'//## File ".nv_debug_ptx_txt", line (\d+)')
    for other in ("", r'//## File ".nv_debug_ptx_txt", line \g<1>1'):
        monkeypatch.setattr(tools, "disassemble", lambda c, o=other: pattern.sub(o, disassemble(c)))
        traffic = counted(ptx(SAME))
        assert traffic.counters["global_load_requests"] == W
        assert {a.fate for a in traffic.accesses[:-1]} == {"unknown"}
        assert "line table" in (traffic.accesses[0].machine or "")
        assert any("not the sum of the rows" in text for text in traffic.assumptions)


def test_conflicts_that_a_vector_does_not_have_are_none() -> None:
    """Four words of each lane, 16 bytes apart: four ways if one by one, none as a vector."""
    listed(ptx(SHARED))
    traffic = estimate(parse_ptx(ptx(SHARED)), LAUNCH, simulate=False)
    assert "bank-conflicts" not in {f.id for f in traffic.findings}
    assert traffic.layouts == ()
    alone = ptx(SHARED.replace("shared.b32", "volatile.shared.b32"))
    found = estimate(parse_ptx(alone), LAUNCH, simulate=False).findings
    assert "bank-conflicts" in {f.id for f in found}


@pytest.mark.parametrize("code", [SAME, SHARED])
def test_without_machine_code_counts_are_said_to_be_of_the_ptx_alone(code: str) -> None:
    text = ptx(code).replace(".version 8.0", ".version 99.9")  # no assembler knows it
    traffic = counted(text)
    assert traffic.counters["instructions_executed"] is None
    assert {a.fate for a in traffic.accesses} == {None}
    assert any("counted from the PTX alone" in text for text in traffic.assumptions)
    assert "of the PTX alone" in render(traffic)
    assert "of the PTX alone" not in render(counted(ptx(code)))


@pytest.mark.parametrize(
    ("code", "explained"),
    [
        (SAME, {("global load", "4 B"): (3, 1, EQUAL)}),
        (
            SHARED,
            {
                (f"shared {kind}", width): (*numbers, VECTOR)
                for kind in ("load", "store")
                for width, numbers in (("4 B", (4, 0)), ("16 B", (0, 1)))
            },
        ),
        (UNROLLED, {("global load", "4 B"): (2, 17, "loop unrolled completely: 16 copies")}),
    ],
)
def test_the_report_says_the_same(
    code: str, explained: dict[tuple[str, str], tuple[int, int, str]]
) -> None:
    (kernel,) = analyze(parse_ptx(ptx(code))).kernels
    assert isinstance(kernel, Kernel)
    if kernel.sass is None:
        pytest.skip("there is no assembler")
    differ = [row for row in kernel.sass.comparison if row.verdict != "equal"]
    assert {(r.category, r.width): (r.ptx, r.sass, r.explanation) for r in differ} == explained
