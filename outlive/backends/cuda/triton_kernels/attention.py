"""Scaled dot-product attention in one pass over the keys, with a running maximum and sum (Dao et al. 2022, algorithm 1)."""

import triton
import triton.language as tl

from outlive.backends.cuda.triton_kernels.rows import exponential


@triton.jit
def scores_of(
    b_q, p_k, n, keys, s_key, d, width, p_mask, m, s_mask_query, s_mask_key, queries, scale, last,
    CAUSAL: tl.constexpr, MASK: tl.constexpr,
):  # fmt: skip
    """Scaled scores of a block of queries with keys `n`; -inf where a key is not allowed or not there."""
    b_k = tl.load(p_k + n[None, :] * s_key + d[:, None], (n < keys)[None, :] & (d < width)[:, None], other=0.0)
    b_s = tl.dot(b_q, b_k, input_precision="ieee") * scale
    allowed = (n < keys)[None, :] & (m < queries)[:, None]
    if MASK == "boolean":
        b_mask = tl.load(p_mask + m[:, None] * s_mask_query + n[None, :] * s_mask_key, allowed, other=0)
        return tl.where(allowed & (b_mask != 0), b_s, float("-inf"))
    elif MASK == "additive":
        b_mask = tl.load(p_mask + m[:, None] * s_mask_query + n[None, :] * s_mask_key, allowed, other=0.0)
        return tl.where(allowed, b_s + b_mask.to(tl.float32), float("-inf"))
    elif CAUSAL:
        return tl.where(allowed & (n[None, :] <= m[:, None] + last), b_s, float("-inf"))
    else:
        return tl.where(allowed, b_s, float("-inf"))


@triton.jit
def mean_of_values(p_v, keys, s_value, e, width, BLOCK_N: tl.constexpr, BLOCK_E: tl.constexpr):
    """What a query gets that no key is allowed for: all keys alike."""
    b_sum = tl.zeros([BLOCK_E], tl.float32)
    for start in range(0, keys, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N).to(tl.int64)
        b_v = tl.load(p_v + n[:, None] * s_value + e[None, :], (n < keys)[:, None] & (e < width)[None, :], other=0.0)
        b_sum += tl.sum(b_v.to(tl.float32), 0)
    return tl.div_rn(b_sum, keys.to(tl.float32) + tl.zeros([BLOCK_E], tl.float32))


@triton.jit
def attention(
    p_q, p_k, p_v, p_mask, p_sinks, p_out, heads, group, queries, keys, width, value_width,
    s_q_batch, s_q_head, s_query, s_k_batch, s_k_head, s_key, s_v_batch, s_v_head, s_value,
    s_mask_batch, s_mask_head, s_mask_query, s_mask_key, scale,
    CAUSAL: tl.constexpr, MASK: tl.constexpr, SINKS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    """Program (block of queries, head, batch); strides in elements, widths contiguous, the output dense.

    A key that is not allowed adds nothing, NaN included. A query without any allowed key gets the mean of all values under a boolean or
    causal mask, NaN under an additive one, zero with sinks. A causal query m sees keys up to m + keys - queries.
    """
    i_head = tl.program_id(1).to(tl.int64)
    i_batch = tl.program_id(2).to(tl.int64)
    m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    d = tl.arange(0, BLOCK_D)
    e = tl.arange(0, BLOCK_E)
    p_k += i_batch * s_k_batch + (i_head // group) * s_k_head
    p_v += i_batch * s_v_batch + (i_head // group) * s_v_head
    if MASK != "none":
        p_mask += i_batch * s_mask_batch + i_head * s_mask_head
    p_rows = p_q + i_batch * s_q_batch + i_head * s_q_head + m[:, None] * s_query
    b_q = tl.load(p_rows + d[None, :], (m < queries)[:, None] & (d < width)[None, :], other=0.0)
    last = keys - queries
    end = keys
    if CAUSAL:
        end = tl.minimum(keys, tl.maximum(0, (tl.program_id(0) + 1) * BLOCK_M + last))
    b_top = tl.full([BLOCK_M], float("-inf"), tl.float32)
    b_sum = tl.zeros([BLOCK_M], tl.float32)
    b_nan = tl.zeros([BLOCK_M], tl.int32)
    b_acc = tl.zeros([BLOCK_M, BLOCK_E], tl.float32)
    for start in range(0, end, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N).to(tl.int64)
        b_s = scores_of(
            b_q, p_k, n, keys, s_key, d, width, p_mask, m, s_mask_query, s_mask_key, queries, scale, last, CAUSAL, MASK
        )
        b_nan |= tl.max((b_s != b_s).to(tl.int32), 1)
        b_new = tl.maximum(b_top, tl.max(b_s, 1))
        b_p = exponential(b_s - b_new[:, None])
        b_scale = exponential(b_top - b_new)
        b_sum = b_sum * b_scale + tl.sum(b_p, 1)
        b_v = tl.load(
            p_v + n[:, None] * s_value + e[None, :], (n < keys)[:, None] & (e < value_width)[None, :], other=0.0
        )
        b_acc = b_acc * b_scale[:, None] + tl.dot(b_p.to(b_v.dtype), b_v, input_precision="ieee")
        b_top = b_new
    empty = b_top == float("-inf")
    if SINKS:
        sink = tl.load(p_sinks + i_head).to(tl.float32)
        b_new = tl.maximum(b_top, sink)
        b_scale = exponential(b_top - b_new)
        b_sum = b_sum * b_scale + exponential(sink - b_new)
        b_acc = b_acc * b_scale[:, None]
    b_out = tl.div_rn(b_acc, b_sum[:, None] + tl.zeros([BLOCK_M, BLOCK_E], tl.float32))
    if not SINKS:
        if MASK == "additive":
            b_out = tl.where(empty[:, None], float("nan"), b_out)
        elif tl.max((empty & (m < queries)).to(tl.int32), 0) > 0:
            b_mean = mean_of_values(p_v, keys, s_value, e, value_width, BLOCK_N, BLOCK_E)
            b_out = tl.where(empty[:, None], b_mean[None, :], b_out)
    b_out = tl.where((b_nan > 0)[:, None] | (b_top == float("inf"))[:, None], float("nan"), b_out)
    p_out += ((i_batch * heads + i_head) * queries + m[:, None]) * value_width + e[None, :]
    tl.store(p_out, b_out.to(p_out.dtype.element_ty), (m < queries)[:, None] & (e < value_width)[None, :])
