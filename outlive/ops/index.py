"""`a[...]`, `a[...] = v` and `a.at[...]`: NumPy's indexing, turned into slices, gathers, scatters and masks."""

from __future__ import annotations

import operator
from types import EllipsisType
from typing import Any, NamedTuple

import numpy as np

from outlive.graph.array import apply, array, wrap
from outlive.graph.primitive import Primitive
from outlive.ops.common import Plans, as_array, broadcast_shapes, constant, dtypes, layout
from outlive.ops.elementwise import where
from outlive.ops.gather import gather, scatter
from outlive.ops.shape import broadcast_to, reshape
from outlive.ops.slicing import NEW, Region, Slice, SliceUpdate, own_copy, take_region, update_region


class Place(NamedTuple):
    """Where an index points: a region, and within it arrays of indices along `axes`, whose axes are seen at place `at`."""

    region: Region
    indices: tuple[array, ...] = ()
    axes: tuple[int, ...] = ()
    at: int = 0


def locate(op: str, a: array, index: Any) -> Place:
    """The place of `index` (any mixture of integers, slices, None, one `...` and integer arrays) in `a`.

    Raises IndexError for an integer out of range, ValueError for too many indices, unknown types, boolean masks, or a
    step of 0.
    """
    items = _expanded(op, a, index if type(index) is tuple else (index,))
    kept: list[int] = []
    lengths: list[int] = []
    starts: list[int] = []
    steps: list[int] = []
    arrays: list[tuple[int, array]] = []
    advanced: list[int] = []  # the places among the items that hold an integer or an array
    before = 0  # axes that stand before the first of them
    shape = a.shape
    for position, item in enumerate(items):
        axis = len(lengths)
        if item is None:
            kept.append(NEW)
            before += not advanced
            continue
        n = shape[axis]
        kind = type(item)
        if kind is int:
            lengths.append(1)
            starts.append(_in_range(op, item, axis, shape))
            steps.append(1)
            advanced.append(position)
        elif kind is slice:
            start, step, length = _slice_range(op, item, n)
            kept.append(axis)
            lengths.append(length)
            starts.append(start)
            steps.append(step)
            before += not advanced
        else:
            arrays.append((len(kept), item))
            advanced.append(position)
            kept.append(axis)
            lengths.append(n)
            starts.append(0)
            steps.append(1)
    region = Region(tuple(kept), tuple(lengths), tuple(starts), tuple(steps))
    if not arrays:
        return Place(region)
    together = advanced[-1] - advanced[0] + 1 == len(advanced)
    return Place(region, tuple([i for _, i in arrays]), tuple([axis for axis, _ in arrays]), before if together else 0)


def _expanded(op: str, a: array, items: tuple[Any, ...]) -> list[Any]:
    """The items as None, int, slice or array, with `...` written out and trailing slices added."""
    out: list[Any] = []
    dots = -1
    used = 0
    for item in items:
        kind = type(item)
        if item is None or kind is slice or kind is int:
            out.append(item)
            used += item is not None
        elif kind is EllipsisType:
            if dots >= 0:
                raise ValueError(f"[{op}] An index may hold one ellipsis (...).")
            dots = len(out)
        else:
            out.append(_index_item(op, item))
            used += 1
    missing = a.ndim - used
    if missing < 0:
        raise ValueError(f"[{op}] {used} indices are too many for an array with {a.ndim} dimensions (shape {a.shape}).")
    if missing:
        at = len(out) if dots < 0 else dots
        out[at:at] = [slice(None)] * missing
    return out


def _index_item(op: str, item: Any) -> int | array:
    """An index that is neither None, int, slice nor `...`: anything integral, or an array of integers."""
    if isinstance(item, array) and item.dtype.category in (dtypes.signedinteger, dtypes.unsignedinteger):
        return item
    if isinstance(item, (list, np.ndarray)):
        item = array(item)
        if not item.size and item.dtype is dtypes.float32:
            item = item.astype(dtypes.int32)
        return _index_item(op, item)
    if isinstance(item, array):
        if item.dtype is dtypes.bool_:
            raise ValueError(
                f"[{op}] A boolean mask cannot be used here, since the shape would depend on its values; it can stand "
                "alone in an assignment, or use where."
            )
        raise ValueError(f"[{op}] Indices must be integers; got an array of {item.dtype.name}.")
    if not isinstance(item, (bool, np.bool_)) and hasattr(item, "__index__"):
        return operator.index(item)
    raise ValueError(
        f"[{op}] Cannot index with a {type(item).__name__}; use integers, slices, ..., None, or arrays of integers."
    )


