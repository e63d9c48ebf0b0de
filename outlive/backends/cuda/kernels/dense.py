"""Route of products of dense matrices: cuBLAS, batched by one stride, a few calls where batches need more."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from outlive.backends.cpu.kernels.layouts import merge
from outlive.backends.cuda.cublas import KINDS, OP_N, OP_T, SMALL_WORKSPACE_BYTES, WORKSPACE_BYTES, Product, Shape

if TYPE_CHECKING:
    from outlive.backends.cuda.kernels import Library

LIMIT_CALLS = 64


def select_matmul(library: Library, kernel: Any, reads: Any, writes: Any) -> Product | None:
    """a (..., m, k) times b (..., k, n), batch axes of one shape; every matrix needs one axis of stride 1."""
    a, b, out = reads[0].layout, reads[1].layout, writes[0].layout
    if (
        out.dtype.name not in KINDS
        or not a.dtype is b.dtype is out.dtype
        or min(a.ndim, b.ndim) < 2
        or not out.contiguous
        or not a.size
        or not b.size
    ):
        return None
    if a.shape[:-2] != out.shape[:-2] or b.shape[:-2] != out.shape[:-2]:
        return None
    shape = product_shape(a, b, out)
    if shape is None:
        return None
    return product(library, shape, out.dtype.name)


def product(library: Library, shape: Shape, dtype: str) -> Product:
    """The launch of a product."""
    workspace = WORKSPACE_BYTES if library.facts.capability >= (9, 0) else SMALL_WORKSPACE_BYTES
    return Product(library, KINDS[dtype], shape, workspace)


def product_shape(a: Any, b: Any, out: Any) -> Shape | None:
    """The product in cuBLAS's words; None where a matrix is strided in both axes or the batches need too many calls."""
    shape = Shape()
    m, k = a.shape[-2:]
    n = b.shape[-1]
    left, right = matrix(b, n), matrix(a, k)
    if left is None or right is None:
        return None
    shape.m, shape.n, shape.k = n, m, k
    shape.op_left, shape.ld_left = left
    shape.op_right, shape.ld_right = right
    shape.ld_out = n
    dims, steps = merge(out.shape[:-2], [b.strides[:-2], a.strides[:-2], out.strides[:-2]])
    outer = dims[:-1]
    if len(list(itertools.product(*map(range, outer)))) > LIMIT_CALLS:
        return None
    shape.batch = dims[-1] if dims else 1
    shape.step_left, shape.step_right, shape.step_out = (s[-1] for s in steps) if dims else (0, 0, 0)
    itemsize = out.dtype.itemsize
    shape.loops = tuple(
        tuple(itemsize * sum(i * s for i, s in zip(index, step[:-1], strict=True)) for step in steps)
        for index in itertools.product(*map(range, outer))
    )
    return shape


def matrix(layout: Any, columns: int) -> tuple[int, int] | None:
    """(operation, leading dimension) of a row-major matrix read column-major; None where neither axis has stride 1."""
    rows = layout.shape[-2]
    s_row, s_column = layout.strides[-2:]
    if (s_column == 1 or columns == 1) and (s_row >= columns or rows == 1):
        return OP_N, max(s_row if rows > 1 else columns, columns, 1)
    if (s_row == 1 or rows == 1) and (s_column >= rows or columns == 1):
        return OP_T, max(s_column if columns > 1 else rows, rows, 1)
    return None


ROUTES = {"matmul": select_matmul}
