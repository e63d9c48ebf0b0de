"""Every op beside the reference: random types, shapes, views and values; results within the one table of tolerances."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import outlive.core as mx
from tests.budget import examples
from tests.differential import elementwise, facts, numerics, products, reductions, shapes  # noqa: F401 - they register ops
from tests.differential.registry import OPS
from tests.reference import Program
from tests.reference.compare import assert_same_outcome
from tests.reference.wire import Crashed, Raised, Returned, Side

OURS = Side(mx)


@pytest.mark.parametrize("name", OPS.entries)
def test_ops_equal_the_reference(reference, name):
    entry = OPS.entries[name]

    @settings(max_examples=examples(entry.examples), suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def compare(data):
        case = entry.draw(data.draw, name)
        request = case.request
        context = request.text if isinstance(request, Program) else request
        want = reference.batch([request])[0]
        if isinstance(want, Crashed):  # nothing to compare with; ours must answer all the same
            assert isinstance(OURS.perform(request), (Returned, Raised))
            return
        op = name if case.tolerance is None else case.tolerance
        assert_same_outcome(
            OURS.perform(request), want, op, truth=case.truth, magnitude=case.magnitude, context=context
        )

    compare()
