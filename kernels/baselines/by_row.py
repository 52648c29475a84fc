"""y = x - s, or x / s, with one s for each row of an M x N matrix: one step of a softmax.

One program handles one row and walks along it in tiles of BLOCK_SIZE. Whatever the element type of
x and y, s and the arithmetic are fp32.
"""

import triton
import triton.language as tl

DTYPES = ("fp32", "fp16", "bf16")
SHAPE = {"M": "number of rows", "N": "number of columns", "divide": "1: x / s; 0: x - s"}
CONSTEXPRS = {"BLOCK_SIZE": 1024}
OPTIONS = {"num_warps": 4, "num_stages": 3}
OVERRIDES = {}
OUTPUTS = ("y_ptr",)
EXAMPLE = ({"M": 8192, "N": 4096, "divide": 0}, {"M": 8192, "N": 4096, "divide": 1})


@triton.jit
def by_row_kernel(x_ptr, s_ptr, y_ptr, N, DIVIDE: tl.constexpr, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    s = tl.load(s_ptr + row)
    for start in range(0, N, BLOCK_SIZE):
        cols = start + tl.arange(0, BLOCK_SIZE)
        x = tl.load(x_ptr + row * N + cols, mask=cols < N).to(tl.float32)
        y = x / s if DIVIDE else x - s
        tl.store(y_ptr + row * N + cols, y, mask=cols < N)


def arguments(shape, dtype, constexprs):
    x = ("*", dtype, (shape["M"], shape["N"]))
    return {
        "x_ptr": x,
        "s_ptr": ("*", "fp32", (shape["M"],)),
        "y_ptr": x,
        "N": shape["N"],
        "DIVIDE": bool(shape["divide"]),
    }


def grid(shape, constexprs):
    return (shape["M"], 1, 1)


def reference(tensors, shape):
    x, s = tensors["x_ptr"], tensors["s_ptr"][:, None]
    return {"y_ptr": x / s if shape["divide"] else x - s}
