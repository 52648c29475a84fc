"""MIOpen's implicit GEMM: ``igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x128x32_wt32x32x8_…``."""

from __future__ import annotations

from kanalyze.profiles.names.fields import NameFields

_OPS = {"fwd": "conv_fprop", "bwd": "conv_dgrad", "wrw": "conv_wgrad"}
_TYPES = {"bf16": "bf16", "fp16": "f16", "fp32": "f32", "int8": "s8"}


def transform(r: NameFields) -> None:
    """Note what the tokens of ``miopen_igemm.lark`` state."""
    r.named("generator")
    if direction := r.one("PASS"):
        r.add("op", _OPS[direction.text], direction, "generator")
        r.add_span("vendor", "amd", r.base, r.base + len("igemm"), "generator")
    if dtype := r.one("TYPE_WORD"):
        r.add("dtype_a", _TYPES[dtype.text], dtype, "generator")
