"""Products with weights of every quantized format, and with chosen experts, against float64."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cpu_kernels.support import (
    BF16,
    FORMATS,
    bits,
    coded,
    float64,
    poisoned,
    quantized,
    run_one,
    run_words,
    words_of,
)
from tests.cpu_kernels.test_products import assert_product

NAN, INF = float("nan"), float("inf")


@pytest.fixture
def rng():
    return np.random.default_rng(23)


def multiply(x, w):
    return run_one("quantized_matmul", [x, *w.parts], (len(x), len(w.value)), x.dtype, **w.params)


@pytest.mark.parametrize(("mode", "width", "group"), FORMATS)
@pytest.mark.parametrize("x_type", [np.float32, BF16])
def test_products(rng, mode, width, group, x_type):
    for rows, columns, depth in ((1, 1, 64), (1, 65, 192), (3, 7, 576), (5, 3, 64), (16, 9, 128), (33, 6, 64)):
        w = coded(rng, mode, width, group, (columns, depth))
        x = rng.standard_normal((rows, depth)).astype(x_type)
        assert_product(multiply(x, w), x, w.value.T)


@pytest.mark.parametrize(("mode", "width", "group"), FORMATS)
def test_a_row_has_the_same_bits_beside_any_number_of_others(rng, mode, width, group):
    w = coded(rng, mode, width, group, (67, 576))
    x = rng.standard_normal((50, 576)).astype(np.float32)
    whole = multiply(x, w)
    for count in (1, 2, 3, 4, 5, 8, 17):
        assert bits(multiply(x[:count].copy(), w)) == bits(whole[:count])
        assert bits(multiply(x[-count:].copy(), w)) == bits(whole[-count:])


@pytest.mark.parametrize(("mode", "width", "group"), FORMATS[4:])
def test_every_code_has_its_value(mode, width, group):
    """One code a row, times one."""
    count = 2**width
    rng = np.random.default_rng(0)
    w = coded(rng, mode, width, group, (count, 32))
    codes = np.arange(count, dtype=np.uint32)
    w.parts[0][...] = np.sum([codes << np.uint32(width * n) for n in range(32 // width)], axis=0)[:, None]
    w.parts[1][...] = 0x38 if mode == "nvfp4" else 127  # 1.0
    x = np.zeros((1, 32), np.float32)
    x[0, 5] = 1
    found = multiply(x, w)[0]
    magnitudes = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    if width == 8:
        exponent, fraction = np.arange(128) >> 3, np.arange(128) & 7
        magnitudes = np.where(exponent > 0, (8 + fraction) * 2.0 ** (exponent - 10), fraction * 2.0**-9)
        magnitudes[127] = NAN
    np.testing.assert_array_equal(found, np.concatenate([magnitudes, -magnitudes]).astype(np.float32))


@pytest.mark.parametrize(("mode", "width", "group"), FORMATS[4:])
@pytest.mark.parametrize("rows", [1, 9])
def test_every_scale_has_its_value(mode, width, group, rows):
    """One scale a row, times codes of one; of E8M0, those whose products with 2 are normal numbers."""
    w = coded(np.random.default_rng(0), mode, width, group, (256, 32))
    one = 0x38 if width == 8 else 2
    w.parts[0][...] = sum(one << (width * n) for n in range(32 // width))
    w.parts[1][...] = np.arange(256, dtype=np.uint8)[:, None]
    x = np.zeros((rows, 32), np.float32)
    x[:, 3] = 2
    found = multiply(x, w)
    if mode == "nvfp4":
        exponent, fraction = np.arange(128) >> 3, np.arange(128) & 7
        want = np.where(exponent > 0, (8 + fraction) * 2.0 ** (exponent - 10), fraction * 2.0**-9)
        want[127] = NAN
        want = np.concatenate([want, -want]) * 2
    else:
        want = 2.0 ** (np.arange(256) - 126)
        want[255] = NAN
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(found, np.tile(want.astype(np.float32), (rows, 1)))


@pytest.mark.parametrize("rows", [2, 12])
@pytest.mark.parametrize("value", [NAN, INF])
def test_nan_stays_in_its_row_and_in_its_column(rng, rows, value):
    w = coded(rng, "affine", 6, 64, (9, 128))
    x = rng.standard_normal((rows, 128)).astype(np.float32)
    clean = multiply(x, w)
    x[1, 77], w.parts[1][4, 1] = value, value
    found = multiply(x, w)
    rest = np.ones(found.shape, bool)
    rest[1], rest[:, 4] = False, False
    assert bits(found[rest]) == bits(clean[rest])
    assert not np.isfinite(found[~rest]).any()


@pytest.mark.parametrize(("mode", "group"), [("mxfp4", 32), ("nvfp4", 16)])
@pytest.mark.parametrize("rows", [4, 40])
@pytest.mark.parametrize("value", [NAN, INF, 1e35])
def test_extreme_rows_take_the_float_order_and_leave_the_others_alone(rng, mode, group, rows, value):
    w = coded(rng, mode, 4, group, (19, 192))
    x = rng.standard_normal((rows, 192)).astype(np.float32)
    clean = multiply(x, w)
    x[2, 77] = value
    found = multiply(x, w)
    others = [r for r in range(rows) if r != 2]
    assert bits(found[others]) == bits(clean[others])
    with np.errstate(invalid="ignore"):
        want = float64(x[2]) @ w.value.T
    if np.isfinite(value):
        assert_product(found[2:3], x[2:3], w.value.T)
    else:
        np.testing.assert_array_equal(found[2], want.astype(np.float32))


# -- experts ----------------------------------------------------------------------------------------------------------


def gather(x, parts, left, right, columns, params):
    shape = (*np.shape(left), x.shape[-2], columns)
    return run_one("gather_qmm", [x, *parts, left, right], shape, x.dtype, **params, scaled=False, sorted=False)


@pytest.mark.parametrize(("mode", "width", "group"), [("affine", 4, 64), ("affine", 8, 32), *FORMATS[3:]])
@pytest.mark.parametrize(("count", "rows"), [(1, 1), (9, 1), (333, 1), (3, 5), (2, 130)])
def test_experts_equal_their_own_products(rng, mode, width, group, count, rows):
    """To the bit: a gathered product has the order class of the product it is made of."""
    w = coded(rng, mode, width, group, (5, 70, 192))
    x = rng.standard_normal((7, rows, 192)).astype(np.float32)
    left, right = rng.integers(0, 7, count).astype(np.uint32), rng.integers(0, 5, count).astype(np.uint32)
    found = gather(x, w.parts, left, right, 70, w.params)
    for i in range(0, count, 13):
        parts = [np.ascontiguousarray(p[right[i]]) for p in w.parts]
        one = run_one("quantized_matmul", [x[left[i]], *parts], (rows, 70), np.float32, **w.params)
        assert bits(found[i]) == bits(one)
        assert_product(found[i], x[left[i]], w.value[right[i]].T)


def test_the_order_of_experts_makes_no_difference(rng):
    w = coded(rng, "affine", 4, 64, (4, 64, 128))
    x = rng.standard_normal((100, 1, 128)).astype(BF16)
    left, right = np.arange(100, dtype=np.int32), rng.integers(0, 4, 100).astype(np.int32)
    found = gather(x, w.parts, left, right, 64, w.params)
    order = np.argsort(right, kind="stable")
    assert bits(gather(x, w.parts, left[order], right[order], 64, w.params)) == bits(found[order])


def test_indices_that_broadcast_count_from_the_end_and_name_one_expert_alone(rng):
    w = coded(rng, "affine", 4, 64, (6, 65, 64))
    x = rng.standard_normal((3, 2, 64)).astype(np.float32)
    left = np.broadcast_to(np.array([[2], [0], [1]], np.int64), (3, 4))
    right = np.broadcast_to(np.array([-1, 0, -1, 5], np.int32), (3, 4))
    found = gather(x, w.parts, left, right, 65, w.params)
    for i, j in np.ndindex(3, 4):
        assert_product(found[i, j], x[left[i, j]], w.value[right[i, j]].T)


@pytest.mark.parametrize(("left", "right"), [(0, 4), (0, -5), (2, 0), (-3, 0)])
def test_an_index_out_of_range_fails_the_record(rng, left, right):
    w = coded(rng, "affine", 4, 64, (4, 16, 64))
    x, out = np.ones((2, 1, 64), np.float32), poisoned((3, 1, 16), np.float32)
    indices = [np.array([0, 1, left], np.int32), np.array([1, 3, right], np.int32)]
    for parts in (0, 3):
        words = words_of("gather_qmm", [x, *w.parts, *indices], [out], **w.params, scaled=False, sorted=False)
        words[2] = parts
        assert run_words(words) == 0


def test_what_is_not_served_is_left_to_the_reference_kernel(rng):
    w = quantized(rng, 4, 64, 4, 32, np.float16)
    x, out = np.zeros((1, 64), np.float32), np.zeros((1, 4), np.float32)
    assert (
        words_of("quantized_matmul", [x, w.words, w.scales, w.biases], [out], **w.params | {"transpose": False}) is None
    )
    stack = [a[None] for a in (w.words, w.scales, w.biases)]
    index = np.zeros(1, np.int32)
    for change in ({"scaled": True}, {"transpose": False}):
        params = {**w.params, "scaled": False, "sorted": False} | change
        assert words_of("gather_qmm", [x[None], *stack, index, index], [out[None]], **params) is None
    assert float64(out).any() == 0
