"""y = x / sqrt(mean of x² over the row): rows of 4,097 columns in a block of 8,192."""

import triton
import triton.language as tl

DTYPES = ("fp16",)
SHAPE = {"M": "rows", "N": "columns"}
CONSTEXPRS = {"BLOCK": 8192}
OPTIONS = {"num_warps": 4, "num_stages": 1}
OVERRIDES = {}
OUTPUTS = ("y_ptr",)
EXAMPLE = ({"M": 8192, "N": 4097},)


@triton.jit
def fires_kernel(x_ptr, y_ptr, N, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    start = tl.program_id(0) * N
    x = tl.load(x_ptr + start + columns, mask=columns < N, other=0.0).to(tl.float32)
    tl.store(y_ptr + start + columns, x * tl.rsqrt(tl.sum(x * x, 0) / N), mask=columns < N)


def arguments(shape, dtype, constexprs):
    x = ("*", dtype, (shape["M"], shape["N"]))
    return {"x_ptr": x, "y_ptr": x, "N": shape["N"]}


def grid(shape, constexprs):
    return (shape["M"], 1, 1)


def reference(tensors, shape):
    x = tensors["x_ptr"].float()
    return {"y_ptr": x * (x * x).mean(1, keepdim=True).rsqrt()}


def bound(dtype, roundoff):
    return 4 * roundoff[dtype]
