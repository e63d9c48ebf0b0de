"""Elementwise functions of one operand, and changes of type. Each function is one entry of a table."""

from __future__ import annotations

import builtins
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from outlive.graph.array import apply, array
from outlive.graph.primitive import Primitive
from outlive.ops.broadcast import Elementwise, Rule, named
from outlive.ops.common import Dtype, as_array, dtypes, layout
from outlive.ops.elementwise import multiply, where

Compute = Callable[[Any, Any, Any], None]
BFLOAT16_MAX = float.fromhex("0x1.fep127")

INEXACT, ANY, BOOLEAN, WHOLE = "inexact", "any", "boolean", "whole"
"""What integers are to a function: taken as float32; their own type; tested for a bool; returned as they are."""

_RETURNS = {
    INEXACT: "Integers are taken as float32.",
    ANY: "The type stays.",
    BOOLEAN: "The result is of type bool.",
    WHOLE: "The type stays; integers are whole already.",
}


def _function(
    name: str, doc: str, compute: Compute, derivative: Rule | None, types: str = INEXACT, *, complex_too: bool = True,
    base: type[Elementwise] = Elementwise, example: str = "",
) -> Callable[..., array]:  # fmt: skip
    """The public function of an entry; `compute(xp, x, out)` writes the result, `derivative(cotangent, out, x)` is its
    rule, and `example` shows elements of an operand and of the result: "1.0, 4.0 -> 1, 2".
    """

    def reference(self: Elementwise, xp: Any, reads: Any, writes: Any) -> None:
        compute(xp, reads[0], writes[0])

    body: dict[str, Any] = {
        "__slots__": (),
        "name": name,
        "pairs": False,
        "reference": reference,
        "derivatives": (derivative,),
    }
    if types == BOOLEAN:
        body["result"] = dtypes.bool_
    primitive = named(name, base, body)

    def function(a: Any, /, *, stream: Any = None) -> array:
        a = as_array(a)
        kind = a.dtype
        if not kind.inexact:
            if types == WHOLE:
                return a
            if types == INEXACT:
                a = astype(a, dtypes.float32, stream=stream)
                kind = a.dtype
        elif not complex_too and kind is dtypes.complex64:
            raise ValueError(f"[{name}] Not defined for complex64; take real(a) or imag(a).")
        return apply(primitive, (a,), layout(a.shape, primitive.output_type((kind,))), stream)

    def test(a: Any, stream: Any = None) -> array:
        return function(a, stream=stream)

    # the API takes the operands of tests by name too
    public: Callable[..., array] = test if types == BOOLEAN else function
    refusal = "" if complex_too else "\n    Raises ValueError for complex numbers."
    public.__name__ = public.__qualname__ = name
    public.__doc__ = f"{doc}\n\n    `a`: array or number; the result has its shape. {_RETURNS[types]}{refusal}\n"
    public.__doc__ += _shown(name, example, "bool" if types == BOOLEAN else "float32")
    return public


def _shown(name: str, example: str, result_type: str) -> str:
    operand, _, result = example.partition(" -> ")
    call = f"mx.{name}(mx.array([{operand}]))"
    return f"\n    >>> {call}\n    array([{result}], dtype={result_type})\n    " if example else "    "


class Modulus(Elementwise):
    """Base of `abs`: real for complex operands, and then no complex derivative exists; its own rules hold for both."""

    __slots__ = ()
    holomorphic = False

    def output_type(self, types: Sequence[Dtype]) -> Dtype:
        return dtypes.float32 if types[0] is dtypes.complex64 else types[0]

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        return [real(tangents[0] * conjugate(sign(primals[0])))]


class Conjugation(Elementwise):
    """Base of `conjugate`: its rule is its own in both directions."""

    __slots__ = ()
    holomorphic = False


def _ufunc(name: str) -> Compute:
    return lambda xp, x, out: getattr(xp, name)(x, out=out)


def _set(compute: Callable[[Any, Any], Any]) -> Compute:
    def write(xp: Any, x: Any, out: Any) -> None:
        out[...] = compute(xp, x)

    return write


