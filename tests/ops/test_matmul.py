"""Products against float64, exact controls in half precision, and the reference's shapes and errors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import outlive.core as mx
from outlive.runtime.errors import ExecutionError
from tests.ops.rules import batch_axes, batched, check_batching, check_derivatives, numbers
from tests.reference import Array, Call
from tests.reference.compare import assert_same_array, assert_same_outcome
from tests.reference.strategies import FLOATS, arrays, dtypes
from tests.reference.wire import Side

OURS = Side(mx)
SIDES = st.sampled_from((0, 1, 2, 3, 7, 16, 33, 65))


@st.composite
def factors(draw) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shapes of two operands that have a product."""
    m, n, k = draw(SIDES), draw(SIDES), draw(SIDES)
    batch = draw(st.sampled_from([((), ()), ((2,), (2,)), ((2,), ()), ((), (3,)), ((2, 1), (3,)), ((2, 1), (2, 3))]))
    left = (*batch[0], m, k) if draw(st.integers(0, 5)) or batch[0] else (k,)
    right = (*batch[1], k, n) if draw(st.integers(0, 5)) or batch[1] else (k,)
    return left, right


@given(data=st.data(), dtype=dtypes(FLOATS), pair=factors())
def test_matmul_equals_the_product_in_float64(data, dtype, pair):
    a, b = [data.draw(arrays(dtype, shape, special=False)) for shape in pair]
    wide_a, wide_b = a.values().astype(np.float64), b.values().astype(np.float64)
    found = OURS.perform(Call("matmul", (a, b))).value
    exact = np.matmul(wide_a, wide_b)
    wanted = OURS.perform(
        Call("array", (Array.of(exact.astype(np.float32)),), {"dtype": OURS.read(getattr(mx, dtype))})
    )
    magnitude = np.matmul(np.abs(wide_a), np.abs(wide_b))
    assert_same_array(found, wanted.value, "matmul", magnitude=magnitude, context=pair)


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_sums_of_half_precision_products_do_not_saturate(kind):
    dtype = getattr(mx, kind)
    ones = mx.ones((2, 20000), dtype)
    wanted = mx.array(20000.0).astype(dtype).item()
    assert (ones @ ones.T).tolist() == [[wanted] * 2] * 2
    assert mx.addmm(mx.zeros((2,), dtype), ones, ones.T).tolist() == [[wanted] * 2] * 2
    assert mx.inner(ones, ones).tolist() == [[wanted] * 2] * 2
    assert mx.einsum("ij,kj->ik", ones, ones).tolist() == [[wanted] * 2] * 2


def test_a_row_with_nan_leaves_the_other_rows_alone():
    a = numbers(37, 65).astype(np.float32)
    b = mx.array(numbers(65, 33).astype(np.float32))
    clean = np.array(mx.array(a) @ b)
    a[5] = np.nan
    dirty = np.array(mx.array(a) @ b)
    assert np.isnan(dirty[5]).all()
    np.testing.assert_array_equal(np.delete(dirty, 5, 0), np.delete(clean, 5, 0))


EINSUMS = [
    ("ij,jk,kl->il", (3, 4), (4, 5), (5, 2)),
    ("ij,jk", (3, 4), (4, 5)),
    ("ij,kj", (3, 4), (5, 4)),
    ("ij,ij->i", (3, 4), (3, 4)),
    ("ij,ij", (3, 4), (3, 4)),
    ("ij->j", (3, 4)),
    ("ij->ji", (3, 4)),
    ("ij,kl->", (3, 4), (2, 2)),
    ("bij,bjk->ibk", (2, 3, 4), (2, 4, 5)),
    ("bij,cjk->bcik", (2, 3, 4), (3, 4, 5)),
    ("bii->b", (2, 3, 3)),
    ("bii->bi", (2, 3, 3)),
    ("...j,jk->...k", (2, 3, 4), (4, 5)),
    ("...i,i->...", (2, 3), (3,)),
    ("b...,b...->...", (2, 3, 4), (2, 3, 4)),
    ("bij,bjk,bk->bi", (2, 3, 4), (2, 4, 5), (2, 5)),
    ("i,j->ij", (3,), (4,)),
    ("i j , j k -> i k", (3, 4), (4, 5)),
    ("ij,jk->ik", (0, 4), (4, 5)),
    ("ij,jk->ik", (3, 0), (0, 5)),
]


@pytest.mark.parametrize(("subscripts", "sizes"), [(e[0], e[1:]) for e in EINSUMS], ids=lambda v: str(v))
def test_einsum_equals_numpy(subscripts, sizes):
    operands = [numbers(*s, seed=i) for i, s in enumerate(sizes)]
    found = mx.einsum(subscripts, *[mx.array(o, dtype=mx.float64) for o in operands])
    np.testing.assert_allclose(np.array(found), np.einsum(subscripts, *operands), rtol=1e-12, atol=1e-12)
    whole = [np.arange(o.size, dtype=np.int32).reshape(o.shape) for o in operands]
    found = mx.einsum(subscripts, *[mx.array(o) for o in whole])
    np.testing.assert_array_equal(np.array(found), np.einsum(subscripts, *whole))


def test_einsum_contracts_a_chain_on_the_cheapest_path():
    steps, report = mx.einsum_path("ij,jk,kl->il", mx.zeros((2, 50)), mx.zeros((50, 60)), mx.zeros((60, 2)))
    assert len(steps) == 2
    assert "scaling" in report


