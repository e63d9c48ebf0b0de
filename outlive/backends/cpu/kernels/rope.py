"""Rotary position embedding: pairs of the first `dims` elements of a row turn by position * scale * base^(-2i / dims).

Pairs are (i, i + dims / 2), or (2i, 2i + 1) in the traditional form. Angles are computed in float64, their sines
and cosines in float32. x is (..., batch, heads, positions, width) with any strides but neighbouring elements of a
row.
"""

from __future__ import annotations

import math as host_math
from typing import Any

from outlive.backends.cpu.abi import Selection, float_word
from outlive.backends.cpu.kernels import library, math
from outlive.backends.cpu.kernels.emit import DOUBLE, F32, FLOAT, I32, I64, LANES, STORAGES, Emitter, Storage, Value

_FLOAT64 = STORAGES["float64"]
_PART_ELEMENTS = 8192


def _frequencies(k: Emitter, half: Value, log_base: Value, scale: Value, table: Value, freqs: Value | None) -> None:
    """Radians a position, float64, of each pair; zero in the lanes beyond."""
    with k.loop(0, half, LANES) as first:
        numbers = k.lanes_constant(list(range(LANES))) + k.splat(first.convert(I32), LANES)
        mask = k.first_lanes(half - first)
        if freqs is None:
            exponent = numbers.convert(DOUBLE) * (-(log_base / half.convert(DOUBLE)))
            rate = k.intrinsic("exp", exponent) * scale
        else:
            rate = k.splat(scale, LANES) / k.load(freqs, first, F32, LANES, mask).convert(DOUBLE)
        k.store(table, first, k.select(mask, rate, 0.0), _FLOAT64)


def _turn(k: Emitter, a: Value, b: Value, sine: Value, cosine: Value) -> tuple[Value, Value]:
    return k.fma(a, cosine, -(b * sine)), k.fma(a, sine, b * cosine)


def _write_row(
    k: Emitter,
    storage: Storage,
    traditional: bool,
    source: Value,
    target: Value,
    half: Value,
    width: Value,
    sines: Value,
    cosines: Value,
) -> None:
    evens, odds = list(range(0, 2 * LANES, 2)), list(range(1, 2 * LANES, 2))
    woven = [n // 2 + LANES * (n % 2) for n in range(2 * LANES)]
    with k.loop(0, half, LANES) as i:
        mask = k.first_lanes(half - i)
        sine, cosine = k.load(sines, i, F32, LANES), k.load(cosines, i, F32, LANES)
        if traditional:
            pairs = k.first_lanes((half - i) * 2, 2 * LANES)
            both = k.load(source, i * 2, storage, 2 * LANES, pairs)
            a, b = _turn(k, both.shuffle(evens), both.shuffle(odds), sine, cosine)
            k.store(target, i * 2, a.shuffle(woven, b), storage, pairs)
        else:
            a, b = _turn(
                k, k.load(source, i, storage, LANES, mask), k.load(source, half + i, storage, LANES, mask), sine, cosine
            )
            k.store(target, i, a, storage, mask)
            k.store(target, half + i, b, storage, mask)
    with k.loop(half * 2, width, LANES) as i:
        mask = k.first_lanes(width - i)
        k.store(target, i, k.load(source, i, storage, LANES, mask), storage, mask)


def _write_rope(k: Emitter, storage: Storage, traditional: bool, with_freqs: bool, offset_type: Storage) -> None:
    arguments = iter(range(32))
    source, offsets = k.pointer(next(arguments)), k.pointer(next(arguments))
    freqs = k.pointer(next(arguments)) if with_freqs else None
    target = k.pointer(next(arguments))
    batch, heads, length, width, half, offset_stride = (k.integer(next(arguments)) for _ in range(6))
    from_b, from_h, from_l, to_b, to_h, to_l = (k.integer(next(arguments)) for _ in range(6))
    log_base, scale = (k.integer(next(arguments)).bitcast(DOUBLE) for _ in range(2))
    padded = (half + (LANES - 1)) // LANES * LANES
    table, sines, cosines = k.scratch(padded * 8), k.scratch(padded * 4), k.scratch(padded * 4)
    _frequencies(k, half, log_base, scale, table, freqs)
    low, high = k.share(batch * length)
    with k.loop(low, high) as item:
        b, position = item // length, item % length
        offset = k.load(offsets, b * offset_stride, offset_type).convert(I64)
        at = k.splat((position + offset).convert(DOUBLE), LANES)
        with k.loop(0, half, LANES) as i:
            sine, cosine = math.sin_cos(k, k.load(table, i, _FLOAT64, LANES) * at)
            k.store(sines, i, sine, F32)
            k.store(cosines, i, cosine, F32)
        with k.loop(0, heads) as h:
            row = k.address(source, b * from_b + h * from_h + position * from_l, storage.bytes)
            out = k.address(target, b * to_b + h * to_h + position * to_l, storage.bytes)
            _write_row(k, storage, traditional, row, out, half, width, sines, cosines)


def _three(layout) -> tuple[tuple[int, int, int], tuple[int, int, int]] | None:
    """Sizes and strides of (batch, heads, positions): four dimensions as they are, three as (batch, 1, positions)."""
    shape, strides = layout.shape, layout.strides
    if len(shape) == 4:
        return shape[:3], strides[:3]
    if len(shape) == 3:
        return (shape[0], 1, shape[1]), (strides[0], 0, strides[1])
    return None


def _select_rope(reads: list, writes: list, params: Any) -> Selection | None:
    x, offset, out = reads[0].layout, reads[1].layout, writes[0].layout
    freqs = reads[2].layout if len(reads) > 2 and reads[2] is not None else None
    storage, offset_type = STORAGES.get(x.dtype.name), STORAGES.get(offset.dtype.name)
    source, target = _three(x), _three(out)
    if storage is None or storage.compute != FLOAT or offset_type is None or offset_type.name not in ("int32", "int64"):
        return None
    if (
        source is None
        or target is None
        or x.strides[-1] != 1
        or out.strides[-1] != 1
        or params.dims % 2
        or params.dims > x.shape[-1]
    ):
        return None
    (batch, heads, length), width, half = source[0], x.shape[-1], params.dims // 2
    if offset.size not in (1, batch) or (
        freqs is not None and (freqs.dtype.name != "float32" or freqs.shape != (half,) or not freqs.contiguous)
    ):
        return None
    log_base = 0.0 if params.base is None else host_math.log(params.base)
    stride = (offset.strides[0] if offset.shape else 0) if offset.size > 1 else 0
    words = (
        batch,
        heads,
        length,
        width,
        half,
        stride,
        *source[1],
        *target[1],
        float_word(log_base),
        float_word(params.scale),
    )
    form = "traditional" if params.traditional else "halves"
    name = "_".join(("rope", form, storage.name, offset_type.name, "freqs" if freqs is not None else "base"))
    kernel = library.compiled(
        name, lambda k: _write_rope(k, storage, params.traditional, freqs is not None, offset_type), "rope"
    )
    return kernel, min(batch * length, x.size // _PART_ELEMENTS), words


ROUTES = {"rope": _select_rope}
