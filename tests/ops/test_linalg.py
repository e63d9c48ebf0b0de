"""Linear algebra: factors that multiply back, the reference's results and errors, failures that stay with their array."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import outlive.core as mx
from tests.budget import examples
from tests.ops.rules import check_batching, check_derivatives, numbers
from tests.reference import Array, Call
from tests.reference.compare import assert_same_outcome
from tests.reference.strategies import arrays, dtypes, shapes
from tests.reference.wire import Side

OURS = Side(mx)
SIZES = [1, 2, 3, 7, 33]
STACKS = [(), (3,), (2, 1), (0,)]


def same(reference, call, op: str = "") -> None:
    assert_same_outcome(OURS.perform(call), reference.batch([call])[0], op, context=call)


def regular(*shape: int, dtype: str = "float32") -> np.ndarray:
    """Matrices far from singular."""
    n = min(shape[-2:])
    return (numbers(*shape) + 2 * n * np.eye(*shape[-2:])).astype(dtype)


def definite(*shape: int, dtype: str = "float32") -> np.ndarray:
    """Symmetric positive definite matrices."""
    x = numbers(*shape)
    return (x @ np.swapaxes(x, -1, -2) + np.eye(shape[-1])).astype(dtype)


def near(got: object, want: np.ndarray, factor: float = 1.0) -> None:
    scale = np.abs(want).max() if want.size else 1.0
    np.testing.assert_allclose(np.array(got), want, rtol=0, atol=factor * 3e-5 * max(1.0, scale))


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_inverses_and_solutions_fulfil_their_equations(n, stack, dtype):
    a = regular(*stack, n, n, dtype=dtype)
    x = mx.array(a, dtype=getattr(mx, dtype))
    assert mx.linalg.inv(x).dtype == getattr(mx, dtype)
    near(mx.linalg.inv(x) @ x, np.broadcast_to(np.eye(n), a.shape))
    for shape in ((n,), (*stack, n, 5), (n, 1)):
        b = numbers(*shape).astype(dtype)
        columns = b if len(shape) > 1 else b[:, None]
        solved = np.array(mx.linalg.solve(x, mx.array(b, dtype=getattr(mx, dtype))))
        near(
            a @ (solved if len(shape) > 1 else solved[..., None]),
            np.broadcast_to(columns, (*stack, *columns.shape[-2:])),
        )


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("n", SIZES)
def test_only_one_triangle_is_read(upper, n):
    a, b = regular(2, n, n), numbers(2, n, 3).astype(np.float32)
    triangle = np.triu(a) if upper else np.tril(a)
    poisoned = mx.array(np.where(triangle == 0, np.float32(np.nan), a))
    near(mx.linalg.tri_inv(poisoned, upper) @ mx.array(triangle), np.broadcast_to(np.eye(n), a.shape))
    near(mx.array(triangle) @ mx.linalg.solve_triangular(poisoned, mx.array(b), upper=upper), b)
    s = definite(2, n, n)
    one_sided = mx.array(np.where(np.triu(s) == 0 if upper else np.tril(s) == 0, np.float32(np.nan), s))
    factor = mx.linalg.cholesky(one_sided, upper)
    turned = mx.swapaxes(factor, -1, -2)
    near(turned @ factor if upper else factor @ turned, s)
    near(mx.linalg.cholesky_inv(factor, upper) @ mx.array(s), np.broadcast_to(np.eye(n), s.shape), 10)


@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (5, 3), (3, 5), (2, 7, 4), (0, 3, 2), (33, 17)])
def test_factors_multiply_back(shape):
    a = numbers(*shape).astype(np.float32)
    x, k = mx.array(a), min(shape[-2:])
    q, r = mx.linalg.qr(x)
    near(q @ r, a)
    near(mx.swapaxes(q, -1, -2) @ q, np.broadcast_to(np.eye(k), (*shape[:-2], k, k)))
    u, s, vt = mx.linalg.svd(x)
    assert (u.shape[-2:], vt.shape[-2:]) == ((shape[-2],) * 2, (shape[-1],) * 2)
    near(u[..., :k] * mx.expand_dims(s, -2) @ vt[..., :k, :], a)
    near(mx.linalg.svd(x, compute_uv=False), np.array(s))
    p, lower, upper = mx.linalg.lu(x)
    near(mx.take_along_axis(lower, mx.expand_dims(p, -1), -2) @ upper, a)
    near(mx.array(a) @ mx.linalg.pinv(x) @ mx.array(a), a, 3)


@pytest.mark.parametrize("kind", ["float32", "complex64"])
def test_eigenvectors_fulfil_their_equation(kind):
    s = definite(3, 5, 5).astype(kind)
    if kind == "complex64":
        twist = numbers(3, 5, 5) * 1j
        s = (s + twist - np.swapaxes(twist, -1, -2)).astype(kind)
    x = mx.array(s)
    values, vectors = mx.linalg.eigh(x)
    near(x @ vectors, np.array(vectors) * np.array(values)[..., None, :])
    assert np.all(np.diff(np.array(values)) >= 0)
    near(mx.linalg.eigvalsh(x), np.array(values))
    general = mx.array(numbers(3, 4, 4).astype(np.float32))
    values, vectors = mx.linalg.eig(general)
    assert values.dtype == vectors.dtype == mx.complex64
    near(np.array(general) @ np.array(vectors), np.array(vectors) * np.array(values)[..., None, :])
    np.testing.assert_allclose(
        np.sort_complex(np.array(mx.linalg.eigvals(general))), np.sort_complex(np.array(values)), atol=1e-5
    )


def test_a_packed_factorization_equals_the_reference(reference):
    for shape in ((3, 3), (5, 3), (3, 5), (2, 4, 4)):
        a = Array.of(regular(*shape))
        for call in (Call("linalg.lu_factor", (a,)), Call("linalg.lu", (a,))):
            for got, want in zip(OURS.perform(call).value, reference.batch([call])[0].value, strict=True):
                assert got.dtype == want.dtype
                near(got.values(), want.values())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_determinants_equal_numpys(dtype):
    for n in (0, 1, 2, 3, 7):
        a = numbers(4, n, n).astype(dtype)
        x = mx.array(a, dtype=getattr(mx, dtype))
        np.testing.assert_allclose(np.array(mx.linalg.det(x)), np.linalg.det(a), rtol=1e-4)
        sign, logarithm = mx.linalg.slogdet(x)
        np.testing.assert_array_equal(np.array(sign), np.linalg.slogdet(a)[0])
        np.testing.assert_allclose(np.array(logarithm), np.linalg.slogdet(a)[1], rtol=1e-4, atol=1e-5)
    assert mx.linalg.det(mx.array([[4, 1], [2, 3]])).item() == 10.0
    assert [v.item() for v in mx.linalg.slogdet(mx.zeros((2, 2)))] == [0.0, -np.inf]


@pytest.mark.parametrize(
    ("op", "matrix"), [("inv", np.zeros((2, 2))), ("cholesky", -np.eye(3)), ("tri_inv", np.zeros((2, 2)))]
)
def test_a_matrix_without_an_answer_fails_at_each_read_and_nothing_else_does(op, matrix):
    good = mx.arange(1000) * 2
    bad = getattr(mx.linalg, op)(mx.array(matrix, dtype=mx.float32))
    dependent = (bad + 1).sum()
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"\[linalg\."):
            dependent.item()
        with pytest.raises(RuntimeError, match=r"\[linalg\."):
            mx.eval(good, bad)
    assert good[-1].item() == 1998


@pytest.mark.parametrize(
    "op", ["inv", "cholesky", "qr", "svd", "eigh", "eig", "lu", "det", "pinv", "tri_inv", "slogdet"]
)
@pytest.mark.parametrize("bad", [np.ones(3, np.float32), np.ones((2, 3), np.float32), np.ones((2, 2), np.int32)])
def test_shapes_and_types_without_a_meaning_are_refused_as_in_the_reference(reference, op, bad):
    if op in ("qr", "svd", "lu", "pinv") and bad.shape == (2, 3):
        return  # rectangular matrices have these
    if op in ("det", "slogdet") and bad.dtype == np.int32:
        return  # integers are taken as float32
    same(reference, Call(f"linalg.{op}", (Array.of(bad),)))


def test_right_hand_sides_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"\[linalg\.solve\].*\(2, 2\).*\(3,\)"):
        mx.linalg.solve(mx.eye(2), mx.zeros((3,)))


@settings(max_examples=examples(60))
@given(
    data=st.data(),
    dtype=dtypes(("float16", "float32", "int32", "complex64")),
    shape=shapes(rank_min=1, elements_max=256),
)
def test_norms_equal_float64(data, dtype, shape):
    a = data.draw(arrays(dtype, shape, special=False))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    order = data.draw(st.sampled_from([None, 0, 1, 2, 3, 0.5]))
    got = OURS.perform(Call("linalg.norm", (a,), {"ord": order, "axis": axis})).value
    assert got.dtype == {"int32": "float32", "complex64": "float32"}.get(dtype, dtype)
    wide = a.values().astype(np.complex128 if dtype == "complex64" else np.float64)
    want = np.linalg.norm(wide, ord=order, axis=axis)
    if np.abs(want).max(initial=0.0) > 60000 and dtype == "float16":
        return
    np.testing.assert_allclose(got.values(), want, rtol=2e-3 if dtype == "float16" else 1e-5, atol=1e-6)


@pytest.mark.parametrize("order", [None, "fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf])
@pytest.mark.parametrize("axis", [(0, 1), (2, 0), (-1, -2)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_matrix_norms_equal_the_reference(reference, order, axis, keepdims):
    a = Array.of(numbers(3, 4, 5).astype(np.float32))
    call = Call("linalg.norm", (a, order, list(axis), keepdims))
    got, want = OURS.perform(call).value, reference.batch([call])[0].value
    assert got.resolved().shape == want.resolved().shape
    np.testing.assert_allclose(got.values(), want.values(), rtol=1e-5)


@pytest.mark.parametrize(
    "arguments", [("fro", 0), ("zz", 0), (3, None), (2, [0, 1, 2]), (None, [0, 1, 2]), (2, 5), ("zz", [0, 1])]
)
def test_norms_without_a_meaning_are_refused_as_in_the_reference(reference, arguments):
    a = Array.of(np.ones((2, 3, 2) if arguments[1] != None else (2, 3), np.float32))  # noqa: E711
    same(reference, Call("linalg.norm", (a, *arguments)))


def test_half_precision_norms_do_not_overflow():
    assert mx.linalg.norm(mx.array([300.0, 400.0], mx.float16)).item() == 500.0


@pytest.mark.parametrize("sizes", [(3, 3), (2, 3), (3, 2), (2, 2)])
def test_cross_products_equal_the_reference(reference, sizes):
    a, b = (Array.of(numbers(4, n, seed=i).astype(np.float32)) for i, n in enumerate(sizes))
    same(reference, Call("linalg.cross", (a, b)), "linalg.norm")


INVERTIBLE = [
    ("inv", lambda a: mx.linalg.inv(a)), ("det", lambda a: mx.linalg.det(a)), ("slogdet", lambda a: mx.linalg.slogdet(a)[1]),
    ("solve", lambda a: mx.linalg.solve(a, a[..., :1] * 2)), ("tri_inv", lambda a: mx.linalg.tri_inv(a)),
    ("triangular", lambda a: mx.linalg.solve_triangular(a, a[..., :2], upper=True)), ("pinv", lambda a: mx.linalg.inv(a @ a)),
    ("norm", lambda a: mx.linalg.norm(a, 2, (-2, -1))), ("frobenius", lambda a: mx.linalg.norm(a)),
    ("nuclear", lambda a: mx.linalg.norm(a, "nuc", (-2, -1))), ("vector", lambda a: mx.linalg.norm(a, 3, -1)),
    ("cross", lambda a: mx.linalg.cross(a, a[..., ::-1, :] + 1)), ("svd", lambda a: mx.linalg.svd(a, False)),
]  # fmt: skip


@pytest.mark.parametrize("function", [f for _, f in INVERTIBLE], ids=[name for name, _ in INVERTIBLE])
def test_derivatives(function):
    check_derivatives(function, regular(2, 3, 3, dtype="float64"), tolerance=1e-5)


@pytest.mark.parametrize("upper", [False, True])
def test_derivatives_of_symmetric_factorizations(upper):
    def symmetric(a: mx.array) -> mx.array:
        return (a + mx.swapaxes(a, -1, -2)) * 0.5

    s = definite(2, 3, 3, dtype="float64")
    check_derivatives(lambda a: mx.linalg.cholesky(symmetric(a), upper), s, tolerance=1e-5)
    triangle = "U" if upper else "L"
    check_derivatives(lambda a: mx.linalg.eigvalsh(symmetric(a), triangle), s, tolerance=1e-5)
    # the sign of an eigenvector is free, its square is not
    check_derivatives(lambda a: mx.square(mx.linalg.eigh(symmetric(a), triangle)[1]), s, tolerance=1e-4)


@pytest.mark.parametrize("batch", [0, 1, 2])
def test_batches_equal_a_loop(batch):
    a = np.moveaxis(regular(4, 3, 3), 0, batch)
    for function in (
        lambda a: mx.linalg.inv(a), lambda a: mx.linalg.det(a), lambda a: mx.linalg.qr(a)[1], lambda a: mx.linalg.lu(a)[0],
        lambda a: mx.linalg.svd(a, False), lambda a: mx.linalg.solve(a, mx.ones((3,))), lambda a: mx.linalg.norm(a, 1),
    ):  # fmt: skip
        check_batching(function, a, axes=(batch,), tolerance=1e-4)
    check_batching(
        lambda a, b: mx.linalg.solve(a, b), a, numbers(3, 4).astype(np.float32), axes=(batch, 1), tolerance=1e-4
    )


def test_transposed_and_strided_matrices_are_read_as_they_are():
    base = regular(6, 6)
    x = mx.array(base)
    np.testing.assert_allclose(np.array(mx.linalg.inv(x.T)), np.linalg.inv(base.T), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(
        np.array(mx.linalg.inv(x[::2, ::2])), np.linalg.inv(base[::2, ::2]), rtol=1e-4, atol=1e-6
    )
