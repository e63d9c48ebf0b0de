"""Work on rows that lie one after another: softmax, root-mean-square norm, layer norm, reductions."""

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
LOG2_E_LOW = tl.constexpr(1.925963033500e-8)
"""log2(e) less its float32."""
SMALLEST = tl.constexpr(-87.33654)
"""The natural logarithm of 2^-126."""


@triton.jit
def exponential(x):
    """e^x of float32 x <= 0 within 3 units in the last place: 2^n times the hardware's 2^f, |f| <= 1/2, f exact to a
    rounding.

    The hardware's 2^(x log2(e)) alone loses a digit for large |x|, where the product is rounded. Results below 2^-126,
    and that of NaN, are zero.
    """
    n = tl.floor(tl.fma(x, LOG2_E, 0.5))
    f = tl.fma(x, LOG2_E_LOW, tl.fma(x, LOG2_E, -n))
    inside = x > SMALLEST
    power = ((tl.where(inside, n, 0.0).to(tl.int32) + 127) << 23).to(tl.float32, bitcast=True)
    return tl.where(inside, tl.exp2(f) * power, 0.0)


@triton.jit
def over(b_numerator, denominator, KIND: tl.constexpr):
    """A block over one number: rounded to nearest for float32; by the reciprocal where the result is rounded to half
    precision anyway.
    """
    if tl.float32 == KIND:
        return tl.div_rn(b_numerator, denominator + tl.zeros_like(b_numerator))
    else:
        return b_numerator * tl.div_rn(1.0, denominator)


@triton.jit
def softmax(p_x, p_out, count, BLOCK: tl.constexpr, ONE: tl.constexpr):
    """A row a program. `ONE`: the row fits a block and is read once; otherwise the maximum and sum are found online
    first.

    `exponential` takes NaN for a very small number, so the difference of two infinities adds nothing, and a row whose
    largest element is infinite ends as 0 / 0. NaN elements are found by themselves.
    """
    i_row = tl.program_id(0).to(tl.int64)
    p_x += i_row * count
    p_out += i_row * count
    lanes = tl.arange(0, BLOCK)
    kind = p_out.dtype.element_ty
    if ONE:
        mask = lanes < count
        b_x = tl.load(p_x + lanes, mask, other=float("-inf")).to(tl.float32)
        nan = tl.max((b_x != b_x).to(tl.int32), 0)
        b_e = tl.where(mask, exponential(b_x - tl.max(b_x, 0)), 0.0)
        b_y = over(b_e, tl.sum(b_e, 0), kind)
        tl.store(p_out + lanes, tl.where(nan > 0, float("nan"), b_y).to(kind), mask)
    else:
        b_top = tl.full([BLOCK], float("-inf"), tl.float32)
        b_sum = tl.zeros([BLOCK], tl.float32)
        b_nan = tl.zeros([BLOCK], tl.int32)
        for start in range(0, count, BLOCK):
            b_x = tl.load(p_x + start + lanes, start + lanes < count, other=float("-inf")).to(tl.float32)
            b_nan |= (b_x != b_x).to(tl.int32)
            b_new = tl.maximum(b_top, b_x)
            b_sum = b_sum * exponential(b_top - b_new) + exponential(b_x - b_new)
            b_top = b_new
        top = tl.max(b_top, 0)
        total = tl.sum(b_sum * exponential(b_top - top), 0)
        nan = tl.max(b_nan, 0)
        for start in range(0, count, BLOCK):
            mask = start + lanes < count
            b_x = tl.load(p_x + start + lanes, mask, other=float("-inf")).to(tl.float32)
            b_y = over(exponential(b_x - top), total, kind)
            tl.store(p_out + start + lanes, tl.where(nan > 0, float("nan"), b_y).to(kind), mask)


@triton.jit
def weighted(b_y, p_weight, lanes, mask, WEIGHTED: tl.constexpr):
    if WEIGHTED:
        b_y *= tl.load(p_weight + lanes, mask, other=0.0).to(tl.float32)
    return b_y


