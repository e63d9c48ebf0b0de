"""A block written into an array at a start that is read when the kernel runs: how a key-value cache takes a token."""

from __future__ import annotations

import math
from typing import Any

from llvmlite import ir

from outlive.backends.cpu.abi import Selection
from outlive.backends.cpu.kernels import library
from outlive.backends.cpu.kernels.emit import I1, I64, STORAGES, Emitter, Storage, Value

_INDEX_TYPES = ("int32", "uint32", "int64")
_PART_BYTES = 1 << 17


def _write_slice_update(k: Emitter, index: Storage) -> None:
    """target[o, start : start + count, :] = update[o, :, :] for rows of `row_bytes`.

    A negative start counts from the end, and one from which the block would reach outside is moved back.
    """
    update, start, target = (k.pointer(n) for n in range(3))
    outer, size, count, row_bytes = (k.integer(3 + n) for n in range(4))
    first = k.load(start, 0, index).convert(I64, index.signed)
    first = k.select(first < 0, first + size, first)
    first = k.maximum(k.minimum(first, size - count), 0)
    block_bytes = count * row_bytes
    low, high = k.share(outer)
    with k.loop(low, high) as o:
        place = k.address(target, (o * size + first) * row_bytes)
        source = k.address(update, o * block_bytes)
        k.call("llvm.memcpy.p0.p0.i64", ir.VoidType(), [place, source, block_bytes, Value(k, ir.Constant(I1, 0))])


def _select_slice_update(reads: list, writes: list, params: Any) -> Selection | None:
    update, start, out = reads[0].layout, reads[1].layout, writes[0].layout
    storage, index = STORAGES.get(out.dtype.name), STORAGES.get(start.dtype.name)
    if (
        storage is None
        or index is None
        or start.dtype.name not in _INDEX_TYPES
        or len(params.axes) != 1
        or not out.size
    ):
        return None
    if not (update.contiguous and out.contiguous) or update.dtype.name != out.dtype.name:
        return None
    axis = params.axes[0]
    whole = [n for n, length in enumerate(out.shape) if n != axis and update.shape[n] == length]
    if len(whole) != len(out.shape) - 1:
        return None
    outer, row_bytes = math.prod(out.shape[:axis]), math.prod(out.shape[axis + 1 :]) * storage.bytes
    kernel = library.compiled(f"slice_update_{start.dtype.name}", lambda k: _write_slice_update(k, index), "copy")
    shares = min(outer, update.size * storage.bytes // _PART_BYTES)
    return kernel, shares, (outer, out.shape[axis], update.shape[axis], row_bytes)


ROUTES = {"dynamic_slice_update": _select_slice_update}
