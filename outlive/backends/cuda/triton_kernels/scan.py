"""Running sums, products and extremes along rows, in pieces, always in the same order."""

import triton
import triton.language as tl

from outlive.backends.cuda.triton_kernels.rows import _larger, _multiply, _smaller, combined, folded


@triton.jit
def _add(a, b):
    return a + b


@triton.jit
def running(OP: tl.constexpr, block):
    """The inclusive scan of a block."""
    if OP == "sum":
        return tl.associative_scan(block, 0, _add)
    elif OP == "prod":
        return tl.associative_scan(block, 0, _multiply)
    elif OP == "max":
        return tl.associative_scan(block, 0, _larger)
    else:
        return tl.associative_scan(block, 0, _smaller)


@triton.jit
def elements(
    p_row,
    place,
    last,
    count,
    step,
    IDENTITY: tl.constexpr,
    ACCUMULATOR: tl.constexpr,
    REVERSE: tl.constexpr,
    SHIFT: tl.constexpr,
):
    """What is scanned at places in scan order: the row from its end if `REVERSE`, one place later (after the identity)
    by `SHIFT`.
    """
    source = place - SHIFT
    mask = (source >= 0) & (place < last)
    i = count - 1 - source if REVERSE else source
    return tl.where(
        mask, tl.load(p_row + i * step, mask, other=0).to(ACCUMULATOR), tl.full(place.shape, IDENTITY, ACCUMULATOR)
    )


@triton.jit
def fold_pieces(
    p_x, p_totals, count, part, inner,
    OP: tl.constexpr, ACCUMULATOR: tl.constexpr, IDENTITY: tl.constexpr, BLOCK: tl.constexpr,
    REVERSE: tl.constexpr, SHIFT: tl.constexpr,
):  # fmt: skip
    """The total of each piece of `part` places of a row; program (row, piece)."""
    i_row = tl.program_id(0).to(tl.int64)
    i_part = tl.program_id(1).to(tl.int64)
    p_row = p_x + (i_row // inner) * count * inner + i_row % inner
    first = i_part * part
    last = tl.minimum(first + part, count)
    b_acc = tl.full([BLOCK], IDENTITY, ACCUMULATOR)
    for start in range(0, part, BLOCK):
        place = first + start + tl.arange(0, BLOCK)
        b_acc = combined(OP, b_acc, elements(p_row, place, last, count, inner, IDENTITY, ACCUMULATOR, REVERSE, SHIFT))
    tl.store(p_totals + i_row * tl.num_programs(1) + i_part, folded(OP, b_acc, 0))


@triton.jit
def carry_pieces(
    p_totals, p_carries, parts, OP: tl.constexpr, ACCUMULATOR: tl.constexpr, IDENTITY: tl.constexpr, BLOCK: tl.constexpr
):
    """What comes before each piece of a row: the exclusive scan of the totals; a row a program."""
    i_row = tl.program_id(0).to(tl.int64)
    p_totals += i_row * parts
    p_carries += i_row * parts
    carry = tl.full([BLOCK], IDENTITY, ACCUMULATOR)
    for start in range(0, parts, BLOCK):
        place = start + tl.arange(0, BLOCK).to(tl.int64)
        b_x = elements(p_totals, place, parts, parts, 1, IDENTITY, ACCUMULATOR, False, 1)
        b_y = combined(OP, carry, running(OP, b_x))
        tl.store(p_carries + place, b_y, place < parts)
        carry = combined(OP, carry, folded(OP, b_x, 0) + tl.zeros([BLOCK], ACCUMULATOR))


@triton.jit
def scan_pieces(
    p_x, p_carries, p_out, count, part, inner,
    OP: tl.constexpr, ACCUMULATOR: tl.constexpr, IDENTITY: tl.constexpr, BLOCK: tl.constexpr,
    REVERSE: tl.constexpr, SHIFT: tl.constexpr, CARRIED: tl.constexpr,
):  # fmt: skip
    """The scan of each piece, from what comes before it (`CARRIED`), rounded once; program (row, piece).

    A row is the middle axis of a dense (outer, count, inner) array.
    """
    i_row = tl.program_id(0).to(tl.int64)
    i_part = tl.program_id(1).to(tl.int64)
    base = (i_row // inner) * count * inner + i_row % inner
    first = i_part * part
    last = tl.minimum(first + part, count)
    carry = tl.full([BLOCK], IDENTITY, ACCUMULATOR)
    if CARRIED:
        carry = tl.load(p_carries + i_row * tl.num_programs(1) + i_part) + tl.zeros([BLOCK], ACCUMULATOR)
    for start in range(0, part, BLOCK):
        place = first + start + tl.arange(0, BLOCK)
        b_x = elements(p_x + base, place, last, count, inner, IDENTITY, ACCUMULATOR, REVERSE, SHIFT)
        b_y = combined(OP, carry, running(OP, b_x))
        i = count - 1 - place if REVERSE else place
        tl.store(p_out + base + i * inner, b_y.to(p_out.dtype.element_ty), place < last)
        carry = combined(OP, carry, folded(OP, b_x, 0) + tl.zeros([BLOCK], ACCUMULATOR))
