"""Quantized and dense products, gather and dequantize against float64; a row's bits depend on the row alone."""

from __future__ import annotations

import numpy as np
import pytest

from outlive.backends.cpu.abi import record
from outlive.backends.cpu.features import features
from outlive.backends.cpu.kernels import library
from outlive.backends.cpu.kernels.emit import STORAGES
from outlive.backends.cpu.kernels.quantized_float import Geometry, write_float
from tests.cpu_kernels.support import (
    BF16,
    FLOATS,
    HALF_ULP,
    bits,
    float64,
    poisoned,
    quantized,
    run,
    run_one,
    run_words,
    words_of,
)  # fmt: skip

TYPES = ((np.float32, np.float16), (np.float32, np.float32), (BF16, BF16), (np.float16, np.float16), (np.float16, BF16))
NAN, INF = float("nan"), float("inf")


@pytest.fixture
def rng():
    return np.random.default_rng(17)


def assert_product(got, x, w):
    """Within two units in the last place of the output's type, plus K * 2^-24 of the sum of sizes."""
    x = float64(x)
    want, size = x @ w, np.abs(x) @ np.abs(w)
    allowed = 4 * HALF_ULP[got.dtype] * np.abs(want) + x.shape[-1] * 2.0**-24 * size + 1e-30
    if got.dtype == np.float16:
        allowed += 2.0**-24  # its smallest step
    wrong = ~(np.abs(float64(got) - want) <= allowed)
    assert not wrong.any(), f"{wrong.sum()} of {wrong.size}, the first at {np.argwhere(wrong)[0]}"


def multiply(x, w):
    return run_one(
        "quantized_matmul", [x, w.words, w.scales, w.biases], (*x.shape[:-1], len(w.words)), x.dtype, **w.params
    )


def _cases():
    """Every geometry in the two pairs of types that models use, one of them at night alone, and one geometry in all."""
    for width in (2, 4, 8):
        for group in (32, 64, 128):
            for types in TYPES if (width, group) == (4, 64) else (TYPES[0], TYPES[2]):
                rare = (width, group) != (4, 64) and types is TYPES[2]
                yield pytest.param(width, group, *types, marks=[pytest.mark.nightly] if rare else [])


@pytest.mark.parametrize(("width", "group", "x_type", "scale_type"), list(_cases()))
def test_quantized_products(rng, width, group, x_type, scale_type):
    for rows, columns, groups in ((1, 1, 1), (1, 65, 18), (3, 63, 7), (7, 5, 33), (16, 9, 16), (17, 7, 5), (33, 65, 3),
                                  (65, 16, 17), (130, 3, 2)):  # fmt: skip
        w = quantized(rng, columns, group * groups, width, group, scale_type)
        x = rng.standard_normal((rows, group * groups)).astype(x_type)
        assert_product(multiply(x, w), x, w.value.T)


@pytest.mark.parametrize("width", [2, 4, 8])
@pytest.mark.parametrize(("group", "depth"), [(32, 96), (32, 576), (64, 576), (64, 2048), (128, 2176)])
def test_a_row_has_the_same_bits_beside_any_number_of_others(rng, width, group, depth):
    w = quantized(rng, 67, depth, width, group, np.float16)
    x = rng.standard_normal((130, depth)).astype(np.float32)
    whole = multiply(x, w)
    for count in (1, 2, 3, 5, 8, 16, 17, 40, 90):
        assert bits(multiply(x[:count].copy(), w)) == bits(whole[:count])
        assert bits(multiply(x[-count:].copy(), w)) == bits(whole[-count:])


