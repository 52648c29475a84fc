"""Findings on global memory: which fact is missing for wider accesses, strides, sectors, reuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import kanalyze
from kanalyze.cli.app import cli
from kanalyze.findings import hint_removal
from kanalyze.launch.record import Launch, LaunchParam
from kanalyze.models import lane_strides
from kanalyze.ptx.parse import parse_ptx
from kanalyze.results.kernel import Finding, Kernel

pytestmark = [
    pytest.mark.usefixtures("shared_cache"),
    pytest.mark.slow("compiles samples and proves its findings"),
]

SAMPLES = Path(__file__).parents[2] / "samples" / "findings"
TRITON = """\
import triton
import triton.language as tl


@triton.jit
def scale(dst, src, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(dst + i, tl.load(src + i) * 3.0)


@triton.jit
def masked(dst, src, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(dst + i, tl.load(src + i, mask=i < n) * 3.0, mask=i < n)


@triton.jit
def tile(dst, src, sm, sn, BM: tl.constexpr, BN: tl.constexpr):
    r = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    c = tl.arange(0, BN)[None, :]
    tl.store(dst + r * BN + c, tl.load(src + r * sm + c * sn))


@triton.jit
def hinted(dst, src, n, s, BLOCK: tl.constexpr):
    i = tl.program_id(0) * s + tl.arange(0, BLOCK)
    i = tl.max_contiguous(tl.multiple_of(i, 16), 16)
    tl.store(dst + i, tl.load(src + i, mask=i < n) * 3.0, mask=i < n)


@triton.jit
def helped(dst, src, s, BLOCK: tl.constexpr):
    i = tl.multiple_of(tl.program_id(0) * s, 16) + tl.arange(0, BLOCK)
    tl.store(dst + i, tl.load(src + i) * 3.0)


@triton.jit
def shifted(dst, src, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(dst + i, tl.load(src + i + 11))


@triton.jit
def gather(dst, src, index, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(dst + i, tl.load(src + tl.load(index + i)))
"""


HINT = "    i = tl.max_contiguous(tl.multiple_of(i, 16), 16)"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("triton")
    path = tmp_path_factory.mktemp("kernels") / "kernels.py"
    path.write_text(TRITON)
    return path


def found(target: str, rule: str, **options: Any) -> list[Finding]:
    (kernel,) = kanalyze.analyze(target, sass=False, **options).kernels
    assert isinstance(kernel, Kernel)
    return [f for f in kernel.findings if f.id == rule]


# ------------------------------------------------------------------ narrow accesses


def narrow(path: Path, kernel: str, signature: str, **options: Any) -> list[Finding]:
    return found(f"{path}:{kernel}", "narrow-access", signature=signature, **options)


def test_a_pointer_that_is_not_aligned_is_named(source: Path) -> None:
    (finding,) = narrow(source, "scale", "*fp32, *fp32:16, 1024")
    assert finding.severity == "warning"
    assert finding.numbers["missing"] == "dst"
    assert finding.source is not None
    assert finding.source.line == 8
    assert finding.proof is not None
    assert finding.proof.before == {"stores": 8, "bytes each": 4}
    assert finding.proof.after == {"stores": 2, "bytes each": 16}
    assert "dst (the pointer)" in finding.message


def test_aligned_pointers_are_nothing_to_remark_on(source: Path) -> None:
    assert narrow(source, "scale", "*fp32:16, *fp32:16, 1024") == []
    assert narrow(source, "masked", "*fp32:16, *fp32:16, i32:16, 1024") == []


def test_the_bound_of_a_mask_is_named(source: Path) -> None:
    findings = narrow(source, "masked", "*fp32:16, *fp32:16, i32, 1024")
    assert [f.numbers["missing"] for f in findings] == ["n", "n"]
    assert all(f.severity == "warning" and "n (in the mask)" in f.message for f in findings)
    assert all(f.proof is not None and f.proof.after["bytes each"] == 16 for f in findings)


def test_a_bound_that_is_no_multiple_is_only_worth_knowing(source: Path) -> None:
    findings = narrow(source, "masked", "*fp32:16, *fp32:16, i32, 1024", settings={"n": 781})
    assert {f.severity for f in findings} == {"info"}
    assert all("n = 781 is not a multiple of 4 (16 B): pad to 784" in f.advice for f in findings)


ROWS = (
    TRITON.partition("@triton.jit")[0]
    + """@triton.jit
def rows(dst, src, n, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    at = {product} + o
    tl.store(dst + at, tl.load(src + at, mask=o < n), mask=o < n)


@triton.jit
def tiles(dst, src, m, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)[:, None]
    j = tl.program_id(1) * B + tl.arange(0, B)[None, :]
    mask = (i < m) & (j < n)
    tl.store(dst + i * n + j, tl.load(src + i * n + j, mask), mask)
"""
)
PRODUCT = "tl.program_id(0) * n"


def rows(tmp_path: Path, product: str, n: int | None, signature: str) -> list[Finding]:
    path = tmp_path / "rows.py"
    path.write_text(ROWS.format(product=product))
    settings = {} if n is None else {"n": n}
    return narrow(path, "rows", signature, settings=settings)


@pytest.mark.parametrize("n", [None, 1000, 4100, 4096])
def test_hints_are_advised_where_they_work(tmp_path: Path, n: int | None) -> None:
    """Written as advised they make the finding go away; nothing has to be padded."""
    signature = "*fp32:16, *fp32:16, i32, 1024"
    for finding in rows(tmp_path, PRODUCT, n, signature):
        assert finding.severity == "warning"
        assert f"tl.multiple_of({PRODUCT}, 4) in line 8 and mask=tl.max_constancy(o < n, 4)" in (
            finding.advice
        )
        assert "pad to" not in finding.advice
        assert ("only looks for multiples of 16" in finding.advice) == (n in (1000, 4100))
        assert finding.proof is not None
        assert finding.proof.change.startswith("tl.multiple_of(")
        assert finding.proof.after["bytes each"] == 16
    (tmp_path / "rows.py").write_text(
        ROWS.format(product=f"tl.multiple_of({PRODUCT}, 4)").replace(
            "mask=o < n", "mask=tl.max_constancy(o < n, 4)"
        )
    )
    settings = {} if n is None else {"n": n}
    assert narrow(tmp_path / "rows.py", "rows", signature, settings=settings) == []


def test_hints_are_tried_where_the_file_lies_in_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is named by its path there, and the one with the hints by its own."""
    (tmp_path / "below").mkdir()
    rows(tmp_path / "below", PRODUCT, None, "*fp32:16, *fp32:16, i32, 1024")
    monkeypatch.chdir(tmp_path)
    first, _ = narrow(Path("below/rows.py"), "rows", "*fp32:16, *fp32:16, i32, 1024")
    assert first.source is not None
    assert first.source.file == "below/rows.py"
    assert first.proof is not None
    assert first.proof.change.startswith("tl.multiple_of(")


def test_only_what_is_missing_is_advised(tmp_path: Path) -> None:
    """The product has its hint: it is the mask of which nothing is known."""
    findings = rows(
        tmp_path, f"tl.multiple_of({PRODUCT}, 4)", None, "*fp32:16, *fp32:16, i32, 1024"
    )
    accesses = [f for f in findings if "hint" not in f.numbers]
    assert len(accesses) == 2
    for finding in accesses:
        assert finding.message.endswith("n (in the mask)")
        assert finding.proof is not None
        assert finding.proof.change == "mask=tl.max_constancy(o < n, 4)"


@pytest.mark.parametrize(
    ("type_", "n", "padded"),
    [("fp32", 1001, 1008), ("fp32", 4098, 4112), ("fp16", 4100, 4112), ("fp16", 4104, None)],
)
def test_padding_is_advised_only_where_rows_are_not_aligned(
    tmp_path: Path, type_: str, n: int, padded: int | None
) -> None:
    """Rows of n elements begin at multiples of 16 bytes if n is one of 16 / size."""
    for finding in rows(tmp_path, PRODUCT, n, f"*{type_}:16, *{type_}:16, i32, 1024"):
        assert (f"pad to {padded:,} " if padded else "nothing has to be padded") in finding.advice
        assert (finding.severity == "info") == (padded is not None)


def test_a_hint_on_a_tile_has_a_number_for_each_dimension(tmp_path: Path) -> None:
    path = tmp_path / "rows.py"
    path.write_text(ROWS.format(product=PRODUCT))
    findings = narrow(path, "tiles", "*fp32:16, *fp32:16, i32, i32, 64")
    assert len(findings) == 2
    for finding in findings:
        assert "tl.max_constancy(mask, (1, 4))" in finding.advice
        assert "tl.multiple_of(i * n, (4, 4))" in finding.advice
        assert finding.proof is not None
        assert finding.proof.after["bytes each"] == 16


def test_one_padding_is_advised_by_all_findings(tmp_path: Path) -> None:
    """4,098 floats: no multiple of 16 bytes for wide accesses, nor of 32 for sectors."""
    findings = sampled(
        tmp_path, "narrow-access/fires.py", ('"BLOCK": 1024', '"BLOCK": 2048'),
        settings={"M": 512, "N": 4098},
    )  # fmt: skip
    advised = {f.id: f.advice for f in findings if f.id in ("narrow-access", "misaligned-access")}
    assert set(advised) == {"narrow-access", "misaligned-access"}
    assert all("4,112" in advice for advice in advised.values())


def test_two_facts_are_named_where_both_are_missing(source: Path) -> None:
    findings = narrow(source, "masked", "*fp32, *fp32, i32, 1024")
    assert [f.numbers["missing"] for f in findings] == ["src, n", "dst, n"]


def test_a_stride_that_may_be_1_is_named(source: Path) -> None:
    (finding,) = narrow(source, "tile", "*fp32:16, *fp32:16, i32:16, i32:16, 32, 32")
    assert finding.numbers["missing"] == "sn"
    assert finding.numbers["fact"] == "equal to 1"
    assert (finding.numbers["sectors_apart"], finding.numbers["sectors_ideal"]) == (32, 4)
    assert finding.proof is not None
    assert finding.proof.before == {"loads": 8, "bytes each": 4}
    assert finding.proof.after == {"loads": 2, "bytes each": 16}


@pytest.mark.parametrize(
    ("block", "warps", "size", "elements"),
    [(128, 4, 2, 1), (256, 4, 4, 2), (512, 4, 8, 4), (1024, 8, 8, 4)],
)
def test_too_few_elements_per_thread(
    source: Path, block: int, warps: int, size: int, elements: int
) -> None:
    """Width = min(16, 2 x elements per thread), elements = BLOCK / (32 x num_warps)."""
    signature = f"*fp16:16, *fp16:16, {block}"
    (finding,) = narrow(source, "scale", signature, num_warps=warps)
    assert finding.numbers["bytes_per_thread"] == size
    assert finding.numbers["elements_per_thread"] == elements
    assert finding.severity == ("warning" if size < 4 else "info")
    assert finding.proof is not None
    assert finding.proof.after["bytes each"] == 16
    assert f"BLOCK={block * 16 // size}" in finding.advice
    assert f"num_warps={max(1, warps * size // 16)}" in finding.advice


@pytest.mark.parametrize(("block", "warps", "times"), [(32, 4, 4), (64, 8, 4), (16, 1, 2)])
def test_fewer_elements_than_threads(source: Path, block: int, warps: int, times: int) -> None:
    """Triton gives each element to 32 x num_warps / BLOCK threads."""
    (finding,) = narrow(source, "scale", f"*fp32:16, *fp32:16, {block}", num_warps=warps)
    assert finding.severity == "warning"
    assert finding.numbers["threads_per_element"] == times == 32 * warps / block
    assert finding.numbers["elements_per_block"] == block
    assert f"BLOCK={128 * warps}" in finding.advice  # 16 bytes for each thread
    assert finding.proof is not None
    assert finding.proof.before == {"threads per element": times, "bytes each": 4}
    assert finding.proof.after == {"threads per element": 1, "bytes each": 16}
    assert ("num_warps=" in finding.advice) == (warps > 1)


def sampled(tmp_path: Path, name: str, *changes: tuple[str, str], **options: Any) -> list[Finding]:
    """What a sample of a launch gives, with its text changed."""
    text = (SAMPLES / name).read_text("utf-8")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = tmp_path / Path(name).name
    path.write_text(text)
    compiled = kanalyze.compile_kernel(str(path), **options)
    traffic = kanalyze.estimate(compiled, device="H200")
    assert not [u for u in traffic.unknown if u.field == "findings"]
    return list(traffic.findings)


def test_threads_that_repeat_others_are_no_repeated_loads(tmp_path: Path) -> None:
    """32 elements for 4 warps: each of them loads the 32, one stores them."""
    pytest.importorskip("triton")
    findings = sampled(
        tmp_path, "narrow-access/mended.py", ('"BLOCK": 1024', '"BLOCK": 32'),
        settings={"M": 4096},
    )  # fmt: skip
    assert "repeated-loads" not in {f.id for f in findings}
    (finding,) = [f for f in findings if f.id == "narrow-access"]
    assert finding.severity == "warning"
    assert finding.proof is not None
    assert finding.proof.before["time_us"] > 5 * finding.proof.after["time_us"]
    assert finding.saves["time_us"] > 0


@pytest.mark.parametrize("block", [1024, 4096])
def test_enough_elements_per_thread(source: Path, block: int) -> None:
    assert narrow(source, "scale", f"*fp16:16, *fp16:16, {block}") == []


def test_a_hint_without_effect_is_named(source: Path) -> None:
    """The mask ends anywhere, whatever is said of the offsets."""
    findings = narrow(source, "hinted", "*fp32:16, *fp32:16, i32, i32:16, 1024")
    (hint,) = [f for f in findings if "hint" in f.numbers]
    assert hint.severity == "info"
    assert "has no effect" in hint.message
    assert hint.source is not None
    assert hint.source.line == TRITON.splitlines().index(HINT) + 1
    assert hint.proof is not None
    assert hint.proof.before == hint.proof.after


def test_a_hint_with_effect_is_not_remarked_on(source: Path) -> None:
    assert narrow(source, "helped", "*fp32:16, *fp32:16, i32, 1024") == []
    findings = narrow(source, "helped", "*fp32, *fp32:16, i32, 1024")
    assert [f.numbers["missing"] for f in findings] == ["dst"]
    assert not [f for f in findings if "hint" in f.numbers]


def test_an_offset_in_the_source_is_named(source: Path) -> None:
    """11 floats: a thread's four are contiguous, 44 bytes behind a multiple of 16."""
    (finding,) = narrow(source, "shifted", "*fp32:16, *fp32:16, 1024")
    assert finding.severity == "warning"
    assert finding.numbers["offset_bytes"] == 44
    assert "an offset of 11 elements (44 B) is added" in finding.message
    assert finding.proof is not None
    assert finding.proof.before == {"requests": 8, "sectors": 8 * 16}
    assert finding.proof.after == {"requests": 2, "sectors": 2 * 16}


def test_a_tile_that_is_transposed_into_shared_memory() -> None:
    """tf32 operands of wgmma have K contiguous: B, in rows of N, is copied 4 bytes at a time."""
    pytest.importorskip("triton")
    (finding,) = found("matmul_relu", "narrow-access", dtype="fp32")
    assert finding.severity == "info"
    assert finding.numbers["pointer"] == "b_ptr"
    assert finding.numbers["shared_stride_bytes"] >= 128
    assert found("matmul_relu", "narrow-access", dtype="fp16") == []


def test_a_gather_is_not_remarked_on(source: Path) -> None:
    findings = narrow(source, "gather", "*fp32:16, *fp32:16, *i32:16, 1024")
    assert not [f for f in findings if f.numbers["pointer"] == "src"]


def test_what_a_launch_says_of_ptx_alone(tmp_path: Path) -> None:
    """Four floats of a row each, 128 apart: only a number of the launch that is odd is named."""
    body = "  ld.param.u32 %r3, [n];\n  mad.lo.s32 %r4, %r2, %r3, %r1;\n"
    body += "  mul.wide.s32 %rd5, %r4, 4;\n  add.s64 %rd6, %rd3, %rd5;\n"
    body += "  add.s64 %rd8, %rd4, %rd5;\n"
    for k in range(4):
        body += f"  ld.global.f32 %f{k}, [%rd6+{512 * k}];\n"
    for k in range(4):
        body += f"  st.global.f32 [%rd8+{512 * k}], %f{k};\n"
    path = ptx(tmp_path, body)
    odd = of_launch(path, "narrow-access", n=781)
    assert [f.numbers["missing"] for f in odd] == ["n", "n"]
    assert all("pad to 784" in f.advice for f in odd)
    even = of_launch(path, "narrow-access", n=784)
    assert [f.numbers["missing"] for f in even] == ["a, n", "b, n"]
    assert all("does not rely on it" in f.message for f in even)


def test_without_proof_nothing_is_compiled_again(source: Path) -> None:
    (finding,) = narrow(source, "scale", "*fp32, *fp32:16, 1024", prove=False)
    assert finding.proof is None
    assert finding.unproven == "not tried (--no-proof)"
    assert finding.numbers["missing"] == "dst"


def test_a_hint_is_taken_out_of_the_text() -> None:
    text = "def f(x):\n    y = g(\n        tl.multiple_of(x + 1, 16), 2)\n"
    (call,) = hint_removal.calls(text, "f")
    assert hint_removal.without(text, call) == "def f(x):\n    y = g(\n        (x + 1), 2)\n"
    nested = (
        "def f(x):\n    x = tl.max_contiguous(\n      tl.multiple_of(x, 16), 16)\n    return x\n"
    )
    (call,) = hint_removal.calls(nested, "f")
    assert hint_removal.without(nested, call) == "def f(x):\n    x = (x)\n\n    return x\n"
    assert hint_removal.calls("def f(:", "f") == []


# ------------------------------------------------------------------ PTX alone

HEAD = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b, .param .u32 n)
.reqntid 128
{
  .reg .b64 %rd<40>;
  .reg .b32 %r<40>;
  .reg .f32 %f<40>;
  ld.param.u64 %rd1, [a];
  ld.param.u64 %rd2, [b];
  cvta.to.global.u64 %rd3, %rd1;
  cvta.to.global.u64 %rd4, %rd2;
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, %ctaid.x;
"""


def ptx(tmp_path: Path, body: str) -> str:
    path = tmp_path / "k.ptx"
    path.write_text(HEAD + body + "  ret;\n}\n")
    return str(path)


def scalars(number: int, stride: int) -> str:
    """A thread's floats, contiguous, lanes ``stride`` bytes apart; their sum is stored."""
    lines = [f"mul.wide.u32 %rd5, %r1, {stride};", "add.s64 %rd6, %rd3, %rd5;"]
    lines.append("mov.f32 %f0, 0f00000000;")
    for k in range(number):
        lines.append(f"ld.global.f32 %f{k + 1}, [%rd6+{4 * k}];")
        lines.append(f"add.f32 %f0, %f0, %f{k + 1};")
    lines += ["mul.wide.u32 %rd7, %r1, 4;", "add.s64 %rd8, %rd4, %rd7;"]
    lines.append("st.global.f32 [%rd8], %f0;")
    return "".join(f"  {line}\n" for line in lines)


def test_scalars_of_a_thread_in_a_row(tmp_path: Path) -> None:
    """16 floats of 64 B each: 16 requests of 32 sectors, or 4 of 32."""
    (finding,) = found(ptx(tmp_path, scalars(16, 64)), "narrow-access")
    assert finding.severity == "warning"
    assert (finding.numbers["accesses"], finding.numbers["run"]) == (16, 16)
    assert finding.numbers["lane_stride_bytes"] == 64
    assert finding.numbers["sectors_per_request"] == 32
    assert finding.proof is not None
    assert finding.proof.method == "counted"
    assert finding.proof.before == {"requests": 16, "sectors": 512}
    assert finding.proof.after == {"requests": 4, "sectors": 128}


@pytest.mark.parametrize(
    ("number", "stride", "wide"),
    [(3, 12, None), (2, 8, 8), (4, 16, 16), (4, 20, None), (1, 4, None)],
)
def test_only_what_is_aligned_can_be_wide(
    tmp_path: Path, number: int, stride: int, wide: int | None
) -> None:
    findings = found(ptx(tmp_path, scalars(number, stride)), "narrow-access")
    assert [f.numbers["possible_bytes_per_thread"] for f in findings] == ([wide] if wide else [])


# ------------------------------------------------------------------ required alignment


def test_the_alignment_that_a_pointer_needs_is_said(source: Path) -> None:
    (kernel,) = kanalyze.analyze(
        f"{source}:scale", signature="*fp32, *fp32:16, 1024", sass=False
    ).kernels
    assert isinstance(kernel, Kernel)
    needs = {p.source_name: p.required_alignment for p in kernel.params}
    assert needs["dst"] == 4
    assert needs["src"] == 16
    assert needs["global_scratch"] is None
    arguments = ["ptx", f"{source}:scale", "--signature", "*fp32, *fp32:16, 1024", "--no-listing"]
    text = CliRunner().invoke(cli, arguments).stdout
    assert "dst: *fp32, .u64 to global, 4-B accesses: needs 4-byte alignment" in text
    assert "16-B accesses: needs 16-byte alignment" in text


# ------------------------------------------------------------------ how far lanes are apart


def stride_of(
    body: str, threads: tuple[int, int, int] = (128, 1, 1)
) -> lane_strides.AffineForm | None:
    module = parse_ptx(HEAD + body + "  ret;\n}\n")
    from kanalyze.ptx.cfg import build
    from kanalyze.symbolic import accesses

    (function,) = module.entries
    first = accesses.find(build(function), {}).accesses[0]
    lanes = lane_strides.of_lanes(first.address, threads)
    return None if lanes is None else lanes.stride


LOAD = "  add.s64 %rd6, %rd3, %rd5;\n  ld.global.f32 %f1, [%rd6];\n"
BY_N = "  ld.param.u32 %r3, [n];\n  mul.lo.s32 %r4, %r1, %r3;\n  mul.wide.s32 %rd5, %r4, 4;\n"


def test_a_stride_is_a_sum_of_arguments() -> None:
    assert stride_of("  mul.wide.u32 %rd5, %r1, 12;\n" + LOAD) == lane_strides.AffineForm(12)
    form = stride_of(BY_N + LOAD)
    assert form == lane_strides.AffineForm(0, {"n": 4})
    assert form.evaluate({"n": 5}) == 20
    assert form.evaluate({}) is None


def test_a_stride_that_is_not_linear_is_none() -> None:
    square = BY_N.replace("mul.wide.s32 %rd5, %r4, 4", "mul.wide.s32 %rd5, %r4, %r3")
    assert stride_of(square + LOAD) is None


def test_the_stride_is_the_most_frequent_step() -> None:
    """Rows of 8 lanes: seven steps of 4 bytes, then one to the next row."""
    rows = "  shr.u32 %r4, %r1, 3;\n  and.b32 %r5, %r1, 7;\n  mul.lo.s32 %r6, %r4, 1000;\n"
    rows += "  add.s32 %r7, %r6, %r5;\n  mul.wide.u32 %rd5, %r7, 4;\n"
    assert stride_of(rows + LOAD) == lane_strides.AffineForm(4)


def launch(name: str = "k", grid: int = 64, n: int = 0) -> Launch:
    params = (
        LaunchParam("a", "*fp32", 1 << 40),
        LaunchParam("b", "*fp32", 2 << 40),
        LaunchParam("n", "i32", n),
    )
    return Launch(name, (grid, 1, 1), (128, 1, 1), params)


def of_launch(path: str, rule: str, **options: Any) -> list[Finding]:
    traffic = kanalyze.estimate(path, launch(**options), device="H200", simulate=False)
    assert not [u for u in traffic.unknown if u.field == "findings"]
    return [f for f in traffic.findings if f.id == rule]


def test_what_is_a_small_part_is_passed_over(tmp_path: Path) -> None:
    """In a launch by its requests."""
    (finding,) = of_launch(ptx(tmp_path, scalars(16, 64)), "narrow-access")
    assert finding.numbers["pointer"] == "a"


@pytest.mark.parametrize(("lanes", "fires"), [(7, False), (8, True), (32, True)])
def test_few_lanes_have_nothing_to_access_together(tmp_path: Path, lanes: int, fires: bool) -> None:
    """A thread's 16 floats in as many loads, of so many lanes of each warp."""
    body = scalars(16, 64).replace("  ld.global", "  @%p1 ld.global")
    head = "  .reg .pred %p<2>;\n  and.b32 %r3, %r1, 31;\n"
    path = ptx(tmp_path, f"{head}  setp.lt.u32 %p1, %r3, {lanes};\n{body}")
    assert len(of_launch(path, "narrow-access")) == fires


def test_findings_are_json(source: Path) -> None:
    arguments = ["ptx", f"{source}:scale", "--signature", "*fp32, *fp32, 1024", "--format", "json"]
    data = json.loads(CliRunner().invoke(cli, arguments).stdout)
    (first, _) = [f for f in data["kernels"][0]["findings"] if f["id"] == "narrow-access"]
    assert first["proof"]["after"]["bytes each"] == 16


# ------------------------------------------------------------------ uncoalesced accesses


def copied(stride: int, load: str = "ld.global.f32 %f1, [%rd6]") -> str:
    return (
        f"  mul.wide.u32 %rd5, %r1, {stride};\n  add.s64 %rd6, %rd3, %rd5;\n  {load};\n"
        "  mul.wide.u32 %rd7, %r1, 4;\n  add.s64 %rd8, %rd4, %rd7;\n"
        "  st.global.f32 [%rd8], %f1;\n"
    )


@pytest.mark.parametrize(
    ("stride", "sectors", "severity"),
    [(0, 1, None), (4, 4, None), (8, 8, "warning"), (12, 12, "warning"), (32, 32, "warning"),
     (262144, 32, "warning")],
)  # fmt: skip
def test_lanes_apart(tmp_path: Path, stride: int, sectors: int, severity: str | None) -> None:
    """Distinct sectors of 32 lanes, counted by hand: ``{lane * stride // 32}``."""
    assert len({lane * stride // 32 for lane in range(32)}) == sectors
    findings = found(ptx(tmp_path, copied(stride)), "uncoalesced-access")
    assert [f.severity for f in findings] == ([severity] if severity else [])
    for finding in findings:
        assert finding.numbers["sectors_per_request"] == sectors
        assert finding.numbers["over_fetch"] == sectors * 32 / 128
        assert finding.proof is not None
        assert finding.proof.after == {"sectors per request": 4}


@pytest.mark.parametrize(("stride", "sectors"), [(16, None), (32, 32), (64, 32)])
def test_lanes_of_16_bytes_apart(tmp_path: Path, stride: int, sectors: int | None) -> None:
    """In a row 32 lanes of 16 bytes touch 16 sectors; from 32 bytes on each its own."""
    body = copied(stride, "ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd6]")
    findings = found(ptx(tmp_path, body), "uncoalesced-access")
    assert [f.numbers["sectors_per_request"] for f in findings] == ([sectors] if sectors else [])
    assert all(f.numbers["ideal_sectors_per_request"] == 16 for f in findings)


BY_ARGUMENT = BY_N + LOAD + "  st.global.f32 [%rd4], %f1;\n"


def test_an_argument_that_is_not_known_is_said(tmp_path: Path) -> None:
    (finding,) = found(ptx(tmp_path, BY_ARGUMENT), "uncoalesced-access")
    assert finding.severity == "info"
    assert "k_param_2" in finding.message or "n elements apart" in finding.message
    assert finding.numbers["sectors_apart"] == 32
    assert finding.proof is None
    assert finding.unproven == "n is not known"


@pytest.mark.parametrize(("n", "sectors"), [(1, 0), (2, 8), (64, 32)])
def test_an_argument_of_a_launch_is_put_in(tmp_path: Path, n: int, sectors: int) -> None:
    """64 blocks of 4 warps: 256 requests."""
    findings = of_launch(ptx(tmp_path, BY_ARGUMENT), "uncoalesced-access", n=n)
    if not sectors:
        assert findings == []
        return
    (finding,) = findings
    assert finding.severity == "warning"
    assert finding.numbers["stride"] == "n"
    assert finding.numbers["stride_bytes"] == 4 * n
    assert f"n = {n} elements ({4 * n} B) apart" in finding.message
    assert finding.proof is not None
    assert finding.proof.before["sectors"] == 256 * sectors
    assert finding.proof.after["sectors"] == 256 * 4
    assert finding.saves["l1_bytes"] == 256 * (sectors - 4) * 32


def test_what_a_thread_reads_next_is_only_worth_knowing(tmp_path: Path) -> None:
    """Rows of 64 bytes per thread: each sector is used, by the accesses after."""
    (finding,) = found(ptx(tmp_path, scalars(16, 64)), "uncoalesced-access")
    assert finding.severity == "info"
    assert (finding.numbers["sectors_per_request"], finding.numbers["stride_bytes"]) == (32, 64)


def test_what_runs_along_the_row_is_named(source: Path, tmp_path: Path) -> None:
    column = tmp_path / "column.py"
    column.write_text(
        TRITON.partition("@triton.jit")[0] + "@triton.jit\n"
        "def column(dst, src, stride, BLOCK: tl.constexpr):\n"
        "    i = tl.arange(0, BLOCK) * stride + tl.program_id(0)\n"
        "    tl.store(dst + i, tl.load(src + i))\n"
    )
    target = f"{column}:column"
    first, second = found(
        target, "uncoalesced-access", signature="*fp32:16, *fp32:16, i32:16, 1024",
        settings={"stride": 4096},
    )  # fmt: skip
    assert {first.numbers["pointer"], second.numbers["pointer"]} == {"src", "dst"}
    assert "stride = 4,096 elements (16,384 B) apart" in first.message
    assert "tl.program_id(0) goes along it" in first.advice


EVERY = (
    TRITON.partition("@triton.jit")[0]
    + """@triton.jit
def every(dst, src, n, stride, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(dst + i, tl.load(src + i * {by}, i < n), i < n)
"""
)


@pytest.mark.parametrize("stride", [2, 4, 5])
@pytest.mark.parametrize("constant", [False, True])
def test_one_dimension_has_no_other_order(tmp_path: Path, stride: int, constant: bool) -> None:
    """A thread has BLOCK / 128 = 8 elements, 4 of them contiguous: lanes are 4 strides apart."""
    path = tmp_path / "every.py"
    path.write_text(EVERY.format(by=stride if constant else "stride"))
    (finding,) = found(
        f"{path}:every", "uncoalesced-access",
        signature="*fp32:16, *fp32:16, i32:16, i32, 1024", settings={"stride": stride},
    )  # fmt: skip
    each = stride if constant else "stride"
    assert f"{4 * stride} elements ({16 * stride} B) apart" in finding.message
    assert f"(4 elements per thread, each {each} apart)" in finding.message
    assert f"every {each}-th element" in finding.advice
    assert "packed" in finding.advice
    assert ("tl.split in registers needs" in finding.advice) == (stride == 5)
    assert "order=(1, 0)" not in finding.advice


def test_a_packed_array_is_simulated(tmp_path: Path) -> None:
    path = tmp_path / "every.py"
    path.write_text(
        '"""What is computed."""\n\n'
        + EVERY.format(by="stride").replace("every", "every_kernel")
        + """

DTYPES = ("fp32",)
SHAPE = {"n": "elements", "stride": "elements"}
CONSTEXPRS = {"BLOCK": 1024}
OPTIONS = {"num_warps": 4, "num_stages": 1}
OVERRIDES = {}
OUTPUTS = ("dst",)
EXAMPLE = ({"n": 4194304, "stride": 5},)


def arguments(shape, dtype, constexprs):
    n, stride = shape["n"], shape["stride"]
    dst, src = ("*", dtype, (n,)), ("*", dtype, (n * stride,))
    return {"dst": dst, "src": src, "n": n, "stride": stride}


def grid(shape, constexprs):
    return (shape["n"] // constexprs["BLOCK"], 1, 1)


def reference(tensors, shape):
    return {"dst": tensors["src"][:: shape["stride"]]}
"""
    )
    traffic = kanalyze.estimate(kanalyze.compile_kernel(str(path)), device="H200")
    (finding,) = [f for f in traffic.findings if f.id == "uncoalesced-access"]
    assert finding.proof is not None
    assert finding.proof.method == "simulated"
    assert finding.proof.before["sectors"] == (1 << 22)  # one for each element
    assert finding.proof.after["sectors"] == (1 << 22) // 8
    packed = kanalyze.estimate(
        kanalyze.compile_kernel(str(path), settings={"stride": 1}), device="H200", findings=False
    ).time.predicted_us
    assert finding.proof.after["time_us"] == pytest.approx(packed, abs=1e-3)
    assert finding.saves["time_us"] > 0
    assert finding.saves["l1_bytes"] == ((1 << 22) - (1 << 22) // 8) * 32


# ------------------------------------------------------------------ misaligned accesses


@pytest.mark.parametrize(
    ("elements", "per_request"), [(0, 4), (1, 5), (8, 4), (11, 5), (31, 5), (32, 4)]
)
def test_an_offset_of_so_many_floats(tmp_path: Path, elements: int, per_request: int) -> None:
    """4 sectors where it is a multiple of 8, else 5: 128 of 160 bytes are used."""
    body = copied(4, f"ld.global.f32 %f1, [%rd6+{4 * elements}]")
    findings = of_launch(ptx(tmp_path, body), "misaligned-access")
    if per_request == 4:
        assert findings == []
        return
    (finding,) = findings
    assert finding.severity == "info"
    inside = (finding.numbers["least_bytes_inside"], finding.numbers["most_bytes_inside"])
    assert inside == (4 * elements % 32, 4 * elements % 32)
    assert finding.numbers["used_share"] == 0.8
    assert finding.numbers["sectors"] == 5 * finding.numbers["requests"]
    assert f"an offset of {elements} element" in finding.message
    assert finding.saves == {"sectors": 256}


def test_an_offset_that_is_an_argument_is_named(tmp_path: Path) -> None:
    body = (
        "  ld.param.u32 %r3, [n];\n  add.s32 %r4, %r1, %r3;\n  mul.wide.s32 %rd5, %r4, 4;\n" + LOAD
    )
    path = ptx(tmp_path, body + "  st.global.f32 [%rd4], %f1;\n")
    (finding,) = of_launch(path, "misaligned-access", n=11)
    assert "an offset of n = 11 elements is added" in finding.message
    assert of_launch(path, "misaligned-access", n=16) == []


@pytest.mark.parametrize(("n", "share"), [(781, 7 / 8), (4, 1 / 2), (784, 0)])
def test_rows_that_are_no_multiple_are_named(tmp_path: Path, n: int, share: float) -> None:
    """A row of 128 floats for each block, n floats apart."""
    body = (
        "  ld.param.u32 %r3, [n];\n  mad.lo.s32 %r4, %r2, %r3, %r1;\n"
        "  mul.wide.s32 %rd5, %r4, 4;\n" + LOAD + "  st.global.f32 [%rd4], %f1;\n"
    )
    findings = of_launch(ptx(tmp_path, body), "misaligned-access", n=n)
    if not share:
        assert findings == []
        return
    (finding,) = findings
    assert finding.numbers["misaligned_requests"] / finding.numbers["requests"] == share
    assert f"rows are n = {n} elements ({4 * n:,} B) apart" in finding.message
    padded = -(-n // 8) * 8
    assert f"pad rows to a multiple of 8 elements ({padded})" in finding.advice


def test_a_pointer_that_is_misaligned_is_named(tmp_path: Path) -> None:
    given = launch()
    shifted = LaunchParam("a", "*fp32", (1 << 40) + 4)
    other = Launch(given.kernel, given.grid, given.block, (shifted, *given.params[1:]))
    traffic = kanalyze.estimate(ptx(tmp_path, copied(4)), other, device="H200", simulate=False)
    (finding,) = [f for f in traffic.findings if f.id == "misaligned-access"]
    assert "a itself lies 4 B behind a multiple of 32" in finding.message


# ------------------------------------------------------------------ repeated loads


def looped(times: int, load: str = "ld.volatile") -> str:
    """Each block loads its 128 floats so many times; volatile loads are kept as they are."""
    return (
        "  .reg .pred %p<2>;\n  mad.lo.s32 %r4, %r2, 128, %r1;\n  mul.wide.u32 %rd5, %r4, 4;\n"
        "  add.s64 %rd6, %rd3, %rd5;\n  mov.u32 %r5, 0;\n  mov.f32 %f0, 0f00000000;\n"
        f"$L1:\n  {load}.global.f32 %f1, [%rd6];\n  add.f32 %f0, %f0, %f1;\n"
        "  add.s32 %r5, %r5, 1;\n"
        f"  setp.lt.s32 %p1, %r5, {times};\n  @%p1 bra $L1;\n"
        "  add.s64 %rd8, %rd4, %rd5;\n  st.global.f32 [%rd8], %f0;\n"
    )


@pytest.mark.parametrize(("times", "fires"), [(1, False), (2, False), (8, True)])
def test_bytes_loaded_again_and_again(tmp_path: Path, times: int, fires: bool) -> None:
    """64 blocks of 128 floats: 1,024 sectors once. Twice alone stays in L1, and binds nothing."""
    findings = of_launch(ptx(tmp_path, looped(times)), "repeated-loads")
    assert [f.numbers["times"] for f in findings] == ([times] if fires else [])
    for finding in findings:
        assert (finding.numbers["sectors"], finding.numbers["sectors_once"]) == (8192, 1024)
        assert finding.numbers["bytes_per_block"] == 512
        assert finding.saves == {"sectors": 7168, "l1_bytes": 7168 * 32}
        assert "can stay in L1" in finding.message


def test_rows_that_begin_inside_a_sector_are_no_repeats(tmp_path: Path) -> None:
    body = looped(1).replace("[%rd6]", "[%rd6+4]")
    assert of_launch(ptx(tmp_path, body), "repeated-loads") == []


# ------------------------------------------------------------------ generic, read-only, 32 bytes


def generic(body: str) -> str:
    return body.replace("ld.global", "ld").replace("st.global", "st")


def with_code(path: str, rule: str, **options: Any) -> list[Finding]:
    (kernel,) = kanalyze.analyze(path, **options).kernels
    assert isinstance(kernel, Kernel)
    return [f for f in kernel.findings if f.id == rule]


def test_generic_accesses_of_arguments(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    load, store = with_code(ptx(tmp_path, generic(copied(4))), "generic-access")
    assert (load.numbers["pointer"], store.numbers["pointer"]) == ("a", "b")
    assert load.numbers["space"] == "global"
    assert load.proof is not None
    assert list(load.proof.before.values()) == [2]
    assert list(load.proof.after.values()) == [1]


def test_generic_accesses_in_a_loop_are_a_warning(tmp_path: Path) -> None:
    load, store = found(ptx(tmp_path, generic(looped(8, "ld"))), "generic-access")
    assert (load.severity, store.severity) == ("warning", "info")
    assert load.proof is None
    assert load.unproven == "it was not asked for (--no-sass)"


def test_what_may_point_anywhere_is_not_remarked_on(tmp_path: Path) -> None:
    """The pointer is loaded from memory: it may be that of a shared variable."""
    body = "  ld.global.u64 %rd5, [%rd3];\n  ld.f32 %f1, [%rd5];\n  st.global.f32 [%rd4], %f1;\n"
    assert found(ptx(tmp_path, body), "generic-access") == []


NVCC = "// Generated by NVIDIA NVVM Compiler\n"


@pytest.mark.parametrize(
    ("head", "body", "fires"),
    [
        (NVCC, looped(8), False),  # the store stands behind the loop
        (
            NVCC,
            looped(8, "ld").replace("add.s32 %r5", "st.global.f32 [%rd4], %f0;\n  add.s32 %r5"),
            True,
        ),
        (NVCC, copied(4), False),
        (NVCC, copied(4) + "  ld.global.f32 %f2, [%rd6+4];\n", True),
        (NVCC, copied(4) + "  ld.global.nc.f32 %f2, [%rd6+4];\n", False),
        (NVCC, copied(4) + "  st.global.f32 [%rd6], %f1;\n  ld.global.f32 %f2, [%rd6+4];\n", False),
        ("// another compiler\n", copied(4) + "  ld.global.f32 %f2, [%rd6+4];\n", False),
    ],
)
def test_loads_that_wait_for_stores(tmp_path: Path, head: str, body: str, fires: bool) -> None:
    path = Path(ptx(tmp_path, body))
    path.write_text(head + path.read_text())
    findings = found(str(path), "missing-nc")
    assert [(f.severity, f.numbers["stored_through"]) for f in findings] == (
        [("info", "b")] if fires else []
    )


def test_a_store_through_an_unknown_pointer_says_nothing(tmp_path: Path) -> None:
    body = copied(4) + "  ld.global.u64 %rd9, [%rd3];\n  st.global.f32 [%rd9], %f1;\n"
    path = Path(ptx(tmp_path, body + "  ld.global.f32 %f2, [%rd6+4];\n"))
    path.write_text(NVCC + path.read_text())
    assert found(str(path), "missing-nc") == []


def pairs(stride: int, second: int) -> str:
    load = "ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd6]"
    more = f"ld.global.v4.f32 {{%f5, %f6, %f7, %f8}}, [%rd6+{second}]"
    return copied(stride, f"{load};\n  {more}")


@pytest.mark.parametrize(
    ("target", "stride", "second", "fires"),
    [
        ("sm_100", 32, 16, True),
        ("sm_103", 32, 16, True),
        ("sm_90", 32, 16, False),
        ("sm_120", 32, 16, False),
        ("sm_100", 16, 2048, False),  # a warp's 512 bytes, and then the next
        ("sm_100", 48, 16, False),  # not aligned to 32
    ],
)
def test_pairs_of_16_bytes(
    tmp_path: Path, target: str, stride: int, second: int, fires: bool
) -> None:
    path = Path(ptx(tmp_path, pairs(stride, second)))
    path.write_text(path.read_text().replace("sm_80", target).replace("8.0", "8.8"))
    findings = found(str(path), "wide-256-bit")
    assert [f.severity for f in findings] == (["info"] if fires else [])
    for finding in findings:
        assert finding.proof is not None
        assert finding.proof.before == {"requests": 2, "sectors": 64}
        assert finding.proof.after == {"requests": 1, "sectors": 32}
