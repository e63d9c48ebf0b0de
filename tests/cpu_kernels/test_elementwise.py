"""Elementwise kernels against float64, over types, sizes, broadcasts, views and special values."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from tests.cpu_kernels.support import BF16, FLOATS, bits, float64, run_one, words_of

SIZES = (0, 1, 3, 7, 16, 63, 65, 500, 70001)
INTEGERS = (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64)
NAN, INF = float("nan"), float("inf")


@pytest.fixture
def rng():
    return np.random.default_rng(11)


def once_rounded(value, dtype):
    """float32 arithmetic, then one rounding to the type."""
    return np.asarray(value, np.float32).astype(dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("op", "function"),
    [("add", np.add), ("subtract", np.subtract), ("multiply", np.multiply), ("divide", np.divide),
     ("maximum", np.maximum), ("minimum", np.minimum)],
)  # fmt: skip
def test_float_arithmetic_is_rounded_once(rng, dtype, op, function):
    for n in SIZES:
        a, b = (rng.standard_normal(n).astype(dtype) for _ in range(2))
        want = once_rounded(function(a.astype(np.float32), b.astype(np.float32)), dtype)
        assert bits(run_one(op, [a, b], (n,), dtype)) == bits(want), n


@pytest.mark.parametrize("dtype", [*INTEGERS, np.float64])
def test_integers_wrap_and_float64_keeps_its_precision(rng, dtype):
    info = None if dtype == np.float64 else np.iinfo(dtype)
    for n in SIZES:
        if info is None:
            a, b = rng.standard_normal(n), rng.standard_normal(n)
        else:
            a, b = (rng.integers(info.min, info.max, n, dtype, endpoint=True) for _ in range(2))
        with np.errstate(over="ignore"):
            for op, function in (("add", np.add), ("subtract", np.subtract), ("multiply", np.multiply),
                                 ("maximum", np.maximum), ("minimum", np.minimum)):  # fmt: skip
                np.testing.assert_array_equal(run_one(op, [a, b], (n,), dtype), function(a, b))
            np.testing.assert_array_equal(run_one("negative", [a], (n,), dtype), -a)
            np.testing.assert_array_equal(run_one("abs", [a], (n,), dtype), np.abs(a))
            np.testing.assert_array_equal(run_one("sign", [a], (n,), dtype), np.sign(a))


@pytest.mark.parametrize("dtype", [*FLOATS, np.float64, *INTEGERS, np.bool_])
def test_comparisons(rng, dtype):
    a, b = (rng.integers(0, 5, 500).astype(dtype) for _ in range(2))
    if dtype in (np.float32, BF16):
        a[3], b[3], a[4] = NAN, NAN, NAN
    for op in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"):
        np.testing.assert_array_equal(run_one(op, [a, b], (500,), np.bool_), getattr(np, op)(a, b))


def test_nan_wins_and_signs_of_zero_stay():
    a = np.array([NAN, 1, -0.0, INF, -INF], np.float32)
    b = np.array([1, NAN, -0.0, NAN, 5], np.float32)
    assert np.isnan(run_one("maximum", [a, b], (5,), np.float32)[[0, 1, 3]]).all()
    assert np.isnan(run_one("minimum", [a, b], (5,), np.float32)[[0, 1, 3]]).all()
    for op in ("tanh", "erf", "sin", "negative", "sqrt"):
        got = run_one(op, [np.array([-0.0, 0.0], np.float32)], (2,), np.float32)
        assert np.signbit(got).tolist() == ([False, True] if op == "negative" else [True, False]), op


def test_rounding_to_half_precision_is_to_nearest_even_and_nan_stays_nan():
    every = np.arange(1 << 16, dtype=np.uint16)
    patterns = (every.astype(np.uint32) << 16)[:, None] + np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    values = patterns.reshape(-1).view(np.float32)
    for dtype in (BF16, np.float16):
        got = run_one("astype", [values], values.shape, dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            want = values.astype(dtype)
        nan = np.isnan(values)
        assert np.isnan(got[nan].astype(np.float32)).all()
        assert bits(got[~nan]) == bits(want[~nan])


@pytest.mark.parametrize("source", [*FLOATS, np.float64, *INTEGERS, np.bool_])
@pytest.mark.parametrize("target", [*FLOATS, np.float64, *INTEGERS, np.bool_])
def test_casts(rng, source, target):
    a = rng.integers(0, 100, 501).astype(source)
    if words_of("astype", [a], [np.empty(501, target)]) is None:
        floating = np.issubdtype(source, np.floating) or source == BF16
        assert floating or (source == np.float64 and target == np.float16)
        return
    np.testing.assert_array_equal(run_one("astype", [a], (501,), target), a.astype(target))


def test_floats_beyond_an_integers_range_become_its_smallest():
    a = np.array([NAN, INF, -INF, 3e9, -3e9, 2147483520, -2147483648, 1e30, -0.9], np.float32)
    low = -(2**31)
    want = [low, low, low, low, low, 2147483520, low, low, 0]
    assert run_one("astype", [a], (9,), np.int32).tolist() == want


MATH = {
    # op: float64 function, largest error in units in the last place, domain
    "exp": (np.exp, 0.86, (-104, 89)), "log": (np.log, 0.85, None), "tanh": (np.tanh, 1.4, None),
    "sigmoid": (special.expit, 2.4, None), "erf": (special.erf, 1.2, None), "sin": (np.sin, 1.6, (-65000, 65000)),
    "cos": (np.cos, 1.6, (-65000, 65000)), "sqrt": (np.sqrt, 0.51, None),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 1.6, None),
    "reciprocal": (lambda x: 1 / x, 0.51, None), "square": (np.square, 0.51, None),
}  # fmt: skip


@pytest.mark.parametrize("op", MATH)
def test_errors_of_elementary_functions(rng, op):
    function, limit, domain = MATH[op]
    low, high = domain or (-100, 100)
    spread = np.exp(rng.uniform(-80, 80, 100_000)) * rng.choice([-1, 1], 100_000)
    x = np.concatenate([rng.uniform(low, high, 200_000), rng.uniform(-4, 4, 100_000), spread]).astype(np.float32)
    if domain:
        x = x[(x >= low) & (x <= high)]
    if op in ("log", "sqrt", "rsqrt"):
        x = np.abs(x)
    with np.errstate(all="ignore"):
        want = function(float64(x))
        got = float64(run_one(op, [x], x.shape, np.float32))
        finite = np.isfinite(want.astype(np.float32))
        unit = np.spacing(np.maximum(np.abs(want), 1.2e-38).astype(np.float32))
        beyond = want[~finite].astype(np.float32)
    error = np.abs(got - want)[finite] / unit[finite]
    assert error.max() <= limit
    assert (got[~finite] == beyond).all()


@pytest.mark.parametrize("op", MATH)
def test_special_values_of_elementary_functions(op):
    x = np.array([NAN, INF, -INF, 0.0, -0.0, 1e-45, -1e-45, 3.4e38, -3.4e38, 1e6, -1e6], np.float32)
    with np.errstate(all="ignore"):
        want = MATH[op][0](float64(x)).astype(np.float32)
        got = run_one(op, [x], x.shape, np.float32)
    if op in ("sin", "cos"):
        np.testing.assert_allclose(got, want, rtol=1e-6)
    else:
        np.testing.assert_allclose(got, want, rtol=3e-7)
        assert (np.signbit(got) == np.signbit(want))[~np.isnan(want) & (want != 0)].all()


def test_an_infinite_neighbour_changes_no_lane():
    x = np.full(16, 0.5, np.float32)
    x[3], x[9] = INF, NAN
    keep = [n for n in range(16) if n not in (3, 9)]
    for op in MATH:
        alone = run_one(op, [np.full(16, 0.5, np.float32)], (16,), np.float32)
        assert bits(run_one(op, [x], (16,), np.float32)[keep]) == bits(alone[keep]), op


def views(rng, shape, dtype):
    """Arrays of one shape with every kind of strides."""
    plain = rng.standard_normal(shape).astype(dtype)
    yield plain
    yield np.asfortranarray(plain)
    yield plain[::-1]
    yield np.repeat(plain, 2, -1)[..., ::2]
    yield np.broadcast_to(plain[:1], shape)
    yield np.broadcast_to(plain[..., :1], shape)
    yield np.broadcast_to(plain[:1, :1, :1], shape)


@pytest.mark.parametrize("shape", [(3, 1, 7), (2, 65, 33), (63, 4, 17), (1, 3, 5000), (2, 0, 3)])
def test_views_and_broadcasts(rng, shape):
    for a in views(rng, shape, np.float32):
        for b in views(rng, shape, np.float32):
            np.testing.assert_array_equal(run_one("add", [a, b], shape, np.float32), a + b)
        np.testing.assert_array_equal(run_one("copy", [a], shape, np.float32), a)


def test_eight_dimensions(rng):
    a = rng.standard_normal((2, 3, 2, 3, 2, 3, 2, 3)).astype(np.float32).transpose(7, 0, 6, 1, 5, 2, 4, 3)
    np.testing.assert_array_equal(run_one("copy", [a], a.shape, np.float32), a)


def test_a_copy_writes_only_the_view_that_it_is_given(rng):
    from tests.cpu_kernels.support import run

    whole = np.zeros((7, 9, 5), np.float32)
    source = rng.standard_normal((3, 4, 5)).astype(np.float32)
    run("copy", [source], [whole[1:4, 8:0:-2]])
    np.testing.assert_array_equal(whole[1:4, 8:0:-2], source)
    whole[1:4, 8:0:-2] = 0
    assert not whole.any()


def test_copies_keep_the_payload_of_nan():
    a = np.array([0x7FA1, 0xFFFF, 0x7F81], np.uint16).view(BF16)
    assert bits(run_one("copy", [a], (3,), BF16)) == bits(a)


@pytest.mark.parametrize("dtype", [*FLOATS, np.int64, np.bool_])
def test_select(rng, dtype):
    condition = rng.random((5, 1, 65)) < 0.5
    a, b = rng.standard_normal((5, 7, 65)).astype(dtype), rng.standard_normal((7, 1)).astype(dtype)
    want = np.where(condition, a, b)
    assert bits(run_one("select", [condition, a, b], (5, 7, 65), dtype)) == bits(want)


def test_logic(rng):
    a, b = rng.random(77) < 0.5, rng.random(77) < 0.5
    np.testing.assert_array_equal(run_one("logical_and", [a, b], (77,), np.bool_), a & b)
    np.testing.assert_array_equal(run_one("logical_or", [a, b], (77,), np.bool_), a | b)
    np.testing.assert_array_equal(run_one("logical_not", [a], (77,), np.bool_), ~a)


def test_power(rng):
    a, b = rng.random(501).astype(np.float32) * 9, rng.standard_normal(501).astype(np.float32)
    np.testing.assert_allclose(run_one("power", [a, b], (501,), np.float32), a**b, rtol=2e-7)


def test_what_is_not_served_is_left_to_the_reference_kernel():
    a = np.zeros(3, np.complex64)
    assert words_of("add", [a, a], [a]) is None
    i = np.zeros(3, np.int32)
    assert words_of("divide", [i, i], [i]) is None
    assert words_of("no_such_op", [i], [i]) is None
