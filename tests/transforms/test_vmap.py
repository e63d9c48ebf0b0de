"""`vmap`: against loops, over axes and trees, nested with derivatives, and what it refuses."""

import numpy as np
import pytest

import outlive.core as mx
from tests.transforms.support import values

RNG = np.random.default_rng(3)
X, Y = RNG.normal(size=(5, 3, 4)).astype(np.float32), RNG.normal(size=(5, 4)).astype(np.float32)

FUNCTIONS = {
    "elementwise": lambda x, y: mx.exp(x) * y + 1.0,
    "reductions": lambda x, y: x.sum(axis=0) * y.max() + x.mean(),
    "product": lambda x, y: x @ y,
    "shapes": lambda x, y: mx.concatenate([mx.transpose(x), mx.expand_dims(y, 1)], axis=1).reshape(-1),
    "softmax": lambda x, y: mx.softmax(x, axis=-1) * y,
    "indexing": lambda x, y: x[1:, ::-1] * y[0] + x[0, 2],
    "sorting": lambda x, y: mx.sort(x, axis=0) + mx.argmax(y),
    "scans": lambda x, y: mx.cumsum(x, axis=-1) + mx.cumsum(y),
    "constants inside": lambda x, y: x * mx.arange(4) + mx.ones((3, 1)),
    "where": lambda x, y: mx.where(x > 0, y, x),
    "assignment": lambda x, y: _assigned(x, y),
}


def _assigned(x, y):
    x = x * 1.0
    x[1] = y
    return x


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_batch_equals_a_loop(name):
    function = FUNCTIONS[name]
    x, y = mx.array(X), mx.array(Y)
    batched = mx.vmap(function)(x, y)
    looped = np.stack([values(function(x[i], y[i])) for i in range(5)])
    np.testing.assert_allclose(values(batched), looped, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(("in_axes", "out_axes"), [((2, 1), 0), ((0, None), -1), ((None, 0), 1), ((-1, 0), 0)])
def test_a_batch_along_any_axes_equals_a_loop(name, in_axes, out_axes):
    function = FUNCTIONS[name]
    x = np.moveaxis(X, 0, in_axes[0]) if in_axes[0] is not None else X[0]
    y = np.moveaxis(Y, 0, in_axes[1]) if in_axes[1] is not None else Y[0]
    one = function(mx.array(X[0]), mx.array(Y[0]))
    out_axes = out_axes if out_axes <= one.ndim else 0
    batched = mx.vmap(function, in_axes=in_axes, out_axes=out_axes)(mx.array(x), mx.array(y))
    looped = [
        values(
            function(mx.array(X[i if in_axes[0] is not None else 0]), mx.array(Y[i if in_axes[1] is not None else 0]))
        )
        for i in range(5)
    ]
    np.testing.assert_allclose(values(batched), np.stack(looped, axis=out_axes), rtol=2e-6, atol=1e-6)


def test_nested_batches():
    x, y = mx.array([1.0, 2.0, 3.0]), mx.array([10.0, 20.0])
    outer = mx.vmap(mx.vmap(lambda a, b: a * b, in_axes=(None, 0)), in_axes=(0, None))(x, y)
    assert outer.tolist() == [[10.0, 20.0], [20.0, 40.0], [30.0, 60.0]]


def test_batched_gradients_equal_a_loop():
    def loss(w, x):
        return mx.tanh(x @ w).sum()

    w, x = mx.array(Y[0]), mx.array(X)
    batched = mx.vmap(mx.grad(loss), in_axes=(None, 0))(w, x)
    np.testing.assert_allclose(values(batched), np.stack([values(mx.grad(loss)(w, x[i])) for i in range(5)]), rtol=1e-5)


def test_gradients_of_a_batch_reach_shared_and_batched_arguments():
    def total(w, x):
        return mx.vmap(lambda w, x: (w * x).sum(), in_axes=(None, 0))(w, x).sum()

    w, x = mx.array(Y[0]), mx.array(Y)
    gw, gx = mx.grad(total, argnums=(0, 1))(w, x)
    np.testing.assert_allclose(values(gw), Y.sum(axis=0), rtol=1e-5)
    np.testing.assert_allclose(values(gx), np.broadcast_to(Y[0], Y.shape), rtol=1e-6)


def test_axes_are_prefix_trees_of_arguments_and_results():
    x = mx.array([[1.0, 2.0], [3.0, 4.0]])

    def function(tree, shared):
        return {"sum": tree["a"] + tree["b"][0], "rest": [tree["a"] * shared, shared]}

    result = mx.vmap(function, in_axes=({"a": 0, "b": 1}, None), out_axes={"sum": 0, "rest": [1, None]})(
        {"a": x, "b": [x]}, mx.array([10.0, 100.0])
    )
    assert result["sum"].tolist() == [[2.0, 5.0], [5.0, 8.0]]
    assert result["rest"][0].tolist() == [[10.0, 30.0], [200.0, 400.0]]
    assert result["rest"][1].tolist() == [10.0, 100.0]


def test_one_argument_may_take_its_tree_of_axes_directly():
    x = mx.array([1.0, 2.0])
    assert mx.vmap(lambda t: t["a"] * t["b"], in_axes={"a": 0, "b": 0})({"a": x, "b": x}).tolist() == [1.0, 4.0]


def test_an_output_without_batch_is_repeated():
    assert mx.vmap(lambda a: mx.array([7.0]))(mx.zeros((3,))).tolist() == [[7.0]] * 3


def test_an_empty_batch_gives_an_empty_result():
    assert mx.vmap(lambda a: a * 2.0)(mx.zeros((0, 3))).shape == (0, 3)


def test_keys_are_batched_like_any_array():
    keys = mx.random.split(mx.random.key(5), 3)
    batched = mx.vmap(lambda k: mx.random.uniform(shape=(4,), key=k))(keys)
    looped = [mx.random.uniform(shape=(4,), key=keys[i]).tolist() for i in range(3)]
    assert batched.tolist() == looped


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda x: mx.vmap(lambda a, b: a * b)(x, mx.ones((4,))), ValueError, r"one length; found 3 and 4"),
        (lambda x: mx.vmap(lambda a: a, in_axes=None)(x), ValueError, r"At least one array"),
        (lambda x: mx.vmap(lambda a: a, in_axes=1)(x), IndexError, r"axis 1.*\(3,\)"),
        (lambda x: mx.vmap(lambda a: a, in_axes="x")(x), ValueError, r"in_axes.*str"),
        (lambda x: mx.vmap(lambda a, b: a, in_axes=(0,))(x, x), ValueError, r"prefix"),
        (lambda x: mx.vmap(lambda a: a, out_axes=3)(x), IndexError, r"out_axes names axis 3"),
        (lambda x: mx.vmap(lambda a: a, out_axes=(None,))(x), ValueError, r"prefix"),
        (lambda x: mx.vmap(lambda a: (a,), out_axes=(None,))(x), ValueError, r"out_axes is None"),
        (lambda x: mx.vmap(lambda a: 3)(x), ValueError, r"int"),
        (lambda x: mx.vmap(lambda a: a)(2.0), ValueError, r"float"),
        (lambda x: mx.vmap(lambda a, b: a)(x, b=x), TypeError, r"positional"),
        (lambda x: mx.vmap(lambda a: mx.array(a.item()))(x), ValueError, r"no value"),
        (lambda x: mx.vmap(5), TypeError, r"int"),
    ],
)
def test_bad_input_gets_one_clear_sentence(call, error, words):
    with pytest.raises(error, match=words):
        call(mx.array([1.0, 2.0, 3.0]))
