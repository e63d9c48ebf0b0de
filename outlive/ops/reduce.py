"""Reductions over axes: sums, products, extremes, tests, moments, and softmax.

Half-precision sums and products accumulate in float32 (float64 for float64) and round once at the end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from outlive.graph.array import apply, array
from outlive.graph.primitive import Primitive
from outlive.ops.common import Dtype, as_array, dtypes, layout, normal_axes, normal_axis
from outlive.ops.elementwise import equal
from outlive.ops.shape import broadcast_to, expand_dims, reshape, squeeze
from outlive.ops.unary import exp, sqrt, square

Axes = int | Sequence[int] | None


class Reduction(Primitive):
    """Base: reduces `axes`; the primitive's output keeps them with length 1."""

    __slots__ = ("axes",)
    donates = False
    axes: tuple[int, ...]

    def again(self, a: array, axes: tuple[int, ...]) -> array:
        """The same reduction of another array, axes kept."""
        return apply(type(self).make(axes), (a,), layout(_kept(a.shape, axes), self.output_type(a.dtype)))

    def output_type(self, dtype: Dtype) -> Dtype:
        """The output's type for an operand of this type."""
        return dtype

    def vmap(self, inputs: Any, axes: Any) -> Any:
        a, axis = inputs[0], axes[0]
        moved = tuple(i + (i >= axis) for i in self.axes)
        return [self.again(a, moved)], [axis]

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        out = self.again(primals[0], self.axes)
        weights = self.vjp(primals, (_ones_like(out),), argnums, (out,))[0]
        return [sum(weights * tangents[0], self.axes, keepdims=True)]


def _ones_like(a: array) -> array:
    from outlive.ops.creation import ones_like

    return ones_like(a)


