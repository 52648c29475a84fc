"""Kernels as a user might have them: helpers, decorators, annotations, constants."""

import triton
import triton.language as tl

EPS = tl.constexpr(1e-6)


@triton.jit
def square(x):
    return x * x


@triton.jit
def norm_kernel(x_ptr, y_ptr, n, scale, BLOCK: tl.constexpr, ACTIVATION: tl.constexpr = "none"):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    y = x * scale / tl.sqrt(tl.sum(square(x), 0) + EPS)
    if ACTIVATION == "relu":
        y = tl.maximum(y, 0.0)
    tl.store(y_ptr + offsets, y, mask=offsets < n)


@triton.autotune(
    configs=[
        triton.Config({"BLOCK": 128}, num_warps=4, num_stages=2),
        triton.Config({"BLOCK": 256}, num_warps=8),
    ],
    key=["n"],
)
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(y_ptr + offsets, tl.load(x_ptr + offsets))
    else:
        tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)


@triton.jit(do_not_specialize=["n"], do_not_specialize_on_alignment=["stride"])
def strided_kernel(x_ptr, n, stride, wide: tl.int64, flag, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    value = tl.load(x_ptr + offsets * stride, mask=offsets < n)
    tl.store(x_ptr + offsets * stride + wide, value, mask=(offsets < n) & flag)


@triton.jit
def bad_helper(x, SIZE: tl.constexpr):
    return x + tl.arange(0, SIZE)


@triton.jit
def bad_kernel(x_ptr, SIZE: tl.constexpr):
    # The helper fails for a size that is no power of two.
    offsets = bad_helper(0, SIZE)
    tl.store(x_ptr + offsets, 0.0)


@triton.jit
def dot_kernel(x_ptr, y_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    a = tl.load(x_ptr + m[:, None] * K + k[None, :])
    b = tl.load(x_ptr + k[:, None] * N + n[None, :])
    tl.store(y_ptr + m[:, None] * N + n[None, :], tl.dot(a, b))


@triton.jit
def typo_kernel(x_ptr):
    tl.store(x_ptr, undefined_name + 1)  # noqa: F821


@triton.jit
def asm_kernel(x_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets)
    x = tl.inline_asm_elementwise("bogus.b32 $0, $1;", "=r,r", [x], tl.int32, True, 1)
    tl.store(x_ptr + offsets, x)


@triton.jit
def return_kernel(x_ptr):
    return tl.load(x_ptr)


@triton.jit
def print_kernel(x_ptr, SIZE: tl.constexpr):
    tl.static_print("size is", SIZE)
    tl.static_assert(SIZE < 64, "SIZE is too large")
    tl.store(x_ptr, SIZE)


@triton.jit(debug=True)
def asserting(x_ptr, n, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    tl.device_assert(offsets < 100000, "far")
    tl.store(x_ptr + offsets, 0.0, mask=offsets < n)