@pytest.mark.parametrize("width", [2, 4, 8])
@pytest.mark.parametrize("group", [32, 64, 128])
def test_the_float_order_that_other_processors_take(rng, width, group):
    name, geometry = f"q_float_{width}b{group}_float32_float16", Geometry(width, group)
    float32, float16 = STORAGES["float32"], STORAGES["float16"]
    kernel = library.compiled(name, lambda k: write_float(k, geometry, float32, float16), "q_float")
    for rows, columns, groups in ((1, 1, 1), (3, 7, 5), (5, 65, 17), (9, 3, 33)):
        w = quantized(rng, columns, group * groups, width, group, np.float16)
        x, out = rng.standard_normal((rows, group * groups)).astype(np.float32), poisoned((rows, columns), np.float32)
        pointers = [a.ctypes.data for a in (x, w.words, w.scales, w.biases, out)]
        assert run_words(record(kernel, 2, pointers, (rows, columns, group * groups, 4))) == -1
        assert_product(out, x, w.value.T)


def test_leading_dimensions_are_rows(rng):
    w = quantized(rng, 5, 64, 4, 32, np.float16)
    x = rng.standard_normal((2, 3, 64)).astype(np.float32)
    assert bits(multiply(x, w)) == bits(multiply(x.reshape(6, 64), w))


@pytest.mark.parametrize("rows", [4, 40])
@pytest.mark.parametrize("value", [NAN, INF, -INF, 1e35, 1e-35])
def test_extreme_rows_take_the_float_order_and_leave_the_others_alone(rng, rows, value):
    w = quantized(rng, 19, 192, 4, 64, np.float16)
    x = rng.standard_normal((rows, 192)).astype(np.float32)
    clean = multiply(x, w)
    if abs(value) == 1e-35:
        x[2] *= 1e-35
    else:
        x[2, 77] = value
    got = multiply(x, w)
    others = [r for r in range(rows) if r != 2]
    assert bits(got[others]) == bits(clean[others])
    with np.errstate(invalid="ignore", over="ignore"):
        want = float64(x[2]) @ w.value.T
    if np.isfinite(value):
        np.testing.assert_allclose(float64(got[2]), want, rtol=1e-4)
    else:
        np.testing.assert_array_equal(got[2], want.astype(np.float32))


@pytest.mark.parametrize("rows", [1, 20])
def test_an_infinite_scale_reaches_its_own_column_alone(rng, rows):
    w = quantized(rng, 9, 160, 4, 32, np.float16)
    x = rng.standard_normal((rows, 160)).astype(np.float32)
    clean = multiply(x, w)
    w.scales[4, 2], w.biases[6, 4] = INF, NAN
    got = multiply(x, w)
    others = [0, 1, 2, 3, 5, 7, 8]
    assert bits(got[:, others].copy()) == bits(clean[:, others].copy())
    assert not np.isfinite(got[:, [4, 6]]).any()


@pytest.mark.parametrize("rows", [1, 20])
def test_zeros_and_groups_of_zeros(rng, rows):
    w = quantized(rng, 9, 128, 4, 32, np.float16)
    x = np.zeros((rows, 128), np.float32)
    assert not multiply(x, w).any()
    x[:, 32:64] = rng.standard_normal((rows, 32))
    assert_product(multiply(x, w), x, w.value.T)


def test_integers_are_multiplied_exactly(rng):
    for rows in (3, 20):
        for width in (2, 4, 8):
            w = quantized(rng, 17, 256, width, 64, np.float16)
            w.scales[...], w.biases[...] = 1, -1
            x = rng.integers(-8, 8, (rows, 256)).astype(np.float32)
            per_word = 32 // width
            q = (w.words[..., None] >> (np.arange(per_word, dtype=np.uint32) * np.uint32(width))) & np.uint32(
                2**width - 1
            )
            want = float64(x) @ (q.reshape(17, 256).astype(np.float64) - 1).T
            np.testing.assert_array_equal(multiply(x, w), want)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("batch", "rows", "depth", "columns"),
    [
        (1, 1, 7, 5),
        (1, 16, 65, 33),
        (3, 4, 64, 64),
        (2, 3, 100, 500),
        (1, 5, 1, 9),
        (1, 2, 0, 3),
        (1, 1, 576, 1),
        (2, 7, 63, 130),
    ],
)
def test_dense_products_of_few_rows(rng, dtype, batch, rows, depth, columns):
    a = rng.standard_normal((batch, rows, depth)).astype(dtype)
    plain = rng.standard_normal((batch, depth, columns)).astype(dtype)
    turned = rng.standard_normal((batch, columns, depth)).astype(dtype).swapaxes(1, 2)
    for b in (plain, turned, plain[0], turned[0], plain[:1]):
        if b.ndim == 2 and batch * rows > 16:
            continue
        got = run_one("matmul", [a, b], (batch, rows, columns), dtype)
        assert_product(got, a, float64(b))
        if rows > 1:
            alone = run_one("matmul", [a[:, 1:2], b], (batch, 1, columns), dtype)
            assert bits(alone) == bits(got[:, 1:2])


