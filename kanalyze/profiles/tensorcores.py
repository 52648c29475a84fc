"""Whether a kernel computes on tensor cores, by what its name states."""

from __future__ import annotations

from kanalyze.profiles.names import KernelName

_TENSOR = frozenset(
    ("tensorop", "wmma_tensorop", "sptensorop", "bstensorop", "bssptensorop", "mfma")
)
_ONLY_TENSOR = frozenset(("cudnn_sdpa", "flash", "fmha_cutlass", "fmha_trtllm", "fmha_v2"))
"""Families whose attention kernels exist for tensor cores only (cuDNN's SDPA, FlashAttention 2 and
3, xFormers' and TensorRT-LLM's fused attention)."""
_ONLY_TENSOR_PRODUCTS = frozenset(("deepgemm", "trtllm_gemm"))
"""Families whose products exist for tensor cores only (wgmma and tcgen05)."""
_PLAIN = frozenset(
    ("batchnorm", "cat", "collective", "dot", "elementwise", "foreach", "gather", "gemv", "index",
     "layernorm", "layout_transform", "loss", "multi_tensor_apply", "norm", "persistent_reduction",
     "pointwise", "pool", "pooling", "reduce", "reduction", "roll", "scan", "scatter", "softmax",
     "sort", "splitk_reduce", "upsample", "copy", "memcpy", "memset", "random", "fill",
     "embedding", "topk", "arange")
)  # fmt: skip
"""Operations without a matrix product of two matrices."""

MATRIX = frozenset(
    ("gemm", "gemm_planar_complex", "conv", "conv_dgrad", "conv_fprop", "conv_wgrad",
     "implicit_gemm_fprop", "syrk", "syr2k", "herkx", "attention")
)  # fmt: skip
"""Operations whose cost is matrix products."""


def uses_tensor_cores(name: KernelName, kind: str = "kernel") -> bool | None:
    """True or False where the name decides it, else None."""
    if kind != "kernel" or name.family == "memop":
        return False
    decoded = name.decoded
    unit = decoded.get("op_class")
    if unit in _TENSOR:
        return True
    if unit == "simt":
        return False
    op = decoded.get("op")
    if op in _PLAIN:
        return False
    if name.family == "at_native" and op not in MATRIX:
        return None if "mm" in str(decoded.get("function", "")) else False
    if op == "attention" and name.family in _ONLY_TENSOR:
        tiled = "head_dim" in decoded or "block_m" in decoded or "max_k" in decoded
        return True if tiled or name.family == "cudnn_sdpa" else None
    if op in MATRIX and name.family in _ONLY_TENSOR_PRODUCTS:
        return True
    return None
