"""Routes of products with affine quantized weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from outlive.backends.cuda.cublas import Product
from outlive.backends.cuda.kernels import elementwise
from outlive.backends.cuda.kernels.build import TritonKernel
from outlive.backends.cuda.kernels.dense import product, product_shape
from outlive.backends.cuda.kernels.rows import FLOAT32_TYPES, POINTERS, block_of, compiled, divisible, launch
from outlive.backends.cuda.launches import Native, NativeLaunch, Place, Seen, Steps, of_launch
from outlive.runtime.builtin import COPY, Workspaced
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


def select_product(library: Library, kernel: Any, reads: Any, writes: Any, aligned: bool) -> Any:
    """x (..., depth) with one dense matrix of affine weights; other modes are served otherwise."""
    if kernel.mode != "affine" or len(reads) != 4:
        return None
    x, w, scales, biases = layouts = [o.layout for o in reads]
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
        return _dense_product(library, kernel, layouts, out, rows)
    if kernel.transpose and 32 % kernel.bits == 0:
        return _vector(library, kernel, layouts, out, rows, aligned)
    numbers = {"columns": columns, "depth": depth, "row_words": w.shape[1], "row_groups": scales.shape[1]}
    blocks = {"BLOCK_N": 8, "BLOCK_K": 128} if kernel.transpose else {"BLOCK_N": 32, "BLOCK_K": 32}
    constants = {"BITS": kernel.bits, "GROUP": kernel.group_size, "TRANSPOSE": bool(kernel.transpose), **blocks}
    operands = dict(zip(("p_x", "p_w", "p_scales", "p_biases", "p_out"), (*layouts, out), strict=True))
    source = _source("product_rows", operands, numbers, constants, aligned)
    return launch(library, source, (-(-columns // blocks["BLOCK_N"]), rows, 1), 5, tuple(numbers.values()))


def _vector(library: Library, kernel: Any, layouts: list[Any], out: Any, rows: int, aligned: bool) -> Steps | None:
    """Two kernels: x turned into planes in scratch memory, then the product."""
    x, w, scales, biases = layouts
    each, columns = 32 // kernel.bits, out.shape[-1]
    turned = Seen(strided_layout((rows, each, w.shape[1]), (x.shape[-1], 1, each), x.dtype))
    planes = Seen(layout((rows, each, w.shape[1]), x.dtype))
    turning = elementwise.find(library, COPY, (turned,), (planes,))
    at_once = 1 if rows == 1 else 4
    block = min(128, max(32, block_of(w.shape[1], 128)))
    constants = {
        "BITS": kernel.bits, "GROUP": kernel.group_size, "ROWS": at_once, "BLOCK_N": 512 // block, "BLOCK_W": block,
    }  # fmt: skip
    numbers = {"rows": rows, "columns": columns, "row_words": w.shape[1], "row_groups": scales.shape[1]}
    operands = {"p_planes": x, "p_w": w, "p_scales": scales, "p_biases": biases, "p_out": out}
    source = _source("product_vector", operands, numbers, constants, aligned)
    grid = (-(-columns // constants["BLOCK_N"]), -(-rows // at_once), 1)
    made = launch(library, source, grid, 5, tuple(numbers.values()))
    if turning is None or made is None:
        return None
    return Steps(x.nbytes, [of_launch(turning, (0, 5)), of_launch(made, (5, 1, 2, 3, 4))])


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
    operands = {"p_w": w, "p_scales": scales, "p_biases": biases, "p_out": weights}
    source = _source(name, operands, numbers, constants, False)
    made = launch(library, source, grid, len(operands), tuple(numbers.values()))
    if made is None or shape is None:
        return None
    return Dequantized(made, product(library, shape, x.dtype.name), weights.nbytes)


def _source(
    name: str, operands: dict[str, Any], numbers: dict[str, int], constants: dict[str, Any], aligned: bool
) -> TritonKernel:
    arguments = {pointer: POINTERS[s.dtype.name] for pointer, s in operands.items()}
    arguments |= dict.fromkeys(numbers, "i64" if max(numbers.values()) >= 1 << 31 else "i32")
    arguments |= dict.fromkeys(constants, "constexpr")
    return compiled("quantized", name, arguments, constants, divisible(aligned, list(operands), **numbers), 4)


ROUTES = {"quantized_matmul": select_product}
