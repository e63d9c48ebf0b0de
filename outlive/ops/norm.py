"""Norms of vectors and matrices, and the cross product."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outlive.graph.array import array
from outlive.ops.common import as_array, dtypes, normal_axis
from outlive.ops.creation import zeros_like
from outlive.ops.join import concatenate, stack
from outlive.ops.linalg import real_type, svd
from outlive.ops.reduce import max as amax
from outlive.ops.reduce import min as amin
from outlive.ops.reduce import sum as asum
from outlive.ops.shape import expand_dims, moveaxis, reshape, squeeze
from outlive.ops.slicing import axis_range
from outlive.ops.unary import abs, astype, sqrt, square


def cross(a: array, b: array, axis: int = -1, *, stream: Any = None) -> array:
    """Cross products of vectors of 3 (or 2, then with a third element 0) along `axis`; other axes broadcast.

    Raises ValueError for other lengths, IndexError for an axis out of range.

    >>> mx.linalg.cross(mx.array([1.0, 0.0, 0.0]), mx.array([0.0, 1.0, 0.0]))
    array([0, 0, 1], dtype=float32)
    """
    a, b = (moveaxis(as_array(v), axis, -1) for v in (a, b))
    if a.shape[-1] not in (2, 3) or b.shape[-1] not in (2, 3):
        raise ValueError(
            f"[linalg.cross] Vectors have 2 or 3 elements; got shapes {a.shape} and {b.shape} (axis last)."
        )
    ax, ay, az = _components(a)
    bx, by, bz = _components(b)
    parts = [ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx]
    return moveaxis(stack(parts, -1), -1, axis, stream=stream)


def _components(v: array) -> list[array]:
    """The three components along the last axis."""
    if v.shape[-1] == 2:
        v = concatenate([v, zeros_like(axis_range(v, v.ndim - 1, 0, 1))], -1)
    return [squeeze(axis_range(v, v.ndim - 1, i, 1), -1) for i in range(3)]


Order = int | float | str | None


def norm(
    a: Any, /, ord: Order = None, axis: int | Sequence[int] | None = None, keepdims: bool = False, *, stream: Any = None
) -> array:
    """Norms of vectors (one axis) or matrices (two axes); without `ord` the 2-norm of all elements, or along `axis`.

    Vectors: any number, inf and -inf. Matrices: 'fro', 'nuc', 1, -1, 2, -2, inf, -inf. Integers are taken as float32.
    Raises ValueError
    for other orders or numbers of axes.

    >>> a = mx.array([[3.0, 4.0], [0.0, 0.0]])
    >>> mx.linalg.norm(a), mx.linalg.norm(a, axis=1), mx.linalg.norm(a, "nuc")
    (array(5, dtype=float32), array([5, 0], dtype=float32), array(5, dtype=float32))
    """
    a = as_array(a)
    a = a if a.dtype.inexact else astype(a, dtypes.float32)
    result = real_type(a.dtype)
    return astype(_norm(astype(a, dtypes.float32) if a.dtype.half else a, ord, axis, keepdims), result, stream=stream)


def _norm(a: array, order: Order, axis: int | Sequence[int] | None, keepdims: bool) -> array:
    axes = list(range(a.ndim)) if axis is None else [axis] if isinstance(axis, int) else list(axis)
    axes = [normal_axis("linalg.norm", i, a.ndim) for i in axes]
    if len(axes) > 2 and (order is not None or axis is not None):
        raise ValueError(f"[linalg.norm] A norm goes over one axis or two; got {len(axes)} for shape {a.shape}.")
    if order is None:
        return _root_of_squares(a, axes, keepdims)
    if len(axes) == 1:
        return _vector_norm(a, order, axes[0], keepdims)
    if len(axes) == 2:
        return _matrix_norm(a, order, axes[0], axes[1], keepdims)
    raise ValueError(f"[linalg.norm] A norm of order {order!r} needs an axis; got shape {a.shape}.")


def _root_of_squares(a: array, axes: int | Sequence[int], keepdims: bool) -> array:
    return sqrt(asum(square(abs(a)), axes, keepdims))


def _vector_norm(a: array, order: Any, axis: int, keepdims: bool) -> array:
    if isinstance(order, str):
        raise ValueError(f"[linalg.norm] Order {order!r} is for matrices; a vector takes a number.")
    size = abs(a)
    if order == float("inf"):
        return amax(size, axis, keepdims)
    if order == float("-inf"):
        return amin(size, axis, keepdims)
    if order == 0:
        return asum((size != 0).astype(size.dtype), axis, keepdims)
    if order == 1:
        return asum(size, axis, keepdims)
    if order == 2:
        return _root_of_squares(a, axis, keepdims)
    return asum(size**order, axis, keepdims) ** (1.0 / order)


def _matrix_norm(a: array, order: Any, row: int, column: int, keepdims: bool) -> array:
    if order in ("fro", "f"):
        return _root_of_squares(a, (row, column), keepdims)
    if order in (1, -1, float("inf"), float("-inf")):
        along, over = (row, column) if order in (1, -1) else (column, row)
        sums = asum(abs(a), along, keepdims=True)
        out = (amax if order > 0 else amin)(sums, over, keepdims=True)
    elif order in ("nuc", 2, -2):
        turned = moveaxis(moveaxis(a, row, -1), column - (row < column), -1)
        values = svd(turned, compute_uv=False)
        made = asum(values, -1) if order == "nuc" else (amax if order == 2 else amin)(values, -1)
        return expand_dims(made, sorted((row, column))) if keepdims else made
    else:
        raise ValueError(
            f"[linalg.norm] No matrix norm has order {order!r}; use 'fro', 'nuc', 1, -1, 2, -2, inf or -inf."
        )
    return out if keepdims else reshape(out, tuple(n for i, n in enumerate(out.shape) if i not in (row, column)))


matrix_norm = norm

__all__ = ["cross", "matrix_norm", "norm"]
