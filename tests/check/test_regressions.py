"""Schedules that once found a fault of the runtime: each with its recorded seed (docs/found-by-check.md)."""

from __future__ import annotations

from typing import Any

import outlive.core as mx
from outlive.backends.sim.arena import PATTERNS
from outlive.backends.sim.choices import RandomChoices
from outlive.check.explore import Options, expect, explore, judge, schedule_seed
from outlive.check.generator import RandomProgram
from outlive.check.scenarios import SCENARIOS
from outlive.check.schedule import run_schedule
from outlive.check.surroundings import exploring
from outlive.runtime.errors import ExecutionError, Failure


def between_devices() -> Any:
    a, b = mx.new_stream(mx.cpu), mx.new_stream(mx.gpu)
    x = mx.array([1.0, 2.0, 3.0, 4.0])
    y = x
    for _ in range(6):
        y = mx.add(y, x, stream=a)
        z = mx.multiply(y, 2.0, stream=b)
        y = mx.subtract(z, x)
    return y, mx.add(y, 1.0, stream=b)


def test_a_failure_crosses_devices() -> None:
    failed = 0
    with exploring():
        expected = expect(between_devices).comparable
        assert expected is not None
        for seed in range(60):
            outcome = run_schedule(between_devices, RandomChoices(seed, faults=True))
            assert judge(outcome, expected) is None, seed
            failed += isinstance(outcome.error, ExecutionError)
    assert failed  # launches failed, and each of them was told


def test_a_failure_keeps_no_frames() -> None:
    def work() -> None:
        try:
            raise MemoryError("being handled")
        except MemoryError:
            raise ArithmeticError("in a kernel")  # noqa: B904  (as a kernel does that knows nothing of what is being handled)

    try:
        work()
    except ArithmeticError as error:
        failure = Failure(error, "op", "", "", None)
    assert failure.cause.__traceback__ is None
    assert failure.cause.__context__ is not None
    assert failure.cause.__context__.__traceback__ is None


def test_a_retry_during_a_failure_holds_nothing() -> None:
    program = RandomProgram(250, length=20, threads=2)
    with exploring():
        outcome = run_schedule(program, RandomChoices(schedule_seed(250, 1), True), poison=PATTERNS[1])
    assert outcome.violation is None


def test_retiring_never_waits_beyond_the_last_commit() -> None:
    program = RandomProgram(49, length=20, threads=2)
    done = explore(program, Options(schedules=30, seed=49, profile="cpu", limit_steps=60_000, shrink=False))
    assert [str(f) for f in done.findings] == []


def test_memory_that_just_became_free_is_not_refused() -> None:
    (scenario,) = [s for s in SCENARIOS if s.name == "waits_for_memory"]
    done = explore(
        scenario.program, Options(schedules=200, cap=scenario.cap, faults=False, profile="cpu", shrink=False)
    )
    assert [str(f) for f in done.findings] == []


def test_a_cache_over_its_limit_does_not_sweep_within_a_sweep() -> None:
    (scenario,) = [s for s in SCENARIOS if s.name == "limits_are_kept"]
    done = explore(scenario.program, Options(schedules=20, faults=False, shrink=False))
    assert [str(f) for f in done.findings] == []
