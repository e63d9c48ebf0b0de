"""Random numbers: the reference's, key for key; the state is live and safe; distributions have their moments."""

from __future__ import annotations

import math
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import outlive.core as mx
from tests.budget import examples
from tests.ops.rules import check_batching
from tests.reference import Array, Call, Program
from tests.reference.compare import assert_same_array, assert_same_outcome
from tests.reference.strategies import shapes
from tests.reference.wire import Dtype, Side

OURS = Side(mx)
APPROXIMATE = "erfinv"
"""The op whose tolerance holds for transformed uniform numbers."""


def key(seed: int) -> Array:
    return Array.of(np.array([seed >> 32, seed & 0xFFFFFFFF], np.uint32))


def same(reference, call, op: str = "") -> None:
    assert_same_outcome(OURS.perform(call), reference.batch([call])[0], op, context=call)


@pytest.mark.parametrize("seed", [0, 1, 7, 2**31, 2**32 + 5, 2**64 - 1])
def test_keys_and_their_children_equal_the_reference(reference, seed):
    same(reference, Call("random.key", (seed,)))
    for count in (0, 1, 2, 3, 7, 64, 65):
        same(reference, Call("random.split", (key(seed), count)))


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 63, 65, 500, 2**15 + 1, 2**16 + 3])
@pytest.mark.parametrize("seed", [0, 2**40 + 11])
def test_uniform_bits_equal_the_reference_at_every_size(reference, count, seed):
    same(reference, Call("random.uniform", (0, 1, (count,)), {"key": key(seed)}))


@settings(max_examples=examples(60))
@given(seed=st.integers(0, 2**64 - 1), shape=shapes(elements_max=500), low=st.integers(-9, 3), span=st.integers(0, 9))
def test_uniform_and_integer_draws_equal_the_reference(reference, seed, shape, low, span):
    same(reference, Call("random.uniform", (float(low), float(low + span), shape), {"key": key(seed)}), "add")
    for dtype in ("int8", "int32", "int64"):
        same(reference, Call("random.randint", (low, low + span, shape, Dtype(dtype)), {"key": key(seed)}))


@settings(max_examples=examples(30))
@given(seed=st.integers(0, 2**64 - 1), shape=shapes(elements_max=500))
def test_transformed_draws_equal_the_reference_within_rounding(reference, seed, shape):
    for name in ("normal", "gumbel", "laplace"):
        call = Call(f"random.{name}", (shape,), {"key": key(seed)})
        got, want = OURS.perform(call).value, reference.batch([call])[0].value
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got.values(), want.values(), rtol=3e-6, atol=3e-7, err_msg=name)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["uniform", "normal", "gumbel", "laplace"])
def test_half_precision_draws_are_near_the_references(reference, dtype, name):
    options = {"shape": (65,), "dtype": Dtype(dtype), "key": key(3)}
    got, want = (
        OURS.perform(Call(f"random.{name}", (), options)).value,
        reference.call(f"random.{name}", **options).value,
    )
    assert got.dtype == want.dtype == dtype
    epsilon = {"float16": 2.0**-10, "bfloat16": 2.0**-7}[dtype]
    # the reference transforms in the half type itself
    np.testing.assert_allclose(got.values(), want.values(), rtol=8 * epsilon, atol=4 * epsilon)


@settings(max_examples=examples(40))
@given(seed=st.integers(0, 2**64 - 1), shape=shapes(rank_min=1, elements_max=200))
def test_permutations_and_coins_equal_the_reference(reference, seed, shape):
    same(reference, Call("random.permutation", (shape[0],), {"key": key(seed)}))
    a = Array.of(np.arange(math.prod(shape), dtype=np.int32).reshape(shape))
    same(reference, Call("random.permutation", (a,), {"axis": -1, "key": key(seed)}))
    same(reference, Call("random.bernoulli", (0.3, shape), {"key": key(seed)}))


