"""Arrays from numbers: the reference's values, types and errors; 64-bit ranges; diagonals as views."""

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
from tests.reference.strategies import FLOATS, INTEGERS, NUMBERS, arrays, dtypes, shapes
from tests.reference.wire import Dtype, Side

OURS = Side(mx)
APPROXIMATE = "exp"
"""The op whose tolerance holds for values that the reference computes in steps rounded to float32."""


def same(reference, call, op: str = "") -> None:
    assert_same_outcome(OURS.perform(call), reference.batch([call])[0], op, context=call)


def named(dtype: str) -> Dtype:
    return Dtype("bool_" if dtype == "bool" else dtype)


@pytest.mark.parametrize("op", ["zeros", "ones"])
@settings(max_examples=examples(30))
@given(dtype=dtypes(NUMBERS), shape=shapes())
def test_constant_arrays_equal_the_reference(reference, op, dtype, shape):
    same(reference, Call(op, (shape, named(dtype))))


@pytest.mark.parametrize("op", ["zeros_like", "ones_like"])
@settings(max_examples=examples(30))
@given(data=st.data(), dtype=dtypes(NUMBERS), other=st.none() | dtypes(NUMBERS), shape=shapes(elements_max=64))
def test_arrays_like_another_take_its_shape_and_type(reference, op, data, dtype, other, shape):
    options = {} if other is None else {"dtype": named(other)}
    same(reference, Call(op, (data.draw(arrays(dtype, shape)),), options))


@settings(max_examples=examples(60))
@given(data=st.data(), dtype=dtypes(NUMBERS), shape=shapes(rank_max=3, elements_max=64))
def test_full_broadcasts_an_array_of_values(reference, data, dtype, shape):
    part = tuple(1 if data.draw(st.booleans()) else n for n in shape)[data.draw(st.integers(0, len(shape))) :]
    same(reference, Call("full", (shape, data.draw(arrays(dtype, part)))))


@pytest.mark.parametrize("value", [True, 3, -2, 2.5, 1e300, float("nan"), -0.0, 1j])
def test_full_takes_a_numbers_own_type(reference, value):
    same(reference, Call("full", ((2, 3), value)))


@pytest.mark.parametrize(
    "call",
    [
        Call("full", ((2,), Array.of(np.zeros(3, np.float32)))), Call("full", ((-1,), 0)), Call("zeros", ((2, -1),)),
        Call("full", ((2,), 300, Dtype("uint8"))), Call("full", ((2,), -1, Dtype("uint8"))), Call("eye", (-1,)),
        Call("arange", (0, 5, 0)), Call("arange", (float("nan"),)), Call("arange", (float("inf"),)),
        Call("arange", (5,), {"dtype": Dtype("bool_")}), Call("linspace", (0, 1, -1)),
        Call("tril", (Array.of(np.zeros(3, np.float32)),)), Call("diag", (Array.of(np.array(1)),)),
        Call("diagonal", (Array.of(np.zeros(3)),)), Call("diagonal", (Array.of(np.eye(2)), 0, 1, 1)),
        Call("diagonal", (Array.of(np.eye(2)), 0, 0, 4)), Call("trace", (Array.of(np.zeros(3)),)),
        Call("meshgrid", (Array.of(np.zeros(3)),), {"indexing": "yx"}), Call("zeros_like", (3,)),
    ],
)  # fmt: skip
def test_what_cannot_be_made_is_refused_as_in_the_reference(reference, call):
    same(reference, call)


def test_a_number_fills_the_type_that_is_asked_for():
    made = mx.full((2,), 1.5, dtype=mx.int32)
    assert (made.dtype, made.tolist()) == (mx.int32, [1, 1])


@settings(max_examples=examples(80))
@given(
    start=st.integers(-100, 100), stop=st.integers(-100, 100), step=st.integers(-7, 7).filter(bool),
    dtype=st.none() | dtypes((*INTEGERS, *FLOATS)),
)  # fmt: skip
def test_integer_ranges_equal_the_reference(reference, start, stop, step, dtype):
    if dtype is not None and dtype.startswith("uint"):
        start, stop, step = abs(start), abs(stop), abs(step)
    options = {} if dtype is None else {"dtype": named(dtype)}
    same(reference, Call("arange", (start, stop, step), options))


@settings(max_examples=examples(60))
@given(start=st.floats(-50, 50), stop=st.floats(-50, 50), step=st.floats(0.1, 5))
def test_float_ranges_are_the_float64_values_rounded_once(start, stop, step):
    got = mx.arange(start, stop, step)
    want = (start + np.arange(len(np.arange(start, stop, step))) * step).astype(np.float32)
    assert got.dtype == mx.float32
    np.testing.assert_array_equal(np.array(got), want)


def test_ranges_beyond_32_bits_are_exact():
    assert mx.arange(2**31, 2**31 + 3).tolist() == [2**31, 2**31 + 1, 2**31 + 2]
    assert mx.arange(-(2**40), -(2**40) + 2).dtype == mx.int64
    assert mx.arange(5).dtype == mx.int32
    assert mx.arange(2**62, 2**62 + 2**40, 2**39).tolist() == [2**62, 2**62 + 2**39]


@settings(max_examples=examples(40))
@given(start=st.floats(-50, 50), stop=st.floats(-50, 50), num=st.integers(0, 70), endpoint=st.booleans())
def test_linspace_ends_exactly_where_it_says(start, stop, num, endpoint):
    got = np.array(mx.linspace(start, stop, num, endpoint))
    want = np.linspace(start, stop, num, endpoint)
    np.testing.assert_allclose(got, want, rtol=2e-7, atol=1e-5 if num else 0)
    if endpoint and num > 1:
        assert got[-1] == np.float32(stop)


