"""cuBLAS's small kernels: matrix-vector products, split-K's second step, dot products."""

from __future__ import annotations

from kanalyze.names.reading import Reading

_OPS = (
    ("gemv", "gemv"),
    ("gemmSN_", "gemm"),
    ("gemmk1_", "gemm"),
    ("splitKreduce_", "splitk_reduce"),
    ("dot_", "dot"),
    ("reduce_1Block_", "dot"),
    ("magma_", "gemm"),
    ("trsm_", "trsm"),
    ("batch_trsm_", "trsm"),
)


def transform(r: Reading) -> None:
    """Note the function and its operation."""
    comp = r.name.last
    r.function(basis="observed")
    r.add_span("library", "cublas", comp.start, comp.end, "observed")
    if r.has("GEMVX"):
        r.add_span("op", "gemv", comp.start, comp.end, "observed")
    for beginning, op in _OPS:
        if comp.text.startswith(beginning):
            r.add_span("op", op, comp.start, comp.end, "observed")
            break
