"""The exhaustive explorer: every schedule of tiny programs within a bound, counted."""

from __future__ import annotations

from typing import Any

import pytest

import outlive.core as mx
from outlive import execution
from outlive.check.exhaustive import exhaust
from outlive.check.mutants import MUTANTS
from outlive.graph import state

OPERATIONS = 128


def chain() -> Any:
    a, b = mx.new_stream(mx.cpu), mx.new_stream(mx.cpu)
    x = mx.add(mx.array([1.0, 2.0]), 1, stream=a)
    y = mx.multiply(x, 2, stream=b)
    return mx.subtract(x, y, stream=a)


def diamond() -> Any:
    a, b, c = (mx.new_stream(mx.cpu) for _ in range(3))
    x = mx.array([1.0, 2.0])
    y, z = mx.add(x, x, stream=a), mx.multiply(x, x, stream=b)
    w = mx.add(y, z, stream=c)
    mx.async_eval(y, z)
    del x, y, z
    return w, mx.array([5.0, 6.0])


def scopes() -> Any:
    """Two threads with recursive scopes and OPERATIONS operations a queue."""
    streams = [mx.new_stream(mx.cpu) for _ in range(2)]
    results: dict[int, Any] = {}

    def work(n: int) -> None:
        with execution.serialized():
            x = mx.array([float(n)])
            for _ in range(OPERATIONS // 2):
                x = mx.add(x, 1.0, stream=streams[n])
            mx.eval(x)
            with execution.serialized():
                for _ in range(OPERATIONS // 2):
                    x = mx.add(x, 1.0, stream=streams[n])
                mx.eval(x)
        results[n] = x.item()

    other = state.runtime.platform.thread(lambda: work(1), "other")
    other.start()
    work(0)
    other.join()
    return results[0], results[1]


@pytest.mark.parametrize("program", [chain, diamond], ids=lambda p: p.__name__)
def test_every_schedule_of_a_tiny_program_is_run_and_clean(program: Any) -> None:
    done = exhaust(program, preemptions=2)
    assert done.complete
    assert done.schedules > 20
    assert not done.findings
    assert len(done.results) == 1
    assert str(done).startswith(f"all {done.schedules} schedules")


@pytest.mark.parametrize("profile", ["sim", "cpu"])
def test_scopes_of_two_threads_are_clean_under_every_schedule_with_three_preemptions(profile: str) -> None:
    done = exhaust(scopes, preemptions=3, profile=profile)
    assert done.complete
    assert done.schedules > 50
    assert not done.findings
    assert len(done.results) == 1


def test_more_preemptions_are_more_schedules() -> None:
    counts = [exhaust(scopes, preemptions=n).schedules for n in range(3)]
    assert counts == sorted(set(counts))


def test_a_limit_is_not_called_complete() -> None:
    done = exhaust(diamond, limit=5)
    assert not done.complete
    assert str(done).startswith("only the first 5 schedules")


@pytest.mark.parametrize("name", ["missing read-after-write wait", "waits forgotten at commit"])
def test_a_fault_is_found_in_a_tiny_program(name: str) -> None:
    (mutant,) = [m for m in MUTANTS if m.name == name]
    from outlive.check import exhaustive
    from outlive.check.explore import expect
    from outlive.check.surroundings import exploring

    with exploring():
        healthy = expect(chain)
    assert healthy.comparable is not None
    with mutant.switched_on():
        assert exhaustive.exhaust(chain).findings
