"""Products of chosen rows with chosen quantized matrices (experts), x[left[i]] @ w[right[i]]^T.

Indices are sorted by expert inside the kernel, by counting, so it makes no difference in which order they come. The
rows of an expert are copied together, a block at a time, and given to the kernel that `quantized_matmul` takes for so
many rows: its order class, and so its bits, are that op's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from outlive.backends.cpu.abi import Selection
from outlive.backends.cpu.kernels import library
from outlive.backends.cpu.kernels.emit import I32, I64, STORAGES, Emitter, Storage, Value
from outlive.backends.cpu.kernels.gather import INDEX_OUT_OF_RANGE, copy_bytes
from outlive.backends.cpu.kernels.layouts import merge
from outlive.backends.cpu.kernels.quantized import ROWS_OF_TILES, select_rows
from outlive.backends.cpu.pool import PARTS_PER_THREAD, thread_count

_INT32, _INT64 = STORAGES["int32"], STORAGES["int64"]
_BLOCK_ROWS = 64
_PANEL_COLUMNS = 64  # the fewest columns that are worth preparing the rows of x once more
_PART_WORK = 1 << 16
_INDICES_MAX, _EXPERTS_MAX = 1 << 16, 1 << 14  # they are sorted on the stack
_INDEX_TYPES = ("int32", "uint32", "int64")


class _Shape(NamedTuple):
    """What the code depends on. weights: pointers of the weights' parts. x_bytes: of an element of x and of the result."""

    weights: int
    x_bytes: int
    left: Storage
    right: Storage


