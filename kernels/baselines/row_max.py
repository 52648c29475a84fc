"""y = the largest element of each row of an M x N matrix: one step of a softmax as a kernel.

One program handles one row and walks along it in tiles of BLOCK_SIZE.
"""

import triton
import triton.language as tl

DTYPES = ("fp32", "fp16", "bf16")
SHAPE = {"M": "number of rows", "N": "number of columns"}
CONSTEXPRS = {"BLOCK_SIZE": 1024}
OPTIONS = {"num_warps": 4, "num_stages": 3}
OVERRIDES = {}
OUTPUTS = ("y_ptr",)
EXAMPLE = ({"M": 8192, "N": 4096},)


@triton.jit
def row_max_kernel(x_ptr, y_ptr, N, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    largest = tl.full((BLOCK_SIZE,), float("-inf"), tl.float32)
    for start in range(0, N, BLOCK_SIZE):
        cols = start + tl.arange(0, BLOCK_SIZE)
        x = tl.load(x_ptr + row * N + cols, mask=cols < N, other=float("-inf")).to(tl.float32)
        largest = tl.maximum(largest, x)
    tl.store(y_ptr + row, tl.max(largest, axis=0))


def arguments(shape, dtype, constexprs):
    return {
        "x_ptr": ("*", dtype, (shape["M"], shape["N"])),
        "y_ptr": ("*", "fp32", (shape["M"],)),
        "N": shape["N"],
    }


def grid(shape, constexprs):
    return (shape["M"], 1, 1)


def reference(tensors, shape):
    return {"y_ptr": tensors["x_ptr"].amax(dim=1)}