def _in_range(op: str, index: int, axis: int, shape: tuple[int, ...]) -> int:
    n = shape[axis]
    if not -n <= index < n:
        raise IndexError(f"[{op}] Index {index} is out of range for axis {axis} of shape {shape}.")
    return index + n if index < 0 else index


def _slice_range(op: str, item: slice, n: int) -> tuple[int, int, int]:
    """(start, step, length) of a slice along an axis of length `n`."""
    if item.step == 0:
        raise ValueError(f"[{op}] The step of a slice cannot be 0.")
    try:
        start, stop, step = item.indices(n)
    except TypeError:
        raise ValueError(f"[{op}] The ends of a slice must be integers or None; got {item}.") from None
    return start, step, len(range(start, stop, step))


def _whole(place: Place, a: array) -> bool:
    """Whether the region is the array itself."""
    region = place.region
    return region.kept == tuple(range(a.ndim)) and region.lengths == a.shape and all(s == 1 for s in region.steps)


def _fixed(index: Any) -> tuple[Any, ...] | None:
    """An index of integers, slices, None and `...` as something that can be looked up; None for any other."""
    key = []
    for item in index if type(index) is tuple else (index,):
        kind = type(item)
        if kind is slice:
            start, stop, step = item.start, item.stop, item.step
            for end in (start, stop, step):
                if end is not None and type(end) is not int:
                    return None
            key.append((start, stop, step))
        elif kind is int or item is None or item is ...:
            key.append(item)
        else:
            return None
    return tuple(key)


_INTEGERS = frozenset(d for d in dtypes.ALL if d.category in (dtypes.signedinteger, dtypes.unsignedinteger))
_slices = Plans()
_updates = Plans()


def getitem(a: array, index: Any) -> array:
    """`a[index]`: a view where `index` holds integers, slices, None and `...`, a copy where it holds arrays.

    >>> a = mx.arange(6).reshape(2, 3)
    >>> a[0, ::-1], a[:, mx.array([0, 2])].tolist(), a[..., None].shape
    (array([2, 1, 0], dtype=int32), [[0, 2], [3, 5]], (2, 3, 1))
    """
    if type(index) is array and index.dtype in _INTEGERS and a.ndim:
        return gather(a, (index,), (0,), 0)
    key = _fixed(index)
    if key is not None:
        source = a._node.layout
        plan = _slices.get((source, key))
        if plan is not None:
            return apply(plan[0], (a,), plan[1])
    place = locate("getitem", a, index)
    if key is not None and not _whole(place, a):
        region = place.region
        plan = _slices.keep((source, key), (Slice.make(region), layout(region.shape, source.dtype)))
        return apply(plan[0], (a,), plan[1])
    made = a if _whole(place, a) else take_region(a, place.region)
    if place.indices:
        return gather(made, place.indices, place.axes, place.at)
    return wrap(made._node) if made is a else made


def _value(a: array, value: Any) -> array:
    """What is assigned, in the array's type."""
    if type(value) in (bool, int, float):
        return constant(_cast(value, a.dtype), a.dtype)
    value = as_array(value)
    return value if value.dtype is a.dtype else value.astype(a.dtype)


def _cast(value: Any, dtype: Any) -> Any:
    return int(value) if type(value) is float and not dtype.inexact and dtype is not dtypes.bool_ else value


