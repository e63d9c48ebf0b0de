"""Products with affine quantized weights: value = scale * q + bias, q of 2 to 8 bits packed in 32-bit words, low bits
first.
"""

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
def scaled(b_q, p_scales, p_biases, row, group, row_groups, mask):
    """scale * q + bias in float32; zero outside."""
    b_scale = tl.load(p_scales + row * row_groups + group, mask, other=0.0).to(tl.float32)
    b_bias = tl.load(p_biases + row * row_groups + group, mask, other=0.0).to(tl.float32)
    return tl.where(mask, b_q * b_scale + b_bias, 0.0)


@triton.jit
def word_sums(p_planes, b_word, offset, m, rows, mask, row_words, BITS: tl.constexpr):
    """For each word: the sum of its integers times what row m of x has at their places, and the sum of these values.

    x is read in the shape of the words, once for each row of the matrix: in that shape a thread's elements of both lie alike. Products of
    integers of 8 bits with half-precision values are exact.
    """
    EACH: tl.constexpr = 32 // BITS
    p_x = p_planes + m * EACH * row_words + offset
    b_products = tl.zeros(b_word.shape, tl.float32)
    b_values = tl.zeros(b_word.shape, tl.float32)
    for j in tl.static_range(EACH):
        b_x = tl.load(p_x + j * row_words, mask & (m < rows), other=0.0).to(tl.float32)
        b_products = tl.fma(((b_word >> (j * BITS)) & ((1 << BITS) - 1)).to(tl.float32), b_x, b_products)
        b_values += b_x
    return b_products, b_values


@triton.jit
def product_vector(
    p_planes, p_w, p_scales, p_biases, p_out, rows, columns, row_words, row_groups,
    BITS: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_W: tl.constexpr,
):  # fmt: skip
    """out[m, n] = sum_k x[m, k] * w[n, k] for 1 or 4 rows at once (`ROWS`): program (block of n, block of m). Weights are not rounded:
    scale and bias are applied to the sums over each word.

    For widths that divide 32. x comes in planes: plane j of a row holds what meets the j-th element of each word, so that a thread shifts
    its words and reads x in runs. The order of a sum depends on neither m nor the number of rows.
    """
    m = tl.program_id(1) * ROWS
    n = (tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    b_acc0 = tl.zeros([BLOCK_N, BLOCK_W], tl.float32)
    b_acc1 = tl.zeros([BLOCK_N, BLOCK_W], tl.float32)
    b_acc2 = tl.zeros([BLOCK_N, BLOCK_W], tl.float32)
    b_acc3 = tl.zeros([BLOCK_N, BLOCK_W], tl.float32)
    for start in range(0, row_words, BLOCK_W):
        i_word = start + tl.arange(0, BLOCK_W)
        mask = (n < columns)[:, None] & (i_word < row_words)[None, :]
        group = n[:, None] * row_groups + (i_word * (32 // BITS) // GROUP)[None, :]
        b_word = tl.load(p_w + n[:, None] * row_words + i_word[None, :], mask, other=0)
        b_scale = tl.load(p_scales + group, mask, other=0.0).to(tl.float32)
        b_bias = tl.load(p_biases + group, mask, other=0.0).to(tl.float32)
        offset = tl.broadcast_to(i_word[None, :], [BLOCK_N, BLOCK_W])
        b_products, b_values = word_sums(p_planes, b_word, offset, m, rows, mask, row_words, BITS)
        b_acc0 = tl.fma(b_products, b_scale, tl.fma(b_values, b_bias, b_acc0))
        if ROWS > 1:
            b_products, b_values = word_sums(p_planes, b_word, offset, m + 1, rows, mask, row_words, BITS)
            b_acc1 = tl.fma(b_products, b_scale, tl.fma(b_values, b_bias, b_acc1))
            b_products, b_values = word_sums(p_planes, b_word, offset, m + 2, rows, mask, row_words, BITS)
            b_acc2 = tl.fma(b_products, b_scale, tl.fma(b_values, b_bias, b_acc2))
            b_products, b_values = word_sums(p_planes, b_word, offset, m + 3, rows, mask, row_words, BITS)
            b_acc3 = tl.fma(b_products, b_scale, tl.fma(b_values, b_bias, b_acc3))
    p_out += m * columns + n
    kind = p_out.dtype.element_ty
    inside = n < columns
    tl.store(p_out, tl.sum(b_acc0, 1).to(kind), inside)
    if ROWS > 1:
        tl.store(p_out + columns, tl.sum(b_acc1, 1).to(kind), inside & (m + 1 < rows))
        tl.store(p_out + 2 * columns, tl.sum(b_acc2, 1).to(kind), inside & (m + 2 < rows))
        tl.store(p_out + 3 * columns, tl.sum(b_acc3, 1).to(kind), inside & (m + 3 < rows))


@triton.jit
def product_rows(
    p_x, p_w, p_scales, p_biases, p_out, columns, depth, row_words, row_groups,
    BITS: tl.constexpr, GROUP: tl.constexpr, TRANSPOSE: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The same for weights of any width, and for w[k, n] (not `TRANSPOSE`): program (block of n, m)."""
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
        b_acc += b_x[None, :] * scaled(b_q, p_scales, p_biases, row, element // GROUP, row_groups, mask)
    tl.store(p_out + i_m * columns + n, tl.sum(b_acc, 1).to(p_out.dtype.element_ty), inside)


@triton.jit
def dequantized(
    p_w,
    p_scales,
    p_biases,
    p_out,
    count,
    row_words,
    row_groups,
    row_elements,
    BITS: tl.constexpr,
    GROUP: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Weights as they lie, rounded once to the type of `p_out`: element i of a dense (rows, row_elements) matrix."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < count
    row = i // row_elements
    element = i - row * row_elements
    b_q = unpacked(p_w, row, element, row_words, mask, BITS)
    b_w = scaled(b_q, p_scales, p_biases, row, element // GROUP, row_groups, mask)
    tl.store(p_out + i, b_w.to(p_out.dtype.element_ty), mask)


@triton.jit
def dequantized_words(
    p_w, p_scales, p_biases, p_out, words, BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK: tl.constexpr
):
    """The same for widths that divide 32, where rows lie one after another in words, groups and elements alike."""
    EACH: tl.constexpr = 32 // BITS
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < words
    b_word = tl.load(p_w + i, mask, other=0)
    b_scale = tl.load(p_scales + i * EACH // GROUP, mask, other=0.0).to(tl.float32)
    b_bias = tl.load(p_biases + i * EACH // GROUP, mask, other=0.0).to(tl.float32)
    each = tl.arange(0, EACH)
    b_q = ((b_word[:, None] >> (each * BITS).to(tl.uint32)[None, :]) & ((1 << BITS) - 1)).to(tl.float32)
    b_w = b_q * b_scale[:, None] + b_bias[:, None]
    tl.store(p_out + i[:, None] * EACH + each[None, :], b_w.to(p_out.dtype.element_ty), mask[:, None])
