"""The comparison itself: what it calls equal, what it does not, and what it says then."""

import numpy as np
import pytest

from tests.reference import Array, Crashed, Raised, Returned
from tests.reference.compare import (
    CEILING,
    TOLERANCES,
    Tolerance,
    assert_same_array,
    assert_same_outcome,
    spacing,
    ulp_distance,
)
from tests.reference.wire import TEST_FAULTS, bfloat16_bits

FLOATS = ("float16", "bfloat16", "float32", "float64")


def array(values, dtype="float32"):
    if dtype == "bfloat16":
        return Array(dtype, bfloat16_bits(np.asarray(values, np.float32)))
    return Array.of(np.asarray(values, dtype))


def next_up(dtype, value):
    if dtype == "bfloat16":
        bits = bfloat16_bits(np.float32(value))
        return Array(dtype, np.asarray(bits + 1 if value >= 0 else bits - 1, np.uint16))
    return Array.of(np.asarray(np.nextafter(np.dtype(dtype).type(value), np.inf, dtype=dtype)))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("value", [1.0, -1.0, 0.0, 1.5e-5, -3e4])
def test_neighbours_are_one_unit_apart(dtype, value):
    assert ulp_distance(array(value, dtype), next_up(dtype, value)) == 1
    assert ulp_distance(array(value, dtype), array(value, dtype)) == 0


@pytest.mark.parametrize("dtype", FLOATS)
def test_units_are_counted_across_zero_and_zeros_are_one_value(dtype):
    assert ulp_distance(array(-0.0, dtype), array(0.0, dtype)) == 0
    smallest = next_up(dtype, 0.0)
    negated = Array(dtype, smallest.stored | (1 << 15)) if dtype == "bfloat16" else Array.of(-smallest.stored)
    assert ulp_distance(negated, smallest) == 2


@pytest.mark.parametrize("dtype", FLOATS)
def test_nan_equals_nan_alone_and_infinity_itself_alone(dtype):
    largest = {"float16": 65504.0, "float64": 1.7976931348623157e308}.get(dtype, 3.3895e38)
    left = array([np.nan, np.nan, np.inf, np.inf, largest], dtype)
    right = array([-np.nan, 1.0, np.inf, -np.inf, np.inf], dtype)
    assert ulp_distance(left, right).tolist() == [0, np.inf, 0, np.inf, np.inf]


def test_integers_and_bools_are_equal_or_not():
    assert ulp_distance(array([1, 2], "int64"), array([1, 3], "int64")).tolist() == [0, np.inf]
    assert ulp_distance(array(True, "bool"), array(True, "bool")) == 0


def test_complex_numbers_are_compared_by_parts():
    left = array([1 + 1j, complex(np.nan, 0)], "complex64")
    right = array([1 + np.nextafter(np.float32(1), np.float32(2)) * 1j, complex(np.nan, 0)], "complex64")
    assert ulp_distance(left, right).tolist() == [1, 0]


def test_an_inexact_op_on_complex_numbers_is_measured_by_the_modulus():
    got, want = array([1 + 1e-9j], "complex64"), array([1 + 0j], "complex64")
    assert_same_array(got, want, "exp")
    with pytest.raises(AssertionError):
        assert_same_array(got, want, "negative")
    with pytest.raises(AssertionError):
        assert_same_array(array([1 + 1e-5j], "complex64"), want, "exp")
    with pytest.raises(AssertionError):
        assert_same_array(array([complex(1, np.nan)], "complex64"), want, "exp")


@pytest.mark.parametrize("dtype", FLOATS)
def test_spacing_is_the_gap_to_the_next_value(dtype):
    for value in (1.0, 1.99, 2.0, 1e-3):
        here = float(array(value, dtype).values())
        assert spacing(np.asarray(here), dtype) == float(next_up(dtype, value).values()) - here


def test_type_and_shape_must_be_equal():
    with pytest.raises(AssertionError, match="type float16, expected float32"):
        assert_same_array(array([1.0], "float16"), array([1.0]))
    with pytest.raises(AssertionError, match=r"shape \(1,\), expected \(\)"):
        assert_same_array(array([1.0]), array(1.0))


def test_an_unnamed_op_is_exact_and_the_message_names_the_element():
    want = array([[1.0, 2.0]])
    got = Array.of(np.array([[1.0, np.nextafter(np.float32(2), np.float32(3))]], np.float32))
    with pytest.raises(AssertionError, match=r"\[negative\].*element \(0, 1\).*1 ulp of float32 apart, 0 allowed"):
        assert_same_array(got, want, "negative")


def test_cancellation_is_measured_by_the_magnitude_of_the_terms():
    got, want = array([1e-7]), array([0.0])
    with pytest.raises(AssertionError):
        assert_same_array(got, want, "sum")
    assert_same_array(got, want, "sum", magnitude=np.array([2.0]))
    with pytest.raises(AssertionError):
        assert_same_array(got, want, "exp", magnitude=np.array([2.0]))


def test_magnitude_never_hides_a_nan_or_an_infinity():
    for bad in (np.nan, np.inf):
        with pytest.raises(AssertionError):
            assert_same_array(array([bad]), array([0.0]), "sum", magnitude=np.array([np.inf]))


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_what_misses_the_reference_must_be_near_the_truth(dtype):
    exact, far = np.exp(np.float64(9)), array([8200.0], dtype)
    assert_same_array(array([exact], dtype), far, "exp", truth=np.array([exact]))
    for bad in (8300.0, np.nan):
        with pytest.raises(AssertionError):
            assert_same_array(array([bad], dtype), far, "exp", truth=np.array([exact]))


def test_the_sign_of_zero_counts_when_asked():
    assert_same_array(array([-0.0]), array([0.0]))
    with pytest.raises(AssertionError, match="sign of a zero"):
        assert_same_array(array([-0.0]), array([0.0]), signed_zeros=True)


def test_empty_arrays_are_equal():
    assert_same_array(array(np.zeros((0, 3))), array(np.zeros((0, 3))), "sum", magnitude=np.zeros((0, 3)))


def test_outcomes_compare_values_containers_and_error_classes():
    assert_same_outcome(Returned([array([1.0]), {"a": 2}]), Returned([array([1.0]), {"a": 2}]))
    assert_same_outcome(Returned(float("nan")), Returned(float("nan")))
    for got, want in [
        (Returned([1]), Returned([1, 2])),
        (Returned(1), Returned(1.0)),
        (Returned({"a": 1}), Returned({"b": 1})),
        (Returned(1), Raised("ValueError", "")),
        (Raised("ValueError", ""), Returned(1)),
        (Raised("TypeError", "", ("TypeError", "Exception")), Raised("ValueError", "")),
        (Returned(1), Crashed("killed")),
    ]:
        with pytest.raises(AssertionError):
            assert_same_outcome(got, want)
    derived = Raised("OutOfMemory", "", ("OutOfMemory", "RuntimeError", "Exception"))
    assert_same_outcome(derived, Raised("RuntimeError", ""))


@pytest.mark.parametrize("fault", TEST_FAULTS)
def test_two_sides_do_not_agree_on_a_fault_of_the_test(fault):
    with pytest.raises(AssertionError, match="did not take place"):
        assert_same_outcome(Raised(fault, "why"), Raised(fault, "why"))


def test_a_large_tolerance_needs_a_reason():
    with pytest.raises(ValueError, match="needs a reason"):
        Tolerance({"*": CEILING + 1})
    assert all(max(line.ulp.values()) <= CEILING or line.reason for line in TOLERANCES.values())
