"""What op families share: operands from Python values, broadcasting, axes, and the base of elementwise ops."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from outlive.graph import dtypes
from outlive.graph.array import array, from_host, wrap
from outlive.graph.convert import to_storage
from outlive.graph.dtypes import Dtype, promote
from outlive.graph.node import Node
from outlive.graph.state import as_stream, constants_of, current_stream, default_device
from outlive.runtime.layout import Layout, layout, strided_layout
from outlive.runtime.origin import user_origin

Scalar = bool | int | float | complex
LIMIT_CONSTANTS = 1 << 10


def constant(value: Scalar, dtype: Dtype) -> array:
    """A cached 0-d array of `value` in `dtype`; raises ValueError where the type cannot hold the number."""
    constants = constants_of(default_device())
    # 0.0 and -0.0 are equal keys with different bits, NaN equals nothing, True equals 1: the text tells these apart
    plain = type(value) in (int, float) and value == value and value != 0
    key = (value if plain else (repr(value), type(value)), dtype)
    node = constants.get(key)
    if node is None:
        if dtype.category in (dtypes.signedinteger, dtypes.unsignedinteger):
            limits: Any = np.iinfo(dtype.storage)
            if not limits.min <= value <= limits.max:
                raise ValueError(
                    f"[array] {value} does not fit {dtype.name}, which holds {limits.min} to {limits.max}."
                )
        with np.errstate(over="ignore"):
            node = from_host(to_storage(np.asarray(value), dtype), dtype)
        if len(constants) >= LIMIT_CONSTANTS:
            constants.clear()
        constants[key] = node
    return wrap(node)


def weak_type(value: Scalar, other: Dtype) -> Dtype:
    """The type that a Python scalar takes beside an array of type `other`."""
    kind = type(value)
    if kind is bool:
        return other
    if kind is int:
        return dtypes.int32 if other is dtypes.bool_ else other
    if kind is float:
        return other if other.inexact else dtypes.float32
    return dtypes.complex64


def as_array(value: Any, dtype: Dtype | None = None) -> array:
    """`value` as an array; Python scalars become cached constants of `dtype` or of their own type."""
    if type(value) is array:
        return value
    kind = type(value)
    if kind in (bool, int, float, complex):
        return constant(value, dtype) if dtype is not None else array(value)
    return array(value, dtype)


_KINDS: dict[str, Scalar] = {"b": False, "i": 0, "u": 0, "f": 0.0, "c": 0j}
"""A Python number of each of NumPy's kinds."""


def _beside(value: Any, other: Dtype) -> array:
    """An operand beside an array of type `other`."""
    if isinstance(value, np.generic):
        value = value.item()
    if type(value) in (bool, int, float, complex):
        return constant(value, weak_type(value, other))
    if isinstance(value, np.ndarray) and value.dtype.kind in _KINDS:
        return array(value, weak_type(_KINDS[value.dtype.kind], other))
    return as_array(value)


def operands(op: str, a: Any, b: Any) -> tuple[array, array]:
    """Two operands as arrays; Python's and NumPy's numbers and NumPy's arrays take the other's type where that can hold
    their kind.
    """
    if type(a) is array:
        return a, _beside(b, a.dtype)
    if type(b) is array:
        return _beside(a, b.dtype), b
    return as_array(a), as_array(b)


class Plans:
    """What an op decided for a layout and its arguments: (primitive, layout of the result), so that it decides once."""

    __slots__ = ("_table",)

    def __init__(self) -> None:
        self._table: dict[Any, Any] = {}

    def get(self, key: Any) -> Any:
        """The plan under `key`, or None. Keys hold interned layouts, which compare by identity."""
        return self._table.get(key)

    def keep(self, key: Any, plan: Any) -> Any:
        """Remember `plan`, and return it."""
        if len(self._table) >= LIMIT_PLANS:
            self._table.clear()
        self._table[key] = plan
        return plan


LIMIT_PLANS = 1 << 12
"""Plans that a family of ops keeps before its table starts anew."""


def broadcast_shapes(op: str, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The common shape of `shapes` under NumPy's rules; raises ValueError naming them."""
    rank = max(map(len, shapes), default=0)
    out = [1] * rank
    for shape in shapes:
        for axis, n in enumerate(shape, rank - len(shape)):
            if n != 1:
                if out[axis] not in (1, n):
                    listed = " and ".join(map(str, shapes))
                    raise ValueError(f"[{op}] Shapes {listed} cannot be broadcast together.")
                out[axis] = n
    return tuple(out)


def broadcast_layout(source: Layout, shape: tuple[int, ...]) -> Layout:
    """How an operand of layout `source` is seen under the broadcast `shape`: stride 0 along repeated axes."""
    if source.shape == shape:
        return source
    lead = len(shape) - source.ndim
    strides = (0,) * lead + tuple(
        0 if n == 1 and shape[lead + i] != 1 else s
        for i, (n, s) in enumerate(zip(source.shape, source.strides, strict=True))
    )
    return strided_layout(shape, strides, source.dtype)


def normal_axis(op: str, axis: int, ndim: int) -> int:
    """A non-negative axis; raises IndexError for one out of range."""
    if not -ndim <= axis < ndim:
        raise IndexError(f"[{op}] Axis {axis} is out of range for an array with {ndim} dimensions.")
    return axis % ndim if ndim else 0


def normal_axes(op: str, axes: int | Sequence[int] | None, ndim: int) -> tuple[int, ...]:
    """Sorted non-negative axes (None: all); raises ValueError for repeated ones, IndexError for ones out of range."""
    if axes is None:
        return tuple(range(ndim))
    given = [axes] if isinstance(axes, int) else list(axes)
    out = sorted(normal_axis(op, a, ndim) for a in given)
    if len(set(out)) != len(out):
        raise ValueError(f"[{op}] Axes {tuple(given)} name one axis twice.")
    return tuple(out)


def checked_shape(op: str, shape: Any) -> tuple[int, ...]:
    """A shape as a tuple of non-negative integers; raises ValueError or TypeError otherwise."""
    given = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    out = tuple(int(n) for n in given)
    if any(n < 0 for n in out):
        raise ValueError(f"[{op}] A shape has no negative lengths; got {given}.")
    if math.prod(out) >= 1 << 63:
        raise ValueError(f"[{op}] Shape {given} has more elements than 64-bit sizes can count.")
    return out


__all__ = [
    "Dtype",
    "Layout",
    "Node",
    "Plans",
    "Scalar",
    "array",
    "as_array",
    "as_stream",
    "broadcast_layout",
    "broadcast_shapes",
    "checked_shape",
    "constant",
    "current_stream",
    "dtypes",
    "layout",
    "normal_axes",
    "normal_axis",
    "operands",
    "promote",
    "strided_layout",
    "user_origin",
    "weak_type",
    "wrap",
]  # fmt: skip
