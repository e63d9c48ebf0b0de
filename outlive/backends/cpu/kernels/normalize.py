"""Kernels over the rows of the last axis: softmax, rms_norm, layer_norm. Float32 inside, rounded once.

Row sums are those of reduce.py: they depend on the row alone.
"""

from __future__ import annotations

import math as host_math
from collections.abc import Callable
from typing import Any

from outlive.backends.cpu.abi import Selection, float_word
from outlive.backends.cpu.kernels import library, math
from outlive.backends.cpu.kernels.emit import DOUBLE, F32, FLOAT, LANES, STORAGES, Emitter, Storage, Value
from outlive.backends.cpu.kernels.reduce import row_maximum, row_sum

_PART_ELEMENTS = 4096


def _each(k: Emitter, count: Value, step) -> None:
    """Calls `step(index, mask)` over a row, LANES elements at a time."""
    full = count // LANES * LANES
    with k.loop(0, full, LANES) as i:
        step(i, None)
    with k.when(full < count):
        step(full, k.first_lanes(count - full))


def _write_softmax(k: Emitter, storage: Storage) -> None:
    """exp(x - max) / sum exp(x - max); float32 keeps the exponentials in the output between the two passes."""
    source, target, rows, count = k.pointer(0), k.pointer(1), k.integer(2), k.integer(3)
    low, high = k.share(rows)
    keep = storage is F32
    with k.loop(low, high) as row:
        start = row * count

        def load(i: Value, mask: Value | None, start: Value = start) -> Value:
            return k.load(source, start + i, storage, LANES, mask)

        largest = row_maximum(k, count, load, storage)

        def power(i: Value, mask: Value | None, start: Value = start, largest: Value = largest) -> Value:
            result = math.exp(k, load(i, mask, start) - largest)
            if keep:
                k.store(target, start + i, result, F32, mask)
            return result

        total = 1.0 / row_sum(k, count, power)
        factor = total.convert(FLOAT)

        def finish(i: Value, mask: Value | None, start: Value = start, factor: Value = factor) -> None:
            value = k.load(target, start + i, F32, LANES, mask) if keep else power(i, mask, start)
            k.store(target, start + i, value * factor, storage, mask)

        _each(k, count, finish)


def _write_rms_norm(k: Emitter, storage: Storage, weight_type: Storage | None) -> None:
    """weight * x / sqrt(mean(x^2) + eps)."""
    arguments = iter(range(8))
    source = k.pointer(next(arguments))
    weight = k.pointer(next(arguments)) if weight_type else None
    target = k.pointer(next(arguments))
    rows, count, eps = k.integer(next(arguments)), k.integer(next(arguments)), k.number(next(arguments))
    low, high = k.share(rows)
    with k.loop(low, high) as row:
        start = row * count

        def square(i: Value, mask: Value | None, start: Value = start) -> Value:
            value = k.load(source, start + i, storage, LANES, mask)
            return value * value

        mean = (row_sum(k, count, square) / k.convert(count, DOUBLE)).convert(FLOAT)
        factor = math.rsqrt(k, mean + eps)

        def finish(i: Value, mask: Value | None, start: Value = start, factor: Value = factor) -> None:
            value = k.load(source, start + i, storage, LANES, mask) * factor
            if weight is not None and weight_type is not None:
                value = value * k.load(weight, i, weight_type, LANES, mask)
            k.store(target, start + i, value, storage, mask)

        _each(k, count, finish)


def _write_layer_norm(k: Emitter, storage: Storage, weight_type: Storage | None, bias_type: Storage | None) -> None:
    """weight * (x - mean) / sqrt(variance + eps) + bias, the variance from the deviations."""
    arguments = iter(range(9))
    source = k.pointer(next(arguments))
    weight = k.pointer(next(arguments)) if weight_type else None
    bias = k.pointer(next(arguments)) if bias_type else None
    target = k.pointer(next(arguments))
    rows, count, eps = k.integer(next(arguments)), k.integer(next(arguments)), k.number(next(arguments))
    size = k.convert(count, DOUBLE)
    low, high = k.share(rows)
    with k.loop(low, high) as row:
        start = row * count

        def load(i: Value, mask: Value | None, start: Value = start) -> Value:
            return k.load(source, start + i, storage, LANES, mask)

        mean = (row_sum(k, count, load) / size).convert(FLOAT)

        def deviation(i: Value, mask: Value | None, start: Value = start, mean: Value = mean) -> Value:
            value = load(i, mask, start) - mean
            return value * value

        factor = math.rsqrt(k, (row_sum(k, count, deviation) / size).convert(FLOAT) + eps)

        def finish(
            i: Value, mask: Value | None, start: Value = start, mean: Value = mean, factor: Value = factor
        ) -> None:
            value = (load(i, mask, start) - mean) * factor
            if weight is not None and weight_type is not None:
                value = value * k.load(weight, i, weight_type, LANES, mask)
            if bias is not None and bias_type is not None:
                value = value + k.load(bias, i, bias_type, LANES, mask)
            k.store(target, start + i, value, storage, mask)

        _each(k, count, finish)


def _float32_storage(layout) -> Storage | None:
    storage = STORAGES.get(layout.dtype.name)
    return storage if storage is not None and storage.compute == FLOAT else None


def _rows(x, out) -> tuple[Storage, int, int] | None:
    """(type, rows, elements of a row) where both are contiguous and of one float type, else None."""
    storage = _float32_storage(x)
    if storage is None or not x.shape or not x.contiguous or not out.contiguous or out.dtype.name != storage.name:
        return None
    return storage, host_math.prod(x.shape[:-1]), x.shape[-1]


def _parts(rows: int, count: int) -> int:
    return min(rows * count // _PART_ELEMENTS, rows)


def _select_softmax(reads: list, writes: list, params: Any) -> Selection | None:
    known, rank = _rows(reads[0].layout, writes[0].layout), len(reads[0].layout.shape)
    if known is None or tuple(a % rank for a in params.axes) != (rank - 1,):
        return None
    storage, rows, count = known
    kernel = library.compiled(f"softmax_{storage.name}", lambda k: _write_softmax(k, storage), "softmax")
    return kernel, _parts(rows, count), (rows, count)


def _select_norm(op: str, write: Callable[..., None], parameters: int) -> Callable[..., Selection | None]:

    def select(reads: list, writes: list, params: Any) -> Selection | None:
        known = _rows(reads[0].layout, writes[0].layout)
        if known is None:
            return None
        storage, rows, count = known
        types = []
        for n in range(1, 1 + parameters):
            given = reads[n].layout if len(reads) > n and reads[n] is not None else None
            types.append(None if given is None else _float32_storage(given))
            if given is not None and (types[-1] is None or given.shape != (count,) or not given.contiguous):
                return None
        name = "_".join((op, storage.name, *("none" if t is None else t.name for t in types)))
        kernel = library.compiled(name, lambda k: write(k, storage, *types), op)
        return kernel, _parts(rows, count), (rows, count, float_word(params.eps))

    return select


ROUTES = {
    "softmax": _select_softmax,
    "rms_norm": _select_norm("rms_norm", _write_rms_norm, 1),
    "layer_norm": _select_norm("layer_norm", _write_layer_norm, 2),
}
