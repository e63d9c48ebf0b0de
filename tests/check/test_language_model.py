"""A language model under simulated schedules (nightly)."""

from __future__ import annotations

import pytest

from outlive.backends.sim.arena import PATTERNS
from outlive.backends.sim.choices import RandomChoices
from outlive.check.explore import judge
from outlive.check.schedule import digest, run_schedule, run_sequentially
from outlive.check.surroundings import exploring

TOKENS = 8
SCHEDULES = 20
LIMIT_STEPS = 100_000_000


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_smollm2_generates_the_same_text_under_every_schedule() -> None:
    from outlive.lm import DEFAULT_SOURCE, load

    model = load(DEFAULT_SOURCE)

    def program() -> str:
        return "".join(model.stream("Why is the sky blue?", max_tokens=TOKENS))

    text = program()
    assert text
    with exploring():
        expected = digest(run_sequentially(program))
        for seed in range(SCHEDULES):
            for poison in PATTERNS:
                outcome = run_schedule(program, RandomChoices(seed), poison=poison, limit_steps=LIMIT_STEPS)
                assert judge(outcome, expected) is None, f"seed {seed}: {judge(outcome, expected)}"
