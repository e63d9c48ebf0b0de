"""Convolutions against the reference and against their own linearity; derivatives of every geometry."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import outlive.core as mx
from tests.ops.rules import batch_axes, batched, check_batching, check_derivatives, numbers
from tests.reference import Array, Call
from tests.reference.compare import assert_same_outcome
from tests.reference.wire import Side

OURS = Side(mx)


@st.composite
def geometries(draw) -> tuple[tuple[int, ...], tuple[int, ...], dict]:
    """(input shape, weight shape, options) of a convolution that has a result."""
    count = draw(st.integers(1, 3))
    # the reference serves groups in one and two dimensions, without input dilation
    groups = draw(st.integers(1, 3)) if count < 3 else 1
    several = lambda low, high: [draw(st.integers(low, high)) for _ in range(count)]  # noqa: E731
    taps, dilation = several(1, 3), several(1, 2)
    spread = [1] * count if groups > 1 else several(1, 3)
    sides = (several(0, 3), several(0, 2))
    spatial = [draw(st.integers(d * (k - 1) + 1, 7)) for k, d in zip(taps, dilation, strict=True)]
    channels, outputs = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    options = {
        "stride": several(1, 3),
        "padding": sides,
        "kernel_dilation": dilation,
        "input_dilation": spread,
        "groups": groups,
        "flip": draw(st.booleans()),
    }
    return (2, *spatial, groups * channels), (groups * outputs, *taps, channels), options


def whole(*shape: int, seed: int = 0) -> np.ndarray:
    """Small integers as float32: every sum of their products is exact."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32)


@given(case=geometries())
def test_conv_general_equals_the_reference_exactly_on_integers(reference, case):
    x, w, options = case
    call = Call("conv_general", (Array.of(whole(*x)), Array.of(whole(*w, seed=1))), options)
    assert_same_outcome(OURS.perform(call), reference.batch([call])[0], "", context=case)


@given(case=geometries(), kind=st.sampled_from(["float16", "bfloat16"]))
def test_half_precision_is_accumulated_in_float32(case, kind):
    x, w, options = case
    dtype = getattr(mx, kind)
    made = mx.conv_general(mx.array(whole(*x), dtype), mx.array(whole(*w, seed=1), dtype), **options)
    exact = mx.conv_general(mx.array(whole(*x)), mx.array(whole(*w, seed=1)), **options).astype(dtype)
    assert mx.array_equal(made, exact).item()


@given(case=geometries())
def test_derivatives_are_the_adjoints_of_the_convolution(case):
    x_shape, w_shape, options = case
    x, w = mx.array(whole(*x_shape)), mx.array(whole(*w_shape, seed=1))
    convolve = lambda a, b: mx.conv_general(a, b, **options)  # noqa: E731
    out = convolve(x, w)
    cotangent = mx.array(whole(*out.shape, seed=2))
    dx, dw = mx.array(whole(*x_shape, seed=3)), mx.array(whole(*w_shape, seed=4))
    toward_x, toward_w = mx.vjp(convolve, [x, w], [cotangent])[1]
    assert (toward_x * dx).sum().item() == (cotangent * convolve(dx, w)).sum().item()
    assert (toward_w * dw).sum().item() == (cotangent * convolve(x, dw)).sum().item()


def f(*shape: int) -> Array:
    return Array.of(whole(*shape))


