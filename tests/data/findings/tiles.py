"""Products whose tiles are loaded in ways that can, and cannot, be pipelined."""

import triton
import triton.language as tl


@triton.jit
def in_for(a, b, c, N, K, M: tl.constexpr, W: tl.constexpr, D: tl.constexpr):
    rows = tl.program_id(1) * M + tl.arange(0, M)
    columns = tl.program_id(0) * W + tl.arange(0, W)
    ks = tl.arange(0, D)
    a_ptrs = a + rows[:, None] * K + ks[None, :]
    b_ptrs = b + ks[:, None] * N + columns[None, :]
    sums = tl.zeros((M, W), dtype=tl.float32)
    for _ in range(0, K, D):
        x = tl.load(a_ptrs)
        y = tl.load(b_ptrs)
        sums = tl.dot(x, y, sums)
        a_ptrs += D
        b_ptrs += D * N
    tl.store(c + rows[:, None] * N + columns[None, :], sums)


@triton.jit
def gathered(a, b, c, which, N, K, M: tl.constexpr, W: tl.constexpr, D: tl.constexpr):
    rows = tl.program_id(1) * M + tl.arange(0, M)
    columns = tl.program_id(0) * W + tl.arange(0, W)
    ks = tl.arange(0, D)
    b_ptrs = b + ks[:, None] * N + columns[None, :]
    sums = tl.zeros((M, W), dtype=tl.float32)
    for k in range(0, K, D):
        i = tl.load(which + k + ks)
        x = tl.load(a + rows[:, None] * K + i[None, :])
        y = tl.load(b_ptrs)
        sums = tl.dot(x, y, sums)
        b_ptrs += D * N
    tl.store(c + rows[:, None] * N + columns[None, :], sums)


@triton.jit
def summed(x, y, N, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * N + tl.arange(0, BLOCK)
    sums = tl.zeros((BLOCK,), dtype=tl.float32)
    for k in range(0, N, BLOCK):
        sums += tl.load(x + k + offsets)
    tl.store(y + tl.program_id(0), tl.sum(sums, 0))
