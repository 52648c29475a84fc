"""Of the question "uncoalesced strided tile"."""

import triton
import triton.language as tl


@triton.jit
def tile_copy(dst, src, sm, sn, dm, dn, BM: tl.constexpr, BN: tl.constexpr):
    r = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    c = tl.arange(0, BN)[None, :]
    tl.store(dst + r * dm + c * dn, tl.load(src + r * sm + c * sn))