def _kept(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(1 if i in axes else n for i, n in enumerate(shape))


class Sum(Reduction):
    __slots__ = ("axes",)
    name = "sum"

    def output_type(self, dtype: Dtype) -> Dtype:
        return dtypes.int32 if dtype is dtypes.bool_ else dtype

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        out = writes[0]
        xp.sum(reads[0], self.axes, dtype=out.dtype, out=out, keepdims=True)

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        return [broadcast_to(cotangents[0], primals[0].shape)]


class Prod(Reduction):
    __slots__ = ("axes",)
    name = "prod"

    def output_type(self, dtype: Dtype) -> Dtype:
        return dtypes.int32 if dtype is dtypes.bool_ else dtype

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        out = writes[0]
        xp.prod(reads[0], self.axes, dtype=out.dtype, out=out, keepdims=True)

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        return [cotangents[0] * _product_of_others(primals[0], self.axes)]


def _product_of_others(a: array, axes: tuple[int, ...]) -> array:
    """For each element, the product of all others along `axes`; exact with zeros, by products from both sides."""
    from outlive.ops.scan import cumprod

    rest = [i for i in range(a.ndim) if i not in axes]
    order = (*rest, *axes)
    turned = a.transpose(*order)  # type: ignore[attr-defined]
    flat = reshape(turned, (*[a.shape[i] for i in rest], -1))
    others = cumprod(flat, -1, inclusive=False) * cumprod(flat, -1, reverse=True, inclusive=False)
    back = [order.index(i) for i in range(a.ndim)]
    return reshape(others, turned.shape).transpose(*back)  # type: ignore[attr-defined]


class Extreme(Reduction):
    """Largest or smallest element; the derivative goes to all equal ones in equal parts."""

    __slots__ = ("axes",)

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        chosen = equal(primals[0], outputs[0]).astype(cotangents[0].dtype)  # type: ignore[attr-defined]
        return [cotangents[0] * chosen / sum(chosen, self.axes, keepdims=True)]


class Max(Extreme):
    __slots__ = ("axes",)
    name = "max"

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        xp.max(reads[0], self.axes, out=writes[0], keepdims=True)


class Min(Extreme):
    __slots__ = ("axes",)
    name = "min"

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        xp.min(reads[0], self.axes, out=writes[0], keepdims=True)


class Test(Reduction):
    """Reductions of truth values; they have no derivative."""

    __slots__ = ("axes",)

    def output_type(self, dtype: Dtype) -> Dtype:
        return dtypes.bool_

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        return [None]


class All(Test):
    __slots__ = ("axes",)
    name = "all"

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        xp.all(reads[0], self.axes, out=writes[0], keepdims=True)


class Any_(Test):
    __slots__ = ("axes",)
    name = "any"

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        xp.any(reads[0], self.axes, out=writes[0], keepdims=True)


class LogSumExp(Reduction):
    __slots__ = ("axes",)
    name = "logsumexp"

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        a = reads[0]
        top = xp.max(a, self.axes, keepdims=True)
        finite = xp.where(xp.isfinite(top), top, 0)
        writes[0][...] = xp.log(xp.sum(xp.exp(a - finite), self.axes, keepdims=True)) + finite

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        return [cotangents[0] * exp(primals[0] - outputs[0])]


class ArgExtreme(Primitive):
    """Index of the first largest or smallest element along an axis (None: of the flat array); the output keeps the axis."""

    __slots__ = ("axis",)
    donates = False
    axis: int

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        return [None]

    def vmap(self, inputs: Any, axes: Any) -> Any:
        a, axis = inputs[0], axes[0]
        moved = self.axis + (self.axis >= axis)
        return [apply(type(self).make(moved), (a,), layout(_kept(a.shape, (moved,)), dtypes.uint32))], [axis]


class ArgMax(ArgExtreme):
    __slots__ = ("axis",)
    name = "argmax"

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        writes[0][...] = xp.argmax(reads[0], self.axis, keepdims=True)


class ArgMin(ArgExtreme):
    __slots__ = ("axis",)
    name = "argmin"

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        writes[0][...] = xp.argmin(reads[0], self.axis, keepdims=True)


class Softmax(Primitive):
    """exp(a - max) / sum along `axes`, in float32 at least; rounded once."""

    __slots__ = ("axes",)
    name = "softmax"
    axes: tuple[int, ...]

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        a, out = reads[0], writes[0]
        top = xp.max(a, self.axes, keepdims=True)
        xp.exp(a - xp.where(xp.isinf(top) & (top < 0), 0, top), out=out)
        out /= xp.sum(out, self.axes, keepdims=True)

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        weighted = cotangents[0] * outputs[0]
        return [weighted - outputs[0] * sum(weighted, self.axes, keepdims=True)]

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        out = softmax(primals[0], self.axes)
        weighted = tangents[0] * out
        return [weighted - out * sum(weighted, self.axes, keepdims=True)]

    def vmap(self, inputs: Any, axes: Any) -> Any:
        return [softmax(inputs[0], tuple(i + (i >= axes[0]) for i in self.axes))], [axes[0]]


def _reduce(primitive: type[Reduction], a: Any, axis: Axes, keepdims: bool, stream: Any, empty: bool = True) -> array:
    a = as_array(a)
    axes = normal_axes(primitive.name, axis, a.ndim)
    if not empty and 0 in [a.shape[i] for i in axes]:
        raise ValueError(f"[{primitive.name}] There is no {primitive.name} of nothing: shape {a.shape}, axes {axes}.")
    op = primitive.make(axes)
    out = apply(op, (a,), layout(_kept(a.shape, axes), op.output_type(a.dtype)), stream)
    return out if keepdims else reshape(out, tuple(n for i, n in enumerate(a.shape) if i not in axes), stream=stream)


def sum(a: Any, /, axis: Axes = None, keepdims: bool = False, *, stream: Any = None) -> array:
    """Sum over `axis` (None: all axes). Half types accumulate in float32 and round once; bool sums to int32; integers wrap.

    `keepdims` keeps reduced axes with length 1. Raises ValueError for axes out of range or named twice.
    """
    return _reduce(Sum, a, axis, keepdims, stream)


def prod(a: Any, /, axis: Axes = None, keepdims: bool = False, *, stream: Any = None) -> array:
    """Product over `axis` (None: all axes); types, `keepdims` and errors as in `sum`."""
    return _reduce(Prod, a, axis, keepdims, stream)


def max(a: Any, /, axis: Axes = None, keepdims: bool = False, *, stream: Any = None) -> array:
    """Largest element over `axis` (None: all axes); NaN where there is one. Raises ValueError for axes out of range or nothing to compare."""
    return _reduce(Max, a, axis, keepdims, stream, empty=False)


def min(a: Any, /, axis: Axes = None, keepdims: bool = False, *, stream: Any = None) -> array:
    """Smallest element over `axis` (None: all axes); NaN where there is one. Raises ValueError for axes out of range or nothing to compare."""
    return _reduce(Min, a, axis, keepdims, stream, empty=False)


def all(a: Any, /, axis: Axes = None, keepdims: bool = False, *, stream: Any = None) -> array:
    """Whether every element over `axis` (None: all axes) is nonzero; type bool."""
    return _reduce(All, a, axis, keepdims, stream)


def any(a: Any, /, axis: Axes = None, keepdims: bool = False, *, stream: Any = None) -> array:
    """Whether some element over `axis` (None: all axes) is nonzero; type bool."""
    return _reduce(Any_, a, axis, keepdims, stream)




def _floating(a: Any) -> array:
    a = as_array(a)
    return a if a.dtype.inexact else a.astype(dtypes.float32)  # type: ignore[attr-defined]


def logsumexp(a: Any, /, axis: Axes = None, keepdims: bool = False, *, stream: Any = None) -> array:
    """log(sum(exp(a))) over `axis` (None: all axes) without overflow. Integers are taken as float32."""
    return _reduce(LogSumExp, _floating(a), axis, keepdims, stream, empty=False)


def _count(a: array, axis: Axes, op: str) -> int:
    return math.prod(a.shape[i] for i in normal_axes(op, axis, a.ndim))


def _wide(a: array) -> array:
    return a.astype(dtypes.float32) if a.dtype.half else a  # type: ignore[attr-defined]


def mean(a: Any, /, axis: Axes = None, keepdims: bool = False, *, stream: Any = None) -> array:
    """Arithmetic mean over `axis` (None: all axes); half types in float32, rounded once. Integers are taken as float32."""
    a = _floating(a)
    n = _count(a, axis, "mean")
    total = sum(_wide(a), axis, keepdims, stream=stream)
    return (total / float(n) if n else total / 0.0).astype(a.dtype)  # type: ignore[attr-defined]


def var(a: Any, /, axis: Axes = None, keepdims: bool = False, ddof: int = 0, *, stream: Any = None) -> array:
    """Variance over `axis` (None: all axes): squared distances from the mean over (count - ddof). Half types in float32, rounded once."""
    a = _floating(a)
    n = _count(a, axis, "var") - ddof
    wide = _wide(a)
    distances = square(wide - mean(wide, axis, keepdims=True))
    total = sum(distances, axis, keepdims, stream=stream)
    return (total / float(n) if n > 0 else total / 0.0).astype(a.dtype)  # type: ignore[attr-defined]


def std(a: Any, /, axis: Axes = None, keepdims: bool = False, ddof: int = 0, *, stream: Any = None) -> array:
    """Standard deviation, the square root of `var`."""
    a = _floating(a)
    return sqrt(var(_wide(a), axis, keepdims, ddof), stream=stream).astype(a.dtype)  # type: ignore[attr-defined]


def _arg(primitive: type[ArgExtreme], a: Any, axis: int | None, keepdims: bool, stream: Any) -> array:
    a = as_array(a)
    if not a.size:
        raise ValueError(f"[{primitive.name}] There is nothing to choose from in shape {a.shape}.")
    source = reshape(a, (-1,)) if axis is None else a
    at = normal_axis(primitive.name, 0 if axis is None else axis, source.ndim)
    if not source.ndim:
        source = reshape(source, (1,))
    out = apply(primitive.make(at), (source,), layout(_kept(source.shape, (at,)), dtypes.uint32), stream)
    if keepdims:
        return reshape(out, (1,) * a.ndim) if axis is None else out
    return reshape(out, ()) if axis is None or not a.ndim else squeeze(out, at)


def argmax(a: Any, /, axis: int | None = None, keepdims: bool = False, *, stream: Any = None) -> array:
    """Index (uint32) of the first largest element along `axis` (None: of the flattened array); that of the first NaN if there is one."""
    return _arg(ArgMax, a, axis, keepdims, stream)


def argmin(a: Any, /, axis: int | None = None, keepdims: bool = False, *, stream: Any = None) -> array:
    """Index (uint32) of the first smallest element along `axis` (None: of the flattened array); that of the first NaN if there is one."""
    return _arg(ArgMin, a, axis, keepdims, stream)


def softmax(a: Any, /, axis: Axes = None, *, precise: bool = False, stream: Any = None) -> array:
    """exp(a) / sum(exp(a)) along `axis` (None: all axes), without overflow, always in float32 at least and rounded once.

    `precise` is accepted; there is no less precise form. Integers are taken as float32. Raises ValueError for axes out of range.
    """
    a = _floating(a)
    axes = normal_axes("softmax", axis, a.ndim)
    if not a.size:
        return a
    return apply(Softmax.make(axes), (a,), a._node.layout, stream)


def array_equal(a: Any, b: Any, equal_nan: bool = False, stream: Any = None) -> array:
    """Whether two arrays have one shape and equal elements (NaN equal to itself with `equal_nan`); a bool array without axes."""
    from outlive.ops.elementwise import logical_and, logical_or, operands
    from outlive.ops.unary import isnan

    a, b = operands("array_equal", a, b)
    if a.shape != b.shape:
        return array(False)
    same = equal(a, b)
    if equal_nan:
        same = logical_or(same, logical_and(isnan(a), isnan(b)))
    return all(same, stream=stream)


def allclose(
    a: Any, b: Any, /, rtol: float = 1e-05, atol: float = 1e-08, *, equal_nan: bool = False, stream: Any = None
) -> array:
    """Whether all of `isclose(a, b, rtol, atol)` hold; a bool array without axes."""
    from outlive.ops.elementwise import isclose

    return all(isclose(a, b, rtol, atol, equal_nan=equal_nan), stream=stream)


def median(a: Any, /, axis: Axes = None, keepdims: bool = False, *, stream: Any = None) -> array:
    """The middle element over `axis` (None: all axes), or the mean of the two middle ones. Integers are taken as float32."""
    from outlive.ops.sort import sort

    a = _floating(a)
    axes = normal_axes("median", axis, a.ndim)
    rest = [i for i in range(a.ndim) if i not in axes]
    turned = reshape(a.transpose(*rest, *axes) if a.ndim else a, (*[a.shape[i] for i in rest], -1))  # type: ignore[attr-defined]
    n = turned.shape[-1]
    if not n:
        raise ValueError(f"[median] There is no median of nothing: shape {a.shape}, axes {axes}.")
    ordered = sort(turned, -1, stream=stream)
    middle = ordered[..., n // 2] if n % 2 else (ordered[..., n // 2 - 1] + ordered[..., n // 2]) * 0.5  # type: ignore[index]
    return expand_dims(middle, axes) if keepdims else middle


__all__ = [
    "all", "allclose", "any", "argmax", "argmin", "array_equal", "logsumexp", "max", "mean", "median", "min", "prod", "softmax", "std", "sum",
    "var",
]  # fmt: skip
