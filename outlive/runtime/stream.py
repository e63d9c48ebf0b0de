"""Streams: an order of command buffers on a device. Each commit gets the next tick."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from outlive.runtime.command_buffer import CommandBuffer, Fence
from outlive.runtime.encoder import CommandEncoder
from outlive.runtime.platform import shared

if TYPE_CHECKING:
    from collections import deque

    from outlive.runtime.foreign import Ticket
    from outlive.runtime.runtime import Runtime

LIMIT_RUN_AHEAD = 16
"""Command buffers that a stream may have committed and not complete."""


@shared("completed", "runner", "waiting")
class Stream:
    """A stream of a device, made by `new_stream`. Its work runs in order.

    `committed` and `completed` are ticks; `pending` holds what the device has not finished.
    `baton`: held by the thread that runs or polls the stream, whose identity is `runner`. `waiting`: threads that want the baton.
    `blocked`: the foreign work at which it stands. `worker` and `wake`: the thread that runs asynchronous work, and how it is woken.

    >>> mx.new_stream(mx.cpu) == mx.default_stream(mx.cpu)
    False
    """

    __slots__ = (
        "baton", "blocked", "committed", "completed", "device", "encoder", "index", "pending", "runner", "runtime", "state", "waiting",
        "wake", "worker",
    )  # fmt: skip

    def __init__(self, runtime: Runtime, device: Any, index: int, pending: deque[CommandBuffer]) -> None:
        self.runtime = runtime
        self.device = device
        self.index = index
        self.committed = 0
        self.completed = 0
        self.pending = pending
        self.state: Any = None
        self.blocked: Ticket | None = None
        self.renew()
        self.encoder = CommandEncoder(self)

    def __repr__(self) -> str:
        return f"Stream({self.device}, {self.index})"

    def renew(self) -> None:
        """Locks and worker anew: at the start, and in a forked child, where no other thread lives."""
        platform = self.runtime.platform
        self.baton = platform.lock(f"stream {self.index}")
        self.wake = platform.condition(f"stream {self.index} wake")
        self.worker: Any = None
        self.runner = 0
        self.waiting: set[int] = set()

    @property
    def outstanding(self) -> int:
        """Command buffers committed and not complete."""
        return self.committed - self.completed

    def commit(self) -> Fence:
        """Hand the open command buffer to the device (under the runtime's lock); the fence of all work so far."""
        command_buffer = self.encoder.command_buffer
        if not command_buffer.records:
            return Fence(self, self.committed)
        command_buffer.seal()
        self.encoder._open(CommandBuffer(self))
        self.committed += 1
        fence = command_buffer.committed(self.committed)
        self.device.commit(self, command_buffer)
        trace = self.runtime.trace
        if trace is not None:
            trace.committed(command_buffer)
        return fence
