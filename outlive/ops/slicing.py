"""Regular parts of arrays: slices with fixed or computed starts, and updates of them, in place where nobody else sees
the array.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any, NamedTuple

from outlive.graph.array import apply, array
from outlive.graph.primitive import Primitive
from outlive.ops.common import Plans, as_array, checked_shape, dtypes, layout, strided_layout
from outlive.ops.creation import zeros, zeros_like
from outlive.ops.shape import batch_first, batch_size, broadcast_to, checked_axis, moveaxis, reshape
from outlive.runtime.layout import Layout

NEW = -1
"""In `Region.kept`: a new axis of length 1."""


class Region(NamedTuple):
    """A regular region of an array: start, step and length along each of its axes, and which axes are seen (`kept`), in
    order.

    An axis that is not kept has length 1. `kept` may hold `NEW`.
    """

    kept: tuple[int, ...]
    lengths: tuple[int, ...]
    starts: tuple[int, ...]
    steps: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the region as seen."""
        return tuple([1 if i == NEW else self.lengths[i] for i in self.kept])

    def strides(self, source: Layout) -> tuple[int, ...]:
        """Strides of the region within an array of layout `source`."""
        return tuple([0 if i == NEW else source.strides[i] * self.steps[i] for i in self.kept])

    def offset(self, source: Layout) -> int:
        """Elements from the array's first element to the region's."""
        if 0 in self.lengths:
            return 0
        return sum([start * stride for start, stride in zip(self.starts, source.strides, strict=True)])

    def batched(self, size: int) -> Region:
        """The same region behind a leading batch axis of length `size`."""
        kept = (0, *[NEW if i == NEW else i + 1 for i in self.kept])
        return Region(kept, (size, *self.lengths), (0, *self.starts), (1, *self.steps))


def own_copy(encoder: Any, index: int, operand: Any, layout: Layout) -> Any:
    """An operand with the contents of input `index` that the op may write: the input itself where nobody else sees it."""
    out = encoder.donated(index)
    if out is None:
        out = encoder.output(layout, False)
        encoder.copy(operand, out)
    return out


class Slice(Primitive):
    """A region as a view."""

    __slots__ = ("region",)
    name = "slice"
    region: Region

    def encode(self, encoder: Any, inputs: Any, layout: Any) -> Any:
        source = inputs[0].layout
        return encoder.view(0, layout.shape, self.region.strides(source), self.region.offset(source))

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        return [update_region(zeros(primals[0].shape, cotangents[0].dtype), cotangents[0], self.region)]

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        return [take_region(tangents[0], self.region)]

    def vmap(self, inputs: Any, axes: Any) -> Any:
        a = moveaxis(inputs[0], axes[0], 0)
        return [take_region(a, self.region.batched(a.shape[0]))], [0]


class SliceUpdate(Primitive):
    """An array with a region replaced, written into the array's own buffer where nobody else refers to it."""

    __slots__ = ("region",)
    name = "slice_update"
    region: Region

    def encode(self, encoder: Any, inputs: Any, layout: Any) -> Any:
        out = own_copy(encoder, 0, inputs[0], layout)
        region = self.region
        seen = strided_layout(region.shape, region.strides(layout), layout.dtype)
        encoder.copy(inputs[1], encoder.reshaped(out, seen, region.offset(layout)))
        return out

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        cotangent, region = cotangents[0], self.region
        rest = zeros(region.shape, cotangent.dtype)
        return [update_region(cotangent, rest, region) if i == 0 else take_region(cotangent, region) for i in argnums]

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        base, update = with_zeros(primals, tangents, argnums)
        return [update_region(base, update, self.region)]

    def vmap(self, inputs: Any, axes: Any) -> Any:
        size = batch_size(inputs, axes)
        base, update = [batch_first(a, axis, size) for a, axis in zip(inputs, axes, strict=True)]
        return [update_region(base, update, self.region.batched(size))], [0]