def test_nan_in_a_row_stays_in_it(rng):
    a, b = rng.standard_normal((5, 65)).astype(np.float32), rng.standard_normal((65, 33)).astype(np.float32)
    clean = run_one("matmul", [a, b], (5, 33), np.float32)
    a[3, 64] = NAN
    for other in (b, np.asfortranarray(b)):
        got = run_one("matmul", [a, other], (5, 33), np.float32)
        assert np.isnan(got[3]).all()
        assert not np.isnan(got[[0, 1, 2, 4]]).any()
    assert bits(run_one("matmul", [a, b], (5, 33), np.float32)[:3]) == bits(clean[:3])


def test_more_rows_are_left_to_blas():
    a, b = np.zeros((65, 65), np.float32), np.zeros((65, 65), np.float32)
    assert words_of("matmul", [a, b], [np.zeros((65, 65), np.float32)]) is None


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_small_dense_products_have_the_bits_of_few_rows(rng, dtype):
    a, b = rng.standard_normal((61, 63)).astype(dtype), rng.standard_normal((63, 64)).astype(dtype)
    if words_of("matmul", [a, b], [np.zeros((61, 64), dtype)]) is None:
        assert not features().avx512
        return
    got = run_one("matmul", [a, b], (61, 64), dtype)
    assert_product(got, a, float64(b))
    assert bits(run_one("matmul", [a[5:9], b], (4, 64), dtype)) == bits(got[5:9])


@pytest.mark.parametrize("index_type", [np.int32, np.uint32, np.int64])
@pytest.mark.parametrize("dtype", [*FLOATS, np.uint8, np.int64])
def test_take(rng, dtype, index_type):
    table = (rng.standard_normal((5, 50, 33)) * 9).astype(dtype)
    low = 0 if index_type == np.uint32 else -50
    index = rng.integers(low, 50, (3, 7)).astype(index_type)
    assert bits(run_one("take", [table, index], (5, 3, 7, 33), dtype, axis=1)) == bits(np.take(table, index, 1))
    index = rng.integers(0, 33, (2,)).astype(index_type)
    assert bits(run_one("take", [table, index], (5, 50, 2), dtype, axis=-1)) == bits(np.take(table, index, 2))


@pytest.mark.parametrize("index", [50, -51, 2**31 - 1])
def test_an_index_outside_the_axis_fails_the_record(rng, index):
    table = rng.standard_normal((50, 3)).astype(np.float32)
    for parts in (0, 4):
        words = words_of("take", [table, np.array([1, index], np.int32)], [poisoned((2, 3), np.float32)], axis=0)
        words[2] = parts
        assert run_words(words) == 0


@pytest.mark.parametrize("group", [32, 64, 128])
@pytest.mark.parametrize("width", [2, 4, 8])
@pytest.mark.parametrize("dtype", FLOATS)
def test_dequantize_rounds_once(rng, width, group, dtype):
    w = quantized(rng, 7, group * 3, width, group, np.float16)
    got = run("dequantize", [w.words, w.scales, w.biases], [poisoned(w.value.shape, dtype)], **w.params)[0]
    assert bits(got) == bits(w.value.astype(np.float32).astype(dtype))


def test_weights_without_biases_are_left_to_the_reference_kernel(rng):
    w = quantized(rng, 4, 64, 4, 32, np.float16)
    x, out = np.zeros((1, 64), np.float32), np.zeros((1, 4), np.float32)
    assert words_of("quantized_matmul", [x, w.words, w.scales, None], [out], **w.params) is None
