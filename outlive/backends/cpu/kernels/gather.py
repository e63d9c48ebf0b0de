"""Rows by index, and quantized rows made float: what an embedding needs."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from llvmlite import ir

from outlive.backends.cpu.abi import Selection
from outlive.backends.cpu.kernels import library
from outlive.backends.cpu.kernels.emit import FLOAT, I1, I32, I64, LANES, STORAGES, Emitter, Storage, Value
from outlive.backends.cpu.kernels.quantized_float import BITS, GROUPS, Geometry

INDEX_OUT_OF_RANGE = 1
_INDEX_TYPES = ("int32", "uint32", "int64")
_PART_BYTES = 1 << 17


def copy_bytes(k: Emitter, target: Value, source: Value, count: Value) -> None:
    """Copies `count` bytes between places that do not overlap."""
    k.call("llvm.memcpy.p0.p0.i64", ir.VoidType(), [target, source, count, Value(k, ir.Constant(I1, 0))])


def _write_take(k: Emitter, index: Storage) -> None:
    """out[o, i, :] = source[o, index[i], :], rows of `row_bytes`. Negative indices count from the end; others outside
    the axis fail the record before anything of theirs is read.
    """
    source, indices, target = (k.pointer(n) for n in range(3))
    outer, size, count, row_bytes = (k.integer(3 + n) for n in range(4))
    low, high = k.share(outer * count)
    with k.loop(low, high) as item:
        o, i = item // count, item % count
        wanted = k.load(indices, i, index).convert(I64, index.signed)
        wanted = k.select(wanted < 0, wanted + size, wanted)
        k.fail((wanted < 0) | (wanted >= size), INDEX_OUT_OF_RANGE)
        copy_bytes(
            k, k.address(target, item * row_bytes), k.address(source, (o * size + wanted) * row_bytes), row_bytes
        )


def _select_take(reads: list, writes: list, params: Any) -> Selection | None:
    source, indices, out = reads[0].layout, reads[1].layout, writes[0].layout
    storage, index = STORAGES.get(source.dtype.name), STORAGES.get(indices.dtype.name)
    if (
        storage is None
        or index is None
        or indices.dtype.name not in _INDEX_TYPES
        or params.axis is None
        or not source.shape
    ):
        return None
    if not (source.contiguous and indices.contiguous and out.contiguous) or out.dtype.name != source.dtype.name:
        return None
    axis = params.axis % len(source.shape)
    outer, size = math.prod(source.shape[:axis]), source.shape[axis]
    row_bytes = math.prod(source.shape[axis + 1 :]) * storage.bytes
    kernel = library.compiled(f"take_{indices.dtype.name}", lambda k: _write_take(k, index), "copy")
    kernel = replace(kernel, failure=f"an index is out of range for axis {axis} with size {size}")
    shares = min(outer * indices.size, outer * indices.size * row_bytes // _PART_BYTES)
    return kernel, shares, (outer, size, indices.size, row_bytes)


def _write_dequantize(k: Emitter, g: Geometry, scale: Storage, out: Storage) -> None:
    """scale * q + bias in float32, rounded once."""
    words, scales, biases, target = (k.pointer(n) for n in range(4))
    groups = k.integer(4)
    low, high = k.share(groups)
    with k.loop(low, high) as group:
        s, b = (k.splat(k.load(p, group, scale), LANES) for p in (scales, biases))
        for first in range(0, g.group, LANES):
            # 16 neighbouring elements: a word holds `per_word` of them, so each lane picks its word and its shift
            if g.bits == 2:
                packed = k.splat(
                    k.load(words, group * (g.group // g.per_word) + first // g.per_word, STORAGES["int32"]), LANES
                )
            else:
                held = LANES // g.per_word
                packed = k.load(words, group * (g.group // g.per_word) + first // g.per_word, STORAGES["int32"], held)
                packed = packed.shuffle([lane // g.per_word for lane in range(LANES)])
            shifts = k.lanes_constant([g.bits * (lane % g.per_word) for lane in range(LANES)], I32)
            q = ((packed >> shifts) & ((1 << g.bits) - 1)).convert(FLOAT)
            k.store(target, group * g.group + first, k.fma(s, q, b), out)


def _select_dequantize(reads: list, writes: list, params: Any) -> Selection | None:
    if params.mode != "affine" or params.bits not in BITS or params.group_size not in GROUPS or len(reads) < 3:
        return None
    w, scales, biases, out = (x.layout for x in (*reads[:3], writes[0]))
    scale, target = STORAGES.get(scales.dtype.name), STORAGES.get(out.dtype.name)
    if (
        scale is None
        or target is None
        or scale.compute != FLOAT
        or target.compute != FLOAT
        or biases.dtype.name != scales.dtype.name
    ):
        return None
    if not all(x.contiguous for x in (w, scales, biases, out)):
        return None
    g = Geometry(params.bits, params.group_size)
    kernel = library.compiled(
        f"dequantize_{g.bits}b{g.group}_{scale.name}_{target.name}",
        lambda k: _write_dequantize(k, g, scale, target),
        "dequantize",
    )
    return kernel, out.size // 32768, (scales.size,)


ROUTES = {"take": _select_take, "dequantize": _select_dequantize}
