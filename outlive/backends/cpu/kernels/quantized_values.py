"""Codes of every quantized format as float32 values, 16 neighbouring elements of a row at a time.

A row of weights is a stream of codes of `bits` bits, lowest bits first, in little-endian 32-bit words; groups of
`group` codes share a scale. Affine: scale * q + bias, rounded once. mxfp4, mxfp8: E2M1 and E4M3 values times a power of
two (E8M0). nvfp4: E2M1 values times an E4M3 scale. (OCP Microscaling Formats Specification 1.0.)
"""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir

from outlive.backends.cpu.features import features
from outlive.backends.cpu.kernels.emit import (
    FLOAT,
    HALF,
    I16,
    I32,
    LANES,
    STORAGES,
    Emitter,
    Storage,
    Value,
    vector,
)

FP4_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_AFFINE_BITS, _AFFINE_GROUPS = (1, 2, 3, 4, 5, 6, 8), (32, 64, 128)
_MICRO = {"mxfp4": (4, 32), "mxfp8": (8, 32), "nvfp4": (4, 16)}
_UINT8 = STORAGES["uint8"]
_NAN = 0x7FC00000


class Format(NamedTuple):
    """A quantized format: mode, bits of a code, codes of a group, and how scales (and biases) lie in memory."""

    mode: str
    bits: int
    group: int
    scale: Storage

    @property
    def biased(self) -> bool:
        return self.mode == "affine"

    @property
    def label(self) -> str:
        """The format in words that name a kernel."""
        return f"{self.mode}{self.bits}b{self.group}_{self.scale.name}"


def format_of(reads: list, params: Any) -> Format | None:
    """The format of the weights of a product (x, words, scales, and biases in affine mode), where they are contiguous
    and of a kind that `values` reads; else None.
    """
    weights = [r.layout for r in reads[1 : 4 if params.mode == "affine" else 3] if r is not None]
    if len(weights) < (3 if params.mode == "affine" else 2) or not all(a.contiguous for a in weights):
        return None
    scale = STORAGES.get(weights[1].dtype.name)
    if scale is None or weights[-1].dtype.name != weights[1].dtype.name:
        return None
    if params.mode == "affine":
        if params.bits not in _AFFINE_BITS or params.group_size not in _AFFINE_GROUPS or scale.compute != FLOAT:
            return None
    elif _MICRO.get(params.mode) != (params.bits, params.group_size) or scale is not _UINT8:
        return None
    return Format(params.mode, params.bits, params.group_size, scale)


def _codes(k: Emitter, bits: int, words: Value, first_byte: Value) -> Value:
    """16 codes from a byte on, as integers of 32 bits, or of 8; no byte past the last code is read."""
    if bits == 8:
        return k.load(words, first_byte, _UINT8, LANES)
    size = 2 * bits
    held = k.load(k.address(words, first_byte), 0, _UINT8, size)
    # each lane sees the two bytes that its code lies in
    windows = [byte for lane in range(LANES) for byte in (lane * bits // 8, min(lane * bits // 8 + 1, size - 1))]
    wide = held.shuffle(windows).bitcast(I16).convert(I32, signed=False)
    shifts = k.lanes_constant([lane * bits % 8 for lane in range(LANES)])
    return (wide >> shifts) & ((1 << bits) - 1)


def _fp4(k: Emitter, codes: Value) -> Value:
    """E2M1 codes as float32."""
    if features().avx512:
        table = [*FP4_VALUES, *(-v for v in FP4_VALUES)]
        entries = Value(k, ir.Constant(vector(FLOAT, LANES), table))
        return k.call("llvm.x86.avx512.permvar.sf.512", entries.type, [entries, codes])
    exponent, fraction = (codes >> 1) & 3, codes & 1
    normal = exponent.differs(0)
    twice = k.select(normal, fraction + 2, fraction) << k.select(normal, exponent - 1, exponent)
    return ((twice.convert(FLOAT) * 0.5).bitcast(I32) | ((codes & 8) << 28)).bitcast(FLOAT)


def fp8(k: Emitter, codes: Value) -> Value:
    """E4M3 codes (integers) as float32: their bits are those of a half 2^8 times smaller, save NaN."""
    codes = codes.convert(I16, signed=False)
    magnitude = codes & 0x7F
    half = ((magnitude << 7) | ((codes & 0x80) << 8)).bitcast(HALF)
    value = Value(k, k.b.fpext(half.ir, vector(FLOAT, codes.lanes))) * 256.0
    return k.select(magnitude.equals(0x7F), float("nan"), value)


def power_of_two(k: Emitter, code: Value) -> Value:
    """An E8M0 code (a 32-bit integer) as float32; 0 is 2^-127, which is subnormal, and 255 is NaN."""
    bits = k.select(code.equals(0), 0x00400000, code << 23)
    return k.select(code.equals(255), k.constant(_NAN, code.type), bits).bitcast(FLOAT)


def group_scale(k: Emitter, f: Format, scales: Value, index: Value) -> Value:
    """The scale of a group, in every lane."""
    if f.biased:
        return k.splat(k.load(scales, index, f.scale), LANES)
    code = k.load(scales, index, f.scale).convert(I32, signed=False)
    return k.splat(fp8(k, code) if f.mode == "nvfp4" else power_of_two(k, code), LANES)


def group_values(k: Emitter, f: Format, words: Value, scales: Value, biases: Value | None, group: Value) -> list[Value]:
    """The values of a group, counted from the first of the matrix: vectors of 16 neighbours."""
    scale = group_scale(k, f, scales, group)
    bias = None if biases is None else k.splat(k.load(biases, group, f.scale), LANES)
    made = []
    for n in range(0, f.group, LANES):
        codes = _codes(k, f.bits, words, group * (f.group * f.bits // 8) + n * f.bits // 8)
        if bias is not None:
            made.append(k.fma(scale, codes.convert(I32, signed=False).convert(FLOAT), bias))
        else:
            made.append((fp8(k, codes) if f.mode == "mxfp8" else _fp4(k, codes)) * scale)
    return made
