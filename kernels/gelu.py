"""y = gelu(x) of every element, in the tanh form.

One program handles one block of BLOCK_SIZE elements: it reads each once and writes each once, so
the time is that of moving 2 * n elements through memory. Whatever the element type, the
arithmetic is fp32.
"""

import triton
import triton.language as tl

DTYPES = ("fp32", "fp16", "bf16")
SHAPE = {"n": "number of elements"}
CONSTEXPRS = {"BLOCK_SIZE": 1024}
OPTIONS = {"num_warps": 4, "num_stages": 3}
OVERRIDES = {}
OUTPUTS = ("y_ptr",)
EXAMPLE = ({"n": 67108864}, {"n": 1000003}, {"n": 16777216, "dtype": "fp16"})


@triton.jit
def gelu_kernel(x_ptr, y_ptr, n, BLOCK_SIZE: tl.constexpr):
    # 64-bit, since n may pass 2**31; Triton types n itself as i64 then.
    start = tl.program_id(0).to(tl.int64) * BLOCK_SIZE
    offsets = start + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)

    # 0.5 * x * (1 + tanh(a)) = x / (1 + exp(-2a)). This form has no inf / inf: where exp(-2a)
    # overflows, x is negative and the quotient is the -0 that gelu tends to.
    a = 0.7978845608028654 * (x + 0.044715 * x * x * x)  # sqrt(2 / pi) * ...
    y = x / (1 + tl.exp(-2 * a))
    tl.store(y_ptr + offsets, y, mask=mask)


def arguments(shape, dtype, constexprs):
    x = ("*", dtype, (shape["n"],))
    return {"x_ptr": x, "y_ptr": x, "n": shape["n"]}


def grid(shape, constexprs):
    return (triton.cdiv(shape["n"], constexprs["BLOCK_SIZE"]), 1, 1)


def reference(tensors, shape):
    import torch

    return {"y_ptr": torch.nn.functional.gelu(tensors["x_ptr"], approximate="tanh")}


def bound(dtype, roundoff):
    # The output is rounded once; the arithmetic is fp32.
    return roundoff[dtype] + 16 * roundoff["fp32"]


def rivals(tensors, shape):
    import torch

    x = tensors["x_ptr"]

    def written_out(x):
        return 0.5 * x * (1 + torch.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))

    compiled = torch.compile(written_out, dynamic=False)
    return {
        "naive": lambda: written_out(x),
        "F.gelu": lambda: torch.nn.functional.gelu(x, approximate="tanh"),
        "torch.compile": lambda: compiled(x),
    }


BATCH_DIMS = 1
CHECKS = ({"n": 1}, {"n": 4097}, {"n": 33554431}, {"n": 2148532229, "dtype": "fp16"})  # > 2**31
