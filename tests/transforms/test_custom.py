"""`custom_function` and `checkpoint`: rules are used where they are given, and checkpoints save memory."""

import gc

import numpy as np
import pytest

import outlive.core as mx
from tests.transforms.support import values

X, Y = mx.array([1.0, 2.0, 3.0]), mx.array([4.0, 5.0, 6.0])


def ruled():
    @mx.custom_function
    def product(x, y):
        return x * y

    return product


def test_without_rules_it_is_the_function():
    product = ruled()
    assert product(X, Y).tolist() == [4.0, 10.0, 18.0]
    assert product(X, 2.0).tolist() == [2.0, 4.0, 6.0]
    assert product(X, y=Y).tolist() == [4.0, 10.0, 18.0]
    assert mx.grad(lambda x: product(x, Y).sum())(X).tolist() == Y.tolist()
    assert mx.vmap(product)(X, Y).tolist() == [4.0, 10.0, 18.0]


def test_a_vjp_rule_replaces_the_derivative():
    product = ruled()
    seen = []

    @product.vjp
    def rule(primals, cotangent, output):
        seen.append((primals, output.tolist()))
        return cotangent * 100.0, cotangent * 10.0

    gx, gy = mx.grad(lambda x, y: product(x, y).sum(), argnums=(0, 1))(X, Y)
    assert gx.tolist() == [100.0] * 3
    assert gy.tolist() == [10.0] * 3
    assert isinstance(seen[0][0], tuple)
    assert seen[0][1] == [4.0, 10.0, 18.0]
    assert mx.jvp(product, [X, Y], [X, Y])[1][0].tolist() == [8.0, 20.0, 36.0]
    assert product(X, Y).tolist() == [4.0, 10.0, 18.0]


def test_a_rule_may_say_that_a_cotangent_is_zero():
    product = ruled()
    product.vjp(lambda primals, cotangent, output: (None, cotangent))
    gx, gy = mx.grad(lambda x, y: product(x, y).sum(), argnums=(0, 1))(X, Y)
    assert gx.tolist() == [0.0] * 3
    assert gy.tolist() == [1.0] * 3


def test_a_jvp_rule_sees_none_for_what_does_not_move():
    product = ruled()
    seen = []

    @product.jvp
    def rule(primals, tangents):
        seen.append([t is None for t in tangents])
        return tangents[0] * 3.0

    assert mx.jvp(lambda x: product(x, Y), [X], [X])[1][0].tolist() == [3.0, 6.0, 9.0]
    assert seen == [[False, True]]


def test_a_vmap_rule_gets_the_axes():
    product = ruled()
    seen = []

    @product.vmap
    def rule(inputs, axes):
        seen.append(axes)
        return inputs[0] + 1000.0, axes[0]

    batch = mx.array([[1.0, 2.0]])
    assert mx.vmap(product, in_axes=(1, None))(batch, mx.array([1.0])).tolist() == [[1001.0], [1002.0]]
    assert seen == [(1, None)]


def test_trees_stay_trees_in_rules():
    @mx.custom_function
    def function(tree):
        return {"a": tree["p"] * 2.0, "b": [tree["p"]]}

    @function.vjp
    def rule(primals, cotangents, outputs):
        assert outputs["a"].tolist() == [2.0, 4.0, 6.0]
        assert cotangents["b"][0].tolist() == [0.0] * 3
        return {"p": cotangents["a"] * 7.0}

    assert mx.grad(lambda x: function({"p": x})["a"].sum())(X).tolist() == [7.0] * 3


def test_rules_hold_under_nesting_and_compilation():
    @mx.custom_function
    def clipped(x):
        return mx.minimum(x, 2.0)

    clipped.vjp(lambda x, cotangent, output: cotangent * x)

    def loss(x):
        return (clipped(x) * x).sum()

    expected = (np.minimum(values(X), 2.0) + values(X) ** 2).tolist()
    assert mx.grad(loss)(X).tolist() == expected
    assert mx.compile(mx.grad(loss))(X).tolist() == expected
    assert mx.grad(mx.compile(loss))(X).tolist() == expected
    assert mx.vmap(mx.grad(loss))(X).tolist() == expected
    assert mx.grad(lambda x: mx.grad(loss)(x).sum())(X).tolist() == (values(X) + 2 * values(X)).tolist()


