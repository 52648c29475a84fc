"""y = 2 x for rows of 1001 floats that lie 1001 floats apart: most begin inside a sector."""

import triton
import triton.language as tl

DTYPES = ("fp32",)
SHAPE = {"M": "rows"}
CONSTEXPRS = {"BLOCK": 1024}
OPTIONS = {"num_warps": 4, "num_stages": 1}
OVERRIDES = {}
OUTPUTS = ("y_ptr",)
EXAMPLE = ({"M": 16384},)


@triton.jit
def fires_kernel(x_ptr, y_ptr, stride, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + cols, mask=cols < N)
    tl.store(y_ptr + row * stride + cols, x + x, mask=cols < N)


def arguments(shape, dtype, constexprs):
    x = ("*", dtype, (shape["M"], 1001))
    return {"x_ptr": x, "y_ptr": x, "stride": 1001, "N": 1001}


def grid(shape, constexprs):
    return (shape["M"], 1, 1)


def reference(tensors, shape):
    return {"y_ptr": 2 * tensors["x_ptr"]}


def bound(dtype, roundoff):
    return 0.0  # doubling is exact
