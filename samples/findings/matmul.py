"""C = A @ B: the samples of the findings in matmul.toml, which has the arguments of each."""

import triton
import triton.language as tl

DTYPES = ("fp16",)
SHAPE = {"M": "rows of A and C", "N": "columns of B and C", "K": "columns of A, rows of B"}
CONSTEXPRS = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8}
OPTIONS = {"num_warps": 8, "num_stages": 3}
OVERRIDES = {}
OUTPUTS = ("c_ptr",)
EXAMPLE = ({"M": 2816, "N": 1536, "K": 4096},)


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    band = pid // (GROUP_M * tiles_n)
    in_band = pid % (GROUP_M * tiles_n)
    band_rows = min(tiles_m - band * GROUP_M, GROUP_M)
    tile_m = band * GROUP_M + in_band % band_rows
    tile_n = in_band // band_rows

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

    c = acc.to(c_ptr.dtype.element_ty)
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
    return {"c_ptr": tensors["a_ptr"] @ tensors["b_ptr"]}


def bound(dtype, roundoff):
    return roundoff[dtype] + 16 * roundoff["fp32"]
