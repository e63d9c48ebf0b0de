"""Element types, their categories, and the promotion rules of mixed operands.

bfloat16 lives in buffers as unsigned 16-bit integers: no third-party number type is needed to store it.
"""

from __future__ import annotations

import enum
from typing import Any

import numpy as np


class DtypeCategory(enum.Enum):
    """The categories of element types, from `complexfloating` up to `generic`.

    >>> mx.float32.category, mx.issubdtype(mx.float32, mx.inexact)
    (<DtypeCategory.floating: 'floating'>, True)
    """

    complexfloating = "complexfloating"
    floating = "floating"
    inexact = "inexact"
    signedinteger = "signedinteger"
    unsignedinteger = "unsignedinteger"
    integer = "integer"
    number = "number"
    generic = "generic"


complexfloating = DtypeCategory.complexfloating
floating = DtypeCategory.floating
inexact = DtypeCategory.inexact
signedinteger = DtypeCategory.signedinteger
unsignedinteger = DtypeCategory.unsignedinteger
integer = DtypeCategory.integer
number = DtypeCategory.number
generic = DtypeCategory.generic


class Dtype:
    """An element type.

    Attributes: `name` ("float32"), `size` and `itemsize` (bytes), `category`, `storage` (the NumPy type that holds it in a buffer: uint16
    for bfloat16), `half` (a 16-bit float), `inexact`, `index` (its place in the promotion table).

    >>> mx.bfloat16, mx.bfloat16.size, mx.bfloat16.half
    (outlive.core.bfloat16, 2, True)
    """

    __slots__ = ("category", "half", "index", "inexact", "itemsize", "name", "size", "storage")

    def __init__(self, name: str, storage: type, category: DtypeCategory, index: int) -> None:
        self.name = name
        self.storage = np.dtype(storage)
        self.itemsize = self.size = self.storage.itemsize
        self.category = category
        self.half = name in ("float16", "bfloat16")
        self.inexact = category in (floating, complexfloating)
        self.index = index

    def __repr__(self) -> str:
        return f"outlive.core.{self.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (dtype_by_name, (self.name,))


bool_ = Dtype("bool", np.bool_, generic, 0)
uint8 = Dtype("uint8", np.uint8, unsignedinteger, 1)
uint16 = Dtype("uint16", np.uint16, unsignedinteger, 2)
uint32 = Dtype("uint32", np.uint32, unsignedinteger, 3)
uint64 = Dtype("uint64", np.uint64, unsignedinteger, 4)
int8 = Dtype("int8", np.int8, signedinteger, 5)
int16 = Dtype("int16", np.int16, signedinteger, 6)
int32 = Dtype("int32", np.int32, signedinteger, 7)
int64 = Dtype("int64", np.int64, signedinteger, 8)
float16 = Dtype("float16", np.float16, floating, 9)
float32 = Dtype("float32", np.float32, floating, 10)
float64 = Dtype("float64", np.float64, floating, 11)
bfloat16 = Dtype("bfloat16", np.uint16, floating, 12)
complex64 = Dtype("complex64", np.complex64, complexfloating, 13)

ALL = (
    bool_, uint8, uint16, uint32, uint64, int8, int16, int32, int64, float16, float32, float64, bfloat16, complex64,
)  # fmt: skip
_BY_NAME = {d.name: d for d in ALL}
_BY_STORAGE = {d.storage: d for d in ALL if d is not bfloat16}


def dtype_by_name(name: str) -> Dtype:
    """The element type called `name`; raises KeyError for an unknown name."""
    return _BY_NAME[name]


def dtype_of_numpy(dtype: np.dtype) -> Dtype:
    """The element type of NumPy's (or ml_dtypes') `dtype`; raises TypeError when there is none."""
    found = _BY_STORAGE.get(dtype.newbyteorder("=")) or _BY_NAME.get(dtype.name)
    if found is None:
        raise TypeError(f"[array] No element type holds NumPy's {dtype}; convert it first, for instance to float32.")
    return found


def _promote(a: Dtype, b: Dtype) -> Dtype:
    if a is b:
        return a
    if complex64 in (a, b):
        return complex64
    if a.inexact or b.inexact:
        if not (a.inexact and b.inexact):
            return a if a.inexact else b
        if float64 in (a, b):
            return float64
        return float32  # float16 with bfloat16 too: neither holds the other
    if bool_ in (a, b):
        return b if a is bool_ else a
    signed_a, signed_b = a.category is signedinteger, b.category is signedinteger
    if signed_a == signed_b:
        return a if a.size >= b.size else b
    signed, unsigned = (a, b) if signed_a else (b, a)
    if signed.size > unsigned.size:
        return signed
    return {1: int16, 2: int32, 4: int64, 8: float32}[unsigned.size]


PROMOTION = tuple(tuple(_promote(a, b) for b in ALL) for a in ALL)


def promote(a: Dtype, b: Dtype) -> Dtype:
    """The type that holds the result of an operation on `a` and `b`."""
    return PROMOTION[a.index][b.index]


_PARENTS = {
    complexfloating: inexact, floating: inexact, inexact: number, signedinteger: integer, unsignedinteger: integer, integer: number,
    number: generic, generic: None,
}  # fmt: skip


def issubdtype(arg1: Dtype | DtypeCategory, arg2: Dtype | DtypeCategory) -> bool:
    """Whether `arg1` (a type or a category) is `arg2` or lies below it.

    >>> mx.issubdtype(mx.int8, mx.integer), mx.issubdtype(mx.int8, mx.floating)
    (True, False)
    """
    if isinstance(arg2, Dtype):
        return arg1 is arg2
    category: DtypeCategory | None = arg1.category if isinstance(arg1, Dtype) else arg1
    while category is not None:
        if category is arg2:
            return True
        category = _PARENTS[category]
    return False
