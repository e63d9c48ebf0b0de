"""Work of other libraries on our streams: order, sealing, failures, and completions from anywhere."""

from __future__ import annotations

import gc
import threading
import time
from typing import Any

import numpy as np
import pytest

import outlive.core as mx
from outlive import execution

N = 1 << 16


def ones() -> mx.array:
    return mx.array(np.ones(N, np.float32))


def test_a_scope_gives_views_of_computed_operands_and_its_results_are_read_after_it():
    a = ones() + 1.0
    out = mx.array(np.zeros(N, np.float32))
    with execution.foreign(reads=[a], writes=[out]) as work:
        np.multiply(work.reads[0], 3, out=work.writes[0])
    assert (out + 1.0).tolist() == [7.0] * N


def test_other_handles_keep_what_they_had():
    out = mx.array(np.zeros(N, np.float32))
    other = mx.array(out)
    with execution.foreign(writes=[out]) as work:
        work.writes[0][:] = 5
    assert (other.max().item(), out.min().item()) == (0.0, 5.0)


def test_old_contents_of_a_written_array_are_there():
    out = ones()
    with execution.foreign(writes=[out]) as work:
        work.writes[0][: N // 2] += 1
    assert (out.min().item(), out.max().item()) == (1.0, 2.0)


def test_readers_on_every_stream_wait_for_a_deferred_completion():
    out = ones()
    with execution.foreign(writes=[out]) as work:
        view, ticket = work.writes[0], work.defer()
    streams = [mx.new_stream(mx.default_device()) for _ in range(2)]
    sums = [mx.sum(out, stream=s) for s in streams]

    def finish() -> None:
        time.sleep(0.1)
        view[:] = 2
        ticket.complete()

    thread = threading.Thread(target=finish)
    thread.start()
    assert [s.item() for s in sums] == [2.0 * N] * 2
    thread.join()


def test_operands_dropped_meanwhile_are_not_reused_before_the_completion():
    a, out = ones(), ones()
    with execution.foreign(reads=[a], writes=[out]) as work:
        read, written, ticket = work.reads[0], work.writes[0], work.defer()
    del a, out, work
    gc.collect()
    elsewhere = mx.new_stream(mx.default_device())
    others = [mx.full((N,), float(i), stream=elsewhere) for i in range(8)]
    mx.eval(others)
    assert read.min() == read.max() == 1.0
    written[:] = 9
    ticket.complete()
    assert [o.item() for o in (mx.max(x) for x in others)] == [float(i) for i in range(8)]


def test_a_failure_belongs_to_the_written_arrays_and_nothing_else():
    a, out = ones(), ones()
    with pytest.raises(KeyError), execution.foreign(reads=[a], writes=[out]):
        raise KeyError("library said no")
    for _ in range(2):
        with pytest.raises(execution.ExecutionError, match="library said no"):
            (out + 1.0).tolist()
    assert (a + 1.0).max().item() == 2.0


def test_a_ticket_fails_its_arrays():
    out = ones()
    with execution.foreign(writes=[out]) as work:
        ticket = work.defer()
    ticket.fail(OSError("device unplugged"))
    with pytest.raises(execution.ExecutionError, match="device unplugged"):
        out.tolist()


def test_a_second_completion_is_an_error():
    with execution.foreign(writes=[ones()]) as work:
        ticket = work.defer()
    ticket.complete()
    with pytest.raises(execution.ForeignError, match="twice"):
        ticket.complete()
    with pytest.raises(execution.ForeignError, match="twice"):
        ticket.fail(ValueError("late"))


def test_waiting_for_ones_own_open_scope_raises_at_once():
    out = ones()
    with execution.foreign(writes=[out]), pytest.raises(execution.SerializedScope, match="complete itself"):
        mx.eval(out + 1.0)
    assert (out + 1.0).min().item() == 2.0


def test_a_second_scope_of_the_same_thread_on_a_blocked_stream_raises_at_once():
    with execution.foreign(writes=[ones()]), pytest.raises(execution.SerializedScope, match="complete itself"):
        execution.foreign(writes=[ones()]).__enter__()


def test_a_queued_call_runs_in_stream_order():
    a, out = ones() + 1.0, ones()
    seen: list[float] = []

    def function(reads: tuple[Any, ...], writes: tuple[Any, ...]) -> None:
        seen.append(float(reads[0].max()))
        writes[0][:] = 4

    execution.call(function, reads=[a], writes=[out])
    assert out.max().item() == 4.0
    assert seen == [2.0]


def test_a_queued_call_that_evaluates_on_its_own_stream_fails_clearly():
    out = ones()

    def function(reads: tuple[Any, ...], writes: tuple[Any, ...]) -> None:
        mx.eval(mx.array([1.0]) + 1.0)

    execution.call(function, writes=[out])
    with pytest.raises(execution.ExecutionError, match="must not evaluate"):
        out.tolist()
    assert (ones() + 1.0).max().item() == 2.0


def test_completion_by_a_finalizer_in_the_middle_of_anything():
    out = ones()
    with execution.foreign(writes=[out]) as work:
        ticket = work.defer()

    class Owner:
        def __del__(self) -> None:
            ticket.complete()

    cycle: list[Any] = [Owner()]
    cycle.append(cycle)
    del cycle
    x = mx.array([0.0])
    for _ in range(2000):
        x = x + 1.0
    gc.collect()
    mx.eval(out)
    assert x.item() == 2000.0


def test_the_watchdog_says_what_was_never_completed(capfd: pytest.CaptureFixture[str]):
    execution.set_watchdog(0.05)
    try:
        out = ones()
        with execution.foreign(writes=[out]) as work:
            ticket = work.defer()
        time.sleep(0.3)
        ticket.complete()
        assert out.max().item() == 1.0
    finally:
        execution.set_watchdog(10.0)
    assert "which nobody completed" in capfd.readouterr().err


def test_numba_compiled_code_shares_the_cpu_stream():
    import numba

    @numba.njit
    def triple(source, target):
        for i in range(source.size):
            target[i] = 3 * source[i]

    a, out = ones() + 1.0, ones()
    execution.call(lambda reads, writes: triple(reads[0], writes[0]), reads=[a], writes=[out])
    assert (out - 1.0).max().item() == 5.0
