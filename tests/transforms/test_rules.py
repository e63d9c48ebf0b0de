"""The rules of ops of every family: reverse and forward derivatives against differences in float64, batches against loops."""

import numpy as np
import pytest

import outlive.core as mx
from tests.transforms.support import array64, values

RNG = np.random.default_rng(11)


def normal(*shape):
    return RNG.normal(size=shape)


def positive(*shape):
    return RNG.uniform(0.3, 1.7, size=shape)


def unit(*shape):
    return RNG.uniform(-0.8, 0.8, size=shape)


INDEX = [2, 0, 2]

# name: (function, arguments)
RULES = {
    **{
        name: (getattr(mx, name), [draw(3, 4)])
        for draw, names in (
            (normal, "abs negative square exp sin cos sinh cosh tanh sigmoid erf expm1 arctan arcsinh sign"),
            (positive, "log log2 log10 log1p sqrt rsqrt reciprocal"),
            (unit, "tan arcsin arccos arctanh erfinv"),
        )
        for name in names.split()
    },
    "arccosh": (mx.arccosh, [positive(5) + 1.0]),
    **{
        name: (getattr(mx, name), [normal(3, 4), normal(4)])
        for name in "add subtract multiply maximum logaddexp".split()
    },
    "minimum": (mx.minimum, [normal(3, 1), normal(1, 4)]),
    "divide": (mx.divide, [normal(3, 4), positive(3, 1)]),
    "power": (mx.power, [positive(3, 4), normal(4)]),
    "arctan2": (mx.arctan2, [normal(3, 4), positive(4)]),
    "remainder": (mx.remainder, [positive(7) * 3.1, positive(7)]),
    "clip": (lambda x: mx.clip(x, -0.5, 0.5), [normal(9)]),
    "where": (lambda x, y: mx.where(x > 0, x * 2.0, y), [normal(3, 4), normal(4)]),
    "sum": (lambda x: mx.sum(x, axis=1, keepdims=True), [normal(3, 4, 2)]),
    "mean": (lambda x: mx.mean(x, axis=(0, 2)), [normal(3, 4, 2)]),
    "var": (lambda x: mx.var(x, axis=1, ddof=1), [normal(3, 4)]),
    "std": (lambda x: mx.std(x, axis=0), [normal(3, 4)]),
    "prod": (lambda x: mx.prod(x, axis=1), [positive(3, 4)]),
    "max": (lambda x: mx.max(x, axis=1), [normal(3, 4)]),
    "min": (lambda x: mx.min(x), [normal(3, 4)]),
    "logsumexp": (lambda x: mx.logsumexp(x, axis=0), [normal(3, 4)]),
    "softmax": (lambda x: mx.softmax(x, axis=0), [normal(3, 4)]),
    "cumsum": (lambda x: mx.cumsum(x, axis=1, reverse=True, inclusive=False), [normal(3, 4)]),
    "cumprod": (lambda x: mx.cumprod(x, axis=0), [positive(3, 4)]),
    "cummax": (lambda x: mx.cummax(x, axis=1), [normal(3, 4)]),
    "logcumsumexp": (lambda x: mx.logcumsumexp(x, axis=1), [normal(3, 4)]),
    "sort": (lambda x: mx.sort(x, axis=0), [normal(5, 3)]),
    "topk": (lambda x: mx.topk(x, 2, axis=-1), [normal(3, 5)]),
    "reshape": (lambda x: mx.reshape(x, (2, 6)), [normal(3, 4)]),
    "transpose": (lambda x: mx.transpose(x, (2, 0, 1)), [normal(2, 3, 4)]),
    "broadcast_to": (lambda x: mx.broadcast_to(x, (2, 3, 4)), [normal(3, 1)]),
    "concatenate": (lambda x, y: mx.concatenate([x, y, x], axis=1), [normal(2, 3), normal(2, 1)]),
    "stack": (lambda x, y: mx.stack([x, y], axis=1), [normal(3), normal(3)]),
    "split": (lambda x: mx.concatenate(mx.split(x, [1, 3], axis=1)[::2], axis=1), [normal(2, 5)]),
    "pad": (lambda x: mx.pad(x, ((1, 0), (2, 1))), [normal(2, 3)]),
    "tile": (lambda x: mx.tile(x, (2, 3)), [normal(2, 3)]),
    "repeat": (lambda x: mx.repeat(x, 3, axis=1), [normal(2, 3)]),
    "roll": (lambda x: mx.roll(x, 2, 1), [normal(2, 5)]),
    "flip by slice": (lambda x: x[::-1, 1::2], [normal(3, 4)]),
    "slice update": (lambda x, y: _updated(x, y), [normal(4, 4), normal(2, 4)]),
    "take": (lambda x: mx.take(x, mx.array(INDEX), axis=0), [normal(3, 4)]),
    "take_along_axis": (lambda x: mx.take_along_axis(x, mx.array([INDEX] * 4).T, axis=0), [normal(3, 4)]),
    "gather": (lambda x: x[mx.array(INDEX), :, mx.array([0, 1, 1])], [normal(3, 4, 2)]),
    "scatter": (lambda x, y: _scattered(x, y), [normal(3, 4), normal(2, 4)]),
    "scatter add": (lambda x, y: x.at[mx.array(INDEX)].add(y), [normal(3, 4), normal(3, 4)]),
    "put_along_axis": (
        lambda x, y: mx.put_along_axis(x, mx.array([[2], [0], [1]]), y, axis=1),
        [normal(3, 4), normal(3, 1)],
    ),
    "as_strided": (lambda x: mx.as_strided(x, (3, 3), (2, 1), 1), [normal(12)]),
    "diag": (mx.diag, [normal(3, 4)]),
    "tril": (mx.tril, [normal(4, 4)]),
    "trace": (mx.trace, [normal(4, 4)]),
    "matmul": (mx.matmul, [normal(2, 3, 4), normal(4, 5)]),
    "matrix-vector": (mx.matmul, [normal(3, 4), normal(4)]),
    "addmm": (lambda c, a, b: mx.addmm(c, a, b, 0.5, 2.0), [normal(5), normal(3, 4), normal(4, 5)]),
    "outer": (mx.outer, [normal(3), normal(4)]),
    "inner": (mx.inner, [normal(2, 4), normal(3, 4)]),
    "tensordot": (lambda a, b: mx.tensordot(a, b, 2), [normal(2, 3, 4), normal(3, 4, 2)]),
    "einsum": (lambda a, b: mx.einsum("bij,kj->bki", a, b), [normal(2, 3, 4), normal(5, 4)]),
    "kron": (mx.kron, [normal(2, 2), normal(3, 1)]),
    "conv1d": (lambda x, w: mx.conv1d(x, w, stride=2, padding=1), [normal(2, 7, 3), normal(4, 3, 3)]),
    "conv2d": (lambda x, w: mx.conv2d(x, w, padding=(1, 0), dilation=2), [normal(1, 6, 7, 2), normal(3, 2, 3, 2)]),
    "grouped conv2d": (lambda x, w: mx.conv2d(x, w, groups=2), [normal(1, 4, 4, 4), normal(4, 2, 2, 2)]),
    "conv_transpose1d": (lambda x, w: mx.conv_transpose1d(x, w, stride=2), [normal(1, 4, 3), normal(2, 3, 3)]),
    "norm": (lambda x: mx.linalg.norm(x, axis=1), [normal(3, 4)]),
    "inv": (lambda x: mx.linalg.inv(x, stream=mx.cpu), [normal(3, 3) + 4 * np.eye(3)]),
    "rms_norm": (lambda x, w: mx.fast.rms_norm(x, w, 1e-5), [normal(3, 8), normal(8)]),
    "layer_norm": (lambda x, w, b: mx.fast.layer_norm(x, w, b, 1e-5), [normal(3, 8), normal(8), normal(8)]),
    "rope": (
        lambda x: mx.fast.rope(x, 6, traditional=True, base=100.0, scale=0.5, offset=2),
        [normal(1, 2, 3, 8)],
    ),
    "attention": (
        lambda q, k, v: mx.fast.scaled_dot_product_attention(q, k, v, scale=0.5, mask="causal"),
        [normal(1, 4, 3, 4), normal(1, 2, 5, 4), normal(1, 2, 5, 4)],
    ),
}

