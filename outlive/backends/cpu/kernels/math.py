"""Elementary functions of float32 vectors, as polynomials of our own.

Coefficients are minimax fits (Lawson's iteration on Chebyshev nodes) of the functions named below. Largest error
measured against float64 over all float32 of a fine logarithmic grid, in units in the last place of float32:

| function | method | ulp |
|---|---|---|
| exp | x = n ln 2 + r, degree 6 in r, exact scaling by 2^n down to subnormals | 0.85 |
| log | x = 2^e m, m in [sqrt 1/2, sqrt 2), degree 11 in m - 1 | 0.84 |
| tanh | odd polynomial below 0.625, else 1 - 2 / (exp 2x + 1) | 1.3 |
| sigmoid | exp(-abs x), then one division | 2.4 |
| erf | odd polynomial below 1, else 1 - exp(p(x)), p a fit of log erfc | 1.1 |
| sin, cos | quarter turns taken off in float64, degrees 9 and 8; the C library's beyond 65536 | 1.6 |
"""

from __future__ import annotations

from outlive.backends.cpu.kernels.emit import DOUBLE, FLOAT, I1, I32, Emitter, Value

_EXP = (0.4999999403953552, 0.1666651964187622, 0.04166839271783829, 0.008368780836462975, 0.001381446490995586)
_LOG = (
    0.3333331048488617,
    -0.25000008940696716,
    0.2000216692686081,
    -0.16668090224266052,
    0.1421855241060257,
    -0.12403086572885513,
    0.1189352497458458,
    -0.11694324761629105,
    0.06757530570030212,
)
_TANH = (-0.3333326280117035, 0.1333089917898178, -0.05369296297430992, 0.02048330567777157, -0.005528624635189772)
_ERF = (
    -0.37612631916999817,
    0.11283630132675171,
    -0.026855483651161194,
    0.005191291682422161,
    -0.0008035031496547163,
    7.933108281577006e-05,
)
_LOG_ERFC = (
    0.00018246052786707878,
    -1.1295520067214966,
    -0.6332724094390869,
    -0.10836155712604523,
    0.025171812623739243,
    -0.00419085705652833,
    0.0004385302308946848,
    -2.144559402950108e-05,
)
_SIN = (-0.1666666716337204, 0.008333329111337662, -0.0001983933470910415, 2.7183041311218403e-06)
_COS = (0.04166664555668831, -0.0013887366512790322, 2.4438377295155078e-05)
_TWO_OVER_SQRT_PI_LESS_1 = 0.1283791670955126
# ln 2 in two parts, the first with so few bits that n * LN2_HIGH is exact for every exponent n.
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440054690583e-4
_LOG2_E = 1.4426950408889634


