"""Questions that people asked, with right answers found without kanalyze: sectors, banks, bytes…

Each number of an ``expected.json`` that an estimate should give is compared; launches are those the
questions describe. Without the questions beside the checkout the tests are skipped.
"""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kanalyze import Launch, Traffic, UsageError, occupancy, parse_ptx
from kanalyze.frontend.subject import Settings
from kanalyze.launch.record import LaunchParam
from tests.counted import estimate

pytestmark = [
    pytest.mark.usefixtures("shared_cache"),
    pytest.mark.slow("estimates and simulates whole launches"),
]

QUESTIONS = Path(__file__).parents[3] / "shared" / "questions"


@pytest.fixture(autouse=True)
def _questions_are_here() -> None:
    if not QUESTIONS.is_dir():
        pytest.skip("the questions are not here")


def folder(number: str) -> Path:
    return next(QUESTIONS.glob(f"{number}_*"))


@cache
def expected(number: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((folder(number) / "expected.json").read_text("utf-8"))
    return data


def launch(
    kernel: str,
    grid: tuple[int, ...],
    block: tuple[int, ...],
    arguments: str,
    shared_bytes: int | None = None,
) -> Launch:
    """A launch; the words of ``arguments`` are numbers, or ``*`` for an aligned pointer."""
    params = tuple(
        LaunchParam(f"p{i}", "*i8", (i + 1) << 40)
        if word == "*"
        else LaunchParam(f"p{i}", "i32", int(word))
        for i, word in enumerate(arguments.split())
    )
    extents = [(*sizes, 1, 1)[:3] for sizes in (grid, block)]
    return Launch(kernel, *extents, params, shared_bytes)  # type: ignore[arg-type]


def run(number: str, file: str, of: Launch, device: str | None = None) -> Traffic:
    return estimate(folder(number) / file, of, device=device)


def per_request(traffic: Traffic, kind: str, space: str = "global") -> set[float]:
    """Cost per request of each access that is executed."""
    found = [a for a in traffic.accesses if a.space == space and a.kind == kind and a.requests]
    return {a.cost / a.requests for a in found if a.cost is not None and a.requests}


def widths(traffic: Traffic, kind: str, space: str = "global") -> dict[str, int]:
    """Instructions by bytes per thread, as the questions write it."""
    found: dict[str, int] = {}
    for a in traffic.accesses:
        if a.space == space and a.kind == kind:
            found[f"{a.bytes_per_thread}B"] = found.get(f"{a.bytes_per_thread}B", 0) + 1
    return found


# ------------------------------------------------------------------ 02, 03, 05


@pytest.mark.parametrize("variant", ["ptr_aligned16", "ptr_unknown", "src_only_aligned"])
def test_02_alignment_that_accesses_need(variant: str) -> None:
    traffic = run("02", f"{variant}.sm86.ptx", launch("scale_1d_nomask", (8,), (128,), "* *"))
    assert widths(traffic, "load") == expected("02")[variant]["ld_global"]["by_width"]
    assert widths(traffic, "store") == expected("02")[variant]["st_global"]["by_width"]
    needed = {
        name: max(a.bytes_per_thread or 0 for a in traffic.accesses if a.pointer == pointer)
        for name, pointer in (("dst", "p0"), ("src", "p1"))
    }
    right = expected("02")["required_alignment_bytes"].get(variant, {"src": 16, "dst": 4})
    assert needed == right


@pytest.mark.parametrize(
    ("variant", "key"),
    [
        ("row_major", "unit_stride_16B"),
        ("both_col_major", "unit_stride_16B"),
        ("src_col_dst_row", "unit_stride_16B"),
        ("both_strided", "stride_64_elems_4B"),
    ],
)
def test_03_uncoalesced_tile(variant: str, key: str) -> None:
    strides = "4096 64 4096 64" if variant == "both_strided" else "64 64"
    traffic = run("03", f"{variant}.sm80.ptx", launch("tile_copy", (4,), (128,), f"* * {strides}"))
    sectors = expected("03")["sectors_per_warp_request"][key]
    assert per_request(traffic, "load") == per_request(traffic, "store") == {sectors}
    assert widths(traffic, "load") == expected("03")[variant]["ld_global"]["by_width"]
    assert widths(traffic, "store") == expected("03")[variant]["st_global"]["by_width"]


def test_03_unit_stride_of_four_bytes_is_the_ideal() -> None:
    traffic = run(
        "03", "both_strided.sm80.ptx", launch("tile_copy", (4,), (128,), "* * 4096 64 4096 64")
    )
    for access in traffic.accesses:
        assert access.ideal_cost is not None
        assert access.cost == 8 * access.ideal_cost
        unit = expected("03")["sectors_per_warp_request"]["unit_stride_4B"]
        assert access.ideal_cost == unit * (access.requests or 0)


@pytest.mark.parametrize(
    "variant",
    ["block128_warps4", "block256_warps4", "block512_warps4", "block1024_warps4",
     "block1024_warps8", "block4096_warps4"],
)  # fmt: skip
def test_05_bytes_per_thread(variant: str) -> None:
    block, warps = (int(part.lstrip("blockwarps")) for part in variant.split("_"))
    traffic = run(
        "05", f"fp16_{variant}.sm80.ptx", launch("scale_1d_nomask", (16,), (32 * warps,), "* *")
    )
    right = expected("05")[variant]
    assert widths(traffic, "load") == right["ld_global"]["by_width"]
    assert widths(traffic, "store") == right["st_global"]["by_width"]
    asked = sum((a.threads or 0) * (a.bytes_per_thread or 0) for a in traffic.accesses)
    assert asked == 2 * 16 * 32 * warps * right["ld_global"]["total_bytes_per_thread"]
    assert traffic.compulsory.read_bytes == 16 * block * 2
    assert right["elements_per_thread"] == block // (32 * warps)


# ------------------------------------------------------------------ 06, 23


FITTING = {
    "sm_75": "T4", "sm_80": "A100 SXM 80GB", "sm_86": "A10", "sm_89": "L40S", "sm_90": "H200",
    "sm_120": "RTX PRO 6000",
}  # fmt: skip


@pytest.mark.parametrize("arch", FITTING)
@pytest.mark.parametrize(
    "variant",
    ["128x128x64_stages4", "128x128x32_stages3", "128x256x64_stages3", "128x256x64_stages4",
     "128x256x64_stages5"],
)  # fmt: skip
def test_06_shared_memory_that_fits(variant: str, arch: str) -> None:
    right = expected("06")[variant]
    file = f"mm_{variant.replace('stages', 's')}.sm80.ptx"
    of = launch("mm", (8, 8), (256,), "* * * 1024 1024 1024 1024", right["shared_bytes"])
    traffic = run("06", file, of, FITTING[arch])
    assert traffic.shared_bytes == right["shared_bytes"]
    fits = traffic.occupancy is not None and traffic.occupancy.blocks_per_sm > 0
    assert fits == right["fits"][arch]
    if not fits:
        reason = next(u.reason for u in traffic.unknown if u.field == "occupancy")
        assert "shared memory" in reason
        assert f"{expected('06')['limits'][arch]}" in reason.replace(",", "")


def test_06_dynamic_shared_memory_is_not_zero() -> None:
    of = launch("mm", (8, 8), (256,), "* * * 1024 1024 1024 1024")
    traffic = run("06", "mm_128x128x64_s4.sm80.ptx", of)
    assert traffic.shared_bytes is None
    assert traffic.occupancy is None
    assert {u.field for u in traffic.unknown} >= {"occupancy", "waves"}


SLOTS = {
    (108, 1): ("A100 SXM 80GB", 100000),
    (108, 4): ("A100 SXM 80GB", 33000),
    (132, 1): ("H200", 150000),
    (132, 2): ("H200", 100000),
    (148, 1): ("B200", 150000),
}
"""SMs and blocks on each: a device, and how much shared memory leaves room for so many blocks."""


@pytest.mark.parametrize(
    "case",
    ["1792x1792_tile256x128_sm108_x1", "1793x1792_tile256x128_sm108_x1",
     "1920x1920_tile256x128_sm108_x1", "4096x4096_tile128x256_sm108_x1",
     "8192x8192_tile128x256_sm132_x1", "4096x4096_tile128x128_sm132_x2",
     "5120x5120_tile128x128_sm148_x1", "257x256_tile64x64_sm108_x4"],
)  # fmt: skip
def test_23_waves(case: str) -> None:
    right = expected("23")[case]
    _, _, sms, per_sm = case.split("_")
    device, shared_bytes = SLOTS[int(sms[2:]), int(per_sm[1:])]
    of = launch("tile_copy", (right["tiles"],), (128,), "* * 64 64", shared_bytes)
    waves = run("03", "row_major.sm80.ptx", of, device).waves
    assert waves is not None
    assert waves.blocks_per_wave == right["slots"]
    assert round(waves.waves, 4) == right["waves"]
    rounds = math.ceil(waves.waves)
    assert rounds == right["full_waves"]
    assert round(waves.waves / rounds, 4) == right["efficiency"]
    left = (right["tiles"] - 1) % right["slots"] + 1
    assert waves.last_wave_blocks == left
    assert waves.idle_share == pytest.approx(1 - left / right["slots"])


# ------------------------------------------------------------------ 12


@pytest.mark.parametrize("variant", ["scatter_sum", "scatter_sum_relaxed"])
@pytest.mark.parametrize("arch", ["sm80", "sm90"])
def test_12_atomics_depend_on_data_and_there_are_no_stores(variant: str, arch: str) -> None:
    traffic = run("12", f"{variant}.{arch}.ptx", launch(variant, (4,), (128,), "* * *"))
    right = expected("12")[f"{variant}.{arch}"]
    assert widths(traffic, "load") == right["ld_global"]["by_width"]
    assert traffic.counters["global_store_requests"] == right["st_global"]["count"] == 0
    moving = [a for a in traffic.accesses if a.kind in ("atomic", "reduction")]
    assert {a.opcode: sum(b.opcode == a.opcode for b in moving) for a in moving} == right["atom"]
    assert all(a.requests is None and "data" in (a.reason or "") for a in moving)
    unknown = {u.field for u in traffic.unknown}
    assert unknown & {"counters.global_atomic_sectors", "counters.global_reduction_sectors"}


# ------------------------------------------------------------------ 15, 16


@pytest.mark.parametrize("pad", ["pad0", "pad1", "pad2"])
def test_15_transpose(pad: str) -> None:
    right = expected("15")[pad]
    of = launch(f"tr_{pad}", (32, 32), (32, 8), "* * 1024")
    traffic = run("15", "transpose.sm_80.ptx", of)
    assert per_request(traffic, "load", "shared") == {right["load_ways"]}
    assert per_request(traffic, "store", "shared") == {right["store_ways"]}
    assert traffic.shared_bytes == right["smem_bytes"]
    (ptxas,) = (p for p in expected("15")["ptxas"] if p["entry"] == f"tr_{pad}")
    assert traffic.registers_per_thread == ptxas["regs"]
    for kind in ("load", "store"):
        name = f"{'ld' if kind == 'load' else 'st'}_shared"
        assert widths(traffic, kind, "shared") == expected("15")[name][f"tr_{pad}"]["by_width"]


STRIDED = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry strided(.param .u64 strided_param_0)
{{
    .reg .b32 %r<4>;
    .reg .b64 %rd<3>;
    .shared .align 16 .b8 t[{size}];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, t;
    mad.lo.s32 %r3, %r1, {stride}, %r2;
    ld.volatile.shared.{type} %{register}, [%r3];
    ret;
}}
"""


def strided(type_: str, stride: int) -> Traffic:
    register = "rd2" if type_ == "b64" else "r1"
    text = STRIDED.format(type=type_, stride=stride, register=register, size=32 * max(stride, 16))
    if type_ == "v4.b32":
        text = text.replace("%r1, [%r3]", "{%r1, %r1, %r1, %r1}, [%r3]")
    return estimate(parse_ptx(text), launch("strided", (1,), (32,), "*"))


def test_15_padding_by_four() -> None:
    traffic = strided("b32", 4 * (32 + 4))
    assert per_request(traffic, "load", "shared") == {expected("15")["pad4"]["load_ways"]}
    assert traffic.shared_bytes == expected("15")["pad4"]["smem_bytes"]


@pytest.mark.parametrize(
    ("kernel", "arguments", "threads", "key"),
    [
        ("s_f1", "* 2", 32, "float_stride2"),
        ("s_f32", "*", 32, "float_stride32"),
        ("s_b3", "*", 32, "float_stride3"),
        ("s_d1", "*", 256, "double_stride1"),
        ("s_v4", "*", 256, "float4_stride1"),
        ("s_bc", "*", 256, "broadcast"),
    ],
)
def test_16_strides(kernel: str, arguments: str, threads: int, key: str) -> None:
    right = expected("16")
    traffic = run("16", "strides.sm_80.ptx", launch(kernel, (1,), (threads,), arguments))
    assert per_request(traffic, "load", "shared") == {right[key]["wavefronts"]}
    (load,) = (a for a in traffic.accesses if a.space == "shared" and a.kind == "load")
    assert load.ideal_cost == right[key]["minimum"] * (load.requests or 0)
    by_width = right["ld_shared_in_ptx"][kernel]["by_width"]
    assert widths(traffic, "load", "shared") == by_width


@pytest.mark.parametrize(
    ("key", "type_", "stride"),
    [
        ("float_stride2", "b32", 8),
        ("float_stride32", "b32", 128),
        ("float_stride3", "b32", 12),
        ("float_stride8", "b32", 32),
        ("double_stride1", "b64", 8),
        ("double_stride2", "b64", 16),
        ("float4_stride1", "v4.b32", 16),
        ("broadcast", "b32", 0),
        ("byte_stride1", "u8", 1),
    ],
)
def test_16_patterns_without_a_file(key: str, type_: str, stride: int) -> None:
    (load,) = strided(type_, stride).accesses
    assert (load.requests, load.cost) == (1, expected("16")[key]["wavefronts"])
    assert load.ideal_cost == min(expected("16")[key]["minimum"], load.cost or 0)


# ------------------------------------------------------------------ 18, 19


@pytest.mark.parametrize("offset", [0, 1, 8, 11, 31, 32])
def test_18_misaligned_rows(offset: int) -> None:
    of = launch("shifted", (64,), (256,), f"* * * {offset} {1 << 30}")
    traffic = run("18", "shift.sm_75.ptx", of, "T4")
    sectors = expected("18")["sectors"][f"offset{offset}_float"]
    assert per_request(traffic, "load") == per_request(traffic, "store") == {sectors}
    load = next(a for a in traffic.accesses if a.kind == "load")
    assert load.ideal_cost is not None
    assert load.cost is not None
    assert load.ideal_cost / load.cost == (0.8 if sectors == 5 else 1)
    for name, kind in (("ld_global", "load"), ("st_global", "store")):
        assert widths(traffic, kind) == expected("18")[name]["shifted"]["by_width"]


def test_18_a_constant_offset() -> None:
    traffic = run("18", "shift.sm_75.ptx", launch("shifted11", (64,), (256,), f"* * * {1 << 30}"))
    assert per_request(traffic, "load") == {expected("18")["sectors"]["offset11_float"]}
    assert per_request(traffic, "store") == {expected("18")["sectors"]["offset0_float"]}


@pytest.mark.parametrize("kernel", ["far", "near"])
def test_19_bytes_fetched_and_bytes_asked_for(kernel: str) -> None:
    traffic = run("19", "far.sm_80.ptx", launch(kernel, (64,), (256,), "* * 5"))
    right = expected("19")[kernel]
    assert per_request(traffic, "load") == {right["sectors_per_request"]}
    loads = [a for a in traffic.accesses if a.kind == "load"]
    asked = sum((a.threads or 0) * (a.bytes_per_thread or 0) for a in loads)
    sectors = traffic.counters["global_load_sectors"]
    assert sectors is not None
    assert 32 * sectors / asked == right["overfetch"]
    assert traffic.compulsory.read_bytes == 32 * sectors
    assert traffic.counters["global_store_sectors"] is None  # stores only where the data is not 0
    assert widths(traffic, "load") == expected("19")["ld_global"][kernel]["by_width"]
    assert widths(traffic, "store") == expected("19")["st_global"][kernel]["by_width"]


COPY = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry copy(.param .u64 copy_param_0, .param .u64 copy_param_1)
{
    .reg .b32 %r<5>;
    .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [copy_param_0];
    ld.param.u64 %rd2, [copy_param_1];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    mad.lo.s32 %r3, %r2, 1024, %r1;
    mul.wide.u32 %rd3, %r3, 4;
    add.s64 %rd4, %rd2, %rd3;
    ld.global.b32 %r4, [%rd4];
    add.s64 %rd5, %rd1, %rd3;
    st.global.b32 [%rd5], %r4;
    ret;
}
"""


def test_19_a_coalesced_copy_of_four_gigabytes() -> None:
    right = expected("19")["coalesced_copy_1Gi_floats"]
    traffic = estimate(parse_ptx(COPY), launch("copy", (1 << 20,), (1024,), "* *"))
    assert traffic.counters["global_load_requests"] == right["warps"]
    assert traffic.counters["global_load_sectors"] == right["read_sectors"]
    assert per_request(traffic, "load") == {right["sectors_per_request"]}
    assert traffic.compulsory.read_bytes == right["bytes_read"]
    assert traffic.compulsory.write_bytes == right["bytes_written"]


# ------------------------------------------------------------------ 25, 26


def moved(traffic: Traffic) -> int:
    assert traffic.compulsory.read_bytes is not None
    assert traffic.compulsory.write_bytes is not None
    return traffic.compulsory.read_bytes + traffic.compulsory.write_bytes


def test_25_softmax() -> None:
    right = expected("25")
    of = launch("row_softmax", (right["programs"],), (right["threads"],), "* * 1024 1024")
    traffic = run("25", "row_softmax.sm80.ptx", of)
    assert moved(traffic) == right["fused_bytes"] == right["bytes_from_ptx"]
    assert round(moved(traffic) / 40e-6 / 1e9, 1) == right["gbps_at_40us"]
    assert round(right["naive_bytes"] / moved(traffic), 3) == right["ratio"]
    for space in ("global", "shared"):
        for kind, name in (("load", "ld"), ("store", "st")):
            assert widths(traffic, kind, space) == right[f"{name}_{space}"]["by_width"]


def test_25_softmax_of_781_columns() -> None:
    pytest.importorskip("triton")
    settings = Settings(settings={"M": "4096", "N": "781", "BLOCK_SIZE": "1024"})
    assert moved(estimate("softmax", settings=settings)) == expected("25")["bytes_n781"]


def test_26_add_rmsnorm() -> None:
    right = expected("26")
    traffic = run(
        "26", "add_rms.sm80.ptx", launch("add_rms", (1024,), (right["threads"],), "* * * 4096 0")
    )
    assert moved(traffic) == right["compulsory_bytes"]
    without = [p for p in traffic.compulsory.pointers if p.pointer != "p1"]
    rest = sum((p.read_bytes or 0) + (p.write_bytes or 0) for p in without)
    assert rest == right["without_residual"]
    sectors = [traffic.counters[f"global_{kind}_sectors"] for kind in ("load", "store")]
    assert 32 * sum(n or 0 for n in sectors) == right["requested_bytes"]
    assert widths(traffic, "load") == right["ld_global"]["by_width"]
    assert widths(traffic, "store") == right["st_global"]["by_width"]


# ------------------------------------------------------------------ 35


@pytest.mark.parametrize("kernel", ["dot16", "dot16v", "rows"])
def test_35_loads_of_rows(kernel: str) -> None:
    right = expected("35")
    arguments = "* * 101" if kernel == "rows" else "* * *"
    traffic = run("35", "loops.sm_80.ptx", launch(kernel, (1,), (256,), arguments))
    (ptxas,) = (p for p in right["ptxas"] if p["entry"] == kernel)
    assert traffic.registers_per_thread == ptxas["regs"]
    assert widths(traffic, "load") == right["ptx_ld"][kernel]["by_width"]
    assert widths(traffic, "store") == right["ptx_st"][kernel]["by_width"]
    if kernel == "rows":  # executed, not listed
        assert traffic.counters["global_load_requests"] == 101 * 8
    else:
        assert per_request(traffic, "load") == {right[f"{kernel}_sectors_per_request"]}


def test_occupancy_of_the_estimate_is_that_of_the_command() -> None:
    of = launch("tile_copy", (4,), (128,), "* * 64 64", 50000)
    traffic = run("03", "row_major.sm80.ptx", of, "H200")
    assert traffic.registers_per_thread is not None
    assert traffic.occupancy is not None
    alone = occupancy(
        threads=128, registers=traffic.registers_per_thread, shared_bytes=50000, device="H200"
    )
    assert traffic.occupancy.percent == alone.percent
    assert traffic.occupancy.limited_by == alone.limited_by


def test_several_kernels_need_a_name() -> None:
    of = launch("unlike", (1,), (32,), "*")
    with pytest.raises(UsageError, match="s_f1"):
        run("16", "strides.sm_80.ptx", of)
