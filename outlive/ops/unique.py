"""The distinct elements of an array, in a result of given length: the shape never depends on the data."""

from __future__ import annotations

from typing import Any

from outlive.graph.array import apply_many, array
from outlive.graph.primitive import Primitive
from outlive.ops.common import as_array, dtypes, layout
from outlive.ops.matmul import cast
from outlive.ops.shape import flatten, reshape


class Unique(Primitive):
    """Reads elements (n,) and, if `filled`, a fill value; writes values, first indices, inverse and counts."""

    __slots__ = ("filled",)
    name = "unique"
    filled: bool

    def encode(self, encoder: Any, inputs: Any, layouts: Any) -> Any:
        outs = tuple([encoder.output(made, False) for made in layouts])
        encoder.dispatch(self, inputs, outs)
        return outs

    def workspace(self, reads: Any, writes: Any) -> int:
        return super().workspace(reads, writes) + 64 * reads[0].size

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        a = reads[0]
        values, first, inverse, counts = writes
        size = values.shape[0]
        order = xp.argsort(a, kind="stable")
        ordered = a[order]
        starts = xp.ones(a.shape, bool)
        starts[1:] = ordered[1:] != ordered[:-1]
        found = xp.nonzero(starts)[0]
        kept = min(size, found.shape[0])
        values[:kept] = ordered[found[:kept]]
        first[:kept] = order[found[:kept]]
        counts[:kept] = xp.diff(xp.append(found, a.shape[0]))[:kept]
        counts[kept:] = 0
        inverse[order] = xp.minimum(xp.cumsum(starts), max(size, 1)) - 1
        if kept < size:
            values[kept:] = reads[1].reshape(()) if self.filled else values[0]
            first[kept:] = first[0] if kept else 0

    def vmap(self, inputs: Any, axes: Any) -> Any:
        raise ValueError("[unique] There is no batching rule; call it for each row.")


def unique(
    a: Any,
    /,
    size: int,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    fill_value: Any = None,
    *,
    stream: Any = None,
) -> array | tuple[array, ...]:
    """The first `size` distinct elements of `a` in ascending order (NaN last, each NaN for itself).

    Where there are fewer, `fill_value` (None: the smallest element) follows. Then, as asked for: for each the index in
    the flattened array of its first occurrence (uint32); for each element of `a` the place of its value in the result,
    the last one for values beyond it (uint32, `a`'s shape); and how often each occurs (int32, 0 for what was filled
    in). Raises ValueError for a negative `size`, and for an empty array without `fill_value`.

    >>> mx.unique(mx.array([3, 1, 3]), size=2)
    array([1, 3], dtype=int32)
    >>> mx.unique(mx.array([3, 1, 3]), size=3, return_counts=True, fill_value=0)
    (array([1, 3, 0], dtype=int32), array([1, 2, 0], dtype=int32))
    """
    a = as_array(a)
    if size < 0:
        raise ValueError(f"[unique] The size must not be negative; got {size}.")
    if not a.size and size and fill_value is None:
        raise ValueError("[unique] An empty array has no elements: give a fill_value.")
    flat = flatten(a, stream=stream)
    inputs: tuple[array, ...] = (flat,)
    if fill_value is not None:
        value = as_array(fill_value)
        if value.size != 1:
            raise ValueError(f"[unique] The fill value must be one number; got shape {value.shape}.")
        inputs = (flat, cast(value, a.dtype))
    results = (
        layout((size,), a.dtype),
        layout((size,), dtypes.uint32),
        layout((flat.size,), dtypes.uint32),
        layout((size,), dtypes.int32),
    )
    values, first, inverse, counts = apply_many(Unique.make(fill_value is not None), inputs, results, stream)
    made = [values]
    if return_index:
        made.append(first)
    if return_inverse:
        made.append(reshape(inverse, a.shape, stream=stream))
    if return_counts:
        made.append(counts)
    return made[0] if len(made) == 1 else tuple(made)


__all__ = ["unique"]
