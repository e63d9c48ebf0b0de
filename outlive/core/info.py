"""What element types can hold, how they promote, constants, and the array-API description of this namespace."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from outlive.graph import dtypes
from outlive.graph.array import array
from outlive.graph.dtypes import Dtype, promote
from outlive.graph.state import Device, cpu, default_device

e = math.e
euler_gamma = 0.5772156649015329
inf = math.inf
nan = math.nan
newaxis = None
pi = math.pi

_BFLOAT16 = {"eps": 2.0**-7, "max": (2 - 2.0**-7) * 2.0**127, "smallest_normal": 2.0**-126}


class finfo:
    """Limits of a floating-point type: `dtype`, `bits`, `eps` (from 1 to the next number), `min`, `max`,
    `smallest_normal`.

    A complex type has the limits of its parts. Raises ValueError for other types.

    >>> mx.finfo(mx.float16).max, mx.finfo(mx.bfloat16).eps
    (65504.0, 0.0078125)
    """

    __slots__ = ("bits", "dtype", "eps", "max", "min", "smallest_normal")

    def __init__(self, dtype: Dtype) -> None:
        if not isinstance(dtype, Dtype):
            raise TypeError(f"[finfo] Needs an element type; got {type(dtype).__name__}.")
        if not dtype.inexact:
            raise ValueError(f"[finfo] {dtype.name} is no floating-point type; use iinfo.")
        self.dtype = dtypes.float32 if dtype is dtypes.complex64 else dtype
        self.bits = self.dtype.itemsize * 8
        if self.dtype is dtypes.bfloat16:
            self.eps, self.max, self.smallest_normal = _BFLOAT16["eps"], _BFLOAT16["max"], _BFLOAT16["smallest_normal"]
        else:
            known = np.finfo(self.dtype.storage)
            self.eps, self.max, self.smallest_normal = float(known.eps), float(known.max), float(known.smallest_normal)
        self.min = -self.max

    def __repr__(self) -> str:
        return f"finfo(min={self.min:g}, max={self.max:g}, dtype={self.dtype.name})"


class iinfo:
    """Limits of an integer type: `dtype`, `min`, `max`. Raises ValueError for other types.

    >>> mx.iinfo(mx.int8)
    iinfo(min=-128, max=127, dtype=int8)
    """

    __slots__ = ("dtype", "max", "min")

    def __init__(self, dtype: Dtype) -> None:
        if not isinstance(dtype, Dtype):
            raise TypeError(f"[iinfo] Needs an element type; got {type(dtype).__name__}.")
        if dtype.category not in (dtypes.signedinteger, dtypes.unsignedinteger):
            raise ValueError(f"[iinfo] {dtype.name} is no integer type; use finfo.")
        known: Any = np.iinfo(dtype.storage)
        self.dtype, self.min, self.max = dtype, int(known.min), int(known.max)

    def __repr__(self) -> str:
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype.name})"


_KINDS = {
    "bool": (),
    "signed integer": (dtypes.signedinteger,),
    "unsigned integer": (dtypes.unsignedinteger,),
    "integral": (dtypes.signedinteger, dtypes.unsignedinteger),
    "real floating": (dtypes.floating,),
    "complex floating": (dtypes.complexfloating,),
    "numeric": (dtypes.signedinteger, dtypes.unsignedinteger, dtypes.floating, dtypes.complexfloating),
}


def isdtype(dtype: Dtype, kind: Dtype | str | tuple[Dtype | str, ...]) -> bool:
    """Whether `dtype` is of a kind of the array API: a type, "bool", "signed integer", "unsigned integer", "integral",
    "real floating", "complex floating", "numeric", or any of a tuple of these. Raises ValueError for another kind.

    >>> mx.isdtype(mx.int8, "integral"), mx.isdtype(mx.int8, (mx.float32, "bool"))
    (True, False)
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, k) for k in kind)
    if isinstance(kind, Dtype):
        return dtype is kind
    if not isinstance(kind, str):
        raise ValueError(f"[isdtype] A kind is a type, a name, or a tuple of them; got {type(kind).__name__}.")
    if kind not in _KINDS:
        raise ValueError(f"[isdtype] Unknown kind {kind!r}; use one of {', '.join(map(repr, _KINDS))}.")
    return dtype is dtypes.bool_ if kind == "bool" else dtype.category in _KINDS[kind]


def can_cast(from_: array | Dtype, to: Dtype) -> bool:
    """Whether promotion leads from a type (or an array's) to `to`, so that a cast is implied nowhere a kind or a range
    is lost.

    >>> mx.can_cast(mx.int8, mx.float32), mx.can_cast(mx.float32, mx.int8)
    (True, False)
    """
    source = from_.dtype if isinstance(from_, array) else from_
    return promote(source, to) is to


def result_type(*arrays_and_dtypes: array | Dtype) -> Dtype:
    """The common type of arrays and types under promotion. Raises ValueError for none, or for other arguments.

    >>> mx.result_type(mx.array([1]), mx.float16)
    outlive.core.float16
    """
    if not arrays_and_dtypes:
        raise ValueError("[result_type] Needs at least one array or type.")
    kind: Dtype | None = None
    for given in arrays_and_dtypes:
        if not isinstance(given, (array, Dtype)):
            raise ValueError(f"[result_type] Needs arrays or types; got {type(given).__name__}.")
        found = given.dtype if isinstance(given, array) else given
        kind = found if kind is None else promote(kind, found)
    assert kind is not None
    return kind


class ArrayNamespaceInfo:
    """The inspection functions of the array API."""

    def capabilities(self) -> dict[str, Any]:
        """What the namespace can do: no result whose shape depends on data."""
        return {"boolean indexing": False, "data-dependent shapes": False, "max dimensions": 64}

    def default_device(self) -> Device:
        """The default device."""
        return default_device()

    def default_dtypes(self, *, device: Any = None) -> dict[str, Dtype]:
        """The types that numbers take where none is given."""
        return {
            "real floating": dtypes.float32,
            "complex floating": dtypes.complex64,
            "integral": dtypes.int32,
            "indexing": dtypes.int32,
        }

    def devices(self) -> tuple[Device, ...]:
        """The devices at hand."""
        from outlive.core.devices import device_count
        from outlive.graph.state import gpu

        return (Device(cpu), *[Device(gpu, i) for i in range(device_count(gpu))])

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, Dtype]:
        """The element types of the array API, by name; those of `kind` alone where it is given."""
        found = {d.name: d for d in dtypes.ALL if not d.half}
        return found if kind is None else {name: d for name, d in found.items() if isdtype(d, kind)}


def __array_namespace_info__() -> ArrayNamespaceInfo:
    """The inspection functions of the array API for this namespace."""
    return ArrayNamespaceInfo()


__all__ = [
    "__array_namespace_info__", "can_cast", "e", "euler_gamma", "finfo", "iinfo", "inf", "isdtype", "nan", "newaxis",
    "pi", "result_type",
]  # fmt: skip
