"""The sums of the rows of a matrix: four warps a row ask for 32 KiB at a time."""

import triton
import triton.language as tl

DTYPES = ("fp32",)
SHAPE = {"M": "rows", "N": "columns, a multiple of BLOCK"}
CONSTEXPRS = {"BLOCK": 8192}
OPTIONS = {"num_warps": 4, "num_stages": 1}
OVERRIDES = {}
OUTPUTS = ("y_ptr",)
EXAMPLE = ({"M": 264, "N": 262144},)


@triton.jit
def mended_kernel(x_ptr, y_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for k in range(0, N, BLOCK):
        total += tl.load(x_ptr + row * N + k + columns)
    tl.store(y_ptr + row, tl.sum(total, 0))


def arguments(shape, dtype, constexprs):
    return {
        "x_ptr": ("*", dtype, (shape["M"], shape["N"])),
        "y_ptr": ("*", dtype, (shape["M"],)),
        "N": shape["N"],
    }


def grid(shape, constexprs):
    return (shape["M"], 1, 1)


def reference(tensors, shape):
    return {"y_ptr": tensors["x_ptr"].sum(1)}


def bound(dtype, roundoff):
    return 64 * roundoff["fp32"]