@settings(max_examples=examples(40))
@given(
    data=st.data(), seed=st.integers(0, 2**64 - 1), shape=shapes(rank_min=1, rank_max=3, side_min=1, elements_max=60)
)
def test_draws_of_categories_equal_the_reference(reference, data, seed, shape):
    logits = Array.of(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    rest = list(shape)
    del rest[axis]
    for options in ({}, {"num_samples": 7}, {"shape": (3, *rest)}, {"shape": tuple(rest)}):
        same(reference, Call("random.categorical", (logits,), {"axis": axis, "key": key(seed), **options}))


def test_many_draws_from_one_distribution_equal_the_reference(reference):
    logits = Array.of(np.random.default_rng(0).standard_normal(17).astype(np.float32))
    call = Call("random.categorical", (logits,), {"num_samples": 20000, "key": key(5)})
    got, want = OURS.perform(call).value.values(), reference.batch([call])[0].value.values()
    # a uniform number within rounding of a border may fall on either side
    assert (got != want).sum() <= 2


@pytest.mark.parametrize("bounds", [(-1, 1), (-2.0, 0.5), (1.0, 3.0)])
def test_truncated_normal_draws_equal_the_reference_within_rounding(reference, bounds):
    call = Call("random.truncated_normal", (*bounds, (500,)), {"key": key(9)})
    got, want = OURS.perform(call).value.values(), reference.batch([call])[0].value.values()
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    assert got.min() >= bounds[0]
    assert got.max() <= bounds[1]


@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_multivariate_normal_draws_equal_the_reference_within_rounding(reference, shape):
    mean, cov = Array.of(np.array([1.0, 2.0], np.float32)), Array.of(np.array([[2.0, 0.5], [0.5, 1.0]], np.float32))
    call = Call("random.multivariate_normal", (mean, cov, shape), {"key": key(9)})
    got, want = OURS.perform(call).value.values(), reference.batch([call])[0].value.values()
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "call",
    [
        Call("random.key", (-1,)), Call("random.key", (2**64,)), Call("random.split", (key(3), -1)),
        Call("random.split", (Array.of(np.arange(2)),)), Call("random.uniform", (0, 1, (-3,)), {"key": key(1)}),
        Call("random.uniform", (0, 1, (2,)), {"dtype": Dtype("int32"), "key": key(1)}),
        Call("random.uniform", (0, 1, (2,)), {"key": Array.of(np.zeros(3, np.uint32))}),
        Call("random.uniform", (Array.of(np.zeros(2, np.float32)), 1, (3,)), {"key": key(1)}),
        Call("random.normal", ((2,), Dtype("int32")), {"key": key(1)}),
        Call("random.randint", (0, 5, (2,), Dtype("float32")), {"key": key(1)}),
        Call("random.bernoulli", (1, (2,)), {"key": key(1)}),
        Call("random.categorical", (Array.of(np.zeros(2, np.float32)),), {"axis": 3, "key": key(1)}),
        Call("random.categorical", (Array.of(np.zeros((2, 3), np.float32)),), {"shape": (5, 3), "key": key(1)}),
        Call("random.categorical", (Array.of(np.zeros(2, np.float32)),), {"shape": (), "num_samples": 2, "key": key(1)}),
        Call("random.multivariate_normal", (Array.of(np.zeros(3, np.float32)), Array.of(np.eye(2, dtype=np.float32)))),
    ],
)  # fmt: skip
def test_bad_arguments_are_refused_as_in_the_reference(reference, call):
    same(reference, call)


def test_a_seeded_program_draws_what_the_reference_draws(reference):
    program = Program(
        "mx.random.seed(2**40 + 3)\n"
        "out = [mx.random.uniform(), mx.random.randint(0, 100, (7,)), mx.random.permutation(9), mx.random.uniform(shape=(3,)),"
        " mx.random.categorical(mx.array([[0.1, 0.2, 0.7], [1.0, 1.0, 0.0]])), mx.random.bernoulli(0.5, (9,)),"
        " mx.random.state[0]]"
    )
    for got, want in zip(OURS.perform(program).value, reference.batch([program])[0].value, strict=True):
        assert_same_array(got, want)


def test_the_state_can_be_read_assigned_and_captured():
    mx.random.seed(3)
    first = mx.random.uniform().item()
    mx.random.state[0] = mx.random.key(3)
    assert mx.random.uniform().item() == first
    mx.random.state = [mx.random.key(3)]
    assert mx.random.uniform().item() == first
    with pytest.raises(ValueError, match=r"\[random\]"):
        mx.random.state = []
    assert len(mx.random.state) == 1
    assert [k.dtype for k in mx.random.state] == [mx.uint32]


