"""Indexing and assignment against NumPy; gathers and scatters; updates in place, and what they must not change."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import outlive.core as mx
from outlive.runtime.encoder import NEVER, Donation
from outlive.runtime.errors import ExecutionError
from tests.ops.rules import batch_axes, batched, check_batching, check_derivatives, numbers
from tests.reference import Array, Call
from tests.reference.compare import assert_same_outcome
from tests.reference.strategies import shapes
from tests.reference.wire import Side

OURS = Side(mx)


@st.composite
def indices(draw, shape: tuple[int, ...]) -> tuple:
    """An index of an array of `shape`: integers, slices, None, index arrays that broadcast together, one ellipsis."""
    common = draw(st.sampled_from([(2,), (3, 1), (2, 2), (1,), ()]))
    items: list = []
    used = draw(st.integers(0, len(shape)))
    for n in shape[:used]:
        kind = draw(st.sampled_from(["integer", "slice", "slice", "array", "whole"]))
        if kind == "integer" and n:
            items.append(draw(st.integers(-n, n - 1)))
        elif kind == "array" and n:
            size = draw(st.sampled_from([common, common[-1:], (1,) * len(common)]))
            seed = draw(st.integers(0, 1000))
            found = np.random.default_rng(seed).integers(-n, n, size=size)
            items.append(found.astype(draw(st.sampled_from([np.int32, np.int64]))))
        elif kind == "slice":
            end = st.one_of(st.none(), st.integers(-n - 2, n + 2))
            items.append(slice(draw(end), draw(end), draw(st.sampled_from([None, 1, 2, -1, -3]))))
        else:
            items.append(slice(None))
        if draw(st.integers(0, 6)) == 0:
            items.append(None)
    if draw(st.booleans()):
        items.append(...)
    return tuple(items)


def ours(index: tuple) -> tuple:
    return tuple(mx.array(i) if isinstance(i, np.ndarray) else i for i in index)


def by_arrays(index: tuple) -> bool:
    return any(isinstance(i, np.ndarray) for i in index)


@settings(max_examples=600)
@given(data=st.data(), shape=shapes(elements_max=512))
def test_getitem_equals_numpy(data, shape):
    host = np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape)
    index = data.draw(indices(shape))
    wanted = host[index]
    found = mx.array(host)[ours(index)]
    assert found.shape == wanted.shape
    np.testing.assert_array_equal(np.array(found), wanted)


@settings(max_examples=600)
@given(data=st.data(), shape=shapes(elements_max=512), dtype=st.sampled_from(["int32", "float32", "bfloat16", "bool_"]))
def test_setitem_equals_numpy_and_is_seen_by_this_handle_alone(data, shape, dtype):
    host = np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape) % 50
    index = data.draw(indices(shape))
    size = host[index].shape
    value = np.full(data.draw(st.sampled_from([size, (), size[-1:], (1, *size)])), 77, np.int32)
    kind = getattr(mx, dtype)
    a = mx.array(host, dtype=kind)
    other, alias = mx.array(a), a
    a[ours(index)] = mx.array(value)
    wanted = np.array(mx.array(host, dtype=kind))
    before = wanted.copy()
    wanted[index] = np.array(mx.array(value, dtype=kind)).reshape(value.shape[-len(size) :] if size else ())
    np.testing.assert_array_equal(np.array(a), wanted)
    np.testing.assert_array_equal(np.array(other), before)
    assert alias is a


@settings(max_examples=300)
@given(data=st.data(), shape=shapes(rank_min=1, elements_max=512), mode=st.sampled_from(["add", "subtract", "maximum"]))
def test_updates_at_repeated_indices_count_each_time(data, shape, mode):
    host = np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape)
    index = data.draw(indices(shape))
    value = np.random.default_rng(3).integers(-5, 500, size=host[index].shape).astype(np.int32)
    found = getattr(mx.array(host).at[ours(index)], mode)(mx.array(value))
    wanted = host.copy()
    getattr(np, mode).at(wanted, index, value)
    np.testing.assert_array_equal(np.array(found), wanted)


def test_updates_of_halves_are_summed_without_saturation():
    places = mx.array([0] * 5000 + [1])
    for kind, wanted in ((mx.float16, [5000, 1, 0]), (mx.bfloat16, [4992, 1, 0])):
        assert mx.zeros((3,), kind).at[places].add(1.0).tolist() == wanted


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "int32"])
def test_assignment_writes_into_the_arrays_own_buffer(kind):
    a = mx.zeros((100, 7), getattr(mx, kind))
    mx.eval(a)
    place = a._node.data.operand.pointer
    for step in range(3):
        a[step] = step + 1
        a[mx.array([9, 9, 8])] = 5
        a[:, 1] += 1
        mx.eval(a)
        assert a._node.data.operand.pointer == place or Donation.node == NEVER


def test_assignment_to_an_array_that_others_read_goes_to_a_copy():
    a = mx.zeros(8)
    view, lease = a[2:5], np.asarray(a)
    mx.eval(view)
    a[...] = 1
    a[3] = 7
    assert view.tolist() == [0, 0, 0]
    assert lease.tolist() == [0] * 8
    assert a.tolist() == [1, 1, 1, 7, 1, 1, 1, 1]


def test_an_array_may_be_assigned_to_itself_shifted():
    a = mx.arange(6)
    a[1:] = a[:-1]
    assert a.tolist() == [0, 0, 1, 2, 3, 4]
    a[::-1] = a
    assert a.tolist() == [4, 3, 2, 1, 0, 0]


MASKS = [
    (np.array([[True, False, True], [False, True, True]]), np.float32(5)),
    (np.array([[True, False, True], [False, True, True]]), np.arange(1, 5, dtype=np.float32)),
    (np.array([True, False]), np.arange(3, dtype=np.float32)),
    (np.array([True, True]), np.array([[1], [2]], np.float32)),
    (np.array([False, False]), np.zeros((0, 3), np.float32)),
]


@pytest.mark.parametrize(("mask", "value"), MASKS)
def test_assignment_under_a_mask_equals_numpy(mask, value):
    host = np.zeros((2, 3), np.float32)
    a = mx.array(host)
    a[mx.array(mask)] = mx.array(value)
    host[mask] = value
    np.testing.assert_array_equal(np.array(a), host)


ERRORS = [
    (lambda a: a[2], IndexError, r"\[getitem\] Index 2 is out of range for axis 0 of shape \(2, 3\)"),
    (lambda a: a[0, -4], IndexError, "Index -4 is out of range for axis 1"),
    (lambda a: a[0, 0, 0], ValueError, "3 indices are too many"),
    (lambda a: a[..., ...], ValueError, "one ellipsis"),
    (lambda a: a[::0], ValueError, "step of a slice cannot be 0"),
    (lambda a: a[1.5], ValueError, "Cannot index with a float"),
    (lambda a: a["x"], ValueError, "Cannot index with a str"),
    (lambda a: a[1.5:], ValueError, "must be integers or None"),
    (lambda a: a[mx.array([0.5])], ValueError, "Indices must be integers; got an array of float32"),
    (lambda a: a[mx.array([True, False])], ValueError, "boolean mask"),
    (lambda a: a[mx.array([0, 1]), mx.array([0, 1, 2])], ValueError, "cannot be broadcast"),
    (lambda a: mx.take(a, 5, axis=1), IndexError, r"\[take\] Index 5"),
    (lambda a: mx.take(a, mx.array([0]), axis=5), IndexError, r"\[take\] Axis 5"),
    (lambda a: mx.take(mx.zeros((0, 3)), mx.array([0]), axis=0), ValueError, "empty"),
    (lambda a: mx.take_along_axis(a, mx.array([0, 5])), ValueError, "as many axes"),
    (lambda a: a.__setitem__(0, mx.zeros((4,))), ValueError, "does not fit the indexed part of shape"),
    (lambda a: a.__setitem__(mx.array([True, False, True]), 1), ValueError, "does not fit the beginning"),
    (lambda a: a.at.add(1), ValueError, "Give an index first"),
    (lambda a: mx.slice(a, mx.array([0.5]), [0], [1, 2]), ValueError, "must be integers"),
    (lambda a: mx.slice(a, mx.array([1]), [0], [5, 2]), ValueError, "does not fit into an array"),
]


@pytest.mark.parametrize(("use", "error", "text"), ERRORS)
def test_a_bad_index_is_refused_at_once_in_one_sentence(use, error, text):
    with pytest.raises(error, match=text):
        use(mx.zeros((2, 3)))


def test_an_index_array_out_of_range_is_an_error_of_its_result_at_each_read():
    a = mx.arange(3)
    for bad in (
        a[mx.array([7])],
        mx.take(a, mx.array([7])),
        a.at[mx.array([7])].add(1),
        mx.take_along_axis(a, mx.array([7])),
    ):
        for _ in range(2):
            with pytest.raises(ExecutionError):
                bad.tolist()
    assert a.tolist() == [0, 1, 2]


CALLS = [
    Call("take", (Array.of(np.arange(6).reshape(2, 3)), Array.of(np.array([[2, 0]])), 1)),
    Call("take", (Array.of(np.arange(6).reshape(2, 3)), Array.of(np.array([5, 0])))),
    Call("take", (Array.of(np.arange(6).reshape(2, 3)), 1)),
    Call("take", (Array.of(np.zeros((0, 3), np.float32)), Array.of(np.zeros(0, np.int32)), 0)),
    Call("take_along_axis", (Array.of(np.arange(6).reshape(2, 3)), Array.of(np.array([[0, 2]])), 1)),
    Call("take_along_axis", (Array.of(np.arange(6).reshape(2, 3)), Array.of(np.array([0, 5])), None)),
    Call("put_along_axis", (Array.of(np.arange(6).reshape(2, 3)), Array.of(np.array([[0], [2]])), Array.of(np.array([[9], [8]])), 1)),
    Call("put_along_axis", (Array.of(np.arange(6).reshape(2, 3)), Array.of(np.array([0, 5])), Array.of(np.array([9, 8])))),
    Call("slice", (Array.of(np.arange(6).reshape(2, 3)), Array.of(np.array([1, 1])), [0, 1], [1, 2])),
    Call("slice", (Array.of(np.arange(6).reshape(2, 3)), Array.of(np.array([1, 1])), [0], [1, 2])),
    Call("slice_update", (Array.of(np.arange(6).reshape(2, 3)), Array.of(np.array([[9, 9]])), Array.of(np.array([1, 1])), [0, 1])),
    Call("slice_update", (Array.of(np.arange(6).reshape(2, 3)), Array.of(np.array([9.5, 9], np.float32)), Array.of(np.array([1])), [0])),
]  # fmt: skip


@pytest.mark.parametrize("call", CALLS, ids=lambda c: f"{c.name}{c.args}"[:60])
def test_calls_equal_the_reference(reference, call):
    assert_same_outcome(OURS.perform(call), reference.batch([call])[0], call.name, context=call)


def test_a_dynamic_slice_over_the_end_is_moved_back_inside():
    a = mx.arange(6).reshape(2, 3)
    assert mx.slice(a, mx.array([5, -1]), [0, 1], [1, 2]).tolist() == [[4, 5]]


RULES = {
    "slice": (lambda a: a[1:, ::-1], (3, 4)),
    "slice with a new axis": (lambda a: a[-1, None, 1::2], (3, 4)),
    "one index array": (lambda a: a[mx.array([2, 0, 2])], (3, 4)),
    "index arrays apart": (lambda a: a[mx.array([2, 0, 2]), :, mx.array([1, 1, 0])], (3, 2, 4)),
    "index arrays together": (lambda a: a[:, mx.array([[1, 0]]), mx.array([[2], [0]])], (3, 2, 4)),
    "take": (lambda a: mx.take(a, mx.array([[1, 1], [0, 2]]), axis=1), (2, 3, 2)),
    "take_along_axis": (lambda a: mx.take_along_axis(a, mx.array([[0, 2, 2, 1]]), axis=0), (3, 4)),
    "put_along_axis": (lambda a, v: mx.put_along_axis(a, mx.array([[0], [2]]), v, axis=1), (2, 3), (2, 1)),
    "dynamic slice": (lambda a: mx.slice(a, mx.array([1, 1]), [0, 1], [1, 2]), (3, 4)),
    "dynamic update": (lambda a, b: mx.slice_update(a, b, mx.array([1]), [1]), (3, 4), (3, 2)),
    "add at": (lambda a, v: a.at[mx.array([0, 0, 1])].add(v), (3, 4), (3, 4)),
    "subtract at": (lambda a, v: a.at[1:, mx.array([0, 0])].subtract(v), (3, 4), (2, 2)),
    "maximum at": (lambda a, v: a.at[mx.array([0, 2, 1])].maximum(v), (3, 4), (3, 4)),
    "multiply at": (lambda a, v: a.at[1:].multiply(v), (3, 4), (2, 4)),
}


@pytest.mark.parametrize("name", RULES)
def test_derivatives_equal_differences(name):
    function, *sizes = RULES[name]
    check_derivatives(function, *[numbers(*s, seed=3 + i) for i, s in enumerate(sizes)])


@pytest.mark.parametrize("name", RULES)
def test_batches_equal_a_loop(name):
    function, *sizes = RULES[name]
    for axes in batch_axes(sizes):
        check_batching(function, *batched(sizes, axes), axes=axes)


def test_batched_indices_equal_a_loop():
    places = np.array([[0, 2], [1, 1], [2, 0]], np.int32)
    a = numbers(3, 3, 4).astype(np.float32)
    for axes in ([0, 0], [None, 0], [1, 0]):
        host = a[0] if axes[0] is None else a
        check_batching(lambda x, i: x[i], host, places, axes=axes)
        check_batching(lambda x, i: x.at[i].add(1.0), host, places, axes=axes)
        check_batching(lambda x, i: mx.take(x, i, axis=1), host, places, axes=axes)


def test_assignment_inside_a_derivative_is_differentiated():
    def function(a, v):
        a = a * 2
        a[1:, mx.array([0, 2])] = v
        return a * a

    check_derivatives(function, numbers(3, 4), numbers(2, 2))
