"""Dense bfloat16 products of many rows on tile registers (AMX).

Order class `dense_tiles`, for any number of rows: an element is one float32 sum over pairs of the depth in order, the
two products of a pair added one after the other, each rounded to nearest even; numbers below 2^-126 in size count as
zero, as the instruction has it. 32 columns of the second operand are laid out once a share as pairs of neighbours in
depth; rows of the first are read where they lie, or from a copy filled up with zeros where a tile would reach past them.
"""

from __future__ import annotations

from outlive.backends.cpu.kernels.emit import BF16, F32, I32, STORAGES, Emitter, Value, transposed
from outlive.backends.cpu.kernels.tiles import TILE, TILE_BYTES, configure, instruction

BLOCK = 2 * TILE  # rows, and columns, of the four tiles of sums
DEPTH_MAX = 1 << 14  # two blocks of this depth lie on the stack
_CHUNK = 32  # elements of the depth that one tile row holds
_CHUNK_BYTES = 64
_SUMS, _ROWS, _COLUMNS = (0, 1, 2, 3), (4, 5), (6, 7)  # tile registers
_UINT16, _INT32 = STORAGES["uint16"], STORAGES["int32"]


class _Panels:
    """Operands and sizes of a call, 32 columns ready for tiles, and a copy of 32 rows."""

    def __init__(self, k: Emitter, by_column: bool) -> None:
        self.k, self.by_column = k, by_column
        self.pointers = [k.pointer(n) for n in range(3)]
        self.batch, self.rows, self.columns, self.depth, self.a_row, self.b_row = (k.integer(3 + n) for n in range(6))
        self.batch_strides = [k.integer(9 + n) for n in range(3)]
        self.row_parts = k.integer(12)
        self.chunks = (self.depth + (_CHUNK - 1)) // _CHUNK
        self.panel = k.scratch(self.chunks * (2 * TILE_BYTES))
        self.copy = k.scratch(self.chunks * (BLOCK * _CHUNK_BYTES))
        self.sums = k.scratch(k.constant(4 * TILE_BYTES))

    def matrix(self, which: int, index: Value) -> Value:
        return self.k.address(self.pointers[which], index * self.batch_strides[which], 2)

    def panel_at(self, chunk: Value, half: int) -> Value:
        return self.k.address(self.panel, chunk * (2 * TILE_BYTES) + half * TILE_BYTES)

    def fill_panel(self, b: Value, column: Value) -> None:
        """Row r of a tile: elements 2r and 2r + 1 of the chunk's depth, column after column; zeros past the operand."""
        k = self.k
        with k.loop(0, self.chunks) as chunk:
            if self.by_column:
                for half in range(2):
                    self._turn_columns(b, column + half * TILE, chunk, self.panel_at(chunk, half))
            else:
                with k.loop(0, TILE) as r:
                    self._join_rows(b, column, chunk, r)

    def _turn_columns(self, b: Value, column: Value, chunk: Value, target: Value) -> None:
        k = self.k
        loaded = []
        for n in range(TILE):
            left = k.select(column + n < self.columns, self.depth - chunk * _CHUNK, 0)
            at = (column + n) * self.b_row + chunk * _CHUNK
            loaded.append(k.load(b, at, _UINT16, _CHUNK, k.first_lanes(left, _CHUNK)).bitcast(I32))
        for r, pairs in enumerate(transposed(loaded)):
            k.store(target, r * TILE, pairs, _INT32)

    def _join_rows(self, b: Value, column: Value, chunk: Value, r: Value) -> None:
        k = self.k
        first = chunk * _CHUNK + r * 2
        even, odd = (
            k.load(
                b,
                (first + n) * self.b_row + column,
                _UINT16,
                BLOCK,
                k.first_lanes(k.select(first + n < self.depth, self.columns - column, 0), BLOCK),
            )
            for n in range(2)
        )
        for half in range(2):
            pairs = [place for n in range(TILE) for place in (half * TILE + n, BLOCK + half * TILE + n)]
            k.store(self.panel_at(chunk, half), r * BLOCK, even.shuffle(pairs, odd), _UINT16)

    def row_block(self, a: Value, row: Value) -> tuple[Value, Value]:
        """Where 32 rows lie for tiles, and the bytes from one to the next."""
        k = self.k
        whole = (row + BLOCK <= self.rows) & (self.depth % _CHUNK).equals(0)
        with k.when(whole.equals(0)), k.loop(0, BLOCK) as r, k.loop(0, self.chunks) as chunk:
            left = k.select(row + r < self.rows, self.depth - chunk * _CHUNK, 0)
            mask = k.first_lanes(left, _CHUNK)
            values = k.load(a, (row + r) * self.a_row + chunk * _CHUNK, _UINT16, _CHUNK, mask)
            k.store(self.copy, (r * self.chunks + chunk) * _CHUNK, values, _UINT16)
        place = k.select(whole, k.address(a, row * self.a_row, 2), self.copy)
        return place, k.select(whole, self.a_row * 2, self.chunks * _CHUNK_BYTES)

    def multiply(self, place: Value, stride: Value) -> None:
        """32 rows times the panel, into `sums`."""
        k = self.k
        packed_row = k.constant(_CHUNK_BYTES)
        for tile in _SUMS:
            instruction(k, "tilezero", tile)
        with k.loop(0, self.chunks) as chunk:
            for n in range(2):
                rows = k.address(place, stride * (n * TILE) + chunk * _CHUNK_BYTES)
                instruction(k, "tileloadd64", _ROWS[n], rows, stride)
                instruction(k, "tileloadd64", _COLUMNS[n], self.panel_at(chunk, n), packed_row)
            for tile in _SUMS:
                instruction(k, "tdpbf16ps", tile, _ROWS[tile // 2], _COLUMNS[tile % 2])
        for tile in _SUMS:
            instruction(k, "tilestored64", tile, k.address(self.sums, tile * TILE_BYTES), packed_row)

    def store(self, out: Value, row: Value, last: Value, column: Value) -> None:
        k = self.k
        with k.loop(row, k.minimum(row + BLOCK, last)) as r:
            local = r - row
            for half in range(2):
                tile = local // TILE * 2 + half
                values = k.load(self.sums, tile * (TILE * TILE) + local % TILE * TILE, F32, TILE)
                first = column + half * TILE
                k.store(out, r * self.columns + first, values, BF16, k.first_lanes(self.columns - first))


def write_dense_tiles(k: Emitter, by_column: bool) -> None:
    p = _Panels(k, by_column)
    configure(k, dict.fromkeys(range(8), (TILE, _CHUNK_BYTES)))
    panels = (p.columns + (BLOCK - 1)) // BLOCK
    blocks = (p.rows + (BLOCK - 1)) // BLOCK
    low, high = k.share(p.batch * panels * p.row_parts)
    with k.loop(low, high) as item:
        part, panel, index = item % p.row_parts, item // p.row_parts % panels, item // p.row_parts // panels
        column = panel * BLOCK
        p.fill_panel(p.matrix(1, index), column)
        first, last = (blocks * n // p.row_parts * BLOCK for n in (part, part + 1))
        a, out = p.matrix(0, index), p.matrix(2, index)
        with k.loop(first, k.minimum(last, p.rows), BLOCK) as row:
            place, stride = p.row_block(a, row)
            p.multiply(place, stride)
            p.store(out, row, p.rows, column)
    instruction(k, "tilerelease")
