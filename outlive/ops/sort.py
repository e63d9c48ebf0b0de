"""Order along an axis: sort, partition, top-k and search. NaN comes last; equal keys of an argsort keep their order."""

from __future__ import annotations

from typing import Any

from outlive.graph.array import apply, array
from outlive.graph.primitive import Primitive
from outlive.ops.common import Dtype, as_array, dtypes, layout, normal_axis, promote
from outlive.ops.creation import zeros_like
from outlive.ops.gather import scatter_along, take_along_axis
from outlive.ops.shape import reshape
from outlive.ops.slicing import axis_range, one_by_one
from outlive.ops.unary import astype

LIMIT_INDICES = 1 << 32
"""Elements of an axis that indices of 32 bits can name."""


class Ordering(Primitive):
    """Base of ops that reorder each row along `axis` (the first parameter of each)."""

    __slots__ = ("axis",)
    donates = False
    axis: int

    def output_type(self, dtype: Dtype) -> Dtype:
        """The output's type for an operand of this type."""
        return dtype

    def workspace(self, reads: Any, writes: Any) -> int:
        # two sets of 64-bit indices beside copies of the operand
        return 48 * reads[0].size

    def order(self, a: array) -> array:
        """The indices by which the op reorders `a`."""
        raise NotImplementedError

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        a = primals[0]
        return [scatter_along(zeros_like(a), self.order(a), cotangents[0], self.axis, "none")]

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        return [take_along_axis(tangents[0], self.order(primals[0]), self.axis)]

    def vmap(self, inputs: Any, axes: Any) -> Any:
        over = self.axis + (self.axis >= axes[0])
        return [_ordered(type(self).make(over, *self.parameters()[1:]), inputs[0])], [axes[0]]


class ArgOrdering(Ordering):
    """Base of those that give the indices; they have no derivative."""

    __slots__ = ("axis",)

    def output_type(self, dtype: Dtype) -> Dtype:
        return dtypes.uint32

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        return [None]

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        return [zeros_like(_ordered(self, primals[0]))]


class Sort(Ordering):
    __slots__ = ("axis",)
    name = "sort"

    def order(self, a: array) -> array:
        return argsort(a, self.axis)

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        writes[0][...] = xp.sort(reads[0], self.axis)


class ArgSort(ArgOrdering):
    __slots__ = ("axis",)
    name = "argsort"

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        writes[0][...] = xp.argsort(reads[0], self.axis, kind="stable")


class Partition(Ordering):
    """Takes the elements by the indices of `argpartition`, so that both orders are one."""

    __slots__ = ("axis", "kth")
    name = "partition"
    kth: int

    def order(self, a: array) -> array:
        return argpartition(a, self.kth, self.axis)

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        order = xp.argpartition(reads[0], self.kth, self.axis)
        writes[0][...] = xp.take_along_axis(reads[0], order, self.axis)


class ArgPartition(ArgOrdering):
    __slots__ = ("axis", "kth")
    name = "argpartition"
    kth: int

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        writes[0][...] = xp.argpartition(reads[0], self.kth, self.axis)


class SearchSorted(Primitive):
    """Places in a sorted vector at which values belong, before equal elements or after them."""

    __slots__ = ("side",)
    name = "searchsorted"
    donates = False
    side: str

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        writes[0][...] = xp.searchsorted(reads[0], reads[1], side=self.side)

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        return [None for _ in argnums]

    def vmap(self, inputs: Any, axes: Any) -> Any:
        if axes[0] is None:
            return [searchsorted(inputs[0], inputs[1], side=self.side)], [axes[1]]
        return one_by_one(lambda a, v: searchsorted(a, v, side=self.side), inputs, axes)


def _ordered(op: Ordering, a: array, stream: Any = None) -> array:
    return apply(op, (a,), layout(a.shape, op.output_type(a.dtype)), stream)


def _along(op: str, a: Any, axis: int | None) -> tuple[array, int]:
    """The operand (flattened without an axis) and the axis."""
    a = as_array(a)
    a, at = (reshape(a, (-1,)), 0) if axis is None else (a, normal_axis(op, axis, a.ndim))
    if a.shape[at] > LIMIT_INDICES:
        raise ValueError(f"[{op}] Indices of 32 bits cannot name all of {a.shape[at]} elements.")
    return a, at


