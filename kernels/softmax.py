"""y = softmax(x) along each row of an M x N matrix.

One program handles one row. A row that fits into a block is read once and kept in registers. A
longer one is read twice: once for its maximum and the sum of its exponentials, kept up to date
tile by tile ("online softmax"), and once more to write the quotients. As in PyTorch, a row of
-inf only gives NaN. Whatever the element type, the arithmetic is fp32.
"""

import triton
import triton.language as tl

DTYPES = ("fp32", "fp16", "bf16")
SHAPE = {"M": "number of rows", "N": "number of columns"}
CONSTEXPRS = {"BLOCK_SIZE": 4096}
OPTIONS = {"num_warps": 8, "num_stages": 3}
OVERRIDES = {}
OUTPUTS = ("y_ptr",)
EXAMPLE = (
    {"M": 8192, "N": 4096},
    {"M": 4096, "N": 1000},
    {"M": 1024, "N": 50257, "dtype": "fp16"},
)


@triton.jit
def softmax_kernel(
    x_ptr, y_ptr, x_row_stride, y_row_stride, N, BLOCK_SIZE: tl.constexpr, ONE_TILE: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)  # 64-bit, since row * stride may pass 2**31
    x_row_ptr = x_ptr + row * x_row_stride
    y_row_ptr = y_ptr + row * y_row_stride

    if ONE_TILE:
        cols = tl.arange(0, BLOCK_SIZE)
        x = tl.load(x_row_ptr + cols, mask=cols < N, other=float("-inf")).to(tl.float32)
        numerator = tl.exp(x - tl.max(x, axis=0))
        y = numerator / tl.sum(numerator, axis=0)
        tl.store(y_row_ptr + cols, y, mask=cols < N)
    else:
        row_max = float("-inf")
        row_sum = 0.0
        for start in range(0, N, BLOCK_SIZE):
            cols = start + tl.arange(0, BLOCK_SIZE)
            x = tl.load(x_row_ptr + cols, mask=cols < N, other=float("-inf")).to(tl.float32)
            new_max = tl.maximum(row_max, tl.max(x, axis=0))
            # While all seen is -inf, subtract 0 instead: -inf - -inf would be NaN.
            shift = tl.where(new_max == float("-inf"), 0.0, new_max)
            row_sum = row_sum * tl.exp(row_max - shift) + tl.sum(tl.exp(x - shift), axis=0)
            row_max = new_max
        for start in range(0, N, BLOCK_SIZE):
            cols = start + tl.arange(0, BLOCK_SIZE)
            x = tl.load(x_row_ptr + cols, mask=cols < N).to(tl.float32)
            tl.store(y_row_ptr + cols, tl.exp(x - row_max) / row_sum, mask=cols < N)


def arguments(shape, dtype, constexprs):
    x = ("*", dtype, (shape["M"], shape["N"]))
    return {
        "x_ptr": x,
        "y_ptr": x,
        "x_row_stride": shape["N"],
        "y_row_stride": shape["N"],
        "N": shape["N"],
        "ONE_TILE": shape["N"] <= constexprs["BLOCK_SIZE"],
    }


def grid(shape, constexprs):
    return (shape["M"], 1, 1)


def reference(tensors, shape):
    import torch

    return {"y_ptr": torch.softmax(tensors["x_ptr"], dim=1)}


def bound(dtype, roundoff):
    # The output is rounded once; the arithmetic is fp32.
    return roundoff[dtype] + 16 * roundoff["fp32"]


def rivals(tensors, shape):
    import torch

    x = tensors["x_ptr"]

    def built_in(x):
        return torch.softmax(x, dim=-1)

    compiled = torch.compile(built_in, dynamic=False)
    return {"F.softmax": lambda: built_in(x), "torch.compile": lambda: compiled(x)}


BATCH_DIMS = 1
CHECKS = (
    {"M": 1, "N": 1},
    {"M": 1000, "N": 777},
    {"M": 333, "N": 4097},
    {"M": 77, "N": 131072},
)
