"""Rules on what PTX alone shows: constant memory, compare-and-swap, copies, doubles, bulk copies.

Small PTX, in this process; the numbers are by hand.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kanalyze import Launch, analyze, estimate, parse_ptx
from kanalyze.launch.record import LaunchParam
from kanalyze.results.kernel import Finding

SAMPLES = Path(__file__).parents[2] / "samples" / "findings"


def found(text: str) -> list[Finding]:
    report = analyze(parse_ptx(text), sass=False)
    assert not [u for u in report.unknown if u.field.endswith("findings")]
    (kernel,) = report.kernels
    return list(kernel.findings)


def sample(id_: str, name: str = "fires") -> str:
    return (SAMPLES / id_ / f"{name}.ptx").read_text("utf-8")


def ids(text: str) -> list[str]:
    return [f.id for f in found(text)]


@pytest.mark.parametrize(
    ("index", "addresses"),
    [("tid.x", 32), ("tid.x, 1", 16), ("tid.x, 4", 2), ("tid.x, 5", 1), ("ctaid.x", 1)],
)
def test_constant_memory_is_served_one_address_a_turn(index: str, addresses: int) -> None:
    register, _, shift = index.partition(", ")
    text = sample("constant-by-lane").replace(
        "mul.wide.u32 %rd6, %r3, 4;",
        f"mov.u32 %r3, %{register}; shr.u32 %r3, %r3, {shift or 0}; mul.wide.u32 %rd6, %r3, 4;",
    )
    findings = [f for f in found(text) if f.id == "constant-by-lane"]
    assert [f.numbers["addresses"] for f in findings] == ([addresses] if addresses > 1 else [])


def test_turns_of_a_launch_are_counted_and_weighed() -> None:
    """16,384 blocks of 8 warps, 32 turns each; a block alone is no matter."""
    arrays = (LaunchParam("x", "*fp32", 1 << 40), LaunchParam("y", "*fp32", 1 << 41))
    launch = Launch("scaled", (16384, 1, 1), (256, 1, 1), arrays, device="NVIDIA H200")
    module = parse_ptx(sample("constant-by-lane"))
    traffic = estimate(module, launch)
    (finding,) = traffic.findings
    assert (finding.severity, finding.numbers["turns"]) == ("warning", 16384 * 8 * 32)
    us = finding.numbers["turns"] / 132 / 1980  # SMs, MHz
    assert finding.numbers["share_of_time"] == pytest.approx(us / traffic.time.predicted_us)


def test_a_lock_is_no_loop_of_an_operation() -> None:
    """It swaps constants: nothing is computed that an atomic instruction could do."""
    text = sample("cas-loop").replace("fma.rn.bf16 %rs3, %rs1, %rs4, %rs2;", "mov.b16 %rs3, 1;")
    text = text.replace("[%rd9], %rs2, %rs3", "[%rd9], 0, 1")
    assert "cas-loop" not in ids(text)


def test_a_loop_of_compare_and_swap_is_said_with_the_instruction_that_there_is() -> None:
    (finding,) = found(sample("cas-loop"))  # and no word on the width of the scattered values
    assert (finding.id, finding.severity) == ("cas-loop", "warning")
    assert "sm_90" in finding.advice
    text = sample("cas-loop").replace("fma.rn.bf16 %rs3, %rs1, %rs4", "max.bf16 %rs3, %rs1")
    (finding,) = found(text)
    assert finding.message.startswith("an atomic max.bf16 is a loop")
    assert "sm_90" not in finding.advice


def test_a_copy_beside_work_is_not_waited_for() -> None:
    text = sample("copies-waited-for")
    assert ids(text) == ["copies-waited-for"]
    wait = "\tcp.async.wait_group 0;\n"
    assert ids(text.replace(wait, "\tcp.async.wait_all;\n")) == ["copies-waited-for"]
    assert ids(text.replace(wait, "\tcp.async.wait_group 1;\n")) == []
    # work between the copy and the wait: they run side by side
    beside = text.replace(wait, "\tfma.rn.f32 %f1, %f2, %f2, %f1;\n" + wait)
    assert ids(beside) == []
    products = [text.replace(wait, f"{wait}\twgmma.wait_group.sync.aligned {n};\n") for n in (0, 1)]
    assert [ids(some) for some in products] == [["copies-waited-for"], []]
    # the wait first, then copies at the end of the iteration: nothing lies between
    at, end = text.index("\tand.b32 %r8"), text.index("\tcp.async.wait")
    copies, rest = text[at:end], text[end:]
    turned = text[:at] + rest.replace(
        "\tadd.s32 %r7, %r7, 1;\n", copies + "\tadd.s32 %r7, %r7, 1;\n"
    )
    assert ids(turned) == ["copies-waited-for"]


def test_double_precision_that_is_meant_is_not_reported() -> None:
    text = sample("double-precision")
    (finding,) = found(text)
    assert (finding.id, finding.numbers["instructions"]) == ("double-precision", 1)
    kept = text.replace(
        "cvt.rn.f32.f64 %f2, %fd2;", "st.global.f64 [%rd5], %fd2; mov.f32 %f2, %f1;"
    )
    assert ids(kept) == []


BULK = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry copied(.param .align 64 .b8 map[128])
.reqntid 32
{{
  .reg .b32 %r<5>; .reg .b64 %rd<5>;
  .shared .align {align} .b8 tile[8192];
  .shared .align 8 .b8 barrier[8];
  mov.u32 %r1, tile;
  add.s32 %r1, %r1, {offset};
  mov.u32 %r2, barrier;
  mov.b64 %rd1, map;
  cvta.param.u64 %rd2, %rd1;
  cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes
    [%r1], [%rd2, {{0, 0}}], [%r2];
  ret;
}}
"""


