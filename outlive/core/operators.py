"""Puts operators and methods on `array`: the public functions themselves wherever the arguments agree, since a call
then costs one frame.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from outlive.core import interchange
from outlive.graph import host, printing
from outlive.graph.array import array, wrap
from outlive.ops import elementwise, index, shape
from outlive.ops.operators import fast_operator
from outlive.ops.slicing import Region, take_region

BINARY = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "div": "divide",
    "floordiv": "floor_divide", "mod": "remainder", "pow": "power", "matmul": "matmul", "and": "bitwise_and", "or": "bitwise_or",
    "xor": "bitwise_xor", "lshift": "left_shift", "rshift": "right_shift",
}  # fmt: skip
"""Special name (without underscores) of each arithmetic operator, with the function that it calls."""

FAST = ("add", "sub", "mul")
"""Operators whose result has the layout of two equal operands, whatever their type."""

BITS = ("and", "or", "xor", "lshift", "rshift")
"""Operators of integers and booleans."""

REFLECTED = ("add", "sub", "mul", "truediv", "div", "floordiv", "mod", "pow")

COMPARISONS = {
    "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "eq": "equal", "ne": "not_equal",
}  # fmt: skip

METHODS = (
    "abs all any argmax argmin astype conj cos cummax cummin cumprod cumsum diag diagonal exp flatten log log10 log1p "
    "log2 logcumsumexp logsumexp max mean min moveaxis prod reciprocal round rsqrt sin split sqrt square squeeze std "
    "sum swapaxes var view"
).split()
"""Functions of the namespace that are methods with the same arguments."""

UNARY = {"abs": "abs", "neg": "negative", "pos": "positive", "invert": "bitwise_invert"}
"""Special name of each operator of one operand, with the function that it calls."""


def install(functions: dict[str, Any]) -> None:
    """Give `array` its operators and methods, from the namespace's functions."""
    for name in METHODS:
        setattr(array, name, functions[name])
    for special, name in BINARY.items():
        function = _of_bits(functions[name]) if special in BITS else functions[name]
        primitive = getattr(elementwise, f"_{name.upper()}", None) if special in FAST else None
        setattr(array, f"__{special}__", function if primitive is None else fast_operator(primitive, function))
        setattr(array, f"__i{special}__", _in_place(_of_floats(function) if special == "truediv" else function))
        if special in REFLECTED:
            setattr(array, f"__r{special}__", _reflected(function))
    for special, name in (COMPARISONS | UNARY).items():
        setattr(array, f"__{special}__", functions[name])
    array.__eq__, array.__ne__ = _equality(functions["equal"]), _equality(functions["not_equal"])  # type: ignore[method-assign]
    for name, method in shape.METHODS.items():
        setattr(array, name, method)
    for name, function in (shape.PROPERTIES | {name: functions[name] for name in ("real", "imag")}).items():
        setattr(array, name, property(function, doc=function.__doc__))
    for name, method in _SPECIAL.items():
        setattr(array, name, method)


def _of_bits(function: Callable[..., array]) -> Callable[[array, Any], array]:
    """The operator raises ValueError for floating-point arrays, where the function raises RuntimeError."""

    def operator(self: array, other: Any) -> array:
        if self.dtype.inexact or isinstance(other, float) or (type(other) is array and other.dtype.inexact):
            raise ValueError(f"[{function.__name__}] Bits are those of integers and booleans, not of floats.")
        return function(self, other)

    operator.__doc__ = function.__doc__
    return operator


def _of_floats(function: Callable[..., array]) -> Callable[[array, Any], array]:
    """Division in place raises ValueError for an array whose type cannot hold a quotient."""

    def operator(self: array, other: Any) -> array:
        if not self.dtype.inexact:
            raise ValueError(
                f"[divide] Quotients do not fit the {self.dtype.name} of `a /= b`; write `a = a / b` or use //=."
            )
        return function(self, other)

    operator.__doc__ = function.__doc__
    return operator


def _in_place(function: Callable[..., array]) -> Callable[[array, Any], array]:
    def operator(self: array, other: Any) -> array:
        self._node = function(self, other)._node
        return self

    operator.__doc__ = function.__doc__
    return operator


def _reflected(function: Callable[..., array]) -> Callable[[array, Any], array]:
    def operator(self: array, other: Any) -> array:
        return function(other, self)

    operator.__doc__ = function.__doc__
    return operator


def _equality(function: Callable[..., array]) -> Callable[[array, Any], Any]:
    """Elementwise, except beside what is no number: that is simply not equal."""

    def operator(self: array, other: Any) -> Any:
        return NotImplemented if other is None or isinstance(other, str) else function(self, other)

    operator.__doc__ = function.__doc__
    return operator


def _bool(self: array) -> bool:
    """Whether the one element of the array is nonzero. Raises ValueError for any other count of elements.

    >>> bool(mx.array(2))
    True
    """
    return bool(host.item(self))


