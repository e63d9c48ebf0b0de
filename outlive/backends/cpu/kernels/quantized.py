"""Products of a few rows with affine-quantized weights: x @ w^T, w read once for all rows of a block.

Weights: 32-bit words, element i of a word at bits [bits * i, bits * i + bits); value = scale * q + bias, a scale
and a bias a group. A chunk is 16 words; lane l of every vector holds elements of word l, so one vector never mixes
two words.

Order class `q_planes` (512-bit integer dot products): each group of x becomes 24-bit fixed point relative to the
group's largest exponent, exact for every element whose lowest bit is not below 2^-22 (8-bit weights: 2^-21) of
that exponent's power, and otherwise off by at most half of that. Its three bytes are multiplied with the weights'
bytes in integers; a lane's sum over its word is an exact integer, converted once, and multiplied by scale * 2^e
into a float32 sum a lane. The bias enters with the exact sum of the group. Lanes are added by halves at the end.
Rows that hold infinities, NaN or a group whose largest element lies outside [2^-100, 2^100) take the float order
instead: it depends on the row alone.

Order class `q_float`: w = fma(scale, q, bias) in float32, lane sums of fma(w, x), lanes added by halves.
"""

from __future__ import annotations

from typing import NamedTuple

from llvmlite import ir

from outlive.backends.cpu.abi import SHARE_PER_THREAD, CpuKernel, Selection
from outlive.backends.cpu.features import features
from outlive.backends.cpu.kernels import library
from outlive.backends.cpu.kernels.emit import (
    F32,
    FLOAT,
    I8,
    I32,
    LANES,
    STORAGES,
    Emitter,
    Storage,
    Value,
    Variable,
    deinterleave,
    vector,
)

BITS, GROUPS = (2, 4, 8), (32, 64, 128)
_INT32, _UINT8 = STORAGES["int32"], STORAGES["uint8"]
_SCRATCH_BYTES = 1 << 20
_PLANES = 3
ROWS_FEW = 16
_PART_WORK = 1 << 16  # weights times rows that make a share worth its cost


