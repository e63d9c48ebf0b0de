"""Arrays from nothing: constants, ranges, grids, diagonals and windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from outlive.graph.array import apply, array
from outlive.graph.primitive import Primitive
from outlive.ops.common import Dtype, as_array, checked_shape, dtypes, layout
from outlive.ops.elementwise import greater_equal, multiply, where
from outlive.ops.shape import broadcast_to, expand_dims, reshape
from outlive.runtime.buffer import Operand


class Full(Primitive):
    """One number in every element, taken by value."""

    __slots__ = ("value",)
    name = "full"
    value: Any

    def encode(self, encoder: Any, inputs: Any, layout: Any) -> Operand:
        out = encoder.output(layout)
        encoder.fill(out, self.value)
        return out


class FullFrom(Primitive):
    """The elements of an operand broadcast to the output's shape; a one-element operand is a fill on the device."""

    __slots__ = ()
    name = "full"

    def encode(self, encoder: Any, inputs: Any, layout: Any) -> Operand:
        from outlive.ops.common import broadcast_layout

        out = encoder.output(layout, donate=False)
        encoder.fill(out, encoder.reshaped(inputs[0], broadcast_layout(inputs[0].layout, layout.shape)))
        return out

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        from outlive.ops.shape import sum_to

        return [sum_to(cotangents[0], primals[0].shape)]

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        raise ValueError("[full] This op has no forward derivative (jvp).")


def _exact(value: Any, dtype: Dtype) -> Any:
    """A Python number as the type holds it; raises ValueError for integers that do not fit."""
    if dtype.category in (dtypes.signedinteger, dtypes.unsignedinteger):
        limits = np.iinfo(dtype.storage)
        value = int(value)
        if not limits.min <= value <= limits.max:
            raise ValueError(f"[full] {value} does not fit {dtype.name}, which holds {limits.min} to {limits.max}.")
        return value
    if dtype is dtypes.bool_:
        return bool(value)
    return complex(value) if dtype is dtypes.complex64 else float(value)


def _filled(shape: Any, value: Any, dtype: Dtype, stream: Any, op: str) -> array:
    return apply(Full.make(_exact(value, dtype)), (), layout(checked_shape(op, shape), dtype), stream)


def full(shape: int | Sequence[int], vals: Any, dtype: Dtype | None = None, *, stream: Any = None) -> array:
    """An array of `shape` filled with `vals`: a number, or an array that broadcasts to the shape.

    `dtype`: element type, by default that of `vals` (int32 for whole Python numbers, float32 for others). Raises ValueError for negative
    lengths, numbers that do not fit, or shapes that do not broadcast.
    """
    if type(vals) is not array and isinstance(vals, (bool, int, float, complex)):
        kinds = {bool: dtypes.bool_, int: dtypes.int32, float: dtypes.float32, complex: dtypes.complex64}
        kind = dtype or (dtypes.int64 if type(vals) is int and not -(2**31) <= vals < 2**31 else kinds[type(vals)])
        return _filled(shape, vals, kind, stream, "full")
    values = as_array(vals)
    if dtype is not None:
        values = values.astype(dtype)  # type: ignore[attr-defined]
    out = checked_shape("full", shape)
    broadcast_to(values, out)  # the shape's check
    return apply(FullFrom.make(), (values,), layout(out, values.dtype), stream)


def zeros(shape: int | Sequence[int], dtype: Dtype | None = dtypes.float32, *, stream: Any = None) -> array:
    """An array of `shape` filled with 0 (float32 unless `dtype` says otherwise). Raises ValueError for negative lengths."""
    return _filled(shape, 0, dtype or dtypes.float32, stream, "zeros")


def ones(shape: int | Sequence[int], dtype: Dtype | None = dtypes.float32, *, stream: Any = None) -> array:
    """An array of `shape` filled with 1 (float32 unless `dtype` says otherwise). Raises ValueError for negative lengths."""
    return _filled(shape, 1, dtype or dtypes.float32, stream, "ones")


def zeros_like(a: Any, /, dtype: Dtype | None = None, *, stream: Any = None) -> array:
    """Zeros of the shape and type of `a` (or of type `dtype`)."""
    a = as_array(a)
    return _filled(a.shape, 0, dtype or a.dtype, stream, "zeros_like")


def ones_like(a: Any, /, dtype: Dtype | None = None, *, stream: Any = None) -> array:
    """Ones of the shape and type of `a` (or of type `dtype`)."""
    a = as_array(a)
    return _filled(a.shape, 1, dtype or a.dtype, stream, "ones_like")


def full_like(a: Any, /, vals: Any, dtype: Dtype | None = None, *, stream: Any = None) -> array:
    """`vals` in the shape and type of `a` (or of type `dtype`)."""
    a = as_array(a)
    return full(a.shape, vals, dtype or a.dtype, stream=stream)


