"""Elementwise ops: one, two and three operands."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.differential.registry import OPS, Case, Draw, array, is_float, one_of, quiet, shape, whole, wide
from tests.reference.strategies import FLOATS, INTEGERS, NUMBERS, REALS, broadcastable
from tests.reference.wire import Array, Call, Dtype

_ERF = np.vectorize(math.erf, otypes=[np.float64])
REAL_AND_COMPLEX = (*FLOATS, "complex64")


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def _one(draw: Draw, name: str, types: tuple[str, ...], **options: Any) -> tuple[str, Array]:
    dtype = one_of(draw, *types)
    return dtype, array(draw, dtype, shape(draw), **options)


@OPS.add(
    "abs negative sign square floor ceil trunc isnan isinf isfinite isposinf isneginf logical_not real imag conj conjugate positive"
)
def _exact(draw: Draw, name: str) -> Case:
    types = {"floor": REALS, "ceil": REALS, "trunc": REALS, "real": ("complex64",), "imag": ("complex64",)}.get(
        name, NUMBERS
    )
    if name in ("isposinf", "isneginf", "square", "abs", "negative", "sign"):
        types = REALS  # complex numbers: see the rounded functions
    _, a = _one(draw, name, types)
    # NaN has no sign; the reference gives 0.
    return Case(Call(name, (a,)), truth=quiet(np.sign, wide(a)) if name == "sign" and is_float(a.dtype) else None)


# Function: NumPy's truth, types beyond floats, and the domain of ordinary values.
_LIBRARY: dict[str, tuple[Any, float, float]] = {
    "exp": (np.exp, -10, 10), "expm1": (np.expm1, -10, 10), "log": (np.log, -1, 100), "log2": (np.log2, -1, 100),
    "log10": (np.log10, -1, 100), "log1p": (np.log1p, -2, 100), "sqrt": (np.sqrt, -1, 100),
    "rsqrt": (lambda x: 1 / np.sqrt(x), -1, 100), "reciprocal": (lambda x: 1 / x, -10, 10), "sigmoid": (_sigmoid, -10, 10),
    "erf": (_ERF, -4, 4), "sin": (np.sin, -10, 10), "cos": (np.cos, -10, 10), "tan": (np.tan, -10, 10),
    "sinh": (np.sinh, -10, 10), "cosh": (np.cosh, -10, 10), "tanh": (np.tanh, -10, 10), "arcsin": (np.arcsin, -1.1, 1.1),
    "arccos": (np.arccos, -1.1, 1.1), "arctan": (np.arctan, -10, 10), "arcsinh": (np.arcsinh, -10, 10),
    "arccosh": (np.arccosh, 0.5, 10), "arctanh": (np.arctanh, -1.1, 1.1), "asin": (np.arcsin, -1.1, 1.1),
    "acos": (np.arccos, -1.1, 1.1), "atan": (np.arctan, -10, 10), "asinh": (np.arcsinh, -10, 10),
    "acosh": (np.arccosh, 0.5, 10), "atanh": (np.arctanh, -1.1, 1.1), "degrees": (np.degrees, -10, 10),
    "radians": (np.radians, -360, 360),
}  # fmt: skip


@OPS.add(" ".join(_LIBRARY), examples=30)
def _library(draw: Draw, name: str) -> Case:
    function, low, high = _LIBRARY[name]
    _dtype, a = _one(draw, name, (*FLOATS, "int32", "bool", "uint8"), low=low, high=high)
    return Case(Call(name, (a,)), truth=quiet(function, wide(a)), tolerance="exp")


@OPS.add("erfinv")
def _erfinv(draw: Draw, name: str) -> Case:
    from scipy.special import erfinv

    _dtype, a = _one(draw, name, FLOATS, low=-1.0, high=1.0)
    return Case(Call(name, (a,)), truth=quiet(erfinv, wide(a)))


@OPS.add("round")
def _round(draw: Draw, name: str) -> Case:
    _dtype, a = _one(draw, name, FLOATS, low=-100, high=100)
    return Case(Call(name, (a,)))


@OPS.add("bitwise_invert")
def _invert(draw: Draw, name: str) -> Case:
    _dtype, a = _one(draw, name, ("bool", *INTEGERS, "float32"))
    return Case(Call(name, (a,)))


@OPS.add("nan_to_num")
def _nan_to_num(draw: Draw, name: str) -> Case:
    _dtype, a = _one(draw, name, REALS)
    replaced = {key: one_of(draw, 1.5, -2.0) for key in ("posinf", "neginf") if draw(st.booleans())}
    return Case(Call(name, (a, one_of(draw, 0.0, 3.0)), replaced))


@OPS.add("stop_gradient contiguous")
def _same(draw: Draw, name: str) -> Case:
    return Case(Call(name, (_one(draw, name, NUMBERS)[1],)))


def _two(draw: Draw, types: tuple[str, ...], **options: Any) -> tuple[str, Array, Any]:
    """Two operands of one type, of broadcastable shapes; now and then the second is a Python number."""
    dtype = one_of(draw, *types)
    first, second = draw(broadcastable(2, elements_max=128))
    a = array(draw, dtype, first, **options)
    if whole(draw, 0, 5) == 5:
        return dtype, a, one_of(draw, 1, 2, True)
    return dtype, a, array(draw, dtype, second, **options)


@OPS.add(
    "add subtract multiply maximum minimum equal not_equal less less_equal greater greater_equal logical_and logical_or "
    "logical_xor array_equal",
    examples=40,
)
def _exact_of_two(draw: Draw, name: str) -> Case:
    _, a, b = _two(draw, NUMBERS if name in ("add", "subtract", "equal", "not_equal") else REALS)
    return Case(Call(name, (a, b)))


@OPS.add("divide arctan2 atan2 logaddexp", examples=30)
def _inexact_of_two(draw: Draw, name: str) -> Case:
    _dtype, a, b = _two(draw, (*FLOATS, "int32", "bool"))
    function = {"divide": np.divide, "logaddexp": np.logaddexp}.get(name, np.arctan2)
    other = wide(b) if isinstance(b, Array) else float(b)
    truth = quiet(function, wide(a), other)
    if name == "logaddexp":  # near zero its error is that of its terms
        return Case(
            Call(name, (a, b)),
            truth=truth,
            magnitude=quiet(np.maximum, np.abs(wide(a)), np.abs(other)),
            tolerance="sum",
        )
    return Case(Call(name, (a, b)), truth=truth, tolerance="exp")


@OPS.add("bitwise_and bitwise_or bitwise_xor")
def _bits(draw: Draw, name: str) -> Case:
    _dtype, a, b = _two(draw, ("bool", *INTEGERS))
    return Case(Call(name, (a, b)))


@OPS.add("left_shift right_shift bitwise_left_shift bitwise_right_shift")
def _shifts(draw: Draw, name: str) -> Case:
    dtype = one_of(draw, *INTEGERS)
    first, second = draw(broadcastable(2, elements_max=64))
    bits = np.dtype(dtype).itemsize * 8
    return Case(
        Call(name, (array(draw, dtype, first), array(draw, dtype, second, special=False, low=0, high=bits - 1)))
    )


def _nonzero(b: Array) -> Array:
    values = b.resolved()
    return Array(b.dtype, np.where(values == 0, np.ones((), values.dtype), values))


@OPS.add("floor_divide remainder divmod", examples=40)
def _whole_quotients(draw: Draw, name: str) -> Case:
    dtype = one_of(draw, "int32", "float32", *INTEGERS)
    first, second = draw(broadcastable(2, elements_max=64))
    a = array(draw, dtype, first, special=False, low=-100, high=100)
    b = _nonzero(array(draw, dtype, second, special=False, low=-9, high=9))
    return Case(Call(name, (a, b)))


@OPS.add("power pow", examples=30)
def _power(draw: Draw, name: str) -> Case:
    dtype = one_of(draw, *FLOATS, "int32", "int64")
    first, second = draw(broadcastable(2, elements_max=64))
    a = array(draw, dtype, first, special=False, low=0.1 if is_float(dtype) else -9, high=9)
    b = array(draw, dtype, second, special=False, low=-3 if is_float(dtype) else 0, high=5)
    return Case(
        Call(name, (a, b)), truth=quiet(np.power, wide(a), wide(b)) if is_float(dtype) else None, tolerance="power"
    )


@OPS.add("isclose allclose")
def _close(draw: Draw, name: str) -> Case:
    dtype = one_of(draw, "float32", "int32")
    # The smallest integer has no absolute value in the reference.
    a, b = (array(draw, dtype, s, special=dtype == "float32") for s in draw(broadcastable(2, elements_max=128)))
    return Case(Call(name, (a, b), {"equal_nan": draw(st.booleans()), "rtol": one_of(draw, 1e-5, 0.5)}))


@OPS.add("where")
def _where(draw: Draw, name: str) -> Case:
    dtype = one_of(draw, *NUMBERS)
    mask, first, second = draw(broadcastable(3, elements_max=128))
    other = array(draw, dtype, second) if draw(st.booleans()) else one_of(draw, 0, 1)
    return Case(Call(name, (array(draw, "bool", mask), array(draw, dtype, first), other)))


@OPS.add("clip")
def _clip(draw: Draw, name: str) -> Case:
    dtype = one_of(draw, "float32", "int32", "float16", "int8")
    a = array(draw, dtype, shape(draw))
    low, high = (one_of(draw, None, sign * 2) for sign in (-1, 1))
    if draw(st.booleans()):
        low = array(draw, dtype, (), special=False, low=-5, high=0)
    return Case(Call(name, (a, low, high)))


@OPS.add("astype view", examples=60)
def _astype(draw: Draw, name: str) -> Case:
    source, target = one_of(draw, *NUMBERS), one_of(draw, *NUMBERS)
    a = array(draw, source, shape(draw), special=name == "view", low=0, high=100)
    return Case(Call(name, (a, Dtype(target))))


@OPS.add("matrix_transpose")
def _matrix_transpose(draw: Draw, name: str) -> Case:
    return Case(Call(name, (_one(draw, name, NUMBERS)[1],)))
