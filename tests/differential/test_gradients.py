"""Derivatives of every op that has one, against central differences in float64: none may be left out."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import numpy as np
import pytest

import outlive.core as mx
import outlive.ops
from outlive.graph.primitive import Primitive
from tests.ops.rules import check_derivatives, numbers

INDEX = [2, 0, 2]


def positive(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, 5, *shape]).uniform(0.3, 1.7, shape)


def inside(*shape: int) -> np.ndarray:
    return np.random.default_rng([7, *shape]).uniform(-0.8, 0.8, shape)


def spd(n: int) -> np.ndarray:
    m = numbers(n, n)
    return m @ m.T + n * np.eye(n)


def symmetric(function: Any) -> Any:
    return lambda a: function((a + a.T) / 2)


def assigned(x: Any, y: Any) -> Any:
    x = x * 1.0
    x[1:3] = y
    return x


def scattered(x: Any, y: Any) -> Any:
    x = x * 1.0
    x[mx.array([2, 0])] = y
    return x


def depending(x: Any, y: Any) -> Any:
    return mx.depends([x * 2.0], [y])[0] + y


ROWS = mx.array(INDEX)
START = mx.array([1, 0])

# Class of the primitive: a function that uses it, and the inputs.
RULES: dict[str, tuple[Any, ...]] = {
    **{name: (getattr(mx, name.lower()), numbers(3, 4)) for name in (
        "Abs Arcsinh Arctan Cos Cosh Erf Exp Expm1 Negative Sigmoid Sin Sinh Square Tanh").split()},
    **{name: (getattr(mx, name.lower()), positive(3, 4)) for name in "Log Log10 Log1P Log2 Reciprocal Rsqrt Sqrt".split()},
    **{name: (getattr(mx, name.lower()), inside(3, 4)) for name in "Arccos Arcsin Arctanh Erfinv Tan".split()},
    "Arccosh": (mx.arccosh, 1 + positive(5)),
    **{name: (getattr(mx, name.lower()), numbers(3, 4), numbers(4, seed=1)) for name in (
        "Add Subtract Multiply Maximum Minimum Logaddexp").split()},
    "Divide": (mx.divide, numbers(3, 4), positive(3, 1)),
    "Power": (mx.power, positive(3, 4), numbers(4)),
    "Arctan2": (mx.arctan2, numbers(3, 4), positive(4)),
    "Remainder": (mx.remainder, positive(7) * 3.1, positive(7, seed=1)),
    "Select": (lambda x, y: mx.where(mx.array([True, False, True]), x, y), numbers(2, 3), numbers(3)),
    "Conv": (lambda x, w: mx.conv2d(x, w, stride=(2, 1), padding=1, dilation=(1, 2)), numbers(2, 6, 7, 3), numbers(4, 3, 2, 3)),
    "Diagonal": (lambda a: mx.diagonal(a, 1, 0, 2), numbers(3, 2, 4)),
    "Full": (lambda a: mx.full((2, 3), a), numbers(3)),
    "Gather": (lambda x: x[ROWS, :, mx.array([0, 1, 1])], numbers(3, 4, 2)),
    "Scatter": (scattered, numbers(3, 4), numbers(2, 4)),
    "ScatterReduce": (lambda x, y: x.at[ROWS].add(y), numbers(3, 4), numbers(3, 4, seed=1)),
    "ScatterAlongAxis": (lambda x, y: mx.put_along_axis(x, mx.array([[2], [0], [1]]), y, axis=1), numbers(3, 4), numbers(3, 1)),
    "Take": (lambda x: mx.take(x, ROWS, axis=0), numbers(3, 4)),
    "TakeAlongAxis": (lambda x: mx.take_along_axis(x, mx.array([INDEX] * 4).T, axis=0), numbers(3, 4)),
    "GatherMM": (lambda a, b: mx.gather_mm(a, b, None, ROWS), numbers(3, 2, 4), numbers(3, 4, 5)),
    "Hadamard": (mx.hadamard_transform, numbers(3, 8)),
    "Concatenate": (lambda x, y: mx.concatenate([x, y, x], axis=1), numbers(2, 3), numbers(2, 1)),
    "Pad": (lambda x: mx.pad(x, ((1, 0), (2, 1))), numbers(2, 3)),
    "Cholesky": (symmetric(mx.linalg.cholesky), spd(3)),
    "Determinant": (mx.linalg.det, numbers(2, 3, 3)),
    "SignedLogDeterminant": (lambda a: mx.linalg.slogdet(a)[1], numbers(2, 3, 3)),
    "EigenvaluesHermitian": (symmetric(mx.linalg.eigvalsh), spd(3)),
    "Eigh": (symmetric(lambda a: mx.square(mx.linalg.eigh(a)[1])), spd(3)),
    "Inverse": (mx.linalg.inv, spd(3)),
    "SingularValues": (lambda a: mx.linalg.svd(a, compute_uv=False), numbers(3, 4)),
    "Solve": (mx.linalg.solve, spd(3), numbers(3, 2)),
    "AddMM": (lambda c, a, b: mx.addmm(c, a, b, 0.5, 2.0), numbers(5), numbers(3, 4), numbers(4, 5)),
    "Matmul": (mx.matmul, numbers(2, 3, 4), numbers(4, 5)),
    "LayerNorm": (lambda x, w, b: mx.fast.layer_norm(x, w, b, 1e-5), numbers(3, 7), numbers(7), numbers(7, seed=1)),
    "RMSNorm": (lambda x, w: mx.fast.rms_norm(x, w, 1e-5), numbers(3, 7), numbers(7)),
    "LogSumExp": (lambda x: mx.logsumexp(x, axis=0), numbers(3, 4)),
    "Max": (lambda x: mx.max(x, axis=1), numbers(3, 4)),
    "Min": (mx.min, numbers(3, 4)),
    "Mean": (lambda x: mx.mean(x, axis=(0, 2)), numbers(3, 4, 2)),
    "Prod": (lambda x: mx.prod(x, axis=1), numbers(3, 4)),
    "Softmax": (lambda x: mx.softmax(x, axis=0), numbers(3, 4)),
    "Sum": (lambda x: mx.sum(x, axis=1, keepdims=True), numbers(3, 4, 2)),
    "Rope": (lambda x: mx.fast.rope(x, 6, traditional=False, base=100.0, scale=0.5, offset=2), numbers(1, 2, 3, 8)),
    "Attention": (
        lambda q, k, v: mx.fast.scaled_dot_product_attention(q, k, v, scale=0.5, mask="causal"),
        numbers(1, 4, 3, 4), numbers(1, 2, 5, 4), numbers(1, 2, 5, 4, seed=1),
    ),
    "CumMax": (lambda x: mx.cummax(x, axis=1), numbers(3, 4)),
    "CumMin": (lambda x: mx.cummin(x, axis=0, reverse=True), numbers(3, 4)),
    "CumProd": (lambda x: mx.cumprod(x, axis=0), numbers(3, 4)),
    "CumSum": (lambda x: mx.cumsum(x, axis=1, reverse=True, inclusive=False), numbers(3, 4)),
    "LogCumSumExp": (lambda x: mx.logcumsumexp(x, axis=1), numbers(3, 4)),
    "AsStrided": (lambda x: mx.as_strided(x, (3, 3), (2, 1), 1), numbers(12)),
    "Broadcast": (lambda x: mx.broadcast_to(x, (2, 3, 4)), numbers(3, 1)),
    "Contiguous": (lambda x: mx.contiguous(x.T), numbers(3, 4)),
    "Depends": (depending, numbers(3), numbers(3, seed=1)),
    "Reshape": (lambda x: mx.reshape(x, (2, 6)), numbers(3, 4)),
    "Transpose": (lambda x: mx.transpose(x, (2, 0, 1)), numbers(2, 3, 4)),
    "DynamicSlice": (lambda x: mx.slice(x, START, (0, 1), (2, 3)), numbers(3, 4)),
    "DynamicSliceUpdate": (lambda x, y: mx.slice_update(x, y, START, (0, 1)), numbers(3, 4), numbers(2, 3)),
    "Slice": (lambda x: x[::-1, 1::2], numbers(3, 4)),
    "SliceUpdate": (assigned, numbers(4, 4), numbers(2, 4)),
    "Partition": (lambda x: mx.topk(x, 2), numbers(3, 7)),
    "Sort": (lambda x: mx.sort(x, axis=0), numbers(5, 3)),
}  # fmt: skip

FLAT = {
    "Ceil": mx.ceil, "Floor": mx.floor, "Round": mx.round, "Sign": mx.sign, "Trunc": mx.trunc, "StopGradient": mx.stop_gradient,
    "FloorDivide": lambda x: x // 0.3,
}  # fmt: skip
"""Classes whose derivative is zero wherever there is one."""

NUMBERLESS = set(
    "All ArgMax ArgMin ArgPartition ArgSort BitwiseAnd BitwiseInvert BitwiseOr BitwiseXor Equal Greater GreaterEqual Isfinite Isinf "
    "Isnan Isneginf Isposinf LeftShift Less LessEqual LogicalAnd LogicalNot LogicalOr LogicalXor NotEqual RightShift SearchSorted "
    "Some RandomBits".split()
)
"""Classes whose results are whole numbers or booleans."""

ELSEWHERE = {
    "AsType": "between two types: below",
    "CrossEntropy": "computed in float32: below",
    "Conjugate": "complex64 alone: below",
    "ComplexPart": "complex64 alone: tests/ops/test_elementwise.py",
    "Transform": "complex64 alone: tests/ops/test_fft.py",
    "RealTransform": "complex64 alone: tests/ops/test_fft.py",
    "RealInverse": "complex64 alone: tests/ops/test_fft.py",
    "Dequantize": "of weights in float32: tests/ops/test_quantize.py",
    "QuantizedMatmul": "of weights in float32: tests/ops/test_quantize.py",
    "GatherQMM": "of weights in float32: tests/ops/test_quantize.py",
    "GatedDelta": "states in float32: tests/ops/test_fast.py",
    "LinearRecurrence": "the derivative of scans alone uses it",
    "_Checkpoint": "tests/transforms/test_custom.py",
    "_CustomCall": "tests/transforms/test_custom.py",
    "Identity": "a mark of the transforms",
}


def primitives_with_derivatives() -> dict[str, type[Primitive]]:
    for module in pkgutil.iter_modules(outlive.ops.__path__):
        importlib.import_module(f"outlive.ops.{module.name}")
    waiting, found = [Primitive], {}
    while waiting:
        for kind in waiting.pop().__subclasses__():
            waiting.append(kind)
            if kind.name and kind.vjp is not Primitive.vjp and kind.__module__.startswith("outlive."):
                found[kind.__name__] = kind
    return found


def test_every_op_with_a_derivative_has_an_entry():
    tables = [set(RULES), set(FLAT), NUMBERLESS, set(ELSEWHERE)]
    assert sum(map(len, tables)) == len(set.union(*tables)), "a class stands in two tables"
    assert set.union(*tables) == set(primitives_with_derivatives())


@pytest.fixture
def used(monkeypatch):
    """Names of the classes whose rule for reverse derivatives ran."""
    ran: set[str] = set()
    for name, kind in primitives_with_derivatives().items():
        rule = kind.vjp

        def recording(self, *arguments, _rule=rule, _name=name):
            ran.add(type(self).__name__)
            return _rule(self, *arguments)

        monkeypatch.setattr(kind, "vjp", recording)
    return ran


@pytest.mark.parametrize("name", sorted(RULES))
def test_derivatives_equal_differences(name, used):
    function, *inputs = RULES[name]
    check_derivatives(function, *inputs)
    assert name in used


@pytest.mark.parametrize("name", sorted(FLAT))
def test_steps_have_no_slope(name, used):
    x = mx.array([0.2, 1.7, -2.4])
    assert mx.grad(lambda x: (FLAT[name](x) + x).sum())(x).tolist() == [1, 1, 1]
    assert name in used


def test_conversions_give_the_cotangent_back_in_the_first_type(used):
    gradient = mx.grad(lambda x: (x.astype(mx.float32) * 3).sum())(mx.array([1.0, 2.0], mx.float16))
    assert gradient.dtype == mx.float16
    assert gradient.tolist() == [3, 3]
    assert "AsType" in used


def test_the_derivative_of_cross_entropy_is_the_distance_from_the_target(used):
    x = mx.array(numbers(3, 7).astype(np.float32))
    gradient = mx.grad(lambda x: mx.fast.cross_entropy(x, ROWS).sum())(x)
    shares = np.exp(numbers(3, 7)) / np.exp(numbers(3, 7)).sum(-1, keepdims=True)
    np.testing.assert_allclose(np.array(gradient), shares - np.eye(7)[INDEX], atol=1e-6)
    assert "CrossEntropy" in used


def test_the_derivative_of_a_conjugate_is_conjugated(used):
    z = mx.array([1 + 2j, -3j])
    _, (gradient,) = mx.vjp(mx.conjugate, [z], [mx.array([2 + 1j, 1 - 4j])])
    assert gradient.tolist() == [2 - 1j, 1 + 4j]
    assert "Conjugate" in used
