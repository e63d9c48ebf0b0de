"""Derivatives: values against differences, structure of results, nesting, evaluation and assignment inside."""

import numpy as np
import pytest

import outlive.core as mx
from tests.transforms.support import array64, differences, values

RNG = np.random.default_rng(7)
A, B, M = RNG.uniform(0.5, 1.5, (3, 4)), RNG.uniform(0.5, 1.5, (4,)), RNG.uniform(-1, 1, (4, 2))

SCALAR_FUNCTIONS = {
    "polynomial": lambda a, b: (a * a * b + 3.0 * a - b).sum(),
    "quotient": lambda a, b: (a / (b + 2.0)).sum(),
    "elementary": lambda a, b: (mx.exp(-a) * mx.sin(b) + mx.log(a) * mx.tanh(b)).sum(),
    "broadcast both ways": lambda a, b: (mx.expand_dims(b, 1) * mx.transpose(a)).sum() * b.sum(),
    "softmax": lambda a, b: (mx.softmax(a, axis=-1) * b).sum(),
    "mean and variance": lambda a, b: (a.mean(axis=0) * b).sum() + a.var(),
    "maximum of different elements": lambda a, b: mx.maximum(a, b + 0.01).sum(),
    "product": lambda a, b: (a @ mx.reshape(b, (4, 1))).sum() * a.max(),
    "slices and joins": lambda a, b: (mx.concatenate([a[1:], a[:1] * b], axis=0) * a).sum(),
    "where": lambda a, b: mx.where(a > 1.0, a * b, b).sum(),
    "power": lambda a, b: (a**b).sum(),
    "scan": lambda a, b: (mx.cumsum(a, axis=1) * b).sum(),
}