class DynamicSlice(Primitive):
    """A block of fixed size whose start along `axes` is read on the device."""

    __slots__ = ("axes", "size")
    name = "dynamic_slice"
    moves_bits = True
    donates = False
    axes: tuple[int, ...]
    size: tuple[int, ...]

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        writes[0][...] = reads[0][block(reads[0].shape, reads[1], self.axes, self.size)]

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        a, start = primals
        return [
            None if i else slice_update(zeros(a.shape, cotangents[0].dtype), cotangents[0], start, self.axes)
            for i in argnums
        ]

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        if argnums[0] != 0:
            return [zeros(self.size, primals[0].dtype)]
        return [slice(tangents[0], primals[1], self.axes, self.size)]

    def vmap(self, inputs: Any, axes: Any) -> Any:
        if axes[1] is not None:
            return one_by_one(lambda a, start: slice(a, start, self.axes, self.size), inputs, axes)
        a = moveaxis(inputs[0], axes[0], 0)
        return [slice(a, inputs[1], [i + 1 for i in self.axes], (a.shape[0], *self.size))], [0]


class DynamicSliceUpdate(Primitive):
    """An array with a block replaced whose start along `axes` is read on the device."""

    __slots__ = ("axes",)
    name = "dynamic_slice_update"
    moves_bits = True
    axes: tuple[int, ...]

    def encode(self, encoder: Any, inputs: Any, layout: Any) -> Any:
        out = own_copy(encoder, 0, inputs[0], layout)
        encoder.dispatch(self, inputs[1:], (out,))
        return out

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        update, start = reads
        writes[0][block(writes[0].shape, start, self.axes, update.shape)] = update

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        _, update, start = primals
        cotangent = cotangents[0]
        made: list[Any] = []
        for i in argnums:
            if i == 0:
                made.append(slice_update(cotangent, zeros(update.shape, cotangent.dtype), start, self.axes))
            else:
                made.append(slice(cotangent, start, self.axes, update.shape) if i == 1 else None)
        return made

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        base, update, _ = with_zeros(primals, tangents, argnums)
        return [slice_update(base, update, primals[2], self.axes)]

    def vmap(self, inputs: Any, axes: Any) -> Any:
        if axes[2] is not None:
            return one_by_one(lambda a, update, start: slice_update(a, update, start, self.axes), inputs, axes)
        size = batch_size(inputs, axes)
        base, update = [batch_first(a, axis, size) for a, axis in zip(inputs[:2], axes[:2], strict=True)]
        return [slice_update(base, update, inputs[2], [i + 1 for i in self.axes])], [0]


def block(shape: tuple[int, ...], start: Any, axes: tuple[int, ...], size: tuple[int, ...]) -> tuple[Any, ...]:
    """Host slices of a block of `size`; starts are counted from the end if negative, and moved so that the block lies
    inside.
    """
    first = [0] * len(shape)
    for axis, at in zip(axes, start.reshape(-1), strict=True):
        place = int(at)
        first[axis] = max(0, min(place + shape[axis] if place < 0 else place, shape[axis] - size[axis]))
    return tuple([builtins.slice(f, f + n) for f, n in zip(first, size, strict=True)])


def with_zeros(primals: Any, tangents: Any, argnums: Any) -> list[array]:
    """A tangent for each primal: zeros where none is given."""
    given = dict(zip(argnums, tangents, strict=True))
    return [given[i] if i in given else zeros_like(a) for i, a in enumerate(primals)]


def one_by_one(function: Any, inputs: Sequence[array], axes: Sequence[int | None]) -> tuple[list[array], list[int]]:
    """The batching rule of what has no better one: a call for each place of the batch."""
    from outlive.ops.join import stack

    size = batch_size(inputs, axes)
    columns = [[a] * size if axis is None else _places(a, axis) for a, axis in zip(inputs, axes, strict=True)]
    return [stack([function(*row) for row in zip(*columns, strict=True)])], [0]


def _places(a: array, axis: int) -> list[array]:
    moved = moveaxis(a, axis, 0)
    shape = moved.shape
    kept = tuple(range(1, len(shape)))
    starts = (0,) * (len(shape) - 1)
    steps = (1,) * len(shape)
    return [take_region(moved, Region(kept, (1, *shape[1:]), (i, *starts), steps)) for i in range(shape[0])]


def take_region(a: array, region: Region, stream: Any = None) -> array:
    """The region of `a`, as a view."""
    return apply(Slice.make(region), (a,), layout(region.shape, a.dtype), stream)


