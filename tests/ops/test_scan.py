"""Scans: the reference's results in all four directions, without its saturation; derivatives exact with zeros."""

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
from tests.reference.strategies import FLOATS, INTEGERS, arrays, dtypes, shapes
from tests.reference.wire import Side

OURS = Side(mx)
SCANS = ["cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"]
DIRECTIONS = [(reverse, inclusive) for reverse in (False, True) for inclusive in (True, False)]


def same(reference, call, op: str = "", **options) -> None:
    assert_same_outcome(OURS.perform(call), reference.batch([call])[0], op, context=call, **options)


def options_of(data, ndim: int) -> dict:
    axis = data.draw(st.one_of(st.none(), st.integers(-ndim - 1, ndim)))
    return {"axis": axis, "reverse": data.draw(st.booleans()), "inclusive": data.draw(st.booleans())}


@pytest.mark.parametrize("op", ["cumsum", "cumprod", "cummax", "cummin"])
@settings(max_examples=examples(60))
@given(data=st.data(), dtype=dtypes((*INTEGERS, "bool")), shape=shapes(elements_max=512))
def test_integer_scans_equal_the_reference(reference, op, data, dtype, shape):
    if dtype == "bool" and op in ("cumprod", "cummax", "cummin", "cumsum"):
        dtype = "int32" if op != "cumsum" else dtype
    same(reference, Call(op, (data.draw(arrays(dtype, shape)),), options_of(data, len(shape))))


@pytest.mark.parametrize("op", ["cummax", "cummin"])
@settings(max_examples=examples(60))
@given(data=st.data(), dtype=dtypes(FLOATS), shape=shapes(elements_max=512))
def test_running_extremes_equal_numpys_and_nan_stays(op, data, dtype, shape):
    a = data.draw(arrays(dtype, shape))
    axis = data.draw(st.integers(0, len(shape) - 1)) if shape else None
    function = {"cummax": np.maximum, "cummin": np.minimum}[op]
    want = function.accumulate(a.values() if axis is not None else a.values().reshape(-1), axis or 0)
    got = OURS.perform(Call(op, (a,), {"axis": axis})).value
    assert got.dtype == dtype
    np.testing.assert_array_equal(got.values(), want)


@pytest.mark.parametrize("op", ["cumsum", "cumprod", "logcumsumexp"])
@settings(max_examples=examples(60))
@given(data=st.data(), dtype=dtypes(FLOATS), shape=shapes(rank_min=1, elements_max=2048))
def test_float_scans_are_the_float64_result_rounded_once(op, data, dtype, shape):
    low, high = (0.95, 1.05) if op == "cumprod" else (-10, 10)
    a = data.draw(arrays(dtype, shape, special=False, low=low, high=high))
    axis = data.draw(st.integers(0, len(shape) - 1))
    function = {"cumsum": np.add, "cumprod": np.multiply, "logcumsumexp": np.logaddexp}[op]
    want = function.accumulate(a.values().astype(np.float64), axis)
    got = OURS.perform(Call(op, (a,), {"axis": axis})).value
    assert got.dtype == dtype
    epsilon = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24}[dtype]
    # cumprod rounds each product to float32
    steps = shape[axis] * 2.0**-24 if op == "cumprod" else 2.0**-23
    margin = (epsilon + steps) * np.abs(want) + 1e-12
    assert np.all(np.abs(got.values().astype(np.float64) - want) <= margin)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_scans_do_not_saturate(dtype):
    ones = mx.ones((5000,), getattr(mx, dtype))
    want = mx.arange(1, 5001).astype(getattr(mx, dtype))
    assert mx.array_equal(mx.cumsum(ones), want).item()


@pytest.mark.parametrize("op", SCANS)
@pytest.mark.parametrize(("reverse", "inclusive"), DIRECTIONS)
def test_every_direction_equals_the_reference_on_odd_sizes(reference, op, reverse, inclusive):
    for shape in ((), (0,), (1,), (7,), (3, 65), (2, 0, 3)):
        a = Array.of(numbers(*shape).astype(np.float32) if shape else np.array(1.5, np.float32))
        for axis in (None, -1):
            call = Call(op, (a,), {"axis": axis, "reverse": reverse, "inclusive": inclusive})
            magnitude = np.float64(np.abs(a.values()).sum() + 1)
            same(reference, call, op, **({} if op in ("cummax", "cummin", "cumprod") else {"magnitude": magnitude}))


@pytest.mark.parametrize("dtype", ["int32", "float16", "float32"])
def test_a_given_type_is_taken_before_the_scan(dtype):
    got = mx.cumsum(mx.array([100, 100, 100], mx.int8), dtype=getattr(mx, dtype))
    assert got.dtype == getattr(mx, dtype)
    assert got.tolist() == [100, 200, 300]


@pytest.mark.parametrize("op", SCANS)
@pytest.mark.parametrize(("reverse", "inclusive"), DIRECTIONS)
def test_derivatives_in_every_direction(op, reverse, inclusive):
    def function(a):
        out = getattr(mx, op)(a, axis=1, reverse=reverse, inclusive=inclusive)
        return mx.where(mx.isinf(out), 0, out)

    check_derivatives(function, numbers(3, 6), tolerance=1e-5)


@pytest.mark.parametrize(("reverse", "inclusive"), DIRECTIONS)
def test_the_derivative_of_running_products_holds_with_zeros(reverse, inclusive):
    x = numbers(2, 6)
    x[0, 2] = x[1, 1] = x[1, 4] = 0.0
    check_derivatives(lambda a: mx.cumprod(a, axis=1, reverse=reverse, inclusive=inclusive), x)


def test_second_derivatives_of_running_products():
    x = mx.array(numbers(5), dtype=mx.float64)
    hessian = np.array(
        [np.array(mx.grad(lambda y, i=i: mx.grad(lambda z: mx.cumprod(z).sum())(y)[i])(x)) for i in range(5)]
    )
    np.testing.assert_allclose(hessian, hessian.T, rtol=1e-9, atol=1e-12)
    assert np.abs(hessian).max() > 0.01


def test_the_first_of_equal_records_gets_the_cotangent():
    assert mx.grad(lambda a: mx.cummax(a).sum())(mx.array([1.0, 3.0, 3.0, 2.0])).tolist() == [1.0, 3.0, 0.0, 0.0]


@pytest.mark.parametrize("op", SCANS)
@pytest.mark.parametrize("batch", [0, 1, 2])
def test_batches_equal_a_loop(op, batch):
    x = numbers(3, 4, 5).astype(np.float32)
    for axis in (0, -1):
        check_batching(lambda a, axis=axis: getattr(mx, op)(a, axis=axis, reverse=True), x, axes=(batch,))
