"""y = exp(x) of every element: one step of a softmax as a kernel of its own.

One program handles one block of BLOCK_SIZE elements. Whatever the element type, the arithmetic is
fp32.
"""

import triton
import triton.language as tl

DTYPES = ("fp32", "fp16", "bf16")
SHAPE = {"n": "number of elements"}
CONSTEXPRS = {"BLOCK_SIZE": 1024}
OPTIONS = {"num_warps": 4, "num_stages": 3}
OVERRIDES = {}
OUTPUTS = ("y_ptr",)
EXAMPLE = ({"n": 67108864},)


@triton.jit
def exp_kernel(x_ptr, y_ptr, n, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    tl.store(y_ptr + offsets, tl.exp(x), mask=mask)


def arguments(shape, dtype, constexprs):
    x = ("*", dtype, (shape["n"],))
    return {"x_ptr": x, "y_ptr": x, "n": shape["n"]}


def grid(shape, constexprs):
    return (triton.cdiv(shape["n"], constexprs["BLOCK_SIZE"]), 1, 1)


def reference(tensors, shape):
    return {"y_ptr": tensors["x_ptr"].exp()}
