"""Routes of products with affine quantized weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from outlive.backends.cuda.cublas import Product
from outlive.backends.cuda.kernels.dense import product, product_shape
from outlive.backends.cuda.kernels.rows import FLOAT32_TYPES, POINTERS, block_of, compiled, divisible, launch
from outlive.backends.cuda.launches import Native, NativeLaunch, Place
from outlive.runtime.builtin import Workspaced
from outlive.runtime.layout import layout, strided_layout

if TYPE_CHECKING:
    from outlive.backends.cuda.kernels import Library
    from outlive.backends.cuda.queue import Queue

FEW_ROWS = 16
"""Up to so many rows share one order of summation; more are multiplied as dense matrices, weights rounded once to the
type of x.
"""


class Dequantized(Workspaced, Native):
    """Weights made dense in scratch memory, then a dense product over them."""

    __slots__ = ("bytes", "dequantize", "product")
    route_name = "compiled kernel, then cuBLAS"

    def __init__(self, dequantize: NativeLaunch, product: Product, nbytes: int) -> None:
        self.dequantize = dequantize
        self.product = product
        self.bytes = -(-nbytes // 512) * 512
        self.workspace = self.bytes + product.workspace

    def words(self, queue: Queue, record: Any) -> list[int]:
        x, *weights = record[2]
        out, scratch = record[3]
        rest = Place(scratch.pointer + self.bytes)
        made = self.dequantize.words(queue, (None, None, tuple(weights), (scratch,), None))
        return made + self.product.words(queue, (None, None, (x, scratch), (out, rest), None))


def select_product(library: Library, kernel: Any, reads: Any, writes: Any) -> Any:
    """x (..., depth) with one dense matrix of affine weights; other modes are served otherwise."""
    if kernel.mode != "affine" or len(reads) != 4:
        return None
    x, w, scales, biases = [o.layout for o in reads]
    out = writes[0].layout
    floats = all(s.contiguous and s.dtype.name in FLOAT32_TYPES for s in (x, scales, biases, out))
    if not floats or x.dtype is not out.dtype or w.ndim != 2 or not w.contiguous or not x.ndim or not x.shape[-1]:
        return None
    depth, columns = x.shape[-1], out.shape[-1]
    packed = depth if kernel.transpose else columns
    if w.shape[0] != (columns if kernel.transpose else depth) or w.shape[1] * 32 != packed * kernel.bits:
        return None
    rows = x.size // depth
    if rows > FEW_ROWS:
        return _dense_product(library, kernel, [o.layout for o in reads], out, rows)
    return _few_rows(library, kernel, [o.layout for o in reads], out, rows)


def _few_rows(library: Library, kernel: Any, layouts: list[Any], out: Any, rows: int) -> NativeLaunch | None:
    x, w = layouts[:2]
    depth, columns = x.shape[-1], out.shape[-1]
    numbers = {"columns": columns, "depth": depth, "row_words": w.shape[1], "row_groups": layouts[2].shape[1]}
    constants: dict[str, Any] = {"BITS": kernel.bits, "GROUP": kernel.group_size}
    if kernel.transpose and 32 % kernel.bits == 0:
        at_once = 1 if rows == 1 else 4
        words = min(128, max(32, block_of(w.shape[1], 128)))
        constants |= {"ROWS": at_once, "BLOCK_N": 512 // words, "BLOCK_W": words}
        numbers = {"rows": rows, **numbers}
        name, grid = "product_vector", (-(-columns * words // 512), -(-rows // at_once), 1)
    else:
        blocks = {"BLOCK_N": 8, "BLOCK_K": 128} if kernel.transpose else {"BLOCK_N": 32, "BLOCK_K": 32}
        constants |= {"TRANSPOSE": bool(kernel.transpose), **blocks}
        name, grid = "product_rows", (-(-columns // blocks["BLOCK_N"]), rows, 1)
    return _launch(
        library, name, [*layouts, out], ["p_x", "p_w", "p_scales", "p_biases", "p_out"], numbers, constants, grid
    )


def _dense_product(library: Library, kernel: Any, layouts: list[Any], out: Any, rows: int) -> Dequantized | None:
    x, w, scales, biases = layouts
    packed = scales.shape[1] * kernel.group_size
    weights = layout((w.shape[0], packed), x.dtype)
    seen = strided_layout((packed, w.shape[0]), (1, packed), x.dtype) if kernel.transpose else weights
    shape = product_shape(layout((rows, x.shape[-1]), x.dtype), seen, layout((rows, out.shape[-1]), x.dtype))
    whole = 32 % kernel.bits == 0
    numbers = {"words": w.size} if whole else {
        "count": weights.size, "row_words": w.shape[1], "row_groups": scales.shape[1], "row_elements": packed,
    }  # fmt: skip
    constants = {"BITS": kernel.bits, "GROUP": kernel.group_size, "BLOCK": 256 if whole else 1024}
    grid = (-(-(w.size if whole else weights.size) // constants["BLOCK"]), 1, 1)
    name = "dequantized_words" if whole else "dequantized"
    made = _launch(
        library, name, [w, scales, biases, weights], ["p_w", "p_scales", "p_biases", "p_out"], numbers, constants, grid
    )
    if made is None or shape is None:
        return None
    return Dequantized(made, product(library, shape, x.dtype.name), weights.nbytes)


def _launch(
    library: Library,
    name: str,
    layouts: list[Any],
    pointers: list[str],
    numbers: dict[str, int],
    constants: dict[str, Any],
    grid: Any,
) -> NativeLaunch | None:
    """Addresses are taken as they come: the words of a matrix are read one by one, so alignment gains nothing here."""
    arguments = {p: POINTERS[s.dtype.name] for p, s in zip(pointers, layouts, strict=True)}
    arguments |= dict.fromkeys(numbers, "i64" if max(numbers.values()) >= 1 << 31 else "i32") | dict.fromkeys(
        constants, "constexpr"
    )
    source = compiled("quantized", name, arguments, constants, divisible(False, [], **numbers), 4)
    return launch(library, source, grid, len(pointers), tuple(numbers.values()))


ROUTES = {"quantized_matmul": select_product}
