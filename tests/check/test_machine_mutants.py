"""Mutants by machine: the checker objects to nearly every changed statement of the runtime's core."""

from __future__ import annotations

import pytest

from outlive.check.machine_mutants import changes, reason, survives, try_changes
from outlive.check.surroundings import exploring

SAMPLE = 12
KILLED_SHARE = 0.9


def test_changes_cover_every_module_and_leave_the_originals_alone() -> None:
    found = list(changes())
    assert {c.name.split(".")[0] for c in found} >= {
        "Allocator",
        "CommandBuffer",
        "CommandEncoder",
        "Ledger",
        "Runtime",
        "Stream",
    }
    assert len(found) > 300
    assert all(c.mutated is not vars(c.owner)[c.function] for c in found)


@pytest.mark.parametrize(
    "text", ["ledger.quarantined += size", "self._enter_write(buffer, command_buffer)", "self.committed += 1"]
)
def test_a_deleted_statement_is_noticed(text: str) -> None:
    found = [c for c in changes() if c.text == text and c.what == "deleted"]
    assert found
    with exploring():
        assert not any(survives(c) for c in found)


def test_a_sample_of_changes_is_killed() -> None:
    tally = try_changes(sample=SAMPLE, seed=3)
    assert tally.tried == SAMPLE
    assert len(tally.gaps) <= 3, tally.gaps


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_nine_of_ten_changes_are_killed_and_the_survivors_are_named() -> None:
    tally = try_changes()
    print(f"{tally.killed_share:.1%} of {tally.tried} changes killed")
    for name in tally.survivors:
        print(f"survives: {name} ({reason(name) or 'a gap'})")
    assert tally.killed_share >= KILLED_SHARE
