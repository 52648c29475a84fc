"""TensorRT-LLM's fmha_v2: ``fmha_v2_flash_attention_fp16_64_256_S_32_tma_ws_sm90_kernel``."""

from __future__ import annotations

from kanalyze.profiles.names.fields import NameFields

_TYPES = {
    "bf16": "bf16",
    "fp16": "f16",
    "fp32": "f32",
    "e4m3": "e4m3",
    "int8": "s8",
}


def transform(r: NameFields) -> None:
    """Note what the tokens of ``fmha_v2.lark`` state."""
    r.named("generator")
    if fmha := r.one("FMHA"):
        r.add("op", "attention", fmha, "generator")
    if dtype := r.one("DTYPE_WORD"):
        r.add("dtype", _TYPES[dtype.text], dtype, "generator")
    if head := r.one("HEAD_WORD"):
        r.add("head_dim", int(head.text), head, "generator")
    if head := r.one("V_WORD"):
        r.add("head_dim_v", int(head.text), head, "generator")
    if acc := r.one("ACC_WORD"):
        r.add("dtype_acc", "f32", acc, "generator")
    if mask := r.one("MASK_WORD"):
        r.add("mask", mask.text, mask, "generator")
        if mask.text == "causal":
            r.add("causal", True, mask, "generator")
    if arch := r.one("ARCH_DIGITS"):
        r.arch(arch, "generator")