def test_a_compiled_function_that_captures_the_state_draws_anew_each_time():
    draw = mx.compile(lambda: mx.random.uniform(), inputs=mx.random.state, outputs=mx.random.state)
    mx.random.seed(11)
    got = [draw().item() for _ in range(3)]
    mx.random.seed(11)
    assert got == [mx.random.uniform().item() for _ in range(3)]


def test_threads_never_get_the_same_key():
    mx.random.seed(1)
    drawn: list[mx.array] = []

    def work() -> None:
        drawn.extend(mx.random.uniform(shape=(2,)) for _ in range(100))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({tuple(a.tolist()) for a in drawn}) == 400


def test_drawing_evaluates_nothing_and_needs_no_memory_until_it_is_read():
    made = mx.random.normal((1 << 20, 1 << 20))
    assert made.shape == (1 << 20, 1 << 20)


@pytest.mark.parametrize("bounds", [(0.0, 1.0), (-3.0, 5.0), (0.0, 1e-30), (1.0, 1.0)])
def test_uniform_draws_stay_inside_their_bounds(bounds):
    x = np.array(mx.random.uniform(*bounds, (100_000,), key=mx.random.key(1)))
    assert x.min() >= bounds[0]
    assert x.max() < bounds[1] or bounds[0] == bounds[1] or bounds[1] - bounds[0] < 1e-20


def test_integers_never_reach_their_upper_bound():
    for span in (1, 3, 2**24 + 1):
        x = np.array(mx.random.randint(0, span, (200_000,), key=mx.random.key(span)))
        assert x.min() >= 0
        assert x.max() < span


@pytest.mark.parametrize(
    ("draw", "mean", "variance"),
    [
        (lambda k, n: mx.random.normal((n,), loc=2.0, scale=3.0, key=k), 2.0, 9.0),
        (lambda k, n: mx.random.uniform(-1, 3, (n,), key=k), 1.0, 16 / 12),
        (lambda k, n: mx.random.gumbel((n,), key=k), np.euler_gamma, math.pi**2 / 6),
        (lambda k, n: mx.random.laplace((n,), loc=1.0, scale=2.0, key=k), 1.0, 8.0),
        (lambda k, n: mx.random.bernoulli(0.3, (n,), key=k).astype(mx.float32), 0.3, 0.21),
        (lambda k, n: mx.random.randint(0, 10, (n,), key=k).astype(mx.float32), 4.5, 99 / 12),
    ],
)
def test_draws_have_the_moments_of_their_distribution(draw, mean, variance):
    n = 200_000
    x = np.array(draw(mx.random.key(17), n), dtype=np.float64)
    assert abs(x.mean() - mean) < 6 * math.sqrt(variance / n)
    assert abs(x.var() - variance) < 0.03 * variance


def test_complex_normal_draws_have_independent_parts(reference):
    call = Call("random.normal", ((65,), Dtype("complex64")), {"key": key(4)})
    got, want = OURS.perform(call).value.values(), reference.batch([call])[0].value.values()
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_draws_have_no_derivative_but_their_parameters_do():
    k = mx.random.key(5)
    gradient = mx.grad(lambda scale: mx.random.normal((50,), scale=scale, key=k).sum())(mx.array(2.0))
    np.testing.assert_allclose(gradient.item(), mx.random.normal((50,), key=k).sum().item(), rtol=1e-5)


@pytest.mark.parametrize(
    "draw",
    [
        lambda k: mx.random.uniform(shape=(3,), key=k), lambda k: mx.random.normal((2, 3), key=k),
        lambda k: mx.random.split(k, 3), lambda k: mx.random.permutation(5, key=k),
        lambda k: mx.random.categorical(mx.array([0.1, 0.7, 0.2]), num_samples=3, key=k),
    ],
)  # fmt: skip
def test_batches_of_keys_equal_a_loop(draw):
    keys = np.array(mx.random.split(mx.random.key(3), 4))
    check_batching(draw, keys, axes=(0,))
    check_batching(draw, np.ascontiguousarray(keys.T), axes=(1,))


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16])
def test_half_precision_draws_stay_below_one(dtype: mx.Dtype):
    assert mx.random.uniform(shape=(200_000,), dtype=dtype, key=mx.random.key(0)).max().item() < 1
