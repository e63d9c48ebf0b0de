"""Routes of products with quantized weights, x @ w^T: which order and which registers a call takes.

A format has one order class, whatever a call's number of rows and the processor's registers: on x86-64 `q_groups` for
affine weights of 2, 4 and 8 bits (elsewhere `q_float`) and for E2M1 weights, and `q_values` for every other format.
"""

from __future__ import annotations

from typing import Any

from outlive.backends.cpu.abi import SHARE_PER_THREAD, Selection
from outlive.backends.cpu.features import features
from outlive.backends.cpu.kernels import library
from outlive.backends.cpu.kernels.emit import FLOAT, LANES, STORAGES, Storage
from outlive.backends.cpu.kernels.quantized_float import BITS, GROUPS, Geometry, write_float
from outlive.backends.cpu.kernels.quantized_panels import write_panels
from outlive.backends.cpu.kernels.quantized_planes import write_planes
from outlive.backends.cpu.kernels.quantized_tiles import DEPTH_MAX as TILE_DEPTH_MAX
from outlive.backends.cpu.kernels.quantized_tiles import tile_pass_rows, write_tiles
from outlive.backends.cpu.kernels.quantized_values import format_of
from outlive.backends.cpu.pool import thread_count

_SCRATCH_BYTES = 1 << 20
_PART_WORK = 1 << 16  # weights times rows that make a share worth its cost
_DEPTH_MAX = 1 << 17  # a row of x is prepared on the stack: about a megabyte at this length
ROWS_OF_TILES = 5  # from this number of rows on tiles are faster


def affine(reads: list, params: Any) -> tuple[int, int, Storage, Storage] | None:
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


def _fp4(reads: list, params: Any) -> tuple[Geometry, Storage, Storage] | None:
    """(geometry, x's type, scales' type) of a product with E2M1 weights in exact integers, else None."""
    x_type = STORAGES.get(reads[0].layout.dtype.name)
    if params.mode not in ("mxfp4", "nvfp4") or not features().avx2 or x_type is None or x_type.compute != FLOAT:
        return None
    f = format_of(reads, params)
    if f is None or not reads[0].layout.contiguous:
        return None
    return Geometry(f.bits, f.group, f.mode), x_type, f.scale


def _select_product(reads: list, writes: list, params: Any) -> Selection | None:
    x, w, out = reads[0].layout, reads[1].layout, writes[0].layout
    if not params.transpose or len(w.shape) != 2 or not out.contiguous or not x.shape:
        return None
    depth, columns = x.shape[-1], w.shape[0]
    if not 0 < depth <= _DEPTH_MAX or out.dtype.name != x.dtype.name:
        return None
    return select_rows(reads, params, x.size // depth, columns, depth)


def select_rows(reads: list, params: Any, rows: int, columns: int, depth: int) -> Selection | None:
    """The kernel of `rows` rows of x times one matrix of the weights; reads: x, words, scales, and biases."""
    known = affine(reads, params)
    if known is not None:
        bits, group, x_type, scale_type = known
        return _select_groups(Geometry(bits, group), x_type, scale_type, rows, columns, depth)
    fp4 = _fp4(reads, params)
    if fp4 is not None:
        return _select_groups(*fp4, rows, columns, depth)
    return _select_panels(reads, params, rows, columns, depth)


def _select_groups(g: Geometry, x_type: Storage, scale_type: Storage, rows: int, columns: int, depth: int) -> Selection:
    """The kernel in exact integers that suits rows and processor."""
    parts = rows * columns * depth // _PART_WORK
    # smaller groups than a vector of each subplane come in the one size that tiles know: 16 of two subplanes
    fits = depth <= TILE_DEPTH_MAX and (g.group >= LANES * g.subplanes or g.group == LANES)
    if rows >= ROWS_OF_TILES and features().amx and fits:
        kind, write, order = "q_tiles", write_tiles, "q_groups"
        row_tiles = -(-rows // LANES)
        by_columns = row_tiles < 2 * thread_count()
        parts = min(parts, -(-columns // LANES) if by_columns else row_tiles)
        words: tuple[int, ...] = (rows, columns, depth, tile_pass_rows(rows, depth), int(by_columns))
    else:
        kind, write, order = "q_float", write_float, "q_float"
        if features().avx2:
            kind, write, order = "q_planes", write_planes, "q_groups"
        parts = min(parts, columns)
        words = (rows, columns, depth, max(1, min(rows, _SCRATCH_BYTES // (4 * depth))))
    form = f"{'' if g.affine else g.mode}{g.bits}b{g.group}"
    name = f"{kind}_{form}_{x_type.name}_{scale_type.name}"
    kernel = library.compiled(name, lambda k: write(k, g, x_type, scale_type), f"{order}_{form}")
    return kernel, (SHARE_PER_THREAD | parts if parts > 1 else 0), words


def _select_panels(reads: list, params: Any, rows: int, columns: int, depth: int) -> Selection | None:
    f, x_type = format_of(reads, params), STORAGES.get(reads[0].layout.dtype.name)
    if f is None or x_type is None or x_type.compute != FLOAT or not reads[0].layout.contiguous:
        return None
    kernel = library.compiled(f"q_panels_{f.label}_{x_type.name}", lambda k: write_panels(k, f, x_type), "q_values")
    parts = min(rows * columns * depth // _PART_WORK, columns)
    words = (rows, columns, depth, max(1, min(rows, _SCRATCH_BYTES // (4 * depth))))
    return kernel, (SHARE_PER_THREAD | parts if parts > 1 else 0), words


ROUTES = {"quantized_matmul": _select_product}
