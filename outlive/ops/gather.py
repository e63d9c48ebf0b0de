"""Elements at computed places: take, gather, and the scatters that write them, in place where nobody else sees the
array.

A negative index counts from the end. An index out of range is an error of the array that is made with it: raised when
it is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outlive.graph.array import apply, array
from outlive.graph.primitive import Primitive
from outlive.ops.common import Plans, as_array, broadcast_shapes, dtypes, layout
from outlive.ops.creation import arange, zeros
from outlive.ops.elementwise import equal, multiply
from outlive.ops.shape import batch_first, batch_size, broadcast_to, checked_axis, flatten, moveaxis, reshape
from outlive.ops.slicing import own_copy, with_zeros
from outlive.ops.unary import negative

MODES = ("none", "add", "subtract", "multiply", "divide", "maximum", "minimum")
"""What a scatter does with an element and its update; "none" replaces it, and of several updates of one place the last
stays.
"""


def checked_indices(op: str, indices: Any) -> array:
    """Indices as an integer array; raises ValueError for another type."""
    indices = as_array(indices)
    if indices.dtype.category not in (dtypes.signedinteger, dtypes.unsignedinteger):
        raise ValueError(f"[{op}] Indices must be integers; got {indices.dtype.name}.")
    return indices


class Take(Primitive):
    """Slices of an array at indices along one axis."""

    __slots__ = ("axis",)
    name = "take"
    moves_bits = True
    donates = False
    axis: int

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        writes[0][...] = xp.take(reads[0], reads[1], axis=self.axis)

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        a, indices = primals
        return [None if i else scatter_zeros(a, cotangents[0], [indices], (self.axis,), self.axis) for i in argnums]

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        tangent, _ = with_zeros(primals, tangents, argnums)
        return [gather(tangent, [primals[1]], (self.axis,), self.axis)]

    def vmap(self, inputs: Any, axes: Any) -> Any:
        return _gather_vmap(inputs, axes, (self.axis,), self.axis)


class Gather(Primitive):
    """Elements of an array at indices along several axes; the indices' common axes stand at place `at` of the others."""

    __slots__ = ("at", "axes")
    name = "gather"
    moves_bits = True
    donates = False
    at: int
    axes: tuple[int, ...]

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        a, indices = reads[0], reads[1:]
        front = xp.moveaxis(a, self.axes, range(len(self.axes)))
        _indices_first(xp, writes[0], indices[0].ndim, self.at)[...] = front[tuple(indices)]

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        a, *indices = primals
        return [None if i else scatter_zeros(a, cotangents[0], indices, self.axes, self.at) for i in argnums]

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        tangent, *_ = with_zeros(primals, tangents, argnums)
        return [gather(tangent, list(primals[1:]), self.axes, self.at)]

    def vmap(self, inputs: Any, axes: Any) -> Any:
        return _gather_vmap(inputs, axes, self.axes, self.at)


def _indices_first(xp: Any, a: Any, count: int, at: int) -> Any:
    return xp.moveaxis(a, range(at, at + count), range(count))


def _gather_vmap(inputs: Any, axes: Any, gathered: tuple[int, ...], at: int) -> Any:
    a, *indices = inputs
    size = batch_size(inputs, axes)
    if all(axis is None for axis in axes[1:]):
        return [gather(moveaxis(a, axes[0], 0), indices, tuple([i + 1 for i in gathered]), at + 1)], [0]
    indices = _batched_indices(indices, axes[1:], size)
    if axes[0] is None:
        return [gather(a, indices, gathered, at)], [at]
    a = moveaxis(a, axes[0], 0)
    return [gather(a, [_batch_places(size, indices[0].ndim), *indices], (0, *[i + 1 for i in gathered]), at)], [at]


def _batched_indices(indices: Sequence[array], axes: Sequence[int | None], size: int) -> list[array]:
    return [batch_first(i, axis, size) for i, axis in zip(indices, axes, strict=True)]


def _batch_places(size: int, ndim: int) -> array:
    return reshape(arange(size), (size,) + (1,) * (ndim - 1))


class Scatter(Primitive):
    """An array with elements at indices replaced. Shapes as in `Gather`: the updates have the shape that it would give."""

    __slots__ = ("at", "axes")
    name = "scatter"
    moves_bits = True
    at: int
    axes: tuple[int, ...]

    def encode(self, encoder: Any, inputs: Any, layout: Any) -> Any:
        out = own_copy(encoder, 0, inputs[0], layout)
        encoder.dispatch(self, inputs[1:], (out,))
        return out

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        updates, indices = reads[0], reads[1:]
        front = xp.moveaxis(writes[0], self.axes, range(len(self.axes)))
        front[tuple(indices)] = _indices_first(xp, updates, indices[0].ndim, self.at)

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        _, updates, *indices = primals
        cotangent = cotangents[0]
        made: list[Any] = []
        for i in argnums:
            if i == 0:
                made.append(scatter(cotangent, zeros(updates.shape, cotangent.dtype), indices, self.axes, self.at))
            else:
                made.append(gather(cotangent, indices, self.axes, self.at) if i == 1 else None)
        return made

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        base, updates, *_ = with_zeros(primals, tangents, argnums)
        return [scatter(base, updates, list(primals[2:]), self.axes, self.at)]

    def vmap(self, inputs: Any, axes: Any) -> Any:
        return _scatter_vmap(inputs, axes, self.axes, self.at, "none")


