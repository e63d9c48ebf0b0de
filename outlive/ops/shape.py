"""Other shapes of the same elements: reshapes, permutations of axes, broadcasts.

All are views where strides can say it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from outlive.graph.array import apply, apply_many, array, wrap
from outlive.graph.primitive import Primitive
from outlive.ops.common import Plans, as_array, broadcast_layout, checked_shape, layout
from outlive.ops.common import broadcast_shapes as common_shape
from outlive.runtime.layout import Layout


def checked_axis(op: str, axis: int, ndim: int) -> int:
    """A non-negative axis; raises IndexError for one out of range."""
    axis = int(axis)
    if not -ndim <= axis < ndim:
        raise IndexError(f"[{op}] Axis {axis} is out of range for an array with {ndim} dimensions.")
    return axis + ndim if axis < 0 else axis


def view_strides(source: Layout, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Strides that show the elements of `source` under `shape` (of equal size) without moving them, or None where none
    do.
    """
    if source.contiguous:
        return layout(shape, source.dtype).strides
    if not source.size:
        return (0,) * len(shape)
    old = [(n, s) for n, s in zip(source.shape, source.strides, strict=True) if n != 1]
    strides: list[int] = [0] * len(shape)
    axis = len(shape) - 1
    while old:
        length, stride = old.pop()
        covered = 1
        # one run of old axes against one run of new ones, from the last: they must end at the same length
        while True:
            while axis >= 0 and covered * shape[axis] <= length:
                strides[axis] = stride * covered
                covered *= shape[axis]
                axis -= 1
                if covered == length:
                    break
            if covered == length:
                break
            if not old or old[-1][1] != length * stride:
                return None
            length *= old.pop()[0]
    return tuple(strides)


def moved(axis: int | None, by: int = 1) -> int | None:
    """A batch axis after `by` axes came before it."""
    return None if axis is None else axis + by


def batch_first(a: array, axis: int | None, size: int) -> array:
    """`a` with its batch axis in front; repeated `size` times (a view) where it has none."""
    if axis is None:
        return broadcast_to(expand_dims(a, 0), (size, *a.shape))
    return moveaxis(a, axis, 0)


def batch_in_front(a: array, axis: int | None, size: int, ndim: int) -> array:
    """`a` with its batch axis in front of `ndim` others, ones put between where it has fewer."""
    moved = batch_first(a, axis, size)
    return reshape(moved, (size, *(1,) * (ndim + 1 - moved.ndim), *moved.shape[1:]))


def batch_size(inputs: Sequence[array], axes: Sequence[int | None]) -> int:
    """The length of the batch axis that at least one input has."""
    return next(a.shape[axis] for a, axis in zip(inputs, axes, strict=True) if axis is not None)


class Reshape(Primitive):
    """The same elements, in order, under another shape."""

    __slots__ = ("shape",)
    name = "reshape"
    shape: tuple[int, ...]

    def encode(self, encoder: Any, inputs: Any, layout: Any) -> Any:
        source = inputs[0].layout
        strides = view_strides(source, layout.shape)
        if strides is not None:
            return encoder.view(0, layout.shape, strides)
        out = encoder.output(layout, False)
        encoder.copy(inputs[0], encoder.reshaped(out, source.dense))
        return out

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        return [reshape(cotangents[0], primals[0].shape)]

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        return [reshape(tangents[0], self.shape)]

    def vmap(self, inputs: Any, axes: Any) -> Any:
        a = moveaxis(inputs[0], axes[0], 0)
        return [reshape(a, (a.shape[0], *self.shape))], [0]


class Transpose(Primitive):
    """Permutation of the axes."""

    __slots__ = ("axes",)
    name = "transpose"
    axes: tuple[int, ...]

    def encode(self, encoder: Any, inputs: Any, layout: Any) -> Any:
        strides = inputs[0].layout.strides
        return encoder.view(0, layout.shape, tuple([strides[i] for i in self.axes]))

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        inverse = sorted(range(len(self.axes)), key=self.axes.__getitem__)
        return [transpose(cotangents[0], inverse)]

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        return [transpose(tangents[0], self.axes)]

    def vmap(self, inputs: Any, axes: Any) -> Any:
        a = moveaxis(inputs[0], axes[0], 0)
        return [transpose(a, (0, *[i + 1 for i in self.axes]))], [0]