@triton.jit
def biased(b_y, p_bias, lanes, mask, BIASED: tl.constexpr):
    if BIASED:
        b_y += tl.load(p_bias + lanes, mask, other=0.0).to(tl.float32)
    return b_y


@triton.jit
def inverse_root(sum_of_squares, count, eps):
    """1 / sqrt(mean + eps)."""
    return tl.div_rn(1.0, tl.sqrt_rn(tl.div_rn(sum_of_squares, count.to(tl.float32)) + eps))


@triton.jit
def rms_norm(p_x, p_weight, p_out, count, eps, BLOCK: tl.constexpr, ONE: tl.constexpr, WEIGHTED: tl.constexpr):
    """x / sqrt(mean(x^2) + eps) * weight, a row a program, in float32, rounded once. `ONE`: the row fits a block and is
    read once.
    """
    i_row = tl.program_id(0).to(tl.int64)
    p_x += i_row * count
    p_out += i_row * count
    lanes = tl.arange(0, BLOCK)
    kind = p_out.dtype.element_ty
    if ONE:
        mask = lanes < count
        b_x = tl.load(p_x + lanes, mask, other=0.0).to(tl.float32)
        b_y = weighted(b_x * inverse_root(tl.sum(b_x * b_x, 0), count, eps), p_weight, lanes, mask, WEIGHTED)
        tl.store(p_out + lanes, b_y.to(kind), mask)
    else:
        b_squares = tl.zeros([BLOCK], tl.float32)
        for start in range(0, count, BLOCK):
            b_x = tl.load(p_x + start + lanes, start + lanes < count, other=0.0).to(tl.float32)
            b_squares += b_x * b_x
        scale = inverse_root(tl.sum(b_squares, 0), count, eps)
        for start in range(0, count, BLOCK):
            mask = start + lanes < count
            b_y = tl.load(p_x + start + lanes, mask, other=0.0).to(tl.float32) * scale
            tl.store(p_out + start + lanes, weighted(b_y, p_weight, start + lanes, mask, WEIGHTED).to(kind), mask)


@triton.jit
def layer_norm(
    p_x,
    p_weight,
    p_bias,
    p_out,
    count,
    eps,
    BLOCK: tl.constexpr,
    ONE: tl.constexpr,
    WEIGHTED: tl.constexpr,
    BIASED: tl.constexpr,
):
    """(x - mean) / sqrt(variance + eps) * weight + bias, a row a program; the variance from the centred values."""
    i_row = tl.program_id(0).to(tl.int64)
    p_x += i_row * count
    p_out += i_row * count
    lanes = tl.arange(0, BLOCK)
    size = count.to(tl.float32)
    kind = p_out.dtype.element_ty
    if ONE:
        mask = lanes < count
        b_x = tl.load(p_x + lanes, mask, other=0.0).to(tl.float32)
        b_c = tl.where(mask, b_x - tl.div_rn(tl.sum(b_x, 0), size), 0.0)
        b_y = weighted(b_c * inverse_root(tl.sum(b_c * b_c, 0), count, eps), p_weight, lanes, mask, WEIGHTED)
        tl.store(p_out + lanes, biased(b_y, p_bias, lanes, mask, BIASED).to(kind), mask)
    else:
        b_sum = tl.zeros([BLOCK], tl.float32)
        for start in range(0, count, BLOCK):
            b_sum += tl.load(p_x + start + lanes, start + lanes < count, other=0.0).to(tl.float32)
        mean = tl.div_rn(tl.sum(b_sum, 0), size)
        b_squares = tl.zeros([BLOCK], tl.float32)
        for start in range(0, count, BLOCK):
            mask = start + lanes < count
            b_c = tl.where(mask, tl.load(p_x + start + lanes, mask, other=0.0).to(tl.float32) - mean, 0.0)
            b_squares += b_c * b_c
        scale = inverse_root(tl.sum(b_squares, 0), count, eps)
        for start in range(0, count, BLOCK):
            mask = start + lanes < count
            b_y = (tl.load(p_x + start + lanes, mask, other=0.0).to(tl.float32) - mean) * scale
            b_y = weighted(b_y, p_weight, start + lanes, mask, WEIGHTED)
            tl.store(p_out + start + lanes, biased(b_y, p_bias, start + lanes, mask, BIASED).to(kind), mask)


