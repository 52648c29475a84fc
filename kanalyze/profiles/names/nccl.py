"""NCCL and RCCL: ``ncclDevKernel_AllReduce_Sum_bf16_RING_LL``.

What the name says of reduction, algorithm and protocol need not be what ran: only some
combinations are kernels, the others are called inside them.
"""

from __future__ import annotations

from kanalyze.profiles.names.fields import NameFields

# NCCL's own words for types (src/device/generate.py); before 2.19 it wrote C++ types.
_TYPES = {
    "int8_t": "i8",
    "uint8_t": "u8",
    "int32_t": "i32",
    "uint32_t": "u32",
    "int64_t": "i64",
    "uint64_t": "u64",
    "half": "f16",
    "float": "f32",
    "double": "f64",
    "__nv_bfloat16": "bf16",
    "rccl_bfloat16": "bf16",
    "hip_bfloat16": "bf16",
    "f8e4m3": "e4m3",
    "f8e5m2": "e5m2",
}


def transform(r: NameFields) -> None:
    """Note what the tokens of ``nccl.lark`` state."""
    kernel = r.one("DEV") or r.one("OLD") or r.one("SYM") or r.one("OLDEST")
    if kernel:
        r.add("op", "collective", kernel, "generator")
        r.add("library", "nccl", kernel, "generator")
    if r.name.path:
        r.function(basis="generator")
    for name, key in (
        ("COLLECTIVE", "collective"),
        ("REDOP", "redop_in_name"),
        ("ALGO", "algo_in_name"),
        ("PROTO", "proto_in_name"),
        ("OLD_REDOP", "redop_in_name"),
        ("OLD_ALGO", "algo_in_name"),
        ("OLD_PROTO", "proto_in_name"),
    ):
        if token := r.one(name):
            r.add(key, token.text, token, "generator")
    if dtype := r.one("NCCL_TYPE"):
        r.add("dtype", _TYPES.get(dtype.text, dtype.text), dtype, "generator")