class Broadcast(Primitive):
    """Repetition along axes of length 1 and new leading axes, by strides of 0."""

    __slots__ = ("shape",)
    name = "broadcast_to"
    shape: tuple[int, ...]

    def encode(self, encoder: Any, inputs: Any, layout: Any) -> Any:
        return encoder.view(0, layout.shape, broadcast_layout(inputs[0].layout, layout.shape).strides)

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        return [sum_to(cotangents[0], primals[0].shape)]

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        return [broadcast_to(tangents[0], self.shape)]

    def vmap(self, inputs: Any, axes: Any) -> Any:
        a = moveaxis(inputs[0], axes[0], 0)
        lead = (1,) * (len(self.shape) + 1 - a.ndim)
        a = reshape(a, (a.shape[0], *lead, *a.shape[1:]))
        return [broadcast_to(a, (a.shape[0], *self.shape))], [0]


class AsStrided(Primitive):
    """Any strides over a dense input."""

    __slots__ = ("offset", "shape", "strides")
    name = "as_strided"
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def encode(self, encoder: Any, inputs: Any, layout: Any) -> Any:
        return encoder.view(0, self.shape, self.strides, self.offset)

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        from outlive.ops.creation import arange, zeros

        a, cotangent = primals[0], cotangents[0]
        places = as_strided(arange(a.size), self.shape, self.strides, self.offset)
        flat = zeros((a.size,), cotangent.dtype).at[flatten(places)].add(flatten(cotangent))
        return [reshape(flat, a.shape)]

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        return [as_strided(tangents[0], self.shape, self.strides, self.offset)]

    def vmap(self, inputs: Any, axes: Any) -> Any:
        a = moveaxis(inputs[0], axes[0], 0)
        batch = a.shape[0]
        step = a.size // batch if batch else 0
        return [as_strided(a, (batch, *self.shape), (step, *self.strides), self.offset)], [0]


class Contiguous(Primitive):
    """A dense copy, or the input itself where it is dense and wastes no memory."""

    __slots__ = ("allow_col_major",)
    name = "contiguous"
    moves_bits = True
    allow_col_major: bool

    def encode(self, encoder: Any, inputs: Any, layout: Any) -> Any:
        operand = inputs[0]
        source = operand.layout
        dense = source.contiguous or (self.allow_col_major and _column_major(source))
        # a small view of a large buffer would keep all of it
        if dense and operand.buffer.size <= 2 * max(source.nbytes, 64):
            return encoder.view(0, source.shape, source.strides)
        out = encoder.output(layout, False)
        encoder.copy(operand, out)
        return out

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        return [cotangents[0]]

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        return [contiguous(tangents[0], self.allow_col_major)]

    def vmap(self, inputs: Any, axes: Any) -> Any:
        return [contiguous(moveaxis(inputs[0], axes[0], 0), self.allow_col_major)], [0]


def _column_major(source: Layout) -> bool:
    step = 1
    for n, stride in zip(source.shape, source.strides, strict=True):
        if n != 1 and stride != step:
            return False
        step *= n
    return True


class Depends(Primitive):
    """Its first `count` inputs, computed after all of its inputs."""

    __slots__ = ("count",)
    name = "depends"
    count: int

    def encode(self, encoder: Any, inputs: Any, layout: Any) -> Any:
        return tuple([encoder.view_as(i, inputs[i].layout) for i in range(self.count)])

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        return [cotangents[i] if i < self.count else None for i in argnums]

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        from outlive.ops.creation import zeros_like

        given = dict(zip(argnums, tangents, strict=True))
        return [given[i] if i in given else zeros_like(primals[i]) for i in range(self.count)]

    def vmap(self, inputs: Any, axes: Any) -> Any:
        made = depends(list(inputs[: self.count]), list(inputs[self.count :]))
        return made, list(axes[: self.count])


def sum_to(a: array, shape: tuple[int, ...]) -> array:
    """The sum of `a` over the axes along which `shape` was repeated to make its shape."""
    from outlive.ops.reduce import sum

    if a.shape == shape:
        return a
    lead = a.ndim - len(shape)
    axes = [*range(lead), *[lead + i for i, n in enumerate(shape) if n == 1 and a.shape[lead + i] != 1]]
    return reshape(sum(a, axes), shape)


