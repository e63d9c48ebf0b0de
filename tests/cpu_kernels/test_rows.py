"""Reductions, softmax, norms and rope against float64."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from tests.cpu_kernels.support import BF16, FLOATS, assert_close, bits, float64, run_one, words_of

SHAPES = ((1, 1), (3, 7), (2, 63), (5, 65), (4, 500), (1, 4097), (3, 12289))
NAN, INF = float("nan"), float("inf")


@pytest.fixture
def rng():
    return np.random.default_rng(13)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("shape", "axes"),
    [((3, 7), (1,)), ((1, 5000), (1,)), ((4, 65, 33), (2,)), ((4, 65, 33), (0, 1)), ((4, 65, 33), (0, 1, 2)),
     ((500, 17), (0,)), ((3, 1, 5), (1,)), ((0, 5), (0,)), ((5, 0), (1,))],
)  # fmt: skip
def test_float_reductions(rng, dtype, shape, axes):
    a = (rng.standard_normal(shape) * 5 + 2).astype(dtype)
    want = float64(a).sum(axis=axes)
    assert_close(run_one("sum", [a], want.shape, dtype, axes=axes), want)
    if a.size:
        assert_close(run_one("mean", [a], want.shape, dtype, axes=axes), float64(a).mean(axis=axes))
        for op in ("max", "min"):
            np.testing.assert_array_equal(run_one(op, [a], want.shape, dtype, axes=axes), getattr(a, op)(axis=axes))


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_integer_sums_wrap(rng, dtype):
    a = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, (5, 333), dtype)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(run_one("sum", [a], (5,), dtype, axes=(1,)), a.sum(1, dtype=dtype))
        np.testing.assert_array_equal(run_one("sum", [a], (333,), dtype, axes=(0,)), a.sum(0, dtype=dtype))


def test_half_precision_sums_do_not_saturate():
    for dtype in (BF16, np.float16):
        ones = np.ones((1, 30000), dtype)
        assert float(run_one("sum", [ones], (1,), dtype, axes=(1,))[0]) == float(dtype(30000))
        assert float(run_one("sum", [ones.T.copy()], (1,), dtype, axes=(0,))[0]) == float(dtype(30000))


def test_integers_that_float32_holds_are_summed_exactly(rng):
    a = rng.integers(-8, 8, (3, 100_003)).astype(np.float32)
    np.testing.assert_array_equal(run_one("sum", [a], (3,), np.float32, axes=(1,)), a.sum(1, dtype=np.float64))


def test_nan_reaches_its_own_row_alone(rng):
    a = rng.standard_normal((5, 65)).astype(np.float32)
    clean = a.copy()
    a[2, 64] = NAN
    others = [0, 1, 3, 4]
    axes, eps = {"axes": (1,)}, {"eps": 1e-5}
    calls = [("sum", (5,), axes), ("max", (5,), axes), ("min", (5,), axes), ("softmax", (5, 65), axes)]
    for op, shape, params in [*calls, ("rms_norm", (5, 65), eps), ("layer_norm", (5, 65), eps)]:
        got = run_one(op, [a], shape, np.float32, **params)
        assert np.isnan(got[2]).all(), op
        assert bits(got[others]) == bits(run_one(op, [clean], shape, np.float32, **params)[others]), op


@pytest.mark.parametrize("dtype", [*FLOATS, np.int32, np.uint8])
@pytest.mark.parametrize("op", ["argmax", "argmin"])
def test_the_first_of_equal_extremes_is_found(rng, dtype, op):
    for shape in SHAPES:
        a = rng.integers(0, 30, shape).astype(dtype)
        got = run_one(op, [a], shape[:-1], np.uint32, axis=-1)
        np.testing.assert_array_equal(got, getattr(np, op)(float64(a), -1))


def test_argmax_finds_the_first_nan_and_an_infinity(rng):
    a = rng.standard_normal((3, 40)).astype(np.float32)
    a[0, 17] = a[0, 5] = NAN
    a[1, 33] = INF
    a[2] = -INF
    np.testing.assert_array_equal(run_one("argmax", [a], (3,), np.uint32, axis=1), np.argmax(a, 1))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", SHAPES)
def test_softmax(rng, dtype, shape):
    a = (rng.standard_normal(shape) * 5).astype(dtype)
    assert_close(run_one("softmax", [a], shape, dtype, axes=(-1,)), special.softmax(float64(a), -1))


def test_softmax_of_extremes():
    a = np.array([[1e38, -1e38, 0, 1e38], [-INF, 0, 0, -INF], [-INF] * 4, [INF, 0, 0, 0]], np.float32)
    got = run_one("softmax", [a], a.shape, np.float32, axes=(1,))
    np.testing.assert_array_equal(got[:2], [[0.5, 0, 0, 0.5], [0, 0.5, 0.5, 0]])
    assert np.isnan(got[2]).all()
    assert np.isnan(got[3, 0])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", SHAPES)
def test_norms(rng, dtype, shape):
    a, w, b = (rng.standard_normal(s).astype(dtype) for s in (shape, shape[-1:], shape[-1:]))
    x, weight, bias = float64(a), float64(w), float64(b)
    rms = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5)
    assert_close(run_one("rms_norm", [a, w], shape, dtype, eps=1e-5), rms * weight)
    assert_close(run_one("rms_norm", [a], shape, dtype, eps=1e-5), rms)
    centred = x - x.mean(-1, keepdims=True)
    layer = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    assert_close(run_one("layer_norm", [a, w, b], shape, dtype, eps=1e-5), layer * weight + bias, 2e-6)
    assert_close(run_one("layer_norm", [a, w], shape, dtype, eps=1e-5), layer * weight, 2e-6)


def test_a_norm_takes_weights_of_another_type(rng):
    a, w = rng.standard_normal((3, 65)).astype(BF16), rng.standard_normal(65).astype(np.float32)
    x = float64(a)
    want = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * w
    assert_close(run_one("rms_norm", [a, w], (3, 65), BF16, eps=1e-6), want)


def rope(x, offset, dims, traditional, scale, freqs):
    half, x = dims // 2, float64(x)
    position = (np.arange(x.shape[-2])[None] + np.reshape(offset, (-1, 1))) * scale
    angle = position[:, None, :, None] / freqs
    out = x.copy()
    first, second = (slice(0, dims, 2), slice(1, dims, 2)) if traditional else (slice(0, half), slice(half, dims))
    a, b = x[..., first], x[..., second]
    out[..., first] = a * np.cos(angle) - b * np.sin(angle)
    out[..., second] = a * np.sin(angle) + b * np.cos(angle)
    return out


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("traditional", [False, True])
@pytest.mark.parametrize(
    ("batch", "heads", "length", "width", "dims"),
    [(1, 9, 1, 64, 64), (2, 3, 7, 64, 40), (2, 1, 5, 33, 6), (1, 2, 500, 128, 128), (3, 2, 1, 2, 2)],
)
def test_rope(rng, dtype, traditional, batch, heads, length, width, dims):
    x = rng.standard_normal((batch, length, heads, width)).astype(dtype).transpose(0, 2, 1, 3)
    powers = 10000.0 ** (np.arange(dims // 2) / (dims // 2))
    freqs = rng.uniform(1, 100, dims // 2).astype(np.float32)
    for offset in (np.int32(1000), np.arange(batch, dtype=np.int32) * 77, np.int32(100_000)):
        reads, params = [x, np.asarray(offset)], {"dims": dims, "traditional": traditional, "scale": 0.5}
        got = run_one("rope", reads, x.shape, dtype, base=10000.0, **params)
        assert_close(got, rope(x, offset, dims, traditional, 0.5, powers), 4e-7)
        got = run_one("rope", [*reads, freqs], x.shape, dtype, base=None, **params)
        assert_close(got, rope(x, offset, dims, traditional, 0.5, float64(freqs)), 4e-7)


def test_what_is_not_served_is_left_to_the_reference_kernel(rng):
    a = rng.standard_normal((3, 4, 5)).astype(np.float32)
    out = np.empty(4, np.float32)
    assert words_of("sum", [a], [out], axes=(0, 2)) is None
    assert words_of("sum", [a.T], [np.empty(5, np.float32)], axes=(1, 2)) is None
    assert words_of("softmax", [a], [a.copy()], axes=(0,)) is None
