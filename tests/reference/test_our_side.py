"""Our own side of the comparison: what the generated inputs become in our arrays, before any op is compared."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import outlive.core as mx
from tests.reference import Array, Call, Raised, Returned
from tests.reference.strategies import NUMBERS, arrays, dtypes, shapes
from tests.reference.wire import Dtype, Side

OURS = Side(mx)


@given(data=st.data(), dtype=dtypes((*NUMBERS, "float64")), shape=shapes())
def test_an_array_of_any_type_and_layout_is_read_back_unchanged(data, dtype, shape):
    sent = data.draw(arrays(dtype, shape))
    outcome = OURS.perform(Call("array", (sent,)))
    assert isinstance(outcome, Returned), outcome
    assert outcome.value.dtype == dtype
    assert outcome.value.resolved().shape == shape
    np.testing.assert_array_equal(outcome.value.values(), sent.values())


def test_types_cross_by_name():
    assert OURS.perform(Call("zeros", ((2,), Dtype("bfloat16")))).value.dtype == "bfloat16"


def test_what_our_side_raises_is_an_outcome():
    outcome = OURS.perform(Call("reshape", (Array.of(np.zeros(3, np.float32)), (2, 2))))
    assert isinstance(outcome, Raised)
    assert outcome.error == "ValueError"
    assert outcome.text.startswith("[reshape]")
