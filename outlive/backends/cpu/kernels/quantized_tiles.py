"""Products of many rows on tile registers (AMX), order class `q_groups`.

For each group three tile products, one a byte plane of x, give exact integer sums. Weights are the left operand,
since their bytes lie row after row as a tile wants them; x is the right one, laid out once a share in quads of
elements. A share is a range of rows of x, or of columns where rows are few. Inside a group the elements are
ordered by subplane: first those in the lowest bits of each byte, then the next.
"""

from __future__ import annotations

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
    deinterleave,
    transposed,
    vector,
)
from outlive.backends.cpu.kernels.quantized_fixed import PLANES, digits, extreme_row, prepare_group, whole_sum
from outlive.backends.cpu.kernels.quantized_float import Geometry, Operands
from outlive.backends.cpu.kernels.quantized_fp4 import half_scale, twice
from outlive.backends.cpu.kernels.tiles import TILE, TILE_BYTES, configure, instruction

_INT32 = STORAGES["int32"]
_WEIGHTS, _X = 3, 4  # tile registers; 0 to 2 hold the sums of the planes, 4 to 6 the planes of x
SCRATCH_BYTES = 3 << 19
DEPTH_MAX = 1 << 14  # so that 16 rows of x and 16 columns of weights fit the stack with room to spare


class _Tiles:
    """Scratch memory of one share and the sizes of its pieces.

    step: bytes of a group that one tile takes; steps: tiles of a group. planes: x of up to `rows` rows, for each
    tile of 16 rows, each group, each plane, each step a block of step x 16 bytes. units, sums: a float32 a group
    and row, 16 rows together.
    """

    def __init__(self, k: Emitter, o: Operands) -> None:
        self.step = min(o.g.group, 64)
        self.steps = o.g.group // self.step
        self.plane_bytes = self.step * TILE * self.steps
        self.row_tiles = o.pass_rows // TILE
        self.tile_bytes = o.groups * (self.plane_bytes * PLANES)
        self.planes = k.scratch(self.row_tiles * self.tile_bytes)
        self.units = k.scratch(self.row_tiles * o.groups * (TILE * 4))
        self.sums = k.scratch(self.row_tiles * o.groups * (TILE * 4))
        self.flags = k.scratch(o.pass_rows * 4)
        self.weights = k.scratch(o.groups * (o.g.group * TILE))
        if not o.g.affine:
            self.scales = k.scratch(o.groups * (TILE * 4))
        self.fixed = k.scratch(o.padded * 4)
        self.products = k.scratch(k.constant(PLANES * TILE_BYTES))
        self.totals = k.scratch(k.constant(LANES * TILE_BYTES))


