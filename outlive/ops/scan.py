"""Scans along an axis: running sums, products, extremes and log-sums. Half types accumulate in float32 and round each element once."""

from __future__ import annotations

from typing import Any

from outlive.graph.array import apply, array
from outlive.graph.primitive import Primitive
from outlive.ops.common import Dtype, as_array, dtypes, layout, normal_axis
from outlive.ops.elementwise import equal, where
from outlive.ops.shape import reshape
from outlive.ops.unary import exp


class Scan(Primitive):
    """Base: `combine` names NumPy's function whose `accumulate` is the scan. `start` fills the place that an exclusive scan frees."""

    __slots__ = ("axis", "inclusive", "reverse")
    donates = False
    combine = ""
    axis: int
    reverse: bool
    inclusive: bool

    def start(self, dtype: Any) -> Any:
        """The neutral element in NumPy's type."""
        return 0

    def accumulate(self, xp: Any, a: Any, dtype: Any) -> Any:
        """The inclusive forward scan along the axis."""
        return getattr(xp, self.combine).accumulate(a, self.axis, dtype)

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        out = writes[0]
        a = xp.flip(reads[0], self.axis) if self.reverse else reads[0]
        if not self.inclusive and a.shape[self.axis]:
            first = xp.full_like(xp.take(a, [0], self.axis), self.start(a.dtype))
            a = xp.concatenate([first, xp.take(a, range(a.shape[self.axis] - 1), self.axis)], self.axis)
        made = self.accumulate(xp, a, out.dtype)
        out[...] = xp.flip(made, self.axis) if self.reverse else made

    def again(self, a: array, axis: int) -> array:
        """The same scan of another array along another axis."""
        made = type(self).make(axis, self.reverse, self.inclusive)
        return apply(made, (a,), layout(a.shape, _type(self.name, a.dtype)))

    def vmap(self, inputs: Any, axes: Any) -> Any:
        return [self.again(inputs[0], self.axis + (self.axis >= axes[0]))], [axes[0]]


class CumSum(Scan):
    __slots__ = ("axis", "inclusive", "reverse")
    name = "cumsum"
    combine = "add"

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        return [cumsum(cotangents[0], self.axis, reverse=not self.reverse, inclusive=self.inclusive)]

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        return [self.again(tangents[0], self.axis)]


class CumProd(Scan):
    __slots__ = ("axis", "inclusive", "reverse")
    name = "cumprod"
    combine = "multiply"

    def start(self, dtype: Any) -> Any:
        return 1

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        # d out[j] / d a[i] = (product up to j without i); summed over j at and after i
        a, ct = primals[0], cotangents[0]
        zero = equal(a, 0)
        safe = where(zero, 1, a)
        own = CumProd.make(self.axis, self.reverse, self.inclusive).again(safe, self.axis)
        zeros_before = cumsum(zero.astype(dtypes.int32), self.axis, reverse=self.reverse, inclusive=self.inclusive)  # type: ignore[attr-defined]
        gathered = cumsum(where(equal(zeros_before, 0), ct * own, 0), self.axis, reverse=not self.reverse, inclusive=self.inclusive)
        with_one = cumsum(where(equal(zeros_before, 1), ct * own, 0), self.axis, reverse=not self.reverse, inclusive=self.inclusive)
        first_zero = equal(cumsum(zero.astype(dtypes.int32), self.axis, reverse=self.reverse), 1)  # type: ignore[attr-defined]
        return [where(zero, where(first_zero, with_one, 0), gathered / safe)]

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        a = primals[0]
        return [self.again(a, self.axis) * CumSum.make(self.axis, self.reverse, self.inclusive).again(tangents[0] / a, self.axis)]


class CumExtreme(Scan):
    """Running largest or smallest; the derivative of each goes to the place that it came from."""

    __slots__ = ("axis", "inclusive", "reverse")

    def start(self, dtype: Any) -> Any:
        import numpy as np

        smallest = self.combine == "maximum"
        if dtype.kind in "iu":
            return np.iinfo(dtype).min if smallest else np.iinfo(dtype).max
        return not smallest if dtype.kind == "b" else (-np.inf if smallest else np.inf)

    def accumulate(self, xp: Any, a: Any, dtype: Any) -> Any:
        return getattr(xp, self.combine).accumulate(a, self.axis)


class CumMax(CumExtreme):
    __slots__ = ("axis", "inclusive", "reverse")
    name = "cummax"
    combine = "maximum"


class CumMin(CumExtreme):
    __slots__ = ("axis", "inclusive", "reverse")
    name = "cummin"
    combine = "minimum"


class LogCumSumExp(Scan):
    __slots__ = ("axis", "inclusive", "reverse")
    name = "logcumsumexp"
    combine = "logaddexp"

    def start(self, dtype: Any) -> Any:
        return float("-inf")

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        a, ct, out = primals[0], cotangents[0], outputs[0]
        # exp(a[i]) * sum_j ct[j] exp(-out[j]), kept in range by the output's own size
        weights = cumsum(ct * exp(-out), self.axis, reverse=not self.reverse, inclusive=self.inclusive)
        return [exp(a) * weights]


def _type(op: str, dtype: Dtype) -> Dtype:
    return dtypes.int32 if dtype is dtypes.bool_ and op in ("cumsum", "cumprod") else dtype


def _scan(primitive: type[Scan], a: Any, axis: int | None, reverse: bool, inclusive: bool, stream: Any) -> array:
    a = as_array(a)
    if axis is None:
        a, axis = reshape(a, (-1,)), 0
    at = normal_axis(primitive.name, axis, a.ndim)
    op = primitive.make(at, bool(reverse), bool(inclusive))
    return apply(op, (a,), layout(a.shape, _type(primitive.name, a.dtype)), stream)


def cumsum(a: Any, /, axis: int | None = None, *, reverse: bool = False, inclusive: bool = True, stream: Any = None) -> array:
    """Running sum along `axis` (None: of the flattened array), from the end if `reverse`, of the elements before if not `inclusive`.

    Half types accumulate in float32. bool becomes int32. Raises ValueError for an axis out of range.
    """
    return _scan(CumSum, a, axis, reverse, inclusive, stream)


def cumprod(a: Any, /, axis: int | None = None, *, reverse: bool = False, inclusive: bool = True, stream: Any = None) -> array:
    """Running product; arguments as in `cumsum`."""
    return _scan(CumProd, a, axis, reverse, inclusive, stream)


def cummax(a: Any, /, axis: int | None = None, *, reverse: bool = False, inclusive: bool = True, stream: Any = None) -> array:
    """Running largest element, NaN from the first NaN on; arguments as in `cumsum`."""
    return _scan(CumMax, a, axis, reverse, inclusive, stream)


def cummin(a: Any, /, axis: int | None = None, *, reverse: bool = False, inclusive: bool = True, stream: Any = None) -> array:
    """Running smallest element, NaN from the first NaN on; arguments as in `cumsum`."""
    return _scan(CumMin, a, axis, reverse, inclusive, stream)


def logcumsumexp(
    a: Any, /, axis: int | None = None, *, reverse: bool = False, inclusive: bool = True, stream: Any = None
) -> array:
    """Running log(sum(exp(a))); arguments as in `cumsum`. Integers are taken as float32."""
    a = as_array(a)
    a = a if a.dtype.inexact else a.astype(dtypes.float32)  # type: ignore[attr-defined]
    return _scan(LogCumSumExp, a, axis, reverse, inclusive, stream)


__all__ = ["cummax", "cummin", "cumprod", "cumsum", "logcumsumexp"]
