"""The reference process: what goes over comes back, errors are outcomes, and a death is reported and survived."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reference import Array, Call, Crashed, Raised, Reference, Returned
from tests.reference.compare import assert_same_array
from tests.reference.strategies import NUMBERS, arrays, dtypes, shapes
from tests.reference.wire import UNBUILDABLE, Dtype


@given(data=st.data(), dtype=dtypes((*NUMBERS, "float64")), shape=shapes())
def test_an_array_of_any_type_and_layout_crosses_unchanged(reference, data, dtype, shape):
    sent = data.draw(arrays(dtype, shape))
    outcome = reference.call("array", sent)
    assert isinstance(outcome, Returned), outcome
    assert sent.resolved().shape == shape
    assert outcome.value.dtype == dtype
    assert outcome.value.resolved().shape == shape
    np.testing.assert_array_equal(outcome.value.values(), sent.values())


def test_bfloat16_keeps_every_bit(reference):
    sent = Array("bfloat16", np.arange(1 << 16, dtype=np.uint16))
    outcome = reference.call("array", sent)
    numbers = ~np.isnan(sent.values())
    np.testing.assert_array_equal(outcome.value.stored[numbers], sent.stored[numbers])
    assert np.isnan(outcome.value.values()[~numbers]).all()


def test_a_call_takes_arrays_types_and_options_at_any_depth(reference):
    parts = [Array.of(np.arange(3, dtype=np.int32)), Array.of(np.arange(4, 6, dtype=np.int32))]
    outcome = reference.call("concatenate", parts, axis=0)
    assert outcome.value.values().tolist() == [0, 1, 2, 4, 5]
    assert reference.call("zeros", (2, 1), Dtype("bool_")).value.values().tolist() == [[False], [False]]
    assert reference.call("array.astype", parts[0], Dtype("float16")).value.dtype == "float16"


def test_a_program_sees_its_inputs_and_leaves_its_result(reference):
    text = (
        "value, gradient = mx.value_and_grad(lambda x: (x * x).sum())(x)\nout = {'value': value, 'gradient': gradient}"
    )
    outcome = reference.run(text, x=Array.of(np.array([1.0, 2.0], np.float32)))
    assert outcome.value["value"].values() == 5.0
    assert outcome.value["gradient"].values().tolist() == [2.0, 4.0]


def test_what_a_call_raises_is_an_outcome_with_class_text_and_bases(reference):
    pair = Array.of(np.zeros((2, 3), np.float32)), Array.of(np.zeros((2, 3), np.float32))
    outcome = reference.call("matmul", *pair)
    assert isinstance(outcome, Raised)
    assert outcome.error == "ValueError"
    assert "(2,3)" in outcome.text
    assert "Exception" in outcome.bases


def test_an_error_that_comes_with_evaluation_is_an_outcome(reference):
    outcome = reference.call("linalg.inv", Array.of(np.zeros((2, 2), np.float32)))
    assert isinstance(outcome, Raised), outcome


def test_faults_of_a_test_are_told_from_errors_of_the_call(reference):
    assert reference.call("negative", Dtype("float31")).error == UNBUILDABLE
    assert reference.run("out = object()").error == "UnreadableResultError"


def test_a_batch_keeps_its_order_and_its_failures_apart(reference):
    batch = [Call("add", (number, number)) for number in range(50)]
    batch[7] = Call("no_such_name")
    outcomes = reference.batch(batch)
    assert isinstance(outcomes[7], Raised)
    assert [outcome.value.values() for at, outcome in enumerate(outcomes) if at != 7] == [
        2 * number for number in range(50) if number != 7
    ]


def test_a_death_is_reported_and_the_next_request_finds_a_fresh_child(reference):
    with Reference(reference._python) as own:
        assert own.run("out = 1") == Returned(1)
        outcome = own.run("import os, sys; print('the last words', file=sys.stderr, flush=True); os.abort()")
        assert isinstance(outcome, Crashed)
        assert "SIGABRT" in outcome.how
        assert "the last words" in outcome.how
        assert own.run("out = 2") == Returned(2)
        assert own.starts == 2


def test_the_request_that_kills_a_batch_is_told_from_its_neighbours(reference):
    with Reference(reference._python) as own:
        outcomes = own.batch([Call("array", (1,)), Call("array.__class__", ()), Call("array", (2,))])
        assert [type(outcome) for outcome in outcomes] == [Returned, Raised, Returned]
        from tests.reference import Program

        outcomes = own.batch([Program("out = 1"), Program("import os; os._exit(3)"), Program("out = 2")])
        assert outcomes[0] == Returned(1)
        assert outcomes[1] == Crashed("exit status 3")
        assert outcomes[2] == Returned(2)


def test_no_answer_in_time_is_a_crash_that_says_so(reference):
    with Reference(reference._python, seconds=0.5) as own:
        outcome = own.run("import time; time.sleep(60)")
        assert isinstance(outcome, Crashed)
        assert "no answer in 0.5 s" in outcome.how
        assert own.run("out = 1") == Returned(1)


def test_what_the_reference_prints_does_not_disturb_the_pipe(reference):
    assert reference.run("print('noise' * 1000); out = 3") == Returned(3)


@pytest.mark.parametrize("value", [None, True, 3, math.inf, "text", [1, [2.5]], {"a": 1}])
def test_plain_values_cross_as_they_are(reference, value):
    assert reference.run("out = value", value=value) == Returned(value)


def test_two_sides_of_the_comparison_meet(reference):
    left = Array.of(np.linspace(-3, 3, 65, dtype=np.float32))
    outcome = reference.call("exp", left)
    want = np.exp(left.stored.astype(np.float64)).astype(np.float32)
    assert_same_array(outcome.value, Array.of(want), "exp")
