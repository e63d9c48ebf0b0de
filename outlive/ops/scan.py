"""Running sums, products and extremes along an axis, and the linear recurrence that their derivatives need."""

from __future__ import annotations

from typing import Any

from outlive.graph.array import apply, array
from outlive.graph.primitive import Primitive
from outlive.ops.common import Dtype, as_array, dtypes, layout
from outlive.ops.creation import arange, zeros_like
from outlive.ops.elementwise import greater, less, logical_or, maximum, where
from outlive.ops.gather import scatter_along, take_along_axis
from outlive.ops.join import pad
from outlive.ops.shape import checked_axis, moveaxis, reshape
from outlive.ops.slicing import axis_range
from outlive.ops.unary import exp, isnan, isneginf, log


class Scan(Primitive):
    """Base: element i of the output combines the elements up to i along `axis` (from i on with `reverse`), i itself
    only if `inclusive`.
    """

    __slots__ = ("axis", "inclusive", "reverse")
    donates = False
    axis: int
    inclusive: bool
    reverse: bool

    def accumulate(self, xp: Any, x: Any, out: Any) -> Any:
        """The inclusive scan of `x` from the front."""
        raise NotImplementedError

    def neutral(self, xp: Any, dtype: Any) -> Any:
        """What an exclusive scan starts with."""
        raise NotImplementedError

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        x, out = xp.moveaxis(reads[0], self.axis, -1), xp.moveaxis(writes[0], self.axis, -1)
        if self.reverse:
            x, out = x[..., ::-1], out[..., ::-1]
        if self.inclusive:
            out[...] = self.accumulate(xp, x, out)
        elif out.shape[-1]:
            out[..., 1:] = self.accumulate(xp, x[..., :-1], out)
            out[..., 0] = self.neutral(xp, out.dtype)

    def workspace(self, reads: Any, writes: Any) -> int:
        return 8 * 3 * sum(layout.size * max(1, layout.dtype.itemsize // 8) for layout in (*reads, *writes))

    def again(
        self, a: array, *, axis: int | None = None, inclusive: bool | None = None, backwards: bool = False
    ) -> array:
        """The scan of another array, changed as told."""
        made = self.make(
            self.axis if axis is None else axis,
            self.inclusive if inclusive is None else inclusive,
            self.reverse != backwards,
        )
        return apply(made, (a,), a._node.layout)

    def vmap(self, inputs: Any, axes: Any) -> Any:
        return [self.again(moveaxis(inputs[0], axes[0], 0), axis=self.axis + 1)], [0]


class CumSum(Scan):
    __slots__ = ("axis", "inclusive", "reverse")
    name = "cumsum"

    def accumulate(self, xp: Any, x: Any, out: Any) -> Any:
        return xp.cumsum(x, -1, dtype=xp.float64 if out.dtype == xp.float32 else out.dtype)

    def neutral(self, xp: Any, dtype: Any) -> Any:
        return 0

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        return [self.again(cotangents[0], backwards=True)]

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        return [self.again(tangents[0])]


class CumProd(Scan):
    """Derivatives go through a recurrence instead of quotients: they hold where elements are zero."""

    __slots__ = ("axis", "inclusive", "reverse")
    name = "cumprod"

    def accumulate(self, xp: Any, x: Any, out: Any) -> Any:
        return xp.cumprod(x, -1, dtype=out.dtype)

    def neutral(self, xp: Any, dtype: Any) -> Any:
        return 1

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        # g[k] = (product before k) r[k], r[k] = ct[k] + x[k+1] r[k+1]; an exclusive scan sees ct one place later
        x, ct = primals[0], cotangents[0]
        following = shifted(x, self.axis, not self.reverse)
        ct = ct if self.inclusive else shifted(ct, self.axis, not self.reverse)
        rest = linear_recurrence(following, ct, self.axis, not self.reverse)
        return [self.again(x, inclusive=False) * rest]

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        x = primals[0]
        out = linear_recurrence(x, self.again(x, inclusive=False) * tangents[0], self.axis, self.reverse)
        return [out if self.inclusive else shifted(out, self.axis, self.reverse)]


class CumExtreme(Scan):
    """Base of running extremes: NaN once there was one.

    The derivative goes to the element that set the record, the first of equal ones.
    """

    __slots__ = ("axis", "inclusive", "reverse")

    def better(self, a: array, b: array) -> array:
        """Where `a` sets a record over `b`."""
        raise NotImplementedError

    def _record_places(self, x: array) -> array:
        """Index along the axis of the element that each output of the inclusive scan shows."""
        shape = [1] * x.ndim
        shape[self.axis] = n = x.shape[self.axis]
        places = reshape(arange(n), shape)
        before = self.again(x, inclusive=False)
        first = reshape(arange(n) == (n - 1 if self.reverse else 0), shape)
        new = logical_or(logical_or(self.better(x, before), first), isnan(x) & ~isnan(before))
        order = n - 1 - places if self.reverse else places
        found = apply(
            CumMax.make(self.axis, True, self.reverse), (where(new, order, 0),), layout(x.shape, dtypes.int32)
        )
        return n - 1 - found if self.reverse else found

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        x, ct = primals[0], cotangents[0]
        if not x.size:
            return [ct]
        ct = ct if self.inclusive else shifted(ct, self.axis, not self.reverse)
        return [scatter_along(zeros_like(x), self._record_places(x), ct, self.axis, "add")]

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        if not primals[0].size:
            return [tangents[0]]
        out = take_along_axis(tangents[0], self._record_places(primals[0]), self.axis)
        return [out if self.inclusive else shifted(out, self.axis, self.reverse)]


class CumMax(CumExtreme):
    __slots__ = ("axis", "inclusive", "reverse")
    name = "cummax"

    def accumulate(self, xp: Any, x: Any, out: Any) -> Any:
        return xp.maximum.accumulate(x, -1)

    def neutral(self, xp: Any, dtype: Any) -> Any:
        return _lowest(xp, dtype, -1)

    def better(self, a: array, b: array) -> array:
        return greater(a, b)


class CumMin(CumExtreme):
    __slots__ = ("axis", "inclusive", "reverse")
    name = "cummin"

    def accumulate(self, xp: Any, x: Any, out: Any) -> Any:
        return xp.minimum.accumulate(x, -1)

    def neutral(self, xp: Any, dtype: Any) -> Any:
        return _lowest(xp, dtype, 1)

    def better(self, a: array, b: array) -> array:
        return less(a, b)


def _lowest(xp: Any, dtype: Any, sign: int) -> Any:
    """The least (-1) or greatest (1) value of a type."""
    if dtype.kind in "iu":
        limits = xp.iinfo(dtype)
        return limits.min if sign < 0 else limits.max
    if dtype.kind == "b":
        return sign > 0
    return complex(sign * xp.inf, sign * xp.inf) if dtype.kind == "c" else sign * xp.inf


class LogCumSumExp(Scan):
    """Accumulated in float64: each step rounds."""

    __slots__ = ("axis", "inclusive", "reverse")
    name = "logcumsumexp"

    def accumulate(self, xp: Any, x: Any, out: Any) -> Any:
        if x.dtype.kind != "c":
            return xp.logaddexp.accumulate(x, -1, dtype=xp.float64)
        top = xp.max(x.real, -1, keepdims=True) if x.size else x.real
        top = xp.where(xp.isfinite(top), top, 0)
        return xp.log(xp.cumsum(xp.exp(x - top), -1, dtype=xp.complex128)) + top

    def neutral(self, xp: Any, dtype: Any) -> Any:
        return -xp.inf

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        # sum of ct[i] exp(x[j] - out[i]) over the outputs i that see j; in logarithms, for either sign of ct
        x, ct, out = primals[0], cotangents[0], outputs[0]
        seen = where(isneginf(out), 0, out)
        parts = []
        for sign in (1, -1):
            magnitude = maximum(ct * sign, 0)
            weight = where(logical_or(isneginf(out), ~greater(magnitude, 0)), -float("inf"), log(magnitude) - seen)
            total = self.again(weight, backwards=True)
            parts.append(where(isneginf(total), 0, exp(total + x)))
        return [parts[0] - parts[1]]

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        # out[i] = out[i-1] shrunk by its share plus the new term's share: a recurrence with coefficients in [0, 1]
        x = primals[0]
        out, before = self.again(x, inclusive=True), self.again(x, inclusive=False)
        old = where(isneginf(before), 0, exp(before - out))
        new = where(isneginf(x), 0, exp(x - out)) * tangents[0]
        moved = linear_recurrence(old, new, self.axis, self.reverse)
        return [moved if self.inclusive else shifted(moved, self.axis, self.reverse)]


class LinearRecurrence(Primitive):
    """y[i] = a[i] y[i-1] + b[i] along `axis` (from the end with `reverse`), y before the first being 0."""

    __slots__ = ("axis", "reverse")
    name = "linear_recurrence"
    donates = False
    axis: int
    reverse: bool

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        a, b, y = (xp.moveaxis(x, self.axis, 0) for x in (*reads, *writes))
        if self.reverse:
            a, b, y = a[::-1], b[::-1], y[::-1]
        for i in range(y.shape[0]):
            y[i] = a[i] * y[i - 1] + b[i] if i else b[i]

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        a, y = primals[0], outputs[0]
        through = linear_recurrence(shifted(a, self.axis, not self.reverse), cotangents[0], self.axis, not self.reverse)
        parts = {0: through * shifted(y, self.axis, self.reverse), 1: through}
        return [parts[i] for i in argnums]

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        a, b = primals
        given = dict(zip(argnums, tangents, strict=True))
        y = linear_recurrence(a, b, self.axis, self.reverse)
        terms = [given[0] * shifted(y, self.axis, self.reverse)] if 0 in given else []
        terms += [given[1]] if 1 in given else []
        return [linear_recurrence(a, terms[0] if len(terms) == 1 else terms[0] + terms[1], self.axis, self.reverse)]

    def vmap(self, inputs: Any, axes: Any) -> Any:
        from outlive.ops.shape import batch_first, batch_size

        size = batch_size(inputs, axes)
        a, b = (batch_first(x, axis, size) for x, axis in zip(inputs, axes, strict=True))
        return [linear_recurrence(a, b, self.axis + 1, self.reverse)], [0]


def linear_recurrence(a: array, b: array, axis: int, reverse: bool) -> array:
    """y[i] = a[i] y[i-1] + b[i] along a non-negative `axis`; see `LinearRecurrence`."""
    return apply(LinearRecurrence.make(axis, reverse), (a, b), b._node.layout)


def shifted(a: array, axis: int, towards_front: bool) -> array:
    """`a` moved by one place along `axis`, a zero taking the freed place."""
    n = a.shape[axis]
    if not n:
        return a
    kept = axis_range(a, axis, 1 if towards_front else 0, n - 1)
    widths = [(0, 0)] * a.ndim
    widths[axis] = (0, 1) if towards_front else (1, 0)
    return pad(kept, widths)


def _scan(kind: type[Scan], a: Any, axis: int | None, reverse: bool, inclusive: bool, stream: Any) -> array:
    if axis is None:
        a, axis = reshape(a, (-1,), stream=stream) if a.ndim != 1 else a, 0
    at = checked_axis(kind.name, axis, a.ndim)
    return apply(kind.make(at, bool(inclusive), bool(reverse)), (a,), a._node.layout, stream)


def _accumulated(op: str, a: Any, dtype: Dtype | None) -> array:
    a = as_array(a)
    if dtype is None and op == "cumsum" and a.dtype is dtypes.bool_:
        dtype = dtypes.int32
    return a if dtype is None else a.astype(dtype)


def cumsum(
    a: array, /, axis: int | None = None, *, reverse: bool = False, inclusive: bool = True, dtype: Dtype | None = None,
    stream: Any = None,
) -> array:  # fmt: skip
    """Running sum along `axis` (None: of the flattened array), from the end with `reverse`, without the element itself
    if not `inclusive`.

    The result has the type of `a` (int32 for bool) or `dtype`, to which `a` is converted first. Half types accumulate
    in float32 at least
    and round once an element; integers wrap. Raises IndexError for an axis out of range.

    >>> mx.cumsum(mx.array([1, 2, 3]))
    array([1, 3, 6], dtype=int32)
    >>> mx.cumsum(mx.array([1, 2, 3]), reverse=True, inclusive=False)
    array([5, 3, 0], dtype=int32)
    """
    return _scan(CumSum, _accumulated("cumsum", a, dtype), axis, reverse, inclusive, stream)


def cumprod(
    a: array, /, axis: int | None = None, *, reverse: bool = False, inclusive: bool = True, dtype: Dtype | None = None,
    stream: Any = None,
) -> array:  # fmt: skip
    """Running product along `axis`; arguments and errors as in `cumsum`, bool stays bool.

    >>> mx.cumprod(mx.array([[1, 2], [3, 4]]), axis=1).tolist()
    [[1, 2], [3, 12]]
    """
    return _scan(CumProd, _accumulated("cumprod", a, dtype), axis, reverse, inclusive, stream)


def cummax(
    a: array, /, axis: int | None = None, *, reverse: bool = False, inclusive: bool = True, stream: Any = None
) -> array:
    """Running maximum along `axis`; NaN once there was one.

    An exclusive scan starts with the type's lowest value. See `cumsum`.

    >>> mx.cummax(mx.array([1.0, 3.0, 2.0]))
    array([1, 3, 3], dtype=float32)
    """
    return _scan(CumMax, as_array(a), axis, reverse, inclusive, stream)


def cummin(
    a: array, /, axis: int | None = None, *, reverse: bool = False, inclusive: bool = True, stream: Any = None
) -> array:
    """Running minimum along `axis`; NaN once there was one.

    An exclusive scan starts with the type's highest value. See `cumsum`.

    >>> mx.cummin(mx.array([3.0, mx.nan, 1.0]))
    array([3, nan, nan], dtype=float32)
    """
    return _scan(CumMin, as_array(a), axis, reverse, inclusive, stream)


def logcumsumexp(
    a: array, /, axis: int | None = None, *, reverse: bool = False, inclusive: bool = True, stream: Any = None
) -> array:
    """Logarithm of the running sum of exponentials along `axis`, without overflow.

    Integers are taken as float32. See `cumsum`.

    >>> mx.logcumsumexp(mx.array([0.0, 0.0, 1000.0]))
    array([0, 0.693147, 1000], dtype=float32)
    """
    a = as_array(a)
    a = a if a.dtype.inexact else a.astype(dtypes.float32)
    return _scan(LogCumSumExp, a, axis, reverse, inclusive, stream)


cumulative_sum, cumulative_prod = cumsum, cumprod

__all__ = ["cummax", "cummin", "cumprod", "cumsum", "cumulative_prod", "cumulative_sum", "logcumsumexp"]
