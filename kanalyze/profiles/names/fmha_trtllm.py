"""trtllm-gen attention: ``fmhaSm100fKernel_QkvE4m3OBfloat16H128PagedKvCausalP32…``."""

from __future__ import annotations

from kanalyze.profiles.names.fields import NameFields

TYPES = {
    "Bfloat16": "bf16",
    "Float16": "f16",
    "Fp16": "f16",
    "Fp32": "f32",
    "E4m3": "e4m3",
    "E5m2": "e5m2",
    "E2m1": "e2m1",
}
_TYPE_KEYS = (
    ("QKV_TYPE", "dtype_qkv"),
    ("Q_TYPE", "dtype_q"),
    ("KV_TYPE", "dtype_kv"),
    ("O_TYPE", "dtype_o"),
)
_CAUSAL = {"Causal": True, "SlidingOrChunkedCausal": True, "Dense": False}


def transform(r: NameFields) -> None:
    """Note what the tokens of ``fmha_trtllm.lark`` state."""
    for token in r.tokens:
        if token.name in ("HEAD_DIM", "HEAD_DIM_V", "PAGE_SIZE", "BLOCK_M", "BLOCK_N"):
            r.add(token.name.lower(), int(token.text), token, "documented")
    if fmha := r.one("FMHA"):
        r.add("op", "attention", fmha)
    if arch := r.one("ARCH_DIGITS"):
        r.arch(arch)
    for name, key in _TYPE_KEYS:
        if token_ := r.one(name):
            r.add(key, TYPES[token_.text], token_)
    if mask := r.one("MASK"):
        r.add("mask", mask.text, mask)
        if mask.text in _CAUSAL:
            r.add("causal", _CAUSAL[mask.text], mask)
    if phase := r.one("PHASE_WORD"):
        r.add("phase", "context" if phase.text == "Context" else "generation", phase)