def _configure(k: Emitter, t: _Tiles) -> None:
    sums = dict.fromkeys(range(PLANES), (TILE, 64))
    planes = {_X + plane: (t.step // 4, 64) for plane in range(PLANES)}
    configure(k, {**sums, **planes, _WEIGHTS: (TILE, t.step)})


def _by_subplane(k: Emitter, o: Operands, t: _Tiles, first: Value) -> list[Value]:
    """Fixed-point numbers from one on, those of each subplane: 16 each, or what a group has."""
    if o.g.group < LANES * o.g.subplanes:
        values = k.load(t.fixed, first, _INT32, LANES)
        return [values.shuffle(list(range(s, LANES, o.g.subplanes))) for s in range(o.g.subplanes)]
    return deinterleave([k.load(t.fixed, first + n * LANES, _INT32, LANES) for n in range(o.g.subplanes)])


def _prepare_row(k: Emitter, o: Operands, t: _Tiles, row: Value, local: Value) -> None:
    """Byte planes, units and sums of one row of x, into column `local % 16` of its tile."""
    flag = k.variable(k.constant(0, I32))
    tile, lane = local // TILE, local % TILE
    with k.loop(0, o.groups) as group:
        prepared = prepare_group(k, o, t.fixed, row, group)
        flag.set(flag.get() | prepared.outside.convert(I32, signed=False))
        at = (tile * o.groups + group) * TILE + lane
        k.store(t.units, at, prepared.unit, F32)
        k.store(t.sums, at, prepared.total, F32)
        block = k.address(t.planes, tile * t.tile_bytes + group * (t.plane_bytes * PLANES) + lane * 4)
        subplane_bytes = o.g.group // o.g.subplanes
        for unit in range(0, o.g.group, LANES * o.g.subplanes):
            for s, values in enumerate(_by_subplane(k, o, t, group * o.g.group + unit)):
                first = s * subplane_bytes + unit // o.g.subplanes  # place in the group's order of bytes
                for plane, digit in enumerate(digits(k, o.g, values)):
                    quads = digit.convert(I8).bitcast(I32)
                    for n in range(values.lanes // 4):
                        k.store(block, (plane * t.plane_bytes + (first + 4 * n) * TILE) // 4, quads.lane(n), _INT32)
    k.store(t.flags, local, flag.get(), _INT32)


def _clear_row(k: Emitter, o: Operands, t: _Tiles, local: Value) -> None:
    """A row beyond the last: it adds nothing and is never written."""
    tile, lane = local // TILE, local % TILE
    with k.loop(0, o.groups) as group:
        at = (tile * o.groups + group) * TILE + lane
        k.store(t.units, at, k.constant(0.0, FLOAT), F32)
        k.store(t.sums, at, k.constant(0.0, FLOAT), F32)
        block = k.address(t.planes, tile * t.tile_bytes + group * (t.plane_bytes * PLANES) + lane * 4)
        for n in range(0, t.plane_bytes * PLANES // 4, TILE):
            k.store(block, n, k.constant(0, I32), _INT32)


def _unpack_weights(k: Emitter, o: Operands, t: _Tiles, first: Value) -> None:
    """16 columns from `first` on as bytes: [group][step][column][step bytes]. Columns beyond the last repeat it."""
    packed_bytes = o.g.group // o.g.subplanes
    piece = min(packed_bytes, t.step)
    with k.loop(0, TILE) as lane:
        column = k.minimum(first + lane, o.columns - 1)
        with k.loop(0, o.groups) as group:
            target = k.address(t.weights, group * (o.g.group * TILE) + lane * t.step)
            for first_byte in range(0, packed_bytes, piece):
                at = column * o.words + group * (packed_bytes // 4) + first_byte // 4
                packed = k.load(o.w, at, _INT32, piece // 4)
                for s in range(o.g.subplanes):
                    start = s * packed_bytes + first_byte
                    place = start // t.step * (t.step * TILE) + start % t.step
                    q = (packed >> (o.g.bits * s)) & o.g.byte_mask
                    q = q if o.g.affine else twice(k, q).bitcast(I32)
                    k.store(k.address(target, place), 0, q, _INT32)
            if not o.g.affine:
                code = k.load(o.scales, column * o.groups + group, o.scale_type)
                k.store(t.scales, group * TILE + lane, half_scale(k, o.g.mode, code), F32)


def _multiply_group(k: Emitter, o: Operands, t: _Tiles, planes: Value, weights: Value) -> None:
    """The exact sums of the three planes over one group, stored in t.products."""
    stride = k.constant(t.step)
    row = k.constant(64)
    for plane in range(PLANES):
        instruction(k, "tilezero", plane)
    for step in range(t.steps):
        instruction(k, "tileloadd64", _WEIGHTS, k.address(weights, step * t.step * TILE), stride)
        for plane in range(PLANES):
            place = k.address(planes, plane * t.plane_bytes + step * t.step * TILE)
            instruction(k, "tileloadd64", _X + plane, place, row)
            signed_x = plane == 0 or o.g.bits == 8
            product = f"tdpb{'u' if o.g.affine else 's'}{'s' if signed_x else 'u'}d"
            instruction(k, product, plane, _WEIGHTS, _X + plane)
    for plane in range(PLANES):
        instruction(k, "tilestored64", plane, k.address(t.products, plane * TILE_BYTES), row)


def _add_group(k: Emitter, o: Operands, t: _Tiles, first: Value, group: Value, tile: Value, fresh: bool) -> None:
    """Adds a group to totals[group % 16][column][row]; a fresh total is zero so far."""
    at = (tile * o.groups + group) * TILE
    unit, row_sum = k.load(t.units, at, F32, LANES), k.load(t.sums, at, F32, LANES)
    totals = k.address(t.totals, group % LANES * TILE_BYTES)
    for lane in range(TILE):
        column = k.minimum(first + lane, o.columns - 1) * o.groups + group
        if o.g.affine:
            scale = k.splat(k.load(o.scales, column, o.scale_type), LANES)
            bias = k.splat(k.load(o.biases, column, o.scale_type), LANES)
        else:
            scale = k.splat(k.load(t.scales, group * TILE + lane, F32), LANES)
        high, middle, low = (
            k.load(t.products, plane * (TILE_BYTES // 4) + lane * LANES, _INT32, LANES) for plane in range(PLANES)
        )
        before = k.constant(0.0, vector(FLOAT, LANES)) if fresh else k.load(totals, lane * LANES, F32, LANES)
        total = k.fma(bias, row_sum, before) if o.g.affine else before
        total = k.fma(whole_sum(k, high, (middle << 8) + low), scale * unit, total)
        k.store(totals, lane * LANES, total, F32)


def _multiply_tile(k: Emitter, o: Operands, t: _Tiles, column: Value, tile: Value) -> None:
    """The 16 totals of 16 columns and 16 rows. Groups that share a total follow each other, so that it stays near."""

    def add(group: Value, fresh: bool) -> None:
        planes = k.address(t.planes, tile * t.tile_bytes + group * (t.plane_bytes * PLANES))
        _multiply_group(k, o, t, planes, k.address(t.weights, group * (o.g.group * TILE)))
        _add_group(k, o, t, column, group, tile, fresh)

    with k.loop(0, k.minimum(o.groups, LANES)) as lane:
        add(lane, True)
        with k.loop(lane + LANES, o.groups, LANES) as group:
            add(group, False)
    zero = k.constant(0.0, vector(FLOAT, LANES))
    with k.loop(k.minimum(o.groups, LANES) * TILE, k.constant(LANES * TILE)) as n:
        k.store(t.totals, n * LANES, zero, F32)


def _add_totals(k: Emitter, t: _Tiles) -> None:
    """The sixteen totals by halves, into the first."""
    with k.loop(0, TILE) as lane:
        values = [k.load(t.totals, lane * LANES + n * (TILE_BYTES // 4), F32, LANES) for n in range(LANES)]
        while len(values) > 1:
            half = len(values) // 2
            values = [a + b for a, b in zip(values[:half], values[half:], strict=True)]
        k.store(t.totals, lane * LANES, values[0], F32)


def _store_tile(
    k: Emitter, o: Operands, t: _Tiles, first_row: Value, last_row: Value, column: Value, end: Value
) -> None:
    """Writes totals, turned over, where rows and columns exist."""
    rows = transposed([k.load(t.totals, lane * LANES, F32, LANES) for lane in range(TILE)])
    mask = k.first_lanes(end - column)
    for n, values in enumerate(rows):
        with k.when(first_row + n < last_row):
            k.store(o.out, (first_row + n) * o.columns + column, values, o.x_type, mask)


def _multiply_rows(k: Emitter, o: Operands, t: _Tiles, first: Value, last: Value, low: Value, high: Value) -> None:
    """Columns [low, high) for the rows [first, last), which are prepared."""
    tiles = (last - first + (TILE - 1)) // TILE
    with k.loop(low, high, TILE) as column:
        _unpack_weights(k, o, t, column)
        with k.loop(0, tiles) as tile:
            _multiply_tile(k, o, t, column, tile)
            _add_totals(k, t)
            _store_tile(k, o, t, first + tile * TILE, last, column, high)


def write_tiles(k: Emitter, g: Geometry, x: Storage, scale: Storage) -> None:
    o = Operands(k, g, x, scale)
    t = _Tiles(k, o)
    by_columns = k.integer(o.pointers + 4).differs(0)
    row_low, row_high = k.share(o.rows, TILE)
    low, high = k.share(o.columns, TILE)
    row_low, row_high = k.select(by_columns, k.constant(0), row_low), k.select(by_columns, o.rows, row_high)
    low, high = k.select(by_columns, low, k.constant(0)), k.select(by_columns, high, o.columns)
    _configure(k, t)
    with k.loop(row_low, row_high, o.pass_rows) as first:
        last = k.minimum(first + o.pass_rows, row_high)
        with k.loop(first, last) as row:
            _prepare_row(k, o, t, row, row - first)
        with k.loop(last - first, (last - first + (TILE - 1)) // TILE * TILE) as local:
            _clear_row(k, o, t, local)
        _multiply_rows(k, o, t, first, last, low, high)
        with k.loop(first, last) as row, k.when(k.load(t.flags, row - first, _INT32).differs(0)):
            extreme_row(k, o, t.fixed, row, low, high)
    instruction(k, "tilerelease")


def tile_pass_rows(rows: int, depth: int) -> int:
    """Rows that a share prepares at once, a multiple of 16."""
    fit = SCRATCH_BYTES // (PLANES * depth) // TILE * TILE
    return max(TILE, min(fit, 64, -(-rows // TILE) * TILE))