@functools.cache
def _erf_of(xp_name: str) -> tuple[Any, Any]:
    if xp_name == "cupy":
        from cupyx.scipy import special
    else:
        from scipy import special
    return special.erf, special.erfinv


def _sigmoid(xp: Any, x: Any) -> Any:
    tail = xp.exp(-xp.abs(x))
    return xp.where(x >= 0, 1 / (1 + tail), tail / (1 + tail))


def _modulus(xp: Any, x: Any) -> Any:
    return x if x.dtype.kind == "b" else xp.abs(x)


def _square(xp: Any, x: Any) -> Any:
    return x if x.dtype.kind == "b" else xp.square(x)


def _sign(xp: Any, x: Any) -> Any:
    if x.dtype.kind == "b":
        return x
    if x.dtype.kind == "c":
        size = xp.abs(x)
        return xp.where(size == 0, 0, x / xp.where(size == 0, 1, size))
    return xp.sign(x)


def _reciprocal_root(xp: Any, x: Any) -> Any:
    return 1 / xp.sqrt(x)


def _is(number: float) -> Compute:
    def compute(xp: Any, x: Any, out: Any) -> None:
        xp.equal(x, number, out=out)

    return compute


def _any_part(test: str) -> Callable[[Any, Any], Any]:
    return lambda xp, x: getattr(xp, test)(x) if x.dtype.kind in "fc" else xp.full(x.shape, test == "isfinite")


# An entry takes two lines.
# fmt: off
abs: Callable[..., array] = _function("abs", "Absolute value; for complex numbers the modulus, a float32.",
    _set(_modulus), lambda ct, o, x: ct * sign(x), ANY, base=Modulus, example="-2.0, 3.0 -> 2, 3")
_negative = _function("negative", "-a, element by element.", _ufunc("negative"), lambda ct, o, x: -ct, ANY)
sign: Callable[..., array] = _function(
    "sign", "-1, 0 or 1 by the sign; NaN for NaN; complex numbers over their modulus.", _set(_sign), None, ANY,
    example="-2.0, 0.0, 3.0 -> -1, 0, 1")
square = _function("square", "a * a, element by element.", _set(_square), lambda ct, o, x: ct * (2 * x), ANY,
    example="2.0, -3.0 -> 4, 9")
floor = _function("floor", "The largest whole number not above each element.", _ufunc("floor"), None, WHOLE,
    complex_too=False, example="1.5, -1.5 -> 1, -2")
ceil = _function("ceil", "The smallest whole number not below each element.", _ufunc("ceil"), None, WHOLE,
    complex_too=False, example="1.5, -1.5 -> 2, -1")
trunc = _function("trunc", "Each element without its fraction.", _ufunc("trunc"), None, WHOLE, complex_too=False,
    example="1.5, -1.5 -> 1, -1")
reciprocal = _function("reciprocal", "1 / a, element by element.", _set(lambda xp, x: 1 / x),
    lambda ct, o, x: -ct * o * o, example="2.0, 4.0 -> 0.5, 0.25")
sqrt = _function("sqrt", "Square root; NaN below zero.", _ufunc("sqrt"), lambda ct, o, x: ct / (2 * o),
    example="4.0, 9.0 -> 2, 3")
rsqrt = _function("rsqrt", "1 / sqrt(a).", _set(_reciprocal_root), lambda ct, o, x: ct * o * o * o * -0.5,
    example="4.0, 16.0 -> 0.5, 0.25")
exp = _function("exp", "e to the power a.", _ufunc("exp"), lambda ct, o, x: ct * o, example="0.0, 1.0 -> 1, 2.71828")
expm1 = _function("expm1", "exp(a) - 1, exact near zero.", _ufunc("expm1"), lambda ct, o, x: ct * (o + 1),
    complex_too=False, example="0.0, 1e-10 -> 0, 1e-10")
log = _function("log", "Natural logarithm; NaN below zero, -inf at zero.", _ufunc("log"), lambda ct, o, x: ct / x,
    example="1.0, 2.0 -> 0, 0.693147")
log2 = _function("log2", "Logarithm to base 2.", _ufunc("log2"), lambda ct, o, x: ct / (x * math.log(2)),
    example="1.0, 8.0 -> 0, 3")
