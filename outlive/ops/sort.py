"""Order along an axis: sort, partition, top-k and search. NaN comes last; equal keys keep their order."""

from __future__ import annotations

from typing import Any

from outlive.graph.array import apply, array
from outlive.graph.primitive import Primitive
from outlive.ops.common import as_array, dtypes, layout, normal_axis
from outlive.ops.gather import scatter_along, take_along_axis
from outlive.ops.shape import reshape


class Ordering(Primitive):
    """Base of ops that reorder an axis."""

    __slots__ = ("axis",)
    donates = False
    axis: int

    def again(self, a: array, axis: int) -> array:
        """The same op along another axis of another array."""
        kind = dtypes.uint32 if self.name.startswith("arg") else a.dtype
        return apply(type(self).make(axis), (a,), layout(a.shape, kind))

    def order(self, a: array) -> array:
        """The indices by which the op reorders `a`."""
        return argsort(a, self.axis)

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        if self.name.startswith("arg"):
            return [None]
        from outlive.ops.creation import zeros_like

        return [scatter_along(zeros_like(primals[0]), self.order(primals[0]), cotangents[0], self.axis, "none")]

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        return [take_along_axis(tangents[0], self.order(primals[0]), self.axis)]

    def vmap(self, inputs: Any, axes: Any) -> Any:
        return [self.again(inputs[0], self.axis + (self.axis >= axes[0]))], [axes[0]]


class Sort(Ordering):
    __slots__ = ("axis",)
    name = "sort"

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        writes[0][...] = xp.sort(reads[0], self.axis)


class ArgSort(Ordering):
    __slots__ = ("axis",)
    name = "argsort"

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        writes[0][...] = xp.argsort(reads[0], self.axis, kind="stable")


class SearchSorted(Primitive):
    """Places in a sorted vector at which values belong."""

    __slots__ = ("right",)
    name = "searchsorted"
    donates = False
    right: bool

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        writes[0][...] = xp.searchsorted(reads[0], reads[1], side="right" if self.right else "left")


def _along(op: str, a: Any, axis: int | None) -> tuple[array, int]:
    a = as_array(a)
    if axis is None:
        return reshape(a, (-1,)), 0
    return a, normal_axis(op, axis, a.ndim)


def sort(a: Any, /, axis: int | None = -1, *, stream: Any = None) -> array:
    """A sorted copy along `axis` (None: of the flattened array), NaN last. Raises ValueError for an axis out of range."""
    a, at = _along("sort", a, axis)
    return apply(Sort.make(at), (a,), a._node.layout, stream)


def argsort(a: Any, /, axis: int | None = -1, *, stream: Any = None) -> array:
    """Indices (uint32) that sort `a` along `axis` (None: flattened); equal keys keep their order, NaN comes last."""
    a, at = _along("argsort", a, axis)
    return apply(ArgSort.make(at), (a,), layout(a.shape, dtypes.uint32), stream)


def _checked_kth(op: str, a: array, kth: int, axis: int) -> None:
    n = a.shape[axis]
    if not -n <= kth < n:
        raise ValueError(f"[{op}] kth {kth} is out of range for an axis of length {n}.")


def partition(a: Any, /, kth: int, axis: int | None = -1, *, stream: Any = None) -> array:
    """A copy in which element `kth` along `axis` is where sorting would put it, smaller ones before and larger ones after.

    Raises ValueError for `kth` or an axis out of range.
    """
    a, at = _along("partition", a, axis)
    _checked_kth("partition", a, kth, at)
    return sort(a, at, stream=stream)


def argpartition(a: Any, /, kth: int, axis: int | None = -1, *, stream: Any = None) -> array:
    """Indices (uint32) of a partition; see `partition`."""
    a, at = _along("argpartition", a, axis)
    _checked_kth("argpartition", a, kth, at)
    return argsort(a, at, stream=stream)


def topk(a: Any, /, k: int, axis: int | None = -1, *, stream: Any = None) -> array:
    """The `k` largest elements along `axis` (None: of the flattened array), in rising order. Raises ValueError for `k` out of range."""
    a, at = _along("topk", a, axis)
    n = a.shape[at] if a.ndim else 1
    if not 0 <= k <= n:
        raise ValueError(f"[topk] k {k} is out of range for an axis of length {n}.")
    index = tuple(slice(n - k, n) if i == at else slice(None) for i in range(a.ndim))
    return sort(a, at, stream=stream)[index]  # type: ignore[index]


def searchsorted(a: Any, v: Any, /, *, side: str = "left", right: bool = False, stream: Any = None) -> array:
    """Indices (uint32) at which `v` belongs in the sorted vector `a`, before ("left") or after ("right") equal elements."""
    a, v = as_array(a), as_array(v)
    if a.ndim != 1:
        raise ValueError(f"[searchsorted] The sorted array has one axis; got shape {a.shape}.")
    if side not in ("left", "right"):
        raise ValueError(f"[searchsorted] side is 'left' or 'right'; got {side!r}.")
    return apply(SearchSorted.make(right or side == "right"), (a, v), layout(v.shape, dtypes.uint32), stream)


__all__ = ["argpartition", "argsort", "partition", "searchsorted", "sort", "topk"]