STEP = 1e-3


def _updated(x, y):
    x = x * 1.0
    x[1:3] = y
    return x


def _scattered(x, y):
    x = x * 1.0
    x[mx.array([2, 0])] = y
    return x


def along(function, arguments, directions, weights):
    """The derivative of sum(weights * function) along the directions, by differences of sixth order."""

    def at(t):
        moved = [array64(a + t * d) for a, d in zip(arguments, directions, strict=True)]
        return float((values(function(*moved)) * weights).sum())

    return sum(c * (at(n * STEP) - at(-n * STEP)) for n, c in ((1, 45.0), (2, -9.0), (3, 1.0))) / (60 * STEP)


@pytest.mark.parametrize("name", RULES)
def test_derivatives_equal_differences(name):
    function, arguments = RULES[name]
    rng = np.random.default_rng(len(name))
    given = [array64(a) for a in arguments]
    result = function(*given)
    assert result.dtype is mx.float64
    weights = rng.normal(size=result.shape)
    directions = [rng.normal(size=a.shape) for a in arguments]
    expected = along(function, arguments, directions, weights)
    _, cotangents = mx.vjp(function, given, [array64(weights)])
    assert [c.shape for c in cotangents] == [a.shape for a in given]
    reverse = sum((values(c) * d).sum() for c, d in zip(cotangents, directions, strict=True))
    _, (tangent,) = mx.jvp(function, given, [array64(d) for d in directions])
    assert tangent.shape == result.shape
    forward = (values(tangent) * weights).sum()
    scale = 1 + abs(expected)
    assert abs(reverse - expected) < 2e-7 * scale, f"reverse {reverse}, differences {expected}"
    assert abs(forward - reverse) < 1e-10 * scale, f"forward {forward}, reverse {reverse}"


