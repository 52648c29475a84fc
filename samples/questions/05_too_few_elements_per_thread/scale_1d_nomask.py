"""Of the question "too few elements per thread"."""

import triton
import triton.language as tl


@triton.jit
def scale_1d_nomask(dst, src, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(dst + i, tl.load(src + i) * 3.0)