log10 = _function("log10", "Logarithm to base 10.", _ufunc("log10"), lambda ct, o, x: ct / (x * math.log(10)),
    example="1.0, 100.0 -> 0, 2")
log1p = _function("log1p", "log(1 + a), exact near zero.", _ufunc("log1p"), lambda ct, o, x: ct / (1 + x),
    example="0.0, 1e-10 -> 0, 1e-10")
sin = _function("sin", "Sine of radians.", _ufunc("sin"), lambda ct, o, x: ct * cos(x),
    example="0.0, 1.0 -> 0, 0.841471")
cos: Callable[..., array] = _function("cos", "Cosine of radians.", _ufunc("cos"), lambda ct, o, x: -ct * sin(x),
    example="0.0, 1.0 -> 1, 0.540302")
tan = _function("tan", "Tangent of radians.", _ufunc("tan"), lambda ct, o, x: ct * (1 + o * o),
    example="0.0, 1.0 -> 0, 1.55741")
arcsin = _function("arcsin", "Inverse sine, in radians.", _ufunc("arcsin"), lambda ct, o, x: ct * rsqrt(1 - x * x),
    example="0.0, 0.5 -> 0, 0.523599")
arccos = _function("arccos", "Inverse cosine, in radians.", _ufunc("arccos"), lambda ct, o, x: -ct * rsqrt(1 - x * x),
    example="0.5, 1.0 -> 1.0472, 0")
arctan = _function("arctan", "Inverse tangent, in radians.", _ufunc("arctan"), lambda ct, o, x: ct / (1 + x * x),
    example="0.0, 1.0 -> 0, 0.785398")
sinh = _function("sinh", "Hyperbolic sine.", _ufunc("sinh"), lambda ct, o, x: ct * cosh(x),
    example="0.0, 1.0 -> 0, 1.1752")
cosh: Callable[..., array] = _function("cosh", "Hyperbolic cosine.", _ufunc("cosh"), lambda ct, o, x: ct * sinh(x),
    example="0.0, 1.0 -> 1, 1.54308")
tanh = _function("tanh", "Hyperbolic tangent.", _ufunc("tanh"), lambda ct, o, x: ct * (1 - o * o),
    example="0.0, 1.0 -> 0, 0.761594")
arcsinh = _function("arcsinh", "Inverse hyperbolic sine.", _ufunc("arcsinh"), lambda ct, o, x: ct * rsqrt(x * x + 1),
    example="0.0, 1.0 -> 0, 0.881374")
arccosh = _function("arccosh", "Inverse hyperbolic cosine.", _ufunc("arccosh"), lambda ct, o, x: ct * rsqrt(x * x - 1),
    example="1.0, 2.0 -> 0, 1.31696")
arctanh = _function("arctanh", "Inverse hyperbolic tangent.", _ufunc("arctanh"), lambda ct, o, x: ct / (1 - x * x),
    example="0.0, 0.5 -> 0, 0.549306")
sigmoid = _function("sigmoid", "1 / (1 + exp(-a)) without overflow.", _set(_sigmoid),
    lambda ct, o, x: ct * o * (1 - o), complex_too=False, example="0.0, 1.0 -> 0.5, 0.731059")
erf = _function("erf", "The error function.", _set(lambda xp, x: _erf_of(xp.__name__)[0](x)),
    lambda ct, o, x: ct * (2 / math.sqrt(math.pi)) * exp(-(x * x)), complex_too=False, example="0.0, 0.5 -> 0, 0.5205")
erfinv = _function("erfinv", "The inverse of the error function, on (-1, 1).",
    _set(lambda xp, x: _erf_of(xp.__name__)[1](x)), lambda ct, o, x: ct * (math.sqrt(math.pi) / 2) * exp(o * o),
    complex_too=False, example="0.0, 0.5 -> 0, 0.476936")
isnan = _function("isnan", "Whether each element is NaN.", _set(_any_part("isnan")), None, BOOLEAN,
    example="1.0, mx.nan -> False, True")
isinf = _function("isinf", "Whether each element is infinite.", _set(_any_part("isinf")), None, BOOLEAN,
    example="1.0, -mx.inf -> False, True")
