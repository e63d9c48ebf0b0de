"""Quarantine stays small in a steady loop, in which every block is reissued before anybody sweeps."""

import outlive.core as mx
from outlive.graph.state import backend, default_device
from outlive.runtime.allocator import LIMIT_QUEUED


def test_entries_of_reissued_blocks_do_not_pile_up():
    allocator = backend(default_device()).allocator
    x = mx.ones((8, 64))
    mx.eval(x)
    for _ in range(3 * LIMIT_QUEUED):
        # intermediate results go while the work that reads them is still to run, and their blocks are asked for again
        mx.eval(mx.softmax(mx.sum(mx.multiply(x, x), axis=0) @ mx.transpose(x)))
    queued = sum(len(queue) for _, queue in allocator._ordered.values())
    assert queued <= LIMIT_QUEUED + 8