class _Gather:
    """Operands and sizes of a call, the sorted indices, and the block of rows under way."""

    def __init__(self, k: Emitter, s: _Shape) -> None:
        self.k, self.s = k, s
        self.x, *self.weights, self.left, self.right, self.out = (k.pointer(n) for n in range(s.weights + 4))
        word = iter(range(s.weights + 4, 64))
        names = ("count", "inner", "rows", "columns", "depth", "matrices", "experts", "panels")
        for name in names:
            setattr(self, name, k.integer(next(word)))
        self.left_strides, self.right_strides = ([k.integer(next(word)) for _ in range(2)] for _ in range(2))
        self.row_bytes = [k.integer(next(word)) for _ in range(s.weights)]
        self.few, self.few_pass, self.many, self.many_pass = (k.integer(next(word)) for _ in range(4))
        self.starts = k.scratch((self.experts + 2) * 4)
        self.order = k.scratch(self.count * 4)
        self.panel_columns = (self.columns + self.panels - 1) // self.panels
        self.rows_in = k.scratch(self.depth * (_BLOCK_ROWS * s.x_bytes))
        self.rows_out = k.scratch(self.panel_columns * (_BLOCK_ROWS * s.x_bytes))
        self.inner_args = k.scratch(k.constant(16 * 8))

    count: Value
    inner: Value
    rows: Value
    columns: Value
    depth: Value
    matrices: Value
    experts: Value
    panels: Value

    def index(self, base: Value, kind: Storage, strides: list[Value], i: Value, limit: Value) -> Value:
        """Index i of `base`, counted from the end where it is negative; fails the record when out of range."""
        k = self.k
        at = i // self.inner * strides[0] + i % self.inner * strides[1]
        wanted = k.load(base, at, kind).convert(I64, kind.signed)
        wanted = k.select(wanted < 0, wanted + limit, wanted)
        k.fail((wanted < 0) | (wanted >= limit), INDEX_OUT_OF_RANGE)
        return wanted

    def expert(self, i: Value) -> Value:
        return self.index(self.right, self.s.right, self.right_strides, i, self.experts)

    def sort(self) -> None:
        """`order`: places by expert, those of one expert in their own order; `starts[e + 1]`: where expert e begins.

        While places are put in order, `starts[e + 1]` is the next free one of expert e: at the end, where e + 1 begins.
        """
        k = self.k
        with k.loop(0, self.experts + 2) as e:
            k.store(self.starts, e, k.constant(0, I32), _INT32)
        with k.loop(0, self.count) as i:
            self.index(self.left, self.s.left, self.left_strides, i, self.matrices)
            e = self.expert(i) + 2
            k.store(self.starts, e, k.load(self.starts, e, _INT32) + 1, _INT32)
        with k.loop(2, self.experts + 2) as e:
            before = k.load(self.starts, e - 1, _INT32)
            k.store(self.starts, e, k.load(self.starts, e, _INT32) + before, _INT32)
        with k.loop(0, self.count) as i:
            e = self.expert(i) + 1
            place = k.load(self.starts, e, _INT32)
            k.store(self.order, place.convert(I64), i.convert(I32), _INT32)
            k.store(self.starts, e, place + 1, _INT32)

    def start(self, expert: Value) -> Value:
        return self.k.load(self.starts, expert, _INT32).convert(I64)

    def place(self, first: Value, n: Value) -> tuple[Value, Value]:
        """Row n of an expert whose places begin at `first`: which index it belongs to, and which row of its matrix."""
        return self.k.load(self.order, first + n // self.rows, _INT32).convert(I64), n % self.rows

    def multiply(self, expert: Value, first: Value, low: Value, high: Value, panel: Value) -> None:
        """Rows [low, high) of an expert times the columns of a panel."""
        k, size = self.k, self.s.x_bytes
        with k.loop(low, high) as n:
            i, row = self.place(first, n)
            matrix = self.index(self.left, self.s.left, self.left_strides, i, self.matrices)
            source = k.address(self.x, (matrix * self.rows + row) * self.depth, size)
            copy_bytes(k, k.address(self.rows_in, (n - low) * self.depth, size), source, self.depth * size)
        column = k.minimum(panel * self.panel_columns, self.columns)
        columns = k.minimum(self.panel_columns, self.columns - column)
        many = high - low >= ROWS_OF_TILES
        at = expert * self.columns + column
        parts = [k.address(w, at * stride) for w, stride in zip(self.weights, self.row_bytes, strict=True)]
        pass_rows = k.select(many, self.many_pass, self.few_pass)
        pointers = [self.rows_in, *parts, self.rows_out]
        numbers = [high - low, columns, self.depth, pass_rows, k.constant(1)]
        for word, value in enumerate([*(k.address_number(p) for p in pointers), *numbers]):
            k.store(self.inner_args, word, value, _INT64)
        k.call_kernel(k.select(many, self.many, self.few), self.inner_args)
        with k.loop(low, high) as n:
            i, row = self.place(first, n)
            target = k.address(self.out, (i * self.rows + row) * self.columns + column, size)
            copy_bytes(k, target, k.address(self.rows_out, (n - low) * columns, size), columns * size)


def _write(k: Emitter, s: _Shape) -> None:
    g = _Gather(k, s)
    g.sort()

    def blocks(e: Value) -> Value:
        return ((g.start(e + 1) - g.start(e)) * g.rows + (_BLOCK_ROWS - 1)) // _BLOCK_ROWS

    total = k.variable(k.constant(0))
    with k.loop(0, g.experts) as e:
        total.set(total.get() + blocks(e) * g.panels)
    low, high = k.share(total.get())
    done = k.variable(k.constant(0))
    with k.loop(0, g.experts) as e:
        before, first = done.get(), g.start(e)
        done.set(before + blocks(e) * g.panels)
        rows = (g.start(e + 1) - first) * g.rows
        with k.loop(k.maximum(low, before), k.minimum(high, done.get())) as item:
            block, panel = (item - before) // g.panels, (item - before) % g.panels
            begin = block * _BLOCK_ROWS
            g.multiply(e, first, begin, k.minimum(begin + _BLOCK_ROWS, rows), panel)


def _index_layout(left: Any, right: Any) -> tuple[int, list[int], list[int]] | None:
    """(inner size, left's two strides, right's two) of indices that two loops walk; None where more are needed."""
    if left.shape != right.shape:
        return None
    dims, (a, b) = merge(left.shape, [left.strides, right.strides])
    if len(dims) > 2:
        return None
    missing = 2 - len(dims)
    return (dims[-1] if dims else 1), [0] * missing + a, [0] * missing + b


def _select(reads: list, writes: list, params: Any) -> Selection | None:
    *product, left, right = reads
    x, w, out = product[0].layout, product[1].layout, writes[0].layout
    left_type, right_type = (STORAGES.get(i.layout.dtype.name) for i in (left, right))
    indices = _index_layout(left.layout, right.layout)
    if left_type is None or right_type is None or indices is None:
        return None
    if left_type.name not in _INDEX_TYPES or right_type.name not in _INDEX_TYPES:
        return None
    if not params.transpose or params.scaled:
        return None
    rows, depth, columns, experts = x.shape[-2], x.shape[-1], w.shape[-2], math.prod(w.shape[:-2])
    count = left.layout.size
    if not (x.contiguous and out.contiguous) or out.dtype.name != x.dtype.name or not out.size or not depth:
        return None
    if count > _INDICES_MAX or not 0 < experts <= _EXPERTS_MAX:
        return None
    few, many = (select_rows(product, params, n, columns, depth) for n in (1, _BLOCK_ROWS))
    if few is None or many is None:
        return None
    s = _Shape(len(product) - 1, STORAGES[x.dtype.name].bytes, left_type, right_type)
    row_bytes = [p.layout.shape[-1] * STORAGES[p.layout.dtype.name].bytes for p in product[1:]]
    chosen = min(count, experts) + count * rows // _BLOCK_ROWS
    panels = max(1, min(-(-PARTS_PER_THREAD * thread_count() // chosen), columns // _PANEL_COLUMNS))
    inner, left_strides, right_strides = indices
    words = (
        *(count, inner, rows, columns, depth, x.size // (rows * depth), experts, panels),
        *(*left_strides, *right_strides, *row_bytes),
        *(few[0].address, few[2][3], many[0].address, many[2][3]),
    )
    kernel = library.compiled(
        f"gather_products_{s.weights}_{s.x_bytes}_{s.left.name}_{s.right.name}",
        lambda k: _write(k, s),
        "gather_products",
    )
    kernel = replace(
        kernel,
        order_class=few[0].order_class,
        failure=f"an index is out of range for {x.size // (rows * depth)} matrices of x or {experts} matrices of weights",
    )
    return kernel, min(count * rows * columns * depth // _PART_WORK, chosen * panels), words


ROUTES: dict[str, Callable[[list, list, Any], Selection | None]] = {"gather_qmm": _select}
