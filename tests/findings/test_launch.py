"""Rules on a launch: bank conflicts, waves, tiles, order of blocks, atomics, branches."""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kanalyze import Launch, Traffic, analyze, estimate, parse_ptx
from kanalyze.frontend.subject import Settings
from kanalyze.launch.record import LaunchParam
from kanalyze.results.kernel import Finding

pytestmark = [
    pytest.mark.usefixtures("shared_cache"),
    pytest.mark.slow("compiles samples and proves its findings"),
]

SHARED = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 .ptr .global o){shape}
{{
  .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .b{bits} %v<9>;
  .shared .align 16 .b8 tile[{size}];
  ld.param.u64 %rd1, [o];
  mov.u32 %r1, %tid.x;
  and.b32 %r1, %r1, 31;
  mul.lo.u32 %r2, %r1, {stride};
  mov.u32 %r3, tile;
  add.u32 %r4, %r3, %r2;
  ld.volatile.shared.{opcode}, [%r4];
  mul.wide.u32 %rd2, %r1, {width};
  add.s64 %rd3, %rd1, %rd2;
  st.global.b{bits} [%rd3], %v1;
  ret;
}}
"""
OPCODES = {1: ("u8 %v1", 16), 4: ("b32 %v1", 32), 8: ("b64 %v1", 64),
           16: ("v4.b32 {%v1, %v2, %v3, %v4}", 32)}  # fmt: skip


def shared(width: int, stride: int, shape: str = "") -> str:
    """A kernel in which lane i of each warp loads ``width`` bytes at ``stride * i``."""
    opcode, bits = OPCODES[width]
    return SHARED.format(
        opcode=opcode, bits=bits, stride=stride, size=31 * stride + width, shape=shape,
        width=max(4, bits // 8),
    )  # fmt: skip


def of(findings: tuple[Finding, ...], id_: str) -> list[Finding]:
    return [f for f in findings if f.id == id_]


def in_ptx(text: str, id_: str) -> list[Finding]:
    report = analyze(parse_ptx(text, "k.ptx"), sass=False)
    assert not [u for u in report.unknown if u.field.endswith("findings")]
    (kernel,) = report.kernels
    return of(getattr(kernel, "findings", ()), id_)


def launched(text: str, blocks: int = 4, threads: int = 64, **more: Any) -> Traffic:
    params = (LaunchParam("o", "*fp32", 1 << 40),)
    launch = Launch("k", (blocks, 1, 1), (threads, 1, 1), params, **more)
    return estimate(parse_ptx(text, "k.ptx"), launch, device="H200")


# ------------------------------------------------------------------ bank-conflicts


def wavefronts(width: int, stride: int) -> int:
    """By the CUDA programming guide, told in bytes: groups of lanes, words, banks."""
    at_once = 32 if width <= 4 else 128 // width
    total = 0
    for first in range(0, 32, at_once):
        banks: dict[int, set[int]] = {}
        for lane in range(first, first + at_once):
            for byte in range(width):
                word = (lane * stride + byte) // 4
                banks.setdefault(word % 32, set()).add(word)
        total += max(len(words) for words in banks.values())
    return total


@pytest.mark.parametrize(
    ("width", "stride", "ways"),
    [
        (4, 4, 1), (4, 8, 2), (4, 12, 1), (4, 32, 8), (4, 128, 32), (4, 132, 1), (4, 136, 2),
        (4, 144, 4), (8, 8, 1), (8, 16, 2), (16, 16, 1), (16, 32, 2), (16, 64, 4), (1, 1, 1),
        (4, 0, 1), (1, 128, 32),
    ],
)  # fmt: skip
@pytest.mark.parametrize("known", ["launch", "shape", "nothing"])
def test_ways_of_a_conflict(width: int, stride: int, ways: int, known: str) -> None:
    shape = "" if known == "nothing" else " .reqntid 64, 1, 1"
    text = shared(width, stride, shape)
    if known == "launch":
        found = of(launched(text).findings, "bank-conflicts")
    else:
        found = in_ptx(text, "bank-conflicts")
    if ways == 1:
        assert found == []
        return
    (finding,) = found
    per = finding.numbers["wavefronts"] / finding.numbers["requests"]
    assert per == wavefronts(width, stride)
    assert finding.numbers["ways"] == ways
    assert f"{ways}-way bank conflict" in finding.message
    assert ("shape of a block" in finding.message) == (known == "nothing")
    if known != "launch":
        assert finding.severity == ("info" if known == "nothing" else "warning")


@pytest.mark.parametrize("stride", [32, 128, 136, 144, 256])
@pytest.mark.parametrize("known", ["launch", "shape"])
def test_the_padding_that_is_advised_removes_the_conflict(stride: int, known: str) -> None:
    """The stride with the padding, put into another kernel, has no conflict."""
    text = shared(4, stride, " .reqntid 64, 1, 1")
    found = launched(text).findings if known == "launch" else tuple(in_ptx(text, "bank-conflicts"))
    (finding,) = of(found, "bank-conflicts")
    assert finding.proof is not None
    assert finding.proof.method == "counted"
    assert f"each row of {stride} bytes padded by 4 bytes" in finding.proof.change
    assert f"rows of {stride // 4 + 1} elements instead of {stride // 4}" in finding.advice
    requests = finding.numbers["requests"]
    assert finding.proof.before == {"wavefronts": requests * wavefronts(4, stride)}
    assert finding.proof.after == {"wavefronts": requests}
    assert in_ptx(shared(4, stride + 4, " .reqntid 64, 1, 1"), "bank-conflicts") == []


def test_an_array_too_small_for_a_warp_in_x_has_another_block() -> None:
    """Rows of 16 threads: lanes 16 to 31 would lie outside of the array."""
    text = shared(4, 64).replace("tile[1988]", "tile[1024]")
    assert in_ptx(text, "bank-conflicts") == []


def test_addresses_that_depend_on_more_than_the_thread() -> None:
    """An argument times the thread: nothing is said; an argument added: it is the same for all."""
    scaled = shared(4, 128).replace("%r1, 128;", "%r1, %r5;")
    scaled = scaled.replace("mov.u32 %r1,", "cvt.u32.u64 %r5, %rd1;\n mov.u32 %r1,")
    assert in_ptx(scaled, "bank-conflicts") == []
    moved = shared(4, 128).replace("add.u32 %r4, %r3, %r2;", "mad.lo.u32 %r4, %r5, 4, %r3;"
                                   " add.u32 %r4, %r4, %r2;")  # fmt: skip
    moved = moved.replace("mov.u32 %r1,", "mov.u32 %r5, %ctaid.x;\n mov.u32 %r1,")
    (finding,) = in_ptx(moved, "bank-conflicts")
    assert finding.numbers["ways"] == 32


FINDINGS = Path(__file__).parents[2] / "samples" / "findings"
QUESTIONS = Path(__file__).parents[3] / "shared" / "questions"


@cache
def question(number: str) -> tuple[Path, dict[str, Any]]:
    found = sorted(QUESTIONS.glob(f"{number}_*"))
    if not found:
        pytest.skip("the questions are not here")
    return found[0], json.loads((found[0] / "expected.json").read_text("utf-8"))


def ways_of(path: Path, launch: Launch | None) -> dict[str, dict[str, int]]:
    """By kernel and kind, the ways of conflicts."""
    result: dict[str, dict[str, int]] = {}
    if launch is None:
        for kernel in analyze(path, sass=False).kernels:
            found = of(getattr(kernel, "findings", ()), "bank-conflicts")
            result[kernel.name] = {_kind(f): int(f.numbers["ways"]) for f in found}
    else:
        found = of(estimate(path, launch).findings, "bank-conflicts")
        result[launch.kernel] = {_kind(f): int(f.numbers["ways"]) for f in found}
    return result


def _kind(finding: Finding) -> str:
    return "load" if "ld.shared" in finding.message else "store"


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("pad", [0, 1, 2])
def test_question_15(pad: int, known: bool) -> None:
    folder, expected = question("15")
    params = (
        LaunchParam("o", "*fp32", 1 << 40),
        LaunchParam("a", "*fp32", 1 << 41),
        LaunchParam("w", "i32", 1024),
    )
    launch = Launch(f"tr_pad{pad}", (32, 32, 1), (32, 8, 1), params) if known else None
    ways = ways_of(folder / "transpose.sm_80.ptx", launch)[f"tr_pad{pad}"]
    right = expected[f"pad{pad}"]
    assert ways.get("load", 1) == right["load_ways"]
    assert ways.get("store", 1) == right["store_ways"]


@pytest.mark.parametrize(
    ("kernel", "case"),
    [("s_f1", "float_stride2"), ("s_f32", "float_stride32"), ("s_d1", "double_stride1"),
     ("s_v4", "float4_stride1"), ("s_b3", "float_stride3"), ("s_bc", "broadcast")],
)  # fmt: skip
def test_question_16(kernel: str, case: str) -> None:
    folder, expected = question("16")
    right = expected[case]
    ways = ways_of(folder / "strides.sm_80.ptx", None)[kernel]
    assert ways.get("load", 1) == right["wavefronts"] // right["minimum"]
    assert "store" not in ways


# ------------------------------------------------------------------ waves, grids and tiles


def product(prove: bool = False, **settings: int) -> Traffic:
    pytest.importorskip("triton")
    options = Settings(settings=settings)
    return estimate("matmul_relu", settings=options, device="H200", prove=prove)


def only(traffic: Traffic, id_: str) -> Finding:
    (finding,) = of(traffic.findings, id_)
    return finding


def test_a_last_wave_that_is_mostly_empty() -> None:
    """4352 x 1024 in tiles of 256 x 128: 17 x 8 on 132 SMs, one each."""
    finding = only(product(True, M=4352, N=1024, K=4096, BLOCK_M=256), "wave-quantisation")
    assert finding.numbers["blocks"] == 136
    assert finding.numbers["blocks_per_wave"] == 132
    assert finding.numbers["idle_share"] == pytest.approx(128 / 132)
    assert finding.numbers["lost_share"] == pytest.approx(128 / 264)
    assert (finding.numbers["fewer_blocks"], finding.numbers["more_blocks"]) == (132, 264)
    assert finding.proof is not None
    assert finding.proof.method == "simulated"
    assert finding.proof.before["blocks"] == 136
    assert finding.proof.after["time_us"] <= 0.95 * finding.proof.before["time_us"]
    assert finding.severity == "warning"


@pytest.mark.parametrize("busy", [True, False])
def test_an_empty_wave_costs_nothing_where_hbm_is_busy_all_along(
    busy: bool, tmp_path: Path
) -> None:
    """350 blocks, 264 at a time; a load of each element, and many operations on it if not busy."""
    pytest.importorskip("triton")
    path = tmp_path / "k.py"
    text = ROWS.replace('"num_warps": 4', '"num_warps": 32').replace("1024}", "8192}")
    work = "        for _ in range(200):\n            x = x * 1.01 + 0.5\n"
    load = "tl.load(x_ptr + row * N + at, mask=at < N, other=0.0)"
    text = text.replace(
        f"        acc += tl.sum({load}, axis=0)\n",
        f"        x = {load}\n{'' if busy else work}        acc += tl.sum(x, axis=0)\n",
    )
    path.write_text(text)
    options = Settings(settings={"M": 350, "N": 1 << 18})
    traffic = estimate(path, settings=options, device="H200", prove=False)
    assert traffic.waves is not None
    assert (traffic.waves.blocks, traffic.waves.blocks_per_wave) == (350, 264)
    times, predicted = traffic.time.bounds_us, traffic.time.predicted_us
    assert predicted
    assert ((times["hbm"] or 0) / predicted >= 0.8) == busy
    assert (times["launch"] or 0) / predicted < 0.5
    assert len(of(traffic.findings, "wave-quantisation")) == (not busy)


def test_full_waves_and_long_rows_of_waves() -> None:
    full = product(M=2816, N=1536, K=4096, BLOCK_M=256)  # 11 x 12 = 132
    long = product(M=8704, N=8192, K=1024, BLOCK_M=256)  # 34 x 64, 16.5 waves
    for traffic in (full, long):
        assert of(traffic.findings, "wave-quantisation") == []
        assert of(traffic.findings, "small-grid") == []


def test_a_grid_smaller_than_the_gpu() -> None:
    finding = only(product(True, M=1024, N=1024, K=4096), "small-grid")
    assert (finding.numbers["blocks"], finding.numbers["sms"]) == (64, 132)
    assert finding.numbers["idle_share"] == pytest.approx(68 / 132)
    assert finding.proof is not None
    assert finding.proof.after["blocks"] > 64
    assert finding.proof.after["time_us"] <= 0.95 * finding.proof.before["time_us"]
    change = dict(part.split("=") for part in finding.proof.change.split(", "))
    again = product(M=1024, N=1024, K=4096, **{name: int(n) for name, n in change.items()})
    assert math.prod(again.grid) == finding.proof.after["blocks"]
    assert again.time.predicted_us == pytest.approx(finding.proof.after["time_us"])


def test_a_block_for_each_sm_is_no_small_grid() -> None:
    """Persistent kernels have as many blocks as SMs, however many would fit."""
    text = shared(4, 4)
    assert of(launched(text, blocks=132).findings, "small-grid") == []
    assert of(launched(text, blocks=131).findings, "small-grid") == []
    (finding,) = of(launched(text, blocks=66).findings, "small-grid")
    assert "66\u00a0blocks on 132 SMs, 50 % of them idle" in finding.message
    assert finding.severity == "info"
    assert finding.unproven == "there is no source to compile again, only its PTX"


ROWS = '''"""The sum of each row."""

import triton
import triton.language as tl

SHAPE = {"M": "rows", "N": "columns"}
CONSTEXPRS = {"BLOCK": 1024}
EXAMPLE = ({"M": 16, "N": 1048576},)
DTYPES = ("fp32",)
OPTIONS = {"num_warps": 4, "num_stages": 3}
OVERRIDES = {}
OUTPUTS = ("y_ptr",)


@triton.jit
def k_kernel(x_ptr, y_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    acc = 0.0
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK)
        acc += tl.sum(tl.load(x_ptr + row * N + at, mask=at < N, other=0.0), axis=0)
    tl.store(y_ptr + row, acc)


def arguments(shape, dtype, constexprs):
    M, N = shape["M"], shape["N"]
    return {"x_ptr": ("*", dtype, (M, N)), "y_ptr": ("*", dtype, (M,)), "N": N}


def grid(shape, constexprs):
    return (shape["M"], 1, 1)


def reference(tensors, shape):
    return {"y_ptr": tensors["x_ptr"].sum(1)}
'''


@pytest.mark.parametrize(
    ("rows", "columns", "severity"),
    [(16, 1048576, "warning"), (16, 4096, "info"), (80, 1048576, "info")],
)
def test_few_blocks_for_long_are_a_warning(
    rows: int, columns: int, severity: str, tmp_path: Path
) -> None:
    """Fewer than 66 of 132 SMs, and more than 20 us."""
    pytest.importorskip("triton")
    path = tmp_path / "k.py"
    path.write_text(ROWS)
    options = Settings(settings={"M": rows, "N": columns})
    traffic = estimate(path, settings=options, device="H200", prove=False)
    finding = only(traffic, "small-grid")
    assert finding.severity == severity
    assert traffic.time.predicted_us is not None
    assert (severity == "warning") == (rows < 66 and traffic.time.predicted_us > 20)


@pytest.mark.parametrize(("rows", "tile"), [(260, 128), (1100, 256), (1000, 256), (130, 64)])
def test_tiles_that_reach_beyond_the_result(rows: int, tile: int) -> None:
    traffic = product(M=rows, N=8192, K=4096, BLOCK_M=tile)
    outside = 1 - rows / (-(-rows // tile) * tile)
    found = of(traffic.findings, "tile-quantisation")
    if outside < 0.1:
        assert found == []
        return
    (finding,) = found
    assert finding.numbers["outside_share"] == pytest.approx(outside)
    assert finding.numbers["stored_bytes"] == rows * 8192 * 2
    assert finding.numbers["tile_bytes"] == -(-rows // tile) * tile * 8192 * 2


def test_masked_lanes_cost_nothing_where_memory_is_the_bound() -> None:
    pytest.importorskip("triton")
    traffic = estimate("softmax", settings=Settings(settings={"N": 781}), device="H200")
    assert of(traffic.findings, "tile-quantisation") == []  # 781 of 1024, bound by HBM


# ------------------------------------------------------------------ small-tiles


def tiled(side: str, settings: dict[str, int], prove: bool = True) -> Traffic:
    pytest.importorskip("triton")
    path = FINDINGS / "small-tiles" / f"{side}.py"
    tile = {name: value for name, value in settings.items() if name != "num_warps"}
    options = Settings(settings=tile, num_warps=settings.get("num_warps"))
    return estimate(path, settings=options, device="H200", prove=prove)


def test_tiles_that_use_each_byte_too_seldom() -> None:
    """Operations for each byte through L2 are at most those of the tile: m n / (m + n) for fp16."""
    traffic = tiled("fires", {})
    finding = only(traffic, "small-tiles")
    assert finding.severity == "warning"
    assert finding.numbers["flop_per_l2_byte"] == pytest.approx(64 * 64 / 128, rel=0.02)
    assert finding.numbers["flop_per_l2_byte"] < finding.numbers["ridge"]
    assert finding.proof is not None
    change = {n: int(v) for n, v in (p.split("=") for p in finding.proof.change.split(", "))}
    m, n = change["BLOCK_M"], change["BLOCK_N"]
    assert finding.proof.after["flop_per_l2_byte"] == pytest.approx(m * n / (m + n), rel=0.03)
    then = tiled("fires", change, prove=False)
    assert finding.proof.after["blocks"] == math.prod(then.grid) == 4096**2 / m / n
    assert finding.proof.after["time_us"] == pytest.approx(then.time.predicted_us, abs=1e-3)
    assert finding.proof.after["time_us"] < 0.8 * finding.proof.before["time_us"]


@pytest.mark.parametrize("size", [{"M": 16384, "N": 256, "K": 64}, {"M": 128, "N": 128, "K": 8192}])
def test_small_tiles_are_right_where_larger_ones_do_not_help(size: dict[str, int]) -> None:
    """Bound by HBM; too few blocks even so."""
    assert of(tiled("fires", size).findings, "small-tiles") == []


@pytest.mark.parametrize("size", [1024, 4096])
def test_tiles_of_libraries_are_not_too_small(size: int) -> None:
    assert of(product(True, M=size, N=size, K=size).findings, "small-tiles") == []


# ------------------------------------------------------------------ block-order


def test_another_order_of_blocks_is_simulated() -> None:
    pytest.importorskip("triton")
    sample = FINDINGS / "matmul.py"
    by_rows = {"M": 8192, "N": 8192, "K": 512, "GROUP_M": 1}
    options = Settings(settings=by_rows)
    finding = only(estimate(sample, device="A10", settings=options), "block-order")
    assert finding.severity == "warning"
    assert finding.proof is not None
    name, value = finding.proof.change.split("=")
    assert name == "GROUP_M"
    options = Settings(settings={**by_rows, name: value})
    then = estimate(sample, device="A10", settings=options, findings=False)
    assert finding.proof.after["dram_read_bytes"] == then.counters["dram_read_bytes"]
    assert finding.proof.after["time_us"] == then.time.predicted_us
    assert finding.proof.before["dram_read_bytes"] > 2 * then.counters["dram_read_bytes"]
    assert finding.numbers["distinct_bytes"] == 2 * (8192 + 8192) * 512
    assert finding.saves["time_us"] > 0.05 * finding.proof.before["time_us"]


def test_the_order_does_not_matter_where_l2_holds_all() -> None:
    traffic = product(M=2048, N=2048, K=2048, GROUP_M=1)
    assert of(traffic.findings, "block-order") == []


# ------------------------------------------------------------------ low-bytes-in-flight


def test_bytes_in_flight_by_littles_law() -> None:
    pytest.importorskip("triton")
    sample = FINDINGS / "low-bytes-in-flight" / "fires.py"
    traffic = estimate(sample, device="H200", prove=False)
    finding = only(traffic, "low-bytes-in-flight")
    assert traffic.time.predicted_us is not None
    latency_us = float(finding.numbers["latency_ns"] or 0) / 1000
    read = traffic.counters["dram_read_bytes"] or 0
    assert finding.numbers["in_flight_bytes"] == pytest.approx(
        read / traffic.time.predicted_us * latency_us, abs=1
    )
    needed = float(finding.numbers["needed_bytes"] or 0) / latency_us / 1e6  # TB/s
    assert 3.5 < needed < 4.8  # what an H200 reaches of its 4.8
    assert finding.severity == "info"
    assert finding.unproven is not None


def test_a_launch_that_keeps_hbm_busy_has_enough_in_flight() -> None:
    pytest.importorskip("triton")
    for kernel in ("gelu", "softmax", "row_sum"):
        traffic = estimate(kernel, device="H200", prove=False)
        assert of(traffic.findings, "low-bytes-in-flight") == []


# ------------------------------------------------------------------ atomic-contention

ATOMIC = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 .ptr .global o)
{{
  .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .f32 %f<3>;
  ld.param.u64 %rd1, [o];
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mad.lo.u32 %r4, %r2, %r3, %r1;
  {index}
  mul.wide.u32 %rd2, %r5, 4;
  add.s64 %rd3, %rd1, %rd2;
  mov.f32 %f1, 0f3F800000;
  {opcode};
  ret;
}}
"""
RED = "red.global.add.f32 [%rd3], %f1"