def sort(a: array, /, axis: int | None = -1, *, stream: Any = None) -> array:
    """A copy sorted along `axis` (None: of the flattened array), NaN last; complex numbers in lexicographic order.

    Raises IndexError for an axis out of range.

    >>> mx.sort(mx.array([3.0, mx.nan, 1.0]))
    array([1, 3, nan], dtype=float32)
    """
    a, at = _along("sort", a, axis)
    return _ordered(Sort.make(at), a, stream)


def argsort(a: array, /, axis: int | None = -1, *, stream: Any = None) -> array:
    """Indices (uint32) that sort `a` along `axis` (None: flattened); equal keys keep their order, NaN comes last.

    Raises IndexError for an axis out of range.

    >>> mx.argsort(mx.array([3, 1, 2]))
    array([1, 2, 0], dtype=uint32)
    """
    a, at = _along("argsort", a, axis)
    return _ordered(ArgSort.make(at), a, stream)


def _checked_kth(op: str, a: array, kth: int, axis: int) -> int:
    n = a.shape[axis]
    if not -n <= kth < n:
        raise ValueError(f"[{op}] kth = {kth} is out of range for an axis of {n} elements in shape {a.shape}.")
    return kth % n


def partition(a: array, /, kth: int, axis: int | None = -1, *, stream: Any = None) -> array:
    """A copy in which element `kth` along `axis` (None: of the flattened array) is where sorting would put it.

    None before it is larger and none after it smaller; their order is not defined. Raises ValueError for `kth` and
    IndexError for an axis out of range.

    >>> mx.partition(mx.array([5, 3, 9, 1]), 1)[1]
    array(3, dtype=int32)
    """
    a, at = _along("partition", a, axis)
    return _ordered(Partition.make(at, _checked_kth("partition", a, kth, at)), a, stream)


def argpartition(a: array, /, kth: int, axis: int | None = -1, *, stream: Any = None) -> array:
    """Indices (uint32) of the elements of `partition(a, kth, axis)`, in their order; errors as there.

    >>> a = mx.array([5, 3, 9, 1])
    >>> a[mx.argpartition(a, 1)[1]]
    array(3, dtype=int32)
    """
    a, at = _along("argpartition", a, axis)
    return _ordered(ArgPartition.make(at, _checked_kth("argpartition", a, kth, at)), a, stream)


def topk(a: array, /, k: int, axis: int | None = -1, *, stream: Any = None) -> array:
    """The `k` largest elements along `axis` (None: of the flattened array), in rising order; NaN counts as largest.

    Raises ValueError for `k` and IndexError for an axis out of range.

    >>> mx.topk(mx.array([5, 3, 9, 1]), 2)
    array([5, 9], dtype=int32)
    """
    a, at = _along("topk", a, axis)
    n = a.shape[at]
    if not 0 <= k <= n:
        raise ValueError(f"[topk] k = {k} is out of range for an axis of {n} elements in shape {a.shape}.")
    if 0 < k < n:
        a = axis_range(partition(a, n - k, at), at, n - k, k)
    elif not k:
        a = axis_range(a, at, 0, 0)
    return sort(a, at, stream=stream)


def searchsorted(sorted_sequence: array, values: array, /, side: str = "left", *, stream: Any = None) -> array:
    """Indices (uint32) at which `values` belong in a sorted vector, before equal elements ("left") or after ("right").

    NaN is larger than any number. The result has the shape of `values`. Raises ValueError for a sequence that is no
    vector and for another `side`.

    >>> mx.searchsorted(mx.array([1, 3, 3, 5]), mx.array([3, 6]))
    array([1, 4], dtype=uint32)
    >>> mx.searchsorted(mx.array([1, 3, 3, 5]), mx.array([3, 6]), side="right")
    array([3, 4], dtype=uint32)
    """
    a, v = as_array(sorted_sequence), as_array(values)
    if a.ndim != 1:
        raise ValueError(f"[searchsorted] The sorted sequence has one axis; got shape {a.shape}.")
    if side not in ("left", "right"):
        raise ValueError(f"[searchsorted] side is 'left' or 'right'; got {side!r}.")
    common = promote(a.dtype, v.dtype)
    pair = (astype(a, common), astype(v, common))
    return apply(SearchSorted.make(side), pair, layout(v.shape, dtypes.uint32), stream)


__all__ = ["argpartition", "argsort", "partition", "searchsorted", "sort", "topk"]