@pytest.mark.parametrize("name", SCALAR_FUNCTIONS)
@pytest.mark.parametrize("index", [0, 1])
def test_gradients_equal_differences(name, index):
    function = SCALAR_FUNCTIONS[name]
    gradient = mx.grad(function, argnums=index)(array64(A), array64(B))
    assert gradient.dtype is mx.float64
    np.testing.assert_allclose(values(gradient), differences(function, (A, B), index), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("name", SCALAR_FUNCTIONS)
def test_forward_derivatives_equal_the_gradient_along_the_direction(name):
    function = SCALAR_FUNCTIONS[name]
    da, db = RNG.normal(size=A.shape), RNG.normal(size=B.shape)
    _, (forward,) = mx.jvp(function, [array64(A), array64(B)], [array64(da), array64(db)])
    ga, gb = mx.grad(function, argnums=(0, 1))(array64(A), array64(B))
    np.testing.assert_allclose(forward.item(), (values(ga) * da).sum() + (values(gb) * db).sum(), rtol=1e-10)


@pytest.mark.parametrize("name", ["polynomial", "elementary", "quotient", "product", "power"])
def test_second_derivatives_equal_differences_of_the_first(name):
    function = SCALAR_FUNCTIONS[name]

    def slope(a, b):
        return (mx.grad(function)(a, b) * array64(M.sum() + A)).sum()

    second = mx.grad(slope)(array64(A), array64(B))
    np.testing.assert_allclose(values(second), differences(slope, (A, B), 0), rtol=1e-7, atol=1e-8)


def test_every_nesting_of_two_transforms_gives_the_second_derivative():
    x = array64([0.3, 0.7, 1.1])
    expected = -np.sin(values(x))
    ones = mx.ones_like(x)

    def sine(x):
        return mx.sin(x)

    def first_by_jvp(x):
        return mx.jvp(sine, [x], [ones])[1][0]

    def first_by_vjp(x):
        return mx.vjp(sine, [x], [ones])[1][0]

    def first_by_grad(x):
        return mx.grad(lambda x: mx.sin(x).sum())(x)

    for first in (first_by_jvp, first_by_vjp, first_by_grad):
        nested = {
            "jvp": mx.jvp(first, [x], [ones])[1][0],
            "vjp": mx.vjp(first, [x], [ones])[1][0],
            "grad": mx.grad(lambda x, first=first: first(x).sum())(x),
            "vmap of grad": mx.vmap(mx.grad(lambda x, first=first: first(mx.expand_dims(x, 0)).sum()))(x)
            if first is first_by_grad
            else expected,
        }
        for how, found in nested.items():
            np.testing.assert_allclose(np.array(found), expected, rtol=1e-12, err_msg=f"{how} of {first.__name__}")


def test_grad_of_vmap_of_grad():
    def energy(x):
        return (x * x * x).sum()

    def total(x):
        return mx.vmap(mx.grad(energy))(x).sum()

    x = array64(A)
    np.testing.assert_allclose(values(mx.grad(total)(x)), 6 * A, rtol=1e-12)


def test_an_inner_gradient_sees_the_outer_variable_as_constant():
    def outer(x):
        return mx.grad(lambda y: (x * y * y).sum())(x).sum()  # 2 x y at y = x: derivative of 2 x^2

    np.testing.assert_allclose(values(mx.grad(outer)(array64(B))), 4 * B, rtol=1e-12)


def test_gradients_have_the_structure_of_the_arguments():
    parameters = {"w": [mx.array([1.0, 2.0]), mx.array(3.0)], "b": (mx.array([4.0]),)}
    gradient = mx.grad(lambda p: (p["w"][0] * p["w"][1]).sum() + p["b"][0].sum())(parameters)
    assert list(gradient) == ["w", "b"]
    assert isinstance(gradient["w"], list)
    assert isinstance(gradient["b"], tuple)
    assert gradient["w"][0].tolist() == [3.0, 3.0]
    assert gradient["w"][1].item() == 3.0
    assert gradient["b"][0].tolist() == [1.0]


def test_argnums_and_argnames_choose_what_comes_back():
    def product(x, y, *, z):
        return (x * y * z).sum()

    x, y, z = mx.array([2.0]), mx.array([3.0]), mx.array([5.0])
    assert mx.grad(product)(x, y, z=z).tolist() == [15.0]
    assert mx.grad(product, argnums=1)(x, y, z=z).tolist() == [10.0]
    assert [g.tolist() for g in mx.grad(product, argnums=(1, 0))(x, y, z=z)] == [[10.0], [15.0]]
    none, named = mx.grad(product, argnames="z")(x, y, z=z)
    assert none is None
    assert named["z"].tolist() == [6.0]
    positional, named = mx.grad(product, argnums=[0], argnames=["z"])(x, y, z=z)
    assert positional.tolist() == [15.0]
    assert named["z"].tolist() == [6.0]


def test_value_and_grad_passes_the_rest_of_a_tuple_through():
    (loss, extra, text), gradient = mx.value_and_grad(lambda x: ((x * x).sum(), {"x": x}, "kept"))(mx.array([1.0, 2.0]))
    assert loss.item() == 5.0
    assert extra["x"].tolist() == [1.0, 2.0]
    assert text == "kept"
    assert gradient.tolist() == [2.0, 4.0]


def test_what_does_not_matter_has_gradient_zero():
    gradient = mx.grad(lambda p: p[0].sum())([mx.array([1.0, 2.0]), mx.array([[3.0]])])
    assert [g.tolist() for g in gradient] == [[1.0, 1.0], [[0.0]]]
    outputs, cotangents = mx.vjp(lambda x: mx.ones((2,)), [mx.array(1.0)], [mx.ones((2,))])
    assert outputs[0].tolist() == [1.0, 1.0]
    assert cotangents[0].item() == 0.0
    assert mx.jvp(lambda x: mx.ones((2,)), [mx.array(1.0)], [mx.array(1.0)])[1][0].tolist() == [0.0, 0.0]


def test_a_function_may_return_its_argument():
    x, ct = mx.array([1.0, 2.0]), mx.array([3.0, 4.0])
    assert mx.vjp(lambda x: x, [x], [ct])[1][0].tolist() == [3.0, 4.0]
    assert mx.vjp(lambda x: (x, x), [x], [ct, ct])[1][0].tolist() == [6.0, 8.0]
    assert mx.jvp(lambda x: x, [x], [ct])[1][0].tolist() == [3.0, 4.0]


def test_stop_gradient_stops():
    assert mx.grad(lambda x: (mx.stop_gradient(x) * x).sum())(mx.array([2.0, 3.0])).tolist() == [2.0, 3.0]


def test_evaluation_inside_keeps_the_graph_for_the_gradient():
    def loss(x):
        y = x * x
        mx.eval(y)
        return (y * x).sum() if y[0].item() > 0 else x.sum()

    assert mx.grad(loss)(mx.array([1.0, 2.0])).tolist() == [3.0, 12.0]
    twice = mx.grad(lambda x: mx.grad(loss)(x).sum())(mx.array([1.0, 2.0]))
    assert twice.tolist() == [6.0, 12.0]


def test_what_was_evaluated_inside_lets_its_inputs_go_afterwards():
    kept = []

    def loss(x):
        y = mx.exp(x)
        z = y * y
        mx.eval(z)
        assert z._node.inputs != ()
        kept.append(z)
        return z.sum()

    mx.eval(mx.grad(loss)(mx.ones((10,))))
    assert kept[0]._node.inputs == ()


def test_state_kept_across_steps_does_not_grow_the_graph():
    state = [mx.zeros((4,))]

    def loss(x):
        state[0] = state[0] * 0.9 + x * 0.1
        return (x * x).sum()

    for _ in range(5):
        mx.eval(mx.grad(loss)(mx.ones((4,))), state[0])
    assert state[0]._node.inputs == ()


def test_after_the_gradient_buffers_are_given_on():
    x = mx.zeros((1 << 16,))
    gradient = mx.grad(lambda x: (x * x).sum())(x)
    del x
    for _ in range(50):
        gradient = gradient + 1.0
    mx.eval(gradient)
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    gradient = gradient + 1.0
    gradient = gradient * 2.0
    mx.eval(gradient)
    assert mx.get_peak_memory() <= before + (1 << 18)


def test_assignment_inside_is_part_of_the_function():
    def loss(x):
        y = x * 1.0
        y[0] = y[1] * 5.0
        y += 1.0
        return (y * y).sum()

    x = mx.array([1.0, 2.0, 3.0])
    assert mx.grad(loss)(x).tolist() == [0.0, 116.0, 8.0]
    assert x.tolist() == [1.0, 2.0, 3.0]


def test_assignment_to_an_argument_stays_inside():
    def loss(x):
        x[0] = x[1] * 5.0
        return (x * x).sum()

    x = mx.array([1.0, 2.0, 3.0])
    assert mx.grad(loss)(x).tolist() == [0.0, 104.0, 6.0]
    assert x.tolist() == [1.0, 2.0, 3.0]


def test_multi_output_ops_pass_cotangents_of_the_outputs_that_matter():
    x = array64(A)
    gradient = mx.grad(lambda x: (mx.split(x, 2, axis=1)[1] ** 2).sum())(x)
    np.testing.assert_allclose(values(gradient), np.concatenate([np.zeros((3, 2)), 2 * A[:, 2:]], axis=1))


def test_cotangents_are_cast_to_the_outputs_types():
    _, (cotangent,) = mx.vjp(lambda x: x * x, [mx.array([2.0])], [mx.array([3], dtype=mx.int32)])
    assert cotangent.dtype is mx.float32
    assert cotangent.tolist() == [12.0]


def test_a_deep_chain_has_a_gradient():
    def chain(x):
        for _ in range(20_000):
            x = x * 1.0001
        return x

    assert mx.grad(chain)(array64(1.0)).item() == pytest.approx(1.0001**20_000, rel=1e-9)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda x: mx.grad(lambda x: x * 2)(x), ValueError, r"\[grad\].*scalar.*\(3,\)"),
        (lambda x: mx.grad(lambda x: (x.sum(), x))(x), ValueError, r"\[grad\].*tuple"),
        (lambda x: mx.value_and_grad(lambda x: [x.sum()])(x), ValueError, r"\[value_and_grad\].*list"),
        (lambda x: mx.value_and_grad(lambda x: 1.0)(x), ValueError, r"\[value_and_grad\].*float"),
        (lambda x: mx.grad(lambda x: x.sum())(3.0), ValueError, r"\[grad\].*float"),
        (lambda x: mx.grad(lambda p: p[0].sum())([x, None]), ValueError, r"\[grad\].*NoneType"),
        (lambda x: mx.grad(lambda x: x.sum(), argnums=1)(x), ValueError, r"argument 1.*1 positional"),
        (lambda x: mx.grad(lambda x: x.sum(), argnums=-1), ValueError, r"argument -1"),
        (lambda x: mx.grad(lambda x: x.sum(), argnums=[0, 0]), ValueError, r"named twice"),
        (lambda x: mx.grad(lambda x: x.sum(), argnums=[]), ValueError, r"at least one"),
        (lambda x: mx.grad(lambda x: x.sum(), argnames="y")(x), ValueError, r"'y'"),
        (lambda x: mx.grad(3), TypeError, r"\[grad\].*int"),
        (lambda x: mx.vjp(lambda x: x, [x], [x, x]), ValueError, r"\[vjp\].*2 cotangents for 1"),
        (lambda x: mx.vjp(lambda x: x, [x], [mx.ones((4,))]), ValueError, r"\[vjp\].*\(4,\).*\(3,\)"),
        (lambda x: mx.vjp(lambda x: {"a": x}, [x], [x]), ValueError, r"\[vjp\].*dict"),
        (lambda x: mx.vjp(lambda x: x, x, [x]), TypeError, r"\[vjp\].*list or tuple"),
        (lambda x: mx.jvp(lambda x: x, [x], []), ValueError, r"\[jvp\].*0 tangents for 1"),
        (lambda x: mx.jvp(lambda x: x, [x], [mx.ones((1,))]), ValueError, r"\[jvp\].*\(1,\).*\(3,\)"),
    ],
)
def test_bad_input_gets_one_clear_sentence(call, error, words):
    with pytest.raises(error, match=words):
        call(mx.array([1.0, 2.0, 3.0]))


def test_an_error_inside_leaves_no_transform_open():
    def broken(x):
        raise KeyError("broken")

    x = mx.array([1.0])
    with pytest.raises(KeyError):
        mx.grad(broken)(x)
    y = x * x
    mx.eval(y)
    assert y._node.traced is False
    assert mx.grad(lambda x: x.sum())(x).tolist() == [1.0]
