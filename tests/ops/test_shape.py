"""Shapes, joins and cuts: the reference's results and errors, and views that never change what they show."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import outlive.core as mx
from outlive.ops.shape import view_strides
from outlive.runtime.layout import strided_layout
from tests.ops.rules import batch_axes, batched, check_batching, check_derivatives, numbers
from tests.reference import Array, Call, Program
from tests.reference.compare import assert_same_outcome
from tests.reference.strategies import NUMBERS, arrays, dtypes, shapes
from tests.reference.wire import Side

OURS = Side(mx)


def same(reference, call, op: str = "") -> None:
    assert_same_outcome(OURS.perform(call), reference.batch([call])[0], op, context=call)


@st.composite
def factors(draw, size: int) -> tuple[int, ...]:
    """A shape of `size` elements."""
    if not size:
        return draw(st.sampled_from([(0,), (0, 3), (2, 0), (1, 0, 4)]))
    shape = []
    rest = size
    while rest > 1:
        found = draw(st.sampled_from([n for n in range(2, rest + 1) if rest % n == 0]))
        shape.append(found)
        rest //= found
    for _ in range(draw(st.integers(0, 2))):
        shape.insert(draw(st.integers(0, len(shape))), 1)
    return tuple(shape)


@given(data=st.data(), dtype=dtypes(NUMBERS), shape=shapes(elements_max=512))
def test_reshape_of_any_view_keeps_the_order_of_elements(reference, data, dtype, shape):
    a = data.draw(arrays(dtype, shape))
    same(reference, Call("reshape", (a, data.draw(factors(math.prod(shape))))))


@given(data=st.data(), shape=shapes(elements_max=256))
def test_strides_of_a_view_exist_exactly_where_numpy_finds_them(data, shape):
    base = data.draw(arrays("int32", shape)).resolved()
    wanted = data.draw(factors(base.size))
    strides = view_strides(strided_layout(base.shape, tuple(s // 4 for s in base.strides), mx.int32), wanted)
    seen = base.view()
    try:
        seen.shape = wanted
    except AttributeError:
        assert strides is None
        return
    if strides is not None:
        shown = np.lib.stride_tricks.as_strided(base, wanted, tuple(4 * s for s in strides))
        np.testing.assert_array_equal(shown, base.reshape(wanted))


@given(data=st.data(), dtype=dtypes(NUMBERS), shape=shapes(rank_min=1, elements_max=512))
def test_rearranging_axes_equals_the_reference(reference, data, dtype, shape):
    a = data.draw(arrays(dtype, shape))
    axis = st.integers(-len(shape) - 1, len(shape))
    name = data.draw(st.sampled_from(["transpose", "swapaxes", "moveaxis", "expand_dims", "squeeze", "flip", "roll"]))
    if name == "transpose":
        arguments = (a, data.draw(st.permutations(range(len(shape)))))
    elif name in ("swapaxes", "moveaxis"):
        arguments = (a, data.draw(axis), data.draw(axis))
    elif name == "roll":
        arguments = (a, data.draw(st.integers(-70, 70)), data.draw(st.integers(-len(shape), len(shape) - 1)))
    else:
        arguments = (a, data.draw(axis))
    same(reference, Call(name, arguments))


@given(data=st.data(), dtype=dtypes(NUMBERS), shape=shapes(rank_min=1, rank_max=3, elements_max=256))
def test_concatenate_and_stack_equal_the_reference(reference, data, dtype, shape):
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    parts = []
    for _ in range(data.draw(st.integers(1, 3))):
        part = list(shape)
        part[axis] = data.draw(st.sampled_from((0, 1, 3)))
        parts.append(data.draw(arrays(dtype, tuple(part))))
    same(reference, Call("concatenate", (parts, axis)))
    equal = [data.draw(arrays(dtype, shape)) for _ in range(2)]
    same(reference, Call("stack", (equal, axis)))


@given(data=st.data(), dtype=dtypes(NUMBERS), shape=shapes(rank_min=1, rank_max=3, side_min=1, elements_max=64))
def test_pad_repeat_and_tile_equal_the_reference(reference, data, dtype, shape):
    a = data.draw(arrays(dtype, shape))
    width = st.integers(0, 4)
    pairs = [(data.draw(width), data.draw(width)) for _ in shape]
    mode = data.draw(st.sampled_from(["constant", "edge", "reflect", "symmetric"]))
    same(reference, Call("pad", (a, pairs, mode)))
    count, axis = data.draw(width), data.draw(st.integers(-len(shape), len(shape) - 1))
    same(reference, Call("repeat", (a, count, axis)))
    same(reference, Call("tile", (a, [data.draw(width) for _ in range(data.draw(st.integers(0, 4)))])))


@given(data=st.data(), dtype=dtypes(NUMBERS), shape=shapes(rank_min=1, rank_max=3, elements_max=128))
def test_split_equals_the_reference(reference, data, dtype, shape):
    a = data.draw(arrays(dtype, shape))
    cuts = data.draw(st.one_of(st.integers(0, 4), st.lists(st.integers(-9, 9), max_size=3)))
    same(reference, Call("split", (a, cuts, data.draw(st.integers(-len(shape), len(shape) - 1)))))


CALLS = [
    Call("reshape", (Array.of(np.zeros((0, 3), np.float32)), (0, -1))),
    Call("reshape", (Array.of(np.arange(6)), (-1, -1))),
    Call("reshape", (Array.of(np.arange(6)), (4, -1))),
    Call("unflatten", (Array.of(np.zeros((2, 12), np.float32)), 1, (3, -1))),
    Call("unflatten", (Array.of(np.zeros((2, 12), np.float32)), 1, (5, -1))),
    Call("flatten", (Array.of(np.zeros((2, 3, 4), np.float32)), 1)),
    Call("flatten", (Array.of(np.array(1.0, np.float32)),)),
    Call("flatten", (Array.of(np.zeros((2, 3), np.float32)), 1, 0)),
    Call("broadcast_to", (Array.of(np.zeros((2, 3), np.float32)), (2, 4))),
    Call("broadcast_to", (Array.of(np.zeros((2, 3), np.float32)), (3,))),
    Call("broadcast_to", (Array.of(np.arange(3)), (2, 3))),
    Call("transpose", (Array.of(np.zeros((2, 3), np.float32)), (0, 0))),
    Call("transpose", (Array.of(np.zeros((2, 3), np.float32)), (0, 5))),
    Call("concatenate", ([],)),
    Call("concatenate", ([Array.of(np.zeros(2, np.float32)), Array.of(np.zeros((2, 3), np.float32))],)),
    Call("stack", ([Array.of(np.zeros(2, np.float32)), Array.of(np.zeros(3, np.float32))],)),
    Call("concatenate", ([Array.of(np.zeros(2, np.int8)), Array.of(np.zeros(3, np.float16))],)),
    Call("pad", (Array.of(np.arange(3)), -1)),
    Call("pad", (Array.of(np.arange(3)), (1, 2), "wrap")),
    Call("diff", (Array.of(np.array([1, 4, 9])), 2)),
    Call("diff", (Array.of(np.array([1, 4, 9])), 5)),
    Call("diff", (Array.of(np.array([True, False, True])),)),
    Call("atleast_3d", (Array.of(np.arange(3)),)),
    Call("atleast_2d", (Array.of(np.arange(3)), Array.of(np.array(1)))),
    Call("matrix_transpose", (Array.of(np.arange(3)),)),
    Call("unstack", (Array.of(np.arange(6).reshape(2, 3)),), {"axis": 1}),
    Call("broadcast_arrays", (Array.of(np.zeros((2, 1), np.float32)), Array.of(np.arange(3)))),
    Call("broadcast_shapes", ((2, 1), (3,))),
    Call("broadcast_shapes", ((2,), (3,))),
    Call("as_strided", (Array.of(np.arange(10)), (3, 3), (1, 2), 1)),
    Call("as_strided", (Array.of(np.arange(10)), (5,), (-1,), 5)),
    Call("hadamard_transform", (Array.of(np.arange(24, dtype=np.float32)), 1.0)),
    Call("hadamard_transform", (Array.of(np.arange(56, dtype=np.float32)), 1.0)),
    Call("hadamard_transform", (Array.of(np.eye(20, dtype=np.float32)), 1.0)),
    Call("hadamard_transform", (Array.of(np.zeros(9, np.float32)),)),
    Call("unique", (Array.of(np.array([5, 3, 1, 1])), 2, True, True, True)),
    Call("unique", (Array.of(np.array([[3, 1], [1, 2]])), 4, True, True, True, 9)),
    Call("unique", (Array.of(np.array([np.nan, 1, np.nan], np.float32)), 4, False, True, True)),
]  # fmt: skip


@pytest.mark.parametrize("call", CALLS, ids=lambda c: f"{c.name}{c.args}"[:60])
def test_calls_equal_the_reference(reference, call):
    same(reference, call)


def test_as_strided_refuses_elements_outside_of_the_array():
    with pytest.raises(ValueError, match=r"\[as_strided\].*elements 0 to 16 of an array with 4"):
        mx.as_strided(mx.arange(4), (3, 3), (4, 4))


def test_a_reshaped_handle_is_another_handle():
    a = mx.array([1, 2])
    for same_values in (a.reshape(2), mx.squeeze(a), mx.broadcast_to(a, (2,)), mx.transpose(a), mx.array(a), a[...]):
        same_values[0] = 9
    assert a.tolist() == [1, 2]


def test_contiguous_of_a_small_part_lets_the_large_buffer_go():
    mx.synchronize()
    before = mx.get_active_memory()
    large = mx.zeros((1 << 20,)) + 1
    small = mx.contiguous(large[-2:])
    mx.eval(small)
    del large
    assert mx.get_active_memory() - before < 1 << 16
    assert small.tolist() == [1, 1]


def test_depends_computes_its_dependencies_first():
    a, b = mx.ones(3), mx.ones(3) * 2
    made = mx.depends(a + 1, b)
    mx.eval(made)
    assert b._node.data is not None
    assert mx.depends([a, b], [a])[1].tolist() == [2, 2, 2]


RULES = {
    "reshape": (lambda a: mx.reshape(a, (4, -1)), (3, 4)),
    "reshape of a view": (lambda a: mx.reshape(mx.transpose(a), (4, -1)), (3, 4)),
    "transpose": (lambda a: mx.transpose(a, (2, 0, 1)), (2, 3, 4)),
    "broadcast_to": (lambda a: mx.broadcast_to(a, (5, 2, 3)), (2, 1)),
    "concatenate": (lambda a, b: mx.concatenate([a, b], axis=1), (2, 3), (2, 2)),
    "stack": (lambda a, b: mx.stack([a, b], axis=1), (2, 3), (2, 3)),
    "pad": (lambda a: mx.pad(a, [(1, 2), (0, 1)], constant_values=2.0), (2, 3)),
    "pad with an array": (lambda a, v: mx.pad(a, [(1, 2), (0, 1)], constant_values=v), (2, 3), ()),
    "pad reflecting": (lambda a: mx.pad(a, [(1, 2), (0, 1)], "reflect"), (3, 3)),
    "repeat": (lambda a: mx.repeat(a, 3, 1), (2, 3)),
    "tile": (lambda a: mx.tile(a, (2, 2)), (2, 3)),
    "roll": (lambda a: mx.roll(a, 2, 1), (2, 3)),
    "as_strided": (lambda a: mx.as_strided(a, (3, 3), (1, 2), 1), (3, 4)),
    "contiguous": (lambda a: mx.contiguous(a.T), (3, 4)),
    "hadamard_transform": (mx.hadamard_transform, (2, 24)),
    "depends": (lambda a, b: mx.depends(a * 2, b), (3,), (3,)),
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


def test_programs_of_pieces_equal_the_reference(reference):
    program = Program(
        "x = mx.transpose(a, (2, 0, 1))\n"
        "parts = mx.split(x, 2, axis=2)\n"
        "out = [mx.concatenate(parts[::-1], axis=2).reshape(-1)[::3], mx.roll(x, 2), mx.tile(parts[0], (2, 1, 1)).sum(0)]",
        {"a": Array.of(np.arange(24, dtype=np.float32).reshape(2, 4, 3))},
    )
    same(reference, program)
