"""Readings that follow from a family's documented grammar, beyond the sample files."""

from __future__ import annotations

import pytest

from kanalyze.profiles.names import decode

SHAPE = "cute::tuple<cute::C<{}>, cute::C<{}>, cute::C<{}> >"
COLLECTIVE = (
    "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int, int, "
    "int>, cutlass::gemm::collective::CollectiveMma<cutlass::gemm::"
    "MainloopSm90TmaGmmaWarpSpecialized<4, " + SHAPE.format(2, 1, 1) + ", S>, "
    + SHAPE.format(64, 128, 32) + ", cutlass::bfloat16_t, X, cutlass::float_e4m3_t, X, M>, E, "
    "void, void> >(P)"
)  # fmt: skip

CASES = {
    # include/cutlass/gemm/collective/sm90_mma_tma_gmma_ss_warpspecialized.hpp
    COLLECTIVE: {
        "function": "device_kernel", "op": "gemm", "arch": "sm90", "stages": 4, "cluster_m": 2,
        "cluster_n": 1, "cluster_k": 1, "tile_m": 64, "tile_n": 128, "tile_k": 32,
        "dtype_a": "bf16", "dtype_b": "e4m3",
    },
    # deep_gemm/include/deep_gemm/impls/sm90_fp8_gemm_1d2d.cuh
    "void deep_gemm::sm90_fp8_gemm_1d2d_impl<(cute::UMMA::Major)0, 0u, 7168u, 2048u, 1u, 64u, "
    "112u, 128u, 128u, 128u, 0u, 6u, 2u, 128u, 128u, 1u, true, 132u, (deep_gemm::GemmType)0>(P)": {
        "arch": "sm90", "tile_m": 64, "tile_n": 112, "tile_k": 128, "stages": 6, "op": "gemm",
    },
    # NCCL 2.8 src/collectives/device/common.h
    "ncclAllReduceRingLLKernel_sum_f32(ncclColl)": {
        "op": "collective", "collective": "AllReduce", "algo_in_name": "Ring",
        "proto_in_name": "LL", "redop_in_name": "sum", "dtype": "f32",
    },
    # Tensile SolutionStructs.py, ProblemType.__str__: type, B (beta), H (high precision)
    "Cijk_Ailk_Bljk_HBH_MT128x64x32_MI32x32x8x1_SN_GSU4": {
        "dtype_a": "f16", "dtype_b": "f16", "layout": "nn", "inst_k": 8, "gsu": 4,
    },
    "Cijk_Alik_Bljk_F8B8BS_BH_Bias_UserArgs_MT256x256x128_MI16x16x1_SK3": {
        "dtype_a": "e4m3", "dtype_b": "e5m2", "dtype_d": "bf16", "dtype_acc": "f32",
        "stream_k": True, "layout": "tn",
    },
    # csrc/flash_attn/src/flash_bwd_launch_template.h
    "void flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<128, 64, 96, 8, 2, "
    "4, 2, false, false, cutlass::half_t, B>, false, true, false, false, true, true, false>(P)": {
        "direction": "bwd", "head_dim": 128, "block_m": 64, "block_n": 96, "num_warps": 8,
        "dtype": "f16", "dropout": False, "causal": True,
    },
    # csrc/flash_attn/src/flash_fwd_launch_template.h: the splitkv kernel has no dropout
    "void flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<64, 64, 256, 4, false, false, "
    "cutlass::half_t, B>, true, false, false, false, true, false, true, false>(P)": {
        "causal": True, "head_dim": 64, "block_n": 256,
    },
    "nvjet_sm100_sss_tf32_128x64_32x8_2x1_2cta_v_bz_NNT": {
        "dtype_a": "f32", "dtype_mma": "tf32", "op_class": "tensorop", "stages": 8,
    },
    "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_reluaux_auxt_TNN": {
        "epilogue_in_name": ("relu", "aux"),
    },
    "cutlass_tensorop_u8_i8816gemm_u8_256x128x64_4x2x1_2_n32t32_align16": {
        "tile_m": 256, "tile_n": 128, "tile_k": 64, "stages": 2, "layout": "n32t32",
    },
    "sm80_xmma_fprop_implicit_gemm_interleaved_i8i8_i8i32_f32_nchw_vect_c_32kcrs_vect_c_32_nchw_"
    "vect_c_32_tilesize96x64x64_stage3_warpsize2x2x1_g1_tensor16x8x32_t1r3s3": {
        "dtype_a": "s8", "dtype_acc": "s32", "tensor_layout": "nchw_vect_c_32",
        "filter_size": "t1r3s3", "inst_k": 32,
    },
}  # fmt: skip


@pytest.mark.parametrize(("name", "expected"), CASES.items(), ids=lambda item: str(item)[:40])
def test_documented_reading(name: str, expected: dict[str, object]) -> None:
    decoded = decode(name).decoded
    assert {key: decoded.get(key) for key in expected} == expected


@pytest.mark.parametrize(
    ("name", "key"),
    [
        # The name has warps there, not a cluster; and sss without tf32 need not be tensor cores.
        ("cutlass_tensorop_u8_i8816gemm_u8_256x128x64_4x2x1_2_n32t32_align16", "cluster_m"),
        ("nvjet_sm100_sss_128x64_32x8_2x1_v_bz_NNT", "op_class"),
        ("nvjet_sm90_usu_128x64_32x8_2x1_v_bz_NNT", "dtype_a"),
        ("Cijk_Alik_Bljk_B_BS_BH_UserArgs_MT64x64x64_MI16x16x1_SN", "dtype_a"),
        ("Cijk_Ailk_Bljk_HBH_MT128x64x32_SN", "dtype_acc"),
        ("cutlass3x_sm100_tensorop_gemm_f16_f16_f32_f16_f16_128x64x64_0x0x1_0_tnn_align8",
         "cluster_m"),
        ("cutlass3x_sm100_tensorop_s256x256x16implicit_gemm_fprop_f16_f16_f32_void_f16_f32_"
         "256x256x64_dyn_cga_ndhwc_ndhwc_ndhwc_align8_2sm", "dtype_a"),
        ("turing_sgemm_int8_128x32_sliced1x4_upper_nt", "op"),
        ("nvjet_tst_64x64_64x16_2x1_v_bz_TNT", "arch"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_"
         "cga1x1x1_kernel0_0", "dtype"),
    ],
)  # fmt: skip
def test_what_a_name_does_not_say_is_absent(name: str, key: str) -> None:
    kernel = decode(name)
    assert kernel.family != "other"
    assert key not in kernel.decoded
