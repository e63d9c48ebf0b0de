"""Numbers of few bits: packing, and the small floats of the OCP microscaling formats, in NumPy's and CuPy's common
subset.

Codes of b bits lie one after the other, lowest bits first, in a stream of little-endian 32-bit words.
"""

from __future__ import annotations

from typing import Any

FP4_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""E2M1 magnitudes by code; code + 8 is negative."""

FP4_BORDERS = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)
"""Halfway points; a tie takes the smaller magnitude."""

FP4_MAX = 6.0
FP8_MAX = 448.0
FP8_MANTISSA_BITS = 3
FP8_EXPONENT_MIN = -6
FP8_NAN = 0x7F
E8M0_BIAS = 127
E8M0_NAN = 255


def unpack(xp: Any, words: Any, bits: int) -> Any:
    """Codes (..., n) as uint8 from words (..., n * bits / 32)."""
    words = xp.ascontiguousarray(words)
    if 32 % bits == 0:
        shifts = xp.arange(0, 32, bits, dtype=xp.uint32)
        codes = (words[..., None] >> shifts) & xp.uint32((1 << bits) - 1)
        return codes.astype(xp.uint8).reshape(*words.shape[:-1], -1)
    # eight codes fill `bits` bytes
    groups = words.view(xp.uint8).reshape(*words.shape[:-1], words.shape[-1] * 4 // bits, bits)
    joined = xp.zeros(groups.shape[:-1], xp.uint64)
    for i in range(bits):
        joined |= groups[..., i].astype(xp.uint64) << xp.uint64(8 * i)
    shifts = xp.arange(0, 8 * bits, bits, dtype=xp.uint64)
    codes = (joined[..., None] >> shifts) & xp.uint64((1 << bits) - 1)
    return codes.astype(xp.uint8).reshape(*words.shape[:-1], -1)


def pack(xp: Any, codes: Any, bits: int) -> Any:
    """Words (..., n * bits / 32) from codes (..., n), n a multiple of 32."""
    lead, n = codes.shape[:-1], codes.shape[-1]
    if 32 % bits == 0:
        shifts = xp.arange(0, 32, bits, dtype=xp.uint32)
        parts = codes.reshape(*lead, n * bits // 32, 32 // bits).astype(xp.uint32) << shifts
        return parts.sum(axis=-1, dtype=xp.uint32)
    shifts = xp.arange(0, 8 * bits, bits, dtype=xp.uint64)
    joined = (codes.reshape(*lead, n // 8, 8).astype(xp.uint64) << shifts).sum(axis=-1, dtype=xp.uint64)
    part = xp.ascontiguousarray(joined[..., None].view(xp.uint8)[..., :bits])
    return part.reshape(*lead, n * bits // 8).view(xp.uint32)


def fp4_encode(xp: Any, values: Any) -> Any:
    """E2M1 codes of float32 values, to the nearest magnitude, clipped; NaN becomes 0."""
    magnitude = xp.abs(values)
    codes = xp.zeros(values.shape, xp.uint8)
    for border in FP4_BORDERS:
        codes += magnitude > xp.float32(border)
    return xp.where((values < 0) & (codes > 0), codes | xp.uint8(8), codes)


def fp4_decode(xp: Any, codes: Any) -> Any:
    """float32 values of E2M1 codes."""
    table = xp.asarray([*FP4_VALUES, *[-v for v in FP4_VALUES]], dtype=xp.float32)
    return table[codes]


def fp8_encode(xp: Any, values: Any) -> Any:
    """E4M3 codes of float32 values, rounded to nearest even and clipped to 448; NaN stays NaN."""
    magnitude = xp.minimum(xp.abs(values), xp.float32(FP8_MAX))
    magnitude = xp.where(xp.isnan(values), xp.float32(0), magnitude)
    exponent = xp.where(magnitude > 0, xp.frexp(magnitude)[1] - 1, FP8_EXPONENT_MIN)
    exponent = xp.maximum(exponent, FP8_EXPONENT_MIN)
    units = xp.rint(xp.ldexp(magnitude, FP8_MANTISSA_BITS - exponent)).astype(xp.int32)
    # a rounded-up mantissa carries into the exponent by itself
    codes = ((exponent - FP8_EXPONENT_MIN) << FP8_MANTISSA_BITS) + units
    codes = xp.where(xp.isnan(values), FP8_NAN, codes).astype(xp.uint8)
    return codes | (xp.signbit(values).astype(xp.uint8) << xp.uint8(7))


def fp8_decode(xp: Any, codes: Any) -> Any:
    """float32 values of E4M3 codes."""
    magnitude = (codes & xp.uint8(0x7F)).astype(xp.int32)
    exponent = magnitude >> FP8_MANTISSA_BITS
    mantissa = magnitude & ((1 << FP8_MANTISSA_BITS) - 1)
    units = xp.where(exponent > 0, mantissa + (1 << FP8_MANTISSA_BITS), mantissa).astype(xp.float32)
    value = xp.ldexp(units, xp.maximum(exponent, 1) - 1 + FP8_EXPONENT_MIN - FP8_MANTISSA_BITS)
    value = xp.where(magnitude == FP8_NAN, xp.float32("nan"), value)
    return xp.where(codes >= 128, -value, value).astype(xp.float32)


def e8m0_encode(xp: Any, values: Any) -> Any:
    """Codes of the smallest powers of two that are not below positive float32 values, clipped to the format; 0 becomes
    1.0.
    """
    with_value = xp.where(values > 0, values, xp.float32(1))
    exponent = xp.ceil(xp.log2(with_value))
    exponent = xp.where(xp.isnan(exponent), xp.float32(0), exponent)
    codes = xp.clip(exponent, -E8M0_BIAS, E8M0_BIAS) + xp.float32(E8M0_BIAS)
    return xp.where(xp.isnan(values), xp.float32(E8M0_NAN), codes).astype(xp.uint8)


def e8m0_decode(xp: Any, codes: Any) -> Any:
    """float32 powers of two of E8M0 codes."""
    value = xp.ldexp(xp.float32(1), codes.astype(xp.int32) - E8M0_BIAS)
    return xp.where(codes == E8M0_NAN, xp.float32("nan"), value).astype(xp.float32)


def rounded(xp: Any, values: Any, half: str) -> Any:
    """float32 values rounded to a half-precision type ("float16" or "bfloat16"), still as float32; "" leaves them."""
    if half == "float16":
        return values.astype(xp.float16).astype(xp.float32)
    if half == "bfloat16":
        bits = xp.ascontiguousarray(values, dtype=xp.float32).view(xp.uint32)
        even = (bits >> xp.uint32(16)) & xp.uint32(1)
        return ((bits + xp.uint32(0x7FFF) + even) & xp.uint32(0xFFFF0000)).view(xp.float32)
    return values
