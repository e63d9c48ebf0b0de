"""Several streams of one device: derived waits, workers and waiting threads never stand in each other's way."""

from __future__ import annotations

import threading

import pytest

import outlive.core as mx


@pytest.mark.parametrize("n", [1, 1000, 1 << 18])
def test_streams_that_wait_for_each_other_in_turn_end(n: int):
    """A worker may want a tick of a stream whose runner meanwhile went on to work that waits for the worker's own stream."""
    streams = [mx.new_stream(mx.default_device()) for _ in range(2)]
    for _ in range(60):
        x = mx.ones((n,)) + 1
        p, q = mx.multiply(x, 2, stream=streams[0]), mx.add(x, 5, stream=streams[1])
        mx.async_eval(p, q)
        del x
        mx.eval([mx.full((n,), -1.0) for _ in range(3)])
        assert [p.min().item(), p.max().item(), q.min().item(), q.max().item()] == [4, 4, 7, 7]


def test_asynchronous_work_goes_on_after_another_thread_waited_for_a_part_of_it():
    stream = mx.new_stream(mx.default_device())
    for _ in range(100):
        with mx.stream(stream):
            first = mx.ones((1000,)) + 1
            mx.async_eval(first)
            last = first * 2
            mx.async_eval(last)
        reader = threading.Thread(target=first.tolist)
        reader.start()
        reader.join()
        write = last._node.data.operand.buffer.write
        for _ in range(10_000):
            if write.done:
                break
            threading.Event().wait(0.001)
        assert write.done, "queued work stands still although nobody waits"
