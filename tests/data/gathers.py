"""Kernels whose addresses and branches depend on what arrays hold."""

import triton
import triton.language as tl


@triton.jit
def elements(index_ptr, x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    index = tl.load(index_ptr + at, mask=at < n, other=0)
    tl.store(y_ptr + at, tl.load(x_ptr + index, mask=at < n), mask=at < n)


@triton.jit
def rows(index_ptr, x_ptr, y_ptr, n, N, ROWS: tl.constexpr, COLS: tl.constexpr):
    at = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, COLS)
    index = tl.load(index_ptr + at, mask=at < n, other=0)
    mask = (at < n)[:, None] & (cols < N)[None, :]
    x = tl.load(x_ptr + index[:, None] * N + cols[None, :], mask=mask)
    tl.store(y_ptr + at[:, None] * N + cols[None, :], x, mask=mask)


@triton.jit
def chained(first_ptr, second_ptr, x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inner = tl.load(first_ptr + at, mask=at < n, other=0)
    outer = tl.load(second_ptr + inner, mask=at < n, other=0)
    wrapped = tl.where(outer < 0, outer + 1000, outer)
    tl.store(y_ptr + at, tl.load(x_ptr + wrapped, mask=at < n), mask=at < n)


@triton.jit
def segments(starts_ptr, cols_ptr, x_ptr, y_ptr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    first = tl.load(starts_ptr + row)
    last = tl.load(starts_ptr + row + 1)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(first, last, BLOCK):
        at = start + tl.arange(0, BLOCK)
        cols = tl.load(cols_ptr + at, mask=at < last, other=0)
        total += tl.load(x_ptr + cols, mask=at < last, other=0.0)
    tl.store(y_ptr + row * BLOCK + tl.arange(0, BLOCK), total)


@triton.jit
def counted(label_ptr, bins_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    label = tl.load(label_ptr + at, mask=at < n, other=0).to(tl.int32)
    tl.atomic_add(bins_ptr + label * 3, 1, mask=at < n, sem="relaxed")


@triton.jit
def chosen(flag_ptr, x_ptr, y_ptr, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    at = pid * BLOCK + tl.arange(0, BLOCK)
    if tl.load(flag_ptr + pid) > 2:
        tl.store(y_ptr + at, tl.load(x_ptr + at) + 1.0)


@triton.jit
def sorted_rows(index_ptr, x_ptr, y_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    index = tl.sort(tl.load(index_ptr + at))
    tl.store(y_ptr + at, tl.load(x_ptr + index))


@triton.jit
def own(index_ptr, x_ptr, y_ptr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    index = tl.load(index_ptr + at)
    tl.store(index_ptr + at, index + 1)
    tl.store(y_ptr + at, tl.load(x_ptr + index))