def f(*shape: int) -> Array:
    return Array.of(numbers(*shape).astype(np.float32))


CALLS = [
    Call("matmul", (f(2, 3), f(4, 2))),
    Call("matmul", (Array.of(np.array(1, np.float32)), f(4, 2))),
    Call("matmul", (f(5, 2, 3), f(4, 3, 2))),
    Call("matmul", (Array.of(np.ones((2, 3), np.int32)), Array.of(np.ones((3, 2), np.int32)))),
    Call("matmul", (Array.of(np.ones((2, 3), np.int32)), Array.of(np.ones((3, 2), np.float16)))),
    Call("addmm", (f(2), f(2, 3), f(3, 2), 0.5, 2.0)),
    Call("addmm", (f(2, 3, 2), f(2, 3), f(3, 2))),
    Call("addmm", (f(1), f(3), f(3))),
    Call("inner", (f(2, 3), f(4, 3))),
    Call("inner", (f(2, 3), f(4, 2))),
    Call("outer", (f(2, 3), f(4))),
    Call("tensordot", (f(2, 3, 4), f(3, 4, 5))),
    Call("tensordot", (f(2, 3, 4), f(4, 3, 5), [[1, 2], [1, 0]])),
    Call("tensordot", (f(2, 3), f(4, 5), 0)),
    Call("tensordot", (f(2, 3, 4), f(3, 4, 5), 1)),
    Call("tensordot", (f(2, 3), f(3, 3), 5)),
    Call("kron", (f(2, 2), f(3))),
    Call("vecdot", (f(2, 3), f(2, 3))),
    Call("vecdot", (f(2, 3), f(2, 4))),
    Call("einsum", ("ij,jk->ik", f(2, 3), f(1, 4))),
    Call("einsum", ("i,i", f(2), f(3))),
    Call("einsum", ("ij", f(2))),
    Call("gather_mm", (f(3, 7, 6), f(5, 6, 2), None, Array.of(np.array([0, 4, 2], np.uint32)))),
    Call("gather_mm", (f(3, 7, 6), f(5, 6, 2), Array.of(np.array([1, 2], np.uint32)), Array.of(np.array([[0], [4]], np.uint32)))),
    Call("gather_mm", (f(7, 6), f(5, 6, 2), None, Array.of(np.array([0, 4], np.uint32)))),
    Call("block_masked_mm", (f(65, 64), f(64, 33), 32, Array.of(np.array([[True, False], [True, True], [False, True]])))),
    Call("block_masked_mm", (f(64, 64), f(64, 64), 32, None, Array.of(np.array([[True, False], [True, True]])))),
    Call("segmented_mm", (f(3, 10), f(10, 4), Array.of(np.array([[0, 3], [3, 10], [5, 5]], np.uint32)))),
    Call("segmented_mm", (f(3, 10), f(10, 4), Array.of(np.array([0, 3, 10], np.uint32)))),
]  # fmt: skip


@pytest.mark.parametrize("call", CALLS, ids=lambda c: c.name)
def test_calls_equal_the_reference(reference, call):
    magnitude = np.float64(100.0)
    assert_same_outcome(OURS.perform(call), reference.batch([call])[0], "matmul", magnitude=magnitude, context=call)


def test_a_matrix_out_of_range_is_an_error_of_the_result():
    a, b = mx.ones((2, 3, 4)), mx.ones((5, 4, 2))
    bad = mx.gather_mm(a, b, mx.array([0]), mx.array([5]))
    for _ in range(2):
        with pytest.raises(ExecutionError, match=r"\[gather_mm\].*5 matrices"):
            bad.tolist()


RULES = {
    "matrices": (mx.matmul, (2, 3, 4), (2, 4, 3)),
    "a stack by a matrix": (mx.matmul, (2, 3, 4), (4, 3)),
    "a matrix by a stack": (mx.matmul, (3, 4), (2, 4, 3)),
    "vectors": (mx.matmul, (4,), (4,)),
    "a stack by a vector": (mx.matmul, (5, 3, 4), (4,)),
    "addmm": (lambda c, a, b: mx.addmm(c, a, b, 0.5, 2.0), (3,), (2, 4), (4, 3)),
    "addmm of stacks": (lambda c, a, b: mx.addmm(c, a, b, 0.5, 2.0), (2, 1, 3), (2, 5, 4), (4, 3)),
    "einsum": (lambda a, b, c: mx.einsum("ij,jk,kl->il", a, b, c), (2, 3), (3, 4), (4, 2)),
    "einsum of a diagonal": (lambda a: mx.einsum("bii->b", a), (2, 3, 3)),
    "outer": (mx.outer, (3,), (4,)),
    "kron": (mx.kron, (2, 2), (3, 1)),
    "tensordot": (lambda a, b: mx.tensordot(a, b, [[1, 2], [1, 0]]), (2, 3, 4), (4, 3, 5)),
    "vecdot": (mx.vecdot, (2, 3), (2, 3)),
    "gather_mm": (lambda a, b: mx.gather_mm(a, b, mx.array([0, 1, 0]), mx.array([[2], [0]])), (2, 3, 4), (3, 4, 2)),
    "block_masked_mm": (
        lambda a, b: mx.block_masked_mm(
            a, b, 2, mx.array([[True, False], [True, True]]), mx.array([[1.0, 0.5], [0, 1]])
        ),
        (3, 4),
        (4, 3),
    ),
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
