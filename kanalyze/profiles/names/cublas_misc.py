"""cuBLAS's small kernels: matrix-vector products, split-K's second step, dot products."""

from __future__ import annotations

from kanalyze.profiles.names.fields import NameFields, Reject

_OPS = {"gemv": "gemv", "gemmSN_": "gemm", "gemmk1_": "gemm", "splitKreduce_": "splitk_reduce",
        "dot_": "dot", "reduce_1Block_": "dot", "magma_": "gemm", "trsm_": "trsm",
        "batch_trsm_": "trsm"}  # fmt: skip


# Names that anyone could give: cuBLAS's only when a type of cuBLAS stands in the declaration.
_PLAIN = frozenset({"dot", "scal", "axpy", "asum", "nrm2", "copy", "trsm", "batch", "reduce"})


def transform(r: NameFields) -> None:
    """Note the operation, and that the function is cuBLAS's."""
    comp = r.name.last
    if comp.text.partition("_")[0] in _PLAIN and not _has_cublas_type(r):
        raise Reject
    r.add_span("library", "cublas", comp.start, comp.end)
    begun = next((op for beginning, op in _OPS.items() if comp.text.startswith(beginning)), None)
    r.add_span("op", "gemv" if r.has("GEMVX") else begun, comp.start, comp.end)


def _has_cublas_type(r: NameFields) -> bool:
    source, comp = r.name.source, r.name.last
    args = source.args(comp.args) + source.args(comp.params)
    return any(r.text.startswith(("cublas", "cublasLt::"), arg.start) for arg in args)