isfinite = _function("isfinite", "Whether each element is neither NaN nor infinite.", _set(_any_part("isfinite")),
    None, BOOLEAN, example="1.0, mx.inf -> True, False")
isposinf = _function("isposinf", "Whether each element is +inf.", _is(math.inf), None, BOOLEAN,
    example="mx.inf, -mx.inf -> True, False")
isneginf = _function("isneginf", "Whether each element is -inf.", _is(-math.inf), None, BOOLEAN,
    example="mx.inf, -mx.inf -> False, True")
_logical_not = _function("logical_not", "Whether each element is zero.", _ufunc("logical_not"), None, BOOLEAN)
_invert = _function("bitwise_invert", "All bits flipped.", _ufunc("invert"), None, ANY)
_rint = _function("round", "The nearest whole number, halves to even.", _ufunc("rint"), None, WHOLE)
_conjugate = _function(
    "conjugate", "The complex conjugate.", _ufunc("conjugate"), lambda ct, o, x: conjugate(ct), ANY, base=Conjugation
)
# fmt: on


def logical_not(a: Any, /, *, stream: Any = None) -> array:
    """Whether each element is zero.

    `a`: array or number; the result has its shape and is of type bool.

    >>> mx.logical_not(mx.array([0, 2]))
    array([True, False], dtype=bool)
    """
    return _logical_not(as_array(a).astype(dtypes.bool_), stream=stream)


def negative(a: Any, /, *, stream: Any = None) -> array:
    """-a, element by element, in the type of `a` (unsigned integers wrap). Raises ValueError for bool.

    >>> mx.negative(mx.array([1, -2]))
    array([-1, 2], dtype=int32)
    """
    a = as_array(a)
    if a.dtype is dtypes.bool_:
        raise ValueError("[negative] Booleans have no negative; use logical_not.")
    return _negative(a, stream=stream)


def positive(a: Any, /, *, stream: Any = None) -> array:
    """`a` itself, +a.

    >>> mx.positive(mx.array([1, -2]))
    array([1, -2], dtype=int32)
    """
    return as_array(a)


def bitwise_invert(a: Any, stream: Any = None) -> array:
    """All bits of integers or booleans flipped; raises ValueError for floats.

    >>> mx.bitwise_invert(mx.array([0, 5]))
    array([-1, -6], dtype=int32)
    """
    a = as_array(a)
    if a.dtype.inexact:
        raise ValueError(f"[bitwise_invert] Bits are those of integers and booleans; got {a.dtype.name}.")
    return _invert(a, stream=stream)


def conjugate(a: Any, *, stream: Any = None) -> array:
    """The complex conjugate; real arrays as they are.

    >>> mx.conjugate(mx.array([1 + 2j]))
    array([1-2j], dtype=complex64)
    """
    a = as_array(a)
    return _conjugate(a, stream=stream) if a.dtype is dtypes.complex64 else a


conj = conjugate


def round(a: Any, /, decimals: int = 0, stream: Any = None) -> array:
    """Elements rounded to `decimals` decimal places, halves to even; negative `decimals` round before the point.

    The type stays.

    >>> mx.round(mx.array([0.5, 1.5, 2.347]))
    array([0, 2, 2], dtype=float32)
    >>> mx.round(mx.array([0.5, 1.5, 2.347]), decimals=1)
    array([0.5, 1.5, 2.3], dtype=float32)
    """
    a = as_array(a)
    if not a.dtype.inexact and decimals >= 0:
        return a
    if not decimals:
        return _rint(a, stream=stream)
    wide = a if a.dtype.inexact else astype(a, dtypes.float64)
    scale = 10.0 ** builtins.abs(decimals)
    scaled = _rint(wide * scale if decimals > 0 else wide / scale, stream=stream)
    return astype(scaled / scale if decimals > 0 else scaled * scale, a.dtype, stream=stream)


def _inexact(a: Any) -> array:
    a = as_array(a)
    return a if a.dtype.inexact else astype(a, dtypes.float32)