class ScatterReduce(Primitive):
    """An array with elements at indices combined with updates by `mode`, one after the other in the order of the
    indices.
    """

    __slots__ = ("at", "axes", "mode")
    name = "scatter_reduce"
    at: int
    axes: tuple[int, ...]
    mode: str

    def encode(self, encoder: Any, inputs: Any, layout: Any) -> Any:
        out = own_copy(encoder, 0, inputs[0], layout)
        encoder.dispatch(self, (out, *inputs[1:]), (out,))
        return out

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        base, updates, indices = reads[0], reads[1], reads[2:]
        if not xp.may_share_memory(base, writes[0]):
            writes[0][...] = base  # half types are computed in float32 copies
        front = xp.moveaxis(writes[0], self.axes, range(len(self.axes)))
        getattr(xp, self.mode).at(front, tuple(indices), _indices_first(xp, updates, indices[0].ndim, self.at))

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        if self.mode not in ("add", "subtract", "maximum", "minimum"):
            raise ValueError(f"[scatter] There is no derivative of updates by {self.mode!r} at computed indices.")
        base, updates, *indices = primals
        return [self._cotangent(i, base, updates, indices, cotangents[0], outputs[0]) for i in argnums]

    def _cotangent(
        self, i: int, base: array, updates: array, indices: list[array], cotangent: array, out: array
    ) -> Any:
        if i > 1:
            return None
        seen = cotangent if i == 0 else gather(cotangent, indices, self.axes, self.at)
        if self.mode in ("add", "subtract"):
            return negative(seen) if i == 1 and self.mode == "subtract" else seen
        # the element that stayed gets the cotangent; of equal ones each does
        stayed = equal(base, out) if i == 0 else equal(updates, gather(out, indices, self.axes, self.at))
        return multiply(seen, stayed.astype(seen.dtype))

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        base, updates, *indices = primals
        toward_base, toward_updates, *_ = with_zeros(primals, tangents, argnums)
        if self.mode in ("add", "subtract"):
            return [scatter(toward_base, toward_updates, indices, self.axes, self.at, self.mode)]
        if self.mode not in ("maximum", "minimum"):
            raise ValueError(
                f"[scatter] There is no forward derivative of updates by {self.mode!r} at computed indices."
            )
        out = scatter(base, updates, indices, self.axes, self.at, self.mode)
        stayed = equal(base, out).astype(toward_base.dtype)
        won = equal(updates, gather(out, indices, self.axes, self.at)).astype(toward_base.dtype)
        kept = multiply(toward_base, stayed)
        return [scatter(kept, multiply(toward_updates, won), indices, self.axes, self.at, "add")]

    def vmap(self, inputs: Any, axes: Any) -> Any:
        return _scatter_vmap(inputs, axes, self.axes, self.at, self.mode)


def _scatter_vmap(inputs: Any, axes: Any, scattered: tuple[int, ...], at: int, mode: str) -> Any:
    size = batch_size(inputs, axes)
    base, updates, *indices = inputs
    base, updates = batch_first(base, axes[0], size), batch_first(updates, axes[1], size)
    moved = tuple([i + 1 for i in scattered])
    if all(axis is None for axis in axes[2:]):
        return [scatter(base, updates, indices, moved, at + 1, mode)], [0]
    indices = _batched_indices(indices, axes[2:], size)
    places = _batch_places(size, indices[0].ndim)
    return [scatter(base, moveaxis(updates, 0, at), [places, *indices], (0, *moved), at, mode)], [0]


class TakeAlongAxis(Primitive):
    """For each place of the indices, the element of the array at that place but for `axis`, where the index says it."""

    __slots__ = ("axis",)
    name = "take_along_axis"
    moves_bits = True
    donates = False
    axis: int

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        writes[0][...] = reads[0][along(xp, reads[1], self.axis)]

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        a, indices = primals
        cotangent = cotangents[0]
        rest = [None if i else zeros(a.shape, cotangent.dtype) for i in argnums]
        return [None if z is None else scatter_along(z, indices, cotangent, self.axis, "add") for z in rest]

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        tangent, _ = with_zeros(primals, tangents, argnums)
        return [take_along_axis(tangent, primals[1], self.axis)]

    def vmap(self, inputs: Any, axes: Any) -> Any:
        size = batch_size(inputs, axes)
        a, indices = [batch_first(i, axis, size) for i, axis in zip(inputs, axes, strict=True)]
        return [take_along_axis(a, indices, self.axis + 1)], [0]


