"""C = sum over steps of A_k @ B_k + D_k; D_k are added up apart from the products."""

import triton
import triton.language as tl

DTYPES = ("fp16",)
SHAPE = {"M": "rows of A, C and D", "N": "columns of B, C and D", "T": "steps of 64 columns of A"}
CONSTEXPRS = {"BLOCK_M": 64, "BLOCK_N": 128}
OPTIONS = {"num_warps": 4, "num_stages": 2}
OVERRIDES = {}
OUTPUTS = ("c_ptr",)
EXAMPLE = ({"M": 2048, "N": 2048, "T": 32},)


@triton.jit
def mended_kernel(
    a_ptr, b_ptr, c_ptr, d_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, 64)
    a_ptrs = a_ptr + rows[:, None] * K + ks[None, :]
    b_ptrs = b_ptr + ks[:, None] * N + columns[None, :]
    d_ptrs = d_ptr + rows[:, None] * N + columns[None, :]
    sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    extra = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(0, K, 64):
        sums = tl.dot(tl.load(a_ptrs), tl.load(b_ptrs), sums)
        extra += tl.load(d_ptrs).to(tl.float32)
        a_ptrs += 64
        b_ptrs += 64 * N
        d_ptrs += M * N
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], (sums + extra).to(tl.float16))


def arguments(shape, dtype, constexprs):
    M, N, T = shape["M"], shape["N"], shape["T"]
    return {
        "a_ptr": ("*", dtype, (M, 64 * T)),
        "b_ptr": ("*", dtype, (64 * T, N)),
        "c_ptr": ("*", dtype, (M, N)),
        "d_ptr": ("*", dtype, (T, M, N)),
        "M": M,
        "N": N,
        "K": 64 * T,
    }


def grid(shape, constexprs):
    return (shape["N"] // constexprs["BLOCK_N"], shape["M"] // constexprs["BLOCK_M"], 1)


def reference(tensors, shape):
    return {"c_ptr": tensors["a_ptr"] @ tensors["b_ptr"] + tensors["d_ptr"].sum(0)}


def bound(dtype, roundoff):
    return roundoff[dtype] + 16 * roundoff["fp32"]
