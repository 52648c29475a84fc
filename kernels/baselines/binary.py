"""z = x * y, or z = x + y, of every element: one step of a formula as a kernel of its own.

One program handles one block of BLOCK_SIZE elements: it reads each of both inputs once and writes
each of the output once. Whatever the element type, the arithmetic is fp32.
"""

import triton
import triton.language as tl

DTYPES = ("fp32", "fp16", "bf16")
SHAPE = {"n": "number of elements", "add": "1: x + y; 0: x * y"}
CONSTEXPRS = {"BLOCK_SIZE": 1024}
OPTIONS = {"num_warps": 4, "num_stages": 3}
OVERRIDES = {}
OUTPUTS = ("z_ptr",)
EXAMPLE = ({"n": 67108864, "add": 0}, {"n": 67108864, "add": 1})


@triton.jit
def binary_kernel(x_ptr, y_ptr, z_ptr, n, ADD: tl.constexpr, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    y = tl.load(y_ptr + offsets, mask=mask).to(tl.float32)
    tl.store(z_ptr + offsets, x + y if ADD else x * y, mask=mask)


def arguments(shape, dtype, constexprs):
    x = ("*", dtype, (shape["n"],))
    return {"x_ptr": x, "y_ptr": x, "z_ptr": x, "n": shape["n"], "ADD": bool(shape["add"])}


def grid(shape, constexprs):
    return (triton.cdiv(shape["n"], constexprs["BLOCK_SIZE"]), 1, 1)


def reference(tensors, shape):
    x, y = tensors["x_ptr"], tensors["y_ptr"]
    return {"z_ptr": x + y if shape["add"] else x * y}