def degrees(a: Any, /, *, stream: Any = None) -> array:
    """Radians to degrees; integers are taken as float32.

    >>> mx.degrees(mx.array([0.0, mx.pi]))
    array([0, 180], dtype=float32)
    """
    return multiply(_inexact(a), 180 / math.pi, stream=stream)


def radians(a: Any, /, *, stream: Any = None) -> array:
    """Degrees to radians; integers are taken as float32.

    >>> mx.radians(mx.array([0.0, 180.0]))
    array([0, 3.14159], dtype=float32)
    """
    return multiply(_inexact(a), math.pi / 180, stream=stream)


def nan_to_num(
    a: Any, nan: float = 0, posinf: float | None = None, neginf: float | None = None, *, stream: Any = None
) -> array:
    """NaN replaced by `nan`, infinities by `posinf` and `neginf` (None: the largest and smallest finite number of the
    type).

    Integers are returned as they are. Raises ValueError for complex numbers.

    >>> mx.nan_to_num(mx.array([1.0, mx.nan]), nan=-1.0)
    array([1, -1], dtype=float32)
    """
    a = as_array(a)
    if not a.dtype.inexact:
        return a
    if a.dtype is dtypes.complex64:
        raise ValueError("[nan_to_num] Not defined for complex64; take real(a) or imag(a).")
    largest = BFLOAT16_MAX if a.dtype is dtypes.bfloat16 else float(np.finfo(a.dtype.storage).max)
    a = where(isnan(a), nan, a)
    a = where(isposinf(a), largest if posinf is None else posinf, a)
    return where(isneginf(a), -largest if neginf is None else neginf, a, stream=stream)


class AsType(Primitive):
    """Converts elements; the output's layout says to which type."""

    __slots__ = ("dtype",)
    name = "astype"
    donates = False
    dtype: Dtype

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        x, out = reads[0], writes[0]
        if x.dtype.kind == "c" and out.dtype.kind not in "cb":
            x = x.real
        if x.dtype.kind == "f" and out.dtype.kind in "iu":
            x = x.astype(xp.int64) if out.dtype != xp.uint64 else x
        out[...] = x.astype(bool) if out.dtype == bool else x

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        return [astype(cotangents[0], primals[0].dtype)]

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        return [astype(tangents[0], self.dtype)]

    def vmap(self, inputs: Any, axes: Any) -> Any:
        return [astype(inputs[0], self.dtype)], [axes[0]]


def astype(a: Any, /, dtype: Dtype, stream: Any = None) -> array:
    """Elements converted to `dtype`: floats to integers toward zero, to bool by being nonzero, complex to real by their
    real part.

    The result has the shape of `a`; where the type is its own already it is `a` itself. Raises TypeError for what is no
    element type.

    >>> mx.array([1.7, -1.7]).astype(mx.int32)
    array([1, -1], dtype=int32)
    """
    a = as_array(a)
    if not isinstance(dtype, Dtype):
        raise TypeError(f"[astype] Expected an element type such as mx.float32; got {type(dtype).__name__}.")
    if a.dtype is dtype:
        return a
    return apply(AsType.make(dtype), (a,), layout(a.shape, dtype), stream)


class BitView(Primitive):
    """The same bytes under another type; the last axis grows or shrinks."""

    __slots__ = ("dtype",)
    name = "view"
    moves_bits = True
    dtype: Dtype

    def encode(self, encoder: Any, inputs: Any, layout: Any) -> Any:
        if inputs[0].layout.contiguous:
            return encoder.view_as(0, layout)
        out = encoder.output(layout, donate=False)
        encoder.copy(inputs[0], encoder.reshaped(out, inputs[0].layout.dense))
        return out

    def vmap(self, inputs: Any, axes: Any) -> Any:
        from outlive.ops.shape import moveaxis

        a = inputs[0]
        if a.ndim == 1 and a.itemsize != self.dtype.itemsize:
            raise ValueError(
                f"[view] A scalar of {a.dtype.name} cannot be read as {self.dtype.name}: their sizes differ."
            )
        return [view(moveaxis(a, axes[0], 0), self.dtype)], [0]


