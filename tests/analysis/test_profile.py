"""Rows, summary and findings: numbers worked out by hand, and silence where there is nothing."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kanalyze.analysis.profile import CollectedProfile, View, decode_files, report_on
from kanalyze.models.tiling import tile_efficiency
from kanalyze.profiles.chains import Chains
from kanalyze.profiles.collector import Collector
from kanalyze.profiles.names import decode
from kanalyze.profiles.operators import moved_by, product_of
from kanalyze.profiles.readers import Event, Operator, ProfiledDevice
from kanalyze.profiles.tensorcores import uses_tensor_cores
from kanalyze.results.profile import ProfileReport

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "samples" / "dumps"
SHARED = ROOT.parent / "shared" / "dumps"

H200 = ProfiledDevice(0, "NVIDIA H200", (9, 0), 132)
SIMT = "ampere_sgemm_128x128_nn"
TENSOR = "cutlass_80_tensorop_s1688gemm_64x64_32x6_nn_align4"
POINTWISE = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
    "std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)"
)
BIG = Operator("aten::add", ((4096, 4096), (4096, 4096)), ("float", "float"))


def mm(m: int, n: int, k: int, dtype: str = "float") -> Operator:
    return Operator("aten::mm", ((m, k), (k, n)), (dtype, dtype))


def report(events: Sequence[Event], **wanted: Any) -> ProfileReport:
    kernels = Collector()
    for event in events:
        kernels.add(event)
    return report_on(CollectedProfile(kernels), View(**wanted))


def ids(found: ProfileReport) -> list[str]:
    return [f.id for f in found.findings]


# --- rows and summary ---------------------------------------------------------------------------


def test_rows_add_up_to_the_events() -> None:
    found = decode_files([SAMPLES / "gemms.trace.json.gz"])
    wanted = json.loads((SAMPLES / "gemms.kernels.json").read_text())
    assert {r.name.name: r.calls for r in found.kernels} == {n: c for n, (c, _) in wanted.items()}
    total = sum(t for _, t in wanted.values())
    assert found.summary.total_us == pytest.approx(total)
    assert sum(r.share or 0.0 for r in found.kernels) == pytest.approx(1.0)
    for groups in (found.summary.by_op, found.summary.by_family, found.summary.by_arch):
        assert sum(g.total_us or 0.0 for g in groups) == pytest.approx(total)
        assert sum(g.calls for g in groups) == 143
    times = [r.total_us or 0.0 for r in found.kernels]
    assert times == sorted(times, reverse=True)


def test_several_files_are_one_profile() -> None:
    one = decode_files([SAMPLES / "gelu_naive.trace.json.gz"])
    two = decode_files([SAMPLES / "gelu_naive.trace.json.gz"] * 2)
    assert two.summary.calls == 2 * one.summary.calls
    assert len(two.kernels) == len(one.kernels)


def test_products_and_their_rate() -> None:
    operator = mm(2048, 1024, 512)
    found = report([Event(SIMT, total_us=1000.0, device=H200, operator=operator)] * 3)
    (problem,) = found.kernels[0].problems
    assert (problem.m, problem.n, problem.k, problem.batch, problem.dtype) == (
        2048,
        1024,
        512,
        1,
        "f32",
    )
    assert (problem.calls, problem.total_us, problem.flops) == (3, 3000.0, 2 * 2048 * 1024 * 512)
    assert problem.tflops == pytest.approx(2 * 2048 * 1024 * 512 / 1e-3 / 1e12)
    known = problem.peak_tflops is not None
    assert known == (problem.peak_share is not None) == (problem.peak_source is not None)
    assert known or any("peak_share" in u.field for u in found.unknown)


def test_no_product_of_what_is_no_product() -> None:
    found = report([Event(POINTWISE, total_us=1000.0, operator=mm(64, 64, 64))])
    assert found.kernels[0].problems == ()


@pytest.mark.parametrize(
    ("operator", "wanted"),
    [
        (mm(2, 3, 4), (2, 3, 4, 1)),
        (Operator("aten::addmm", ((3,), (2, 4), (4, 3)), ("float",) * 3), (2, 3, 4, 1)),
        (Operator("aten::bmm", ((8, 2, 4), (8, 4, 3)), ("c10::Half",) * 2), (2, 3, 4, 8)),
        (Operator("aten::baddbmm", ((8, 2, 3), (8, 2, 4), (8, 4, 3)), ("float",) * 3),
         (2, 3, 4, 8)),
        (Operator("aten::_scaled_mm", ((2, 4), (4, 3)), ("c10::Float8_e4m3fn",) * 2), (2, 3, 4, 1)),
        (Operator("aten::mm", ((2, 4), (5, 3)), ("float",) * 2), None),
        (Operator("aten::mm", ((2, 4), None), ("float",) * 2), None),
        (Operator("aten::mm", ((2, 4), (4, 3)), ("c10::complex<float>",) * 2), None),
        (Operator("aten::mul", ((2, 4), (4, 3)), ("float",) * 2), None),
        (Operator("aten::mm"), None),
    ],
)  # fmt: skip
def test_products(operator: Operator, wanted: tuple[int, ...] | None) -> None:
    found = product_of(operator)
    assert (found and (found.m, found.n, found.k, found.batch)) == wanted


@pytest.mark.parametrize(
    ("operator", "read", "written"),
    [
        (Operator("aten::mul", ((8, 4), ()), ("float", "double")), 128, 128),
        (Operator("aten::mul", ((8, 4), (8, 4)), ("float", "float")), 256, 128),
        (Operator("aten::add", ((8, 4), (4,)), ("c10::Half", "c10::Half")), 72, 64),
        (Operator("aten::add", ((8, 1), (1, 4)), ("c10::Half", "float")), 32, 128),
        (Operator("aten::add_", ((8, 4), (8, 4)), ("c10::Half", "float")), 192, 64),
        (Operator("aten::copy_", ((8, 4), (8, 4)), ("c10::Half", "float")), 128, 64),
        (Operator("aten::fill_", ((8, 4), ()), ("float", "Scalar")), 0, 128),
        (Operator("aten::eq", ((8, 4), (8, 4)), ("float", "float")), 256, 32),
    ],
)
def test_bytes_of_elementwise_operators(operator: Operator, read: int, written: int) -> None:
    found = moved_by(operator)
    assert found is not None
    assert (found.read, found.written) == (read, written)


def test_bytes_are_not_made_up() -> None:
    for operator in (
        Operator("aten::add", ((8, 4), None), ("float", "float")),
        Operator("aten::add", ((8, 4), (8, 4)), ("float", "something")),
        Operator("aten::add", ((8, 4), (8, 3)), ("float", "float")),
        Operator("aten::native_dropout", ((8, 4),), ("float",)),
        Operator("aten::add"),
    ):
        assert moved_by(operator) is None


def test_occupancy_and_waves() -> None:
    event = Event(SIMT, total_us=100.0, grid=(200, 1, 1), block=(256, 1, 1),
                  registers_per_thread=122, shared_bytes=16384, device=H200)  # fmt: skip
    (launch,) = report([event]).kernels[0].launches
    assert (launch.blocks_per_sm, launch.occupancy) == (2, 0.25)  # 65536 // (128 * 256) = 2
    assert launch.waves == pytest.approx(200 / 264)
    bare = Event(SIMT, total_us=100.0, grid=(200, 1, 1), block=(256, 1, 1), device=H200)
    assert report([bare]).kernels[0].launches[0].occupancy is None


def test_names_without_times() -> None:
    found = report([Event(SIMT), Event(TENSOR), Event(SIMT)])
    assert [(r.calls, r.total_us, r.share) for r in found.kernels] == [
        (2, None, None),
        (1, None, None),
    ]
    assert found.summary.total_us is None
    assert found.summary.tensor_core_share is None
    assert {u.field for u in found.unknown} >= {"summary.total_us", "summary.tensor_core_share"}
    assert found.findings == ()


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        (SIMT, False), (TENSOR, True), (POINTWISE, False), ("Memset (Device)", False),
        ("some_kernel_of_mine", None), ("triton_poi_fused_add_mul_tanh_0", False),
        ("triton_tem_fused_mm_0", None), ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_"
         "stage3_warpsize2x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas", False),
        ("nvjet_sm90_tst_128x128_64x6_2x1_v_bz_NNT", True),
    ],
)  # fmt: skip
def test_tensor_cores(name: str, wanted: bool | None) -> None:
    assert uses_tensor_cores(decode(name)) is wanted


def test_the_share_on_tensor_cores() -> None:
    events = [Event(TENSOR, total_us=30.0), Event(SIMT, total_us=70.0)]
    summary = report(events).summary
    assert (summary.tensor_core_share, summary.tensor_core_range) == (0.3, (0.3, 0.3))
    summary = report([*events, Event("mine_kernel_x", total_us=100.0)]).summary
    assert summary.tensor_core_share is None
    assert summary.tensor_core_range == (0.15, pytest.approx(0.65))


def test_match_sort_top_and_groups() -> None:
    events = [Event(TENSOR, total_us=30.0), Event(SIMT, calls=5, total_us=60.0),
              Event("mine_x", total_us=10.0)]  # fmt: skip
    assert [r.name.name for r in report(events).kernels] == [SIMT, TENSOR, "mine_x"]
    assert [r.name.name for r in report(events, sort="mean").kernels] == [TENSOR, SIMT, "mine_x"]
    assert [r.name.name for r in report(events, sort="name", top=2).kernels] == [SIMT, TENSOR]
    found = report(events, match="GEMM")
    assert {r.name.name for r in found.kernels} == {SIMT, TENSOR}
    assert [r.share for r in found.kernels] == [0.6, 0.3]  # of everything, not of what matches
    assert found.summary.total_us == 90.0
    assert [g.share for g in found.summary.by_op] == [0.9]
    groups = report(events, group_by="op").groups
    assert [(g.key, g.kernels, g.calls, g.total_us) for g in groups] == [
        ("gemm", 2, 6, 90.0), ("unknown", 1, 1, 10.0)]  # fmt: skip


def test_groups_by_device_and_file_split_a_name() -> None:
    other = ProfiledDevice(1, "NVIDIA H200", (9, 0), 132)
    a100 = ProfiledDevice(0, "NVIDIA A100-SXM4-40GB", (8, 0), 108)
    events = [Event(SIMT, total_us=1.0, device=d, file=f)
              for d, f in ((H200, "a"), (other, "a"), (a100, "b"), (None, "b"))]  # fmt: skip
    found = report(events, group_by="device").groups
    assert {g.key: g.calls for g in found} == {"NVIDIA H200": 2, "NVIDIA A100-SXM4-40GB": 1}
    found = report(events, group_by="file").groups
    assert {g.key: g.calls for g in found} == {"a": 2, "b": 2}


def test_equal_devices_of_different_objects_are_one() -> None:
    events = [
        Event(SIMT, total_us=1.0, device=ProfiledDevice(0, "X", (9, 0), 1)) for _ in range(5000)
    ]
    row = report(events).kernels[0]
    assert row.devices == ("X",)
    assert [launch.calls for launch in row.launches] == []  # no grid: nothing to show
    found = report(events, group_by="device")
    assert [(g.key, g.calls) for g in found.groups] == [("X", 5000)]


def test_many_kinds_of_launches_stay_bounded() -> None:
    collector = Collector()
    for grid in range(1, 1000):
        collector.add(Event(SIMT, total_us=1.0, grid=(grid, 1, 1), block=(1, 1, 1), device=H200))
    found = collector.by_name[SIMT]
    assert len(found.launches) <= 65
    assert sum(tally.calls for _, tally in found.launches.values()) == 999
    assert found.devices()[H200].calls == 999


# --- findings -----------------------------------------------------------------------------------


def test_the_naive_gelu() -> None:
    found = decode_files([SAMPLES / "gelu_naive.trace.json.gz"])
    (finding,) = found.findings
    assert finding.id == "unfused-elementwise"
    tensor = 16384 * 4096 * 4
    # 3 times x * number, 3 times tensor * tensor, tensor + number, tensor + tensor, tanh
    assert finding.numbers["kernels"] == 9
    assert finding.numbers["times"] == 3
    assert finding.numbers["read_bytes"] == (3 + 6 + 1 + 2 + 1) * tensor
    assert finding.numbers["written_bytes"] == 9 * tensor
    assert finding.numbers["fused_bytes_at_least"] == 2 * tensor
    assert finding.numbers["total_us"] == pytest.approx(4131.555)
    assert len(finding.kernels) == 5
    assert "5.91 GB" in finding.message
    assert "537 MB" in finding.message


@pytest.mark.parametrize("name", ["gelu_builtin", "gelu_compiled"])
def test_silence_on_good_profiles(name: str) -> None:
    assert decode_files([SAMPLES / f"{name}.trace.json.gz"]).findings == ()
    assert decode_files([SAMPLES / f"{name}.table.txt"]).findings == ()


def test_a_table_gives_no_chain() -> None:
    assert decode_files([SAMPLES / "gelu_naive.table.txt"]).findings == ()


def chain(
    events: Sequence[tuple[str, Operator | None]], start: float = 0.0, **more: Any
) -> list[Event]:
    return [
        Event(
            name, total_us=50.0, start_us=start + 60 * i, operator=op, stream=7, device=H200, **more
        )
        for i, (name, op) in enumerate(events)
    ]


def test_chains_end_where_something_else_runs() -> None:
    add = (POINTWISE, BIG)
    sub = (POINTWISE.replace("add", "sub"), BIG)
    mul = (POINTWISE.replace("add", "mul"), BIG)
    assert ids(report(chain([add, sub, mul]))) == ["unfused-elementwise"]
    assert ids(report(chain([add, sub, (SIMT, None), mul]))) == ["fp32-simt-gemm"]
    larger = Operator("aten::add", ((4096, 8192),), ("float",))
    assert ids(report(chain([add, sub, (mul[0], larger)]))) == []  # not as many elements
    assert ids(report(chain([add] * 9))) == []  # the same on nine tensors is no chain
    assert ids(report(chain([add, sub]) + chain([mul], 1000.0, grid=(1, 1, 1)))) != []
    two = chain([add, sub])
    other = [Event(mul[0], total_us=50.0, start_us=500.0, operator=BIG, stream=8, device=H200)]
    assert ids(report(two + other)) == []  # another stream
    assert ids(report(chain([add, sub], 5000.0) + chain([mul], 0.0))) == []  # back in time
    unknown = Operator("aten::add", ((4096, 4096), None), ("float", "float"))
    assert ids(report(chain([add, sub, (mul[0], unknown)]))) == []  # bytes are not known


def test_small_chains_are_not_worth_a_word() -> None:
    tiny = Operator("aten::add", ((64, 64), (64, 64)), ("float", "float"))
    names = [POINTWISE, POINTWISE.replace("add", "sub"), POINTWISE.replace("add", "mul")]
    assert ids(report(chain([(n, tiny) for n in names]))) == []


def test_repetitions_are_folded() -> None:
    names = [POINTWISE, POINTWISE.replace("add", "sub"), POINTWISE.replace("add", "mul")]
    found = report(chain([(n, BIG) for n in names] * 5))
    (finding,) = found.findings
    assert (finding.numbers["kernels"], finding.numbers["times"]) == (3, 5)
    assert finding.numbers["read_bytes"] == 6 * 4096 * 4096 * 4
    assert finding.numbers["fused_bytes_at_least"] == 2 * 4096 * 4096 * 4


def test_the_memory_of_chains_is_bounded() -> None:
    chains = Chains()
    for i in range(30_000):
        chains.add(Event(f"k{i}", total_us=1.0, start_us=float(i), stream=1), True)
    assert len(chains.all()) <= 2000


def test_fp32_products_on_cuda_cores() -> None:
    events = [Event(SIMT, calls=7, total_us=60.0), Event("mine_x", total_us=40.0)]
    (finding,) = report(events).findings
    assert finding.id == "fp32-simt-gemm"
    assert finding.numbers == {"calls": 7, "total_us": 60.0, "share": 0.6}
    assert "if the GPU is an Ampere or later" in finding.advice
    turing = [
        Event(SIMT, total_us=60.0, device=ProfiledDevice(0, "T4", (7, 5), 40), grid=(1, 1, 1))
    ]
    assert ids(report(turing)) == []
    half = Event("ampere_hgemm_128x128_nn", total_us=60.0)
    assert ids(report([half])) == []
    assert ids(report([Event(SIMT, total_us=4.0), Event("mine_x", total_us=96.0)])) == []


def older(name: str, capability: tuple[int, int], **more: Any) -> ProfileReport:
    device = ProfiledDevice(0, "D", capability, 100)
    return report([Event(name, total_us=500.0, device=device, grid=(500, 1, 1), **more)])


def test_kernels_for_an_older_architecture() -> None:
    found = older(TENSOR, (9, 0))
    (finding,) = found.findings
    assert finding.id == "older-architecture"
    assert finding.numbers["built_for"] == "sm_80"
    assert "wgmma" in finding.message
    assert ids(older(TENSOR, (8, 6))) == []
    assert ids(older(TENSOR, (8, 9))) == []
    assert ids(older(TENSOR, (12, 0))) == []  # it has the matrix instructions of Ampere
    assert ids(older("nvjet_sm90_tst_128x128_64x6_2x1_v_bz_NNT", (9, 0))) == []
    assert "older-architecture" not in ids(older(SIMT, (9, 0)))  # SIMT is the same on all
    assert ids(older(TENSOR, (9, 0), calls=50)) == []  # 10 us each: small products


def test_tiles() -> None:
    assert tile_efficiency(1792, 1792, 256, 128) == 1.0
    assert tile_efficiency(1793, 1792, 256, 128) == pytest.approx(1793 / 2048)
    assert tile_efficiency(1, 1, 128, 128) == 1 / 128**2
    bad = Event(TENSOR, total_us=500.0, operator=mm(65, 65, 4096))
    found = report([bad])
    assert ids(found) == ["tile-quantisation"]
    assert "65 x 65 in tiles of 64 x 64: 26% used" in found.findings[0].message
    assert ids(report([Event(TENSOR, total_us=500.0, operator=mm(64, 640, 4096))])) == []


def test_either_orientation_of_a_tile_counts() -> None:
    name = "cutlass_80_tensorop_s1688gemm_256x64_32x4_nn_align4"
    fits = Event(name, total_us=500.0, operator=mm(64, 256, 4096))
    assert ids(report([fits])) == []


def test_waves() -> None:
    def launched(blocks: int, **more: Any) -> list[str]:
        event = Event(TENSOR, total_us=500.0, grid=(blocks, 1, 1), block=(256, 1, 1),
                      registers_per_thread=255, shared_bytes=180_000,
                      device=ProfiledDevice(0, "D", (9, 0), 132), **more)  # fmt: skip
        return [i for i in ids(report([event])) if i == "wave-quantisation"]

    assert launched(133) == ["wave-quantisation"]  # two waves, the second with one block
    assert launched(132) == []
    assert launched(264) == []
    assert launched(60) == ["wave-quantisation"]
    assert launched(132 * 9 + 1) == []  # a long row of waves hides it
    assert launched(133, calls=100) == []  # 5 us each
    nccl = Event("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
                 total_us=500.0, grid=(24, 1, 1), block=(544, 1, 1), registers_per_thread=96,
                 shared_bytes=1000, device=ProfiledDevice(0, "D", (9, 0), 132))  # fmt: skip
    assert ids(report([nccl])) == []


def test_layout_conversions() -> None:
    name = (
        "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true, "
        "(cudnnKernelDataType_t)2>(cudnn::ops::nchw2nhwc_params_t<float>, float const*, float*)"
    )
    if decode(name).decoded.get("op") != "layout_transform":
        pytest.skip("the decoder does not know this conversion")
    found = report([Event(name, total_us=10.0), Event("mine_x", total_us=90.0)])
    assert ids(found) == ["tensor-layout-conversion"]
    assert ids(report([Event(name, total_us=4.0), Event("mine_x", total_us=96.0)])) == []


def test_many_tiny_kernels() -> None:
    tiny = [Event(POINTWISE, total_us=2.0) for _ in range(300)]
    found = report(tiny)
    assert ids(found) == ["tiny-kernels"]
    assert found.findings[0].numbers["calls"] == 300
    assert ids(report(tiny[:150])) == []
    assert ids(report([*tiny, Event("mine_x", total_us=1e5)])) == []


def test_findings_of_the_samples() -> None:
    found = decode_files([SAMPLES / "gemms.trace.json.gz"])
    assert ids(found) == ["fp32-simt-gemm"]
    simt = [r for r in found.kernels if r.name.decoded.get("op_class") == "simt"
            and r.name.decoded.get("dtype_a") == "f32"]  # fmt: skip
    assert found.findings[0].numbers["total_us"] == pytest.approx(
        sum(r.total_us or 0 for r in simt)
    )
    assert all(p.tflops and 0 < p.tflops < 2500 for r in found.kernels for p in r.problems)
    assert math.isclose(found.summary.tensor_core_share or 0.0, 0.503, abs_tol=0.001)


def test_a_training_step() -> None:
    path = SHARED / "llama_train.trace.json.gz"
    if not path.is_file():
        pytest.skip("the trace of a training step is not here")
    found = decode_files([path])
    assert set(ids(found)) <= {"tiny-kernels", "unfused-elementwise"}
    assert found.summary.calls == 1120
