"""Z = X @ W + bias, X being M x K and W being K x N.

One program computes one BLOCK_M x BLOCK_N tile of Z.
"""

import triton
import triton.language as tl

DTYPES = ("fp16", "bf16", "fp32")
SHAPE = {
    "M": "rows of X and Z",
    "N": "columns of W and Z",
    "K": "columns of X, rows of W",
}
CONSTEXPRS = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}
OPTIONS = {"num_warps": 8, "num_stages": 3}
OVERRIDES = {"fp32": {"BLOCK_K": 32}}
OUTPUTS = ("z_ptr",)
EXAMPLE = ({"M": 8192, "N": 4096, "K": 1024},)


@triton.jit
def linear_kernel(
    x_ptr, w_ptr, bias_ptr, z_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    rows = (tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    ks = tl.arange(0, BLOCK_K).to(tl.int64)
    x_ptrs = x_ptr + rows[:, None] * K + ks[None, :]
    w_ptrs = w_ptr + ks[:, None] * N + cols[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        left = ks < K - k
        x = tl.load(x_ptrs, mask=(rows[:, None] < M) & left[None, :], other=0.0)
        w = tl.load(w_ptrs, mask=left[:, None] & (cols[None, :] < N), other=0.0)
        acc = tl.dot(x, w, acc)
        x_ptrs += BLOCK_K
        w_ptrs += BLOCK_K * N
    z = acc + tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)[None, :]
    mask = (rows[:, None] < M) & (cols[None, :] < N)
    tl.store(z_ptr + rows[:, None] * N + cols[None, :], z.to(z_ptr.dtype.element_ty), mask=mask)


def arguments(shape, dtype, constexprs):
    M, N, K = shape["M"], shape["N"], shape["K"]
    return {
        "x_ptr": ("*", dtype, (M, K)),
        "w_ptr": ("*", dtype, (K, N)),
        "bias_ptr": ("*", dtype, (N,)),
        "z_ptr": ("*", dtype, (M, N)),
        "M": M,
        "N": N,
        "K": K,
    }


def grid(shape, constexprs):
    tiles_n = triton.cdiv(shape["N"], constexprs["BLOCK_N"])
    return (tiles_n, triton.cdiv(shape["M"], constexprs["BLOCK_M"]), 1)


def reference(tensors, shape):
    return {"z_ptr": tensors["x_ptr"] @ tensors["w_ptr"] + tensors["bias_ptr"]}
