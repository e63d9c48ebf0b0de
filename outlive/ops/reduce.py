"""Reductions over axes: sums, products, extremes, tests, moments, and softmax.

The reference kernels accumulate in float64 (half and single precision alike) and round once at the end.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence
from typing import Any

from outlive.graph.array import apply, array
from outlive.graph.primitive import Primitive
from outlive.ops.common import Dtype, as_array, constant, dtypes, layout, normal_axes, normal_axis, operands
from outlive.ops.elementwise import equal, isclose, logical_and, logical_or, not_equal, where
from outlive.ops.shape import broadcast_to, expand_dims, reshape, transpose
from outlive.ops.slicing import axis_range
from outlive.ops.unary import astype, conjugate, exp, imag, isnan, real, sqrt, square

Axes = int | Sequence[int] | None

_SUMS = {dtypes.bool_: dtypes.int32, dtypes.int8: dtypes.int32, dtypes.int16: dtypes.int32,
         dtypes.uint8: dtypes.uint32, dtypes.uint16: dtypes.uint32}  # fmt: skip
"""The types in which narrow integers are summed and multiplied."""


def wide(xp: Any, dtype: Any) -> Any:
    """The type in which a reference kernel accumulates results of `dtype`."""
    return {"f4": xp.float64, "c8": xp.complex128}.get(dtype.str[1:], dtype)


class Reduction(Primitive):
    """Base: reduces `axes`, which stay with length 1 if `keepdims`."""

    __slots__ = ("axes", "keepdims")
    donates = False
    axes: tuple[int, ...]
    keepdims: bool

    def output_type(self, dtype: Dtype) -> Dtype:
        """The output's type for an operand of this type."""
        return dtype

    def workspace(self, reads: Any, writes: Any) -> int:
        return 8 * 3 * builtins.max(1, reads[0].dtype.itemsize // 4) * (reads[0].size + writes[0].size)

    def compute(self, xp: Any, a: Any, out: Any) -> Any:
        """The reduction of `a`, axes kept or not as in `out`."""
        raise NotImplementedError

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        writes[0][...] = self.compute(xp, reads[0], writes[0])

    def weights(self, a: array, out: array) -> array | None:
        """The derivative of the output (axes kept) by each element; None: 1 everywhere."""
        raise ValueError(f"[{self.name}] This op has no derivative.")

    def _kept(self, a: array, reduced: array) -> array:
        return reduced if self.keepdims else reshape(reduced, _reduced(a.shape, self.axes, True))

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        a = primals[0]
        weights, ct = self.weights(a, self._kept(a, outputs[0])), self._kept(a, cotangents[0])
        return [broadcast_to(ct, a.shape) if weights is None else ct * conjugate(weights)]

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        a = primals[0]
        weights = self.weights(a, _reduce(type(self), a, self.axes, True))
        return [sum(tangents[0] if weights is None else weights * tangents[0], self.axes, self.keepdims)]

    def vmap(self, inputs: Any, axes: Any) -> Any:
        axis = axes[0]
        over = tuple(i + (i >= axis) for i in self.axes)
        left = axis if self.keepdims else axis - builtins.sum(i < axis for i in over)
        return [_reduce(type(self), inputs[0], over, self.keepdims)], [left]


def _reduced(shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool) -> tuple[int, ...]:
    if keepdims:
        return tuple(1 if i in axes else n for i, n in enumerate(shape))
    return tuple(n for i, n in enumerate(shape) if i not in axes)


class Sum(Reduction):
    __slots__ = ("axes", "keepdims")
    name = "sum"

    def output_type(self, dtype: Dtype) -> Dtype:
        return _SUMS.get(dtype, dtype)

    def compute(self, xp: Any, a: Any, out: Any) -> Any:
        return xp.sum(a, self.axes, dtype=wide(xp, out.dtype), keepdims=self.keepdims)

    def weights(self, a: array, out: array) -> array | None:
        return None


class Mean(Reduction):
    __slots__ = ("axes", "keepdims")
    name = "mean"

    def compute(self, xp: Any, a: Any, out: Any) -> Any:
        total = xp.sum(a, self.axes, dtype=wide(xp, out.dtype), keepdims=self.keepdims)
        return total / xp.float64(math.prod(a.shape[i] for i in self.axes))

    def weights(self, a: array, out: array) -> array | None:
        return constant(1 / builtins.max(_count(a, self.axes), 1), a.dtype)

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        return [mean(tangents[0], self.axes, self.keepdims)]

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        a = primals[0]
        return [broadcast_to(self._kept(a, cotangents[0]) * self.weights(a, outputs[0]), a.shape)]


class Prod(Reduction):
    """The derivative multiplies the other elements from both sides, so zeros do not matter."""

    __slots__ = ("axes", "keepdims")
    name = "prod"

    def output_type(self, dtype: Dtype) -> Dtype:
        return _SUMS.get(dtype, dtype)

    def compute(self, xp: Any, a: Any, out: Any) -> Any:
        return xp.prod(a, self.axes, dtype=wide(xp, out.dtype), keepdims=self.keepdims)

    def weights(self, a: array, out: array) -> array | None:
        from outlive.ops.scan import cumprod

        rows, order = _axes_last(a, self.axes)
        others = cumprod(rows, -1, inclusive=False) * cumprod(rows, -1, reverse=True, inclusive=False)
        return transpose(reshape(others, [a.shape[i] for i in order]), [order.index(i) for i in range(a.ndim)])


def _axes_last(a: array, axes: tuple[int, ...]) -> tuple[array, list[int]]:
    """`a` with `axes` joined into one last axis, and the order of its axes that this took."""
    rest = [i for i in range(a.ndim) if i not in axes]
    order = [*rest, *axes]
    count = math.prod(a.shape[i] for i in axes)
    return reshape(transpose(a, order), (*[a.shape[i] for i in rest], count)), order


class Extreme(Reduction):
    """Base of the largest and smallest element; the derivative goes to all equal ones in equal parts."""

    __slots__ = ("axes", "keepdims")

    def weights(self, a: array, out: array) -> array | None:
        chosen = astype(equal(a, out), a.dtype)
        return chosen / sum(chosen, self.axes, keepdims=True)


class Max(Extreme):
    __slots__ = ("axes", "keepdims")
    name = "max"

    def compute(self, xp: Any, a: Any, out: Any) -> Any:
        return xp.max(a, self.axes, keepdims=self.keepdims)


class Min(Extreme):
    __slots__ = ("axes", "keepdims")
    name = "min"

    def compute(self, xp: Any, a: Any, out: Any) -> Any:
        return xp.min(a, self.axes, keepdims=self.keepdims)


class Test(Reduction):
    """Base of reductions of truth values; their derivative is zero."""

    __slots__ = ("axes", "keepdims")

    def output_type(self, dtype: Dtype) -> Dtype:
        return dtypes.bool_

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        return [None]


class All(Test):
    __slots__ = ("axes", "keepdims")
    name = "all"

    def compute(self, xp: Any, a: Any, out: Any) -> Any:
        return xp.all(a, self.axes, keepdims=self.keepdims)


class Some(Test):
    __slots__ = ("axes", "keepdims")
    name = "any"

    def compute(self, xp: Any, a: Any, out: Any) -> Any:
        return xp.any(a, self.axes, keepdims=self.keepdims)


class LogSumExp(Reduction):
    __slots__ = ("axes", "keepdims")
    name = "logsumexp"

    def compute(self, xp: Any, a: Any, out: Any) -> Any:
        top = xp.max(a.real, self.axes, keepdims=True)
        shift = xp.where(xp.isfinite(top), top, 0)
        total = xp.log(xp.sum(xp.exp(a - shift), self.axes, dtype=wide(xp, out.dtype), keepdims=True)) + shift
        return total.reshape(out.shape)

    def weights(self, a: array, out: array) -> array | None:
        return exp(a - out)


class ArgExtreme(Primitive):
    """Base: index of the first largest or smallest element along `axis`, the first NaN's if there is one."""

    __slots__ = ("axis", "keepdims")
    donates = False
    axis: int
    keepdims: bool

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        return [None]

    def vmap(self, inputs: Any, axes: Any) -> Any:
        axis = axes[0]
        over = self.axis + (self.axis >= axis)
        return [_arg(type(self), inputs[0], over, self.keepdims, None)], [axis - (not self.keepdims and over < axis)]


class ArgMax(ArgExtreme):
    __slots__ = ("axis", "keepdims")
    name = "argmax"

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        writes[0][...] = xp.argmax(reads[0], self.axis, keepdims=self.keepdims)


class ArgMin(ArgExtreme):
    __slots__ = ("axis", "keepdims")
    name = "argmin"

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        writes[0][...] = xp.argmin(reads[0], self.axis, keepdims=self.keepdims)


class Softmax(Primitive):
    """exp(a - max) / sum along `axes`, in float32 at least; rounded once."""

    __slots__ = ("axes",)
    name = "softmax"
    axes: tuple[int, ...]

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        a, out = reads[0], writes[0]
        powers = xp.exp(a - xp.max(a.real, self.axes, keepdims=True))
        xp.divide(
            powers, xp.sum(powers, self.axes, dtype=wide(xp, powers.dtype), keepdims=True).astype(out.dtype), out=out
        )

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        out = conjugate(outputs[0])
        weighted = cotangents[0] * out
        return [weighted - out * sum(weighted, self.axes, keepdims=True)]

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        out = softmax(primals[0], self.axes)
        weighted = tangents[0] * out
        return [weighted - out * sum(weighted, self.axes, keepdims=True)]

    def vmap(self, inputs: Any, axes: Any) -> Any:
        return [softmax(inputs[0], tuple(i + (i >= axes[0]) for i in self.axes))], [axes[0]]


def _reduce(kind: type[Reduction], a: Any, axis: Axes, keepdims: bool, stream: Any = None, empty: bool = True) -> array:
    a = as_array(a)
    axes = normal_axes(kind.name, axis, a.ndim)
    if not empty:
        _refuse_nothing(kind.name, a, axes)
    if not axes and kind in (Sum, Prod):
        return a
    op = kind.make(axes, bool(keepdims))
    return apply(op, (a,), layout(_reduced(a.shape, axes, keepdims), op.output_type(a.dtype)), stream)


def _refuse_nothing(op: str, a: array, axes: Sequence[int]) -> None:
    """Raise ValueError where a reduced axis has no elements."""
    if builtins.any(not a.shape[i] for i in axes):
        raise ValueError(f"[{op}] There is no {op} of nothing: shape {a.shape}, axes {tuple(axes)}.")


def _inexact(a: Any) -> array:
    a = as_array(a)
    return a if a.dtype.inexact else astype(a, dtypes.float32)


def _count(a: array, axes: Sequence[int]) -> int:
    return math.prod(a.shape[i] for i in axes)


def sum(a: array, /, axis: Axes = None, keepdims: bool = False, *, stream: Any = None) -> array:
    """Sum over `axis` (None: all axes), 0 of nothing. Half types accumulate in float32 at least and round once.

    The type stays, but bool and integers below 32 bits are summed as int32 or uint32; integers wrap. Over no axes the
    result is `a` itself. `keepdims` keeps reduced axes with length 1. Raises IndexError for an axis out of range,
    ValueError for one named twice.

    >>> a = mx.array([[1, 2], [3, 4]])
    >>> mx.sum(a), mx.sum(a, axis=0), mx.sum(a, axis=1, keepdims=True).shape
    (array(10, dtype=int32), array([4, 6], dtype=int32), (2, 1))
    """
    return _reduce(Sum, a, axis, keepdims, stream)


def prod(a: array, /, axis: Axes = None, keepdims: bool = False, *, stream: Any = None) -> array:
    """Product over `axis` (None: all axes), 1 of nothing; types, `keepdims` and errors as in `sum`.

    >>> mx.prod(mx.array([[1, 2], [3, 4]]), axis=1)
    array([2, 12], dtype=int32)
    """
    return _reduce(Prod, a, axis, keepdims, stream)


def max(a: array, /, axis: Axes = None, keepdims: bool = False, *, stream: Any = None) -> array:
    """Largest element over `axis` (None: all axes); NaN where there is one. Complex numbers in lexicographic order.

    Raises ValueError where a reduced axis is empty; other errors and `keepdims` as in `sum`.

    >>> mx.max(mx.array([[1, 4], [3, 2]]), axis=0)
    array([3, 4], dtype=int32)
    """
    return _reduce(Max, a, axis, keepdims, stream, empty=False)


def min(a: array, /, axis: Axes = None, keepdims: bool = False, *, stream: Any = None) -> array:
    """Smallest element over `axis` (None: all axes); NaN where there is one. Complex numbers in lexicographic order.

    Raises ValueError where a reduced axis is empty; other errors and `keepdims` as in `sum`.

    >>> mx.min(mx.array([1.0, mx.nan]))
    array(nan, dtype=float32)
    """
    return _reduce(Min, a, axis, keepdims, stream, empty=False)


def minmax(a: array, /, axis: Axes = None, keepdims: bool = False, *, stream: Any = None) -> tuple[array, array]:
    """`(min(a), max(a))` over `axis`; arguments and errors as there.

    >>> mx.minmax(mx.array([3, 1, 2]))
    (array(1, dtype=int32), array(3, dtype=int32))
    """
    return min(a, axis, keepdims, stream=stream), max(a, axis, keepdims, stream=stream)


def all(a: array, /, axis: Axes = None, keepdims: bool = False, *, stream: Any = None) -> array:
    """Whether every element over `axis` (None: all axes) is nonzero, true of nothing; type bool. Errors as in `sum`.

    >>> mx.all(mx.array([[1, 0], [1, 1]]), axis=0)
    array([True, False], dtype=bool)
    """
    return _reduce(All, a, axis, keepdims, stream)


def any(a: array, /, axis: Axes = None, keepdims: bool = False, *, stream: Any = None) -> array:
    """Whether some element over `axis` (None: all axes) is nonzero, false of nothing; type bool. Errors as in `sum`.

    >>> mx.any(mx.array([[1, 0], [0, 0]]), axis=1)
    array([True, False], dtype=bool)
    """
    return _reduce(Some, a, axis, keepdims, stream)


def count_nonzero(a: array, /, *, axis: Axes = None, keepdims: bool = False, stream: Any = None) -> array:
    """Number of elements over `axis` (None: all axes) that are not zero, int32. Errors as in `sum`.

    >>> mx.count_nonzero(mx.array([[1, 0], [1, 1]]), axis=0)
    array([2, 1], dtype=int32)
    """
    return sum(astype(not_equal(a, 0), dtypes.int32), axis, keepdims, stream=stream)


def logsumexp(a: array, /, axis: Axes = None, keepdims: bool = False, *, stream: Any = None) -> array:
    """log(sum(exp(a))) over `axis` (None: all axes) without overflow. Integers are taken as float32.

    Raises ValueError where a reduced axis is empty; other errors as in `sum`.

    >>> mx.logsumexp(mx.array([1000.0, 1000.0]))
    array(1000.69, dtype=float32)
    """
    return _reduce(LogSumExp, _inexact(a), axis, keepdims, stream, empty=False)


def mean(a: array, /, axis: Axes = None, keepdims: bool = False, *, stream: Any = None) -> array:
    """Arithmetic mean over `axis` (None: all axes), NaN of nothing. Half types accumulate in float32 and round once.

    Integers are taken as float32. Errors as in `sum`.

    >>> mx.mean(mx.array([[1, 2], [3, 4]]), axis=0)
    array([2, 3], dtype=float32)
    """
    return _reduce(Mean, _inexact(a), axis, keepdims, stream)


def var(
    a: array,
    /,
    axis: Axes = None,
    keepdims: bool = False,
    ddof: int = 0,
    *,
    correction: int | None = None,
    stream: Any = None,
) -> array:
    """Variance over `axis` (None: all axes): squared distances from the mean, summed, over (count - ddof).

    Real for complex arrays. Half types are computed in float32 and rounded once; integers are taken as float32. NaN or
    infinite where count <= ddof. `correction`, where given, takes the place of `ddof`. Errors as in `sum`.

    >>> mx.var(mx.array([1.0, 2.0, 3.0]), ddof=1)
    array(1, dtype=float32)
    """
    a = _inexact(a)
    result = dtypes.float32 if a.dtype is dtypes.complex64 else a.dtype
    return astype(_variance(a, axis, keepdims, ddof if correction is None else correction), result, stream=stream)


def _variance(a: array, axis: Axes, keepdims: bool, ddof: int) -> array:
    """The variance of floats, float32 for half types."""
    a = astype(a, dtypes.float32) if a.dtype.half else a
    away = a - mean(a, axis, keepdims=True)
    squares = square(real(away)) + square(imag(away)) if a.dtype is dtypes.complex64 else square(away)
    freedom = _count(a, normal_axes("var", axis, a.ndim)) - ddof
    return sum(squares, axis, keepdims) / float(builtins.max(freedom, 0))


def std(
    a: array,
    /,
    axis: Axes = None,
    keepdims: bool = False,
    ddof: int = 0,
    *,
    correction: int | None = None,
    stream: Any = None,
) -> array:
    """Standard deviation, the square root of `var`, with its arguments; rounded once.

    >>> mx.std(mx.array([1.0, 3.0]))
    array(1, dtype=float32)
    """
    a = _inexact(a)
    result = dtypes.float32 if a.dtype is dtypes.complex64 else a.dtype
    return astype(sqrt(_variance(a, axis, keepdims, ddof if correction is None else correction)), result, stream=stream)


def _arg(kind: type[ArgExtreme], a: Any, axis: int | None, keepdims: bool, stream: Any) -> array:
    a = as_array(a)
    if not a.size:
        raise ValueError(f"[{kind.name}] There is nothing to choose from in shape {a.shape}.")
    at = None if axis is None else normal_axis(kind.name, axis, a.ndim)
    flat = reshape(a, (-1,)) if at is None else a
    over = at or 0
    if flat.shape[over] > 1 << 32:
        raise ValueError(f"[{kind.name}] An index of 32 bits cannot name all of {flat.shape[over]} elements.")
    shape = _reduced(flat.shape, (over,), keepdims)
    out = apply(kind.make(over, bool(keepdims)), (flat,), layout(shape, dtypes.uint32), stream)
    return reshape(out, (1,) * a.ndim) if at is None and keepdims else out


def argmax(a: array, /, axis: int | None = None, keepdims: bool = False, *, stream: Any = None) -> array:
    """Index (uint32) of the first largest element along `axis` (None: of the flattened array), or of the first NaN.

    Raises ValueError for an array without elements, IndexError for an axis out of range.

    >>> mx.argmax(mx.array([1.0, 3.0, 3.0]))
    array(1, dtype=uint32)
    """
    return _arg(ArgMax, a, axis, keepdims, stream)


def argmin(a: array, /, axis: int | None = None, keepdims: bool = False, *, stream: Any = None) -> array:
    """Index (uint32) of the first smallest element along `axis` (None: of the flattened array), or of the first NaN.

    Raises ValueError for an array without elements, IndexError for an axis out of range.

    >>> mx.argmin(mx.array([[1, 3], [5, 4]]), axis=1)
    array([0, 1], dtype=uint32)
    """
    return _arg(ArgMin, a, axis, keepdims, stream)


def softmax(a: array, /, axis: Axes = None, *, precise: bool = False, stream: Any = None) -> array:
    """exp(a) / sum(exp(a)) along `axis` (None: all axes), without overflow.

    Always computed in float32 at least and rounded once, so `precise` changes nothing. Integers are taken as float32.
    Errors as in `sum`.

    >>> mx.softmax(mx.array([0.0, 0.0, -mx.inf]))
    array([0.5, 0.5, 0], dtype=float32)
    """
    a = _inexact(a)
    axes = normal_axes("softmax", axis, a.ndim)
    if not a.size:
        return a
    return apply(Softmax.make(axes), (a,), a._node.layout, stream)


def median(a: array, /, axis: Axes = None, keepdims: bool = False, *, stream: Any = None) -> array:
    """The middle element over `axis` (None: all axes), or the mean of the two middle ones; NaN where there is one.

    Integers are taken as float32. Raises ValueError where a reduced axis is empty; other errors as in `sum`.

    >>> mx.median(mx.array([4, 1, 3, 2]))
    array(2.5, dtype=float32)
    """
    from outlive.ops.sort import sort

    a = _inexact(a)
    axes = normal_axes("median", axis, a.ndim)
    _refuse_nothing("median", a, axes)
    rows, _ = _axes_last(a, axes)
    count, last = rows.shape[-1], rows.ndim - 1
    ordered = sort(rows, -1)
    middle = mean(axis_range(ordered, last, (count - 1) // 2, 2 - count % 2), -1)
    largest = reshape(axis_range(ordered, last, count - 1, 1), middle.shape)
    out = where(isnan(largest), largest, middle, stream=stream)
    return expand_dims(out, axes) if keepdims and axes else out


def array_equal(a: Any, b: Any, equal_nan: bool = False, stream: Any = None) -> array:
    """Whether two arrays have one shape and equal elements (NaN equal to itself with `equal_nan`); a bool of shape ().

    Types may differ: elements are compared in the promoted one.

    >>> mx.array_equal(mx.array([1, 2]), mx.array([1.0, 2.0]))
    array(True, dtype=bool)
    """
    a, b = operands("array_equal", a, b)
    if a.shape != b.shape:
        return constant(False, dtypes.bool_)
    same = equal(a, b)
    if equal_nan:
        same = logical_or(same, logical_and(isnan(a), isnan(b)))
    return all(same, stream=stream)


def allclose(
    a: array, b: array, /, rtol: float = 1e-05, atol: float = 1e-08, *, equal_nan: bool = False, stream: Any = None
) -> array:
    """Whether all of `isclose(a, b, rtol, atol)` hold; a bool of shape (). Errors as in `isclose`.

    >>> mx.allclose(mx.array([1.0, 2.0]), mx.array([1.000001, 2.0]))
    array(True, dtype=bool)
    """
    return all(isclose(a, b, rtol, atol, equal_nan=equal_nan), stream=stream)


__all__ = [
    "all", "allclose", "any", "argmax", "argmin", "array_equal", "count_nonzero", "logsumexp", "max", "mean",
    "median", "min", "minmax", "prod", "softmax", "std", "sum", "var",
]  # fmt: skip
