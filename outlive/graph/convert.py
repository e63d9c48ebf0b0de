"""Host values to arrays: scalars, nested sequences, NumPy arrays, and anything with an array protocol."""

from __future__ import annotations

from typing import Any

import numpy as np

from outlive.graph import dtypes
from outlive.graph.dtypes import Dtype, dtype_of_numpy
from outlive.graph.node import Node

_INT32 = np.iinfo(np.int32)
_OF_SCALARS: dict[type, Dtype] = {
    bool: dtypes.bool_, int: dtypes.int32, float: dtypes.float32, complex: dtypes.complex64,
}  # fmt: skip
"""What Python's numbers become where nothing else is said."""

_LIMITS = {
    dtypes.int32: _INT32.max, dtypes.float32: float(np.finfo(np.float32).max), dtypes.complex64: float(np.finfo(np.float32).max),
}  # fmt: skip


def to_storage(values: np.ndarray, dtype: Dtype) -> np.ndarray:
    """Host values converted to the storage form of `dtype` (bfloat16: rounded to nearest even, as uint16)."""
    if values.dtype.kind == "c" and dtype.storage.kind not in "cb":
        values = values.real
    if dtype is not dtypes.bfloat16:
        return values.astype(dtype.storage, copy=False)
    from outlive.backends.cpu.reference import float32_to_bfloat16

    if values.dtype.name == "bfloat16":
        return values.view(np.uint16)
    rounded: np.ndarray = float32_to_bfloat16(np.asarray(values, np.float32))
    return rounded


def default_type(values: np.ndarray, from_python: bool) -> Dtype:
    """The element type of host values: Python's integers are int32 where they fit, floats float32; NumPy's float64
    becomes float32.
    """
    if values.dtype == np.float64:
        return dtypes.float32
    if values.dtype == np.complex128:
        return dtypes.complex64
    if (
        from_python
        and values.dtype == np.int64
        and (not values.size or (values.min() >= _INT32.min and values.max() <= _INT32.max))
    ):
        return dtypes.int32
    return dtype_of_numpy(values.dtype)


def node_from(val: Any, dtype: Dtype | None) -> Node:
    """A node for `val`; see `array`. Arrays inside lists are stacked, not evaluated."""
    from outlive.graph.array import array, from_host

    if type(val) is array:
        if dtype is None or dtype is val.dtype:
            return val._node
        return _cast(val, dtype)
    if dtype is None and type(val) in _OF_SCALARS:
        kind = _OF_SCALARS[type(val)]
        if kind is dtypes.bool_ or abs(val) <= _LIMITS[kind]:
            return from_host(np.asarray(val, kind.storage), kind)
    if hasattr(val, "__mlx_array__"):
        return node_from(val.__mlx_array__(), dtype)
    if isinstance(val, range):
        val = list(val)
    sequence = isinstance(val, (list, tuple))
    if sequence and _holds_arrays(val):
        stacked = _stacked(val)
        return stacked._node if dtype is None or dtype is stacked.dtype else _cast(stacked, dtype)
    from_python = sequence or type(val) in (bool, int, float, complex)
    values = _host_values(val)
    if sequence and not values.size:
        values = values.astype(np.float32)
    kind = dtype or default_type(values, from_python)
    with np.errstate(over="ignore", invalid="ignore"):
        return from_host(to_storage(values, kind), kind)


def _cast(val: Any, dtype: Dtype) -> Node:
    made: Node = val.astype(dtype)._node
    return made


def _host_values(val: Any) -> np.ndarray:
    """`val` as a NumPy array of numbers; raises ValueError or TypeError for what holds none."""
    if val is None:
        raise TypeError("[array] Cannot make an array from None.")
    if isinstance(val, (bytes, bytearray)):
        return np.frombuffer(val, np.uint8)
    try:
        values = np.asarray(val)
    except ValueError as error:
        raise ValueError(
            f"[array] The nested sequence is ragged: every list of a level needs the same length ({error})."
        ) from None
    if values.dtype == object or values.dtype.kind in "USmM":
        raise ValueError(
            f"[array] Cannot make an array from a {type(val).__name__} of {values.dtype} values; use numbers within 64 "
            "bits, or nested lists of them of equal lengths."
        )
    return values


class Stacking:
    """How arrays inside a nested list become one array; the op is set where it is defined, above this layer."""

    stack: Any = None


def _holds_arrays(val: Any) -> bool:
    from outlive.graph.array import array

    return any(type(v) is array or (isinstance(v, (list, tuple)) and _holds_arrays(v)) for v in val)


def _stacked(val: Any) -> Any:
    from outlive.graph.array import array

    items = [v if type(v) is array else _stacked(v) if isinstance(v, (list, tuple)) else array(v) for v in val]
    shapes = {a.shape for a in items}
    if len(shapes) > 1:
        listed = ", ".join(map(str, sorted(shapes)))
        raise ValueError(f"[array] The nested sequence is ragged: its arrays have shapes {listed}.")
    return Stacking.stack(items)
