"""The spellings of one kernel by different profilers decode alike; plug-ins; explanations."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from kanalyze.profiles.names import Family, decode, explain, families
from kanalyze.profiles.names import families as _families
from kanalyze.profiles.names.cpp import CppText, number, read, truth
from kanalyze.profiles.names.decode import decode_uncached
from kanalyze.profiles.names.families import GROUP
from kanalyze.profiles.names.fields import NameFields

SPELLINGS = {
    "values": [
        "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, A>(int)",
        "void at::native::vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<float>, A>"
        "(int, T2, T3)",
        "void at::native::vectorized_elementwise_kernel<int=4, at::native::FillFunctor<float>, A>"
        "(int)",
        "at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, A>",
        "void at::native::vectorized_elementwise_kernel&lt;4, "
        "at::native::FillFunctor&lt;float&gt;, A&gt;(int)",
        " void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, A>.kd ",
        "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEE1AEEviT0_T1_",
        "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEE1AEEviT0_T1_.kd",
    ],
    "lambdas": [
        "void at::native::vectorized_elementwise_kernel<4, at::native::exp_kernel_cuda"
        "(at::TensorIteratorBase&)::{lambda()#2}::operator()() const::{lambda()#4}::operator()() "
        "const::{lambda(float)#1}, std::array<char*, 2ul> >(int)",
        "void at::native::vectorized_elementwise_kernel<(int)4, at::native::exp_kernel_cuda"
        "(at::TensorIteratorBase &)::[lambda() (instance 2)]::operator ()() const::"
        "[lambda() (instance 4)]::operator ()() const::[lambda(float) (instance 1)], "
        "std::array<char *, (unsigned long)2>>(int, T2, T3)",
        "void at::native::vectorized_elementwise_kernel<4, at::native::exp_kernel_cuda"
        "(at::TensorIteratorBase&)::'lambda0'()::operator()() const::'lambda2'()::operator()() "
        "const::'lambda'(float), std::array<char*, 2ul>>(int)",
    ],
    "unnamed": [
        "void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 2>(int)",
        "void at::native::<unnamed>::CatArrayBatchedCopy<float, unsigned int, (int)2>(int)",
        "void at::native::_GLOBAL__N__0f1a8107_8_Shape_cu_49f7391c::CatArrayBatchedCopy<float, "
        "unsigned int, 2>(int)",
    ],
    "bools": [
        "void flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, "
        "cutlass::half_t, B>, false, true, false, false, true, true, false>(P)",
        "void flash_fwd_kernel<Flash_fwd_kernel_traits<(int)64, (int)128, (int)128, (int)4, "
        "(bool)0, (bool)0, cutlass::half_t, B>, (bool)0, (bool)1, (bool)0, (bool)0, (bool)1, "
        "(bool)1, (bool)0>(P)",
        "void flash_fwd_kernel<Flash_fwd_kernel_traits<int=64, int=128, int=128, int=4, "
        "bool=0, bool=0, cutlass::half_t, B>, bool=0, bool=1, bool=0, bool=0, bool=1, bool=1, "
        "bool=0>(P)",
    ],
    "wrappers": [
        "cutlass_80_simt_sgemm_128x32_8x5_nn_align1",
        "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>"
        "(cutlass_80_simt_sgemm_128x32_8x5_nn_align1::Params)",
        "void cutlass__5x_cublas::Kernel<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>(Params)",
        "_ZN7cutlass7Kernel2I42cutlass_80_simt_sgemm_128x32_8x5_nn_align1EEvNT_6ParamsE",
    ],
    "parameters": [
        "fmha_cutlassF_bf16_aligned_64x128_rf_sm80",
        "fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel<"
        "cutlass::bfloat16_t, cutlass::arch::Sm80, true, 64, 128, 128, true, true>::Params)",
    ],
}


@pytest.mark.parametrize("spellings", SPELLINGS.values(), ids=SPELLINGS.keys())
def test_spellings_decode_alike(spellings: list[str]) -> None:
    first = decode(spellings[0])
    assert first.family not in ("other", "mangled")
    assert len(first.decoded) >= 2
    for spelling in spellings[1:]:
        kernel = decode(spelling)
        assert kernel.family == first.family, spelling
        assert dict(kernel.decoded) == dict(first.decoded), spelling
        assert not kernel.truncated


def test_the_lambda_is_its_functions() -> None:
    kernel = decode(SPELLINGS["lambdas"][0])
    assert kernel.decoded["functor"] == "exp_kernel_cuda"
    assert kernel.decoded["functor_args"] == ("f32",)


def test_demangled_is_the_gnu_spelling_and_the_spans_count_in_it() -> None:
    kernel = decode("_Z21binomialOptionsKernelv")
    assert kernel.demangled == "binomialOptionsKernel()"
    assert kernel.text == kernel.demangled
    assert kernel.fields[0].text == "binomialOptionsKernel"
    assert decode("_Z21binomialOptionsKernelv.kd").demangled == (
        "binomialOptionsKernel() [clone .kd]"
    )
    assert decode("volta_sgemm_64x32_tn").demangled is None


def test_a_mangled_name_that_breaks_off_keeps_its_function() -> None:
    kernel = decode("_ZN7cutlass13device_kernelINS_4gemm6kernel13GemmUniversalIN4cu")
    assert (kernel.family, kernel.truncated) == ("mangled", True)
    assert kernel.decoded == {"function": "device_kernel"}
    assert decode("_Z22ncclDevKernel_SendRecv24ncclDevKernelArgsSto").decoded["function"] == (
        "ncclDevKernel_SendRecv"
    )
    assert decode("_Z22ncclDevKernel_SendRecv24ncclDevKernelArgsStorageILm40").decoded == {
        "function": "ncclDevKernel_SendRecv"
    }
    assert dict(decode("_ZN2at6native29vectorized_elem").decoded) == {}


def test_the_examples_that_were_asked_about() -> None:
    one = decode("cutlass_80_tensorop_s1688gemm_64x64_32x6_nn_align4").decoded
    assert (one["tile_m"], one["tile_n"], one["tile_k"], one["stages"]) == (64, 64, 32, 6)
    assert (one["arch"], one["layout"], one["align"], one["dtype_acc"]) == ("sm80", "nn", 4, "f32")
    two = decode(
        "cutlass3x_sm100_simt_sgemm_f32_f32_f32_f32_f32_64x64x16_1x1x1_3_nnn_align1_bias_f32_relu"
    ).decoded
    assert (two["tile_m"], two["tile_n"], two["tile_k"], two["stages"]) == (64, 64, 16, 3)
    assert (two["cluster_m"], two["op_class"], two["arch_name"]) == (1, "simt", "blackwell")
    assert two["epilogue_in_name"] == ("bias", "relu")


def test_operators_of_inductor_are_split_only_when_there_is_one_way() -> None:
    kernel = decode("triton_per_fused__to_copy_add_native_layer_norm_unsafe_view_7")
    assert kernel.decoded["fused_ops"] == "_to_copy_add_native_layer_norm_unsafe_view"
    assert "fused_ops_list" not in kernel.decoded, "unsafe_view is no operator: _unsafe_view is"
    kernel = decode("triton_red_fused__log_softmax_nll_loss_forward_12")
    assert kernel.decoded["fused_ops_list"] == ("_log_softmax", "nll_loss_forward")
    assert decode("triton_for_fused_0").decoded["op"] == "foreach"
    assert "fused_ops" not in decode("triton_for_fused_0").decoded


def test_suffix_of_old_triton_counts_up() -> None:
    kernel = decode("batched_matmul_kernel_0d1d2d3c4de5de6de7de8de9c10de11de12c13de14de15c")
    marks = kernel.decoded["specialization"]
    assert isinstance(marks, tuple)
    assert len(marks) == 16
    assert (marks[3], marks[10], marks[15]) == ("c", "de", "c")
    assert decode("kernel_0d1d2de3").decoded["specialization"] == ("d", "d", "de", "")
    assert decode("conv_2d").family == "other"
    assert decode("softmax_0").family == "other"
    assert decode("kernel_0d2d").family == "other"


def test_a_copy_is_not_a_kernel() -> None:
    kernel = decode("Memcpy DtoH (Device -> Pinned)")
    assert dict(kernel.decoded) == {
        "kind": "memcpy",
        "copy": "DtoH",
        "memory": "Device -> Pinned",
    }
    assert decode("[CUDA memset]").decoded["kind"] == "memset"
    assert decode("Memset (Device)").family == "memop"


def test_no_family_by_resemblance() -> None:
    for name in (
        "my_cutlass_80_tensorop_s1688gemm_64x64_32x6_nn_align4",
        "not_nvjet_tst_64x64_64x16_2x1_v_bz_TNT",
        "ampere_sgemm",
        "volta_something_128x128_nn",
        "triton_poi_fuse_add_0",
        "my_ncclDevKernel_AllReduce_Sum_f32_RING_LL",
        "fmha_cutlassF_bf16_aligned_64x128_rf_sm80_extra",
        "cub_DeviceScanKernel",
        "mycub::DeviceScanKernel<int>",
        "nvjet_tst_64x64_64x16",
    ):
        assert decode(name).family == "other", name


def test_the_tile_is_the_instructions_shape_on_sm100_only() -> None:
    name = "cutlass3x_sm{}_tensorop_gemm_f16_f16_f32_f16_f16_128x64x64_1x1x1_0_tnn_align8"
    assert decode(name.format(100)).decoded["inst_m"] == 128
    assert "inst_m" not in decode(name.format(90)).decoded


def test_names_are_remembered() -> None:
    name = "volta_sgemm_32x32_sliced1x4_nn"
    assert decode(name) is decode(name)
    assert decode_uncached(name) == decode(name)
    long = "x" * 100_000
    assert decode(long) is not decode(long), "long names would fill the memory"


def test_explain_tells_each_part() -> None:
    rows = explain("volta_h884gemm_128x32_tn")
    by_key = {row.key: row for row in rows}
    assert (by_key["tile_n"].text, by_key["tile_n"].value) == ("32", 32)
    assert all(row.meaning for row in rows)
    assert by_key["layout"].basis == "documented"
    unknown = [row for row in explain("nvjet_tst_64x64_64x16_2x1_v_bz_TNT") if row.key == "unknown"]
    assert [row.text for row in unknown] == ["bz"]


# The reader of C++ names -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [("4", 4), ("(int)4", 4), ("int=4", 4), ("4u", 4), ("4ul", 4), ("-1", -1), ("true", 1),
     ("(cute::UMMA::Major)1", 1), ("2048l", 2048), ("x", None), ("4 + 1", None), ("", None),
     ("9" * 40, None)],
)  # fmt: skip
def test_number(text: str, value: int | None) -> None:
    assert number(text) == value


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("(bool)0", False), ("bool=1", True), ("1", None)]
)
def test_truth(text: str, value: bool | None) -> None:
    assert truth(text) is value


def test_a_return_type_is_not_the_function() -> None:
    source = CppText(
        "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, f<4> >(P)", False
    )
    name = read(source)
    assert name is not None
    assert name.head() == "internal::gemvx::kernel"
    assert [source.slice(arg) for arg in name.args()] == ["int", "f<4>"]


def test_operators_do_not_open_brackets() -> None:
    source = CppText("void a::operator< <int>::f<b->c, (x > y)>(int)", False)
    name = read(source)
    assert name is not None
    assert [source.slice(arg) for arg in name.args()] == ["b->c", "(x > y)"]


# Plug-ins ----------------------------------------------------------------------------------------

GRAMMAR = """
start: "acme_gemm_" TILE_M "x" TILE_N
TILE_M: /\\d+/
TILE_N: /\\d+/
"""


def acme(reading: NameFields) -> None:
    """Transformer of a family that another package brings."""
    reading.named("documented")


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    grammar = tmp_path / "acme.lark"
    grammar.write_text(GRAMMAR, encoding="utf-8")
    family = Family("acme", str(grammar), acme, "word", ("acme",), "Acme's kernels")
    entry = EntryPoint("acme", "acme_package:family", GROUP)
    monkeypatch.setattr(EntryPoint, "load", lambda self: family)
    monkeypatch.setattr(
        "importlib.metadata.entry_points", lambda group: [entry] if group == GROUP else []
    )
    _forget()
    yield
    _forget()


def _forget() -> None:
    from kanalyze.profiles.names.families import _by_first

    _families.cache_clear()
    _by_first.cache_clear()


@pytest.mark.usefixtures("plugin")
def test_a_family_of_another_package() -> None:
    assert families()[-1].name == "acme"
    kernel = decode_uncached("acme_gemm_128x64")
    assert kernel.family == "acme"
    assert dict(kernel.decoded) == {"tile_m": 128, "tile_n": 64}
    assert decode_uncached("volta_sgemm_64x32_tn").family == "cublas_legacy"


def test_without_the_plugin() -> None:
    assert decode("acme_gemm_128x64").family == "other"
