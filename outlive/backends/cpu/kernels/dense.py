"""Dense products of at most 16 rows, and small ones: a BLAS changes bits with the number of rows, these do not.

bfloat16 products of more rows take dense_tiles.py where the processor has tile registers.

Two forms, by the layout of the second operand. `dense_dot` (its columns are contiguous: a transposed weight): 16
lane sums along the depth, lanes added by halves. `dense_axpy` (its rows are contiguous): one sum an element, in
the order of the depth. Products are fused, float32 throughout, rounded once.
"""

from __future__ import annotations

import math
from typing import Any

from outlive.backends.cpu.abi import Selection
from outlive.backends.cpu.features import features
from outlive.backends.cpu.kernels import library
from outlive.backends.cpu.kernels.dense_tiles import BLOCK, write_dense_tiles
from outlive.backends.cpu.kernels.dense_tiles import DEPTH_MAX as TILES_DEPTH_MAX
from outlive.backends.cpu.kernels.emit import BF16, FLOAT, LANES, STORAGES, Emitter, Storage, Value, row_blocks, vector
from outlive.backends.cpu.kernels.layouts import broadcast_strides, merge
from outlive.backends.cpu.pool import PARTS_PER_THREAD, thread_count

ROWS_MAX = 16
_PART_WORK = 1 << 16
_TILES_PART_WORK = 1 << 20
_SMALL_WORK = 1 << 18  # calling a BLAS costs more than it saves on so small a product
_DOT_COLUMNS, _AXPY_VECTORS = 4, 4


class _Call:
    """One matrix of the batch: pointers, sizes and the strides of rows."""

    def __init__(self, k: Emitter, storage: Storage) -> None:
        self.k, self.storage = k, storage
        self.pointers = [k.pointer(n) for n in range(3)]
        self.batch, self.rows, self.columns, self.depth, self.a_row, self.b_row = (k.integer(3 + n) for n in range(6))
        self.batch_strides = [k.integer(9 + n) for n in range(3)]

    def matrix(self, index: Value) -> tuple[Value, Value, Value]:
        a, b, out = (
            self.k.address(p, index * s, self.storage.bytes)
            for p, s in zip(self.pointers, self.batch_strides, strict=True)
        )
        return a, b, out


