"""Fourier transforms: NumPy's results and the reference's errors; adjoints; short-time transforms that invert."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import outlive.core as mx
from tests.budget import examples
from tests.ops.rules import check_batching, numbers
from tests.reference import Array, Call, Program
from tests.reference.compare import assert_same_outcome
from tests.reference.strategies import arrays, dtypes, shapes
from tests.reference.wire import Side

OURS = Side(mx)
ONE = ["fft", "ifft", "rfft", "irfft"]
MANY = ["fftn", "ifftn", "rfftn", "irfftn"]
NORMS = ["backward", "ortho", "forward"]


def same(reference, call, op: str = "") -> None:
    assert_same_outcome(OURS.perform(call), reference.batch([call])[0], op, context=call)


def near(got: np.ndarray, want: np.ndarray) -> None:
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=0, atol=2e-6 * max(1.0, np.abs(want).max(initial=0.0)))


@pytest.mark.parametrize("op", ONE)
@pytest.mark.parametrize("norm", NORMS)
@settings(max_examples=examples(20))
@given(
    data=st.data(),
    dtype=dtypes(("bool", "int32", "float16", "float32", "complex64")),
    shape=shapes(rank_min=1, side_min=1),
)
def test_transforms_along_one_axis_equal_numpys(op, norm, data, dtype, shape):
    if dtype == "complex64" and op == "rfft":
        dtype = "float32"
    a = data.draw(arrays(dtype, shape, special=False))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    n = data.draw(st.none() | st.integers(1, 70)) if shape[axis] > 1 else data.draw(st.integers(1, 70))
    want = getattr(np.fft, op)(a.values().astype(np.complex128 if dtype == "complex64" else np.float64), n, axis, norm)
    got = OURS.perform(Call(f"fft.{op}", (a, n, axis, norm))).value
    assert got.dtype == ("float32" if op == "irfft" else "complex64")
    near(got.values(), want)


@pytest.mark.parametrize("op", MANY)
@settings(max_examples=examples(40))
@given(data=st.data(), shape=shapes(rank_min=1, side_min=1, elements_max=1024), norm=st.sampled_from(NORMS))
def test_transforms_along_several_axes_equal_numpys(op, data, shape, norm):
    a = data.draw(arrays("float32", shape, special=False))
    axes = data.draw(st.permutations(range(len(shape))))[: data.draw(st.integers(1, len(shape)))]
    some = st.lists(st.integers(1, 9), min_size=len(axes), max_size=len(axes))
    lengths = data.draw(st.none() | some if shape[axes[-1]] > 1 else some)
    want = getattr(np.fft, op)(a.values().astype(np.float64), lengths, axes, norm)
    near(OURS.perform(Call(f"fft.{op}", (a, lengths, axes, norm))).value.values(), want)
    if len(shape) == 2 and shape[-1] > 1:
        two = {"fftn": "fft2", "ifftn": "ifft2", "rfftn": "rfft2", "irfftn": "irfft2"}[op]
        want = getattr(np.fft, two)(a.values().astype(np.float64), norm=norm)
        near(OURS.perform(Call(f"fft.{two}", (a,), {"norm": norm})).value.values(), want)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 63, 64, 65, 500, 509])
def test_transforms_of_odd_and_prime_lengths_invert(n):
    x = numbers(3, n).astype(np.float32)
    near(np.array(mx.fft.irfft(mx.fft.rfft(mx.array(x)), n)), x)
    near(np.array(mx.real(mx.fft.ifft(mx.fft.fft(mx.array(x))))), x)


@pytest.mark.parametrize(
    "call",
    [
        Call("fft.fft", (Array.of(np.arange(4.0)), 0)), Call("fft.fft", (Array.of(np.arange(4.0)), -1)),
        Call("fft.fft", (Array.of(np.arange(4.0)), None, 2)), Call("fft.fft", (Array.of(np.array(1.0)),)),
        Call("fft.fft", (Array.of(np.arange(4.0)),), {"norm": "other"}), Call("fft.fft", (Array.of(np.zeros(0)),)),
        Call("fft.fftn", (Array.of(np.eye(3)), None, [0, 0])), Call("fft.fftn", (Array.of(np.eye(3)), [2], [0, 1])),
        Call("fft.fftn", (Array.of(np.eye(3)), [2, 2])), Call("fft.fft2", (Array.of(np.arange(4.0)),)),
        Call("fft.irfft", (Array.of(np.ones(1)),)), Call("fft.fftfreq", (0,)), Call("fft.rfftfreq", (-1,)),
        Call("fft.fftshift", (Array.of(np.eye(3)), 5)), Call("fft.stft", (Array.of(np.arange(8.0)),), {"n_fft": 0}),
        Call("fft.stft", (Array.of(np.arange(8.0)),), {"n_fft": 4, "hop_length": 0}),
        Call("fft.stft", (Array.of(np.arange(8.0)),), {"n_fft": 4, "win_length": 5}),
        Call("fft.stft", (Array.of(np.arange(3.0)),), {"n_fft": 8, "center": False}),
        Call("fft.stft", (Array.of(np.arange(8.0)),), {"n_fft": 4, "pad_mode": "other"}),
        Call("fft.stft", (Array.of(np.array(1.0)),)), Call("fft.istft", (Array.of(np.arange(8.0)),)),
    ],
)  # fmt: skip
def test_what_has_no_transform_is_refused_as_in_the_reference(reference, call):
    same(reference, call)


@pytest.mark.parametrize("op", ["fftfreq", "rfftfreq"])
@pytest.mark.parametrize("n", [1, 2, 5, 8, 65])
def test_frequencies_equal_the_reference(reference, op, n):
    same(reference, Call(f"fft.{op}", (n,)))
    same(reference, Call(f"fft.{op}", (n, 0.25)))


@pytest.mark.parametrize("op", ["fftshift", "ifftshift"])
@settings(max_examples=examples(30))
@given(data=st.data(), shape=shapes(elements_max=256))
def test_shifts_equal_the_reference(reference, op, data, shape):
    a = data.draw(arrays("float32", shape))
    axes = data.draw(
        st.none() | st.lists(st.integers(0, len(shape) - 1), unique=True, min_size=1) if shape else st.none()
    )
    same(reference, Call(f"fft.{op}", (a, axes)))


@pytest.mark.parametrize(
    "options",
    [
        {"n_fft": 8}, {"n_fft": 8, "hop_length": 3}, {"n_fft": 7, "hop_length": 2}, {"n_fft": 8, "center": False},
        {"n_fft": 8, "win_length": 5}, {"n_fft": 8, "norm": "ortho"}, {"n_fft": 8, "onesided": False},
        {"n_fft": 8, "pad_mode": "constant"}, {"n_fft": 8, "pad_mode": "edge"}, {"n_fft": 64},
    ],
)  # fmt: skip
def test_short_time_transforms_equal_the_reference(reference, options):
    x = Array.of(numbers(2, 33).astype(np.float32))
    call = Call("fft.stft", (x,), options)
    near(OURS.perform(call).value.values(), reference.batch([call])[0].value.values())


@pytest.mark.parametrize("window", [None, np.hanning(9)[:-1].astype(np.float32) + 0.1])
@pytest.mark.parametrize("onesided", [True, False])
@pytest.mark.parametrize("length", [None, 20, 60])
def test_short_time_transforms_invert(reference, window, onesided, length):
    x = numbers(2, 48).astype(np.float32)
    options = {"n_fft": 8, "window": None if window is None else Array.of(window), "onesided": onesided}
    spectrum = OURS.perform(Call("fft.stft", (Array.of(x),), options)).value
    call = Call("fft.istft", (spectrum,), {**options, "length": length})
    got = OURS.perform(call).value.values()
    near(got, reference.batch([call])[0].value.values())
    shown = min(48, length or 48)
    near(got[:, :shown], x[:, :shown])


ADJOINTS = [
    "mx.fft.fft(x)", "mx.fft.ifft(x)", "mx.fft.fft(x, norm='ortho')", "mx.fft.rfft(mx.real(x))", "mx.fft.irfft(x)",
    "mx.fft.irfft(x, n=7)", "mx.fft.rfft(mx.real(x), n=9)", "mx.fft.fft(x, n=3)", "mx.fft.fftn(x)", "mx.fft.rfftn(mx.real(x))",
    "mx.fft.irfftn(x)", "mx.fft.irfft(x, norm='forward')",
]  # fmt: skip


@pytest.mark.parametrize("text", ADJOINTS)
def test_cotangents_equal_the_references(reference, text):
    rng = np.random.default_rng(5)
    x = Array.of((rng.standard_normal((3, 5)) + 1j * rng.standard_normal((3, 5))).astype(np.complex64))
    program = Program(
        f"y = {text}\nw = mx.cos(mx.arange(y.size)).reshape(y.shape)\n"
        f"out = mx.grad(lambda x: (mx.real({text}) * w + mx.imag({text}) * (w + 1)).sum())(x)",
        {"x": x},
    )
    near(OURS.perform(program).value.values(), reference.batch([program])[0].value.values())


@pytest.mark.parametrize("text", ADJOINTS)
def test_tangents_are_the_transform_of_the_tangent(text):
    function = eval(f"lambda x: {text}", {"mx": mx})
    rng = np.random.default_rng(6)
    x, t = (
        mx.array((rng.standard_normal((3, 5)) + 1j * rng.standard_normal((3, 5))).astype(np.complex64))
        for _ in range(2)
    )
    near(np.array(mx.jvp(function, [x], [t])[1][0]), np.array(function(t)))


@pytest.mark.parametrize("batch", [0, 1, 2])
def test_batches_equal_a_loop(batch):
    x = numbers(3, 4, 6).astype(np.float32)
    for function in (
        lambda a: mx.real(mx.fft.fft(a, axis=0)), lambda a: mx.imag(mx.fft.rfft(a)), lambda a: mx.fft.irfft(a, axis=0),
        lambda a: mx.imag(mx.fft.rfftn(a)), lambda a: mx.fft.irfftn(a),
    ):  # fmt: skip
        check_batching(function, x, axes=(batch,))
