"""The trial of the mutants: how many schedules each survives, and which oracle catches it."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from outlive.backends.sim.arena import PATTERNS
from outlive.backends.sim.choices import RandomChoices
from outlive.check.explore import expect, judge, schedule_seed
from outlive.check.mutants import MUTANTS, PENDING, Mutant
from outlive.check.scenarios import Scenario, battery, battery_profile
from outlive.check.schedule import run_schedule
from outlive.check.surroundings import exploring

LIMIT_SCHEDULES = 200
TRIALS = 5
"""Trials of each mutant, with other seeds: the table gives their median and maximum."""

LIMIT_STEPS_TRIAL = 60_000
"""Points of a schedule of a mutant: one that takes more counts as one that never ends."""


class Verdict(NamedTuple):
    """What happened to a mutant. `schedules`: how many each trial took; None where a trial did not catch it."""

    mutant: Mutant
    schedules: tuple[int | None, ...]
    oracles: Counter[str]
    shown_by: str

    @property
    def caught(self) -> bool:
        return all(n is not None for n in self.schedules)


_expected: dict[int, str | None] = {}


def expectation(index: int, scenario: Scenario) -> str | None:
    """The sequential digest of a program of the battery, computed once, by the healthy runtime."""
    if index not in _expected:
        _expected[index] = expect(scenario.program).comparable
    return _expected[index]


def hunt(mutant: Mutant, seed: int, limit: int = LIMIT_SCHEDULES) -> tuple[int | None, str, str]:
    """(schedules until the mutant was caught, oracle, program) of one trial."""
    for index in range(limit):
        scenario = battery(index)
        expected = expectation(index, scenario)
        choices = RandomChoices(schedule_seed(seed, index), scenario.faults)
        with mutant.switched_on():
            outcome = run_schedule(
                scenario.program,
                choices,
                profile=battery_profile(index),
                poison=PATTERNS[index % len(PATTERNS)],
                cap=scenario.cap,
                limit_steps=LIMIT_STEPS_TRIAL,
            )
        violation = judge(outcome, expected)
        if violation is not None:
            return index + 1, violation.oracle, scenario.name
    return None, "", ""


def try_mutants(
    mutants: Sequence[Mutant] = (),
    trials: int = TRIALS,
    seed: int = 1,
    limit: int = LIMIT_SCHEDULES,
    tell: Callable[[Verdict], Any] = lambda verdict: None,
) -> list[Verdict]:
    """Try every mutant `trials` times."""
    verdicts = []
    with exploring():
        for mutant in mutants or MUTANTS:
            counts: list[int | None] = []
            oracles: Counter[str] = Counter()
            shown = ""
            for trial in range(trials):
                count, oracle, program = hunt(mutant, seed + trial, limit)
                counts.append(count)
                if count is not None:
                    oracles[oracle] += 1
                    shown = shown or program
            verdicts.append(Verdict(mutant, tuple(counts), oracles, shown))
            tell(verdicts[-1])
    return verdicts


def row(verdict: Verdict) -> tuple[str, str, str, str, str, str]:
    """A verdict as a row: name, invariant, oracles, median, maximum, first shown by."""
    counts = [n for n in verdict.schedules if n is not None]
    missed = len(verdict.schedules) - len(counts)
    most = f"{max(counts)}" if counts and not missed else f"not caught in {missed} of {len(verdict.schedules)} trials"
    oracles = ", ".join(name for name, _ in verdict.oracles.most_common()) or "-"
    median = f"{statistics.median(counts):g}" if counts else "-"
    return verdict.mutant.name, verdict.mutant.invariant, oracles, median, most, verdict.shown_by or "-"


def table(verdicts: Sequence[Verdict]) -> str:
    """The verdicts as a Markdown table."""
    lines = ["| mutant | rule | caught by | median | maximum | first shown by |", "|---|---|---|---|---|---|"]
    lines += ["| " + " | ".join(row(v)) + " |" for v in verdicts]
    lines += [f"| {name} | | waits for: {code} | | | |" for name, code in PENDING.items()]
    return "\n".join(lines)


def summary(verdicts: Sequence[Verdict]) -> str:
    """The figure that is printed last."""
    caught = sum(v.caught for v in verdicts)
    return f"{caught} of {len(verdicts)} mutants caught within {LIMIT_SCHEDULES} schedules ({len(PENDING)} wait for their code)"
