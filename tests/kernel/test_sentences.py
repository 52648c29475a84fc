"""What a report says of addresses follows from their values; small kernels, answers by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

import kanalyze
from kanalyze.results.kernel import Kernel

REGISTERS = "  .reg .pred %p<9>;\n  .reg .b32 %r<30>;\n  .reg .b64 %rd<30>;\n"
HEAD = ".version 8.4\n.target sm_90\n.address_size 64\n"


def kernel(parameters: str, body: str, directives: str = "") -> Kernel:
    text = (
        f"{HEAD}.visible .entry k({parameters}) {directives}\n{{\n{REGISTERS}{body}\n  ret;\n}}\n"
    )
    (found,) = kanalyze.analyze(kanalyze.parse_ptx(text)).kernels
    assert isinstance(found, Kernel)
    return found


def roles(found: Kernel) -> dict[str, str]:
    return {role.register: role.role for role in found.roles}


GATHER = """
  ld.param.u64 %rd1, [idx];
  ld.param.u64 %rd2, [x];
  ld.global.u32 %r1, [%rd1];
  mov.u32 %r2, %tid.x;
  mov.u32 %r5, %ctaid.x;
  {use}
  mul.wide.s32 %rd5, %r3, 4;
  add.s64 %rd6, %rd2, %rd5;
  st.global.u32 [%rd6], %r5;
"""


def test_a_register_in_an_address_that_is_not_known() -> None:
    said = roles(
        kernel(".param .u64 idx, .param .u64 x", GATHER.format(use="add.s32 %r3, %r1, %r2;"))
    )
    assert said["tid.x"] == "thread index (x); in an address that is not known"
    assert said["ctaid.x"] == "block index (x); in no known address (1 not known)"


def test_no_address_is_said_where_all_are_known() -> None:
    said = roles(kernel(".param .u64 idx, .param .u64 x", GATHER.format(use="mov.u32 %r3, %r2;")))
    assert said["ctaid.x"] == "block index (x); in no address"
    assert said["tid.x"].startswith("thread index (x); x: 4 B a thread")


def test_a_register_in_an_address_of_shared_memory() -> None:
    body = """
  .shared .align 4 .b8 tile[512];
  mov.u32 %r1, %tid.x;
  shl.b32 %r2, %r1, 2;
  mov.u32 %r3, tile;
  add.s32 %r4, %r3, %r2;
  st.shared.u32 [%r4], %r1;
"""
    assert roles(kernel("", body))["tid.x"] == "thread index (x); in an address of shared memory"


def test_a_pointer_in_a_struct_is_a_pointer() -> None:
    body = """
  ld.param.b64 %rd1, [s+8];
  ld.param.b64 %rd2, [y];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd3, %r1, 4;
  add.s64 %rd4, %rd1, %rd3;
  ld.global.b32 %r2, [%rd4];
  add.s64 %rd5, %rd2, %rd3;
  st.global.b32 [%rd5], %r2;
"""
    found = kernel(".param .align 8 .b8 s[16], .param .u64 y", body, ".reqntid 256, 1, 1")
    assert [access.pointer for access in found.accesses] == ["s[8]", "y"]
    assert roles(found)["tid.x"] == "thread index (x); s[8], y: 4 B a thread, a warp contiguous"
    assert [p.required_alignment for p in found.params] == [None, 4]


UNROLLED = """
  ld.param.u64 %rd1, [y];
  mov.u32 %r1, %tid.x;
  {count}
  and.b32 %r3, %r2, 3;
  sub.s32 %r4, %r2, %r3;
  setp.lt.s32 %p1, %r4, 4;
  mul.wide.u32 %rd2, %r1, 4;
  add.s64 %rd3, %rd1, %rd2;
  mov.u32 %r5, 0;
  @%p1 bra TAIL;
MAIN:
  st.global.u32 [%rd3], %r1;
  st.global.u32 [%rd3+4096], %r1;
  st.global.u32 [%rd3+8192], %r1;
  st.global.u32 [%rd3+12288], %r1;
  add.s64 %rd3, %rd3, 16384;
  add.s32 %r5, %r5, 4;
  setp.lt.s32 %p2, %r5, %r4;
  @%p2 bra MAIN;