def view(a: Any, dtype: Dtype, stream: Any = None) -> array:
    """The bytes of `a` read as `dtype`; the last axis changes by the ratio of the sizes.

    Raises ValueError where that is not whole.

    >>> mx.array([1.0]).view(mx.uint32)
    array([1065353216], dtype=uint32)
    >>> mx.array([1, 2]).view(mx.uint8).shape
    (8,)
    """
    a = as_array(a)
    if a.dtype is dtype:
        return a
    old, new = a.itemsize, dtype.itemsize
    if not a.ndim and old != new:
        raise ValueError(
            f"[view] A scalar of {a.dtype.name} ({old} bytes) cannot be read as {dtype.name} ({new} bytes)."
        )
    if a.ndim and a.shape[-1] * old % new:
        raise ValueError(
            f"[view] The last axis of {a.dtype.name}{list(a.shape)} does not hold whole elements of {dtype.name}."
        )
    shape = (*a.shape[:-1], a.shape[-1] * old // new) if a.ndim else ()
    return apply(BitView.make(dtype), (a,), layout(shape, dtype), stream)


class StopGradient(Primitive):
    """Its input, for which no derivative is known."""

    __slots__ = ()
    name = "stop_gradient"

    def encode(self, encoder: Any, inputs: Any, layout: Any) -> Any:
        return encoder.view_as(0, inputs[0].layout)

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        return [None]

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        from outlive.ops.creation import zeros_like

        return [zeros_like(primals[0])]

    def vmap(self, inputs: Any, axes: Any) -> Any:
        return [stop_gradient(inputs[0])], [axes[0]]


def stop_gradient(a: Any, /, *, stream: Any = None) -> array:
    """`a` itself, as a constant for every derivative.

    >>> mx.grad(lambda x: x * mx.stop_gradient(x))(mx.array(3.0))
    array(3, dtype=float32)
    """
    a = as_array(a)
    return apply(StopGradient.make(), (a,), a._node.layout, stream)


class ComplexPart(Primitive):
    """The real (0) or imaginary (1) part of complex numbers."""

    __slots__ = ("index",)
    name = "complex_part"
    donates = False
    index: int

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        writes[0][...] = reads[0].imag if self.index else reads[0].real

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        return [astype(cotangents[0], dtypes.complex64) * (1j if self.index else 1.0)]

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        return [imag(tangents[0]) if self.index else real(tangents[0])]

    def vmap(self, inputs: Any, axes: Any) -> Any:
        return [imag(inputs[0]) if self.index else real(inputs[0])], [axes[0]]


def real(a: Any, /, *, stream: Any = None) -> array:
    """The real part, float32 for complex64; real arrays as they are.

    >>> mx.real(mx.array([1 + 2j]))
    array([1], dtype=float32)
    """
    a = as_array(a)
    if a.dtype is not dtypes.complex64:
        return a
    return apply(ComplexPart.make(0), (a,), layout(a.shape, dtypes.float32), stream)


def imag(a: Any, /, *, stream: Any = None) -> array:
    """The imaginary part, float32 for complex64; zeros for real arrays.

    >>> mx.imag(mx.array([1 + 2j]))
    array([2], dtype=float32)
    """
    from outlive.ops.creation import zeros_like

    a = as_array(a)
    if a.dtype is not dtypes.complex64:
        return zeros_like(a)
    return apply(ComplexPart.make(1), (a,), layout(a.shape, dtypes.float32), stream)


acos, acosh, asin, asinh, atan, atanh = arccos, arccosh, arcsin, arcsinh, arctan, arctanh
"""The array API's names."""

__all__ = [
    "abs", "acos", "acosh", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctanh", "asin", "asinh",
    "astype", "atan", "atanh", "bitwise_invert", "ceil", "conj", "conjugate", "cos", "cosh", "degrees", "erf",
    "erfinv", "exp", "expm1", "floor", "imag", "isfinite", "isinf", "isnan", "isneginf", "isposinf", "log", "log1p",
    "log2", "log10", "logical_not", "nan_to_num", "negative", "positive", "radians", "real", "reciprocal", "round",
    "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "square", "stop_gradient", "tan", "tanh", "trunc", "view",
]  # fmt: skip
