"""Products of a few rows on integer dot products of vectors (VNNI, or AVX2's pairwise products), order class
`q_groups`.

A chunk is 16 words of weights, so a lane of a dot product is the sum over one word; the lanes of a group are added in
integers by a tree over the chunks of 16 groups, whose result has a lane a group.
"""

from __future__ import annotations

from outlive.backends.cpu.features import features
from outlive.backends.cpu.kernels.emit import (
    F32,
    FLOAT,
    I8,
    I16,
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
from outlive.backends.cpu.kernels.quantized_fixed import PLANES, digits, extreme_row, prepare_group, whole_sum
from outlive.backends.cpu.kernels.quantized_float import Geometry, Operands
from outlive.backends.cpu.kernels.quantized_fp4 import OFFSET, half_scale, twice

_INT32, _UINT8 = STORAGES["int32"], STORAGES["uint8"]
_AHEAD_WORDS = 1024  # weights stream: the next columns' lines are asked for 4 KB ahead
_EVENS, _ODDS = list(range(0, 2 * LANES, 2)), list(range(1, 2 * LANES, 2))


class _Planes:
    """Where a row's prepared x lies in the scratch memory.

    A chunk has `subplanes` x 3 vectors of 64 bytes, highest byte plane first; then come a float32 unit and a
    float32 sum a group, both padded to 16 groups (without biases, what the offset of the weights added to the sums of
    the highest plane, an integer, takes the sum's place). block: chunks of 16 groups. fixed: one row's fixed-point numbers
    before they are cut into bytes.
    """

    def __init__(self, k: Emitter, o: Operands) -> None:
        self.k = k
        self.block = LANES * o.g.group // o.g.chunk
        self.chunk_bytes = 64 * PLANES * o.g.subplanes
        self.groups_padded = (o.groups + (LANES - 1)) // LANES * LANES
        self.units_at = o.chunks * self.chunk_bytes
        self.sums_at = self.units_at + self.groups_padded * 4
        self.flag_at = self.sums_at + self.groups_padded * 4
        self.row_bytes = self.flag_at + 64
        self.fixed = k.scratch(o.padded * 4)
        self.base = k.scratch(self.row_bytes * o.pass_rows)

    def row(self, index: Value) -> Value:
        return self.k.address(self.base, index * self.row_bytes)


def _prepare_row(k: Emitter, o: Operands, p: _Planes, row: Value, place: Value) -> None:
    """All that the integer order needs of one row of x."""
    flag = k.variable(k.constant(0, I32))
    zero_float, zero_int = k.constant(0.0, vector(FLOAT, LANES)), k.constant(0, vector(I32, LANES))
    for at in (p.units_at, p.sums_at):
        k.store(k.address(place, at), p.groups_padded - LANES, zero_float, F32)
    with k.loop(0, o.g.chunk, LANES) as place_of_zeros:
        k.store(p.fixed, o.padded - o.g.chunk + place_of_zeros, zero_int, _INT32)
    with k.loop(0, o.groups) as group:
        prepared = prepare_group(k, o, p.fixed, row, group)
        flag.set(flag.get() | prepared.outside.convert(I32, signed=False))
        k.store(k.address(place, p.units_at), group, prepared.unit, F32)
        if o.g.affine:
            k.store(k.address(place, p.sums_at), group, prepared.total, F32)
        else:
            k.store(k.address(place, p.sums_at), group, prepared.high * OFFSET, _INT32)
    k.store(k.address(place, p.flag_at), 0, flag.get(), _INT32)
    unit = LANES * o.g.subplanes
    with k.loop(0, o.padded // unit) as step:
        vectors = [k.load(p.fixed, step * unit + n * LANES, _INT32, LANES) for n in range(o.g.subplanes)]
        target = step // 4 * p.chunk_bytes + step % 4 * LANES
        for s, values in enumerate(deinterleave(vectors)):
            for n, digit in enumerate(digits(k, o.g, values)):
                k.store(place, target + 64 * (n * o.g.subplanes + s), digit.convert(I8), _UINT8)


def _halves(value: Value) -> list[Value]:
    """64 bytes as two vectors of 32."""
    wide = value if value.element == I8 else value.bitcast(I8)
    return [wide.shuffle(list(range(32))), wide.shuffle(list(range(32, 64)))]


def _pair_sums(k: Emitter, pairs: list[tuple[Value, Value]]) -> Value:
    """Sums of four neighbouring products of (unsigned, signed) bytes over all pairs, a 32-bit lane each, on 256-bit
    registers.

    The 16-bit sums on the way stay exact: weights here are below 16, so a pair of products is below 2 * 15 * 256,
    and at most four pairs are added.
    """
    kind = vector(I16, 16)
    halves = []
    for half in range(2):
        total = k.constant(0, kind)
        for unsigned, signed in pairs:
            operands = [_halves(unsigned)[half], _halves(signed)[half]]
            total = total + k.call("llvm.x86.avx2.pmadd.ub.sw", kind, operands)
        ones = k.constant(1, kind)
        halves.append(k.call("llvm.x86.avx2.pmadd.wd", vector(I32, 8), [total, ones]))
    return halves[0].shuffle(list(range(16)), halves[1])


def _dot_sums(k: Emitter, g: Geometry, n: int, q: list[Value], x: list[Value], start: Value) -> Value:
    """For each word, start + the sum of q times x's plane n. Weights of 8 bits are unsigned beside signed digits;
    narrower ones fit a signed byte, so the lower planes may be the unsigned operand.
    """
    weights_unsigned = n == 0 or g.bits == 8
    if not features().vnni and g.bits == 8:
        low, high = q[0] & 0x0F0F0F0F, (q[0] >> 4) & 0x0F0F0F0F
        return start + (_pair_sums(k, [(high, x[0])]) << 4) + _pair_sums(k, [(low, x[0])])
    pairs = [(a, b) if weights_unsigned else (b, a) for a, b in zip(q, x, strict=True)]
    if not features().vnni:
        return start + _pair_sums(k, pairs)
    for pair in pairs:
        operands = [v if v.element == I8 else v.bitcast(I8) for v in pair]
        start = k.call("llvm.x86.avx512.vpdpbusd.512", start.type, [start, *operands])
    return start


def _weights(k: Emitter, g: Geometry, packed: Value) -> tuple[list[Value], list[Value]]:
    """The bytes of the weights, a vector a subplane: as the highest plane of x wants them, and as the others do."""
    q = [(packed >> (g.bits * s)) & g.byte_mask for s in range(g.subplanes)]
    if g.affine:
        return q, q
    return [twice(k, codes, OFFSET) for codes in q], [twice(k, codes) for codes in q]


def _chunk_sums(k: Emitter, g: Geometry, planes: Value, q: tuple[list[Value], list[Value]]) -> tuple[Value, Value]:
    """For each word of a chunk the sums of q times x's high plane, and times 256 * middle + low."""

    def plane(n: int, start: Value) -> Value:
        x = [k.load(planes, 64 * (n * g.subplanes + s), _UINT8, 64) for s in range(g.subplanes)]
        return _dot_sums(k, g, n, q[min(n, 1)], x, start)

    zero = k.constant(0, vector(I32, LANES))
    return plane(0, zero), plane(2, plane(1, zero) << 8)


def _add_neighbours(a: tuple[Value, Value], b: tuple[Value, Value]) -> tuple[Value, Value]:
    return tuple(x.shuffle(_EVENS, y) + x.shuffle(_ODDS, y) for x, y in zip(a, b, strict=True))  # type: ignore[return-value]


class _Column:
    """The products of one column with a few rows."""

    def __init__(self, k: Emitter, o: Operands, p: _Planes, column: Value, places: list[Value]) -> None:
        self.k, self.o, self.p, self.column, self.places = k, o, p, column, places
        self.totals = [k.variable(k.constant(0.0, vector(FLOAT, LANES))) for _ in places]

    def chunk(self, chunk: Value, mask: Value | None) -> list[tuple[Value, Value]]:
        """Word sums of one chunk with every row."""
        k, g = self.k, self.o.g
        at = self.column * self.o.words + chunk * LANES
        packed = k.load(self.o.w, at, _INT32, LANES, mask)
        k.prefetch(self.o.w, at + _AHEAD_WORDS, 4)
        q = _weights(k, g, packed)
        return [_chunk_sums(k, g, k.address(place, chunk * self.p.chunk_bytes), q) for place in self.places]

    def guarded_chunk(self, chunk: Value) -> list[tuple[Value, Value]]:
        """The same where the chunk may be cut or absent: then its sums are zero."""
        k = self.k
        zero = k.constant(0, vector(I32, LANES))
        found = [[k.variable(zero) for _ in range(2)] for _ in self.places]
        left = self.o.words - chunk * LANES
        with k.when(left > 0):
            for variables, sums in zip(found, self.chunk(chunk, k.first_lanes(left)), strict=True):
                for variable, value in zip(variables, sums, strict=True):
                    variable.set(value)
        return [(high.get(), rest.get()) for high, rest in found]

    def group_sums(self, first: Value, count: int, cut: bool) -> list[tuple[Value, Value]]:
        """Sums over words of `count` chunks from `first` on, joined by the tree."""
        if count == 1:
            return self.guarded_chunk(first) if cut else self.chunk(first, None)
        left = self.group_sums(first, count // 2, cut)
        right = self.group_sums(first + count // 2, count // 2, cut)
        if count == 2 and self.p.block > LANES:  # a group is two chunks: their lanes belong together
            return [(a[0] + b[0], a[1] + b[1]) for a, b in zip(left, right, strict=True)]
        return [_add_neighbours(a, b) for a, b in zip(left, right, strict=True)]

    def add_block(self, block: Value, cut: bool) -> None:
        """16 groups; with `cut`, those of them that exist."""
        k, o, p = self.k, self.o, self.p
        mask = k.first_lanes(o.groups - block * LANES) if cut else None
        at = self.column * o.groups + block * LANES
        scale = k.load(o.scales, at, o.scale_type, LANES, mask)
        if o.g.affine:
            bias = k.load(o.biases, at, o.scale_type, LANES, mask)
        else:
            scale = half_scale(k, o.g.mode, scale)
            scale = scale if mask is None else k.select(mask, scale, 0.0)
        sums = self.group_sums(block * p.block, p.block, cut)
        for place, total, (high, rest) in zip(self.places, self.totals, sums, strict=True):
            unit = k.load(k.address(place, p.units_at), block * LANES, F32, LANES)
            extra = k.load(k.address(place, p.sums_at), block * LANES, F32 if o.g.affine else _INT32, LANES)
            if o.g.affine:
                value = k.fma(bias, extra, total.get())
            else:
                value, high = total.get(), high - extra
            total.set(k.fma(whole_sum(k, high, rest), scale * unit, value))

    def write(self, rows: list[Value]) -> None:
        k, o = self.k, self.o
        whole = o.groups // LANES
        with k.loop(0, whole) as block:
            self.add_block(block, False)
        with k.when(whole * LANES < o.groups):
            self.add_block(whole, True)
        for row, total in zip(rows, self.totals, strict=True):
            k.store(o.out, row * o.columns + self.column, k.reduce(total.get()), o.x_type)


def write_planes(k: Emitter, g: Geometry, x: Storage, scale: Storage) -> None:
    o = Operands(k, g, x, scale)
    p = _Planes(k, o)
    low, high = k.share(o.columns)
    with k.loop(0, o.rows, o.pass_rows) as first:
        last = k.minimum(first + o.pass_rows, o.rows)
        with k.loop(first, last) as row:
            _prepare_row(k, o, p, row, p.row(row - first))
        with k.loop(low, high) as column:

            def block(row: Value, height: int, first: Value = first, column: Value = column) -> None:
                rows = [row + n for n in range(height)]
                _Column(k, o, p, column, [p.row(r - first) for r in rows]).write(rows)

            row_blocks(k, first, last, (2, 1), block)
        with k.loop(first, last) as row:
            flagged = k.load(k.address(p.row(row - first), p.flag_at), 0, _INT32)
            with k.when(flagged.differs(0)):
                extreme_row(k, o, p.fixed, row, low, high)