def _int(self: array) -> int:
    """The one element as an int, cut off toward zero. Raises ValueError for any other count of elements.

    >>> int(mx.array(2.5))
    2
    """
    return int(host.item(self))


def _float(self: array) -> float:
    """The one element as a float. Raises ValueError for any other count of elements.

    >>> float(mx.array(2))
    2.0
    """
    return float(host.item(self))


def _complex(self: array) -> complex:
    """The one element as a complex number. Raises ValueError for any other count of elements.

    >>> complex(mx.array(2))
    (2+0j)
    """
    return complex(host.item(self))


def _index(self: array) -> int:
    """The element of an integer array without axes, as an index. Raises TypeError for other arrays.

    >>> [10, 20, 30][mx.array(1)]
    20
    """
    if self.ndim or self.dtype.inexact:
        raise TypeError(
            f"[index] Only integer arrays without axes become an index; got {self.dtype.name} of shape {self.shape}."
        )
    return int(host.item(self))


def _len(self: array) -> int:
    """The length of the first axis. Raises TypeError for an array without axes.

    >>> len(mx.zeros((3, 4)))
    3
    """
    if not self.ndim:
        raise TypeError("[len] An array without axes has no length.")
    return self.shape[0]


class ArrayIterator:
    """The slices of an array along its first axis, each without that axis.

    >>> [row.tolist() for row in mx.array([[1, 2], [3, 4]])]
    [[1, 2], [3, 4]]
    """

    __slots__ = ("_array", "_next")

    def __init__(self, a: array) -> None:
        if not a.ndim:
            raise TypeError("[iter] An array without axes cannot be iterated.")
        self._array = wrap(a._node)  # later assignments to the handle do not change what is iterated
        self._next = 0

    def __iter__(self) -> ArrayIterator:
        return self

    def __next__(self) -> array:
        shape = self._array.shape
        if self._next >= shape[0]:
            raise StopIteration
        starts = (self._next, *(0,) * (len(shape) - 1))
        self._next += 1
        return take_region(self._array, Region(tuple(range(1, len(shape))), (1, *shape[1:]), starts, (1,) * len(shape)))


def _iter(self: array) -> ArrayIterator:
    """The slices along the first axis, one after the other. Raises TypeError for an array without axes.

    >>> [row.tolist() for row in mx.array([[1, 2], [3, 4]])]
    [[1, 2], [3, 4]]
    """
    return ArrayIterator(self)


def _format(self: array, spec: str) -> str:
    """The one element under a format of numbers; any array without one. Raises TypeError for an array with axes.

    >>> f"{mx.array(mx.pi):.2f}"
    '3.14'
    """
    if not spec:
        return printing.text(self)
    if self.ndim:
        raise TypeError(f"[format] An array of shape {self.shape} has no format {spec!r}; format its elements.")
    return format(host.item(self), spec)


def _copy(self: array) -> array:
    """Another handle of the same values; assignments to one are not seen by the other.

    >>> import copy
    >>> a = mx.array([1, 2])
    >>> b = copy.copy(a)
    >>> b[0] = 5
    >>> a, b
    (array([1, 2], dtype=int32), array([5, 2], dtype=int32))
    """
    return wrap(self._node)


def _deepcopy(self: array, memo: Any) -> array:
    """As a copy: elements are never changed in place, so there is nothing deeper to copy.

    >>> import copy
    >>> copy.deepcopy({"w": mx.array([1, 2])})
    {'w': array([1, 2], dtype=int32)}
    """
    return wrap(self._node)


def _at(self: array) -> index.ArrayAt:
    """`a.at[index].add(value)` and its like: updates that return a new array; repeated indices count each time.

    >>> mx.zeros((3,)).at[mx.array([0, 0, 2])].add(1.0)
    array([2, 0, 1], dtype=float32)
    """
    return index.ArrayAt(self)


def _namespace(self: array, api_version: str | None = None) -> Any:
    """The array-API namespace of this array.

    >>> mx.array([1]).__array_namespace__() is mx
    True
    """
    import outlive.core

    return outlive.core


_SPECIAL: dict[str, Any] = {
    "__array__": interchange.array_protocol,
    "__array_namespace__": _namespace,
    "__bool__": _bool,
    "__buffer__": interchange.buffer,
    "__bytes__": interchange.to_bytes,
    "__complex__": _complex,
    "__copy__": _copy,
    "__deepcopy__": _deepcopy,
    "__dlpack__": interchange.dlpack,
    "__dlpack_device__": interchange.dlpack_device,
    "__float__": _float,
    "__format__": _format,
    "__getitem__": index.getitem,
    "__getstate__": interchange.get_state,
    "__hash__": object.__hash__,  # == makes arrays, so handles hash by identity
    "__index__": _index,
    "__int__": _int,
    "__iter__": _iter,
    "__len__": _len,
    "__reduce__": interchange.reduce,
    "__repr__": printing.text,
    "__setitem__": index.setitem,
    "__setstate__": interchange.set_state,
    "at": property(_at, doc=_at.__doc__),
    "item": host.item,
    "tolist": host.tolist,
}