def test_what_a_ruled_function_captures_counts_as_constant():
    def outer(x, y):
        function = mx.custom_function(lambda x: x * y)
        function.vjp(lambda x, cotangent, output: cotangent * 5.0)
        return function(x).sum()

    assert mx.grad(outer)(X, Y).tolist() == [5.0] * 3
    assert mx.grad(outer, argnums=1)(X, Y).tolist() == [0.0] * 3


def test_a_rule_with_the_wrong_number_of_results_is_named():
    product = ruled()
    product.vjp(lambda primals, cotangent, output: cotangent)
    with pytest.raises(ValueError, match=r"\[custom_function\] The vjp rule returned 1 cotangents; 2 are needed"):
        mx.grad(lambda x: product(x, Y).sum())(X)


def test_checkpoints_change_no_gradient():
    def block(x, w):
        return mx.tanh(x @ w) + x

    w = mx.array(np.random.default_rng(2).normal(size=(5, 5)).astype(np.float32))
    x = mx.array(np.random.default_rng(3).normal(size=(4, 5)).astype(np.float32))

    def loss(w, x, block):
        for _ in range(4):
            x = block(x, w)
        return (x * x).sum()

    plain = mx.grad(loss, argnums=(0, 1))(w, x, block)
    again = mx.grad(loss, argnums=(0, 1))(w, x, mx.checkpoint(block))
    compiled = mx.compile(lambda w, x: mx.grad(loss, argnums=(0, 1))(w, x, mx.checkpoint(block)))(w, x)
    for p, a, c in zip(plain, again, compiled, strict=True):
        np.testing.assert_array_equal(values(p), values(a))
        np.testing.assert_array_equal(values(p), values(c))


def test_a_checkpoint_passes_gradients_to_what_it_captures():
    assert mx.grad(lambda w: mx.checkpoint(lambda x: x * w)(X).sum())(Y).tolist() == X.tolist()
    assert mx.grad(lambda w: mx.checkpoint(lambda x: x * mx.exp(w))(w).sum())(mx.array(0.0)).item() == 1.0
    nested = mx.grad(lambda w: mx.grad(lambda x: mx.checkpoint(lambda x: x * x * w)(x).sum())(X).sum())(Y)
    assert nested.tolist() == (2 * values(X)).tolist()


def test_a_checkpoint_keeps_trees_and_other_leaves():
    function = mx.checkpoint(lambda tree, factor: {"a": tree["x"] * factor, "n": 3})
    result = function({"x": X}, 3)
    assert result["a"].tolist() == [3.0, 6.0, 9.0]
    assert result["n"] == 3
    assert mx.vmap(lambda x: function({"x": x}, 3)["a"])(X).tolist() == [3.0, 6.0, 9.0]


def test_checkpoints_run_the_function_again_and_keep_less():
    size, layers, inner = 1 << 16, 6, 8
    calls = [0]

    def block(x):
        calls[0] += 1
        for _ in range(inner):
            x = mx.sin(x) * 1.5
        return x

    def peak(block):
        calls[0] = 0

        def loss(x):
            for _ in range(layers):
                x = block(x)
            return x.sum()

        gc.collect()
        x = mx.ones((size,))
        mx.eval(x)
        mx.reset_peak_memory()
        before = mx.get_active_memory()
        mx.eval(mx.grad(loss)(x))
        return mx.get_peak_memory() - before

    plain = peak(block)
    assert calls[0] == layers
    checkpointed = peak(mx.checkpoint(block))
    assert calls[0] == 2 * layers
    assert checkpointed < 0.5 * plain


@pytest.mark.parametrize("make", [mx.custom_function, mx.checkpoint])
def test_only_functions_are_wrapped(make):
    with pytest.raises(TypeError, match="int"):
        make(3)