class ScatterAlongAxis(Primitive):
    """An array with the elements that `TakeAlongAxis` would take replaced, or combined with updates."""

    __slots__ = ("axis", "mode")
    name = "scatter_along_axis"
    axis: int
    mode: str

    def encode(self, encoder: Any, inputs: Any, layout: Any) -> Any:
        out = own_copy(encoder, 0, inputs[0], layout)
        encoder.dispatch(self, (out, *inputs[1:]), (out,))
        return out

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        base, indices, updates = reads
        if not xp.may_share_memory(base, writes[0]):
            writes[0][...] = base  # half types are computed in float32 copies
        places = along(xp, indices, self.axis)
        if self.mode == "none":
            writes[0][places] = updates
        else:
            getattr(xp, self.mode).at(writes[0], places, updates)

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        indices, cotangent = primals[1], cotangents[0]
        made: list[Any] = []
        for i in argnums:
            if i == 0 and self.mode == "none":
                made.append(scatter_along(cotangent, indices, zeros(indices.shape, cotangent.dtype), self.axis, "none"))
            elif i == 0:
                made.append(cotangent)
            else:
                made.append(take_along_axis(cotangent, indices, self.axis) if i == 2 else None)
        return made

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        base, _, updates = with_zeros(primals, tangents, argnums)
        return [scatter_along(base, primals[1], updates, self.axis, self.mode)]

    def vmap(self, inputs: Any, axes: Any) -> Any:
        size = batch_size(inputs, axes)
        base, indices, updates = [batch_first(i, axis, size) for i, axis in zip(inputs, axes, strict=True)]
        return [scatter_along(base, indices, updates, self.axis + 1, self.mode)], [0]


def along(xp: Any, indices: Any, axis: int) -> tuple[Any, ...]:
    """Index arrays, one an axis, of the elements that `indices` name along `axis`."""
    shape = indices.shape
    places = [xp.arange(n).reshape((n,) + (1,) * (len(shape) - i - 1)) for i, n in enumerate(shape)]
    places[axis] = indices
    return tuple(places)


def gather(a: array, indices: Sequence[array], axes: tuple[int, ...], at: int, stream: Any = None) -> array:
    """The elements of `a` at `indices`, one array for each of `axes`, broadcast together.

    The result has the axes of `a` that are not in `axes`, with the axes of the indices inserted before place `at` of
    them.
    """
    if len(axes) == 1 and at == axes[0]:
        index = indices[0]
        key = (a._node.layout, index._node.layout, at)
        plan = _takes.get(key)
        if plan is None:
            result = layout((*a.shape[:at], *index.shape, *a.shape[at + 1 :]), a.dtype)
            plan = _takes.keep(key, (Take.make(at), result))
        return apply(plan[0], (a, index), plan[1], stream)
    indices, shape = _common(indices, stream)
    rest = [n for i, n in enumerate(a.shape) if i not in axes]
    result = layout((*rest[:at], *shape, *rest[at:]), a.dtype)
    return apply(Gather.make(at, axes), (a, *indices), result, stream)


_takes = Plans()


def _common(indices: Sequence[array], stream: Any) -> tuple[list[array], tuple[int, ...]]:
    shape = broadcast_shapes("gather", *[i.shape for i in indices])
    return [broadcast_to(i, shape, stream=stream) for i in indices], shape


def scatter(
    a: array,
    updates: array,
    indices: Sequence[array],
    axes: tuple[int, ...],
    at: int,
    mode: str = "none",
    stream: Any = None,
) -> array:
    """`a` with the elements that `gather` would take combined with `updates` (of `a`'s type and of the shape of its
    result).
    """
    indices, shape = _common(indices, stream)
    rest = [n for i, n in enumerate(a.shape) if i not in axes]
    updates = broadcast_to(updates, (*rest[:at], *shape, *rest[at:]), stream=stream)
    op = Scatter.make(at, axes) if mode == "none" else ScatterReduce.make(at, axes, mode)
    return apply(op, (a, updates, *indices), a._node.layout, stream)


def scatter_zeros(a: array, updates: array, indices: Sequence[array], axes: tuple[int, ...], at: int) -> array:
    """Zeros of `a`'s shape with `updates` added at indices: the cotangent of a gather."""
    return scatter(zeros(a.shape, updates.dtype), updates, indices, axes, at, "add")