CALLS = [
    Call("conv1d", (f(2, 10, 4), f(6, 3, 4))),
    Call("conv1d", (f(2, 10, 4), f(6, 3, 2)), {"groups": 2}),
    Call("conv1d", (f(2, 10, 4), f(6, 3, 3))),
    Call("conv1d", (f(2, 10, 4), f(5, 3, 2)), {"groups": 2}),
    Call("conv1d", (f(2, 10), f(5, 3, 2))),
    Call("conv1d", (f(2, 2, 4), f(5, 3, 4))),
    Call("conv1d", (f(2, 10, 4), f(5, 3, 4)), {"stride": 0}),
    Call("conv1d", (f(2, 10, 4), f(5, 3, 4)), {"dilation": 0}),
    Call("conv1d", (f(2, 10, 4), f(5, 3, 4)), {"padding": -1}),
    Call("conv1d", (f(0, 10, 4), f(5, 3, 4))),
    Call("conv1d", (Array.of(np.ones((2, 10, 4), np.int32)), Array.of(np.ones((5, 3, 4), np.int32)))),
    Call("conv2d", (f(2, 10, 9, 4), f(6, 3, 2, 4)), {"stride": (2, 1), "padding": (1, 0), "dilation": (2, 3)}),
    Call("conv3d", (f(2, 5, 6, 4, 2), f(3, 3, 2, 1, 2)), {"stride": 2}),
    Call("conv_general", (f(2, 10, 4), f(6, 3, 4)), {"padding": ([-1], [2])}),
    Call("conv_transpose1d", (f(2, 10, 4), f(6, 3, 4)), {"stride": 2, "padding": 1, "output_padding": 1}),
    Call("conv_transpose1d", (f(2, 10, 4), f(6, 3, 2)), {"groups": 2}),
    Call("conv_transpose2d", (f(2, 5, 4, 3), f(4, 3, 3, 3)), {"stride": (2, 1), "padding": 1, "dilation": 2, "output_padding": (1, 0)}),
    Call("conv_transpose3d", (f(2, 3, 5, 4, 3), f(4, 3, 3, 3, 3)), {"stride": (2, 1, 1), "padding": 1}),
    Call("convolve", (f(7), f(3))),
    Call("convolve", (f(3), f(7), "same")),
    Call("convolve", (f(7), f(4), "same")),
    Call("convolve", (f(7), f(3), "valid")),
    Call("convolve", (f(7), f(0))),
]  # fmt: skip


@pytest.mark.parametrize("call", CALLS, ids=lambda c: f"{c.name}{c.kwargs}")
def test_calls_equal_the_reference(reference, call):
    assert_same_outcome(OURS.perform(call), reference.batch([call])[0], "", context=call)


def test_a_convolution_of_ones_counts_its_window_after_other_work_reused_the_memory():
    x, w = mx.ones((1, 4, 4, 4, 3)), mx.ones((5, 2, 2, 2, 3))
    made = [mx.conv3d(x, w, padding=1) for _ in range(20)]
    mx.async_eval(made)
    mx.eval([mx.full((64,), 128.0) for _ in range(50)])
    assert {y.max().item() for y in made} == {24.0}
    assert {y.min().item() for y in made} == {3.0}


def test_a_long_input_is_convolved_in_blocks():
    x, w = whole(1, 200_000, 3), whole(2, 5, 3, seed=1)
    found = np.array(mx.conv1d(mx.array(x), mx.array(w)))
    wanted = sum(x[0, i : 199_996 + i] @ w[:, i].T for i in range(5))
    np.testing.assert_array_equal(found[0], wanted)


RULES = {
    "conv1d": (lambda x, w: mx.conv1d(x, w, stride=2, padding=1), (2, 7, 3), (4, 3, 3)),
    "conv2d in groups": (
        lambda x, w: mx.conv2d(x, w, stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=2),
        (2, 5, 6, 4),
        (4, 3, 2, 2),
    ),
    "conv3d": (mx.conv3d, (1, 3, 3, 3, 2), (2, 2, 2, 2, 2)),
    "conv_general": (
        lambda x, w: mx.conv_general(x, w, stride=2, padding=([1, 0], [2, 1]), input_dilation=2, flip=True),
        (1, 4, 3, 2),
        (2, 2, 2, 2),
    ),
    "conv_transpose2d": (
        lambda x, w: mx.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1),
        (1, 4, 3, 2),
        (2, 3, 3, 2),
    ),
    "convolve": (mx.convolve, (5,), (3,)),
}


@pytest.mark.parametrize("name", RULES)
def test_derivatives_equal_differences(name):
    function, *sizes = RULES[name]
    check_derivatives(function, *[numbers(*s, seed=3 + i) for i, s in enumerate(sizes)])


@pytest.mark.parametrize("name", RULES)
def test_batches_equal_a_loop(name):
    function, *sizes = RULES[name]
    for axes in batch_axes(sizes):
        check_batching(function, *batched(sizes, axes), axes=axes, tolerance=1e-4)