TAIL:
  setp.eq.s32 %p3, %r3, 0;
  @%p3 bra DONE;
  mov.u32 %r6, 0;
REST:
  st.global.u32 [%rd3], %r1;
  add.s64 %rd3, %rd3, 4096;
  add.s32 %r6, %r6, 1;
  setp.lt.s32 %p4, %r6, %r3;
  @%p4 bra REST;
DONE:
"""


@pytest.mark.parametrize(
    ("count", "elements", "way"),
    [
        ("ld.param.u32 %r2, [n];", 4, "4 × st.global.u32 in each iteration of its loop, 16 B"),
        ("mov.u32 %r2, 8;", 8, "4 × st.global.u32 in each of 2 iterations, 32 B"),
    ],
    ids=["a remainder beside it", "a remainder that never runs"],
)
def test_coarsening_of_an_unrolled_loop(count: str, elements: int, way: str) -> None:
    body = UNROLLED.format(count=count)
    found = kernel(".param .u64 y, .param .u32 n", body).thread_coarsening
    assert found.elements_per_thread == elements
    assert f"to y: {way}" in found.basis


def test_distributed_shared_memory_and_the_cluster_are_named() -> None:
    body = """
  .shared .align 4 .b8 tile[1024];
  mov.u32 %r3, tile;
  mov.u32 %r1, 1;
  mapa.shared::cluster.u32 %r4, %r3, %r1;
  atom.shared::cluster.add.u32 %r5, [%r4], %r1;
"""
    found = kernel("", body, ".explicitcluster .reqnctapercluster 2, 1, 1")
    assert "distributed shared memory" in (found.accesses[0].reason or "")
    assert "clusters of 2 x 1 x 1 blocks (.reqnctapercluster)" in found.notes


COPIES = """
  .shared .align 16 .b8 tile[4096];
  ld.param.u64 %rd1, [x];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd2, %r1, 16;
  add.s64 %rd3, %rd1, %rd2;
  shl.b32 %r2, %r1, 4;
  mov.u32 %r3, tile;
  add.s32 %r4, %r3, %r2;
  .loc 1 7 3
  cp.async.cg.shared.global [%r4], [%rd3], 16;
  cp.async.commit_group;
  mov.u32 %r5, 0;
LOOP:
  add.s64 %rd3, %rd3, 2048;
  .loc 1 7 3
  cp.async.cg.shared.global [%r4], [%rd3], 16;
  cp.async.commit_group;
  cp.async.wait_group {pending};
  ld.shared.u32 %r7, [%r4];
  add.s32 %r5, %r5, 1;
  setp.lt.s32 %p1, %r5, 8;
  @%p1 bra LOOP;
"""


@pytest.mark.parametrize(("pending", "stages"), [(1, ["prologue", "steady"]), (0, [None, None])])
def test_a_loop_that_waits_for_all_copies_is_no_pipeline(pending: int, stages: list[str]) -> None:
    text = f'{HEAD}.file 1 "k.py"\n.visible .entry k(.param .u64 x) .reqntid 128, 1, 1\n{{\n'
    body = COPIES.format(pending=pending)
    report = kanalyze.analyze(kanalyze.parse_ptx(f"{text}{REGISTERS}{body}  ret;\n}}\n"))
    copies = [a for a in report.kernels[0].accesses if a.kind == "async_copy"]
    assert [copy.stage for copy in copies] == stages


def test_a_pointer_kept_in_a_variable_is_the_pointer(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    (tmp_path / "a.py").write_text(
        """
import triton
import triton.language as tl


@triton.jit
def kept(x, y, T, H, BLOCK: tl.constexpr):
    head = tl.program_id(1)
    p = x + (head // H * T * H + head % H) * BLOCK
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + head * T + i, tl.load(p + i * H))
""",
        "utf-8",
    )
    report = kanalyze.analyze(
        f"{tmp_path}/a.py:kept", signature="*fp32:16, *fp32:16, i32, i32, 256"
    )
    assert {access.pointer for access in report.kernels[0].accesses} == {"x", "y"}
