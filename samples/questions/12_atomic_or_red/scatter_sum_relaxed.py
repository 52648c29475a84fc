"""Of the question "atomic or red"."""

import triton
import triton.language as tl


@triton.jit
def scatter_sum_relaxed(dst, src, idx, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(dst + tl.load(idx + i), tl.load(src + i), sem="relaxed")
