"""What `kanalyze traffic` finds: offsets that wrap around, and operations of tensor cores."""

from __future__ import annotations

from pathlib import Path

import pytest

from kanalyze import Launch, compile_kernel, parse_ptx
from kanalyze.launch.record import LaunchParam
from kanalyze.results.kernel import Finding
from tests.counted import estimate

pytestmark = pytest.mark.slow("compiles samples and proves its findings")

COPY = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry copy(.param .u64 from, .param .u64 to, .param .{type} n)
{{
  .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .f32 %f<2>; .reg .pred %p<3>;
  ld.param.u64 %rd1, [from];
  ld.param.u64 %rd2, [to];
  ld.param.{type} {n}, [n];
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  {offset}
  @!%p1 bra DONE;
  shl.b64 %rd4, %rd3, 2;
  add.s64 %rd5, %rd1, %rd4;
  add.s64 %rd6, %rd2, %rd4;
  ld.global.f32 %f1, [%rd5];
  st.global.f32 [%rd6], %f1;
DONE:
  ret;
}}
"""
NARROW = "mad.lo.s32 %r4, %r1, %r2, %r3; setp.lt.s32 %p1, %r4, %r5; cvt.s64.s32 %rd3, %r4;"
UNSIGNED = "mad.lo.u32 %r4, %r1, %r2, %r3; setp.lt.u32 %p1, %r4, %r5; cvt.u64.u32 %rd3, %r4;"
WIDE = (
    "mul.wide.u32 %rd3, %r1, %r2; cvt.u64.u32 %rd8, %r3; add.s64 %rd3, %rd3, %rd8;"
    " setp.lt.s64 %p1, %rd3, %rd7;"
)


def copied(
    offset: str, blocks: int, n: int, wide: bool = False, bounds: str = ""
) -> list[tuple[str, str]]:
    kind, register = ("u64", "%rd7") if wide else ("u32", "%r5")
    text = COPY.format(type=kind, n=register, offset=offset).replace(" n)", f" n) {bounds}")
    params = (
        LaunchParam("from", "*fp32", 1 << 40),
        LaunchParam("to", "*fp32", 1 << 50),
        LaunchParam("n", "i64" if wide else "u32", n),
    )
    launch = Launch("copy", (blocks, 1, 1), (1024, 1, 1), params, device="NVIDIA H200")
    found = estimate(parse_ptx(text), launch, findings=True)
    assert (found.analysed.accesses, found.analysed.of) == (0 if bounds else 2, 2)
    return [(f.id, f.message) for f in found.findings if f.severity == "error"]


def test_an_offset_that_wraps_around_is_reported() -> None:
    """Threads from 2^31 on have a negative number, which is less than n: they go astray."""
    blocks, n = (1 << 21) + 8, (1 << 31) - 5
    astray = sum(block * 1024 + 1023 >= 1 << 31 for block in range(1 << 21, blocks)) * 1024
    inside = n  # threads below 2^31 that pass the test
    found = copied(NARROW, blocks, n)
    assert [name for name, _ in found] == ["offset-wraps", "offset-wraps"]
    for _, message in found:
        assert f"in {astray:,} of {astray + inside:,} accesses" in message


SCATTER = """
import triton
import triton.language as tl


@triton.jit
def scatter(x, y, index, COLUMNS: tl.constexpr):
    to = tl.load(index + tl.program_id(0)){cast}
    for start in range(0, COLUMNS, 256):
        o = start + tl.arange(0, 256)
        tl.store(y + to * COLUMNS + o, tl.load(x + o))
"""


def scattered(folder: Path, cast: str) -> list[Finding]:
    """512 rows of 1,024 elements, put at 2,096,896 and on; the offset passes 2^31 from 2^21 on."""
    path = folder / "scatter.py"
    path.write_text(SCATTER.format(cast=cast))
    signature = "*fp32:16, *fp32:16, *i32:16, 1024"
    compiled = compile_kernel(str(path), signature=signature)
    pointers = (LaunchParam(name, "*fp32", at << 40) for at, name in enumerate(("x", "y"), 1))
    params = (*pointers, LaunchParam("index", "*i32", 5 << 40))
    launch = Launch("scatter", (512, 1, 1), (128, 1, 1), params, device="NVIDIA H200")
    found = estimate(compiled, launch, assume={"index": "range:2096896:1"}, findings=True)
    return [finding for finding in found.findings if finding.severity == "error"]


def test_a_loaded_index_that_wraps_is_one_error_and_its_advice_removes_it(tmp_path: Path) -> None:
    (found,) = scattered(tmp_path, "")
    assert found.id == "offset-wraps"
    rows = 2096896 + 512 - (1 << 21)
    assert found.numbers["wrapped"] * 512 == found.numbers["accesses"] * rows
    assert "cast the loaded index" in found.advice
    assert scattered(tmp_path, ".to(tl.int64)") == []


def test_of_a_launch_that_does_not_start_nothing_else_is_said() -> None:
    found = copied(NARROW, (1 << 21) + 8, (1 << 31) - 5, bounds=".maxntid 512, 1, 1")
    assert [name for name, _ in found] == ["launch-mismatch"]


def test_an_offset_that_does_not_wrap_is_not() -> None:
    assert copied(NARROW, 1 << 21, (1 << 31) - 5) == []  # to the last that fits
    assert copied(UNSIGNED, (1 << 21) + 8, (1 << 31) + 5) == []
    assert copied(WIDE, (1 << 22) + 8, 1 << 33, wide=True) == []


def test_threads_that_are_off_do_not_count() -> None:
    """2^32 and more: unsigned numbers begin again at 0, and pass the test again."""
    found = copied(UNSIGNED, (1 << 22) + 1, 1 << 20)
    assert len(found) == 2
    assert f"in 1,024 of {(1 << 20) + 1024:,} accesses" in found[0][1]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100", "sm_120"])
@pytest.mark.parametrize(("m", "n", "k"), [(512, 384, 256), (256, 256, 1024)])
def test_operations_of_a_matmul(arch: str, m: int, n: int, k: int) -> None:
    pytest.importorskip("triton")
    compiled = compile_kernel("matmul_relu", arch=arch, settings={"M": m, "N": n, "K": k})
    found = estimate(compiled)
    assert found.flops_by_unit["tensor"] == 2 * m * n * k


SPARSE = "tcgen05.mma.sp.cta_group::1.kind::f16 [%r1], %rd1, %rd2, [%r2], %r3, %p1;"


def test_operations_that_are_not_known_are_not_guessed() -> None:
    text = (
        ".version 8.7\n.target sm_100a\n.address_size 64\n.visible .entry k()\n{\n"
        ".reg .b32 %r<4>; .reg .b64 %rd<3>; .reg .pred %p<2>;\n"
        f"mov.b32 %r3, 136380432;\n{SPARSE}\nret;\n}}\n"
    )
    found = estimate(parse_ptx(text), Launch("k", (1, 1, 1), (32, 1, 1), ()))
    assert found.flops is None
    reasons = {u.field: u.reason for u in found.unknown}
    assert "tcgen05.mma" in reasons["flops"]
