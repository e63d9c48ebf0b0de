"""Routes of products with affine quantized weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from outlive.backends.cuda.kernels.rows import FLOAT32_TYPES, POINTERS, block_of, compiled, divisible, launch
from outlive.backends.cuda.launches import NativeLaunch

if TYPE_CHECKING:
    from outlive.backends.cuda.kernels import Library

FEW_ROWS = 16
"""Up to so many rows share one order of summation."""


def select_product(library: Library, kernel: Any, reads: Any, writes: Any, aligned: bool) -> NativeLaunch | None:
    """x (..., depth) with one dense matrix of affine weights; other modes are served otherwise."""
    if kernel.mode != "affine" or len(reads) != 4:
        return None
    x, w, scales, biases = [o.layout for o in reads]
    out = writes[0].layout
    floats = all(s.contiguous and s.dtype.name in FLOAT32_TYPES for s in (x, scales, biases, out))
    if not floats or x.dtype is not out.dtype or w.ndim != 2 or not w.contiguous or not x.ndim or not x.shape[-1]:
        return None
    depth, columns = x.shape[-1], out.shape[-1]
    rows = x.size // depth
    packed = depth if kernel.transpose else columns
    if w.shape[0] != (columns if kernel.transpose else depth) or w.shape[1] * 32 != packed * kernel.bits:
        return None
    constants: dict[str, Any] = {"BITS": kernel.bits, "GROUP": kernel.group_size, "TRANSPOSE": bool(kernel.transpose)}
    numbers = {"columns": columns, "depth": depth, "row_words": w.shape[1], "row_groups": packed // kernel.group_size}
    if rows <= FEW_ROWS:
        wide = block_of(depth, 256)
        constants |= {"BLOCK_N": 8, "BLOCK_K": wide} if kernel.transpose else {"BLOCK_N": 32, "BLOCK_K": 32}
        return _launch(library, "product_rows", kernel, reads, out, constants, numbers, (-(-columns // constants["BLOCK_N"]), rows, 1), aligned)
    tile = 64 if x.dtype.name != "float32" else 32
    constants |= {"BLOCK_M": tile, "BLOCK_N": tile, "BLOCK_K": 64 if x.dtype.name != "float32" else 32}
    grid = (-(-columns // tile), -(-rows // tile), 1)
    return _launch(library, "product_tiles", kernel, reads, out, constants, {"rows": rows, **numbers}, grid, aligned)


def _launch(
    library: Library, name: str, kernel: Any, reads: Any, out: Any, constants: dict[str, Any], numbers: dict[str, int], grid: Any, aligned: bool
) -> NativeLaunch | None:
    pointers = ["p_x", "p_w", "p_scales", "p_biases", "p_out"]
    arguments = {p: POINTERS[o.dtype.name] for p, o in zip(pointers, [*[r.layout for r in reads], out], strict=True)}
    arguments |= dict.fromkeys(numbers, "i64") | dict.fromkeys(constants, "constexpr")
    source = compiled("quantized", name, arguments, constants, divisible(aligned, pointers, **numbers), 4)
    return launch(library, source, grid, 5, tuple(numbers.values()))


ROUTES = {"quantized_matmul": select_product}
