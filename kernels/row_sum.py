"""y = the sum of each row of an M x N matrix, in fp32.

One program handles one row and walks along it in tiles of BLOCK_SIZE. It keeps one partial sum
for each position in the tile and adds these up at the end, so the loop holds no communication
between threads. Whatever the element type of x, sums and output are fp32.
"""

import triton
import triton.language as tl

DTYPES = ("fp32", "fp16", "bf16")
SHAPE = {"M": "number of rows", "N": "number of columns"}
CONSTEXPRS = {"BLOCK_SIZE": 2048}
OPTIONS = {"num_warps": 4, "num_stages": 3}
OVERRIDES = {}
OUTPUTS = ("y_ptr",)
EXAMPLE = (
    {"M": 8192, "N": 16384},
    {"M": 4096, "N": 10007},
    {"M": 8192, "N": 16384, "dtype": "bf16"},
)


@triton.jit
def row_sum_kernel(x_ptr, y_ptr, x_row_stride, N, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)  # 64-bit, since row * stride may pass 2**31
    x_row_ptr = x_ptr + row * x_row_stride

    partial_sums = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)
    for start in range(0, N, BLOCK_SIZE):
        cols = start + tl.arange(0, BLOCK_SIZE)
        partial_sums += tl.load(x_row_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)

    tl.store(y_ptr + row, tl.sum(partial_sums, axis=0))


def arguments(shape, dtype, constexprs):
    return {
        "x_ptr": ("*", dtype, (shape["M"], shape["N"])),
        "y_ptr": ("*", "fp32", (shape["M"],)),
        "x_row_stride": shape["N"],
        "N": shape["N"],
    }


def grid(shape, constexprs):
    return (shape["M"], 1, 1)


def reference(tensors, shape):
    return {"y_ptr": tensors["x_ptr"].sum(dim=1)}


def bound(dtype, roundoff):
    # The output is fp32 for every input type.
    return 32 * roundoff["fp32"]


def rivals(tensors, shape):
    import torch

    x = tensors["x_ptr"]

    def built_in(x):
        return x.sum(-1, dtype=torch.float32)

    compiled = torch.compile(built_in, dynamic=False)
    return {"x.sum(-1)": lambda: built_in(x), "torch.compile": lambda: compiled(x)}


BATCH_DIMS = 1
CHECKS = ({"M": 1, "N": 1}, {"M": 77, "N": 65537}, {"M": 1000, "N": 2048})