def _write_dot(k: Emitter, storage: Storage) -> None:
    c = _Call(k, storage)
    groups = (c.columns + (_DOT_COLUMNS - 1)) // _DOT_COLUMNS
    low, high = k.share(c.batch * groups)
    with k.loop(low, high) as item:
        a, b, out = c.matrix(item // groups)
        first = item % groups * _DOT_COLUMNS
        columns = [k.minimum(first + n, c.columns - 1) for n in range(_DOT_COLUMNS)]  # the last group repeats a column

        def block(row: Value, height: int) -> None:
            zero = k.constant(0.0, vector(FLOAT, LANES))
            totals = [[k.variable(zero) for _ in columns] for _ in range(height)]

            def step(i: Value, mask: Value | None) -> None:
                weights = [k.load(b, column * c.b_row + i, storage, LANES, mask) for column in columns]
                for r, sums in enumerate(totals):
                    x = k.load(a, (row + r) * c.a_row + i, storage, LANES, mask)
                    for weight, total in zip(weights, sums, strict=True):
                        total.set(k.fma(x, weight, total.get()))

            full = c.depth // LANES * LANES
            with k.loop(0, full, LANES) as i:
                step(i, None)
            with k.when(full < c.depth):
                step(full, k.first_lanes(c.depth - full))
            for r, sums in enumerate(totals):
                for column, total in zip(columns, sums, strict=True):
                    k.store(out, (row + r) * c.columns + column, k.reduce(total.get()), storage)

        row_blocks(k, k.constant(0), c.rows, (4, 1), block)


def _write_axpy(k: Emitter, storage: Storage) -> None:
    c = _Call(k, storage)
    wide = _AXPY_VECTORS * LANES
    groups = (c.columns + (wide - 1)) // wide
    low, high = k.share(c.batch * groups)
    with k.loop(low, high) as item:
        a, b, out = c.matrix(item // groups)
        first = item % groups * wide

        def block(row: Value, height: int, vectors: int, first: Value) -> None:
            zero = k.constant(0.0, vector(FLOAT, LANES))
            mask = k.first_lanes(c.columns - first) if vectors == 1 else None
            totals = [[k.variable(zero) for _ in range(vectors)] for _ in range(height)]
            with k.loop(0, c.depth) as d:
                weights = [k.load(b, d * c.b_row + first + n * LANES, storage, LANES, mask) for n in range(vectors)]
                for r, sums in enumerate(totals):
                    x = k.splat(k.load(a, (row + r) * c.a_row + d, storage), LANES)
                    for weight, total in zip(weights, sums, strict=True):
                        total.set(k.fma(x, weight, total.get()))
            for r, sums in enumerate(totals):
                for n, total in enumerate(sums):
                    k.store(out, (row + r) * c.columns + first + n * LANES, total.get(), storage, mask)

        none = k.constant(0)
        with k.branch(first + wide <= c.columns) as (yes, no):
            with yes:
                row_blocks(
                    k, k.constant(0), c.rows, (4, 1), lambda row, height: block(row, height, _AXPY_VECTORS, first)
                )
            with no, k.loop(first, c.columns, LANES) as part:
                row_blocks(k, none, c.rows, (4, 1), lambda row, height: block(row, height, 1, part))


def _batch(a, b, out) -> tuple[int, list[int]] | None:
    """(number of matrices, strides of one to the next in each operand) where one stride an operand tells it, else
    None.
    """

    class _Part:
        def __init__(self, layout) -> None:
            self.shape, self.strides = layout.shape[:-2], layout.strides[:-2]

    shape = out.shape[:-2]
    strides = [broadcast_strides(_Part(x), shape) for x in (a, b, out)]
    if any(s is None for s in strides):
        return None
    dims, merged = merge(shape, strides)
    if len(dims) > 1:
        return None
    return (dims[0], [s[0] for s in merged]) if dims else (math.prod(shape), [0, 0, 0])


def _select_matmul(reads: list, writes: list, params: Any) -> Selection | None:
    a, b, out = reads[0].layout, reads[1].layout, writes[0].layout
    storage = STORAGES.get(a.dtype.name)
    if storage is None or storage.compute != FLOAT or len(a.shape) < 2 or len(b.shape) < 2 or not out.contiguous:
        return None
    if any(x.dtype.name != storage.name for x in (b, out)) or a.shape[-1] != b.shape[-2]:
        return None
    rows, depth, columns = a.shape[-2], a.shape[-1], b.shape[-1]
    if len(b.shape) == 2 and a.contiguous:
        rows, row_stride = math.prod(a.shape[:-1]), depth
        batch: tuple[int, list[int]] | None = (1, [0, 0, 0])
    else:
        batch, row_stride = _batch(a, b, out), a.strides[-2]
    if batch is None or (a.strides[-1] != 1 and depth > 1):
        return None
    # a single column is both: it takes the form of a transposed weight, whose columns are contiguous
    by_column = depth > 1 and b.strides[-2] == 1
    if not by_column and b.strides[-1] != 1 and columns > 1 and depth > 0:
        return None
    small = features().avx512 and not by_column and rows * columns * depth <= _SMALL_WORK
    if rows > ROWS_MAX and (storage is BF16 or not small):
        b_row = b.strides[-1] if by_column else b.strides[-2]
        return _select_tiles(storage, by_column, (batch[0], rows, columns, depth, row_stride, b_row, *batch[1]))
    form, write = ("dense_dot", _write_dot) if by_column else ("dense_axpy", _write_axpy)
    kernel = library.compiled(f"{form}_{storage.name}", lambda k: write(k, storage), form)
    count, strides = batch
    b_row = b.strides[-1] if form == "dense_dot" else b.strides[-2]
    shares = count * -(-columns // (_DOT_COLUMNS if form == "dense_dot" else _AXPY_VECTORS * LANES))
    work = count * rows * columns * depth
    return kernel, min(shares, work // _PART_WORK), (count, rows, columns, depth, row_stride, b_row, *strides)


def _select_tiles(storage: Storage, by_column: bool, words: tuple[int, ...]) -> Selection | None:
    """The kernel of many rows; BLAS serves what it does not. words: as for the kernels of few rows."""
    batch, rows, columns, depth = words[:4]
    if storage is not BF16 or not features().amx or not 0 < depth <= TILES_DEPTH_MAX or not columns:
        return None
    panels = batch * -(-columns // BLOCK)
    row_parts = max(1, min(-(-PARTS_PER_THREAD * thread_count() // panels), rows // (4 * BLOCK)))
    name = f"dense_tiles_{'dot' if by_column else 'axpy'}"
    kernel = library.compiled(name, lambda k: write_dense_tiles(k, by_column), "dense_tiles")
    shares = min(panels * row_parts, batch * rows * columns * depth // _TILES_PART_WORK)
    return kernel, shares, (*words, row_parts)


ROUTES = {"matmul": _select_matmul}
