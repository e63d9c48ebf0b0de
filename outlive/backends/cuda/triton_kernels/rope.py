"""Rotary position embedding (Su et al. 2021, section 3.4.2)."""

import triton
import triton.language as tl

TURN = tl.constexpr(6.283185307179586)
INVERSE_TURN = tl.constexpr(0.15915494309189535)


@triton.jit
def rope(
    p_x, p_offset, p_freqs, p_out, heads, length, width, s_batch, s_head, s_step, s_offset, scale, log2_base,
    HALF: tl.constexpr, BLOCK: tl.constexpr, TRADITIONAL: tl.constexpr, GIVEN: tl.constexpr, REST: tl.constexpr,
):  # fmt: skip
    """Pairs of elements turned by position * frequency; one (batch, head, step) row a program, `HALF` pairs of `width`
    elements.

    Frequency i is base^(-i / HALF), or 1 / freqs[i] (`GIVEN`). Pairs are (2i, 2i + 1) if `TRADITIONAL`, (i, i + HALF)
    otherwise. `REST`: block that covers what is left unturned, 0 for none. Input strides in elements, the output is
    dense. Angles are float64 until they are reduced to one turn: positions of a million stay exact to float32.
    """
    i_row = tl.program_id(0).to(tl.int64)
    i_step = i_row % length
    i_head = (i_row // length) % heads
    i_batch = i_row // (length * heads)
    p_x += i_batch * s_batch + i_head * s_head + i_step * s_step
    p_out += i_row * width
    lanes = tl.arange(0, BLOCK)
    mask = lanes < HALF
    position = (tl.load(p_offset + i_batch * s_offset) + i_step).to(tl.float64) * scale
    if GIVEN:
        b_rate = 1.0 / tl.load(p_freqs + lanes, mask, other=1.0).to(tl.float64)
    else:
        b_rate = tl.exp2(lanes.to(tl.float64) * (-1.0 / HALF) * log2_base)
    b_turns = position * b_rate * INVERSE_TURN
    b_angle = ((b_turns - tl.floor(b_turns + 0.5)) * TURN).to(tl.float32)
    b_cos = tl.cos(b_angle)
    b_sin = tl.sin(b_angle)
    if TRADITIONAL:
        first = lanes * 2
        second = first + 1
    else:
        first = lanes
        second = lanes + HALF
    b_a = tl.load(p_x + first, mask, other=0.0).to(tl.float32)
    b_b = tl.load(p_x + second, mask, other=0.0).to(tl.float32)
    kind = p_out.dtype.element_ty
    tl.store(p_out + first, (b_a * b_cos - b_b * b_sin).to(kind), mask)
    tl.store(p_out + second, (b_a * b_sin + b_b * b_cos).to(kind), mask)
    if REST > 0:
        rest = 2 * HALF + tl.arange(0, REST)
        tl.store(p_out + rest, tl.load(p_x + rest, rest < width), rest < width)