def scatter_along(a: array, indices: array, updates: array, axis: int, mode: str, stream: Any = None) -> array:
    """`a` with the elements at `indices` along `axis` combined with `updates`; `a` has the indices' shape but for
    `axis`.
    """
    updates = broadcast_to(updates, indices.shape, stream=stream)
    return apply(ScatterAlongAxis.make(axis, mode), (a, indices, updates), a._node.layout, stream)


def take(a: Any, /, indices: Any, axis: int | None = None, *, stream: Any = None) -> array:
    """The slices of `a` at `indices` along `axis` (None: of the flattened array).

    `indices`: an integer or an integer array of shape S; the result has S in the place of `axis`. Raises ValueError for
    other types or an empty axis, IndexError for an axis or an integer out of range.

    >>> mx.take(mx.array([[1, 2], [3, 4]]), mx.array([1, 0, 1]), axis=1).tolist()
    [[2, 1, 2], [4, 3, 4]]
    """
    a = as_array(a)
    if axis is None:
        a, axis = flatten(a, stream=stream), 0
    at = checked_axis("take", axis, a.ndim)
    length = a.shape[at]
    if isinstance(indices, int):
        if not -length <= indices < length:
            raise IndexError(f"[take] Index {indices} is out of range for axis {axis} of shape {a.shape}.")
        indices = as_array(indices)
    indices = checked_indices("take", indices)
    if not length and indices.size:
        raise ValueError(f"[take] Axis {axis} of shape {a.shape} is empty: nothing can be taken from it.")
    return gather(a, [indices], (at,), at, stream)


def _along_operands(op: str, a: array, indices: array, axis: int, stream: Any) -> tuple[array, array]:
    """Both repeated to one shape but for `axis`."""
    if indices.ndim != a.ndim:
        raise ValueError(
            f"[{op}] Indices of shape {indices.shape} do not fit an array of shape {a.shape}: both need as many axes."
        )
    rest = broadcast_shapes(op, *[(*s[:axis], *s[axis + 1 :]) for s in (a.shape, indices.shape)])
    shapes = [(*rest[:axis], b.shape[axis], *rest[axis:]) for b in (a, indices)]
    return broadcast_to(a, shapes[0], stream=stream), broadcast_to(indices, shapes[1], stream=stream)


def take_along_axis(a: Any, /, indices: Any, axis: int | None = -1, *, stream: Any = None) -> array:
    """For each place, the element of `a` at the index along `axis` (None: of the flattened array).

    `indices`: an integer array with as many axes as `a`; the axes other than `axis` broadcast. Raises ValueError for
    other types or shapes, IndexError for an axis out of range.

    >>> a = mx.array([[3, 1, 2]])
    >>> mx.take_along_axis(a, mx.argsort(a), axis=-1).tolist()
    [[1, 2, 3]]
    """
    a, indices = as_array(a), checked_indices("take_along_axis", indices)
    if axis is None:
        a, axis = flatten(a, stream=stream), 0
    at = checked_axis("take_along_axis", axis, a.ndim)
    a, indices = _along_operands("take_along_axis", a, indices, at, stream)
    return apply(TakeAlongAxis.make(at), (a, indices), layout(indices.shape, a.dtype), stream)


def put_along_axis(a: Any, /, indices: Any, values: Any, axis: int | None = None, *, stream: Any = None) -> array:
    """`a` with the elements at `indices` along `axis` (None: of the flattened array) replaced by `values`.

    `values` are cast to `a`'s type and broadcast to the indices' shape; of several for one place the last stays. Raises
    ValueError for indices of another type or shape, IndexError for an axis out of range.

    >>> mx.put_along_axis(mx.zeros((2, 2)), mx.array([[1], [0]]), 5.0, axis=1).tolist()
    [[0.0, 5.0], [5.0, 0.0]]
    """
    a, indices = as_array(a), checked_indices("put_along_axis", indices)
    values = as_array(values).astype(a.dtype)
    shape = a.shape
    if axis is None:
        flat = put_along_axis(
            flatten(a, stream=stream), flatten(indices, stream=stream), _flat_values(values, indices), 0
        )
        return reshape(flat, shape, stream=stream)
    at = checked_axis("put_along_axis", axis, a.ndim)
    if indices.ndim != a.ndim:
        raise ValueError(
            f"[put_along_axis] Indices of shape {indices.shape} do not fit an array of shape {shape}: both need as "
            "many axes."
        )
    wanted = (*shape[:at], indices.shape[at], *shape[at + 1 :])
    return scatter_along(a, broadcast_to(indices, wanted, stream=stream), values, at, "none", stream)


def _flat_values(values: array, indices: array) -> array:
    return flatten(broadcast_to(values, indices.shape)) if values.size != indices.size else flatten(values)


__all__ = ["put_along_axis", "take", "take_along_axis"]
