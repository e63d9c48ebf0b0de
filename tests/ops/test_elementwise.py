"""Elementwise ops: the reference's results and errors on every type and view, NumPy's where the reference errs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import outlive.core as mx
from tests.budget import examples
from tests.ops.rules import check_batching, check_derivatives, numbers
from tests.reference import Array, Call, Program
from tests.reference.compare import assert_same_outcome
from tests.reference.strategies import FLOATS, INTEGERS, NUMBERS, REALS, arrays, broadcastable, dtypes, shapes
from tests.reference.wire import Dtype, Side

OURS = Side(mx)
SMALL = {"elements_max": 256}
LIBRARY = "exp"
"""The op whose tolerance holds for what goes through several rounded steps."""


def same(reference, call, op: str = "") -> None:
    assert_same_outcome(OURS.perform(call), reference.batch([call])[0], op, context=call)


ARITHMETIC = ["add", "subtract", "multiply", "maximum", "minimum"]
COMPARISONS = ["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"]
LOGIC = ["logical_and", "logical_or", "logical_xor"]
BITS = ["bitwise_and", "bitwise_or", "bitwise_xor"]


@pytest.mark.parametrize("op", ARITHMETIC + COMPARISONS + LOGIC)
@settings(max_examples=examples(30))
@given(data=st.data(), dtype=dtypes(REALS), pair=broadcastable(2, **SMALL))
def test_two_operands_of_one_type_equal_the_reference(reference, op, data, dtype, pair):
    same(reference, Call(op, tuple(data.draw(arrays(dtype, shape)) for shape in pair)), op)


@pytest.mark.parametrize("op", ["add", "subtract", "multiply", "divide", "maximum", "minimum", *COMPARISONS])
@settings(max_examples=examples(20))
@given(data=st.data(), pair=broadcastable(2, **SMALL))
def test_two_complex_operands_equal_numpys(op, data, pair):
    a, b = (data.draw(arrays("complex64", shape, special=False)).values() for shape in pair)
    want = getattr(np, op)(a, b)
    got = np.array(getattr(mx, op)(mx.array(a), mx.array(b)))
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-4)


@pytest.mark.parametrize("op", ["add", "multiply", "maximum", "less"])
@settings(max_examples=examples(60))
@given(data=st.data(), first=dtypes(NUMBERS), second=dtypes(NUMBERS), pair=broadcastable(2, elements_max=16))
def test_operands_of_two_types_are_promoted_as_the_reference_does(reference, op, data, first, second, pair):
    values = [data.draw(arrays(d, s, special=False)) for d, s in zip((first, second), pair, strict=True)]
    same(reference, Call(op, tuple(values)), op)


@pytest.mark.parametrize("op", ["divide", "arctan2", "logaddexp"])
@settings(max_examples=examples(40))
@given(data=st.data(), dtype=dtypes((*INTEGERS, "bool", "float32")), pair=broadcastable(2, **SMALL))
def test_functions_of_two_operands_take_integers_as_float32(reference, op, data, dtype, pair):
    same(reference, Call(op, tuple(data.draw(arrays(dtype, shape)) for shape in pair)), op)


@pytest.mark.parametrize("op", ["floor_divide", "remainder"])
@settings(max_examples=examples(60))
@given(data=st.data(), dtype=dtypes((*INTEGERS, "float32")), pair=broadcastable(2, **SMALL))
def test_whole_quotients_and_remainders_equal_the_reference(reference, op, data, dtype, pair):
    a = data.draw(arrays(dtype, pair[0], special=False))
    b = data.draw(arrays(dtype, pair[1], special=False, views=False))
    divisor = Array(dtype, np.where(b.values() == 0, 3, b.values()).astype(b.stored.dtype))
    same(reference, Call(op, (a, divisor)), op)


@pytest.mark.parametrize("kind", [np.int8, np.int32, np.int64, np.uint8, np.float32])
def test_quotient_and_remainder_make_the_dividend(kind):
    a = np.array([[-7, 7, -8, 8, 0, -1, 100]], kind).T if kind is not np.uint8 else np.array([[0, 7, 200]], kind).T
    b = np.array([3, -3, 8, -8, 1] if kind is not np.uint8 else [3, 8, 1], kind)
    quotient, remainder = mx.divmod(mx.array(a), mx.array(b))
    np.testing.assert_array_equal(np.array(quotient), np.floor_divide(a, b))
    np.testing.assert_array_equal(np.array(remainder), np.remainder(a, b))


def test_division_of_integers_by_zero_gives_zero_and_does_not_end_the_process():
    a = mx.array([5, -5, 0])
    assert mx.floor_divide(a, 0).tolist() == [0, 0, 0]
    assert mx.remainder(a, 0).tolist() == [0, 0, 0]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "uint64"])
def test_integer_powers_wrap_like_repeated_products(dtype):
    a = np.arange(0, 12).astype(dtype)
    got = np.array(mx.power(mx.array(a)[:, None], mx.array(np.arange(9).astype(dtype))[None]))
    with np.errstate(over="ignore"):
        want = np.stack([np.prod(np.repeat(a[:, None], n, 1), axis=1, dtype=dtype) for n in range(9)], 1)
    np.testing.assert_array_equal(got, want)


def test_negative_powers_of_integers_are_the_integer_part_of_the_inverse():
    assert mx.power(mx.array([1, -1, -1, 2, 0]), mx.array([-3, -3, -2, -1, -1])).tolist() == [1, -1, 1, 0, 0]


@settings(max_examples=examples(40))
@given(data=st.data(), pair=broadcastable(2, **SMALL))
def test_powers_of_floats_equal_numpys(data, pair):
    a, b = (data.draw(arrays("float32", shape)).values() for shape in pair)
    with np.errstate(all="ignore"):
        want = np.power(a.astype(np.float64), b.astype(np.float64))
        got = np.array(mx.power(mx.array(a), mx.array(b)))
        np.testing.assert_allclose(got, want.astype(np.float32), rtol=5e-7)


@pytest.mark.parametrize("op", BITS)
@settings(max_examples=examples(30))
@given(data=st.data(), dtype=dtypes((*INTEGERS, "bool")), pair=broadcastable(2, **SMALL))
def test_bits_equal_the_reference(reference, op, data, dtype, pair):
    same(reference, Call(op, tuple(data.draw(arrays(dtype, shape)) for shape in pair)), op)


@pytest.mark.parametrize("op", ["left_shift", "right_shift"])
@settings(max_examples=examples(30))
@given(data=st.data(), dtype=dtypes((*INTEGERS, "bool")), shape=shapes(**SMALL))
def test_shifts_below_the_width_equal_the_reference(reference, op, data, dtype, shape):
    a = data.draw(arrays(dtype, shape))
    places = np.random.default_rng(7).integers(0, 8 if dtype != "bool" else 2, shape).astype(a.stored.dtype)
    same(reference, Call(op, (a, Array(dtype, places))), op)


@pytest.mark.parametrize("op", [*BITS, "left_shift", "right_shift"])
def test_bits_of_floats_are_refused_as_in_the_reference(reference, op):
    pair = Array.of(np.ones(2, np.float32)), Array.of(np.ones(2, np.int32))
    same(reference, Call(op, pair))


@pytest.mark.parametrize("op", ["add", "subtract", "multiply", "divide", "maximum", "power", "less"])
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "float16", "bfloat16", "float32", "complex64"])
@pytest.mark.parametrize("number", [True, 2, 2.5, 1.5j])
def test_a_python_number_takes_the_arrays_type_where_that_holds_its_kind(reference, op, dtype, number):
    bits = np.array([1, 2, 1], np.uint16 if dtype == "bfloat16" else np.bool_ if dtype == "bool" else dtype)
    a = Array("bfloat16", np.array([0x3F80, 0x4000, 0x3F80], np.uint16)) if dtype == "bfloat16" else Array(dtype, bits)
    same(reference, Call(op, (a, number)), op)


WHOLE = [
    "abs",
    "sign",
    "negative",
    "square",
    "positive",
    "floor",
    "ceil",
    "trunc",
    "round",
    "logical_not",
    "real",
    "imag",
]


@pytest.mark.parametrize("op", WHOLE)
@settings(max_examples=examples(30))
@given(data=st.data(), dtype=dtypes(NUMBERS), shape=shapes(**SMALL))
def test_functions_that_keep_the_type_equal_the_reference(reference, op, data, dtype, shape):
    a = data.draw(arrays(dtype, shape, special=op != "sign"))
    same(reference, Call(op, (a,)), LIBRARY if dtype == "complex64" and op in ("abs", "sign", "square") else op)


@pytest.mark.parametrize("op", ["isnan", "isinf", "isfinite", "isposinf", "isneginf"])
@settings(max_examples=examples(30))
@given(data=st.data(), dtype=dtypes(REALS), shape=shapes(**SMALL))
def test_tests_of_values_equal_the_reference(reference, op, data, dtype, shape):
    same(reference, Call(op, (data.draw(arrays(dtype, shape)),)))


def test_the_sign_of_nan_is_nan_as_in_numpy():
    x = np.array([-2.0, -0.0, 0.0, 3.0, np.nan, np.inf], np.float32)
    np.testing.assert_array_equal(np.array(mx.sign(mx.array(x))), np.sign(x))


FUNCTIONS = {
    "exp": np.exp, "expm1": np.expm1, "log": np.log, "log2": np.log2, "log10": np.log10, "log1p": np.log1p, "sin": np.sin,
    "cos": np.cos, "tan": np.tan, "arcsin": np.arcsin, "arccos": np.arccos, "arctan": np.arctan, "sinh": np.sinh,
    "cosh": np.cosh, "tanh": np.tanh, "arcsinh": np.arcsinh, "arccosh": np.arccosh, "arctanh": np.arctanh,
    "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "reciprocal": lambda x: 1 / x,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "degrees": np.degrees, "radians": np.radians,
    "erf": np.vectorize(math.erf, otypes=[np.float64]),
}  # fmt: skip
EPSILON = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23}


@pytest.mark.parametrize("op", FUNCTIONS)
@settings(max_examples=examples(25))
@given(data=st.data(), dtype=dtypes(FLOATS), shape=shapes(**SMALL))
def test_functions_are_within_four_units_of_the_float64_result(op, data, dtype, shape):
    given_ = data.draw(arrays(dtype, shape))
    x = given_.values().astype(np.float64)
    with np.errstate(all="ignore"):
        want = FUNCTIONS[op](x)
        got = OURS.perform(Call(op, (given_,))).value
        assert got.dtype == dtype
        found = got.values().astype(np.float64)
        limit = np.finfo(np.float16).max if dtype == "float16" else np.finfo(np.float32).max
        unit = EPSILON[dtype] * np.maximum(np.abs(want), 2.0**-14 if dtype == "float16" else 2.0**-126)
        large = np.abs(want) > 0.99 * limit
        near = np.abs(found - want) <= 4 * unit
    np.testing.assert_array_equal(np.isnan(found), np.isnan(want))
    assert np.all(near | np.isnan(want) | (found == want) | (large & (np.sign(found) == np.sign(want))))


@pytest.mark.parametrize("op", [*FUNCTIONS, "erfinv"])
@settings(max_examples=examples(15))
@given(data=st.data(), dtype=dtypes((*INTEGERS, "bool")), shape=shapes(elements_max=64))
def test_functions_take_integers_as_float32(reference, op, data, dtype, shape):
    a = data.draw(arrays(dtype, shape, special=False, low=0, high=1))
    same(reference, Call(op, (a,)), LIBRARY)


@pytest.mark.parametrize("op", ["exp", "log", "sin", "cos", "sqrt", "tanh", "arctan", "log1p", "reciprocal", "square"])
@settings(max_examples=examples(15))
@given(data=st.data(), shape=shapes(elements_max=64))
def test_functions_of_complex_numbers_equal_numpys(op, data, shape):
    x = data.draw(arrays("complex64", shape, special=False, low=-3, high=3, views=False)).values()
    want = (FUNCTIONS | {"square": np.square})[op](x.astype(np.complex128))
    np.testing.assert_allclose(np.array(getattr(mx, op)(mx.array(x))), want, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("op", ["floor", "ceil", "trunc", "erf", "erfinv", "expm1", "sigmoid", "nan_to_num"])
def test_functions_without_a_complex_meaning_refuse_complex_numbers(reference, op):
    same(reference, Call(op, (Array.of(np.array([1j], np.complex64)),)))


def test_erfinv_undoes_erf_and_ends_in_infinity():
    x = np.linspace(-0.999, 0.999, 501).astype(np.float32)
    back = np.array(mx.erf(mx.erfinv(mx.array(x))))
    np.testing.assert_allclose(back, x, rtol=1e-6, atol=1e-7)
    assert mx.erfinv(mx.array([1.0, -1.0])).tolist() == [math.inf, -math.inf]
    assert np.isnan(np.array(mx.erfinv(mx.array([1.5, math.nan])))).all()


@settings(max_examples=examples(60))
@given(data=st.data(), source=dtypes(NUMBERS), target=dtypes(NUMBERS), shape=shapes(elements_max=64))
def test_conversions_of_values_that_both_types_hold_equal_the_reference(reference, data, source, target, shape):
    a = data.draw(arrays(source, shape, special=False, low=0, high=100))
    same(reference, Call("array.astype", (a, Dtype("bool_" if target == "bool" else target))))


@pytest.mark.parametrize("target", ["float16", "bfloat16"])
def test_conversion_to_half_types_rounds_every_float32_once(target, reference):
    bits = np.random.default_rng(1).integers(0, 1 << 32, 20000, dtype=np.uint32)
    x = np.concatenate([bits.view(np.float32), np.array([65519.9, 65520, 2.0**-25, 3e38, 3.4e38], np.float32)])
    same(reference, Call("array.astype", (Array.of(x[~np.isnan(x)]), Dtype(target))))


@settings(max_examples=examples(60))
@given(data=st.data(), source=dtypes(NUMBERS), target=dtypes(NUMBERS), shape=shapes(rank_min=1, elements_max=64))
def test_bit_views_equal_the_reference(reference, data, source, target, shape):
    a = data.draw(arrays(source, shape))
    if source == "bool" or target == "bool":
        return  # a byte that is neither 0 nor 1 is no bool
    outcome = OURS.perform(Call("view", (a, Dtype(target))))
    want = reference.call("view", a, Dtype(target))
    if type(want).__name__ == "Returned":
        assert outcome.value.dtype == want.value.dtype
        raw = [np.ascontiguousarray(o.value.stored).view(np.uint8) for o in (outcome, want)]
        np.testing.assert_array_equal(*raw)
    else:
        assert_same_outcome(outcome, want)


@settings(max_examples=examples(60))
@given(data=st.data(), dtype=dtypes(NUMBERS), triple=broadcastable(3, **SMALL))
def test_where_equals_the_reference(reference, data, dtype, triple):
    condition = data.draw(arrays("bool", triple[0]))
    same(reference, Call("where", (condition, *[data.draw(arrays(dtype, shape)) for shape in triple[1:]])))


@pytest.mark.parametrize("limits", [(1, 3), (None, 2), (1.5, None), (0.5, 2.5)])
@settings(max_examples=examples(20))
@given(data=st.data(), dtype=dtypes(REALS), shape=shapes(**SMALL))
def test_clip_equals_the_reference(reference, limits, data, dtype, shape):
    same(reference, Call("clip", (data.draw(arrays(dtype, shape)), *limits)))


@pytest.mark.parametrize("decimals", [0, 1, 3, -1])
@settings(max_examples=examples(20))
@given(data=st.data(), dtype=dtypes((*INTEGERS, "float32")), shape=shapes(**SMALL))
def test_rounding_to_decimals_equals_the_reference(reference, decimals, data, dtype, shape):
    same(reference, Call("round", (data.draw(arrays(dtype, shape, special=False)), decimals)), LIBRARY)


def test_large_integers_are_rounded_before_the_point_without_loss():
    assert mx.round(mx.array([123456789, -123456785]), -1).tolist() == [123456790, -123456780]


@settings(max_examples=examples(30))
@given(data=st.data(), dtype=dtypes((*INTEGERS, *FLOATS)), shape=shapes(**SMALL))
def test_nan_to_num_equals_the_reference(reference, data, dtype, shape):
    a = data.draw(arrays(dtype, shape))
    same(reference, Call("nan_to_num", (a,)))
    same(reference, Call("nan_to_num", (a,), {"nan": 2.0, "posinf": 3.0, "neginf": -4.0}))


@pytest.mark.parametrize("equal_nan", [False, True])
@settings(max_examples=examples(30))
@given(data=st.data(), dtype=dtypes(("int32", "float32")), pair=broadcastable(2, **SMALL))
def test_closeness_equals_the_reference(reference, equal_nan, data, dtype, pair):
    operands = tuple(data.draw(arrays(dtype, shape, special=dtype == "float32")) for shape in pair)
    for op in ("isclose", "allclose", "array_equal"):
        same(reference, Call(op, operands, {"equal_nan": equal_nan}))


def test_shapes_that_do_not_broadcast_are_named():
    with pytest.raises(ValueError, match=r"\[add\].*\(2, 3\).*\(4,\)"):
        mx.add(mx.zeros((2, 3)), mx.zeros((4,)))


@pytest.mark.parametrize("op", ["exp", "negative", "square", "add", "power", "where"])
def test_results_do_not_depend_on_which_operand_gives_its_memory_away(op):
    """Temporaries are donated: a kernel that wrote before it had read everything would show here."""
    for kind in (np.float32, np.int32):
        x, y = np.arange(1, 66).astype(kind), np.arange(65, 0, -1).astype(kind) % 5
        a, b = mx.array(x) + 0, mx.array(y) + 0
        made = {
            "exp": lambda a, b: mx.exp(a + 0), "negative": lambda a, b: mx.negative(a + 0),
            "square": lambda a, b: mx.square(b + 0), "add": lambda a, b: mx.add(a + 0, b + 0),
            "power": lambda a, b: mx.power(a + 0, b + 0), "where": lambda a, b: mx.where(b > 2, a + 0, b + 0),
        }[op]  # fmt: skip
        kept = np.array(made(a, b))
        fresh = np.array(made(mx.array(x), mx.array(y)))
        np.testing.assert_array_equal(kept, fresh)


SMOOTH = [
    op
    for op in FUNCTIONS
    if op not in ("arcsin", "arccos", "arctanh", "arccosh", "log", "log2", "log10", "sqrt", "rsqrt")
]


@pytest.mark.parametrize("op", [*SMOOTH, "abs", "square", "negative", "log1p"])
def test_derivatives_of_one_operand(op):
    check_derivatives(getattr(mx, op), 0.3 + np.abs(numbers(3, 5)) * 0.5)


@pytest.mark.parametrize("op", ["arcsin", "arccos", "arctanh", "erfinv", "log", "log2", "log10", "sqrt", "rsqrt"])
def test_derivatives_inside_the_domain(op):
    check_derivatives(getattr(mx, op), np.linspace(0.1, 0.8, 15).reshape(3, 5), tolerance=1e-5)


def test_derivative_of_arccosh():
    check_derivatives(mx.arccosh, np.linspace(1.2, 3, 6), tolerance=1e-5)


@pytest.mark.parametrize(
    "op", ["add", "subtract", "multiply", "divide", "power", "logaddexp", "arctan2", "maximum", "minimum", "remainder"]
)
@pytest.mark.parametrize("shapes", [((3, 5), (3, 5)), ((3, 1), (5,)), ((), (2, 3)), ((1, 4), (3, 1))])
def test_derivatives_of_two_operands_are_summed_over_repeated_axes(op, shapes):
    a, b = (1.0 + np.abs(numbers(*shape, seed=i)) for i, shape in enumerate(shapes))
    check_derivatives(getattr(mx, op), a, b + 0.05, tolerance=1e-5)


def test_derivatives_of_where_and_clip():
    condition = mx.array(numbers(3, 5) > 0)
    check_derivatives(lambda a, b: mx.where(condition, a, b), numbers(3, 5), numbers(5, seed=2))
    check_derivatives(lambda a: mx.clip(a, -0.5, 0.5), numbers(3, 5))


@pytest.mark.parametrize(
    "text",
    [
        "mx.real(x * b)", "mx.imag(x * b)", "mx.real(x / b)", "mx.real(b / x)", "mx.real(mx.exp(x))", "mx.abs(x)",
        "mx.real(mx.log(x))", "mx.real(mx.square(x))", "mx.real(mx.conj(x) * b)", "mx.real(mx.sin(x))",
        "mx.real(mx.sqrt(x))", "mx.real(x * mx.abs(x))", "mx.real(mx.tanh(x))",
    ],
)  # fmt: skip
def test_cotangents_of_complex_operands_follow_the_references_convention(reference, text):
    rng = np.random.default_rng(3)
    x, b = (Array.of((rng.standard_normal(7) + 1j * rng.standard_normal(7)).astype(np.complex64)) for _ in range(2))
    program = Program(f"out = mx.grad(lambda x: ({text}).sum())(x)", {"x": x, "b": b})
    got, want = OURS.perform(program).value.values(), reference.batch([program])[0].value.values()
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("axes", [(0, 0), (1, 0), (None, 0), (1, None)])
def test_batches_of_two_operands_equal_a_loop(axes):
    a, b = numbers(4, 4, 3).astype(np.float32), numbers(4, 4, 3, seed=2).astype(np.float32)
    check_batching(lambda a, b: mx.multiply(a, b) + mx.maximum(a, b), a, b, axes=axes)
    check_batching(lambda a, b: mx.where(a > 0, a, b), a, b, axes=axes)


def test_batches_of_operands_of_different_rank_equal_a_loop():
    check_batching(
        lambda a, b: a + b, numbers(4, 3).astype(np.float32), numbers(4, 2, 3).astype(np.float32), axes=(0, 0)
    )


def test_stop_gradient_passes_values_and_stops_derivatives():
    x = mx.array([1.0, 2.0])
    value, gradient = mx.value_and_grad(lambda x: (x * mx.stop_gradient(x)).sum())(x)
    assert value.item() == 5.0
    assert gradient.tolist() == [1.0, 2.0]
