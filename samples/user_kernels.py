"""Two kernels as a user might have them: a helper, an autotune decorator, constexpr arguments."""

import triton
import triton.language as tl


@triton.jit
def scaled(x, scale, CLAMP: tl.constexpr):
    x *= scale
    return tl.maximum(x, 0.0) if CLAMP else x


@triton.autotune(
    configs=[
        triton.Config({"BLOCK": 1024}, num_warps=4),
        triton.Config({"BLOCK": 4096}, num_warps=8),
    ],
    key=["n"],
)
@triton.jit
def scale_rows(x_ptr, y_ptr, n, BLOCK: tl.constexpr, CLAMP: tl.constexpr = True):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    x = tl.load(x_ptr + offsets, mask=inside)
    tl.store(y_ptr + offsets, scaled(x, 2.0, CLAMP), mask=inside)


@triton.jit
def transpose(x_ptr, y_ptr, M, N, TILE: tl.constexpr):
    rows = tl.program_id(0) * TILE + tl.arange(0, TILE)
    cols = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inside = (rows[:, None] < M) & (cols[None, :] < N)
    x = tl.load(x_ptr + rows[:, None] * N + cols[None, :], mask=inside)
    tl.store(y_ptr + cols[None, :] * M + rows[:, None], x, mask=inside)
