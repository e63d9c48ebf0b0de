"""The deterministic platform: one thread at a time, the same switches for the same seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from outlive.backends.sim.choices import Deviation, RandomChoices, RecordedChoices
from outlive.backends.sim.platform import SimPlatform
from outlive.backends.sim.scheduler import Aborted, Scheduler
from outlive.runtime.platform import Timeout


def run(choices: Any, program: Callable[[SimPlatform], Any], limit: int = 100_000) -> tuple[Scheduler, Any]:
    scheduler = Scheduler(choices, limit)
    scheduler.begin()
    result = None
    try:
        result = program(SimPlatform(scheduler))
    except Aborted:
        pass
    finally:
        scheduler.end()
    return scheduler, result


def counting(platform: SimPlatform) -> list[str]:
    """Three threads that take turns at a lock; what they did, in order."""
    lock = platform.lock("turn")
    done: list[str] = []

    def work(name: str) -> None:
        for i in range(4):
            with lock:
                done.append(f"{name}{i}")
                platform.thread_id()
                done.append(f"{name}{i}")

    threads = [platform.thread(lambda n=n: work(n), n) for n in "ab"]
    for thread in threads:
        thread.start()
    work("m")
    for thread in threads:
        thread.join()
    return done


@pytest.mark.parametrize("seed", range(20))
def test_a_lock_keeps_the_others_out(seed: int) -> None:
    _, done = run(RandomChoices(seed), counting)
    assert len(done) == 24
    assert done[0::2] == done[1::2]


def test_seeds_differ_and_each_repeats_itself() -> None:
    orders = [tuple(run(RandomChoices(seed), counting)[1]) for seed in range(20)]
    assert len(set(orders)) > 5
    assert orders == [tuple(run(RandomChoices(seed), counting)[1]) for seed in range(20)]


@pytest.mark.parametrize("seed", range(20))
def test_recorded_decisions_replay_a_schedule(seed: int) -> None:
    first = RandomChoices(seed)
    scheduler, done = run(first, counting)
    again = RecordedChoices(first.deviations)
    replayed, same = run(again, counting)
    assert (same, replayed.step, again.deviations) == (done, scheduler.step, first.deviations)


def test_without_deviations_a_thread_runs_until_it_waits() -> None:
    _, done = run(RecordedChoices([]), counting)
    assert [name[0] for name in done] == ["m"] * 8 + ["a"] * 8 + ["b"] * 8


def test_an_impossible_decision_is_passed_over() -> None:
    _, done = run(RecordedChoices([Deviation(3, "run", 17), Deviation(5, "execute", 2)]), counting)
    assert len(done) == 24


def test_a_deadlock_is_a_finding_that_names_the_waiters() -> None:
    def program(platform: SimPlatform) -> None:
        first, second = platform.lock("first"), platform.lock("second")

        def other() -> None:
            with second, first:
                pass

        thread = platform.thread(other, "other")
        with first:
            thread.start()
            platform.sleep(1e-3)
            with second:
                pass
        thread.join()

    scheduler, _ = run(RecordedChoices([]), program)
    assert scheduler.violation is not None
    assert scheduler.violation.oracle == "liveness"
    assert "main waits for the lock second" in scheduler.violation.message
    assert "other waits for the lock first" in scheduler.violation.message


def test_a_loop_without_end_is_a_finding() -> None:
    def program(platform: SimPlatform) -> None:
        while True:
            platform.thread_id()

    scheduler, _ = run(RandomChoices(0), program, limit=1000)
    assert scheduler.violation is not None
    assert scheduler.violation.oracle == "liveness"


@pytest.mark.parametrize("seed", range(10))
def test_a_condition_wakes_every_waiter(seed: int) -> None:
    def program(platform: SimPlatform) -> int:
        condition = platform.condition("ready")
        state = {"ready": False, "woken": 0}

        def wait() -> None:
            with condition:
                while not state["ready"]:
                    condition.wait()
                state["woken"] += 1

        threads = [platform.thread(wait, f"waiter {i}") for i in range(3)]
        for thread in threads:
            thread.start()
        with condition:
            state["ready"] = True
            condition.notify_all()
        for thread in threads:
            thread.join()
        return state["woken"]

    scheduler, woken = run(RandomChoices(seed), program)
    assert scheduler.violation is None
    assert woken == 3


def test_a_timeout_comes_when_nothing_else_can_happen() -> None:
    def program(platform: SimPlatform) -> str:
        try:
            platform.channel("never").get(True, 5.0)
        except Timeout:
            return "timed out"
        return "got something"

    assert run(RecordedChoices([]), program)[1] == "timed out"


def test_an_error_of_a_thread_is_kept() -> None:
    def program(platform: SimPlatform) -> None:
        def fail() -> None:
            raise ValueError("in a thread")

        thread = platform.thread(fail, "failing")
        thread.start()
        thread.join()

    scheduler, _ = run(RecordedChoices([]), program)
    ((name, error),) = scheduler.thread_errors
    assert (name, str(error)) == ("failing", "in a thread")