class Arange(Primitive):
    """start, start + step, ... computed exactly in 64 bits, then rounded to the output's type."""

    __slots__ = ("start", "step")
    name = "arange"
    start: Any
    step: Any

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        out = writes[0]
        wide = xp.int64 if isinstance(self.start, int) and isinstance(self.step, int) else xp.float64
        out[...] = self.start + xp.arange(out.size, dtype=wide) * self.step


def arange(*args: Any, start: Any = None, stop: Any = None, step: Any = None, dtype: Dtype | None = None, stream: Any = None) -> array:
    """Numbers from `start` (0) to `stop` (not included) by `step` (1): `arange(stop)` or `arange(start, stop[, step])`.

    The type is int32 for whole Python numbers (int64 where int32 cannot hold them), float32 otherwise, unless `dtype` says. Raises ValueError
    for a step of 0, NaN bounds, or more elements than 64-bit sizes count.
    """
    given = list(args)
    if len(given) == 1 and stop is None:
        stop = given[0]
    elif given:
        start, stop, step = [*given, *[start, stop, step][len(given) :]][:3]
    start = 0 if start is None else start
    step = 1 if step is None else step
    if stop is None:
        raise TypeError("[arange] Say where to stop: arange(stop) or arange(start, stop, step).")
    start, stop, step = (v.item() if hasattr(v, "item") else v for v in (start, stop, step))
    if step == 0 or any(v != v for v in (start, stop, step)):
        raise ValueError(f"[arange] A range needs numbers and a step other than 0; got {start}, {stop}, {step}.")
    whole = all(isinstance(v, int) for v in (start, stop, step))
    span = (stop - start) / step
    if math.isinf(span):
        raise ValueError(f"[arange] A range has a finite number of elements; got {start}, {stop}, {step}.")
    count = max(0, -((start - stop) // step) if whole else math.ceil(span))
    if dtype is None:
        fits = -(2**31) <= min(start, stop - 1 if step > 0 else stop + 1) and max(start, stop - 1 if step > 0 else start) < 2**31
        dtype = (dtypes.int32 if fits else dtypes.int64) if whole else dtypes.float32
    if dtype is dtypes.bool_:
        raise ValueError("[arange] There is no range of booleans; choose another type.")
    if dtype.category is not dtypes.floating and not whole:
        start, step = int(start), int(step) or step
    return apply(Arange.make(start, step), (), layout(checked_shape("arange", count), dtype), stream)


def linspace(start: Any, stop: Any, num: int = 50, dtype: Dtype | None = dtypes.float32, *, stream: Any = None) -> array:
    """`num` numbers from `start` to `stop`, both included, at equal distances. Raises ValueError for a negative `num`."""
    if num < 0:
        raise ValueError(f"[linspace] The number of samples cannot be negative; got {num}.")
    if num <= 1:
        return full((num,), start, dtype or dtypes.float32, stream=stream)
    ratio = arange(0, num, dtype=dtypes.float32, stream=stream) / float(num - 1)
    made = (1 - ratio) * start + ratio * stop
    return made.astype(dtype or dtypes.float32)  # type: ignore[attr-defined]


def eye(n: int, m: int | None = None, k: int = 0, dtype: Dtype | None = dtypes.float32, *, stream: Any = None) -> array:
    """An `n` x `m` (n x n) matrix with ones on diagonal `k` (above the main one if positive) and zeros elsewhere."""
    m = n if m is None else m
    rows, columns = arange(n), arange(m)
    on = expand_dims(columns, 0) - expand_dims(rows, 1) == k
    return on.astype(dtype or dtypes.float32)  # type: ignore[attr-defined]


def identity(n: int, dtype: Dtype | None = dtypes.float32, *, stream: Any = None) -> array:
    """The `n` x `n` identity matrix."""
    return eye(n, dtype=dtype, stream=stream)


def tri(n: int, m: int | None = None, k: int = 0, dtype: Dtype | None = None, *, stream: Any = None) -> array:
    """An `n` x `m` matrix with ones at and below diagonal `k`, zeros above."""
    rows, columns = arange(n), arange(n if m is None else m)
    return greater_equal(expand_dims(rows, 1) + k, expand_dims(columns, 0), stream=stream).astype(dtype or dtypes.float32)  # type: ignore[attr-defined]


def tril(x: Any, k: int = 0, *, stream: Any = None) -> array:
    """`x` with zeros above diagonal `k` of its last two axes. Raises ValueError below two axes."""
    x = _matrix("tril", x)
    return where(tri(x.shape[-2], x.shape[-1], k, dtypes.bool_), x, zeros_like(x), stream=stream)


def triu(x: Any, k: int = 0, *, stream: Any = None) -> array:
    """`x` with zeros below diagonal `k` of its last two axes. Raises ValueError below two axes."""
    x = _matrix("triu", x)
    return where(tri(x.shape[-2], x.shape[-1], k - 1, dtypes.bool_), zeros_like(x), x, stream=stream)


def _matrix(op: str, x: Any) -> array:
    x = as_array(x)
    if x.ndim < 2:
        raise ValueError(f"[{op}] Expected at least two axes; got shape {x.shape}.")
    return x


def meshgrid(*arrays: Any, sparse: bool = False, indexing: str = "xy", stream: Any = None) -> list[array]:
    """Coordinate arrays from one-dimensional ones; "xy" swaps the first two axes of the grid. `sparse` leaves them unrepeated."""
    if indexing not in ("xy", "ij"):
        raise ValueError(f"[meshgrid] indexing is 'xy' or 'ij'; got {indexing!r}.")
    flat = [reshape(as_array(a), (-1,)) for a in arrays]
    axes = list(range(len(flat)))
    if indexing == "xy" and len(flat) > 1:
        axes[:2] = [1, 0]
    out = [reshape(a, [-1 if i == axis else 1 for i in range(len(flat))]) for a, axis in zip(flat, axes, strict=True)]
    if sparse:
        return out
    lengths = [0] * len(flat)
    for a, axis in zip(flat, axes, strict=True):
        lengths[axis] = a.size
    return [broadcast_to(a, lengths, stream=stream) for a in out]


def diag(a: Any, /, k: int = 0, *, stream: Any = None) -> array:
    """The diagonal `k` of a matrix, or the matrix with vector `a` on its diagonal `k`. Raises ValueError for other numbers of axes."""
    a = as_array(a)
    if a.ndim == 2:
        return diagonal(a, k, stream=stream)
    if a.ndim != 1:
        raise ValueError(f"[diag] Expected a vector or a matrix; got shape {a.shape}.")
    n = a.size + builtin_abs(k)
    index = arange(a.size)
    made = zeros((n, n), a.dtype)
    made[index + max(-k, 0), index + max(k, 0)] = a  # type: ignore[index]
    return made


builtin_abs = abs


def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, stream: Any = None) -> array:
    """The diagonal `offset` of two axes of `a`, as the last axis of the result. Raises ValueError below two axes or for one axis twice."""
    from outlive.ops.shape import moveaxis

    a = _matrix("diagonal", a)
    if axis1 % a.ndim == axis2 % a.ndim:
        raise ValueError(f"[diagonal] The two axes must differ; got {axis1} and {axis2}.")
    first, second = axis1 % a.ndim, axis2 % a.ndim
    rest = [i for i in range(a.ndim) if i not in (first, second)]
    turned = a.transpose(*rest, first, second)  # type: ignore[attr-defined]
    rows, columns = turned.shape[-2:]
    count = max(0, min(rows - max(-offset, 0), columns - max(offset, 0)))
    flat = reshape(turned, (*turned.shape[:-2], rows * columns))
    start = max(-offset, 0) * columns + max(offset, 0)
    index = start + arange(count) * (columns + 1)
    return moveaxis(flat[..., index], -1, -1) if count else zeros((*turned.shape[:-2], 0), a.dtype)


def trace(
    a: Any, /, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Dtype | None = None, *, stream: Any = None
) -> array:
    """The sum of the diagonal `offset` of two axes, in `dtype` (that of `a`)."""
    made = diagonal(a, offset, axis1, axis2)
    return made.sum(-1).astype(dtype or as_array(a).dtype)  # type: ignore[attr-defined]


def _cosines(m: int, terms: Sequence[float], stream: Any) -> array:
    """sum_k terms[k] cos(2 pi k n / (m - 1)), n = 0 ... m - 1."""
    from outlive.ops.unary import cos

    if m < 1:
        return zeros((0,))
    if m == 1:
        return ones((1,))
    angle = multiply(arange(m, dtype=dtypes.float32), 2 * math.pi / (m - 1), stream=stream)
    out = zeros((m,)) + terms[0]
    for k, term in enumerate(terms[1:], 1):
        out = out + term * cos(angle * float(k))
    return out


def hanning(M: int, *, stream: Any = None) -> array:
    """The Hann window of M points."""
    return _cosines(M, (0.5, -0.5), stream)


def hamming(M: int, *, stream: Any = None) -> array:
    """The Hamming window of M points."""
    return _cosines(M, (0.54, -0.46), stream)


def blackman(M: int, *, stream: Any = None) -> array:
    """The Blackman window of M points."""
    return _cosines(M, (0.42, -0.5, 0.08), stream)


def bartlett(M: int, *, stream: Any = None) -> array:
    """The triangular window of M points with zero ends."""
    if M <= 1:
        return ones((max(M, 0),))
    n = arange(M, dtype=dtypes.float32)
    half = (M - 1) / 2
    return where(n <= half, n / half, 2.0 - n / half, stream=stream)  # type: ignore[operator]


__all__ = [
    "arange", "bartlett", "blackman", "diag", "diagonal", "eye", "full", "full_like", "hamming", "hanning", "identity", "linspace",
    "meshgrid", "ones", "ones_like", "trace", "tri", "tril", "triu", "zeros", "zeros_like",
]  # fmt: skip
