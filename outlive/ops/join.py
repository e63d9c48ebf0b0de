"""Arrays put together and taken apart: concatenate, stack, split, pad, repeat, tile, roll, flip, diff."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from outlive.graph.array import apply, array, wrap
from outlive.graph.convert import Stacking
from outlive.graph.primitive import Primitive
from outlive.ops import reduce
from outlive.ops.common import as_array, constant, dtypes, layout, promote, strided_layout
from outlive.ops.elementwise import not_equal, subtract, where
from outlive.ops.shape import (
    batch_first,
    batch_size,
    broadcast_to,
    checked_axis,
    expand_dims,
    flatten,
    moveaxis,
    reshape,
)
from outlive.ops.slicing import Region, axis_range, take_region, with_zeros


class Concatenate(Primitive):
    """Arrays one after the other along an axis. Each is copied to its place; there are no temporaries."""

    __slots__ = ("axis",)
    name = "concatenate"
    axis: int

    def encode(self, encoder: Any, inputs: Any, layout: Any) -> Any:
        out = encoder.output(layout, False)
        offset = 0
        for operand in inputs:
            shape = operand.layout.shape
            if operand.layout.size:
                part = strided_layout(shape, layout.strides, layout.dtype)
                encoder.copy(operand, encoder.reshaped(out, part, offset))
            offset += shape[self.axis] * layout.strides[self.axis]
        return out

    def _starts(self, arrays: Sequence[array]) -> list[int]:
        starts = [0]
        for a in arrays:
            starts.append(starts[-1] + a.shape[self.axis])
        return starts

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        starts = self._starts(primals)
        return [axis_range(cotangents[0], self.axis, starts[i], primals[i].shape[self.axis]) for i in argnums]

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        return [concatenate(with_zeros(primals, tangents, argnums), self.axis)]

    def vmap(self, inputs: Any, axes: Any) -> Any:
        size = batch_size(inputs, axes)
        return [concatenate([batch_first(a, i, size) for a, i in zip(inputs, axes, strict=True)], self.axis + 1)], [0]


class Pad(Primitive):
    """A constant around an array: `low` and `high` elements along each axis. The constant is a one-element operand."""

    __slots__ = ("high", "low")
    name = "pad"
    high: tuple[int, ...]
    low: tuple[int, ...]

    def encode(self, encoder: Any, inputs: Any, layout: Any) -> Any:
        out = encoder.output(layout, False)
        encoder.fill(out, inputs[1])
        inner = inputs[0].layout
        if inner.size:
            offset = sum([n * s for n, s in zip(self.low, layout.strides, strict=True)])
            part = strided_layout(inner.shape, layout.strides, layout.dtype)
            encoder.copy(inputs[0], encoder.reshaped(out, part, offset))
        return out

    def _inner(self, a: array, shape: tuple[int, ...]) -> array:
        ndim = len(shape)
        return take_region(a, Region(tuple(range(ndim)), shape, self.low, (1,) * ndim))

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        inner = self._inner(cotangents[0], primals[0].shape)
        return [
            inner if i == 0 else reshape(subtract(reduce.sum(cotangents[0]), reduce.sum(inner)), primals[1].shape)
            for i in argnums
        ]

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        inner, value = with_zeros(primals, tangents, argnums)
        return [_pad_constant(inner, self.low, self.high, value, None)]

    def vmap(self, inputs: Any, axes: Any) -> Any:
        low, high = (0, *self.low), (0, *self.high)
        size = batch_size(inputs, axes)
        a = batch_first(inputs[0], axes[0], size)
        if axes[1] is None:
            return [_pad_constant(a, low, high, inputs[1], None)], [0]
        zero, one = constant(0, a.dtype), constant(1, a.dtype)
        inside = _pad_constant(broadcast_to(one, a.shape), low, high, zero, None).astype(dtypes.bool_)
        value = reshape(batch_first(inputs[1], axes[1], size), (size,) + (1,) * (a.ndim - 1))
        return [where(inside, _pad_constant(a, low, high, zero, None), value)], [0]


def _arrays(op: str, arrays: Any) -> list[array]:
    given = list(arrays)
    if not given:
        raise ValueError(f"[{op}] Needs at least one array.")
    for a in given:
        if type(a) is not array:
            raise TypeError(f"[{op}] Needs a list of arrays; one of them is a {type(a).__name__}.")
    kind = given[0].dtype
    for a in given:
        kind = promote(kind, a.dtype)
    return [a if a.dtype is kind else a.astype(kind) for a in given]


def concatenate(arrays: Sequence[array], axis: int | None = 0, *, stream: Any = None) -> array:
    """The arrays one after the other along `axis` (None: flattened first), in their common type.

    Raises ValueError where there is none, or where other axes differ in length, IndexError for an axis out of range,
    TypeError for what is no array.

    >>> mx.concatenate([mx.array([1, 2]), mx.array([3.5])])
    array([1, 2, 3.5], dtype=float32)
    >>> mx.concatenate([mx.array([[1], [2]]), mx.array([[3], [4]])], axis=1).tolist()
    [[1, 3], [2, 4]]
    """
    made = _arrays("concatenate", arrays)
    if axis is None:
        made, axis = [flatten(a, stream=stream) for a in made], 0
    first = made[0].shape
    at = checked_axis("concatenate", axis, len(first))
    length = 0
    for a in made:
        shape = a.shape
        if len(shape) != len(first) or shape[:at] != first[:at] or shape[at + 1 :] != first[at + 1 :]:
            listed = ", ".join(str(b.shape) for b in made)
            raise ValueError(f"[concatenate] Shapes {listed} differ in more than axis {axis}.")
        length += shape[at]
    if len(made) == 1:
        return wrap(made[0]._node)
    result = layout((*first[:at], length, *first[at + 1 :]), made[0].dtype)
    return apply(Concatenate.make(at), tuple(made), result, stream)


def concat(arrays: Sequence[array], axis: int | None = 0, *, stream: Any = None) -> array:
    """The array-API name of `concatenate`; arguments and errors as there.

    >>> mx.concat([mx.array([1, 2]), mx.array([3])])
    array([1, 2, 3], dtype=int32)
    """
    return concatenate(arrays, axis, stream=stream)


def stack(arrays: Sequence[array], axis: int | None = 0, *, stream: Any = None) -> array:
    """The arrays side by side along a new axis at place `axis` of the result (None: 0), in their common type.

    Raises ValueError where there is none or their shapes differ, IndexError for an axis out of range.

    >>> mx.stack([mx.array([1, 2]), mx.array([3, 4])], axis=1).tolist()
    [[1, 3], [2, 4]]
    """
    made = _arrays("stack", arrays)
    if any(a.shape != made[0].shape for a in made):
        listed = ", ".join(str(a.shape) for a in made)
        raise ValueError(f"[stack] Needs arrays of one shape; got {listed}.")
    at = checked_axis("stack", axis or 0, made[0].ndim + 1)
    return concatenate([expand_dims(a, at, stream=stream) for a in made], at, stream=stream)


def unstack(x: Any, /, *, axis: int = 0, stream: Any = None) -> tuple[array, ...]:
    """The slices of `x` along `axis`, without that axis. Raises IndexError for an axis out of range.

    >>> mx.unstack(mx.array([[1, 2], [3, 4]]))
    (array([1, 2], dtype=int32), array([3, 4], dtype=int32))
    """
    x = as_array(x)
    at = checked_axis("unstack", axis, x.ndim)
    moved = moveaxis(x, at, 0, stream=stream)
    shape = moved.shape
    kept, steps = tuple(range(1, len(shape))), (1,) * len(shape)
    rest = (0,) * (len(shape) - 1)
    return tuple(
        [take_region(moved, Region(kept, (1, *shape[1:]), (i, *rest), steps), stream) for i in range(shape[0])]
    )


def split(a: Any, /, indices_or_sections: int | Sequence[int], axis: int = 0, *, stream: Any = None) -> list[array]:
    """Parts of `a` along `axis`: so many of equal length, or cut before each of the given indices (negative ones count
    from the end).

    Raises ValueError where the axis does not divide into equal parts, IndexError for an axis out of range.

    >>> mx.split(mx.arange(4), 2)
    [array([0, 1], dtype=int32), array([2, 3], dtype=int32)]
    >>> [part.tolist() for part in mx.split(mx.arange(5), [1, 3])]
    [[0], [1, 2], [3, 4]]
    """
    a = as_array(a)
    at = checked_axis("split", axis, a.ndim)
    length = a.shape[at]
    if isinstance(indices_or_sections, int):
        count = indices_or_sections
        if count <= 0:
            raise ValueError(f"[split] The number of parts must be positive; got {count}.")
        if length % count:
            raise ValueError(
                f"[split] Axis {axis} of shape {a.shape} does not divide into {count} parts of equal length."
            )
        cuts = [length // count * i for i in range(count + 1)]
    else:
        inside = [max(0, min(i + length if i < 0 else i, length)) for i in map(int, indices_or_sections)]
        cuts = [0, *inside, length]
    return [axis_range(a, at, start, max(0, stop - start), stream=stream) for start, stop in itertools.pairwise(cuts)]


PadWidth = int | Sequence[int] | Sequence[Sequence[int]]


def _widths(a: array, pad_width: PadWidth) -> list[tuple[int, int]]:
    """(low, high) for each axis."""
    if isinstance(pad_width, int):
        pairs = [(pad_width, pad_width)]
    else:
        given = list(pad_width)
        if given and isinstance(given[0], int):
            if len(given) > 2:
                raise ValueError(f"[pad] Widths are one number, a pair, or a pair an axis; got {pad_width}.")
            pairs = [(given[0], given[-1])]  # type: ignore[list-item]
        else:
            pairs = [(int(p[0]), int(p[-1])) for p in given]  # type: ignore[index]
    if len(pairs) == 1:
        pairs *= a.ndim
    if len(pairs) != a.ndim:
        raise ValueError(f"[pad] {len(pairs)} pairs of widths do not fit the {a.ndim} axes of shape {a.shape}.")
    for axis, pair in enumerate(pairs):
        if min(pair) < 0:
            raise ValueError(f"[pad] Widths cannot be negative; got {pair} for axis {axis}.")
    return pairs


def pad(a: Any, pad_width: PadWidth, mode: str = "constant", constant_values: Any = 0, *, stream: Any = None) -> array:
    """`a` with elements added before and after along each axis.

    `pad_width`: one number for all sides, a pair (before, after) for all axes, or a pair for each axis. `mode`:
    "constant" (with `constant_values`, one number, cast to `a`'s type), "edge" (repeats the outermost elements),
    "reflect" (mirrors at the outermost element, again and again) or "symmetric" (mirrors at the border). Raises
    ValueError for other modes, for widths that do not fit, and where an empty axis has nothing to repeat.

    >>> mx.pad(mx.array([1, 2]), (1, 2), constant_values=9)
    array([9, 1, 2, 9, 9], dtype=int32)
    >>> mx.pad(mx.array([1, 2, 3]), 1, mode="reflect")
    array([2, 1, 2, 3, 2], dtype=int32)
    """
    a = as_array(a)
    pairs = _widths(a, pad_width)
    if mode == "constant":
        value = constant_values if type(constant_values) is array else as_array(constant_values)
        if value.size != 1:
            raise ValueError(f"[pad] The constant must be one number; got shape {value.shape}.")
        low, high = tuple(p[0] for p in pairs), tuple(p[1] for p in pairs)
        return _pad_constant(a, low, high, value.astype(a.dtype), stream)
    if mode not in ("edge", "reflect", "symmetric"):
        raise ValueError(f"[pad] Unknown mode {mode!r}; use 'constant', 'edge', 'reflect' or 'symmetric'.")
    for axis, (low_, high_) in enumerate(pairs):
        if not low_ and not high_:
            continue
        if not a.shape[axis]:
            raise ValueError(f"[pad] Axis {axis} of shape {a.shape} is empty: mode {mode!r} has nothing to repeat.")
        a = _pad_axis(a, axis, low_, high_, mode, stream)
    return a


def _pad_constant(a: array, low: tuple[int, ...], high: tuple[int, ...], value: array, stream: Any) -> array:
    if not any(low) and not any(high):
        return wrap(a._node)
    shape = tuple([n + b + c for n, b, c in zip(a.shape, low, high, strict=True)])
    value = reshape(value, ())
    return apply(Pad.make(high, low), (a, value), layout(shape, a.dtype), stream)


def _pad_axis(a: array, axis: int, low: int, high: int, mode: str, stream: Any) -> array:
    """Pieces of `a` along an axis that repeat or mirror it, put around it."""
    n = a.shape[axis]
    if mode == "edge" or n == 1:
        before = [_repeat_edge(a, axis, 0, low, stream)] if low else []
        after = [_repeat_edge(a, axis, n - 1, high, stream)] if high else []
        return concatenate([*before, a, *after], axis, stream=stream)
    skip = 1 if mode == "reflect" else 0
    return concatenate(
        [*_mirrors(a, axis, low, skip, True, stream)[::-1], a, *_mirrors(a, axis, high, skip, False, stream)],
        axis,
        stream=stream,
    )


def _repeat_edge(a: array, axis: int, at: int, count: int, stream: Any) -> array:
    shape = a.shape
    return broadcast_to(
        axis_range(a, axis, at, 1, stream=stream), (*shape[:axis], count, *shape[axis + 1 :]), stream=stream
    )


def _mirrors(a: array, axis: int, count: int, skip: int, before: bool, stream: Any) -> list[array]:
    """Pieces from the array outwards, alternately mirrored and straight; `skip` elements at each border are not
    repeated.
    """
    n = a.shape[axis]
    made = []
    mirrored = True
    while count > 0:
        take = min(count, n - skip)
        if mirrored:
            made.append(axis_range(a, axis, skip + take - 1 if before else n - 1 - skip, take, -1, stream))
        else:
            made.append(axis_range(a, axis, n - skip - take if before else skip, take, 1, stream))
        count -= take
        mirrored = not mirrored
    return made


def repeat(array: Any, repeats: int, axis: int | None = None, *, stream: Any = None) -> array:
    """Each element along `axis` (None: of the flattened array) `repeats` times in a row.

    Raises ValueError for a negative count.

    >>> mx.repeat(mx.array([1, 2]), 2)
    array([1, 1, 2, 2], dtype=int32)
    """
    a = as_array(array)
    if not isinstance(repeats, int):
        raise TypeError(f"[repeat] `repeats` must be an integer; got {type(repeats).__name__}.")
    if repeats < 0:
        raise ValueError(f"[repeat] `repeats` cannot be negative; got {repeats}.")
    if axis is None:
        a, axis = flatten(a, stream=stream), 0
    at = checked_axis("repeat", axis, a.ndim)
    shape = a.shape
    wide = broadcast_to(
        expand_dims(a, at + 1, stream=stream), (*shape[: at + 1], repeats, *shape[at + 1 :]), stream=stream
    )
    return reshape(wide, (*shape[:at], shape[at] * repeats, *shape[at + 1 :]), stream=stream)


def tile(a: Any, reps: int | Sequence[int], /, *, stream: Any = None) -> array:
    """`a` laid out `reps` times along each axis; the shorter of `reps` and the shape gets leading ones.

    Raises ValueError if negative.

    >>> mx.tile(mx.array([1, 2]), (2, 2)).tolist()
    [[1, 2, 1, 2], [1, 2, 1, 2]]
    """
    a = as_array(a)
    counts = (reps,) if isinstance(reps, int) else tuple(int(r) for r in reps)
    if any(r < 0 for r in counts):
        raise ValueError(f"[tile] Repetitions cannot be negative; got {counts}.")
    ndim = max(a.ndim, len(counts))
    shape = (1,) * (ndim - a.ndim) + a.shape
    counts = (1,) * (ndim - len(counts)) + counts
    split_shape = tuple([n for pair in zip((1,) * ndim, shape, strict=True) for n in pair])
    wide_shape = tuple([n for pair in zip(counts, shape, strict=True) for n in pair])
    wide = broadcast_to(reshape(a, split_shape, stream=stream), wide_shape, stream=stream)
    return reshape(wide, tuple([n * r for n, r in zip(shape, counts, strict=True)]), stream=stream)


def roll(
    a: Any, shift: int | Sequence[int], axis: int | Sequence[int] | None = None, /, *, stream: Any = None
) -> array:
    """`a` with elements shifted along `axis`, those that leave at one end entering at the other.

    `shift` and `axis`: one number for all, or one for each axis named (what is left over in the longer list of shifts
    is not used; several shifts without `axis` add up). `axis` None shifts the flattened array. Raises IndexError for an
    axis out of range, ValueError where there are fewer shifts than axes.

    >>> mx.roll(mx.array([1, 2, 3]), 1)
    array([3, 1, 2], dtype=int32)
    """
    a = as_array(a)
    shifts = [shift] if isinstance(shift, int) else list(shift)
    if axis is None:
        return reshape(_roll_axis(flatten(a, stream=stream), sum(shifts), 0, stream), a.shape, stream=stream)
    axes = [axis] if isinstance(axis, int) else list(axis)
    if len(shifts) == 1:
        shifts *= len(axes)
    if isinstance(axis, int) or len(shifts) < len(axes):
        shifts = shifts if len(shifts) >= len(axes) else []
        if not shifts:
            raise ValueError(f"[roll] {shift} holds fewer shifts than there are axes in {axis}.")
    for by, at in zip(shifts, axes, strict=False):
        a = _roll_axis(a, by, checked_axis("roll", at, a.ndim), stream)
    return wrap(a._node)


def _roll_axis(a: array, shift: int, axis: int, stream: Any) -> array:
    n = a.shape[axis]
    shift = shift % n if n else 0
    if not shift:
        return a
    return concatenate(
        [axis_range(a, axis, n - shift, shift, stream=stream), axis_range(a, axis, 0, n - shift, stream=stream)],
        axis,
        stream=stream,
    )


def flip(a: Any, /, axis: int | Sequence[int] | None = None, *, stream: Any = None) -> array:
    """`a` with the order of elements reversed along `axis` (None: all axes); a view.

    Raises IndexError for an axis out of range.

    >>> mx.flip(mx.array([[1, 2], [3, 4]]), axis=1).tolist()
    [[2, 1], [4, 3]]
    """
    a = as_array(a)
    axes = range(a.ndim) if axis is None else [axis] if isinstance(axis, int) else axis
    for at in sorted({checked_axis("flip", i, a.ndim) for i in axes}):
        a = axis_range(a, at, a.shape[at] - 1, a.shape[at], -1, stream)
    return wrap(a._node)


def diff(a: Any, /, n: int = 1, axis: int = -1, *, stream: Any = None) -> array:
    """Differences of neighbours along `axis`, taken `n` times; booleans differ where they are unequal.

    Raises ValueError for a negative `n`, IndexError for an axis out of range.

    >>> mx.diff(mx.array([1, 4, 9, 16]))
    array([3, 5, 7], dtype=int32)
    >>> mx.diff(mx.array([1, 4, 9, 16]), n=2)
    array([2, 2], dtype=int32)
    """
    a = as_array(a)
    if n < 0:
        raise ValueError(f"[diff] The order must not be negative; got {n}.")
    at = checked_axis("diff", axis, a.ndim)
    minus = not_equal if a.dtype is dtypes.bool_ else subtract
    for _ in range(n):
        length = max(a.shape[at] - 1, 0)
        first = min(1, a.shape[at])
        a = minus(
            axis_range(a, at, first, length, stream=stream), axis_range(a, at, 0, length, stream=stream), stream=stream
        )
    return wrap(a._node)


Stacking.stack = stack

__all__ = [
    "concat", "concatenate", "diff", "flip", "pad", "repeat", "roll", "split", "stack", "tile", "unstack",
]  # fmt: skip