def reshape(a: Any, /, shape: Sequence[int], *, stream: Any = None) -> array:
    """The elements of `a`, in row-major order, under `shape`; one length may be -1 and is found from the others.

    Raises ValueError where the sizes differ, or where -1 cannot be found.

    >>> mx.reshape(mx.arange(4), (2, -1)).tolist()
    [[0, 1], [2, 3]]
    """
    a = as_array(a)
    return _reshaped(a, tuple(shape), stream)


def _reshaped(a: array, given: tuple[int, ...], stream: Any = None, op: str = "reshape") -> array:
    node = a._node
    source = node.layout
    if given == source.shape:
        return wrap(node)
    plan = _reshapes.get((source, given))
    if plan is None:
        plan = _reshapes.keep((source, given), _planned_reshape(op, source, given))
    return apply(plan[0], (a,), plan[1], stream)


_reshapes = Plans()


def _planned_reshape(op: str, source: Layout, given: tuple[int, ...]) -> tuple[Primitive, Layout]:
    shape = _inferred(op, source, given) if -1 in given else tuple([int(n) for n in given])
    if math.prod(shape) != source.size or min(shape, default=0) < 0:
        raise ValueError(
            f"[{op}] Cannot reshape an array of shape {source.shape} ({source.size} elements) into {given}."
        )
    return Reshape.make(shape), layout(shape, source.dtype)