def update_region(a: array, update: array, region: Region, stream: Any = None) -> array:
    """`a` with `update` (of `a`'s type, broadcast to the region's shape) in place of the region."""
    update = broadcast_to(update, region.shape, stream=stream)
    return apply(SliceUpdate.make(region), (a, update), a._node.layout, stream)


def axis_range(a: array, axis: int, start: int, length: int, step: int = 1, stream: Any = None) -> array:
    """Elements `start`, `start + step`, ... (`length` of them) along one axis."""
    source = a._node.layout
    key = (source, axis, start, length, step)
    plan = _ranges.get(key)
    if plan is None:
        region = _axis_region(source.shape, axis, start, length, step)
        plan = _ranges.keep(key, (Slice.make(region), layout(region.shape, source.dtype)))
    return apply(plan[0], (a,), plan[1], stream)


_ranges = Plans()


def _axis_region(shape: tuple[int, ...], axis: int, start: int, length: int, step: int) -> Region:
    ndim = len(shape)
    return Region(
        tuple(range(ndim)),
        (*shape[:axis], length, *shape[axis + 1 :]),
        (0,) * axis + (start,) + (0,) * (ndim - axis - 1),
        (1,) * axis + (step,) + (1,) * (ndim - axis - 1),
    )


def _checked_block(
    op: str, a: array, start: Any, axes: Sequence[int], size: tuple[int, ...]
) -> tuple[array, tuple[int, ...]]:
    start = as_array(start)
    if start.dtype.category not in (dtypes.signedinteger, dtypes.unsignedinteger):
        raise ValueError(f"[{op}] Start indices must be integers; got {start.dtype.name}.")
    places = tuple([checked_axis(op, i, a.ndim) for i in axes])
    if len(set(places)) != len(places):
        raise ValueError(f"[{op}] Axes {tuple(axes)} name one axis twice.")
    if start.size != len(places) or start.ndim > 1:
        raise ValueError(
            f"[{op}] Start indices of shape {start.shape} do not fit {len(places)} axes; give one index an axis."
        )
    if len(size) != a.ndim or any(n > m for n, m in zip(size, a.shape, strict=True)):
        raise ValueError(f"[{op}] A block of shape {size} does not fit into an array of shape {a.shape}.")
    return start, places


def slice(a: Any, start_indices: array, axes: Sequence[int], slice_size: Sequence[int], *, stream: Any = None) -> array:
    """The block of shape `slice_size` of `a` that starts at `start_indices` along `axes` (and at 0 along the others).

    `start_indices`: an integer array with one index for each of `axes`, read when the array is computed; a start from
    which the block would reach over the end is moved back. Raises ValueError where counts or sizes do not fit,
    IndexError for an axis out of range.

    >>> mx.slice(mx.arange(6).reshape(2, 3), mx.array([1]), axes=[1], slice_size=[2, 2]).tolist()
    [[1, 2], [4, 5]]
    """
    a = as_array(a)
    size = checked_shape("slice", slice_size)
    start, places = _checked_block("slice", a, start_indices, axes, size)
    return apply(DynamicSlice.make(places, size), (a, start), layout(size, a.dtype), stream)


def slice_update(a: Any, update: Any, start_indices: array, axes: Sequence[int], *, stream: Any = None) -> array:
    """`a` with a block replaced by `update`, which starts at `start_indices` along `axes` (and at 0 along the others).

    `update` is cast to `a`'s type; where it has fewer axes, ones are put before them. Starts are treated as in `slice`.
    Raises ValueError where counts or sizes do not fit, IndexError for an axis out of range.

    >>> mx.slice_update(mx.zeros((4,)), mx.array([1.0, 2.0]), mx.array([1]), axes=[0])
    array([0, 1, 2, 0], dtype=float32)
    """
    a = as_array(a)
    update = as_array(update).astype(a.dtype)
    if update.ndim < a.ndim:
        update = reshape(update, (1,) * (a.ndim - update.ndim) + update.shape)
    start, places = _checked_block("slice_update", a, start_indices, axes, update.shape)
    return apply(DynamicSliceUpdate.make(places), (a, update, start), a._node.layout, stream)


__all__ = ["slice", "slice_update"]
