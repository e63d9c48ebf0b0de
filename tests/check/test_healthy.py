"""The healthy runtime: no schedule finds anything, and every schedule can be run again."""

from __future__ import annotations

import pytest

from outlive.backends.sim.choices import RandomChoices, RecordedChoices
from outlive.check.explore import Options, explore
from outlive.check.generator import RandomProgram
from outlive.check.scenarios import SCENARIOS, Scenario
from outlive.check.schedule import run_schedule
from outlive.check.surroundings import exploring

PROFILES = ("sim", "cpu", "metal")


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.name)
def test_scenarios_are_clean(scenario: Scenario, profile: str) -> None:
    done = explore(
        scenario.program, Options(schedules=40, profile=profile, cap=scenario.cap, faults=scenario.faults, shrink=False)
    )
    assert [str(f) for f in done.findings] == []
    assert done.expected is not None
    assert done.repeatable
    assert done.launches


@pytest.mark.parametrize("profile", PROFILES)
def test_random_programs_are_clean(profile: str) -> None:
    findings = []
    for seed in range(60):
        program = RandomProgram(seed, length=20, threads=1 + seed % 3)
        done = explore(program, Options(schedules=3, seed=seed, profile=profile, shrink=False))
        findings += [f"program {seed}: {f}" for f in done.findings]
        assert done.expected is not None, done.raises
    assert findings == []


@pytest.mark.nightly
@pytest.mark.parametrize("block", range(100))
def test_a_hundred_thousand_random_programs_are_clean(block: int) -> None:
    findings = []
    for seed in range(10_000 + block * 1000, 11_000 + block * 1000):
        program = RandomProgram(seed, length=20, threads=1 + seed % 3)
        done = explore(program, Options(schedules=1, seed=seed, shrink=False))
        findings += [f"program {seed}: {f}" for f in done.findings]
    assert findings == []


@pytest.mark.nightly
@pytest.mark.parametrize("profile", PROFILES)
def test_ten_thousand_schedules_of_one_program_are_clean(profile: str) -> None:
    done = explore(RandomProgram(1, length=20), Options(schedules=10_000, profile=profile, shrink=False))
    assert [str(f) for f in done.findings] == []


@pytest.mark.parametrize("profile", PROFILES)
def test_a_schedule_replays_from_its_seed_and_from_its_decisions(profile: str) -> None:
    with exploring():
        for seed in range(10):
            program = RandomProgram(seed, length=20, threads=1 + seed % 3)
            first = run_schedule(program, RandomChoices(seed, True), profile)
            for choices in (RandomChoices(seed, True), RecordedChoices(first.deviations)):
                again = run_schedule(program, choices, profile)
                assert (again.digest, again.steps, again.deviations) == (first.digest, first.steps, first.deviations)


def test_schedules_reach_every_hazard() -> None:
    hazards: set[str] = set()
    for scenario in SCENARIOS:
        hazards |= explore(scenario.program, Options(schedules=10, cap=scenario.cap)).hazards.keys()
    assert hazards == {"read after write", "write after read", "write after write", "reuse of memory"}
