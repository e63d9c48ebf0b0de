"""Quarantine stays small in a steady loop, in which every block is reissued before anybody sweeps."""

import outlive.core as mx
from outlive.graph.state import backend, default_device
from outlive.runtime.allocator import LIMIT_QUEUED


def test_entries_of_reissued_blocks_do_not_pile_up():
    allocator = backend(default_device()).allocator
    kept = mx.ones((8, 64))
    unused = [mx.ones((n, 7)) for n in range(1, 4)]
    for step in range(4 * LIMIT_QUEUED):
        a = mx.multiply(kept, kept)
        mx.eval(a + 1.0, a * 2.0)
        if step == 10:
            mx.eval([u + 1.0 for u in unused])  # sizes that nobody asks for again stay at the head of the queue
    assert sum(len(queue) for _, queue in allocator._ordered.values()) <= LIMIT_QUEUED + 8