def polynomial(k: Emitter, x: Value, coefficients: tuple[float, ...]) -> Value:
    """c0 + c1 x + c2 x^2 + ..., by Horner's rule with fused steps."""
    result = x.like(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result = k.fma(result, x, coefficient)
    return result


def absolute(k: Emitter, x: Value) -> Value:
    return k.intrinsic("fabs", x)


def _power_of_two(n: Value) -> Value:
    """2^n for integers n of a normal float32's exponent."""
    return ((n + 127) << 23).bitcast(FLOAT)


def _halve(n: Value) -> Value:
    """n / 2 toward minus infinity, for n above -2048."""
    return ((n + 2048) >> 1) - 1024


def exp(k: Emitter, x: Value) -> Value:
    bounded = k.select(x < -104.0, -104.0, k.select(x > 89.0, 89.0, k.select(x.isnan(), 0.0, x)))
    n = k.intrinsic("rint", bounded * _LOG2_E)
    exact = k.fma(n, -_LN2_HIGH, bounded)
    r = k.fma(n, -_LN2_LOW, exact)
    lost = k.fma(n, -_LN2_LOW, exact - r)  # what rounding took from r
    significand = k.fma(polynomial(k, r, _EXP), r * r, lost) + r + 1.0
    whole = n.convert(I32)
    half = _halve(whole)
    result = significand * _power_of_two(half) * _power_of_two(whole - half)
    return k.select(x.isnan(), x, result)


def log(k: Emitter, x: Value) -> Value:
    tiny = x < 1.1754943508222875e-38
    bits = k.select(tiny, x * 8388608.0, x).bitcast(I32)
    shifted = bits - 0x3F3504F3  # the bits of sqrt 1/2: the exponent then changes there
    exponent = ((shifted + 0x40000000) >> 23) - 128
    m = (bits - (exponent << 23)).bitcast(FLOAT)
    e = (exponent - k.select(tiny, exponent.like(23), exponent.like(0))).convert(FLOAT)
    f = m - 1.0
    square = f * f
    tail = k.fma(square * f, polynomial(k, f, _LOG), e * _LN2_LOW)
    result = k.fma(e, _LN2_HIGH, f + k.fma(square, -0.5, tail))
    result = k.select(x.equals(float("inf")), x, result)
    result = k.select(x.equals(0.0), float("-inf"), result)
    return k.select(x.isnan() | (x < 0.0), float("nan"), result)


def tanh(k: Emitter, x: Value) -> Value:
    size = absolute(k, x)
    z = x * x
    small = k.fma(x * z, polynomial(k, z, _TANH), x)
    large = 1.0 - 2.0 / (exp(k, k.select(size > 20.0, 20.0, size) * 2.0) + 1.0)
    result = k.intrinsic("copysign", k.select(size < 0.625, small, large), x)
    return k.select(x.isnan(), x, result)


def sigmoid(k: Emitter, x: Value) -> Value:
    e = exp(k, -absolute(k, x))
    return k.select(x < 0.0, e, k.select(x.isnan(), x, x.like(1.0))) / (e + 1.0)


def erf(k: Emitter, x: Value) -> Value:
    size = absolute(k, x)
    z = x * x
    small = k.fma(k.fma(z, polynomial(k, z, _ERF), _TWO_OVER_SQRT_PI_LESS_1), x, x)
    bounded = k.select(size > 4.0, 4.0, size)
    large = 1.0 - exp(k, polynomial(k, bounded, _LOG_ERFC))
    result = k.intrinsic("copysign", k.select(size < 1.0, small, large), x)
    return k.select(x.isnan(), x, result)


def sqrt(k: Emitter, x: Value) -> Value:
    return k.intrinsic("sqrt", x)


def rsqrt(k: Emitter, x: Value) -> Value:
    return 1.0 / sqrt(k, x)


def sin_cos(k: Emitter, angle: Value) -> tuple[Value, Value]:
    """Sine and cosine, float32, of an angle in float64 radians below 2^30: the quarter turns leave in float64."""
    quarter = k.intrinsic("rint", angle * 0.6366197723675814)
    r64 = k.fma(quarter, -6.077100506506192e-11, k.fma(quarter, -1.5707963267341256, angle))
    r = r64.convert(FLOAT)
    z = r * r
    sine = k.fma(r * z, polynomial(k, z, _SIN), r)
    cosine = k.fma(z * z, polynomial(k, z, _COS), k.fma(z, -0.5, 1.0))
    turn = quarter.convert(I32)
    swap = (turn & 1).differs(0)
    sine, cosine = k.select(swap, cosine, sine), k.select(swap, sine, cosine)
    sine = k.select((turn & 2).differs(0), -sine, sine)
    cosine = k.select(((turn + 1) & 2).differs(0), -cosine, cosine)
    return sine, cosine


def _trigonometric(k: Emitter, x: Value, name: str, which: int) -> Value:
    """Our own where every lane is of moderate size, the C library's otherwise."""
    moderate = absolute(k, x) < 65536.0
    all_moderate = k.call(f"llvm.vector.reduce.and.v{x.lanes}i1", I1, [moderate]) if x.lanes > 1 else moderate
    result = k.variable(x)
    with k.branch(all_moderate) as (yes, no):
        with yes:
            own = sin_cos(k, x.convert(DOUBLE))[which]
            result.set(k.select(x.equals(0.0), x, own) if which == 0 else own)
        with no:
            result.set(k.intrinsic(name, x))
    return result.get()


def sin(k: Emitter, x: Value) -> Value:
    return _trigonometric(k, x, "sin", 0)


def cos(k: Emitter, x: Value) -> Value:
    return _trigonometric(k, x, "cos", 1)
