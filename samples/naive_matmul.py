"""C = relu(A @ B), A being M x K and B being K x N, without tiles: one thread computes one element.

Each thread walks along a row of A and a column of B, so every operand is asked for once for every
product. That is what a tiled product (`kanalyze bench matmul_relu`) is measured against.
"""

import triton
import triton.language as tl

DTYPES = ("fp16", "bf16", "fp32")
SHAPE = {
    "M": "rows of A and C",
    "N": "columns of B and C",
    "K": "columns of A, rows of B",
}
CONSTEXPRS = {"BLOCK_N": 128}
OPTIONS = {"num_warps": 4, "num_stages": 1}
OVERRIDES = {}
OUTPUTS = ("c_ptr",)
EXAMPLE = ({"M": 1024, "N": 1024, "K": 1024},)


@triton.jit
def naive_matmul_kernel(a_ptr, b_ptr, c_ptr, M, N, K, BLOCK_N: tl.constexpr):
    row = tl.program_id(1).to(tl.int64)
    cols = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    a_ptrs = a_ptr + row * K
    b_ptrs = b_ptr + cols
    acc = tl.zeros((BLOCK_N,), dtype=tl.float32)
    for k in range(K):
        a = tl.load(a_ptrs + k).to(tl.float32)
        b = tl.load(b_ptrs, mask=cols < N, other=0.0).to(tl.float32)
        acc += a * b
        b_ptrs += N
    c = tl.maximum(acc, 0.0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(c_ptr + row * N + cols, c.to(c_ptr.dtype.element_ty), mask=cols < N)


def arguments(shape, dtype, constexprs):
    M, N, K = shape["M"], shape["N"], shape["K"]
    return {
        "a_ptr": ("*", dtype, (M, K)),
        "b_ptr": ("*", dtype, (K, N)),
        "c_ptr": ("*", dtype, (M, N)),
        "M": M,
        "N": N,
        "K": K,
    }


def grid(shape, constexprs):
    return (triton.cdiv(shape["N"], constexprs["BLOCK_N"]), shape["M"], 1)


def reference(tensors, shape):
    return {"c_ptr": (tensors["a_ptr"] @ tensors["b_ptr"]).relu()}


def bound(dtype, roundoff):
    # The output is rounded once. K fp32 additions of random signs: about sqrt(K) roundings.
    return roundoff[dtype] + 64 * roundoff["fp32"]
