"""C = A @ B.T in fp32, with operands cut to tf32: on the tensor cores."""

import triton
import triton.language as tl

DTYPES = ("fp32",)
SHAPE = {"M": "rows of A and C", "N": "rows of B, columns of C", "K": "columns of A and B"}
CONSTEXPRS = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}
OPTIONS = {"num_warps": 4, "num_stages": 3}
OVERRIDES = {}
OUTPUTS = ("c_ptr",)
EXAMPLE = ({"M": 2048, "N": 2048, "K": 2048},)


@triton.jit
def mended_kernel(  # kanalyze: ignore[small-tiles]
    a_ptr, b_ptr, c_ptr, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows[:, None] * K + ks[None, :]
    b_ptrs = b_ptr + columns[None, :] * K + ks[:, None]
    sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(0, K, BLOCK_K):
        sums = tl.dot(tl.load(a_ptrs), tl.load(b_ptrs), sums, input_precision="tf32")
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], sums)


def arguments(shape, dtype, constexprs):
    M, N, K = shape["M"], shape["N"], shape["K"]
    return {
        "a_ptr": ("*", dtype, (M, K)),
        "b_ptr": ("*", dtype, (N, K)),
        "c_ptr": ("*", dtype, (M, N)),
        "N": N,
        "K": K,
    }


def grid(shape, constexprs):
    return (shape["N"] // constexprs["BLOCK_N"], shape["M"] // constexprs["BLOCK_M"], 1)


def reference(tensors, shape):
    return {"c_ptr": tensors["a_ptr"] @ tensors["b_ptr"].T}


def bound(dtype, roundoff):
    return 2**-9  # each operand is off by up to 2^-10
