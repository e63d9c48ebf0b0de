"""Arrays from nothing but numbers: constant arrays, ranges, diagonals, grids, windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from outlive.graph.array import apply, array
from outlive.graph.primitive import Primitive
from outlive.ops.common import (
    Dtype,
    as_array,
    broadcast_layout,
    broadcast_shapes,
    checked_shape,
    constant,
    dtypes,
    layout,
)
from outlive.ops.elementwise import where
from outlive.ops.shape import broadcast_to, checked_axis, expand_dims, moveaxis, reshape, sum_to

_INT32 = np.iinfo(np.int32)
Shape = int | Sequence[int]


class Full(Primitive):
    """Its input, broadcast to `shape` in memory of its own."""

    __slots__ = ("shape",)
    name = "full"
    shape: tuple[int, ...]

    def encode(self, encoder: Any, inputs: Any, layout: Any) -> Any:
        out = encoder.output(layout, donate=False)
        encoder.copy(encoder.reshaped(inputs[0], broadcast_layout(inputs[0].layout, layout.shape)), out)
        return out

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        return [sum_to(cotangents[0], primals[0].shape)]

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        return [full(self.shape, tangents[0])]

    def vmap(self, inputs: Any, axes: Any) -> Any:
        a = moveaxis(inputs[0], axes[0], 0)
        a = reshape(a, (a.shape[0], *[1] * (len(self.shape) + 1 - a.ndim), *a.shape[1:]))
        return [full((a.shape[0], *self.shape), a)], [0]


class Generated(Primitive):
    """Base of arrays that their parameters alone determine: without inputs, so without derivatives."""

    __slots__ = ()

    def values(self, xp: Any, shape: tuple[int, ...]) -> Any:
        """The elements, computed in float64 or int64 and rounded once when they are stored."""
        raise NotImplementedError

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        writes[0][...] = self.values(xp, writes[0].shape)

    def workspace(self, reads: Any, writes: Any) -> int:
        return 4 * max(8, writes[0].dtype.itemsize) * writes[0].size


class Arange(Generated):
    """start + i step."""

    __slots__ = ("start", "step")
    name = "arange"
    start: int | float
    step: int | float

    def values(self, xp: Any, shape: tuple[int, ...]) -> Any:
        return self.start + xp.arange(shape[0]) * self.step


class Linspace(Generated):
    """`intervals` equal steps from start to stop; the element after the last step is `stop` itself."""

    __slots__ = ("intervals", "start", "stop")
    name = "linspace"
    intervals: int
    start: float
    stop: float

    def values(self, xp: Any, shape: tuple[int, ...]) -> Any:
        share = xp.arange(shape[0]) / max(self.intervals, 1)
        return self.start * (1 - share) + self.stop * share


class Eye(Generated):
    """Ones on the diagonal `k`."""

    __slots__ = ("k",)
    name = "eye"
    k: int

    def values(self, xp: Any, shape: tuple[int, ...]) -> Any:
        return xp.arange(shape[1]) - xp.arange(shape[0])[:, None] == self.k


class Tri(Generated):
    """Ones on and below the diagonal `k`."""

    __slots__ = ("k",)
    name = "tri"
    k: int

    def values(self, xp: Any, shape: tuple[int, ...]) -> Any:
        return xp.arange(shape[1]) - xp.arange(shape[0])[:, None] <= self.k


class CosineWindow(Generated):
    """A sum of cosines over one period, `coefficients[j]` cos(2 pi j i / (M - 1)), or the triangle where there are
    none.
    """

    __slots__ = ("coefficients",)
    name = "window"
    coefficients: tuple[float, ...]

    def values(self, xp: Any, shape: tuple[int, ...]) -> Any:
        places = xp.arange(shape[0]) / max(shape[0] - 1, 1)
        if shape[0] == 1:
            return xp.ones(1)
        if not self.coefficients:
            return 1 - abs(2 * places - 1)
        return sum(c * xp.cos(2 * math.pi * j * places) for j, c in enumerate(self.coefficients))


class Diagonal(Primitive):
    """The diagonal of two axes, as a view with the sum of their strides."""

    __slots__ = ("axis1", "axis2", "offset")
    name = "diagonal"
    axis1: int
    axis2: int
    offset: int

    def encode(self, encoder: Any, inputs: Any, layout: Any) -> Any:
        source = inputs[0].layout
        first, second = source.strides[self.axis1], source.strides[self.axis2]
        start = self.offset * second if self.offset > 0 else -self.offset * first
        strides = [s for i, s in enumerate(source.strides) if i not in (self.axis1, self.axis2)]
        return encoder.view(0, layout.shape, (*strides, first + second), start if layout.size else 0)

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        shape = primals[0].shape
        spread = _spread(cotangents[0], shape[self.axis1], shape[self.axis2], self.offset)
        for axis, at in sorted([(self.axis1, -2), (self.axis2, -1)]):
            spread = moveaxis(spread, spread.ndim + at + (at == -2 and axis > self.axis2), axis)
        return [spread]

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        return [diagonal(tangents[0], self.offset, self.axis1, self.axis2)]

    def vmap(self, inputs: Any, axes: Any) -> Any:
        a = moveaxis(inputs[0], axes[0], 0)
        return [diagonal(a, self.offset, self.axis1 + 1, self.axis2 + 1)], [0]


def _spread(values: array, rows: int, columns: int, offset: int) -> array:
    """Matrices of `rows` by `columns` with the last axis of `values` on the diagonal `offset`, zeros elsewhere."""
    from outlive.ops.join import pad

    before = max(-offset, 0)
    widths = [(0, 0)] * (values.ndim - 1) + [(before, rows - before - values.shape[-1])]
    return where(
        eye(rows, columns, offset, dtypes.bool_), expand_dims(pad(values, widths), -1), constant(0, values.dtype)
    )


def full(shape: Shape, vals: Any, dtype: Dtype | None = None, *, stream: Any = None) -> array:
    """An array of `shape` filled with `vals`, a number or an array that broadcasts to the shape.

    `dtype` is by default that of `vals` (int32 or float32 for Python's numbers). Raises ValueError for negative
    lengths, shapes that do
    not broadcast, and integers that the type does not hold.

    >>> mx.full((2, 2), 7).tolist()
    [[7, 7], [7, 7]]
    >>> mx.full((2, 2), mx.array([1.0, 2.0])).tolist()
    [[1.0, 2.0], [1.0, 2.0]]
    """
    shape = checked_shape("full", shape)
    kind = type(vals)
    if dtype is not None and kind in (bool, int):
        filler = constant(vals, dtype)
    else:
        filler = as_array(vals)
        filler = filler if dtype is None else filler.astype(dtype)
    if filler.shape and broadcast_shapes("full", filler.shape, shape) != shape:
        raise ValueError(f"[full] Values of shape {filler.shape} cannot be broadcast to {shape}.")
    return apply(Full.make(shape), (filler,), layout(shape, filler.dtype), stream)


def full_like(a: array, vals: Any, dtype: Dtype | None = None, *, stream: Any = None) -> array:
    """`vals` in the shape of `a`, and in its type where `dtype` is not given; see `full`.

    >>> mx.full_like(mx.array([1, 2]), 7)
    array([7, 7], dtype=int32)
    """
    a = _of_array("full_like", a)
    return full(a.shape, vals, dtype or a.dtype, stream=stream)


def zeros(shape: Shape, dtype: Dtype | None = dtypes.float32, *, stream: Any = None) -> array:
    """Zeros of `shape`. Raises ValueError for negative lengths.

    >>> mx.zeros((2,), mx.int8)
    array([0, 0], dtype=int8)
    """
    shape = checked_shape("zeros", shape)
    dtype = dtype or dtypes.float32
    return apply(Full.make(shape), (constant(0, dtype),), layout(shape, dtype), stream)


def zeros_like(a: array, /, dtype: Dtype | None = None, *, stream: Any = None) -> array:
    """Zeros in the shape of `a`, and in its type where `dtype` is not given. Raises TypeError for what is no array.

    >>> mx.zeros_like(mx.array([1, 2]))
    array([0, 0], dtype=int32)
    """
    a = _of_array("zeros_like", a)
    return zeros(a.shape, dtype or a.dtype, stream=stream)


def ones(shape: Shape, dtype: Dtype | None = dtypes.float32, *, stream: Any = None) -> array:
    """Ones of `shape`. Raises ValueError for negative lengths.

    >>> mx.ones((2, 1)).tolist()
    [[1.0], [1.0]]
    """
    shape = checked_shape("ones", shape)
    dtype = dtype or dtypes.float32
    return apply(Full.make(shape), (constant(1, dtype),), layout(shape, dtype), stream)


def ones_like(a: array, /, dtype: Dtype | None = None, *, stream: Any = None) -> array:
    """Ones in the shape of `a`, and in its type where `dtype` is not given. Raises TypeError for what is no array.

    >>> mx.ones_like(mx.array([1.0, 2.0]))
    array([1, 1], dtype=float32)
    """
    a = _of_array("ones_like", a)
    return ones(a.shape, dtype or a.dtype, stream=stream)


def empty(shape: Shape, dtype: Dtype | None = dtypes.float32, *, stream: Any = None) -> array:
    """An array of `shape` to be assigned to.

    It holds zeros: memory that nobody wrote would make results depend on what ran before. Raises ValueError for negative
    lengths.

    >>> mx.empty((2,))
    array([0, 0], dtype=float32)
    """
    return zeros(checked_shape("empty", shape), dtype, stream=stream)


def empty_like(a: array, /, dtype: Dtype | None = None, *, stream: Any = None) -> array:
    """An array in the shape of `a` to be assigned to; see `empty`.

    >>> mx.empty_like(mx.array([1, 2]))
    array([0, 0], dtype=int32)
    """
    a = _of_array("empty_like", a)
    return zeros(a.shape, dtype or a.dtype, stream=stream)


def _of_array(op: str, a: Any) -> array:
    if type(a) is not array:
        raise TypeError(f"[{op}] Expected an array; got {type(a).__name__}.")
    return a


def arange(
    start: int | float | None = None,
    stop: int | float | None = None,
    step: int | float | None = None,
    dtype: Dtype | None = None,
    *,
    stream: Any = None,
) -> array:
    """Numbers from `start` (included) to `stop` (not included) by `step`; `arange(stop)` starts at 0.

    Returns ceil((stop - start) / step) elements, at least 0: int32 where all three are integers (int64 where an end
    needs it), float32
    otherwise, or `dtype`. Raises ValueError for a step of 0, for ends that are not finite, and for bool; TypeError for
    what is no number.

    >>> mx.arange(3)
    array([0, 1, 2], dtype=int32)
    >>> mx.arange(1.0, 2.0, 0.25)
    array([1, 1.25, 1.5, 1.75], dtype=float32)
    """
    if stop is None:
        start, stop = 0, start
    start = 0 if start is None else start
    step = 1 if step is None else step
    start, stop, step = (_number("arange", n) for n in (start, stop, step))
    if dtype is dtypes.bool_:
        raise ValueError("[arange] A range has numbers; bool is not supported.")
    if not all(map(math.isfinite, (start, stop))) or math.isnan(step):
        raise ValueError(f"[arange] The length from {start} to {stop} by {step} cannot be computed.")
    if not step:
        raise ValueError("[arange] The step must not be zero.")
    count = max(_ceil_divide(stop - start, step), 0)
    dtype = dtype or _range_type(start, stop, step)
    if not dtype.inexact:
        start, step = int(start), int(step)
    return apply(Arange.make(start, step), (), layout(checked_shape("arange", count), dtype), stream)


def _number(op: str, value: Any) -> int | float:
    if isinstance(value, (int, float)):
        return value
    if isinstance(value, (np.integer, np.floating)):
        return value.item()
    raise TypeError(f"[{op}] Expected a number; got {type(value).__name__}.")


def _ceil_divide(span: int | float, step: int | float) -> int:
    if isinstance(span, int) and isinstance(step, int):
        return -(-span // step)
    return math.ceil(span / step)


def _range_type(start: int | float, stop: int | float, step: int | float) -> Dtype:
    if any(isinstance(n, float) for n in (start, stop, step)):
        return dtypes.float32
    return dtypes.int32 if all(_INT32.min <= n <= _INT32.max for n in (start, stop)) else dtypes.int64


def linspace(
    start: int | float,
    stop: int | float,
    num: int | None = 50,
    endpoint: bool = True,
    dtype: Dtype | None = dtypes.float32,
    stream: Any = None,
) -> array:
    """`num` numbers in equal steps from `start` to `stop`, which is the last of them, or the one after it without
    `endpoint`.

    Raises ValueError for a negative `num`.

    >>> mx.linspace(0, 1, 5)
    array([0, 0.25, 0.5, 0.75, 1], dtype=float32)
    """
    num = 50 if num is None else num
    if num < 0:
        raise ValueError(f"[linspace] The number of samples must not be negative; got {num}.")
    start, stop = (float(_number("linspace", n)) for n in (start, stop))
    made = Linspace.make(num - 1 if endpoint else num, start, stop)
    return apply(made, (), layout((num,), dtype or dtypes.float32), stream)


def _matrix_shape(op: str, n: int, m: int | None) -> tuple[int, int]:
    m = n if m is None else m
    if n < 0 or m < 0:
        raise ValueError(f"[{op}] A matrix has no negative lengths; got {n} by {m}.")
    return n, m


def eye(n: int, m: int | None = None, k: int = 0, dtype: Dtype | None = dtypes.float32, *, stream: Any = None) -> array:
    """An `n` by `m` (default `n`) matrix with ones on the `k`-th diagonal (above the main one for k > 0), zeros
    elsewhere.

    Raises ValueError for negative lengths.

    >>> mx.eye(2, 3, k=1).tolist()
    [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    return apply(Eye.make(k), (), layout(_matrix_shape("eye", n, m), dtype or dtypes.float32), stream)


def identity(n: int, dtype: Dtype | None = dtypes.float32, *, stream: Any = None) -> array:
    """The `n` by `n` matrix with ones on the main diagonal. Raises ValueError for a negative `n`.

    >>> mx.identity(2, mx.int32).tolist()
    [[1, 0], [0, 1]]
    """
    return eye(n, n, 0, dtype, stream=stream)


def tri(n: int, m: int | None = None, k: int = 0, dtype: Dtype | None = None, *, stream: Any = None) -> array:
    """An `n` by `m` (default `n`) matrix with ones on and below the `k`-th diagonal, float32 by default.

    Raises ValueError for negative lengths.

    >>> mx.tri(3, dtype=mx.int32).tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    """
    return apply(Tri.make(k), (), layout(_matrix_shape("tri", n, m), dtype or dtypes.float32), stream)


def _triangle(op: str, x: Any, k: int, lower: bool, stream: Any) -> array:
    x = as_array(x)
    if x.ndim < 2:
        raise ValueError(f"[{op}] Expected at least two axes; got shape {x.shape}.")
    rows, columns = x.shape[-2:]
    mask, zero = tri(rows, columns, k if lower else k - 1, dtypes.bool_), constant(0, x.dtype)
    return where(mask, x, zero, stream=stream) if lower else where(mask, zero, x, stream=stream)


def tril(x: array, k: int = 0, *, stream: Any = None) -> array:
    """Zeros above the `k`-th diagonal of the last two axes. Raises ValueError for fewer than two axes.

    >>> mx.tril(mx.ones((3, 3), mx.int32)).tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    """
    return _triangle("tril", x, k, True, stream)


def triu(x: array, k: int = 0, *, stream: Any = None) -> array:
    """Zeros below the `k`-th diagonal of the last two axes. Raises ValueError for fewer than two axes.

    >>> mx.triu(mx.ones((3, 3), mx.int32), k=1).tolist()
    [[0, 1, 1], [0, 0, 1], [0, 0, 0]]
    """
    return _triangle("triu", x, k, False, stream)


def meshgrid(
    *arrays: array, sparse: bool | None = False, indexing: str | None = "xy", stream: Any = None
) -> tuple[array, ...]:
    """Coordinate arrays of the grid that the given vectors span, one for each; as views.

    `indexing`: "xy" (the first vector runs along the second axis) or "ij" (along the first). `sparse` leaves the
    repeated axes at length 1.
    Raises ValueError for another `indexing`.

    >>> [g.tolist() for g in mx.meshgrid(mx.array([1, 2, 3]), mx.array([10, 20]))]
    [[[1, 2, 3], [1, 2, 3]], [[10, 10, 10], [20, 20, 20]]]
    """
    if indexing not in ("xy", "ij"):
        raise ValueError(f"[meshgrid] indexing is 'xy' or 'ij'; got {indexing!r}.")
    count = len(arrays)
    order = list(range(count))
    if indexing == "xy" and count > 1:
        order[0], order[1] = 1, 0
    vectors = [as_array(a) for a in arrays]
    grids = [
        reshape(a, [a.size if axis == order[i] else 1 for axis in range(count)], stream=stream)
        for i, a in enumerate(vectors)
    ]
    if not sparse and grids:
        shape = broadcast_shapes("meshgrid", *[g.shape for g in grids])
        grids = [broadcast_to(g, shape, stream=stream) for g in grids]
    return tuple(grids)


def diagonal(a: array, offset: int = 0, axis1: int = 0, axis2: int = 1, stream: Any = None) -> array:
    """The diagonal of the axes `axis1` and `axis2`, `offset` places above the main one, as the last axis of a view.

    Raises ValueError for fewer than two axes or the same axis twice, IndexError for an axis out of range.

    >>> mx.diagonal(mx.array([[1, 2], [3, 4]]), offset=1)
    array([2], dtype=int32)
    """
    a = as_array(a)
    if a.ndim < 2:
        raise ValueError(f"[diagonal] Expected at least two axes; got shape {a.shape}.")
    axis1, axis2 = (checked_axis("diagonal", axis, a.ndim) for axis in (axis1, axis2))
    if axis1 == axis2:
        raise ValueError(f"[diagonal] Two different axes are needed; got {axis1} twice.")
    rows, columns = a.shape[axis1] + min(offset, 0), a.shape[axis2] - max(offset, 0)
    rest = [n for i, n in enumerate(a.shape) if i not in (axis1, axis2)]
    shape = (*rest, max(min(rows, columns), 0))
    return apply(Diagonal.make(axis1, axis2, offset), (a,), layout(shape, a.dtype), stream)


def diag(a: array, /, k: int = 0, *, stream: Any = None) -> array:
    """The `k`-th diagonal of a matrix, or the matrix with a vector on its `k`-th diagonal.

    Raises ValueError for other ranks.

    >>> mx.diag(mx.array([1, 2])).tolist()
    [[1, 0], [0, 2]]
    >>> mx.diag(mx.array([[1, 2], [3, 4]]))
    array([1, 4], dtype=int32)
    """
    a = as_array(a)
    if a.ndim == 2:
        return diagonal(a, k, stream=stream)
    if a.ndim != 1:
        raise ValueError(f"[diag] Expected one or two axes; got shape {a.shape}.")
    n = a.size + abs(k)
    return _spread(a, n, n, k)


def trace(
    a: array, /, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Dtype | None = None, *, stream: Any = None
) -> array:
    """The sum of a diagonal, in `dtype` where given; see `diagonal` and `sum`.

    Raises ValueError for fewer than two axes.

    >>> mx.trace(mx.array([[1, 2], [3, 4]]))
    array(5, dtype=int32)
    """
    from outlive.ops.reduce import sum as reduce_sum

    a = as_array(a)
    if a.ndim < 2:
        raise ValueError(f"[trace] Expected at least two axes; got shape {a.shape}.")
    out = diagonal(a, offset, axis1, axis2, stream=stream)
    return reduce_sum(out if dtype is None else out.astype(dtype), -1, stream=stream)


def _window(count: int, coefficients: tuple[float, ...], stream: Any) -> array:
    return apply(CosineWindow.make(coefficients), (), layout((max(count, 0),), dtypes.float32), stream)


def bartlett(M: int, *, stream: Any = None) -> array:
    """The triangular window 1 - |2 n / (M - 1) - 1| of `M` points, float32; empty for M < 1.

    >>> mx.bartlett(5)
    array([0, 0.5, 1, 0.5, 0], dtype=float32)
    """
    return _window(M, (), stream)


def hanning(M: int, *, stream: Any = None) -> array:
    """The window 0.5 - 0.5 cos(2 pi n / (M - 1)) of `M` points, float32; empty for M < 1.

    >>> mx.hanning(5)
    array([0, 0.5, 1, 0.5, 0], dtype=float32)
    """
    return _window(M, (0.5, -0.5), stream)


def hamming(M: int, *, stream: Any = None) -> array:
    """The window 0.54 - 0.46 cos(2 pi n / (M - 1)) of `M` points, float32; empty for M < 1.

    >>> mx.hamming(3)
    array([0.08, 1, 0.08], dtype=float32)
    """
    return _window(M, (0.54, -0.46), stream)


def blackman(M: int, *, stream: Any = None) -> array:
    """The window 0.42 - 0.5 cos(2 pi n / (M - 1)) + 0.08 cos(4 pi n / (M - 1)) of `M` points, float32; empty for
    M < 1.

    >>> mx.blackman(5)[1:4]
    array([0.34, 1, 0.34], dtype=float32)
    """
    return _window(M, (0.42, -0.5, 0.08), stream)


__all__ = [
    "arange", "bartlett", "blackman", "diag", "diagonal", "empty", "empty_like", "eye", "full", "full_like",
    "hamming", "hanning", "identity", "linspace", "meshgrid", "ones", "ones_like", "trace", "tri", "tril", "triu",
    "zeros", "zeros_like",
]  # fmt: skip
