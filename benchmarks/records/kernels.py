"""Kernels that the models were not made for: how people write transposes, norms, scatters, loops."""

import triton
import triton.language as tl


@triton.jit
def transpose_naive(x, y, M, N, TILE: tl.constexpr):
    r = tl.program_id(0) * TILE + tl.arange(0, TILE)
    c = tl.program_id(1) * TILE + tl.arange(0, TILE)
    m = (r[:, None] < M) & (c[None, :] < N)
    v = tl.load(x + r[:, None] * N + c[None, :], mask=m)
    tl.store(y + c[None, :] * M + r[:, None], v, mask=m)


@triton.jit
def strided_copy(x, y, n, stride, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i * stride, mask=i < n), mask=i < n)


@triton.jit
def layer_norm(x, w, b, y, mean, rstd, stride, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x += row * stride
    y += row * stride
    total = tl.zeros([BLOCK], tl.float32)
    for off in range(0, N, BLOCK):
        c = off + tl.arange(0, BLOCK)
        total += tl.load(x + c, mask=c < N, other=0.0).to(tl.float32)
    mu = tl.sum(total, 0) / N
    var = tl.zeros([BLOCK], tl.float32)
    for off in range(0, N, BLOCK):
        c = off + tl.arange(0, BLOCK)
        v = tl.load(x + c, mask=c < N, other=0.0).to(tl.float32)
        v = tl.where(c < N, v - mu, 0.0)
        var += v * v
    r = 1 / tl.sqrt(tl.sum(var, 0) / N + eps)
    tl.store(mean + row, mu)
    tl.store(rstd + row, r)
    for off in range(0, N, BLOCK):
        c = off + tl.arange(0, BLOCK)
        m = c < N
        v = tl.load(x + c, mask=m, other=0.0).to(tl.float32)
        v = (v - mu) * r * tl.load(w + c, mask=m) + tl.load(b + c, mask=m)
        tl.store(y + c, v, mask=m)


@triton.jit
def column_sum_atomic(x, out, M, N, ROWS: tl.constexpr, COLS: tl.constexpr):
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.program_id(1) * COLS + tl.arange(0, COLS)
    m = (r[:, None] < M) & (c[None, :] < N)
    v = tl.load(x + r[:, None] * N + c[None, :], mask=m, other=0.0)
    tl.atomic_add(out + c, tl.sum(v, 0), mask=c < N)


@triton.jit
def persistent_copy(x, y, n, BLOCK: tl.constexpr):
    blocks = tl.cdiv(n, BLOCK)
    for b in range(tl.program_id(0), blocks, tl.num_programs(0)):
        i = b * BLOCK + tl.arange(0, BLOCK)
        tl.store(y + i, tl.load(x + i, mask=i < n), mask=i < n)


@triton.jit
def gather_rows(x, index, y, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    source = tl.load(index + row)
    for off in range(0, N, BLOCK):
        c = off + tl.arange(0, BLOCK)
        tl.store(y + row * N + c, tl.load(x + source * N + c, mask=c < N), mask=c < N)


@triton.jit
def conv1d(x, w, y, T, C, K: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_C: tl.constexpr):
    t = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    acc = tl.zeros([BLOCK_T, BLOCK_C], tl.float32)
    for k in tl.static_range(K):
        s = t + k - (K - 1)
        m = (s[:, None] >= 0) & (s[:, None] < T) & (c[None, :] < C)
        v = tl.load(x + s[:, None] * C + c[None, :], mask=m, other=0.0)
        acc += v * tl.load(w + k * C + c, mask=c < C, other=0.0)[None, :]
    tl.store(y + t[:, None] * C + c[None, :], acc, mask=(t[:, None] < T) & (c[None, :] < C))


@triton.jit
def split_k_matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
                   SPLIT: tl.constexpr):  # fmt: skip
    pid, part = tl.program_id(0), tl.program_id(1)
    tiles = tl.cdiv(N, BN)
    m = (pid // tiles) * BM + tl.arange(0, BM)
    n = (pid % tiles) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k0 in range(part * BK, K, BK * SPLIT):
        k = k0 + tl.arange(0, BK)
        x = tl.load(
            a + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0
        )
        w = tl.load(
            b + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0
        )
        acc = tl.dot(x, w, acc)
    tl.atomic_add(c + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def interleave(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    even = tl.load(x + 2 * i, mask=2 * i < n)
    odd = tl.load(x + 2 * i + 1, mask=2 * i + 1 < n)
    tl.store(y + 2 * i, odd, mask=2 * i < n)
    tl.store(y + 2 * i + 1, even, mask=2 * i + 1 < n)


@triton.jit
def upsample(x, y, H, W, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < 4 * H * W
    row, col = i // (2 * W), i % (2 * W)
    tl.store(y + i, tl.load(x + (row // 2) * W + col // 2, mask=m), mask=m)