@pytest.mark.parametrize("shift", [0, 1, 3, 5, 8, 20])
@pytest.mark.parametrize("number", [1, 3])
def test_atomics_on_the_same_address(shift: int, number: int) -> None:
    """Thread i of all goes to element i >> shift, with each of some instructions."""
    blocks, threads = 64, 256
    opcode = "; ".join([RED] * number)
    text = ATOMIC.format(index=f"shr.u32 %r5, %r4, {shift};", opcode=opcode)
    total = blocks * threads
    addresses = -(-total // (1 << shift))
    lanes = min(32, 1 << shift)
    found = of(launched(text, blocks, threads).findings, "atomic-contention")
    each = number * total / addresses
    if (lanes < 2 or each < 128) and each < 4096:
        assert found == []
        return
    (finding,) = found
    assert finding.numbers["atomics"] == number * total
    assert finding.numbers["addresses"] == addresses
    assert finding.numbers["lanes_per_address"] == lanes
    assert finding.severity == "warning"
    assert finding.proof is not None
    assert finding.proof.before["atomics"] == number * total
    assert finding.proof.after["atomics"] == number * total // lanes
    turn_us = finding.proof.before["one_address_us"] / each
    assert turn_us == pytest.approx(0.00176, rel=1e-3)  # nanoseconds / 1000, measured of an H200
    after = finding.proof.after["one_address_us"]
    assert after == pytest.approx(turn_us * each / lanes, rel=1e-3)


def test_atomics_of_many_warps_on_one_address_are_a_remark() -> None:
    first_only = "mov.u32 %r5, 0; setp.ne.u32 %p1, %r1, 0; @%p1 bra DONE;"
    one = ATOMIC.format(index=first_only, opcode=RED)
    one = one.replace(".reg .f32", ".reg .pred %p<2>; .reg .f32").replace("ret;", "DONE: ret;")
    (finding,) = of(launched(one, 8192, 64).findings, "atomic-contention")
    assert finding.severity == "info"
    assert finding.numbers["atomics_per_address"] == 8192
    assert of(launched(one, 1024, 64).findings, "atomic-contention") == []


@pytest.mark.parametrize(
    ("shift", "blocks", "bound"),
    [(20, 64, "atomics"), (2, 8192, "atomics"), (8, 64, "launch")],
    ids=["until the launch bounds", "all of the turns", "none"],
)
def test_what_is_saved_of_the_time(shift: int, blocks: int, bound: str) -> None:
    """Turns on one address, until what else the launch needs is more."""
    text = ATOMIC.format(index=f"and.b32 %r5, %r4, 7; shr.u32 %r5, %r4, {shift};", opcode=RED)
    if shift == 2:  # 4 lanes at each of 8 addresses, in all warps
        text = text.replace("shr.u32 %r5, %r4, 2;", "")
    traffic = launched(text, blocks, 256)
    finding = only(traffic, "atomic-contention")
    time = traffic.time
    assert time.bound_by == bound
    if bound != "atomics":
        assert finding.saves == {}
        return
    lanes = 4 if shift == 2 else 32
    assert finding.numbers["lanes_per_address"] == lanes
    turns_us = 0.00176 * blocks * 256 / (8 if shift == 2 else 1)
    others = max(us for name, us in time.bounds_us.items() if name != "atomics" and us)
    assert (others > turns_us / lanes) == (shift == 20)
    assert time.predicted_us is not None
    expected = time.predicted_us - max(others, turns_us / lanes)
    assert finding.saves["time_us"] == pytest.approx(expected, rel=2e-3)


@pytest.mark.parametrize("elements", [2, 4])
def test_a_vector_counts_as_one_operation_for_each_element(elements: int) -> None:
    """All lanes of 64 warps at one vector: by warp one operation for each element is left."""
    opcode = f"red.global.add.v{elements}.f32 [%rd3], {{{', '.join(['%f1'] * elements)}}}"
    text = ATOMIC.format(index="mov.u32 %r5, 0;", opcode=opcode).replace("8.0", "8.1")
    finding = only(launched(text, 8, 256), "atomic-contention")
    assert finding.numbers["atomics"] == elements * 8 * 256
    assert finding.numbers["addresses"] == elements
    assert finding.numbers["lanes_per_address"] == 32
    assert finding.proof is not None
    assert finding.proof.after["atomics"] == elements * 8 * 256 // 32


def test_elements_of_vectors_are_counted_and_time_is_saved() -> None:
    """Thread i adds 4 elements to those of group i % 4: 16 addresses, 8 lanes at each."""
    index = "and.b32 %r5, %r4, 3; shl.b32 %r5, %r5, 2;"
    text = ATOMIC.format(index=index, opcode="red.global.add.v4.f32 [%rd3], {%f1, %f1, %f1, %f1}")
    text = text.replace(".version 8.0", ".version 8.1")
    traffic = launched(text, 8192, 128)
    finding = only(traffic, "atomic-contention")
    assert finding.numbers["atomics"] == 4 * 8192 * 128
    assert finding.numbers["addresses"] == 16
    assert finding.numbers["lanes_per_address"] == 8
    assert traffic.time.bound_by == "atomics"
    assert finding.proof is not None
    assert finding.proof.before["one_address_us"] == pytest.approx(
        traffic.time.bounds_us["atomics"], rel=1e-3
    )
    others = max(t for n, t in traffic.time.bounds_us.items() if n != "atomics" and t)
    left = max(others, finding.proof.after["one_address_us"])
    assert traffic.time.predicted_us is not None
    assert finding.saves["time_us"] == pytest.approx(traffic.time.predicted_us - left, rel=1e-3)


@pytest.mark.parametrize(
    "opcode", ["atom.global.cas.b32 %r7, [%rd3], %r1, %r2", "atom.global.exch.b32 %r7, [%rd3], %r1"]
)
def test_locks_are_not_looked_at(opcode: str) -> None:
    text = ATOMIC.format(index="mov.u32 %r5, 0;", opcode=opcode)
    assert of(launched(text, 64, 256).findings, "atomic-contention") == []


# ------------------------------------------------------------------ divergent-branch


def test_branches_that_split_warps() -> None:
    """Eight steps over 256 threads: counted here thread by thread."""
    folder = FINDINGS / "divergent-branch"
    launch = Launch.from_record(folder / "fires.json")
    finding = only(estimate(folder / "fires.ptx", launch), "divergent-branch")
    active = [[t for t in range(256) if t % (2 << step) == 0] for step in range(8)]
    warps = [{t // 32 for t in threads} for threads in active]
    blocks, instructions = math.prod(launch.grid), 4  # two loads, an addition, a store
    assert finding.numbers["branches"] == 8
    assert finding.numbers["warps"] == 8 * 8 * blocks
    assert finding.numbers["split_warps"] == sum(map(len, warps)) * blocks
    assert finding.numbers["executed"] == instructions * sum(map(len, warps)) * blocks
    assert finding.numbers["needed"] == instructions * sum(map(len, active)) * blocks / 32


def test_a_branch_at_the_edge_of_a_launch_is_none() -> None:
    """Only the last warp is split where threads beyond n leave."""
    folder = FINDINGS / "divergent-branch"
    assert of(
        estimate(folder / "mended.ptx", Launch.from_record(folder / "mended.json")).findings,
        "divergent-branch",
    ) == []  # fmt: skip
    text = ATOMIC.format(
        index="mov.u32 %r5, %r4; setp.ge.u32 %p1, %r4, 1000; @%p1 bra DONE;", opcode=RED
    )
    text = text.replace(".reg .f32", ".reg .pred %p<2>; .reg .f32").replace("ret;", "DONE: ret;")
    assert of(launched(text, 8, 128).findings, "divergent-branch") == []
