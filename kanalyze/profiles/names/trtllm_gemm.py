"""trtllm-gen GEMMs: ``bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_m128x16x32_…``."""

from __future__ import annotations

from kanalyze.profiles.names.fields import NameFields
from kanalyze.profiles.names.fmha_trtllm import TYPES


def transform(r: NameFields) -> None:
    """Note what the tokens of ``trtllm_gemm.lark`` state."""
    r.named("documented")
    if gemm := r.one("GEMM"):
        r.add("op", "gemm", gemm)
    for name, key in (("D_TYPE", "dtype_d"), ("ACC_TYPE", "dtype_acc")):
        if token := r.one(name):
            r.add(key, TYPES[token.text], token, "observed")
    a, b = r.one("A_TYPE"), r.one("B_TYPE")
    if a and r.has("ACC_TYPE"):
        r.add("dtype_a", TYPES[a.text], a, "observed")
        if b:
            r.add("dtype_b", TYPES[b.text], b, "observed")
    if epilogue := r.one("EPI"):
        r.add("epilogue_in_name", ("swiglu",), epilogue, "observed")
    if arch := r.one("ARCH_DIGITS"):
        r.arch(arch, "documented")
