"""Reductions: the reference's results, types and errors; float64 sums where the order of a sum is free."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import outlive.core as mx
from tests.budget import examples
from tests.ops.rules import check_batching, check_derivatives, numbers
from tests.reference import Array, Call
from tests.reference.compare import assert_same_outcome
from tests.reference.strategies import FLOATS, INTEGERS, NUMBERS, REALS, arrays, dtypes, shapes
from tests.reference.wire import Side

OURS = Side(mx)
SMALL = {"elements_max": 512}
EPSILON = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24}


def same(reference, call, op: str = "", **options) -> None:
    assert_same_outcome(OURS.perform(call), reference.batch([call])[0], op, context=call, **options)


def axes_of(data, ndim: int, beyond: bool = True) -> object:
    """No axis, one, or several: in range mostly, sometimes out of it or repeated."""
    one = st.integers(-ndim - beyond, ndim - 1 + beyond)
    return data.draw(st.one_of(st.none(), one, st.lists(one, max_size=3)))


@pytest.mark.parametrize("op", ["max", "min", "all", "any", "minmax", "count_nonzero"])
@settings(max_examples=examples(60))
@given(data=st.data(), dtype=dtypes(REALS), shape=shapes(**SMALL), keepdims=st.booleans())
def test_exact_reductions_equal_the_reference(reference, op, data, dtype, shape, keepdims):
    a = data.draw(arrays(dtype, shape))
    same(reference, Call(op, (a,), {"axis": axes_of(data, len(shape)), "keepdims": keepdims}))


@pytest.mark.parametrize("op", ["sum", "prod"])
@settings(max_examples=examples(60))
@given(data=st.data(), dtype=dtypes((*INTEGERS, "bool")), shape=shapes(**SMALL), keepdims=st.booleans())
def test_integer_sums_and_products_equal_the_reference(reference, op, data, dtype, shape, keepdims):
    a = data.draw(arrays(dtype, shape))
    same(reference, Call(op, (a,), {"axis": axes_of(data, len(shape)), "keepdims": keepdims}))


def _float64(op: str, a: np.ndarray, axis: object) -> np.ndarray:
    axis = tuple(axis) if isinstance(axis, list) else axis
    return getattr(np, op)(a.astype(np.float64), axis=axis)


@pytest.mark.filterwarnings("ignore:Mean of empty slice", "ignore:Degrees of freedom")
@pytest.mark.parametrize("op", ["sum", "mean", "var", "std", "prod"])
@settings(max_examples=examples(60))
@given(data=st.data(), dtype=dtypes(FLOATS), shape=shapes(elements_max=4096))
def test_float_reductions_are_the_float64_result_rounded_once(op, data, dtype, shape):
    axis = data.draw(st.one_of(st.none(), st.sampled_from(range(len(shape))) if shape else st.none()))
    high = 1.1 if op == "prod" else 10.0
    given_ = data.draw(arrays(dtype, shape, special=False, low=0.9 if op == "prod" else -high, high=high))
    a = given_.values()
    with np.errstate(all="ignore"):
        want = _float64(op, a, axis)
        scale = _float64("sum", np.abs(a), axis) if op == "sum" else np.abs(want) + 10.0 * (op != "prod")
    got = OURS.perform(Call(op, (given_,), {"axis": axis})).value
    assert got.dtype == dtype
    np.testing.assert_array_equal(np.isnan(got.values()), np.isnan(want))
    # one rounding to the type, and float32 accumulation in whatever order
    margin = EPSILON[dtype] * np.abs(want) + 8 * EPSILON["float32"] * scale
    assert np.all((np.abs(got.values().astype(np.float64) - want) <= margin) | np.isnan(want))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_sums_do_not_saturate(dtype):
    ones = mx.ones((5000,), getattr(mx, dtype))
    exact = np.array(mx.array([5000.0]).astype(getattr(mx, dtype)).astype(mx.float32)).item()
    assert ones.sum().astype(mx.float32).item() == exact
    assert (ones * 30).mean().item() == 30
    assert mx.mean(mx.full((4,), 60000.0, mx.float16)).item() == 60000
    assert mx.median(mx.full((4,), 60000.0, mx.float16)).item() == 60000


@pytest.mark.parametrize("op", ["sum", "mean", "max", "min", "prod", "var", "median", "logsumexp", "softmax"])
def test_one_nan_makes_the_whole_row_nan_and_no_other(op):
    x = numbers(4, 65).astype(np.float32)
    x[2, 33] = np.nan
    got = np.isnan(np.array(getattr(mx, op)(mx.array(x), axis=1)))
    assert np.unique(np.nonzero(got)[0]).tolist() == [2]


@pytest.mark.parametrize("op", ["argmax", "argmin"])
@settings(max_examples=examples(80))
@given(data=st.data(), dtype=dtypes(REALS), shape=shapes(**SMALL), keepdims=st.booleans())
def test_places_of_extremes_equal_the_reference(reference, op, data, dtype, shape, keepdims):
    a = data.draw(arrays(dtype, shape))
    axis = data.draw(st.one_of(st.none(), st.integers(-len(shape) - 1, len(shape))))
    same(reference, Call(op, (a,), {"axis": axis, "keepdims": keepdims}))


@pytest.mark.parametrize("op", ["argmax", "argmin"])
def test_the_first_of_equal_extremes_and_the_first_nan_are_found(op):
    nan = float("nan")
    assert getattr(mx, op)(mx.array([1.0, nan, 0.0, nan])).item() == 1
    assert getattr(mx, op)(mx.array([2, 2, 2])).item() == 0


@pytest.mark.parametrize("op", ["logsumexp", "softmax"])
@settings(max_examples=examples(60))
@given(data=st.data(), dtype=dtypes(FLOATS), shape=shapes(rank_min=1, side_min=1, **SMALL))
def test_exponential_reductions_equal_float64(op, data, dtype, shape):
    a = data.draw(arrays(dtype, shape, special=False, low=-80, high=80))
    axis = data.draw(st.integers(0, len(shape) - 1))
    x = a.values().astype(np.float64)
    powers = np.exp(x - x.max(axis, keepdims=True))
    total = powers.sum(axis, keepdims=True)
    want = powers / total if op == "softmax" else (np.log(total) + x.max(axis, keepdims=True)).squeeze(axis)
    got = OURS.perform(Call(op, (a,), {"axis": axis})).value.values().astype(np.float64)
    np.testing.assert_allclose(got, want, rtol=4 * EPSILON[dtype] + 4 * EPSILON["float32"] * 20, atol=2.0**-24)


@pytest.mark.parametrize(
    "values", [[np.inf, 1.0], [-np.inf, -np.inf], [np.nan, 1.0], [1000.0, -1000.0], [-1e30, -1e30]]
)
def test_exponential_reductions_of_extremes_equal_the_reference(reference, values):
    a = Array.of(np.array(values, np.float32))
    same(reference, Call("logsumexp", (a,)))
    same(reference, Call("softmax", (a,)), "softmax")


@settings(max_examples=examples(40))
@given(data=st.data(), dtype=dtypes((*INTEGERS, "bool", "float32")), shape=shapes(**SMALL), keepdims=st.booleans())
def test_medians_equal_the_reference(reference, data, dtype, shape, keepdims):
    a = data.draw(arrays(dtype, shape, special=False))
    axis = axes_of(data, len(shape))
    if axis != []:  # the reference refuses to take no axis; ours returns the elements
        same(reference, Call("median", (a,), {"axis": axis, "keepdims": keepdims}), "mean")


@pytest.mark.parametrize("op", ["sum", "prod", "mean", "max", "var", "logsumexp"])
def test_reductions_of_complex_numbers_equal_numpys(op):
    x = (numbers(5, 7) + 1j * numbers(5, 7, seed=2)).astype(np.complex64)
    if op == "logsumexp":
        want = np.log(np.exp(x.astype(np.complex128)).sum(1))
    else:
        want = getattr(np, op)(x, axis=1)
    got = np.array(getattr(mx, op)(mx.array(x), axis=1))
    assert got.dtype == (np.float32 if op == "var" else np.complex64)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("op", ["sum", "prod", "mean", "max", "min", "all", "argmax", "logsumexp", "median", "var"])
@pytest.mark.parametrize("axis", [3, -3, [0, 0], (), [1, 0]])
@pytest.mark.parametrize("shape", [(2, 3), (0, 3), (2, 0)])
def test_bad_axes_and_empty_arrays_end_as_in_the_reference(reference, op, axis, shape):
    if (op == "argmax" and not isinstance(axis, int)) or (op == "median" and axis == ()):
        return
    if op == "logsumexp" and 0 in shape and axis in (3, -3, ()):
        return  # the reference refuses an empty array before it looks at the axes
    same(reference, Call(op, (Array.of(np.ones(shape, np.float32)),), {"axis": axis}), "mean")


@pytest.mark.parametrize("op", ["sum", "mean", "prod", "max", "min", "var", "std", "logsumexp", "softmax", "median"])
@pytest.mark.parametrize("axis", [None, 0, 1, (0, 2), -1])
def test_derivatives_over_any_axes(op, axis):
    check_derivatives(lambda a: getattr(mx, op)(a, axis), numbers(3, 5, 2), tolerance=1e-5)


@pytest.mark.parametrize("op", ["sum", "mean", "prod", "max", "var", "logsumexp"])
def test_derivatives_with_axes_kept(op):
    check_derivatives(lambda a: getattr(mx, op)(a, 1, True), numbers(3, 5, 2), tolerance=1e-5)


def test_the_derivative_of_a_product_holds_with_zeros():
    x = numbers(3, 4)
    x[0, 1] = x[1, 2] = x[1, 3] = 0.0
    check_derivatives(lambda a: mx.prod(a, 1), x)


def test_equal_extremes_share_the_cotangent():
    assert mx.grad(mx.max)(mx.array([1.0, 3.0, 3.0])).tolist() == [0.0, 0.5, 0.5]


@pytest.mark.parametrize("op", ["sum", "mean", "prod", "max", "min", "all", "any", "var", "logsumexp", "median"])
@pytest.mark.parametrize("batch", [0, 1, 2])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("keepdims", [False, True])
def test_batches_equal_a_loop(op, batch, axis, keepdims):
    x = numbers(3, 4, 5).astype(np.float32)
    check_batching(lambda a: getattr(mx, op)(a, axis, keepdims), x, axes=(batch,))


@pytest.mark.parametrize("op", ["argmax", "argmin"])
@pytest.mark.parametrize("batch", [0, 1, 2])
@pytest.mark.parametrize("keepdims", [False, True])
def test_batches_of_places_equal_a_loop(op, batch, keepdims):
    x = numbers(3, 4, 5).astype(np.float32)
    for axis in (None, 0, -1):
        check_batching(lambda a, axis=axis: getattr(mx, op)(a, axis, keepdims), x, axes=(batch,))
    check_batching(lambda a: mx.softmax(a, 0), x, axes=(batch,))


def test_every_number_type_reduces(reference):
    for dtype in (d for d in NUMBERS if d != "bfloat16"):
        a = Array(dtype, np.ones((2, 3), dtype))
        for op in ("sum", "max", "mean", "all", "argmin"):
            same(reference, Call(op, (a,)), op)
