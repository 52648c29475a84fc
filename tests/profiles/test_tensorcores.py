"""Which kernels compute on tensor cores, by family: what the libraries document of each."""

from __future__ import annotations

import pytest

from kanalyze.profiles.names import decode
from kanalyze.profiles.tensorcores import uses_tensor_cores

DEEP = "void deep_gemm::{}<(cute::UMMA::Major)0, 0u, 7168u, 2048u, 1u, 128u, 128u>(float*)"
BMM = (
    "bmm_{}_Fp32_t128x8x128u2_s6_et64x8_m64x8x32_cga1x1x1_16dp256b_TN_transOut_noShflA_dsFp8_schedS"
    "_sm100f"
)


@pytest.mark.parametrize(
    ("name", "family", "tensor"),
    [
        ("nvjet_sm90_tst_128x128_64x6_2x1_v_bz_NNT", "nvjet", True),
        ("nvjet_sm100_qqtst_128x16_128x12_2x1_2cta_v_bz_TNT", "nvjet", True),
        ("nvjet_sm100_sss_tf32_128x64_32x8_2x1_2cta_v_bz_NNT", "nvjet", True),
        ("nvjet_sss_128x64_64x6_2x1_v_bz_NNT", "nvjet", None),  # fp32: TF32 or CUDA cores
        (DEEP.format("sm90_fp8_gemm_1d2d_impl"), "deepgemm", True),
        (DEEP.format("sm100_fp8_fp4_gemm_1d1d_impl"), "deepgemm", True),
        (DEEP.format("transpose_fp32"), "deepgemm", None),
        (BMM.format("Bfloat16_E4m3E4m3"), "trtllm_gemm", True),
        (BMM.format("MxE4m3_MxE2m1MxE4m3"), "trtllm_gemm", True),
    ],
)
def test_products_of_libraries(name: str, family: str, tensor: bool | None) -> None:
    decoded = decode(name)
    assert decoded.family == family
    assert uses_tensor_cores(decoded) is tensor


@pytest.mark.parametrize("kind", ["memcpy", "memset"])
def test_copies_use_none_whatever_they_are_called(kind: str) -> None:
    assert uses_tensor_cores(decode("nvjet_sm90_tst_128x128_64x6_2x1_v_bz_NNT"), kind) is False
