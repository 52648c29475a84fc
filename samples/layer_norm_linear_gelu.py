"""Y = gelu(layer_norm(X) @ W + bias), in one kernel: X being M x K, W being K x N.

One program computes one BLOCK_M x BLOCK_N tile of Y. It walks along its rows of X twice: once for
their means and variances, once to normalise them on the way into the product. Neither the
normalised X nor the product is ever written to memory.
"""

import triton
import triton.language as tl

DTYPES = ("fp16", "bf16")
SHAPE = {
    "M": "rows of X and Y",
    "N": "columns of W and Y",
    "K": "columns of X, rows of W",
}
CONSTEXPRS = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}
OPTIONS = {"num_warps": 8, "num_stages": 3}
OVERRIDES = {}
OUTPUTS = ("y_ptr",)
EXAMPLE = ({"M": 8192, "N": 4096, "K": 1024},)


@triton.jit
def layer_norm_linear_gelu_kernel(
    x_ptr, gamma_ptr, beta_ptr, w_ptr, bias_ptr, y_ptr, M, N, K, eps,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    rows = (tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    ks = tl.arange(0, BLOCK_K).to(tl.int64)
    x_ptrs = x_ptr + rows[:, None] * K + ks[None, :]
    w_ptrs = w_ptr + ks[:, None] * N + cols[None, :]

    total = tl.zeros((BLOCK_M,), dtype=tl.float32)
    squares = tl.zeros((BLOCK_M,), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        mask = (rows[:, None] < M) & (ks[None, :] < K - k)
        x = tl.load(x_ptrs + k, mask=mask, other=0.0).to(tl.float32)
        total += tl.sum(x, axis=1)
        squares += tl.sum(x * x, axis=1)
    mean = total / K
    scale = 1 / tl.sqrt(squares / K - mean * mean + eps)

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        left = ks < K - k
        x = tl.load(x_ptrs, mask=(rows[:, None] < M) & left[None, :], other=0.0).to(tl.float32)
        w = tl.load(w_ptrs, mask=left[:, None] & (cols[None, :] < N), other=0.0)
        gamma = tl.load(gamma_ptr + k + ks, mask=left, other=0.0).to(tl.float32)
        beta = tl.load(beta_ptr + k + ks, mask=left, other=0.0).to(tl.float32)
        x = (x - mean[:, None]) * scale[:, None] * gamma[None, :] + beta[None, :]
        acc = tl.dot(x.to(w.dtype), w, acc)
        x_ptrs += BLOCK_K
        w_ptrs += BLOCK_K * N

    z = acc + tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)[None, :]
    y = z / (1 + tl.exp(-1.5957691216057308 * (z + 0.044715 * z * z * z)))  # as in gelu.py
    mask = (rows[:, None] < M) & (cols[None, :] < N)
    tl.store(y_ptr + rows[:, None] * N + cols[None, :], y.to(y_ptr.dtype.element_ty), mask=mask)


def arguments(shape, dtype, constexprs):
    M, N, K = shape["M"], shape["N"], shape["K"]
    return {
        "x_ptr": ("*", dtype, (M, K)),
        "gamma_ptr": ("*", dtype, (K,)),
        "beta_ptr": ("*", dtype, (K,)),
        "w_ptr": ("*", dtype, (K, N)),
        "bias_ptr": ("*", dtype, (N,)),
        "y_ptr": ("*", dtype, (M, N)),
        "M": M,
        "N": N,
        "K": K,
        "eps": 1e-5,
    }


def grid(shape, constexprs):
    tiles_n = triton.cdiv(shape["N"], constexprs["BLOCK_N"])
    return (tiles_n, triton.cdiv(shape["M"], constexprs["BLOCK_M"]), 1)


def _layers(tensors):
    from torch.nn.functional import gelu, layer_norm

    x, gamma, beta = tensors["x_ptr"], tensors["gamma_ptr"], tensors["beta_ptr"]
    y = layer_norm(x, x.shape[-1:], gamma, beta, eps=1e-5)
    return gelu(y @ tensors["w_ptr"] + tensors["bias_ptr"], approximate="tanh")


def reference(tensors, shape):
    return {"y_ptr": _layers(tensors)}


def bound(dtype, roundoff):
    # The normalised X is rounded, and the output; the slope of gelu is at most 1.13.
    return 3 * roundoff[dtype] + 64 * roundoff["fp32"]


def rivals(tensors, shape):
    import torch

    compiled = torch.compile(_layers, dynamic=False)
    return {"unfused": lambda: _layers(tensors), "torch.compile": lambda: compiled(tensors)}
