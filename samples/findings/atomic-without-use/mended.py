"""y = 2 x, and the sums of the columns of x beside it, with relaxed atomics."""

import triton
import triton.language as tl

DTYPES = ("fp32",)
SHAPE = {"M": "rows, a multiple of 4", "N": "columns, a multiple of 1024"}
CONSTEXPRS = {"ROWS": 4, "BLOCK": 1024}
OPTIONS = {"num_warps": 8, "num_stages": 1}
OVERRIDES = {}
OUTPUTS = ("y_ptr",)  # sums_ptr is added to, whatever it holds
EXAMPLE = ({"M": 8192, "N": 8192},)


@triton.jit
def mended_kernel(x_ptr, y_ptr, sums_ptr, N, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    offsets = tl.program_id(1) * ROWS * N + columns
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for _ in tl.static_range(0, ROWS):
        x = tl.load(x_ptr + offsets)
        tl.store(y_ptr + offsets, x + x)
        total += x
        offsets += N
    tl.atomic_add(sums_ptr + columns, total, sem="relaxed")


def arguments(shape, dtype, constexprs):
    x = ("*", dtype, (shape["M"], shape["N"]))
    return {"x_ptr": x, "y_ptr": x, "sums_ptr": ("*", dtype, (shape["N"],)), "N": shape["N"]}


def grid(shape, constexprs):
    return (shape["N"] // constexprs["BLOCK"], shape["M"] // constexprs["ROWS"], 1)


def reference(tensors, shape):
    return {"y_ptr": 2 * tensors["x_ptr"]}


def bound(dtype, roundoff):
    return 0.0  # doubling is exact
