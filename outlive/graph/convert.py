"""Host values to arrays: scalars, nested sequences, NumPy arrays, and anything with an array protocol."""

from __future__ import annotations

from typing import Any

import numpy as np

from outlive.graph import dtypes
from outlive.graph.dtypes import Dtype, dtype_of_numpy
from outlive.graph.node import Node

_INT32 = np.iinfo(np.int32)


def to_storage(values: np.ndarray, dtype: Dtype) -> np.ndarray:
    """Host values converted to the storage form of `dtype` (bfloat16: rounded to nearest even, as uint16)."""
    if dtype is not dtypes.bfloat16:
        return values.astype(dtype.storage, copy=False)
    from outlive.backends.cpu.reference import float32_to_bfloat16

    if values.dtype.name == "bfloat16":
        return values.view(np.uint16)
    return float32_to_bfloat16(np.asarray(values, np.float32))


def default_type(values: np.ndarray, from_python: bool) -> Dtype:
    """The element type of host values: Python's integers are int32 where they fit, floats float32; NumPy's float64 becomes float32."""
    if values.dtype == np.float64:
        return dtypes.float32
    if values.dtype == np.complex128:
        return dtypes.complex64
    if from_python and values.dtype == np.int64 and (
        not values.size or (values.min() >= _INT32.min and values.max() <= _INT32.max)
    ):
        return dtypes.int32
    return dtype_of_numpy(values.dtype)


def node_from(val: Any, dtype: Dtype | None) -> Node:
    """An evaluated (or lazily copied) node for `val`; see `array`."""
    from outlive.graph.array import array, from_host

    if type(val) is array:
        if dtype is None or dtype is val.dtype:
            return val._node
        return val.astype(dtype)._node  # type: ignore[attr-defined]
    if isinstance(val, (list, tuple)):
        val = _unwrapped(val)
    from_python = not isinstance(val, np.ndarray) and not hasattr(val, "__array__")
    try:
        values = np.asarray(val) if not from_python or not isinstance(val, (list, tuple)) else np.array(val)
    except ValueError as error:
        raise ValueError(f"[array] The nested sequence is ragged: every list of a level needs the same length ({error}).") from None
    if values.dtype == object:
        raise ValueError("[array] Cannot make an array from these values: use numbers, or nested lists of numbers of equal lengths.")
    if from_python and values.size == 0 and isinstance(val, (list, tuple)):
        values = values.astype(np.float32)
    kind = dtype or default_type(values, from_python)
    return from_host(to_storage(values, kind), kind)


def _unwrapped(val: Any) -> Any:
    """Nested sequences with arrays (of this library) inside, as host values."""
    from outlive.graph.array import array

    if isinstance(val, array):
        return np.asarray(val)
    if isinstance(val, (list, tuple)):
        return [_unwrapped(v) for v in val] if _holds_arrays(val) else val
    return val


def _holds_arrays(val: Any) -> bool:
    from outlive.graph.array import array

    return any(isinstance(v, array) or (isinstance(v, (list, tuple)) and _holds_arrays(v)) for v in val)
