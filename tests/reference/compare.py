"""Equality of two outcomes: types and shapes exactly, elements within one table of tolerances.

A tolerance counts units in the last place (ulp) of the output type: how many representable values lie between the two.
NaN equals NaN whatever its payload, infinities equal themselves alone, and the two zeros are one value unless a test
asks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.reference.wire import TEST_FAULTS, Array, Outcome, Raised, Returned, bfloat16_bits

CEILING = 4


@dataclass(frozen=True)
class Tolerance:
    """How far two results of one op may lie apart.

    ``ulp`` holds by element type, with "*" for those not named. ``of_magnitude`` says that the units are those of the
    largest partial result (the caller passes it as ``magnitude``), for sums whose terms cancel: their error is relative
    to the terms, not to what is left of them. ``reason`` must be given for it, and for every figure above ``CEILING``.
    """

    ulp: Mapping[str, int]
    of_magnitude: bool = False
    reason: str = ""

    def __post_init__(self) -> None:
        if (self.of_magnitude or max(self.ulp.values()) > CEILING) and not self.reason:
            raise ValueError(f"a tolerance of {dict(self.ulp)} needs a reason")

    def units(self, dtype: str) -> int:
        return self.ulp.get(dtype, self.ulp.get("*", 0))


EXACT = Tolerance({"*": 0})
ROUNDED_ONCE = Tolerance({"float16": 1, "bfloat16": 1, "*": 0})
LIBRARY_FUNCTION = Tolerance({"float16": 1, "bfloat16": 1, "float32": 4, "complex64": 4, "*": 4})
SUM = Tolerance(
    {"float16": 1, "bfloat16": 1, "float32": 4, "complex64": 4, "*": 4},
    of_magnitude=True,
    reason="the order of a sum is free; the error is relative to the sum of the terms' magnitudes",
)

# The one table: op, as named from the namespace down, to its tolerance. What is not named is exact.
TOLERANCES: dict[str, Tolerance] = {
    **dict.fromkeys(("divide", "reciprocal", "sqrt", "add", "subtract", "multiply"), ROUNDED_ONCE),
    **dict.fromkeys(
        "exp expm1 log log2 log10 log1p logaddexp power rsqrt sigmoid erf erfinv sin cos tan sinh cosh tanh arcsin "
        "arccos arctan arctan2 arcsinh arccosh arctanh softmax".split(),
        LIBRARY_FUNCTION,
    ),
    **dict.fromkeys(
        "sum mean var std prod cumsum cumprod logsumexp logcumsumexp matmul addmm inner outer tensordot einsum vecdot "
        "convolve conv1d conv2d conv3d conv_general quantized_matmul gather_mm gather_qmm block_masked_mm "
        "linalg.norm linalg.inv fast.rms_norm fast.layer_norm fast.rope fast.scaled_dot_product_attention".split(),
        SUM,
    ),
    "fft": Tolerance({"*": 4}, of_magnitude=True, reason="sums of all elements of an axis, in an order that is free"),
    "linalg": Tolerance(
        {"*": 4},
        of_magnitude=True,
        reason="solutions carry the condition of their matrix, which the magnitude stands for",
    ),
}

_SIGNED = {2: np.int16, 4: np.int32, 8: np.int64}


def ordered(values: np.ndarray) -> np.ndarray:
    """Floats as integers in the same order, neighbours one apart; both zeros are 0."""
    signed = _SIGNED[values.dtype.itemsize]
    bits = values.view(signed).astype(object if signed is np.int64 else np.int64)
    return np.where(bits < 0, np.iinfo(signed).min - bits, bits)


def ulp_distance(left: Array, right: Array) -> np.ndarray:
    """Representable values between elements of two arrays of one type; infinite where one alone is NaN or infinite."""
    a, b = left.values(), right.values()
    if not np.issubdtype(a.dtype, np.inexact):
        return np.where(a == b, 0.0, np.inf)
    if np.issubdtype(a.dtype, np.complexfloating):
        parts = [ulp_distance(_real(left, part), _real(right, part)) for part in ("real", "imag")]
        return np.maximum(*parts)
    shift = 16 if left.dtype == "bfloat16" else 0
    distance = np.abs(ordered(_storable(a)) - ordered(_storable(b))).astype(np.float64) / 2.0**shift
    distance = np.where((np.isinf(a) | np.isinf(b)) & (a != b), np.inf, distance)
    distance = np.where(np.isnan(a) | np.isnan(b), np.inf, distance)
    return np.where(np.isnan(a) & np.isnan(b), 0.0, distance)


def spacing(magnitude: np.ndarray, dtype: str) -> np.ndarray:
    """One ulp of ``dtype`` at each magnitude, as float64."""
    digits = {"float16": 10, "bfloat16": 7, "float32": 23, "complex64": 23, "float64": 52}[dtype]
    smallest = {"float16": -14, "bfloat16": -126, "float32": -126, "complex64": -126, "float64": -1022}[dtype]
    with np.errstate(all="ignore"):
        exponent = np.frexp(np.abs(np.asarray(magnitude, np.float64)))[1] - 1
    return np.ldexp(1.0, np.maximum(exponent, smallest) - digits)


def _units_apart(got: Array, want: Array, tolerance: Tolerance, magnitude: np.ndarray | None) -> np.ndarray:
    distance = ulp_distance(got, want)
    # The error of a complex number is relative to its modulus: one part may cancel while the other stays large.
    is_complex = want.dtype == "complex64"
    summed = tolerance.of_magnitude and magnitude is not None and np.issubdtype(want.values().dtype, np.inexact)
    if tolerance is EXACT or not (is_complex or summed):
        return distance
    wide = np.complex128 if is_complex else np.float64
    with np.errstate(all="ignore"):
        difference = np.abs(got.values().astype(wide) - want.values().astype(wide))
        scale = np.abs(want.values().astype(wide))
        relative = difference / spacing(np.maximum(scale, magnitude) if summed else scale, want.dtype)
    return np.where(np.isfinite(relative), np.minimum(distance, relative), distance)


def assert_same_array(
    got: Array,
    want: Array,
    op: str = "",
    *,
    magnitude: np.ndarray | None = None,
    truth: np.ndarray | None = None,
    signed_zeros: bool = False,
    context: object = "",
) -> None:
    """Fail unless both arrays have one type, one shape, and elements within the op's tolerance.

    ``magnitude`` (broadcastable to the result) is the sum of the terms' magnitudes, for ops whose tolerance is relative
    to it. ``truth`` holds the exact values in double precision: an element that lies too far from ``want`` passes if it
    is within the tolerance of the truth, for ops in which the reference itself errs. ``context`` is printed with a
    failure: the inputs, say.
    """
    tolerance = TOLERANCES.get(op, EXACT)
    where = f"[{op or 'array'}] {context}".rstrip()
    assert got.dtype == want.dtype, f"{where}: type {got.dtype}, expected {want.dtype}"
    shapes = got.resolved().shape, want.resolved().shape
    assert shapes[0] == shapes[1], f"{where}: shape {shapes[0]}, expected {shapes[1]}"
    apart = _units_apart(got, want, tolerance, magnitude)
    allowed = tolerance.units(want.dtype)
    if truth is not None:
        apart = np.minimum(apart, _units_apart(got, _rounded(truth, want.dtype), tolerance, magnitude))
    if np.any(apart > allowed):
        worst = np.unravel_index(np.argmax(apart), apart.shape)
        raise AssertionError(
            f"{where}: element {tuple(map(int, worst))} is {got.values()[worst]!r}, expected {want.values()[worst]!r}: "
            f"{apart[worst]:g} ulp of {want.dtype} apart, {allowed} allowed; "
            f"{int(np.sum(apart > allowed))} of {apart.size} elements differ"
        )
    if signed_zeros and np.issubdtype(want.values().dtype, np.floating):
        zero = want.values() == 0
        same = np.signbit(got.values()) == np.signbit(want.values())
        assert np.all(same | ~zero), f"{where}: the sign of a zero differs"


def assert_same_outcome(got: Outcome, want: Outcome, op: str = "", **options: Any) -> None:
    """Fail unless both calls returned the same (in any nesting) or raised errors of the same class.

    An error may be of a class that derives from the expected one. Options are those of :func:`assert_same_array`.
    """
    context = options.get("context", "")
    for side in (got, want):
        if isinstance(side, Raised) and side.error in TEST_FAULTS:
            raise AssertionError(f"[{op}] {context}: the call did not take place as written: {side.text}")
    if isinstance(want, Raised):
        assert isinstance(got, Raised), f"[{op}] {context}: returned {got}, expected {want.error}: {want.text}"
        assert want.error in (got.error, *got.bases), (
            f"[{op}] {context}: raised {got}, expected {want.error}: {want.text}"
        )
        return
    assert isinstance(want, Returned), f"[{op}] {context}: the reference gave no result: {want}"
    assert isinstance(got, Returned), f"[{op}] {context}: {got}, expected a result"
    _assert_same_value(got.value, want.value, op, options)


def _assert_same_value(got: Any, want: Any, op: str, options: dict[str, Any]) -> None:
    if isinstance(want, Array):
        assert isinstance(got, Array), f"[{op}] returned {got!r}, expected an array"
        assert_same_array(got, want, op, **options)
    elif isinstance(want, (list, dict)):
        assert type(got) is type(want), f"[{op}] returned {got!r}, expected {want!r}"
        assert len(got) == len(want), f"[{op}] returned {len(got)} results, expected {len(want)}"
        if isinstance(want, dict):
            assert got.keys() == want.keys(), f"[{op}] returned keys {list(got)}, expected {list(want)}"
        for key in want if isinstance(want, dict) else range(len(want)):
            _assert_same_value(got[key], want[key], op, options)
    else:
        both_nan = isinstance(want, float) and isinstance(got, float) and want != want and got != got
        assert both_nan or (type(got) is type(want) and got == want), f"[{op}] returned {got!r}, expected {want!r}"


def _rounded(values: np.ndarray, dtype: str) -> Array:
    with np.errstate(over="ignore"):
        if dtype == "bfloat16":
            return Array(dtype, bfloat16_bits(np.asarray(values, np.float32)))
        return Array.of(np.asarray(values, dtype))


def _storable(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values).reshape(values.shape)


def _real(array: Array, part: str) -> Array:
    return Array.of(_storable(getattr(array.values(), part)))