@pytest.mark.parametrize("dtype", ["int32", "float16", "float32"])
def test_linspace_in_other_types_equals_the_reference(reference, dtype):
    same(reference, Call("linspace", (0, 10, 5), {"dtype": Dtype(dtype)}))


@pytest.mark.parametrize("op", ["eye", "tri"])
@pytest.mark.parametrize("k", [-5, -1, 0, 1, 4])
@pytest.mark.parametrize("dtype", ["bool", "int8", "float32", "bfloat16", "complex64"])
def test_diagonal_patterns_equal_the_reference(reference, op, k, dtype):
    for rows, columns in ((3, 5), (5, 3), (1, 1), (0, 3), (65, 63)):
        same(reference, Call(op, (rows, columns, k, named(dtype))))


@pytest.mark.parametrize("op", ["tril", "triu"])
@settings(max_examples=examples(30))
@given(data=st.data(), dtype=dtypes(NUMBERS), shape=shapes(rank_min=2, elements_max=256), k=st.integers(-4, 4))
def test_triangles_equal_the_reference(reference, op, data, dtype, shape, k):
    same(reference, Call(op, (data.draw(arrays(dtype, shape)), k)))


@settings(max_examples=examples(60))
@given(data=st.data(), dtype=dtypes(NUMBERS), shape=shapes(rank_min=2, elements_max=256), offset=st.integers(-4, 4))
def test_diagonals_and_traces_equal_the_reference(reference, data, dtype, shape, offset):
    axes = data.draw(st.permutations(range(len(shape))))[:2]
    a = data.draw(arrays(dtype, shape, special=False))
    want = np.diagonal(a.values(), offset, *axes)
    if want.size:
        same(reference, Call("diagonal", (a, offset, *axes)))
        same(reference, Call("trace", (a, offset, *axes)), "sum")
    else:  # the reference may die of an empty diagonal that starts outside of its array
        assert OURS.perform(Call("diagonal", (a, offset, *axes))).value.resolved().shape == want.shape
        assert not np.any(OURS.perform(Call("trace", (a, offset, *axes))).value.values())


@settings(max_examples=examples(40))
@given(
    data=st.data(), dtype=dtypes(NUMBERS), shape=shapes(rank_min=1, rank_max=2, elements_max=64), k=st.integers(-4, 4)
)
def test_diag_equals_the_reference(reference, data, dtype, shape, k):
    same(reference, Call("diag", (data.draw(arrays(dtype, shape)), k)))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("indexing", ["xy", "ij"])
def test_grids_equal_the_reference(reference, sparse, indexing):
    vectors = [Array.of(np.arange(n, dtype=np.float32)) for n in (3, 1, 4)]
    for count in range(4):
        same(reference, Call("meshgrid", tuple(vectors[:count]), {"sparse": sparse, "indexing": indexing}))


@pytest.mark.parametrize(
    ("op", "numpys"),
    [("bartlett", np.bartlett), ("hanning", np.hanning), ("hamming", np.hamming), ("blackman", np.blackman)],
)
@pytest.mark.parametrize("count", [-1, 0, 1, 2, 3, 7, 64, 65, 500])
def test_windows_are_numpys_rounded_to_float32(op, numpys, count):
    got = getattr(mx, op)(count)
    assert got.dtype == mx.float32
    np.testing.assert_allclose(np.array(got), numpys(max(count, 0)).astype(np.float32), rtol=1e-6, atol=1e-7)


def test_constant_arrays_own_their_memory():
    a = mx.zeros((3,))
    b = mx.zeros((3,))
    a[0] = 5
    assert b.tolist() == [0, 0, 0]
    assert mx.zeros((3,)).tolist() == [0, 0, 0]
    assert mx.empty((2, 2)).shape == (2, 2)


def test_a_value_that_fills_keeps_its_derivative():
    check_derivatives(lambda v: mx.full((4, 3), v), numbers(3))
    check_derivatives(lambda v: mx.full((2, 3), v), numbers(2, 1))


@pytest.mark.parametrize("offset", [-3, -1, 0, 1, 2])
@pytest.mark.parametrize("axes", [(0, 1), (1, 0), (0, 2), (2, 1), (-1, -2)])
def test_derivatives_of_diagonals(offset, axes):
    check_derivatives(lambda a: mx.diagonal(a, offset, *axes), numbers(3, 4, 5))


def test_derivatives_of_triangles_and_spread_diagonals():
    check_derivatives(lambda a: mx.tril(a, 1) * 2 + mx.triu(a), numbers(2, 4, 3))
    check_derivatives(lambda a: mx.diag(a, -2), numbers(5))
    check_derivatives(lambda a: mx.trace(a, 1), numbers(4, 5))


@pytest.mark.parametrize("batch", [0, 1, 2])
def test_batches_equal_a_loop(batch):
    x = numbers(3, 4, 5).astype(np.float32)
    check_batching(lambda a: mx.diagonal(a, 1), x, axes=(batch,))
    check_batching(lambda a: mx.tril(a), x, axes=(batch,))
    check_batching(lambda a: mx.full((2, *a.shape), a), x, axes=(batch,))
    check_batching(lambda a: mx.diag(a, 1), numbers(3, 4).astype(np.float32), axes=(min(batch, 1),))
