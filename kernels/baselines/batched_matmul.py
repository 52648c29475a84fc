"""C[b] = scale * A[b] @ B[b] for each of a batch of products, A being M x K and B being K x N.

With transposed, B[b] is stored as N x K: the scores Q @ K^T of attention. With causal, what lies
above the diagonal of C is -inf: the scores that a query does not see. scale is 1 / sqrt(K) then
and for transposed operands, else 1.

One program computes one BLOCK_M x BLOCK_N tile of one C.
"""

import triton
import triton.language as tl

DTYPES = ("fp16", "bf16", "fp32")
SHAPE = {
    "batch": "number of products",
    "M": "rows of A and C",
    "N": "columns of B and C",
    "K": "columns of A, rows of B",
    "transposed": "1: B is stored as N x K; 0: as K x N",
    "causal": "1: C is -inf above its diagonal; 0: it is not",
}
CONSTEXPRS = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}
OPTIONS = {"num_warps": 8, "num_stages": 3}
OVERRIDES = {"fp32": {"BLOCK_K": 32}}
OUTPUTS = ("c_ptr",)
EXAMPLE = (
    {"batch": 8, "M": 2048, "N": 2048, "K": 64, "transposed": 1, "causal": 0},
    {"batch": 8, "M": 2048, "N": 64, "K": 2048, "transposed": 0, "causal": 1},
)


@triton.jit
def batched_matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, scale,
    TRANSPOSED: tl.constexpr, CAUSAL: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    batch = tl.program_id(2).to(tl.int64)
    rows = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + batch * M * K + rows.to(tl.int64)[:, None] * K + ks[None, :]
    b_ptrs = b_ptr + batch * N * K

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        left = ks < K - start
        a = tl.load(a_ptrs + start, mask=(rows[:, None] < M) & left[None, :], other=0.0)
        if TRANSPOSED:
            places = cols.to(tl.int64)[:, None] * K + (start + ks)[None, :]
            b = tl.load(b_ptrs + places, mask=(cols[:, None] < N) & left[None, :], other=0.0).T
        else:
            places = (start + ks).to(tl.int64)[:, None] * N + cols[None, :]
            b = tl.load(b_ptrs + places, mask=left[:, None] & (cols[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc)

    acc *= scale
    if CAUSAL:
        acc = tl.where(cols[None, :] <= rows[:, None], acc, float("-inf"))
    c_ptrs = c_ptr + batch * M * N + rows.to(tl.int64)[:, None] * N + cols[None, :]
    mask = (rows[:, None] < M) & (cols[None, :] < N)
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)


def _scale(shape):
    return shape["K"] ** -0.5 if shape["transposed"] or shape["causal"] else 1.0


def arguments(shape, dtype, constexprs):
    batch, M, N, K = shape["batch"], shape["M"], shape["N"], shape["K"]
    return {
        "a_ptr": ("*", dtype, (batch, M, K)),
        "b_ptr": ("*", dtype, (batch, N, K) if shape["transposed"] else (batch, K, N)),
        "c_ptr": ("*", dtype, (batch, M, N)),
        "M": M,
        "N": N,
        "K": K,
        "scale": _scale(shape),
        "TRANSPOSED": bool(shape["transposed"]),
        "CAUSAL": bool(shape["causal"]),
    }


def grid(shape, constexprs):
    tiles_m = triton.cdiv(shape["M"], constexprs["BLOCK_M"])
    return (triton.cdiv(shape["N"], constexprs["BLOCK_N"]), tiles_m, shape["batch"])


def reference(tensors, shape):
    a, b = tensors["a_ptr"], tensors["b_ptr"]
    c = a @ (b.transpose(-1, -2) if shape["transposed"] else b) * _scale(shape)
    if shape["causal"]:
        import torch

        hidden = torch.ones(shape["M"], shape["N"], dtype=torch.bool, device=c.device).triu(1)
        c = c.masked_fill(hidden, float("-inf"))
    return {"c_ptr": c}