@pytest.mark.parametrize(
    ("align", "offset", "multiple"),
    [(128, 0, 128), (1024, 4096, 128), (16, 0, 16), (128, 64, 64), (4, 128, 4)],
)
def test_a_tile_in_shared_memory_begins_at_a_multiple_of_128(
    align: int, offset: int, multiple: int
) -> None:
    findings = [f for f in found(BULK.format(align=align, offset=offset)) if f.id == "tensor-map"]
    assert len(findings) == (multiple < 128)
    for finding in findings:
        assert finding.severity == "error"
        assert f"a multiple of {multiple} bytes" in finding.message


PRODUCT = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry rows(.param .u64 x, .param .u64 index, .param .u32 stride)
.reqntid 32
{{
  .reg .b32 %r<9>; .reg .b64 %rd<9>;
  ld.param.u64 %rd1, [x];
  ld.param.u64 %rd2, [index];
  ld.param.u32 %r1, [stride];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %tid.x;
  {row}
  add.s32 %r5, %r4, %r3;
  mul.wide.{type} %rd3, %r5, 4;
  add.s64 %rd4, %rd1, %rd3;
  st.global.u32 [%rd4], %r3;
  ret;
}}
"""
LOADED = "ld.global.nc.u32 %r6, [%rd2]; shl.b32 %r4, %r6, 12;"


@pytest.mark.parametrize(
    ("row", "kind", "limit"),
    [
        ("mul.lo.s32 %r4, %r2, %r1;", "s32", "ctaid.x * stride ≥ 2,147,483,648"),
        ("mul.lo.u32 %r4, %r2, %r1;", "u32", "ctaid.x * stride ≥ 4,294,967,296"),
        ("shl.b32 %r6, %r2, 6; mul.lo.s32 %r4, %r6, %r1;", "s32", "ctaid.x * stride ≥ 33,554,432"),
        (LOADED, "s32", "index[…] ≥ 524,288"),  # 2^31 / 4,096
        ("shl.b32 %r4, %r2, 10;", "s32", None),  # blocks alone: as many as there are elements
        ("mul.lo.s32 %r4, %r3, %r1;", "s32", None),  # threads of a block are few
    ],
)
def test_sizes_from_which_an_offset_wraps_around(row: str, kind: str, limit: str | None) -> None:
    findings = [f for f in found(PRODUCT.format(row=row, type=kind)) if f.id == "offset-wraps"]
    assert [(f.severity, f.numbers["limits"]) for f in findings] == [("info", [limit])] * bool(
        limit
    )


def test_a_kernel_of_nvcc_gets_the_words_of_cuda() -> None:
    text = sample("cas-loop", "mended").replace("red.global.add.noftz", "st.global")
    text = text.replace("st.global.bf16", "st.global.b16")
    (finding,) = [f for f in found(text) if f.id == "narrow-access"]
    assert "warps" in finding.advice
    (finding,) = [f for f in found("// NVIDIA NVVM Compiler\n" + text) if f.id == "narrow-access"]
    assert "uint4" in finding.advice
    assert "warps" not in finding.advice
