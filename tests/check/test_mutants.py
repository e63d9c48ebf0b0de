"""The checker is checked: it catches every known fault of the runtime, and says what is wrong."""

from __future__ import annotations

import pytest

from outlive.check.mutants import MUTANTS, Mutant
from outlive.check.surroundings import exploring
from outlive.check.trial import LIMIT_SCHEDULES, hunt, row, summary, try_mutants

ORACLES = {
    "fill value as an unretained temporary": {"lifetime", "generation", "happens-before"},
    "workspace not retained": {"lifetime", "generation", "happens-before", "contents"},
    "handler attached after commit": {"profile"},
    "label on a replaced command buffer": {"profile"},
    "missing write-after-read wait": {"happens-before"},
    "cap checked and then allocated": {"ledger"},
    "refund before the real release": {"ledger"},
    "refund twice": {"ledger"},
    "notification lost": {"liveness"},
    "posted twice": {"balance"},
    "accumulation in half precision": {"bits"},
}
"""The oracle that must be the one to catch a mutant, where only some are right."""


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_every_mutant_is_caught(mutant: Mutant) -> None:
    with exploring():
        count, oracle, _ = hunt(mutant, seed=1)
    assert count is not None, f"not caught within {LIMIT_SCHEDULES} schedules: {mutant.words}"
    assert oracle in ORACLES.get(mutant.name, {oracle})


def test_a_mutant_leaves_no_trace_when_it_is_switched_off() -> None:
    from outlive.runtime.allocator import Allocator
    from outlive.runtime.encoder import CommandEncoder

    before = [dict(vars(c)) for c in (Allocator, CommandEncoder)]
    for mutant in MUTANTS:
        with mutant.switched_on():
            pass
    assert before == [dict(vars(c)) for c in (Allocator, CommandEncoder)]


def test_the_trial_counts_what_was_missed() -> None:
    from contextlib import nullcontext

    harmless = Mutant("harmless", "nothing is wrong", "none", nullcontext)
    verdicts = try_mutants([harmless], trials=1, limit=3)
    assert not verdicts[0].caught
    assert "not caught in 1 of 1" in row(verdicts[0])[4]
    assert summary(verdicts).startswith("0 of 1 mutants caught")


@pytest.mark.nightly
def test_every_mutant_is_caught_in_every_trial() -> None:
    verdicts = try_mutants(trials=10, seed=100)
    assert [v.mutant.name for v in verdicts if not v.caught] == []
