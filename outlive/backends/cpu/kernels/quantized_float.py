"""Affine-quantized weights made float32 on the way: what every processor can do, and what extreme rows of x need.

Weights: 32-bit words, element i of a word at bits [bits * i, bits * i + bits), N rows of K elements; value = scale
* q + bias, a scale and a bias a group. A chunk is 16 words; lane l of every vector holds elements of word l.

Order class `q_float`: w = fma(scale, q, bias) in float32, lane sums of fma(w, x), lanes added by halves.
"""

from __future__ import annotations

from llvmlite import ir

from outlive.backends.cpu.kernels.emit import (
    F32,
    FLOAT,
    I32,
    LANES,
    STORAGES,
    Emitter,
    Storage,
    Value,
    deinterleave,
    row_blocks,
    vector,
)

BITS, GROUPS = (2, 4, 8), (32, 64, 128)
_INT32 = STORAGES["int32"]


class Geometry:
    """Sizes that follow from bits and group: per_word elements of a word, chunk elements of 16 words, subplanes
    elements of a byte, byte_mask an element's bits in each byte of a 32-bit number, fixed_bits the exponent of x's
    largest fixed-point number. mode: affine, or one whose codes are E2M1 (quantized_fp4.py), without biases.
    """

    def __init__(self, bits: int, group: int, mode: str = "affine") -> None:
        self.bits, self.group, self.mode = bits, group, mode
        self.per_word = 32 // bits
        self.chunk = LANES * self.per_word
        self.subplanes = 8 // bits
        mask = 0x01010101 * ((1 << bits) - 1)
        self.byte_mask = mask - (1 << 32) if mask >> 31 else mask
        # 8-bit weights fill an unsigned byte, so there x's digits are all signed, and the highest must not reach 128
        self.fixed_bits = 22 if bits < 8 else 21

    @property
    def affine(self) -> bool:
        return self.mode == "affine"

    def lane_groups(self) -> list[int]:
        """Which of a chunk's groups each lane belongs to."""
        return [lane * self.per_word // self.group for lane in range(LANES)]


class Operands:
    """Pointers and sizes of the product, common to both orders."""

    def __init__(self, k: Emitter, g: Geometry, x: Storage, scale: Storage) -> None:
        self.g, self.x_type, self.scale_type = g, x, scale
        self.pointers = 5 if g.affine else 4
        pointers = [k.pointer(i) for i in range(self.pointers)]
        self.x, self.w, self.scales = pointers[:3]
        self.biases, self.out = pointers[-2:]  # biases: of affine weights alone
        self.rows, self.columns, self.depth, self.pass_rows = (k.integer(self.pointers + i) for i in range(4))
        self.words = self.depth // g.per_word
        self.groups = self.depth // g.group
        self.chunks = (self.depth + (g.chunk - 1)) // g.chunk
        self.padded = self.chunks * g.chunk


def prepare_float(k: Emitter, o: Operands, row: Value, target: Value) -> None:
    """x of one row as float32, element j of word l of a chunk at j * 16 + l; zeros beyond the depth."""
    with k.loop(0, o.chunks) as chunk:
        first = chunk * o.g.chunk
        parts = []
        for j in range(o.g.per_word):
            left = o.depth - (first + j * LANES)
            parts.append(k.load(o.x, row * o.depth + first + j * LANES, o.x_type, LANES, k.first_lanes(left)))
        for j, values in enumerate(deinterleave(parts)):
            k.store(target, first + j * LANES, values, F32)


def _lane_parameters(k: Emitter, o: Operands, base: Value, column: Value, chunk: Value) -> Value:
    """A chunk's scales (or biases) of one column, each in the lanes of its group."""
    lanes = o.g.lane_groups()
    result = k.constant(0.0, vector(FLOAT, LANES))
    first = chunk * o.g.chunk // o.g.group
    for n in range(max(lanes) + 1):
        index = column * o.groups + k.minimum(first + n, o.groups - 1)
        scalar = k.load(base, index, o.scale_type)
        result = Value(k, k.b.insert_element(result.ir, scalar.ir, ir.Constant(I32, n)))
    return result.shuffle(lanes)


def float_columns(k: Emitter, o: Operands, xs: list[Value], rows: list[Value], low: Value, high: Value) -> None:
    """Columns [low, high) of `rows`, whose prepared x is at `xs`."""
    with k.loop(low, high) as column:
        sums = [k.variable(k.constant(0.0, vector(FLOAT, LANES))) for _ in rows]
        with k.loop(0, o.chunks) as chunk:
            mask = k.first_lanes(o.words - chunk * LANES)
            packed = k.load(o.w, column * o.words + chunk * LANES, _INT32, LANES, mask)
            scale = _lane_parameters(k, o, o.scales, column, chunk)
            bias = _lane_parameters(k, o, o.biases, column, chunk)
            for j in range(o.g.per_word):
                q = (packed >> (o.g.bits * j)) & ((1 << o.g.bits) - 1)
                weight = k.fma(scale, q.convert(FLOAT), bias)
                # x is zero past the depth, but a weight may be infinite: such lanes must add nothing
                weight = k.select(mask, weight, 0.0)
                for x, total in zip(xs, sums, strict=True):
                    total.set(k.fma(weight, k.load(x, chunk * o.g.chunk + j * LANES, F32, LANES), total.get()))
        for row, total in zip(rows, sums, strict=True):
            k.store(o.out, row * o.columns + column, k.reduce(total.get()), o.x_type)


def write_float(k: Emitter, g: Geometry, x: Storage, scale: Storage) -> None:
    o = Operands(k, g, x, scale)
    low, high = k.share(o.columns)
    scratch = k.scratch(o.padded * 4 * o.pass_rows)
    with k.loop(0, o.rows, o.pass_rows) as first:
        last = k.minimum(first + o.pass_rows, o.rows)
        with k.loop(first, last) as row:
            prepare_float(k, o, row, k.address(scratch, (row - first) * o.padded, 4))

        def block(row: Value, count: int) -> None:
            xs = [k.address(scratch, (row + n - first) * o.padded, 4) for n in range(count)]
            float_columns(k, o, xs, [row + n for n in range(count)], low, high)

        row_blocks(k, first, last, (4, 1), block)
