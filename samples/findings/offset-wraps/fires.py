"""y = 2 x for a matrix of more than 2^31 elements, with offsets of 32 bits: they wrap around."""

import triton
import triton.language as tl

DTYPES = ("fp16",)
SHAPE = {"M": "rows", "N": "columns"}
CONSTEXPRS = {"BLOCK": 1024}
OPTIONS = {"num_warps": 4, "num_stages": 1}
OVERRIDES = {}
OUTPUTS = ("y_ptr",)
EXAMPLE = ({"M": 131072, "N": 20480},)


@triton.jit
def fires_kernel(x_ptr, y_ptr, N, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * N + tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets)
    tl.store(y_ptr + offsets, x + x)


def arguments(shape, dtype, constexprs):
    x = ("*", dtype, (shape["M"], shape["N"]))
    return {"x_ptr": x, "y_ptr": x, "N": shape["N"]}


def grid(shape, constexprs):
    return (shape["M"], shape["N"] // constexprs["BLOCK"], 1)


def reference(tensors, shape):
    return {"y_ptr": 2 * tensors["x_ptr"]}


def bound(dtype, roundoff):
    return 0.0  # doubling is exact