class Geometry:
    """Sizes that follow from bits and group: per_word elements of a word, chunk elements of 16 words, subplanes
    elements of a byte, fixed_bits the exponent of x's largest fixed-point number.
    """

    def __init__(self, bits: int, group: int) -> None:
        self.bits, self.group = bits, group
        self.per_word = 32 // bits
        self.chunk = LANES * self.per_word
        self.subplanes = 8 // bits
        # 8-bit weights fill an unsigned byte, so there x's digits are all signed, and the highest must not reach 128
        self.fixed_bits = 22 if bits < 8 else 21

    def lane_groups(self) -> list[int]:
        """Which of a chunk's groups each lane belongs to."""
        return [lane * self.per_word // self.group for lane in range(LANES)]


class Operands:
    """Pointers and sizes of the product, common to both orders."""

    def __init__(self, k: Emitter, g: Geometry, x: Storage, scale: Storage) -> None:
        self.g, self.x_type, self.scale_type = g, x, scale
        self.x, self.w, self.scales, self.biases, self.out = (k.pointer(i) for i in range(5))
        self.rows, self.columns, self.depth, self.pass_rows = (k.integer(5 + i) for i in range(4))
        self.words = self.depth // g.per_word
        self.groups = self.depth // g.group
        self.chunks = (self.depth + (g.chunk - 1)) // g.chunk
        self.padded = self.chunks * g.chunk


# -- the float order ------------------------------------------------------------------------------------------------
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


def _write_float(k: Emitter, g: Geometry, x: Storage, scale: Storage) -> None:
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

        _row_blocks(k, first, last, (4, 1), block)


def _row_blocks(k: Emitter, first: Value, last: Value, sizes: tuple[int, ...], block) -> None:
    """Calls `block(row, size)` in loops that cover [first, last), largest blocks first."""
    start = first
    for size in sizes:
        whole = start + (last - start) // size * size
        with k.loop(start, whole, size) as row:
            block(row, size)
        start = whole


# -- the integer order ----------------------------------------------------------------------------------------------
class Planes:
    """Where a row's prepared x lies in the scratch memory.

    A chunk has `subplanes` x 3 vectors of 64 bytes, highest byte plane first; then come a float32 scale and a
    float32 sum a group, both padded to 16 groups; `fixed` is one row's fixed-point numbers before they are cut
    into bytes.
    """

    def __init__(self, k: Emitter, o: Operands) -> None:
        self.k, self.o = k, o
        self.chunk_bytes = 64 * _PLANES * o.g.subplanes
        self.groups_padded = (o.groups + (LANES - 1)) // LANES * LANES
        self.scales_at = o.chunks * self.chunk_bytes
        self.sums_at = self.scales_at + self.groups_padded * 4
        self.flag_at = self.sums_at + self.groups_padded * 4
        self.row_bytes = self.flag_at + 64
        self.fixed = k.scratch(o.padded * 4)
        self.base = k.scratch(self.row_bytes * o.pass_rows)

    def row(self, index: Value) -> Value:
        return self.k.address(self.base, index * self.row_bytes)


class PreparedGroup(NamedTuple):
    """A group of x in fixed point: the value of its unit, the sum of its numbers, and whether it needs the float
    order.
    """

    unit: Value
    total: Value
    outside: Value


def prepare_group(k: Emitter, o: Operands, fixed_at: Value, row: Value, group: Value) -> PreparedGroup:
    """Writes the fixed-point numbers of one group of a row to its place in `fixed_at`."""
    first = group * o.g.group
    values = [k.load(o.x, row * o.depth + first + n, o.x_type, LANES) for n in range(0, o.g.group, LANES)]
    sizes = [v.bitcast(I32) & 0x7FFFFFFF for v in values]
    largest = sizes[0]
    for size in sizes[1:]:
        largest = k.maximum(largest, size)
    largest = k.reduce(largest, "maximum")
    exponent = largest >> 23
    outside = (exponent >= 227) | ((exponent < 27) & largest.differs(0))
    exponent = k.select(outside | largest.equals(0), exponent.like(127), exponent)
    shift = ((254 + o.g.fixed_bits - exponent) << 23).bitcast(FLOAT)
    limit = (2 << o.g.fixed_bits) - 1
    total = k.constant(0, vector(I32, LANES))
    for n, value in enumerate(values):
        scaled = k.select(outside, 0.0, k.intrinsic("rint", value * shift))
        fixed = k.maximum(k.minimum(scaled.convert(I32), limit), -limit)
        total = total + fixed
        k.store(fixed_at, first + n * LANES, fixed, _INT32)
    unit = ((exponent - o.g.fixed_bits) << 23).bitcast(FLOAT)
    return PreparedGroup(unit, k.reduce(total).convert(FLOAT) * unit, outside)


def digits(k: Emitter, g: Geometry, fixed: Value) -> list[Value]:
    """The three bytes of each number, highest first. Where weights fit a signed byte the lower two are unsigned, the
    plain bytes; 8-bit weights do not, so there every digit is signed.
    """
    if g.bits < 8:
        return [fixed >> 16, fixed >> 8, fixed]
    low = fixed.convert(I8).convert(I32)
    rest = Value(k, k.b.ashr((fixed - low).ir, k.constant(8, fixed.type).ir))
    middle = rest.convert(I8).convert(I32)
    return [Value(k, k.b.ashr((rest - middle).ir, k.constant(8, fixed.type).ir)), middle, low]


def _prepare_planes(k: Emitter, o: Operands, p: Planes, row: Value, place: Value) -> None:
    """All that the integer order needs of one row of x."""
    flag = k.variable(k.constant(0, I32))
    zero_float, zero_int = k.constant(0.0, vector(FLOAT, LANES)), k.constant(0, vector(I32, LANES))
    for at in (p.scales_at, p.sums_at):
        k.store(k.address(place, at), p.groups_padded - LANES, zero_float, F32)
    with k.loop(0, o.g.chunk, LANES) as n:
        k.store(p.fixed, o.padded - o.g.chunk + n, zero_int, _INT32)
    with k.loop(0, o.groups) as group:
        prepared = prepare_group(k, o, p.fixed, row, group)
        flag.set(flag.get() | prepared.outside.convert(I32, signed=False))
        k.store(k.address(place, p.scales_at), group, prepared.unit, F32)
        k.store(k.address(place, p.sums_at), group, prepared.total, F32)
    k.store(k.address(place, p.flag_at), 0, flag.get(), _INT32)
    unit = LANES * o.g.subplanes
    with k.loop(0, o.padded // unit) as step:
        vectors = [k.load(p.fixed, step * unit + n * LANES, _INT32, LANES) for n in range(o.g.subplanes)]
        target = step // 4 * p.chunk_bytes + step % 4 * LANES
        for s, values in enumerate(deinterleave(vectors)):
            for n, digit in enumerate(digits(k, o.g, values)):
                k.store(place, target + 64 * (n * o.g.subplanes + s), digit.convert(I8), _UINT8)


def _dot(k: Emitter, total: Value, unsigned: Value, signed: Value) -> Value:
    """total + the sums of four neighbouring products of bytes, a lane each."""
    kind = vector(I8, 64)
    return k.call(
        "llvm.x86.avx512.vpdpbusd.512",
        total.type,
        [total, *(v if v.type == kind else v.bitcast(I8) for v in (unsigned, signed))],
    )


def _word_sums(k: Emitter, g: Geometry, planes: Value, subplanes: list[Value]) -> Value:
    """For each word of a chunk the sum of q * x over its elements, as float32; `planes` points at the chunk's bytes."""
    zero = k.constant(0, vector(I32, LANES))

    def plane(n: int, start: Value) -> Value:
        for s, q in enumerate(subplanes):
            digits = k.load(planes, 64 * (n * g.subplanes + s), _UINT8, 64)
            start = _dot(k, start, q, digits) if n == 0 or g.bits == 8 else _dot(k, start, digits, q)
        return start

    if g.bits < 8:
        return plane(2, plane(1, plane(0, zero) << 8) << 8).convert(FLOAT)
    high, middle, low = (plane(n, zero).convert(FLOAT) for n in range(_PLANES))
    return k.fma(high, 65536.0, k.fma(middle, 256.0, low))


def _permute(k: Emitter, values: Value, lanes: Value) -> Value:
    return k.call("llvm.x86.avx512.permvar.sf.512", values.type, [values, lanes])


def _planes_block(
    k: Emitter, o: Operands, p: Planes, columns: list[Value], rows: list[Value], places: list[Value]
) -> None:
    """The products of a few columns and rows, kept in registers."""
    g = o.g
    zero = k.constant(0.0, vector(FLOAT, LANES))
    sums: list[list[Variable]] = [[k.variable(zero) for _ in rows] for _ in columns]
    chunks_per_block = LANES * g.group // g.chunk
    with k.loop(0, (o.groups + (LANES - 1)) // LANES) as block:
        mask = k.first_lanes(o.groups - block * LANES)
        factors = []
        for column, totals in zip(columns, sums, strict=True):
            at = column * o.groups + block * LANES
            scale = k.load(o.scales, at, o.scale_type, LANES, mask)
            bias = k.load(o.biases, at, o.scale_type, LANES, mask)
            factors.append([])
            for place, total in zip(places, totals, strict=True):
                unit = k.load(k.address(place, p.scales_at), block * LANES, F32, LANES)
                group_sum = k.load(k.address(place, p.sums_at), block * LANES, F32, LANES)
                factors[-1].append(scale * unit)
                total.set(k.fma(bias, group_sum, total.get()))
        first = block * chunks_per_block
        with k.loop(first, k.minimum(first + chunks_per_block, o.chunks)) as chunk:
            lanes = k.lanes_constant([lane * g.per_word for lane in range(LANES)])
            lanes = (lanes + k.splat(((chunk - first) * g.chunk).convert(I32), LANES)) >> (g.group.bit_length() - 1)
            present = k.first_lanes(o.words - chunk * LANES)
            for column, totals, scaled in zip(columns, sums, factors, strict=True):
                packed = k.load(o.w, column * o.words + chunk * LANES, _INT32, LANES, present)
                byte_mask = 0x01010101 * ((1 << g.bits) - 1)
                q = [
                    (packed >> (g.bits * s)) & (byte_mask - (1 << 32) if byte_mask >> 31 else byte_mask)
                    for s in range(g.subplanes)
                ]
                for place, total, factor in zip(places, totals, scaled, strict=True):
                    word = _word_sums(k, g, k.address(place, chunk * p.chunk_bytes), q)
                    total.set(k.fma(word, _permute(k, factor, lanes), total.get()))
    for column, totals in zip(columns, sums, strict=True):
        for row, total in zip(rows, totals, strict=True):
            k.store(o.out, row * o.columns + column, k.reduce(total.get()), o.x_type)


def _write_planes(k: Emitter, g: Geometry, x: Storage, scale: Storage) -> None:
    o = Operands(k, g, x, scale)
    p = Planes(k, o)
    low, high = k.share(o.columns, 4)
    with k.loop(0, o.rows, o.pass_rows) as first:
        last = k.minimum(first + o.pass_rows, o.rows)
        with k.loop(first, last) as row:
            _prepare_planes(k, o, p, row, p.row(row - first))

        def column_block(column: Value, width: int, row_sizes: tuple[int, ...]) -> None:
            def row_block(row: Value, height: int) -> None:
                rows = [row + n for n in range(height)]
                _planes_block(k, o, p, [column + n for n in range(width)], rows, [p.row(r - first) for r in rows])

            _row_blocks(k, first, last, row_sizes, row_block)

        whole = low + (high - low) // 4 * 4
        with k.loop(low, whole, 4) as column:
            column_block(column, 4, (2, 1))
        with k.loop(whole, high) as column:
            column_block(column, 1, (1,))
        with k.loop(first, last) as row:
            flagged = k.load(k.address(p.row(row - first), p.flag_at), 0, _INT32)
            with k.when(flagged.differs(0)):
                prepare_float(k, o, row, p.fixed)
                float_columns(k, o, [p.fixed], [row], low, high)


# -- routes ---------------------------------------------------------------------------------------------------------
def _kernel(bits: int, group: int, x: Storage, scale: Storage, rows: int) -> CpuKernel:
    from outlive.backends.cpu.kernels.quantized_tiles import write_tiles

    g = Geometry(bits, group)
    kind, write = ("q_planes", _write_planes) if features().vnni else ("q_float", _write_float)
    if rows > ROWS_FEW and features().amx and group >= LANES * g.subplanes:
        kind, write = "q_tiles", write_tiles
    return library.compiled(
        f"{kind}_{bits}b{group}_{x.name}_{scale.name}", lambda k: write(k, g, x, scale), f"{kind}_{bits}b{group}"
    )


def affine(reads: list, params: object) -> tuple[int, int, Storage, Storage] | None:
    """(bits, group, x's type, scales' type) of a product that these kernels can read, else None."""
    x, w, scales = (r.layout for r in reads[:3])
    biases = reads[3].layout if len(reads) > 3 and reads[3] is not None else None
    bits, group = params.bits, params.group_size
    if params.mode != "affine" or bits not in BITS or group not in GROUPS or biases is None:
        return None
    x_type, scale_type = STORAGES.get(x.dtype.name), STORAGES.get(scales.dtype.name)
    if x_type is None or scale_type is None or x_type.compute != FLOAT or scale_type.compute != FLOAT:
        return None
    if biases.dtype.name != scales.dtype.name or not all(a.contiguous for a in (x, w, scales, biases)):
        return None
    return bits, group, x_type, scale_type


def _select_product(reads: list, writes: list, params: object) -> Selection | None:
    known = affine(reads, params)
    x, w, out = reads[0].layout, reads[1].layout, writes[0].layout
    if known is None or not params.transpose or len(w.shape) != 2 or not out.contiguous or not x.shape:
        return None
    depth, columns = x.shape[-1], w.shape[0]
    if depth == 0 or out.dtype.name != x.dtype.name:
        return None
    rows = x.size // depth
    kernel = _kernel(*known, rows)
    parts = rows * columns * depth // _PART_WORK
    if kernel.order_class.startswith("q_tiles"):
        from outlive.backends.cpu.kernels.quantized_tiles import pass_rows as tile_pass_rows

        pass_rows, parts = tile_pass_rows(rows, depth), min(parts, -(-rows // 16))
    else:
        pass_rows, parts = max(1, min(rows, _SCRATCH_BYTES // (4 * depth))), min(parts, columns // 4)
    return kernel, (SHARE_PER_THREAD | parts if parts > 1 else 0), (rows, columns, depth, pass_rows)


ROUTES = {"quantized_matmul": _select_product}
