"""Kernels that move boxes through tensor maps (TMA)."""

import triton
import triton.language as tl


@triton.jit
def host_copy(x_desc, y_desc, ROWS: tl.constexpr, COLS: tl.constexpr):
    row, col = tl.program_id(0) * ROWS, tl.program_id(1) * COLS
    y_desc.store([row, col], x_desc.load([row, col]))


@triton.jit
def device_copy(x_ptr, y_ptr, M, N, ROWS: tl.constexpr, COLS: tl.constexpr):
    x_desc = tl.make_tensor_descriptor(
        x_ptr, shape=[M, N], strides=[N, 1], block_shape=[ROWS, COLS]
    )
    y_desc = tl.make_tensor_descriptor(
        y_ptr, shape=[M, N], strides=[N, 1], block_shape=[ROWS, COLS]
    )
    row, col = tl.program_id(0) * ROWS, tl.program_id(1) * COLS
    y_desc.store([row, col], x_desc.load([row, col]))


@triton.jit
def device_add(x_ptr, y_ptr, M, N, ROWS: tl.constexpr, COLS: tl.constexpr):
    x_desc = tl.make_tensor_descriptor(
        x_ptr, shape=[M, N], strides=[N, 1], block_shape=[ROWS, COLS]
    )
    y_desc = tl.make_tensor_descriptor(
        y_ptr, shape=[M, N], strides=[N, 1], block_shape=[ROWS, COLS]
    )
    row, col = tl.program_id(0) * ROWS, tl.program_id(1) * COLS
    y_desc.atomic_add([row, col], x_desc.load([row, col]))


@triton.jit
def matmul(
    a_desc, b_desc, c_desc, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    row, col = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(0, K, BLOCK_K):
        total = tl.dot(a_desc.load([row, k]), b_desc.load([k, col]), total)
    c_desc.store([row, col], total.to(tl.float16))


@triton.jit
def chosen_copy(x_ptr, y_ptr, sizes_ptr, N, ROWS: tl.constexpr, COLS: tl.constexpr):
    rows = tl.load(sizes_ptr + tl.program_id(0))
    x_desc = tl.make_tensor_descriptor(
        x_ptr, shape=[rows, N], strides=[N, 1], block_shape=[ROWS, COLS]
    )
    y_desc = tl.make_tensor_descriptor(
        y_ptr, shape=[rows, N], strides=[N, 1], block_shape=[ROWS, COLS]
    )
    row = tl.program_id(0) * ROWS
    y_desc.store([row, 0], x_desc.load([row, 0]))
