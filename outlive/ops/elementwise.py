"""Elementwise arithmetic, comparisons and logic of two operands, and `where`, `clip` and their like.

Each op is one entry: name, reference kernel, derivatives. Functions of one operand stand in `unary.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from outlive.graph.array import array
from outlive.ops.broadcast import Elementwise, Rule, binary, named
from outlive.ops.common import Dtype, as_array, dtypes, operands, promote

Compute = Callable[[Any, Any, Any, Any], None]
SHIFTS = ("left_shift", "right_shift")


def _op(name: str, compute: Compute, *derivatives: Rule | None, result: Dtype | None = None) -> Elementwise:
    """A primitive from its entry; `compute(xp, a, b, out)` writes the result."""

    def reference(self: Elementwise, xp: Any, reads: Any, writes: Any) -> None:
        compute(xp, reads[0], reads[1], writes[0])

    body: dict[str, Any] = {
        "__slots__": (), "name": name, "reference": reference, "result": result,
        "derivatives": derivatives or (None, None) if result else derivatives,
    }  # fmt: skip
    return named(name, Elementwise, body)


def _ufunc(name: str) -> Compute:
    return lambda xp, a, b, out: getattr(xp, name)(a, b, out=out)


def _choose(condition: array, ct: array) -> array:
    return where(condition, ct, 0)


def _subtract(xp: Any, a: Any, b: Any, out: Any) -> None:
    (xp.not_equal if a.dtype.kind == "b" else xp.subtract)(a, b, out=out)


def _as_numbers(compute: Compute) -> Compute:
    """Booleans take part as 0 and 1; a nonzero result is true."""

    def wrapped(xp: Any, a: Any, b: Any, out: Any) -> None:
        if a.dtype.kind != "b":
            compute(xp, a, b, out)
            return
        made = xp.empty(out.shape, xp.uint8)
        compute(xp, a.astype(xp.uint8), b.astype(xp.uint8), made)
        xp.not_equal(made, 0, out=out)

    return wrapped


def _power(xp: Any, a: Any, b: Any, out: Any) -> None:
    if a.dtype.kind == "i":
        # an integer holds the inverse of 1 and -1 alone; what is nearest to zero stands for all others
        inverse = xp.where(a == 1, 1, xp.where(a == -1, 1 - 2 * (b & 1), 0))
        out[...] = xp.where(b < 0, inverse, xp.power(a, xp.maximum(b, 0)))
    else:
        xp.power(a, b, out=out)


def _floor_divide(xp: Any, a: Any, b: Any, out: Any) -> None:
    if a.dtype.kind in "iu":
        xp.floor_divide(a, b, out=out)
    else:
        xp.floor(a / b, out=out)


def _logaddexp(xp: Any, a: Any, b: Any, out: Any) -> None:
    if a.dtype.kind == "c":
        first = a.real >= b.real
        large, small = xp.where(first, a, b), xp.where(first, b, a)
        out[...] = large + xp.log1p(xp.exp(small - large))
    else:
        xp.logaddexp(a, b, out=out)


_ADD = _op("add", _ufunc("add"), lambda ct, o, a, b: ct, lambda ct, o, a, b: ct)
_SUBTRACT = _op("subtract", _subtract, lambda ct, o, a, b: ct, lambda ct, o, a, b: -ct)
_MULTIPLY = _op("multiply", _ufunc("multiply"), lambda ct, o, a, b: ct * b, lambda ct, o, a, b: ct * a)
_DIVIDE = _op("divide", _ufunc("true_divide"), lambda ct, o, a, b: ct / b, lambda ct, o, a, b: -(ct * o) / b)
_POWER = _op(
    "power",
    _as_numbers(_power),
    lambda ct, o, a, b: ct * where(equal(b, 0), 0, b * power(a, where(equal(b, 0), 1, b) - 1)),
    lambda ct, o, a, b: where(equal(a, 0), where(_positive(b), 0, ct * o), ct * o * _log(where(equal(a, 0), 1, a))),
)
_REMAINDER = _op(
    "remainder", _as_numbers(_ufunc("remainder")), lambda ct, o, a, b: ct, lambda ct, o, a, b: -ct * floor_divide(a, b)
)
_FLOOR_DIVIDE = _op("floor_divide", _as_numbers(_floor_divide), None, None)
_MAXIMUM = _op(
    "maximum",
    _ufunc("maximum"),
    lambda ct, o, a, b: _choose(greater(a, b), ct),
    lambda ct, o, a, b: _choose(less_equal(a, b), ct),
)
_MINIMUM = _op(
    "minimum",
    _ufunc("minimum"),
    lambda ct, o, a, b: _choose(less(a, b), ct),
    lambda ct, o, a, b: _choose(greater_equal(a, b), ct),
)
_LOGADDEXP = _op("logaddexp", _logaddexp, lambda ct, o, a, b: ct * _exp(a - o), lambda ct, o, a, b: ct * _exp(b - o))
_ARCTAN2 = _op(
    "arctan2",
    _ufunc("arctan2"),
    lambda ct, o, a, b: ct * b / (a * a + b * b),
    lambda ct, o, a, b: -ct * a / (a * a + b * b),
)
_EQUAL = _op("equal", _ufunc("equal"), result=dtypes.bool_)
_NOT_EQUAL = _op("not_equal", _ufunc("not_equal"), result=dtypes.bool_)
_LESS = _op("less", _ufunc("less"), result=dtypes.bool_)
_LESS_EQUAL = _op("less_equal", _ufunc("less_equal"), result=dtypes.bool_)
_GREATER = _op("greater", _ufunc("greater"), result=dtypes.bool_)
_GREATER_EQUAL = _op("greater_equal", _ufunc("greater_equal"), result=dtypes.bool_)
_LOGICAL_AND = _op("logical_and", _ufunc("logical_and"), result=dtypes.bool_)
_LOGICAL_OR = _op("logical_or", _ufunc("logical_or"), result=dtypes.bool_)
_LOGICAL_XOR = _op("logical_xor", _ufunc("logical_xor"), result=dtypes.bool_)
_BITWISE_AND = _op("bitwise_and", _ufunc("bitwise_and"), None, None)
_BITWISE_OR = _op("bitwise_or", _ufunc("bitwise_or"), None, None)
_BITWISE_XOR = _op("bitwise_xor", _ufunc("bitwise_xor"), None, None)
_LEFT_SHIFT = _op("left_shift", _ufunc("left_shift"), None, None)
_RIGHT_SHIFT = _op("right_shift", _ufunc("right_shift"), None, None)


def _log(a: array) -> array:
    from outlive.ops.unary import log

    return log(a)


def _exp(a: array) -> array:
    from outlive.ops.unary import exp

    return exp(a)


def _positive(a: array) -> array:
    from outlive.ops.unary import real

    return greater(real(a), 0)


def add(a: Any, b: Any, stream: Any = None) -> array:
    """Sum of two arrays, element by element.

    `a`, `b`: arrays or numbers whose shapes broadcast together. The result has the promoted type of the two.
    Raises ValueError for shapes that do not broadcast.

    >>> mx.add(mx.array([1, 2]), 0.5)
    array([1.5, 2.5], dtype=float32)
    """
    return binary(_ADD, a, b, stream)


def subtract(a: Any, b: Any, stream: Any = None) -> array:
    """Difference a - b, element by element.

    `a`, `b`: arrays or numbers whose shapes broadcast together. The result has the promoted type of the two.
    Raises ValueError for shapes that do not broadcast.

    >>> mx.subtract(mx.array([1, 2]), mx.array([[10], [20]])).tolist()
    [[-9, -8], [-19, -18]]
    """
    return binary(_SUBTRACT, a, b, stream)


def multiply(a: Any, b: Any, stream: Any = None) -> array:
    """Product of two arrays, element by element.

    `a`, `b`: arrays or numbers whose shapes broadcast together. The result has the promoted type of the two.
    Raises ValueError for shapes that do not broadcast.

    >>> mx.multiply(mx.array([1, 2]), mx.array([3, 4]))
    array([3, 8], dtype=int32)
    """
    return binary(_MULTIPLY, a, b, stream)


def maximum(a: Any, b: Any, /, *, stream: Any = None) -> array:
    """The larger of two elements; NaN where either is NaN.

    `a`, `b`: arrays or numbers whose shapes broadcast together. The result has the promoted type of the two.
    Raises ValueError for shapes that do not broadcast.

    >>> mx.maximum(mx.array([1.0, mx.nan]), 0.0)
    array([1, nan], dtype=float32)
    """
    return binary(_MAXIMUM, a, b, stream)


def minimum(a: Any, b: Any, /, *, stream: Any = None) -> array:
    """The smaller of two elements; NaN where either is NaN.

    `a`, `b`: arrays or numbers whose shapes broadcast together. The result has the promoted type of the two.
    Raises ValueError for shapes that do not broadcast.

    >>> mx.minimum(mx.array([1, 5]), 3)
    array([1, 3], dtype=int32)
    """
    return binary(_MINIMUM, a, b, stream)


def power(a: Any, b: Any, /, *, stream: Any = None) -> array:
    """a to the power b, element by element; integers wrap, and a negative power of one is the integer part of the
    inverse.

    `a`, `b`: arrays or numbers whose shapes broadcast together. The result has the promoted type of the two.
    Raises ValueError for shapes that do not broadcast.

    >>> mx.power(mx.array([2, 3]), 2)
    array([4, 9], dtype=int32)
    """
    return binary(_POWER, a, b, stream)


def equal(a: Any, b: Any, stream: Any = None) -> array:
    """Whether a == b, element by element.

    `a`, `b`: arrays or numbers whose shapes broadcast together. The result is of type bool.
    Raises ValueError for shapes that do not broadcast.

    >>> mx.equal(mx.array([1, 2]), 2)
    array([False, True], dtype=bool)
    """
    return binary(_EQUAL, a, b, stream, dtypes.bool_)


def not_equal(a: Any, b: Any, stream: Any = None) -> array:
    """Whether a != b, element by element.

    `a`, `b`: arrays or numbers whose shapes broadcast together. The result is of type bool.
    Raises ValueError for shapes that do not broadcast.

    >>> mx.not_equal(mx.array([1, 2]), 2)
    array([True, False], dtype=bool)
    """
    return binary(_NOT_EQUAL, a, b, stream, dtypes.bool_)


def less(a: Any, b: Any, stream: Any = None) -> array:
    """Whether a < b, element by element.

    `a`, `b`: arrays or numbers whose shapes broadcast together. The result is of type bool.
    Raises ValueError for shapes that do not broadcast.

    >>> mx.less(mx.array([1, 2]), 2)
    array([True, False], dtype=bool)
    """
    return binary(_LESS, a, b, stream, dtypes.bool_)


def less_equal(a: Any, b: Any, stream: Any = None) -> array:
    """Whether a <= b, element by element.

    `a`, `b`: arrays or numbers whose shapes broadcast together. The result is of type bool.
    Raises ValueError for shapes that do not broadcast.

    >>> mx.less_equal(mx.array([1, 2]), 1)
    array([True, False], dtype=bool)
    """
    return binary(_LESS_EQUAL, a, b, stream, dtypes.bool_)


def greater(a: Any, b: Any, stream: Any = None) -> array:
    """Whether a > b, element by element.

    `a`, `b`: arrays or numbers whose shapes broadcast together. The result is of type bool.
    Raises ValueError for shapes that do not broadcast.

    >>> mx.greater(mx.array([1, 2]), 1)
    array([False, True], dtype=bool)
    """
    return binary(_GREATER, a, b, stream, dtypes.bool_)


def greater_equal(a: Any, b: Any, stream: Any = None) -> array:
    """Whether a >= b, element by element.

    `a`, `b`: arrays or numbers whose shapes broadcast together. The result is of type bool.
    Raises ValueError for shapes that do not broadcast.

    >>> mx.greater_equal(mx.array([1, 2]), 2)
    array([False, True], dtype=bool)
    """
    return binary(_GREATER_EQUAL, a, b, stream, dtypes.bool_)


def _inexact(op: str, a: Any, b: Any) -> tuple[array, array]:
    """Both operands in their common type, float32 where that is an integer."""
    a, b = operands(op, a, b)
    common = promote(a.dtype, b.dtype)
    common = common if common.inexact else dtypes.float32
    return a.astype(common), b.astype(common)


def divide(a: Any, b: Any, stream: Any = None) -> array:
    """Quotient a / b, element by element; integers are divided as float32.

    `a`, `b`: arrays or numbers whose shapes broadcast together. Raises ValueError for shapes that do not broadcast.

    >>> mx.divide(mx.array([1, 2]), 4)
    array([0.25, 0.5], dtype=float32)
    """
    return binary(_DIVIDE, *_inexact("divide", a, b), stream)


def _real_operands(op: str, a: Any, b: Any) -> tuple[array, array]:
    """Both operands as arrays; raises ValueError where one is complex."""
    a, b = operands(op, a, b)
    if dtypes.complex64 in (a.dtype, b.dtype):
        raise ValueError(f"[{op}] Not defined for complex64; got {a.dtype.name} and {b.dtype.name}.")
    return a, b


def floor_divide(a: Any, b: Any, stream: Any = None) -> array:
    """Quotient rounded down to a whole number, in the promoted type; 0 where an integer divisor is 0.

    `a`, `b`: arrays or numbers whose shapes broadcast together. Raises ValueError for shapes that do not broadcast and
    complex numbers.

    >>> mx.floor_divide(mx.array([7, -7]), 2)
    array([3, -4], dtype=int32)
    """
    return binary(_FLOOR_DIVIDE, *_real_operands("floor_divide", a, b), stream)


def remainder(a: Any, b: Any, stream: Any = None) -> array:
    """Remainder of a / b with the sign of b, as Python's %; 0 where an integer divisor is 0.

    `a`, `b`: arrays or numbers whose shapes broadcast together. Raises ValueError for shapes that do not broadcast and
    complex numbers.

    >>> mx.remainder(mx.array([7, -7]), 3)
    array([1, 2], dtype=int32)
    """
    return binary(_REMAINDER, *_real_operands("remainder", a, b), stream)


def divmod(a: Any, b: Any, stream: Any = None) -> tuple[array, array]:
    """`(floor_divide(a, b), remainder(a, b))`; types and errors as there.

    >>> mx.divmod(mx.array(7), 2)
    (array(3, dtype=int32), array(1, dtype=int32))
    """
    a, b = _real_operands("divmod", a, b)
    return floor_divide(a, b, stream=stream), remainder(a, b, stream=stream)


def logaddexp(a: Any, b: Any, /, *, stream: Any = None) -> array:
    """log(exp(a) + exp(b)) without overflow.

    Integers are taken as float32; shapes broadcast or ValueError is raised.

    >>> mx.logaddexp(mx.array(1000.0), 1000.0)
    array(1000.69, dtype=float32)
    """
    return binary(_LOGADDEXP, *_inexact("logaddexp", a, b), stream)


def arctan2(a: Any, b: Any, /, *, stream: Any = None) -> array:
    """The angle in radians of the point (b, a), in [-pi, pi]. Integers are taken as float32.

    Raises ValueError for shapes that do not broadcast and complex numbers.

    >>> mx.arctan2(mx.array([1.0, 0.0]), mx.array([1.0, -1.0]))
    array([0.785398, 3.14159], dtype=float32)
    """
    return binary(_ARCTAN2, *_inexact("arctan2", *_real_operands("arctan2", a, b)), stream)


def _logical(primitive: Elementwise, a: Any, b: Any, stream: Any) -> array:
    a, b = operands(primitive.name, a, b)
    return binary(primitive, a.astype(dtypes.bool_), b.astype(dtypes.bool_), stream, dtypes.bool_)


def logical_and(a: Any, b: Any, /, *, stream: Any = None) -> array:
    """Whether both elements are nonzero; type bool. Shapes broadcast or ValueError is raised.

    >>> mx.logical_and(mx.array([1, 1]), mx.array([0, 2]))
    array([False, True], dtype=bool)
    """
    return _logical(_LOGICAL_AND, a, b, stream)


def logical_or(a: Any, b: Any, /, *, stream: Any = None) -> array:
    """Whether either element is nonzero; type bool. Shapes broadcast or ValueError is raised.

    >>> mx.logical_or(mx.array([0, 1]), mx.array([0, 2]))
    array([False, True], dtype=bool)
    """
    return _logical(_LOGICAL_OR, a, b, stream)


def logical_xor(a: Any, b: Any, /, *, stream: Any = None) -> array:
    """Whether exactly one of two elements is nonzero; type bool. Shapes broadcast or ValueError is raised.

    >>> mx.logical_xor(mx.array([1, 1]), mx.array([0, 2]))
    array([True, False], dtype=bool)
    """
    return _logical(_LOGICAL_XOR, a, b, stream)


def _bitwise(primitive: Elementwise, a: Any, b: Any, stream: Any) -> array:
    a, b = operands(primitive.name, a, b)
    common = promote(a.dtype, b.dtype)
    if common.inexact:
        raise RuntimeError(
            f"[{primitive.name}] Bits are those of integers and booleans; got {a.dtype.name} and {b.dtype.name}."
        )
    if common is dtypes.bool_ and primitive.name in SHIFTS:
        a, b = a.astype(dtypes.uint8), b.astype(dtypes.uint8)
    return binary(primitive, a, b, stream)


def bitwise_and(a: Any, b: Any, stream: Any = None) -> array:
    """Bits set in both elements. Integers or booleans; RuntimeError otherwise.

    >>> mx.bitwise_and(mx.array([6, 3]), 5)
    array([4, 1], dtype=int32)
    """
    return _bitwise(_BITWISE_AND, a, b, stream)


def bitwise_or(a: Any, b: Any, stream: Any = None) -> array:
    """Bits set in either element. Integers or booleans; RuntimeError otherwise.

    >>> mx.bitwise_or(mx.array([6, 3]), 8)
    array([14, 11], dtype=int32)
    """
    return _bitwise(_BITWISE_OR, a, b, stream)


def bitwise_xor(a: Any, b: Any, stream: Any = None) -> array:
    """Bits set in exactly one element. Integers or booleans; RuntimeError otherwise.

    >>> mx.bitwise_xor(mx.array([6, 3]), 5)
    array([3, 6], dtype=int32)
    """
    return _bitwise(_BITWISE_XOR, a, b, stream)


def left_shift(a: Any, b: Any, stream: Any = None) -> array:
    """Bits of `a` moved up by `b` places, 0 from the type's width on.

    Integers, booleans as uint8; RuntimeError otherwise.

    >>> mx.left_shift(mx.array([1, 3]), 2)
    array([4, 12], dtype=int32)
    """
    return _bitwise(_LEFT_SHIFT, a, b, stream)


def right_shift(a: Any, b: Any, stream: Any = None) -> array:
    """Bits of `a` moved down by `b` places, keeping the sign. Integers, booleans as uint8; RuntimeError otherwise.

    >>> mx.right_shift(mx.array([8, -8]), 2)
    array([2, -2], dtype=int32)
    """
    return _bitwise(_RIGHT_SHIFT, a, b, stream)


class Select(Elementwise):
    """Chooses between two operands by a third, of type bool."""

    __slots__ = ()
    name = "select"
    pairs = False
    moves_bits = True
    derivatives = (
        None, lambda ct, o, c, x, y: where(c, ct, 0), lambda ct, o, c, x, y: where(c, 0, ct),
    )  # fmt: skip

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        condition, x, y = reads
        writes[0][...] = xp.where(condition, x, y)


_SELECT = Select.make()


def where(condition: Any, x: Any, y: Any, /, *, stream: Any = None) -> array:
    """Elements of `x` where `condition` is nonzero, of `y` elsewhere; in their promoted type.

    The three shapes broadcast together; ValueError otherwise.

    >>> mx.where(mx.array([True, False]), mx.array([1, 2]), 0)
    array([1, 0], dtype=int32)
    """
    x, y = operands("where", x, y)
    common = promote(x.dtype, y.dtype)
    condition = as_array(condition).astype(dtypes.bool_)
    return _SELECT.apply(condition, x.astype(common), y.astype(common), stream=stream)


def clip(a: Any, /, a_min: Any = None, a_max: Any = None, *, stream: Any = None) -> array:
    """Elements of `a` kept between `a_min` and `a_max` (numbers or arrays, either may be None).

    Raises ValueError when both are None or the shapes do not broadcast.

    >>> mx.clip(mx.array([-1, 5, 20]), 0, 10)
    array([0, 5, 10], dtype=int32)
    """
    if a_min is None and a_max is None:
        raise ValueError("[clip] Give at least one of a_min and a_max.")
    out = as_array(a)
    if a_min is not None:
        out = maximum(out, a_min, stream=stream)
    if a_max is not None:
        out = minimum(out, a_max, stream=stream)
    return out


def isclose(
    a: Any, b: Any, /, rtol: float = 1e-05, atol: float = 1e-08, *, equal_nan: bool = False, stream: Any = None
) -> array:
    """Whether |a - b| <= atol + rtol |b|, element by element; infinities are close to themselves, NaN to NaN with
    `equal_nan`. The result is of type bool.

    Raises ValueError for shapes that do not broadcast.

    >>> mx.isclose(mx.array([1.0, 2.0]), mx.array([1.000001, 2.1]))
    array([True, False], dtype=bool)
    """
    from outlive.ops.unary import abs, isinf, isnan

    a, b = _inexact("isclose", a, b)
    near = less_equal(abs(subtract(a, b, stream=stream)), add(multiply(abs(b), rtol), atol), stream=stream)
    infinite = logical_or(isinf(a), isinf(b))
    out = where(infinite, equal(a, b), near, stream=stream)
    return logical_or(out, logical_and(isnan(a), isnan(b)), stream=stream) if equal_nan else out


pow, atan2, bitwise_left_shift, bitwise_right_shift = power, arctan2, left_shift, right_shift
"""The array API's names."""

__all__ = [
    "add", "arctan2", "atan2", "bitwise_and", "bitwise_left_shift", "bitwise_or", "bitwise_right_shift",
    "bitwise_xor", "clip", "divide", "divmod", "equal", "floor_divide", "greater", "greater_equal", "isclose",
    "left_shift", "less", "less_equal", "logaddexp", "logical_and", "logical_or", "logical_xor", "maximum",
    "minimum", "multiply", "not_equal", "pow", "power", "remainder", "right_shift", "subtract", "where",
]  # fmt: skip