@triton.jit
def combined(OP: tl.constexpr, a, b):
    """One step of a reduction. NaN wins in max and min, as in NumPy."""
    if OP == "sum":
        return a + b
    elif OP == "prod":
        return a * b
    elif OP == "max":
        return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
    else:
        return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _multiply(a, b):
    return a * b


@triton.jit
def _larger(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _smaller(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def folded(OP: tl.constexpr, block, axis: tl.constexpr):
    """A block reduced along an axis, always in the same order."""
    if OP == "sum":
        return tl.sum(block, axis)
    elif OP == "prod":
        return tl.reduce(block, axis, _multiply)
    elif OP == "max":
        return tl.reduce(block, axis, _larger)
    else:
        return tl.reduce(block, axis, _smaller)


@triton.jit
def quotient(a, b, KIND: tl.constexpr):
    """a / b, rounded to nearest in both precisions (the plain operator is approximate in float32)."""
    if tl.float64 == KIND:
        return a / b
    else:
        return tl.div_rn(a, b)


@triton.jit
def reduce_rows(
    p_x, p_out, count, part, divisor,
    OP: tl.constexpr, ACCUMULATOR: tl.constexpr, IDENTITY: tl.constexpr, BLOCK: tl.constexpr, MEAN: tl.constexpr,
):  # fmt: skip
    """One result for each piece of `part` elements of a row of `count`; program (row, piece). `divisor`: for means."""
    i_row = tl.program_id(0).to(tl.int64)
    i_part = tl.program_id(1).to(tl.int64)
    first = i_part * part
    left = tl.minimum(part, count - first).to(tl.int32)
    p_x += i_row * count + first
    lanes = tl.arange(0, BLOCK)
    b_acc = tl.full([BLOCK], IDENTITY, ACCUMULATOR)
    for start in range(0, left, BLOCK):
        mask = start + lanes < left
        b_x = tl.load(p_x + start + lanes, mask, other=0).to(ACCUMULATOR)
        b_acc = combined(OP, b_acc, tl.where(mask, b_x, tl.full([BLOCK], IDENTITY, ACCUMULATOR)))
    result = folded(OP, b_acc, 0)
    if MEAN:
        result = quotient(result, divisor, ACCUMULATOR)
    tl.store(p_out + i_row * tl.num_programs(1) + i_part, result.to(p_out.dtype.element_ty))


@triton.jit
def reduce_columns(
    p_x, p_out, count, part, inner, divisor,
    OP: tl.constexpr, ACCUMULATOR: tl.constexpr, IDENTITY: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, MEAN: tl.constexpr,
):  # fmt: skip
    """The middle axis (of `count`, in pieces of `part`) of a dense (outer, count, inner) array; program (block of
    inner, outer, piece).
    """
    i_outer = tl.program_id(1).to(tl.int64)
    i_part = tl.program_id(2)
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    inside = columns < inner
    first = i_part.to(tl.int64) * part
    left = tl.minimum(part, count - first).to(tl.int32)
    p_x += (i_outer * count + first) * inner
    rows = tl.arange(0, ROWS)
    b_acc = tl.full([ROWS, COLUMNS], IDENTITY, ACCUMULATOR)
    for start in range(0, left, ROWS):
        mask = (start + rows < left)[:, None] & inside[None, :]
        b_x = tl.load(p_x + (start + rows).to(tl.int64)[:, None] * inner + columns[None, :], mask, other=0).to(
            ACCUMULATOR
        )
        b_acc = combined(OP, b_acc, tl.where(mask, b_x, tl.full([ROWS, COLUMNS], IDENTITY, ACCUMULATOR)))
    b_result = folded(OP, b_acc, 0)
    if MEAN:
        b_result = quotient(b_result, divisor + tl.zeros([COLUMNS], ACCUMULATOR), ACCUMULATOR)
    p_out += (i_outer * tl.num_programs(2) + i_part) * inner
    tl.store(p_out + columns, b_result.to(p_out.dtype.element_ty), inside)