@pytest.mark.parametrize("name", RULES)
def test_one_argument_may_move_alone(name):
    function, arguments = RULES[name]
    given = [array64(a) for a in arguments]
    result = function(*given)
    rng = np.random.default_rng(1)
    weights = array64(rng.normal(size=result.shape))
    whole = mx.vjp(function, given, [weights])[1]
    for k, a in enumerate(given):

        def alone(x, k=k):
            return function(*given[:k], x, *given[k + 1 :])

        (one,) = mx.vjp(alone, [a], [weights])[1]
        np.testing.assert_allclose(values(one), values(whole[k]), rtol=1e-12, atol=1e-12)
        direction = array64(rng.normal(size=a.shape))
        (tangent,) = mx.jvp(alone, [a], [direction])[1]
        np.testing.assert_allclose(
            (values(tangent) * values(weights)).sum(), (values(one) * values(direction)).sum(), rtol=1e-9, atol=1e-9
        )


@pytest.mark.parametrize("name", RULES)
def test_batches_equal_loops(name):
    function, arguments = RULES[name]
    batches = [np.stack([a, a * 1.01, a * 0.99]) for a in arguments]
    for batched in range(1, 1 << len(arguments)):
        axes = [(k % 2 and -1) if batched >> k & 1 else None for k in range(len(arguments))]
        given, looped = [], []
        for a, b, axis in zip(arguments, batches, axes, strict=True):
            given.append(array64(a if axis is None else np.moveaxis(b, 0, axis)))
        for i in range(3):
            one = [array64(a if x is None else b[i]) for a, b, x in zip(arguments, batches, axes, strict=True)]
            looped.append(values(function(*one)))
        np.testing.assert_allclose(
            values(mx.vmap(function, in_axes=tuple(axes))(*given)), np.stack(looped), rtol=1e-11, atol=1e-12
        )


SMOOTH = ["multiply", "divide", "power", "matmul", "softmax", "logsumexp", "rms_norm", "layer_norm", "conv2d", "inv",
          "attention", "cumprod", "var", "norm", "einsum", "erf", "take", "scatter add", "prod"]  # fmt: skip


@pytest.mark.parametrize("name", SMOOTH)
def test_second_derivatives_equal_differences_of_the_first(name):
    function, arguments = RULES[name]
    rng = np.random.default_rng(3)
    given = [array64(a) for a in arguments]
    weights = array64(rng.normal(size=function(*given).shape))
    direction = array64(rng.normal(size=arguments[0].shape))

    def slope(*xs):
        return (mx.grad(lambda *xs: (function(*xs) * weights).sum())(*xs) * direction).sum()

    directions = [rng.normal(size=a.shape) for a in arguments]
    gradients = mx.grad(slope, argnums=tuple(range(len(given))))(*given)
    gradients = [gradients] if len(given) == 1 else gradients
    found = sum((values(g) * d).sum() for g, d in zip(gradients, directions, strict=True))
    expected = along(slope, arguments, directions, 1.0)
    assert abs(found - expected) < 1e-6 * (1 + abs(expected)), f"{found}, differences {expected}"