def _repeats_to(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Whether an operand of `shape` broadcasts to `wanted` itself."""
    pairs = zip(reversed(shape), reversed(wanted), strict=False)
    return len(shape) <= len(wanted) and all(n in (1, m) for n, m in pairs)


def _fitted(op: str, value: array, shape: tuple[int, ...]) -> array:
    """`value` repeated to `shape`; leading axes of length 1 that it has beyond are dropped."""
    if value._node.layout.shape == shape:
        return value
    while value.ndim > len(shape) and value.shape[0] == 1:
        value = reshape(value, value.shape[1:])
    if not _repeats_to(value.shape, shape):
        raise ValueError(f"[{op}] A value of shape {value.shape} does not fit the indexed part of shape {shape}.")
    return broadcast_to(value, shape)


def _place_shape(place: Place) -> tuple[int, ...]:
    shape = place.region.shape
    if not place.indices:
        return shape
    common = broadcast_shapes("setitem", *[i.shape for i in place.indices])
    rest = [n for i, n in enumerate(shape) if i not in place.axes]
    return (*rest[: place.at], *common, *rest[place.at :])


def assigned(a: array, index: Any, value: Any) -> array:
    """`a` with the elements at `index` replaced by `value`, cast to `a`'s type."""
    key = _fixed(index)
    if key is not None:
        source = a._node.layout
        plan = _updates.get((source, key))
        if plan is None:
            found = locate("setitem", a, index)
            if not _whole(found, a):
                plan = _updates.keep((source, key), (SliceUpdate.make(found.region), found.region.shape))
        if plan is not None:
            return apply(plan[0], (a, _fitted("setitem", _value(a, value), plan[1])), source)
    mask = _mask(index)
    if mask is not None:
        return _masked("setitem", a, mask, value)
    place = locate("setitem", a, index)
    update = _fitted("setitem", _value(a, value), _place_shape(place))
    if not place.indices:
        return wrap(update._node) if _whole(place, a) else update_region(a, update, place.region)
    if _whole(place, a):
        return scatter(a, update, place.indices, place.axes, place.at)
    part = scatter(take_region(a, place.region), update, place.indices, place.axes, place.at)
    return update_region(a, part, place.region)


def setitem(a: array, index: Any, value: Any) -> None:
    """`a[index] = value`: the handle `a` gets a new node; other handles of the old one do not change.

    >>> a = mx.zeros((2, 2), mx.int32)
    >>> b = mx.array(a)
    >>> a[:, 0] = mx.array([1, 2])
    >>> a[mx.array([[False, True], [False, True]])] = 9
    >>> a.tolist(), b.tolist()
    ([[1, 9], [2, 9]], [[0, 0], [0, 0]])
    """
    a._node = assigned(a, index, value)._node


def _mask(index: Any) -> array | None:
    """The boolean mask that an index consists of, if it does."""
    if type(index) is tuple and len(index) == 1:
        index = index[0]
    if isinstance(index, (bool, np.bool_)):
        return array(bool(index))
    if isinstance(index, np.ndarray) and index.dtype == np.bool_:
        return array(index)
    if isinstance(index, list) and np.asarray(index).dtype == np.bool_:
        return array(index)
    return index if type(index) is array and index.dtype is dtypes.bool_ else None


class MaskedScatter(Primitive):
    """An array with the elements under a mask replaced, in order, by those of a source (or by what broadcasts to them)."""

    __slots__ = ()
    name = "masked_scatter"
    moves_bits = True

    def encode(self, encoder: Any, inputs: Any, layout: Any) -> Any:
        out = own_copy(encoder, 0, inputs[0], layout)
        encoder.dispatch(self, inputs[1:], (out,))
        return out

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        mask, source = reads
        count = int(mask.sum())
        rest = writes[0].shape[mask.ndim :]
        wanted = count * int(np.prod(rest, dtype=np.int64))
        if not _repeats_to(source.shape, (count, *rest)):
            flat = source.reshape(-1)
            if flat.size < wanted:
                raise ValueError(f"the mask selects {wanted} elements but the value holds {flat.size}")
            source = flat[:wanted].reshape((count, *rest))
        writes[0][mask] = source


def _masked(op: str, a: array, mask: array, value: Any) -> array:
    if mask.ndim > a.ndim or mask.shape != a.shape[: mask.ndim]:
        raise ValueError(f"[{op}] A mask of shape {mask.shape} does not fit the beginning of shape {a.shape}.")
    update = _value(a, value)
    if update.size == 1:
        wide = reshape(mask, mask.shape + (1,) * (a.ndim - mask.ndim))
        return where(wide, reshape(update, ()), a)
    return apply(MaskedScatter.make(), (a, mask, update), a._node.layout)


_COMBINE = ("add", "subtract", "multiply", "divide", "maximum", "minimum")


class ArrayAt:
    """`a.at[index]`: updates of the elements at `index`, each of which returns a new array.

    Repeated indices count each time. `index`: as in `a[index] = value`. Values broadcast to the indexed part and are cast
    to the type of `a`. Raises IndexError for an index out of range, ValueError for values that do not fit.

    >>> mx.zeros((3,)).at[mx.array([0, 0, 2])].add(1.0)
    array([2, 0, 1], dtype=float32)
    """

    __slots__ = ("_array", "_index")

    def __init__(self, a: array, index: Any = None) -> None:
        self._array = a
        self._index = index

    def __getitem__(self, index: Any) -> ArrayAt:
        """The updates at `index`.

        >>> mx.zeros((2, 2)).at[0, 1].add(5.0).tolist()
        [[0.0, 5.0], [0.0, 0.0]]
        """
        return ArrayAt(self._array, (index,))

    def add(self, value: Any) -> array:
        """`a` with `value` added at the index. Errors as in `ArrayAt`.

        >>> mx.array([1, 2]).at[mx.array([0, 0])].add(10)
        array([21, 2], dtype=int32)
        """
        return self._combined(value, "add")

    def subtract(self, value: Any) -> array:
        """`a` with `value` subtracted at the index. Errors as in `ArrayAt`.

        >>> mx.array([1, 2]).at[0].subtract(10)
        array([-9, 2], dtype=int32)
        """
        return self._combined(value, "subtract")

    def multiply(self, value: Any) -> array:
        """`a` multiplied by `value` at the index. Errors as in `ArrayAt`.

        >>> mx.array([1, 2]).at[mx.array([1, 1])].multiply(3)
        array([1, 18], dtype=int32)
        """
        return self._combined(value, "multiply")

    def divide(self, value: Any) -> array:
        """`a` divided by `value` at the index; integers are divided as floats and cut off. Errors as in
        `ArrayAt`.

        >>> mx.array([1.0, 2.0]).at[1].divide(4.0)
        array([1, 0.5], dtype=float32)
        """
        return self._combined(value, "divide")

    def maximum(self, value: Any) -> array:
        """`a` with the larger of itself and `value` at the index. Errors as in `ArrayAt`.

        >>> mx.array([1, 2]).at[:].maximum(mx.array([5, 0]))
        array([5, 2], dtype=int32)
        """
        return self._combined(value, "maximum")

    def minimum(self, value: Any) -> array:
        """`a` with the smaller of itself and `value` at the index. Errors as in `ArrayAt`.

        >>> mx.array([1, 2]).at[:].minimum(mx.array([5, 0]))
        array([1, 0], dtype=int32)
        """
        return self._combined(value, "minimum")

    def _combined(self, value: Any, mode: str) -> array:
        from outlive.ops import elementwise

        a = self._array
        if self._index is None:
            raise ValueError("[at] Give an index first, as in a.at[0].add(1).")
        index = self._index[0]
        if mode == "divide" and not a.dtype.inexact:
            exact = ArrayAt(a.astype(dtypes.float32), self._index)
            return exact._combined(value, mode).astype(a.dtype)
        mask = _mask(index)
        combine = getattr(elementwise, mode)
        if mask is not None:
            wide = reshape(mask, mask.shape + (1,) * (a.ndim - mask.ndim))
            return elementwise.where(wide, combine(a, _value(a, value)), a)
        place = locate("at", a, index)
        update = _fitted("at", _value(a, value), _place_shape(place))
        if not place.indices:
            return update_region(a, combine(take_region(a, place.region), update), place.region)
        if _whole(place, a):
            return scatter(a, update, place.indices, place.axes, place.at, mode)
        part = scatter(take_region(a, place.region), update, place.indices, place.axes, place.at, mode)
        return update_region(a, part, place.region)


__all__ = ["ArrayAt"]
