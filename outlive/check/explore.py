"""Explorers: many random schedules of a program, replay of one, and the smallest schedule that still shows a finding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from outlive.backends.sim.arena import PATTERNS
from outlive.backends.sim.choices import Deviation, RandomChoices, RecordedChoices
from outlive.backends.sim.scheduler import Violation
from outlive.check.schedule import LIMIT_STEPS, Outcome, Program, digest, run_schedule, run_sequentially
from outlive.check.surroundings import exploring

LIMIT_SHRINK_RUNS = 400


def schedule_seed(seed: int, index: int) -> int:
    """The seed of schedule `index` of an exploration."""
    return seed * 1_000_003 + index


@dataclass
class Finding:
    """A violation, and the schedule that shows it."""

    violation: Violation
    seed: int
    index: int
    poison: int
    deviations: tuple[Deviation, ...]
    profile: str
    outcome: Outcome

    def __str__(self) -> str:
        cause = f" Likely cause: {self.violation.cause}." if self.violation.cause else ""
        return f"[{self.violation.oracle}] {self.violation.message}{cause}"


@dataclass
class Exploration:
    """What an exploration covered, and what it found. It claims nothing beyond that."""

    seed: int
    profile: str
    schedules: int = 0
    launches: int = 0
    steps: int = 0
    injected: int = 0
    ended_by_fault: int = 0
    hazards: dict[str, int] = field(default_factory=dict)
    pairs: set[tuple[str, str]] = field(default_factory=set)
    orders: set[tuple[Deviation, ...]] = field(default_factory=set)
    findings: list[Finding] = field(default_factory=list)
    repeatable: bool = True
    expected: str | None = None
    raises: str = ""
    """How the program ends when it is evaluated sequentially, where it raises."""

    def add(self, outcome: Outcome) -> None:
        self.schedules += 1
        self.launches += outcome.launches
        self.steps += outcome.steps
        self.injected += outcome.injected
        self.ended_by_fault += outcome.error is not None and outcome.violation is None
        self.pairs |= outcome.pairs
        self.orders.add(outcome.deviations)
        for hazard, count in outcome.hazards.items():
            self.hazards[hazard] = self.hazards.get(hazard, 0) + count


@dataclass
class Options:
    """How to explore.

    `faults`: let allocations and launches fail. `cap`: bytes that each device may take. `prepare`: called with each world.
    """

    schedules: int = 200
    seed: int = 0
    profile: str = "sim"
    faults: bool = True
    cap: int | None = None
    limit_steps: int = LIMIT_STEPS
    findings: int = 1
    shrink: bool = True
    prepare: Callable[[Any], None] | None = None


class Expectation(NamedTuple):
    """The digest of the sequential result, and whether a second run gives the same; or how the program raises."""

    digest: str | None
    repeatable: bool
    raises: str = ""

    @property
    def comparable(self) -> str | None:
        """The digest to compare with; None where there is nothing to compare."""
        return self.digest if self.repeatable else None


def expect(program: Program) -> Expectation:
    """Evaluate a program sequentially, twice."""
    try:
        first = digest(run_sequentially(program))
        return Expectation(first, first == digest(run_sequentially(program)))
    except Exception as error:  # noqa: BLE001  (a program that raises by itself is judged by the schedules alone)
        return Expectation(None, True, f"{type(error).__name__}: {error}")


def judge(outcome: Outcome, expected: str | None) -> Violation | None:
    """The outcome's violation; a wrong bit is one too."""
    if outcome.violation is not None or outcome.error is not None or expected is None:
        return outcome.violation
    if outcome.digest != expected:
        return Violation(
            "bits",
            "The result differs from the sequential evaluation.",
            "memory that was read before it was written, or after it was reused",
        )
    return None


def explore(program: Program, options: Options | None = None) -> Exploration:
    """Run `program` under random schedules, alternating between the two poisons, until enough was found."""
    options = options or Options()
    done = Exploration(options.seed, options.profile)
    with exploring():
        expectation = expect(program)
        done.expected, done.repeatable, done.raises = expectation
        expected = expectation.comparable
        for index in range(options.schedules):
            poison = PATTERNS[index % len(PATTERNS)]
            choices = RandomChoices(schedule_seed(options.seed, index), options.faults)
            outcome = _run(program, choices, poison, options)
            done.add(outcome)
            violation = judge(outcome, expected)
            if violation is None:
                continue
            deviations = outcome.deviations
            if options.shrink:
                deviations, outcome = shrink(program, violation, outcome, poison, options, expected)
                violation = judge(outcome, expected) or violation
            done.findings.append(Finding(violation, options.seed, index, poison, deviations, options.profile, outcome))
            if len(done.findings) >= options.findings:
                break
    return done


def _run(program: Program, choices: Any, poison: int, options: Options) -> Outcome:
    return run_schedule(program, choices, options.profile, poison, options.cap, options.limit_steps, options.prepare)


def replay(program: Program, deviations: Sequence[Deviation], poison: int, options: Options) -> Outcome:
    """Run `program` under a recorded schedule."""
    with exploring():
        return _run(program, RecordedChoices(deviations), poison, options)


def shrink(
    program: Program, violation: Violation, outcome: Outcome, poison: int, options: Options, expected: str | None
) -> tuple[tuple[Deviation, ...], Outcome]:
    """The smallest schedule found that the same oracle still objects to, by leaving deviations out."""
    best = list(outcome.deviations)
    best_outcome = outcome
    runs = 0

    def still_found(candidate: list[Deviation]) -> Outcome | None:
        tried = _run(program, RecordedChoices(candidate), poison, options)
        found = judge(tried, expected)
        return tried if found is not None and found.oracle == violation.oracle else None

    size = max(1, len(best) // 2)
    while best and runs < LIMIT_SHRINK_RUNS:
        at = 0
        removed = False
        while at < len(best) and runs < LIMIT_SHRINK_RUNS:
            candidate = best[:at] + best[at + size :]
            runs += 1
            tried = still_found(candidate)
            if tried is not None:
                best, best_outcome, removed = list(tried.deviations), tried, True
            else:
                at += size
        if size == 1 and not removed:
            break
        size = max(1, size // 2)
    return tuple(best), best_outcome
