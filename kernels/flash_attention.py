"""O = softmax(Q @ K^T / sqrt(D)) @ V for each batch and head, causal or not.

One program computes BLOCK_Q rows of O. It walks along K and V in steps of BLOCK_KV and keeps, for
each row, the maximum score so far, the sum of the exponentials relative to it, and the weighted
sum of V; when the maximum grows, the two sums are scaled down ("online softmax"). The T x T scores
never leave the chip. With causal, query t sees keys 0..t, and the walk stops at the diagonal.

Precision: products on the tensor cores (which read fp32 operands as tf32, a 10-bit mantissa), sums
and softmax in fp32, the softmax weights rounded to the element type before they meet V.

Any T; any D up to 128, padded to a power of two in the tile. Shared memory grows with D, the
element size and BLOCK_KV: D = 128 in fp32 on sm_120 needs BLOCK_KV = 16.
"""

import triton
import triton.language as tl

DTYPES = ("fp16", "bf16", "fp32")
SHAPE = {
    "B": "batch size",
    "H": "number of heads",
    "T": "sequence length",
    "D": "head size",
    "causal": "1: a query sees no later keys; 0: it sees all",
}
CONSTEXPRS = {"BLOCK_Q": 128, "BLOCK_KV": 64}
OPTIONS = {"num_warps": 8, "num_stages": 3}
OVERRIDES = {"fp32": {"BLOCK_KV": 32}}
OUTPUTS = ("o_ptr",)
EXAMPLE = (
    {"B": 4, "H": 32, "T": 2048, "D": 64, "causal": 0},
    {"B": 4, "H": 32, "T": 2048, "D": 64, "causal": 1},
    {"B": 2, "H": 3, "T": 1000, "D": 80, "causal": 1},
)


@triton.jit
def flash_attention_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, stride_b, stride_h, stride_t, T, scale,
    HEAD_DIM: tl.constexpr, PADDED_DIM: tl.constexpr, CAUSAL: tl.constexpr,
    BLOCK_Q: tl.constexpr, BLOCK_KV: tl.constexpr,
):  # fmt: skip
    # All four tensors have the same strides, and stride 1 along D. This batch and head starts at
    # base: 64-bit, since it may pass 2**31 elements.
    base = tl.program_id(2).to(tl.int64) * stride_b + tl.program_id(1).to(tl.int64) * stride_h
    first_q = tl.program_id(0) * BLOCK_Q
    qs = first_q + tl.arange(0, BLOCK_Q)
    kvs = tl.arange(0, BLOCK_KV)
    ds = tl.arange(0, PADDED_DIM)
    q_offsets = base + qs.to(tl.int64)[:, None] * stride_t + ds[None, :]
    kv_offsets = base + kvs.to(tl.int64)[:, None] * stride_t + ds[None, :]
    k_ptrs = k_ptr + kv_offsets
    v_ptrs = v_ptr + kv_offsets

    q = tl.load(q_ptr + q_offsets, mask=(qs[:, None] < T) & (ds[None, :] < HEAD_DIM), other=0.0)
    scale_log2 = scale * 1.4426950408889634  # log2(e): exp(x) = exp2(x * log2(e))

    row_max = tl.full((BLOCK_Q,), float("-inf"), dtype=tl.float32)
    row_sum = tl.zeros((BLOCK_Q,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_Q, PADDED_DIM), dtype=tl.float32)
    end = min(first_q + BLOCK_Q, T) if CAUSAL else T
    for start in range(0, end, BLOCK_KV):
        kv_mask = (kvs[:, None] < T - start) & (ds[None, :] < HEAD_DIM)
        k = tl.load(k_ptrs, mask=kv_mask, other=0.0)
        scores = tl.dot(q, k.T) * scale_log2
        visible = kvs[None, :] < T - start
        if CAUSAL:
            visible &= start + kvs[None, :] <= qs[:, None]
        scores = tl.where(visible, scores, float("-inf"))

        # Key 0 is visible to every query, so the maximum is finite from the first step on.
        new_max = tl.maximum(row_max, tl.max(scores, axis=1))
        rescale = tl.exp2(row_max - new_max)
        p = tl.exp2(scores - new_max[:, None])
        row_sum = row_sum * rescale + tl.sum(p, axis=1)
        v = tl.load(v_ptrs, mask=kv_mask, other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc * rescale[:, None])
        row_max = new_max
        k_ptrs += BLOCK_KV * stride_t
        v_ptrs += BLOCK_KV * stride_t

    o = (acc / row_sum[:, None]).to(o_ptr.dtype.element_ty)
    tl.store(o_ptr + q_offsets, o, mask=(qs[:, None] < T) & (ds[None, :] < HEAD_DIM))


def arguments(shape, dtype, constexprs):
    B, H, T, D = shape["B"], shape["H"], shape["T"], shape["D"]
    x = ("*", dtype, (B, H, T, D))
    return {
        "q_ptr": x,
        "k_ptr": x,
        "v_ptr": x,
        "o_ptr": x,
        "stride_b": H * T * D,
        "stride_h": T * D,
        "stride_t": D,
        "T": T,
        "scale": D**-0.5,
        "HEAD_DIM": D,
        "PADDED_DIM": max(16, triton.next_power_of_2(D)),  # tl.dot takes powers of two from 16
        "CAUSAL": bool(shape["causal"]),
    }


def grid(shape, constexprs):
    return (triton.cdiv(shape["T"], constexprs["BLOCK_Q"]), shape["H"], shape["B"])


def reference(tensors, shape):
    import torch

    q, k, v = tensors["q_ptr"], tensors["k_ptr"], tensors["v_ptr"]
    scores = q @ k.transpose(-1, -2) * shape["D"] ** -0.5
    if shape["causal"]:
        T = shape["T"]
        hidden = torch.ones(T, T, dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(hidden, float("-inf"))
    return {"o_ptr": torch.softmax(scores, dim=-1) @ v}


def bound(dtype, roundoff):
    # The weights are rounded, and the output; of fp32 operands the lower 13 bits are lost.
    return 2**-9 if dtype == "fp32" else 2 * roundoff[dtype] + 16 * roundoff["fp32"]


def rivals(tensors, shape):
    import torch

    q, k, v = tensors["q_ptr"], tensors["k_ptr"], tensors["v_ptr"]
    causal, T = bool(shape["causal"]), shape["T"]
    hidden = torch.ones(T, T, dtype=torch.bool, device=q.device).triu(1) if causal else None

    def standard(q, k, v):
        scores = q @ k.transpose(-1, -2) * shape["D"] ** -0.5
        if hidden is not None:
            scores = scores.masked_fill(hidden, float("-inf"))
        return torch.softmax(scores, dim=-1) @ v

    attention = torch.nn.functional.scaled_dot_product_attention
    return {
        "standard": lambda: standard(q, k, v),
        "SDPA": lambda: attention(q, k, v, is_causal=causal),
    }


BATCH_DIMS = 2
CHECKS = (
    {"B": 1, "H": 1, "T": 1, "D": 64, "causal": 1},
    {"B": 2, "H": 8, "T": 1000, "D": 64, "causal": 0},
    {"B": 2, "H": 8, "T": 1000, "D": 128, "causal": 1},
    {"B": 1, "H": 4, "T": 333, "D": 32, "causal": 1},
    {"B": 1, "H": 2, "T": 257, "D": 96, "causal": 0},
    {"B": 1, "H": 2, "T": 130, "D": 40, "causal": 1},
)