def _inferred(op: str, source: Layout, given: tuple[int, ...]) -> tuple[int, ...]:
    if given.count(-1) > 1:
        raise ValueError(f"[{op}] Only one length can be -1; got {given}.")
    known = -math.prod(given)
    if not known:
        raise ValueError(f"[{op}] The length -1 cannot be found in {given}: the other lengths hold no element.")
    return tuple([source.size // known if n == -1 else int(n) for n in given])


def flatten(a: Any, /, start_axis: int = 0, end_axis: int = -1, *, stream: Any = None) -> array:
    """`a` with the axes from `start_axis` to `end_axis` (both included, clipped to the range) joined into one.

    Raises ValueError where `start_axis` comes after `end_axis`.

    >>> mx.flatten(mx.zeros((2, 3, 4)), start_axis=1).shape
    (2, 12)
    """
    a = as_array(a)
    ndim = max(a.ndim, 1)
    shape = a.shape or (1,)
    start = max(start_axis + ndim if start_axis < 0 else start_axis, 0)
    end = min(end_axis + ndim if end_axis < 0 else end_axis, ndim - 1)
    if end < start:
        raise ValueError(f"[flatten] start_axis {start_axis} comes after end_axis {end_axis} in shape {a.shape}.")
    return _reshaped(a, (*shape[:start], math.prod(shape[start : end + 1]), *shape[end + 1 :]), stream)


def unflatten(a: Any, /, axis: int, shape: Sequence[int], *, stream: Any = None) -> array:
    """`a` with `axis` split into several axes of lengths `shape`, one of which may be -1.

    Raises ValueError where the lengths do not multiply to the axis's, IndexError for an axis out of range.

    >>> mx.unflatten(mx.zeros((2, 6)), 1, (3, -1)).shape
    (2, 3, 2)
    """
    a = as_array(a)
    parts = tuple(int(n) for n in shape)
    if not parts:
        raise ValueError("[unflatten] The new lengths are empty; give at least one.")
    axis = checked_axis("unflatten", axis, a.ndim)
    length = a.shape[axis]
    if -1 in parts:
        parts = _inferred("unflatten", layout((length,), a.dtype), parts)
    if math.prod(parts) != length or min(parts) < 0:
        raise ValueError(f"[unflatten] Axis {axis} of length {length} cannot be split into {tuple(shape)}.")
    return _reshaped(a, (*a.shape[:axis], *parts, *a.shape[axis + 1 :]), stream, "unflatten")


def transpose(a: Any, /, axes: Sequence[int] | None = None, *, stream: Any = None) -> array:
    """`a` with its axes in the order `axes` (None: reversed).

    Raises ValueError where `axes` is not a permutation, IndexError for an axis out of range.

    >>> mx.transpose(mx.array([[1, 2], [3, 4]])).tolist()
    [[1, 3], [2, 4]]
    >>> mx.transpose(mx.zeros((2, 3, 4)), (2, 0, 1)).shape
    (4, 2, 3)
    """
    a = as_array(a)
    ndim = a.ndim
    if axes is None:
        order = tuple(range(ndim - 1, -1, -1))
    else:
        if len(axes) != ndim:
            raise ValueError(f"[transpose] {len(axes)} axes do not order an array with {ndim} dimensions.")
        order = tuple([checked_axis("transpose", i, ndim) for i in axes])
        if len(set(order)) != ndim:
            raise ValueError(f"[transpose] Axes {tuple(axes)} name one axis twice.")
    return _transposed(a, order, stream)


def _transposed(a: array, order: tuple[int, ...], stream: Any) -> array:
    node = a._node
    source = node.layout
    plan = _transposes.get((source, order))
    if plan is None:
        turned = layout(tuple([source.shape[i] for i in order]), source.dtype)
        plan = _transposes.keep((source, order), (Transpose.make(order), turned, order == tuple(range(len(order)))))
    return wrap(node) if plan[2] else apply(plan[0], (a,), plan[1], stream)


_transposes = Plans()


def permute_dims(a: Any, /, axes: Sequence[int] | None = None, *, stream: Any = None) -> array:
    """The array-API name of `transpose`.

    >>> mx.permute_dims(mx.zeros((2, 3, 4)), (2, 0, 1)).shape
    (4, 2, 3)
    """
    return transpose(a, axes, stream=stream)


def swapaxes(a: Any, /, axis1: int, axis2: int, *, stream: Any = None) -> array:
    """`a` with two axes exchanged. Raises IndexError for an axis out of range.

    >>> mx.swapaxes(mx.zeros((2, 3, 4)), 0, 2).shape
    (4, 3, 2)
    """
    a = as_array(a)
    first = checked_axis("swapaxes", axis1, a.ndim)
    second = checked_axis("swapaxes", axis2, a.ndim)
    order = list(range(a.ndim))
    order[first], order[second] = second, first
    return _transposed(a, tuple(order), stream)


def moveaxis(a: Any, /, source: int, destination: int, *, stream: Any = None) -> array:
    """`a` with axis `source` moved to place `destination`, the others in their order.

    Raises IndexError for an axis out of range.

    >>> mx.moveaxis(mx.zeros((2, 3, 4)), 0, -1).shape
    (3, 4, 2)
    """
    a = as_array(a)
    at = checked_axis("moveaxis", source, a.ndim)
    to = checked_axis("moveaxis", destination, a.ndim)
    order = [i for i in range(a.ndim) if i != at]
    order.insert(to, at)
    return _transposed(a, tuple(order), stream)


def matrix_transpose(a: Any, /, *, stream: Any = None) -> array:
    """`a` with its last two axes exchanged. Raises ValueError for fewer than two dimensions.

    >>> mx.matrix_transpose(mx.zeros((2, 3, 4))).shape
    (2, 4, 3)
    """
    a = as_array(a)
    if a.ndim < 2:
        raise ValueError(f"[matrix_transpose] Needs at least 2 dimensions; got shape {a.shape}.")
    return _transposed(a, (*range(a.ndim - 2), a.ndim - 1, a.ndim - 2), stream)


def expand_dims(a: Any, /, axis: int | Sequence[int], *, stream: Any = None) -> array:
    """`a` with new axes of length 1 at the places `axis` of the result.

    Raises ValueError for repeated places, IndexError for one out of range.

    >>> mx.expand_dims(mx.zeros((2, 3)), (0, -1)).shape
    (1, 2, 3, 1)
    """
    a = as_array(a)
    given = [axis] if isinstance(axis, int) else list(axis)
    ndim = a.ndim + len(given)
    places = {checked_axis("expand_dims", i, ndim) for i in given}
    if len(places) != len(given):
        raise ValueError(f"[expand_dims] Axes {tuple(given)} name one place twice.")
    old = iter(a.shape)
    return _reshaped(a, tuple([1 if i in places else next(old) for i in range(ndim)]), stream)


def squeeze(a: Any, /, axis: int | Sequence[int] | None = None, *, stream: Any = None) -> array:
    """`a` without the axes `axis` (None: all) of length 1.

    Raises ValueError for an axis of another length or named twice, IndexError for one out of range.

    >>> mx.squeeze(mx.zeros((1, 3, 1))).shape
    (3,)
    >>> mx.squeeze(mx.zeros((1, 3, 1)), axis=0).shape
    (3, 1)
    """
    a = as_array(a)
    if axis is None:
        return _reshaped(a, tuple([n for n in a.shape if n != 1]), stream)
    given = [axis] if isinstance(axis, int) else list(axis)
    places = {checked_axis("squeeze", i, a.ndim) for i in given}
    if len(places) != len(given):
        raise ValueError(f"[squeeze] Axes {tuple(given)} name one axis twice.")
    for i in places:
        if a.shape[i] != 1:
            raise ValueError(f"[squeeze] Axis {i} of shape {a.shape} has length {a.shape[i]}, not 1.")
    return _reshaped(a, tuple([n for i, n in enumerate(a.shape) if i not in places]), stream)


def atleast_1d(*arys: Any, stream: Any = None) -> array | list[array]:
    """Each array with at least one axis; a list where several are given.

    >>> mx.atleast_1d(mx.array(5))
    array([5], dtype=int32)
    """
    made = [_reshaped(a, a.shape or (1,), stream) for a in map(as_array, arys)]
    return made[0] if len(made) == 1 else made


def atleast_2d(*arys: Any, stream: Any = None) -> array | list[array]:
    """Each array with at least two axes, new ones in front; a list where several are given.

    >>> mx.atleast_2d(mx.array([1, 2])).shape
    (1, 2)
    """
    made = [_reshaped(a, (1,) * (2 - a.ndim) + a.shape, stream) for a in map(as_array, arys)]
    return made[0] if len(made) == 1 else made


def atleast_3d(*arys: Any, stream: Any = None) -> array | list[array]:
    """Each array with at least three axes: shapes () and (n) become (1, 1, 1) and (1, n, 1), (m, n) becomes (m, n, 1).

    >>> [a.shape for a in mx.atleast_3d(mx.array([1, 2]), mx.zeros((4, 5)))]
    [(1, 2, 1), (4, 5, 1)]
    """
    made = []
    for a in map(as_array, arys):
        shape = ((1, 1, 1), (1, *a.shape, 1), (*a.shape, 1))[a.ndim] if a.ndim < 3 else a.shape
        made.append(_reshaped(a, shape, stream))
    return made[0] if len(made) == 1 else made


def broadcast_to(a: Any, /, shape: Sequence[int], *, stream: Any = None) -> array:
    """`a` repeated to `shape` under the rules of broadcasting; a view. Raises ValueError where the shapes do not fit.

    >>> mx.broadcast_to(mx.array([1, 2]), (2, 2)).tolist()
    [[1, 2], [1, 2]]
    """
    a = as_array(a)
    node = a._node
    source = node.layout
    if source.shape == shape:
        return wrap(node)
    shape = checked_shape("broadcast_to", shape)
    if source.shape == shape:
        return wrap(node)
    if source.ndim > len(shape) or common_shape("broadcast_to", source.shape, shape) != shape:
        raise ValueError(f"[broadcast_to] An array of shape {source.shape} cannot be repeated to {shape}.")
    return apply(Broadcast.make(shape), (a,), layout(shape, source.dtype), stream)


def broadcast_shapes(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The shape to which arrays of `shapes` broadcast. Raises ValueError where they do not, or where none is given.

    >>> mx.broadcast_shapes((3, 1), (4,))
    (3, 4)
    """
    if not shapes:
        raise ValueError("[broadcast_shapes] Needs at least one shape.")
    return common_shape("broadcast_shapes", *[checked_shape("broadcast_shapes", s) for s in shapes])


def broadcast_arrays(*arrays: Any, stream: Any = None) -> list[array]:
    """The arrays, each repeated to their common shape. Raises ValueError where the shapes do not fit.

    >>> [a.tolist() for a in mx.broadcast_arrays(mx.array([[1], [2]]), mx.array([3, 4]))]
    [[[1, 1], [2, 2]], [[3, 4], [3, 4]]]
    """
    made = [as_array(a) for a in arrays]
    shape = common_shape("broadcast_arrays", *[a.shape for a in made])
    return [broadcast_to(a, shape, stream=stream) for a in made]


def contiguous(a: Any, /, allow_col_major: bool = False, *, stream: Any = None) -> array:
    """`a` with its elements densely in row-major order (or, with `allow_col_major`, column-major order if they lie so
    already).

    A small part of a large buffer is copied, so that the rest can be freed.

    >>> mx.contiguous(mx.arange(6)[::2])
    array([0, 2, 4], dtype=int32)
    """
    a = as_array(a)
    return apply(Contiguous.make(bool(allow_col_major)), (a,), a._node.layout, stream)


def as_strided(
    a: Any,
    /,
    shape: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    offset: int = 0,
    *,
    stream: Any = None,
) -> array:
    """The elements of `a`, as if flattened row by row, seen under `shape` with `strides` and `offset` in elements.

    `shape` defaults to the array's own, `strides` to dense ones. Raises ValueError where an element would lie outside
    of `a`.

    >>> mx.as_strided(mx.arange(4), (3, 2), (1, 1)).tolist()
    [[0, 1], [1, 2], [2, 3]]
    """
    a = as_array(a)
    shape = a.shape if shape is None else checked_shape("as_strided", shape)
    steps = layout(shape, a.dtype).strides if strides is None else tuple(int(s) for s in strides)[: len(shape)]
    if len(steps) != len(shape):
        raise ValueError(f"[as_strided] {len(steps)} strides do not fit the {len(shape)} axes of shape {shape}.")
    if math.prod(shape):
        ends = [s * (n - 1) for n, s in zip(shape, steps, strict=True)]
        first, last = offset + sum(e for e in ends if e < 0), offset + sum(e for e in ends if e > 0)
        if first < 0 or last >= a.size:
            raise ValueError(
                f"[as_strided] Shape {shape}, strides {steps} and offset {offset} reach elements {first} to {last} of an "
                f"array with {a.size} elements."
            )
    dense = apply(Contiguous.make(False), (a,), a._node.layout, stream)
    return apply(AsStrided.make(int(offset), shape, steps), (dense,), layout(shape, a.dtype), stream)


def depends(inputs: Any, dependencies: Any) -> Any:
    """`inputs` (an array or a list of arrays), such that computing them computes `dependencies` first.

    `dependencies`: an array or a list of arrays. The values are those of `inputs`, an array or a list as given.

    >>> a, b = mx.array(1) + 1, mx.array(2) + 2
    >>> mx.depends(a, b)
    array(2, dtype=int32)
    """
    first = [inputs] if type(inputs) is array else list(inputs)
    later = [dependencies] if type(dependencies) is array else list(dependencies)
    made = apply_many(Depends.make(len(first)), (*first, *later), tuple([a._node.layout for a in first]))
    return made[0] if type(inputs) is array else list(made)


def _reshape_method(self: array, *shape: Any, stream: Any = None) -> array:
    """`reshape` with the lengths as arguments or as one sequence.

    >>> mx.arange(4).reshape(2, 2).tolist()
    [[0, 1], [2, 3]]
    """
    if len(shape) == 1 and not isinstance(shape[0], int):
        shape = tuple(shape[0])
    return _reshaped(self, shape, stream)


def _transpose_method(self: array, *axes: Any, stream: Any = None) -> array:
    """`transpose` with the axes as arguments, as one sequence, or none.

    >>> mx.zeros((2, 3, 4)).transpose(2, 0, 1).shape
    (4, 2, 3)
    """
    if len(axes) == 1 and not isinstance(axes[0], int):
        axes = tuple(axes[0]) if axes[0] is not None else ()
    return transpose(self, axes or None, stream=stream)


METHODS = {"reshape": _reshape_method, "transpose": _transpose_method}
"""Methods of `array` whose arguments differ from the function's."""

PROPERTIES = {"T": transpose, "mT": matrix_transpose}

__all__ = [
    "as_strided", "atleast_1d", "atleast_2d", "atleast_3d", "broadcast_arrays", "broadcast_shapes", "broadcast_to",
    "contiguous", "depends", "expand_dims", "flatten", "matrix_transpose", "moveaxis", "permute_dims", "reshape",
    "squeeze", "swapaxes", "transpose", "unflatten",
]  # fmt: skip
