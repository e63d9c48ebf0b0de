"""Sorts, partitions and searches: the reference's results; NaN last as in NumPy."""

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
from tests.reference.strategies import NUMBERS, REALS, arrays, dtypes, shapes
from tests.reference.wire import Side

OURS = Side(mx)


def same(reference, call, op: str = "") -> None:
    assert_same_outcome(OURS.perform(call), reference.batch([call])[0], op, context=call)


@pytest.mark.parametrize("op", ["sort", "argsort"])
@settings(max_examples=examples(80))
@given(data=st.data(), dtype=dtypes(REALS), shape=shapes(elements_max=512))
def test_sorts_equal_numpys_stable_ones(op, data, dtype, shape):
    a = data.draw(arrays(dtype, shape))
    axis = data.draw(st.one_of(st.none(), st.integers(0, len(shape) - 1) if shape else st.none()))
    want = getattr(np, op)(a.values(), axis=axis, kind="stable")
    got = OURS.perform(Call(op, (a,), {"axis": axis})).value
    assert got.dtype == (dtype if op == "sort" else "uint32")
    np.testing.assert_array_equal(got.values(), want)


@pytest.mark.parametrize("op", ["sort", "argsort"])
@settings(max_examples=examples(40))
@given(data=st.data(), dtype=dtypes(("int32", "float32", "complex64")), shape=shapes(elements_max=128))
def test_sorts_equal_the_reference_and_so_do_their_errors(reference, op, data, dtype, shape):
    a = data.draw(arrays(dtype, shape, special=False))
    axis = data.draw(st.one_of(st.none(), st.integers(-len(shape) - 1, len(shape))))
    same(reference, Call(op, (a,), {"axis": axis}))


@settings(max_examples=examples(80))
@given(data=st.data(), dtype=dtypes(REALS), shape=shapes(rank_min=1, side_min=1, elements_max=512))
def test_a_partition_puts_one_element_in_its_place_and_the_others_on_their_sides(data, dtype, shape):
    a = data.draw(arrays(dtype, shape))
    axis = data.draw(st.integers(0, len(shape) - 1))
    kth = data.draw(st.integers(-shape[axis], shape[axis] - 1))
    parts = OURS.perform(Call("partition", (a, kth), {"axis": axis})).value
    order = OURS.perform(Call("argpartition", (a, kth), {"axis": axis})).value
    assert (parts.dtype, order.dtype) == (dtype, "uint32")
    x, got = np.moveaxis(a.values(), axis, -1), np.moveaxis(parts.values(), axis, -1)
    ordered, at = np.sort(x, -1), kth % shape[axis]
    np.testing.assert_array_equal(got[..., at], ordered[..., at])
    np.testing.assert_array_equal(np.sort(got[..., :at], -1), ordered[..., :at])
    np.testing.assert_array_equal(np.sort(got, -1), ordered)
    np.testing.assert_array_equal(np.take_along_axis(x, np.moveaxis(order.values(), axis, -1).astype(int), -1), got)


@settings(max_examples=examples(60))
@given(data=st.data(), dtype=dtypes(REALS), shape=shapes(rank_min=1, elements_max=512))
def test_the_largest_elements_come_in_rising_order(data, dtype, shape):
    a = data.draw(arrays(dtype, shape))
    axis = data.draw(st.integers(0, len(shape) - 1))
    k = data.draw(st.integers(0, shape[axis]))
    got = OURS.perform(Call("topk", (a, k), {"axis": axis})).value
    want = np.moveaxis(np.sort(np.moveaxis(a.values(), axis, -1), -1)[..., shape[axis] - k :], -1, axis)
    np.testing.assert_array_equal(got.values(), want)


@pytest.mark.parametrize(
    "call",
    [
        Call("partition", (Array.of(np.arange(4)), 4)), Call("partition", (Array.of(np.arange(4)), -5)),
        Call("argpartition", (Array.of(np.arange(4)), 0), {"axis": 1}), Call("topk", (Array.of(np.arange(4)), 5)),
        Call("topk", (Array.of(np.arange(4)), -1)), Call("topk", (Array.of(np.array(1)), 1)),
        Call("partition", (Array.of(np.zeros((0,), np.float32)), 0)),
        Call("searchsorted", (Array.of(np.zeros((1, 2), np.float32)), Array.of(np.zeros(2, np.float32)))),
        Call("searchsorted", (Array.of(np.arange(2)), Array.of(np.arange(2))), {"side": "middle"}),
    ],
)  # fmt: skip
def test_what_is_out_of_range_is_refused_as_in_the_reference(reference, call):
    assert_same_outcome(OURS.perform(call), reference.batch([call])[0])


@pytest.mark.parametrize("side", ["left", "right"])
@settings(max_examples=examples(40))
@given(data=st.data(), dtype=dtypes(("int32", "uint8", "float16", "float32")), shape=shapes(elements_max=64))
def test_searches_equal_the_reference(reference, side, data, dtype, shape):
    sequence = data.draw(arrays(dtype, (data.draw(st.integers(0, 33)),), special=False, views=False))
    ordered = Array(dtype, np.sort(sequence.stored))
    values = data.draw(arrays(dtype, shape, special=False))
    same(reference, Call("searchsorted", (ordered, values), {"side": side}))


def test_nan_is_searched_behind_every_number():
    sequence = mx.array([1.0, 2.0, float("nan")])
    assert mx.searchsorted(sequence, mx.array([float("nan"), 1.5])).tolist() == [2, 1]
    assert mx.searchsorted(sequence, mx.array([float("nan")]), side="right").tolist() == [3]


@pytest.mark.parametrize("size", [1, 3, 7, 63, 65, 500])
@pytest.mark.parametrize("dtype", [d for d in NUMBERS if d not in ("bfloat16", "bool")])
def test_views_are_sorted_as_copies_are(dtype, size):
    base = (numbers(size, 2) * 50).astype(dtype)
    a = mx.array(base)
    for view, copy in ((a[:, 0], base[:, 0]), (a[::-1, 1], base[::-1, 1]), (mx.transpose(a)[0], base.T[0])):
        np.testing.assert_array_equal(np.array(mx.sort(view)), np.sort(copy))


@pytest.mark.parametrize(
    "function", [lambda a: mx.sort(a, 0), lambda a: mx.partition(a, 2, 1), lambda a: mx.topk(a, 2, 1)]
)
def test_derivatives_follow_the_elements(function):
    check_derivatives(function, numbers(4, 5))


@pytest.mark.parametrize("batch", [0, 1, 2])
@pytest.mark.parametrize(
    "function",
    [
        lambda a: mx.sort(a, 0), lambda a: mx.argsort(a, 1), lambda a: mx.sort(mx.partition(a, 1, 0), 0),
        lambda a: mx.topk(a, 2, 0), lambda a: mx.topk(a, 2, None),
    ],
)  # fmt: skip
def test_batches_equal_a_loop(function, batch):
    check_batching(function, numbers(3, 4, 5).astype(np.float32), axes=(batch,))


@pytest.mark.parametrize("axes", [(None, 0), (0, 0), (1, None)])
def test_batches_of_searches_equal_a_loop(axes):
    sequences, values = (
        np.sort(numbers(4, 4).astype(np.float32), 1 - (axes[0] or 0)),
        numbers(4, 6, seed=2).astype(np.float32),
    )
    if axes[0] is None:
        sequences = sequences[0]
    check_batching(lambda a, v: mx.searchsorted(a, v), sequences, values, axes=axes)
