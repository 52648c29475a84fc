"""y = 2 x for a matrix, a tile of 64 columns per program: lanes lie in a row."""

import triton
import triton.language as tl

DTYPES = ("fp32",)
SHAPE = {"M": "rows", "N": "columns"}
CONSTEXPRS = {"ROWS": 16, "COLS": 64}
OPTIONS = {"num_warps": 4, "num_stages": 1}
OVERRIDES = {}
OUTPUTS = ("y_ptr",)
EXAMPLE = ({"M": 4096, "N": 4096},)


@triton.jit
def mended_kernel(x_ptr, y_ptr, stride, ROWS: tl.constexpr, COLS: tl.constexpr):
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    cols = tl.program_id(0) * COLS + tl.arange(0, COLS)
    offsets = rows[:, None] * stride + cols[None, :]
    x = tl.load(x_ptr + offsets)
    tl.store(y_ptr + offsets, x + x)


def arguments(shape, dtype, constexprs):
    x = ("*", dtype, (shape["M"], shape["N"]))
    return {"x_ptr": x, "y_ptr": x, "stride": shape["N"]}


def grid(shape, constexprs):
    return (shape["N"] // constexprs["COLS"], shape["M"] // constexprs["ROWS"], 1)


def reference(tensors, shape):
    return {"y_ptr": 2 * tensors["x_ptr"]}


def bound(dtype, roundoff):
    return 0.0  # doubling is exact
