"""Products with affine quantized weights: value = scale * q + bias, q of 2 to 8 bits packed in 32-bit words, low bits first."""

import triton
import triton.language as tl


@triton.jit
def unpacked(p_words, row, element, row_words, mask, BITS: tl.constexpr):
    """The integers at (row, element), as float32. Widths that do not divide 32 may straddle two words."""
    if 32 % BITS == 0:
        per_word: tl.constexpr = 32 // BITS
        b_word = tl.load(p_words + row * row_words + element // per_word, mask, other=0)
        b_q = (b_word >> ((element % per_word) * BITS).to(tl.uint32)) & ((1 << BITS) - 1)
    else:
        bit = element * BITS
        i_word = bit // 32
        shift = (bit % 32).to(tl.uint32)
        p = p_words + row * row_words + i_word
        b_low = tl.load(p, mask, other=0) >> shift
        straddles = (shift + BITS > 32) & mask
        b_high = tl.load(p + 1, straddles, other=0) << tl.where(straddles, 32 - shift, 0).to(tl.uint32)
        b_q = (b_low | tl.where(straddles, b_high, 0)) & ((1 << BITS) - 1)
    return b_q.to(tl.float32)


@triton.jit
def product_rows(
    p_x, p_w, p_scales, p_biases, p_out, columns, depth, row_words, row_groups,
    BITS: tl.constexpr, GROUP: tl.constexpr, TRANSPOSE: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """out[m, n] = sum_k x[m, k] * w[n, k] (or w[k, n]), for few rows m: program (block of n, m). Weights are not rounded.

    The order of the sum depends on neither m nor the number of rows.
    """
    i_m = tl.program_id(1).to(tl.int64)
    n = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = n < columns
    b_acc = tl.zeros([BLOCK_N, BLOCK_K], tl.float32)
    for start in range(0, depth, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K).to(tl.int64)
        mask = inside[:, None] & (k < depth)[None, :]
        b_x = tl.load(p_x + i_m * depth + k, k < depth, other=0.0).to(tl.float32)
        if TRANSPOSE:
            row = n[:, None] + tl.zeros([BLOCK_N, BLOCK_K], tl.int64)
            element = k[None, :] + tl.zeros([BLOCK_N, BLOCK_K], tl.int64)
        else:
            row = k[None, :] + tl.zeros([BLOCK_N, BLOCK_K], tl.int64)
            element = n[:, None] + tl.zeros([BLOCK_N, BLOCK_K], tl.int64)
        b_q = unpacked(p_w, row, element, row_words, mask, BITS)
        group = row * row_groups + element // GROUP
        b_scale = tl.load(p_scales + group, mask, other=0.0).to(tl.float32)
        b_bias = tl.load(p_biases + group, mask, other=0.0).to(tl.float32)
        b_acc += tl.where(mask, b_x[None, :] * (b_q * b_scale + b_bias), 0.0)
    tl.store(p_out + i_m * columns + n, tl.sum(b_acc, 1).to(p_out.dtype.element_ty), inside)


@triton.jit
def product_tiles(
    p_x, p_w, p_scales, p_biases, p_out, rows, columns, depth, row_words, row_groups,
    BITS: tl.constexpr, GROUP: tl.constexpr, TRANSPOSE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The same for many rows, in tiles on the matrix units: weights are rounded once to the type of x, sums are float32."""
    m = tl.program_id(1).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    b_acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    kind = p_x.dtype.element_ty
    for start in range(0, depth, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K).to(tl.int64)
        b_x = tl.load(p_x + m[:, None] * depth + k[None, :], (m < rows)[:, None] & (k < depth)[None, :], other=0.0)
        mask = (k < depth)[:, None] & (n < columns)[None, :]
        if TRANSPOSE:
            row = n[None, :] + tl.zeros([BLOCK_K, BLOCK_N], tl.int64)
            element = k[:, None] + tl.zeros([BLOCK_K, BLOCK_N], tl.int64)
        else:
            row = k[:, None] + tl.zeros([BLOCK_K, BLOCK_N], tl.int64)
            element = n[None, :] + tl.zeros([BLOCK_K, BLOCK_N], tl.int64)
        b_q = unpacked(p_w, row, element, row_words, mask, BITS)
        group = row * row_groups + element // GROUP
        b_scale = tl.load(p_scales + group, mask, other=0.0).to(tl.float32)
        b_bias = tl.load(p_biases + group, mask, other=0.0).to(tl.float32)
        b_w = tl.where(mask, b_q * b_scale + b_bias, 0.0).to(kind)
        b_acc = tl.dot(b_x, b_w, b_acc, input_precision="ieee")
    mask = (m < rows)[:, None] & (n < columns)[None, :]
    tl.store(p_out + m[:, None] * columns + n[None, :], b_acc.to(p_out.dtype.element_ty), mask)
