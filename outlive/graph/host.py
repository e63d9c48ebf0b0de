"""Arrays seen from the host: numbers, lists, NumPy arrays, DLPack capsules, bytes.

A view over an array's own memory is a lease: it keeps the memory's owner alive, so that nothing is donated and a later
write to the array goes to a copy. bfloat16 becomes NumPy's through ml_dtypes, which is imported on first use.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from outlive.graph import dtypes
from outlive.graph.array import array, host_view
from outlive.graph.dtypes import Dtype


class Lease:
    """Memory of an array, for NumPy (and whoever speaks `__array_interface__`); holds the owner, and the view itself:
    that of an array on another device is a copy.
    """

    __slots__ = ("__array_interface__", "_owner", "_view")

    def __init__(self, view: np.ndarray, owner: Any, read_only: bool) -> None:
        interface = dict(view.__array_interface__)
        interface["data"] = (interface["data"][0], read_only)
        self.__array_interface__ = interface
        self._owner = owner
        self._view = view


def lease(a: array) -> np.ndarray:
    """A NumPy array in storage form over the memory of `a`, which it keeps. Raises the failure of `a`."""
    view = host_view(a)
    if not view.size:
        return view
    return np.asarray(Lease(view, a._node.data, False))


def numpy_type(dtype: Dtype) -> np.dtype:
    """NumPy's type for the values of `dtype`."""
    found: np.dtype = dtype.storage
    if dtype is dtypes.bfloat16:
        import ml_dtypes

        found = np.dtype(ml_dtypes.bfloat16)
    return found


def to_numpy(a: array, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
    """`a` as a NumPy array: a view where no copy is asked for and none is needed.

    Raises ValueError where `copy=False` cannot be kept.
    """
    kind = numpy_type(a.dtype)
    wanted = kind if dtype is None else np.dtype(dtype)
    if copy is False and wanted != kind:
        raise ValueError(f"[array] A view of {a.dtype.name} elements as {wanted} is not possible; allow a copy.")
    if copy or wanted != kind:
        return host_view(a).view(kind).astype(wanted, copy=True)
    return lease(a).view(kind)


def scalars(a: array) -> np.ndarray:
    """The computed elements as values that become Python numbers: half types as float32, without a lease."""
    view = host_view(a)
    if a.dtype is dtypes.bfloat16:
        return (view.astype(np.uint32) << 16).view(np.float32)
    return view


def item(a: array) -> Any:
    """The one element of `a` as a Python number; raises ValueError for any other count.

    Computes the array where that has not happened. Raises ExecutionError where the work behind it failed.

    >>> mx.array([2.5]).item()
    2.5
    """
    if a.size != 1:
        raise ValueError(f"[item] Only arrays with one element become Python numbers; got shape {a.shape}.")
    return scalars(a).item()


def tolist(a: array) -> Any:
    """Nested lists of Python numbers; a number for an array without axes.

    Computes the array where that has not happened. Raises ExecutionError where the work behind it failed.

    >>> mx.array([[1, 2], [3, 4]]).tolist()
    [[1, 2], [3, 4]]
    """
    return scalars(a).tolist()
