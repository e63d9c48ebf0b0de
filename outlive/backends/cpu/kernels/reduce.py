"""Reductions over neighbouring axes of a contiguous array, and argmax.

The array is seen as (outer, count, inner). With inner = 1 a row is reduced by four vectors of lanes in blocks of
4096 elements; block totals of floats are added in float64. With inner > 1 each lane reduces a column of its own,
in blocks of 64 rows whose totals are added in float64. Neither order depends on the number of shares.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from outlive.backends.cpu.abi import Selection
from outlive.backends.cpu.kernels import library
from outlive.backends.cpu.kernels.elementwise import maximum, minimum
from outlive.backends.cpu.kernels.emit import (
    BOOL,
    DOUBLE,
    FLOAT,
    I32,
    LANES,
    STORAGES,
    Emitter,
    Storage,
    Value,
    vector,
)

_BLOCK = 4096
_UNROLL = 4
_COLUMN_BLOCK = 64
_PART_ELEMENTS = 16384

Load = Callable[[Value, "Value | None"], Value]


def row_fold(k: Emitter, count: Value, load: Load, neutral: Value, combine: Callable[[Value, Value], Value]) -> Value:
    """Folds `count` elements, in order, into one vector of lanes; `load(index, mask)` gives LANES of them."""
    totals = [k.variable(neutral) for _ in range(_UNROLL)]
    stride = _UNROLL * LANES
    whole = count // stride * stride
    with k.loop(0, whole, stride) as i:
        for n, total in enumerate(totals):
            total.set(combine(total.get(), load(i + n * LANES, None)))
    full = count // LANES * LANES
    with k.loop(whole, full, LANES) as i:
        totals[0].set(combine(totals[0].get(), load(i, None)))
    with k.when(full < count):
        mask = k.first_lanes(count - full)
        last = k.select(mask, load(full, mask), neutral)
        totals[1].set(combine(totals[1].get(), last))
    a, b, c, d = (t.get() for t in totals)
    return combine(combine(a, b), combine(c, d))


def fold_lanes(k: Emitter, value: Value, combine: Callable[[Value, Value], Value]) -> Value:
    """One element from a vector: lanes combined by halves."""
    while value.lanes > 1:
        half = value.lanes // 2
        value = combine(value.shuffle(list(range(half))), value.shuffle(list(range(half, 2 * half))))
    return value.lane(0)


def row_sum(k: Emitter, count: Value, load: Load) -> Value:
    """The sum of `count` float32 elements, as float64: blocks in float32, block totals in float64."""
    total = k.variable(k.constant(0.0, DOUBLE))
    zero = k.constant(0.0, vector(FLOAT, LANES))
    with k.loop(0, count, _BLOCK) as first:
        size = k.minimum(count - first, _BLOCK)
        lanes = row_fold(k, size, lambda i, mask: load(first + i, mask), zero, lambda a, b: a + b)
        total.set(total.get() + k.reduce(lanes).convert(DOUBLE))
    return total.get()


def row_maximum(k: Emitter, count: Value, load: Load, storage: Storage) -> Value:
    """The largest of `count` elements; NaN when one of them is."""
    neutral = k.constant(float("-inf"), vector(FLOAT, LANES))
    combine = lambda a, b: maximum(k, storage, a, b)  # noqa: E731
    return fold_lanes(k, row_fold(k, count, load, neutral, combine), combine)


def _extreme(storage: Storage, largest: bool) -> float:
    """The neutral element of max (the smallest number) or of min."""
    if storage.is_float:
        return float("-inf") if largest else float("inf")
    bits = storage.compute.width
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if storage.signed else (0, (1 << bits) - 1)
    return low if largest else high


class _Fold:
    """One reduction: neutral element, combination, and how a float total becomes the result."""

    def __init__(self, k: Emitter, op: str, storage: Storage) -> None:
        self.k, self.op, self.storage = k, op, storage
        lanes = vector(storage.compute, LANES)
        neutral = 0 if op in ("sum", "mean") else _extreme(storage, op == "max")
        self.neutral = k.constant(neutral, lanes)

    def combine(self, a: Value, b: Value) -> Value:
        if self.op == "max":
            return maximum(self.k, self.storage, a, b)
        return minimum(self.k, self.storage, a, b) if self.op == "min" else a + b

    @property
    def wide(self) -> bool:
        """Whether totals of blocks are added in float64."""
        return self.op in ("sum", "mean") and self.storage.compute == FLOAT

    def finish(self, total: Value, count: Value) -> Value:
        if not self.wide:
            return total
        if self.op == "mean":
            total = total / total.like(count.convert(DOUBLE))
        return total.convert(FLOAT)


def _write_rows(k: Emitter, op: str, storage: Storage) -> None:
    source, target, outer, count = k.pointer(0), k.pointer(1), k.integer(2), k.integer(3)
    fold = _Fold(k, op, storage)
    low, high = k.share(outer)
    with k.loop(low, high) as row:

        def load(i: Value, mask: Value | None) -> Value:
            return k.load(source, row * count + i, storage, LANES, mask)

        if fold.wide:
            total = row_sum(k, count, load)
        else:
            total = fold_lanes(k, row_fold(k, count, load, fold.neutral, fold.combine), fold.combine)
        k.store(target, row, fold.finish(total, count), storage)


def _write_columns(k: Emitter, op: str, storage: Storage) -> None:
    source, target = k.pointer(0), k.pointer(1)
    outer, count, inner = (k.integer(2 + i) for i in range(3))
    fold = _Fold(k, op, storage)
    groups = (inner + (LANES - 1)) // LANES
    low, high = k.share(outer * groups)
    with k.loop(low, high) as item:
        row, column = item // groups, item % groups * LANES
        mask = k.first_lanes(inner - column)
        total = k.variable(k.constant(0.0, vector(DOUBLE, LANES)) if fold.wide else fold.neutral)
        with k.loop(0, count, _COLUMN_BLOCK) as first:
            part = k.variable(fold.neutral)
            with k.loop(first, k.minimum(first + _COLUMN_BLOCK, count)) as i:
                part.set(
                    fold.combine(part.get(), k.load(source, (row * count + i) * inner + column, storage, LANES, mask))
                )
            if fold.wide:
                total.set(total.get() + part.get().convert(DOUBLE))
            else:
                total.set(fold.combine(total.get(), part.get()))
        k.store(target, row * inner + column, fold.finish(total.get(), count), storage, mask)


def _write_argmax(k: Emitter, op: str, storage: Storage, index: Storage) -> None:
    """The first place of the largest (smallest) element; the first NaN when there is one."""
    source, target, outer, count = k.pointer(0), k.pointer(1), k.integer(2), k.integer(3)
    largest = op == "argmax"
    start = k.constant(_extreme(storage, largest), vector(storage.compute, LANES))
    numbers = k.lanes_constant(list(range(LANES)), I32)

    def better(a: Value, b: Value) -> Value:
        """Whether a beats b outright."""
        beats = a.compare(">" if largest else "<", b, storage.signed)
        return beats | (a.isnan() & (b.isnan() ^ 1)) if storage.is_float else beats

    low, high = k.share(outer)
    with k.loop(low, high) as row:
        best, place = k.variable(start), k.variable(k.constant(-1, vector(I32, LANES)))

        def step(i: Value, mask: Value | None, row: Value = row) -> None:
            values = k.load(source, row * count + i, storage, LANES, mask)
            wins = better(values, best.get()) | place.get().equals(-1)
            wins = wins if mask is None else wins & mask
            best.set(k.select(wins, values, best.get()))
            place.set(k.select(wins, numbers + k.splat(i.convert(I32), LANES), place.get()))

        full = count // LANES * LANES
        with k.loop(0, full, LANES) as i:
            step(i, None)
        with k.when(full < count):
            step(full, k.first_lanes(count - full))
        value, where = best.get().lane(0), place.get().lane(0)
        for lane in range(1, LANES):
            other, there = best.get().lane(lane), place.get().lane(lane)
            tie = (better(value, other) ^ 1) & there.compare("<", where, signed=False)
            wins = (better(other, value) | tie) & there.differs(-1)
            value, where = k.select(wins, other, value), k.select(wins, there, where)
        k.store(target, row, where.convert(index.compute, signed=False), index)


def _split(shape: tuple[int, ...], axes: tuple[int, ...] | None) -> tuple[int, int, int] | None:
    """(outer, count, inner) of a reduction over neighbouring axes, else None."""
    rank = len(shape)
    axes = tuple(range(rank)) if axes is None else tuple(sorted(a % rank for a in axes))
    if not axes or axes != tuple(range(axes[0], axes[-1] + 1)):
        return None
    return math.prod(shape[: axes[0]]), math.prod(shape[axes[0] : axes[-1] + 1]), math.prod(shape[axes[-1] + 1 :])


def _reduction(op: str) -> Callable[[list, list, Any], Selection | None]:
    def select(reads: list, writes: list, params: Any) -> Selection | None:
        x, out = reads[0].layout, writes[0].layout
        storage, split = STORAGES.get(x.dtype.name), _split(x.shape, params.axes)
        if storage is None or split is None or not x.contiguous or not out.contiguous or out.dtype.name != x.dtype.name:
            return None
        if op in ("sum", "mean") and (storage is BOOL or (op == "mean" and storage.compute != FLOAT)):
            return None
        outer, count, inner = split
        if count == 0 and op != "sum":
            return None
        write, form = (_write_rows, "rows") if inner == 1 else (_write_columns, "columns")
        kernel = library.compiled(f"{op}_{form}_{storage.name}", lambda k: write(k, op, storage), f"{op}_{form}")
        shares = min(x.size // _PART_ELEMENTS, outer if inner == 1 else outer * (-(-inner // LANES)))
        return kernel, shares, (outer, count) if inner == 1 else (outer, count, inner)

    return select


def _arg_reduction(op: str) -> Callable[[list, list, Any], Selection | None]:
    def select(reads: list, writes: list, params: Any) -> Selection | None:
        x, out = reads[0].layout, writes[0].layout
        storage, index = STORAGES.get(x.dtype.name), STORAGES.get(out.dtype.name)
        axes = None if params.axis is None else (params.axis,)
        split = _split(x.shape, axes)
        if (
            storage is None
            or split is None
            or not x.contiguous
            or not out.contiguous
            or index is None
            or index.is_float
        ):
            return None
        outer, count, inner = split
        if inner != 1 or count == 0 or count >= 1 << 31:
            return None
        kernel = library.compiled(
            f"{op}_{storage.name}_{index.name}", lambda k: _write_argmax(k, op, storage, index), op
        )
        return kernel, min(x.size // _PART_ELEMENTS, outer), (outer, count)

    return select


ROUTES = {op: _reduction(op) for op in ("sum", "mean", "max", "min")}
ROUTES |= {op: _arg_reduction(op) for op in ("argmax", "argmin")}
