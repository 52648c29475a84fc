"""C = A @ B in fp16 with a short K, three stages: 60 KiB of shared memory, three blocks an SM."""

import triton
import triton.language as tl

DTYPES = ("fp16",)
SHAPE = {"M": "rows of A and C", "N": "columns of B and C", "K": "columns of A, rows of B"}
CONSTEXPRS = {"BLOCK_M": 128, "BLOCK_N": 32, "BLOCK_K": 64}
OPTIONS = {"num_warps": 4, "num_stages": 3}
OVERRIDES = {}
OUTPUTS = ("c_ptr",)
EXAMPLE = ({"M": 8192, "N": 8192, "K": 128},)


@triton.jit
def mended_kernel(  # kanalyze: ignore[small-tiles]
    a_ptr, b_ptr, c_ptr, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows[:, None] * K + ks[None, :]
    b_ptrs = b_ptr + ks[:, None] * N + columns[None, :]
    sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(0, K, BLOCK_K):
        sums = tl.dot(tl.load(a_ptrs), tl.load(b_ptrs), sums)
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K * N
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], sums.to(tl.float16))


def arguments(shape, dtype, constexprs):
    M, N, K = shape["M"], shape["N"], shape["K"]
    return {
        "a_ptr": ("*", dtype, (M, K)),
        "b_ptr": ("*", dtype, (K, N)),
        "c_ptr": ("*", dtype, (M, N)),
        "N": N,
        "K": K,
    }


def grid(shape, constexprs):
    return (shape["N"] // constexprs["BLOCK_N"], shape["M"] // constexprs["BLOCK_M"], 1)


def reference(tensors, shape):
    return {"c_ptr": tensors["a_ptr"] @ tensors["b_ptr"]}


def bound(dtype, roundoff):
    return roundoff[dtype] + 16 * roundoff["fp32"]
