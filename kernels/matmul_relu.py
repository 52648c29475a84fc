"""C = relu(A @ B), A being M x K and B being K x N.

One program computes one BLOCK_M x BLOCK_N tile of C. It walks along K in steps of BLOCK_K,
multiplies on the tensor cores, adds up in fp32, and applies relu before the only write. With
GROUP_M = 1 the tiles of C are visited row by row; with GROUP_M > 1 in column-wise order within
bands of GROUP_M tile rows, so that programs running at the same time share more of A and B in L2.

Precision: fp16 and bf16 products are exact, their sums fp32. Of an fp32 operand the tensor cores
read the upper 19 bits only (tf32, a 10-bit mantissa): a relative error of up to 2**-10 each.
"""

import triton
import triton.language as tl

DTYPES = ("fp16", "bf16", "fp32")
SHAPE = {
    "M": "rows of A and C",
    "N": "columns of B and C",
    "K": "columns of A, rows of B",
}
CONSTEXPRS = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8}
OPTIONS = {"num_warps": 8, "num_stages": 3}
OVERRIDES = {"fp32": {"BLOCK_K": 32}}
OUTPUTS = ("c_ptr",)
EXAMPLE = (
    {"M": 4096, "N": 4096, "K": 4096},
    {"M": 4096, "N": 4096, "K": 4096, "GROUP_M": 1},
    {"M": 1000, "N": 513, "K": 777},
    {"M": 2048, "N": 2048, "K": 2048, "dtype": "fp32"},
)


@triton.jit
def matmul_relu_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    # Which tile of C: bands of GROUP_M tile rows, the last band perhaps with fewer.
    pid = tl.program_id(0)
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    band = pid // (GROUP_M * tiles_n)
    in_band = pid % (GROUP_M * tiles_n)
    band_rows = min(tiles_m - band * GROUP_M, GROUP_M)
    tile_m = band * GROUP_M + in_band % band_rows
    tile_n = in_band // band_rows

    # 64-bit, since an index times a stride may pass 2**31.
    rows = (tile_m * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (tile_n * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    ks = tl.arange(0, BLOCK_K).to(tl.int64)
    step = tl.cast(BLOCK_K, tl.int64)
    a_ptrs = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
    b_ptrs = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        a = tl.load(a_ptrs, mask=(rows[:, None] < M) & (ks[None, :] < K - k), other=0.0)
        b = tl.load(b_ptrs, mask=(ks[:, None] < K - k) & (cols[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += step * stride_ak
        b_ptrs += step * stride_bk

    c = tl.maximum(acc, 0.0, propagate_nan=tl.PropagateNan.ALL).to(c_ptr.dtype.element_ty)
    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, c, mask=(rows[:, None] < M) & (cols[None, :] < N))


def arguments(shape, dtype, constexprs):
    M, N, K = shape["M"], shape["N"], shape["K"]
    return {
        "a_ptr": ("*", dtype, (M, K)),
        "b_ptr": ("*", dtype, (K, N)),
        "c_ptr": ("*", dtype, (M, N)),
        "M": M,
        "N": N,
        "K": K,
        "stride_am": K,
        "stride_ak": 1,
        "stride_bk": N,
        "stride_bn": 1,
        "stride_cm": N,
        "stride_cn": 1,
    }


def grid(shape, constexprs):
    tiles_m = triton.cdiv(shape["M"], constexprs["BLOCK_M"])
    tiles_n = triton.cdiv(shape["N"], constexprs["BLOCK_N"])
    return (tiles_m * tiles_n, 1, 1)


def reference(tensors, shape):
    return {"c_ptr": (tensors["a_ptr"] @ tensors["b_ptr"]).relu()}


def bound(dtype, roundoff):
    # fp32 operands lose their lower 13 bits: each is off by up to 2**-10, a product by 2**-9.
    return 2**-9 if dtype == "fp32" else roundoff[dtype] + 16 * roundoff["fp32"]


def rivals(tensors, shape):
    import torch

    a, b = tensors["a_ptr"], tensors["b_ptr"]

    def built_in(a, b):
        return torch.relu(a @ b)

    compiled = torch.compile(built_in, dynamic=False)
    return {"relu(a @ b)": lambda: built_in(a, b), "torch.compile": lambda: compiled(a, b)}


CHECKS = (
    {"M": 1, "N": 1, "K": 1},
    {"M": 129, "N": 127, "K": 65},
    {"M": 1000, "N": 1001, "K": 1003},
    {"M": 1000, "N": 1008, "K": 1040, "GROUP_M": 3},
)
