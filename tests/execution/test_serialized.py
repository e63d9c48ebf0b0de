"""`execution.serialized()`: recursive, exclusive, and never a silent deadlock."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator

import pytest

import outlive.core as mx
from outlive import execution


@pytest.fixture
def _frequent_switches() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def in_thread(work: object) -> threading.Thread:
    thread = threading.Thread(target=work)  # type: ignore[arg-type]
    thread.start()
    return thread


@pytest.mark.usefixtures("_frequent_switches")
def test_two_threads_with_recursive_scopes_keep_their_results_apart():
    for _ in range(200):
        results: dict[int, float] = {}

        def queue(number: int, results: dict[int, float] = results) -> None:
            x = mx.array([float(number)])
            for i in range(128):
                with execution.serialized():
                    x = x + 1.0
                    if i % 8 == 0:
                        with execution.serialized():
                            mx.eval(x)
            results[number] = x.item()

        threads = [in_thread(lambda n=n: queue(n)) for n in (1000, 2000)]
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        assert results == {1000: 1128.0, 2000: 2128.0}


def test_an_evaluation_of_another_thread_waits_until_the_scope_is_left():
    events: list[str] = []
    inside = threading.Event()

    def other() -> None:
        inside.wait()
        mx.eval(mx.array([1.0]) + 1.0)
        events.append("other evaluated")

    thread = in_thread(other)
    with execution.serialized():
        inside.set()
        thread.join(0.2)
        assert thread.is_alive()
        mx.eval(mx.array([2.0]) + 1.0)
        events.append("scope left")
    thread.join(10)
    assert events == ["scope left", "other evaluated"]


def test_a_scope_left_by_an_exception_is_free_again():
    with pytest.raises(KeyError), execution.serialized(), execution.serialized():
        raise KeyError
    thread = in_thread(lambda: mx.eval(mx.array([1.0]) + 1.0))
    thread.join(10)
    assert not thread.is_alive()


def test_closing_a_scope_in_another_thread_raises_and_keeps_it_held():
    scope = execution.serialized()
    scope.__enter__()
    errors: list[BaseException] = []

    def close() -> None:
        try:
            scope.__exit__(None, None, None)
        except execution.SerializedScope as error:
            errors.append(error)

    in_thread(close).join()
    assert "does not hold it" in str(errors[0])
    assert "held by MainThread" in execution.audit()
    scope.__exit__(None, None, None)
    assert "held by nobody" in execution.audit()


def test_another_task_of_the_holding_thread_raises_and_names_the_holder():
    async def program() -> BaseException | None:
        async def evaluate() -> None:
            mx.eval(mx.array([1.0]) + 1.0)

        with execution.serialized():
            task = asyncio.create_task(evaluate())
            await asyncio.sleep(0)
            return task.exception()

    error = asyncio.run(program())
    assert isinstance(error, execution.SerializedScope)
    assert "MainThread" in str(error)


def test_awaiting_arrays_inside_the_scope_raises():
    async def program() -> None:
        with execution.serialized():
            await execution.ready(mx.array([1.0]) + 1.0)

    with pytest.raises(execution.SerializedScope, match="await"):
        asyncio.run(program())


def test_awaited_arrays_are_computed():
    async def program() -> list[float]:
        x = mx.array([1.0, 2.0]) + 1.0
        await execution.ready(x)
        return x.tolist()

    assert asyncio.run(program()) == [2.0, 3.0]


def test_the_watchdog_prints_both_stacks_and_kills_nothing(capfd: pytest.CaptureFixture[str]):
    execution.set_watchdog(0.05)
    try:
        inside, leave = threading.Event(), threading.Event()

        def hold_the_scope() -> None:
            with execution.serialized():
                inside.set()
                leave.wait()

        holder = in_thread(hold_the_scope)
        inside.wait()

        def wait_outside() -> None:
            mx.eval(mx.array([1.0]) + 1.0)

        waiter = in_thread(wait_outside)
        waiter.join(0.5)
        leave.set()
        holder.join(10)
        waiter.join(10)
        assert not waiter.is_alive()
    finally:
        execution.set_watchdog(10.0)
    told = capfd.readouterr().err
    assert "hold_the_scope" in told
    assert "wait_outside" in told


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan")])
def test_a_watchdog_that_is_not_positive_is_refused(seconds: float):
    with pytest.raises(ValueError, match="positive"):
        execution.set_watchdog(seconds)
