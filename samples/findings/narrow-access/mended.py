"""y = 2 x over rows of a matrix, whose stride is known to be divisible by 16."""

import triton
import triton.language as tl

DTYPES = ("fp32",)
SHAPE = {"M": "rows", "N": "columns"}
CONSTEXPRS = {"BLOCK": 1024}
OPTIONS = {"num_warps": 4, "num_stages": 1}
OVERRIDES = {}
OUTPUTS = ("y_ptr",)
EXAMPLE = ({"M": 8192, "N": 4096},)


@triton.jit
def mended_kernel(x_ptr, y_ptr, row_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offsets = row * row_stride + tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets)
    tl.store(y_ptr + offsets, x + x)


def arguments(shape, dtype, constexprs):
    x = ("*", dtype, (shape["M"], shape["N"]))
    return {"x_ptr": x, "y_ptr": x, "row_stride": shape["N"]}


def grid(shape, constexprs):
    return (shape["M"], shape["N"] // constexprs["BLOCK"], 1)


def reference(tensors, shape):
    return {"y_ptr": 2 * tensors["x_ptr"]}


def bound(dtype, roundoff):
    return 0.0  # doubling is exact
