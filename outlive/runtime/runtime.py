"""`Runtime`: one lock, one mailbox, the devices and their streams.

The lock guards encoding, allocation and the mailbox's receiving end. No kernel runs while it is held. Finalizers and outside work only
append to the mailbox; whoever holds the lock drains it.
"""

from __future__ import annotations

import gc
import weakref
from collections import deque
from typing import Any

from outlive.runtime.buffer import Buffer, Data
from outlive.runtime.command_buffer import Fence
from outlive.runtime.errors import Pressure
from outlive.runtime.gate import Gate
from outlive.runtime.origin import Origin
from outlive.runtime.platform import Platform
from outlive.runtime.stream import LIMIT_RUN_AHEAD, Stream


class Runtime:
    """The state that all threads of a process share."""

    def __init__(self, platform: Platform) -> None:
        self.platform = platform
        self.lock = platform.lock("runtime")
        self.mailbox = platform.queue("mailbox")
        self.streams: list[Stream] = []
        self.trace: Any = None
        self.failures: weakref.WeakSet[Buffer] = weakref.WeakSet()
        """Buffers of all devices whose contents do not exist: while there are any, every device looks for them among what it reads."""
        self.tape_mark = 0
        self.stopping = False
        self.paused = False
        self._rested: list[Stream] = []
        self.gate = Gate(platform, self)

    def new_stream(self, device: Any) -> Stream:
        """A new stream of `device`."""
        with self.lock:
            stream = Stream(self, device, len(self.streams), deque())
            self.streams.append(stream)
            return stream

    def drain(self) -> None:
        """Let posted releases and completions arrive (under the lock)."""
        mailbox = self.mailbox
        while mailbox:
            mailbox.popleft().arrive()

    def busy(self) -> bool:
        """Whether any stream has work committed or being recorded."""
        for stream in self.streams:  # noqa: SIM110  (a generator would cost more than the question)
            if stream.completed != stream.committed or stream.encoder.command_buffer.records:
                return True
        return False

    def outstanding(self, device: Any) -> bool:
        """Whether work exists whose end could free memory of `device`."""
        return self.busy() or bool(self.mailbox)

    def commit_all(self) -> list[Fence]:
        """Commit the open command buffer of every stream (under the lock); fences of all work so far."""
        return [s.commit() for s in self.streams if s.encoder.command_buffer.records or s.outstanding]

    def wait(self, fence: Fence) -> None:
        """Return when `fence` is complete. Never called under the lock."""
        stream = fence.stream
        if stream.completed < fence.tick:
            stream.device.wait(stream, fence.tick)

    def retire_oldest(self) -> None:
        """Wait for the oldest command buffer of every stream (not under the lock)."""
        with self.lock:
            self.drain()
            self.commit_all()
            # `completed` is read once: a stream's runner moves it on without the lock, and a tick beyond the last would never come.
            oldest = [Fence(s, s.completed + 1) for s in self.streams]
            fences = [fence for fence in oldest if fence.tick <= fence.stream.committed]
        for fence in fences:
            self.wait(fence)

    def throttle(self, stream: Stream) -> None:
        """Keep the run-ahead of a stream bounded (not under the lock)."""
        if stream.outstanding > LIMIT_RUN_AHEAD:
            self.wait(Fence(stream, stream.committed - LIMIT_RUN_AHEAD))

    def synchronize(self, stream: Stream | None = None) -> None:
        """Wait for all work of `stream` (None: of all streams)."""
        with self.lock:
            self.drain()
            fences = self.commit_all() if stream is None else [stream.commit()]
        for fence in fences:
            self.wait(fence)
        with self.lock:
            self.drain()

    def allocate(self, device: Any, nbytes: int, origin: Origin | None) -> Buffer:
        """A buffer that the host may fill at once, retiring work where memory is short. Raises OutOfMemory."""
        while True:
            try:
                with self.lock:
                    buffer: Buffer = device.allocator.allocate(nbytes, None, origin)
                    return buffer
            except Pressure:
                self.retire_oldest()

    def live_buffers(self, device: Any) -> list[Buffer]:
        """Every buffer that somebody owns, found by walking the live objects: slow, for messages and proof."""
        found = {
            id(o.operand.buffer): o.operand.buffer
            for o in gc.get_objects()
            if type(o) is Data and o.operand is not None
        }
        return [b for b in found.values() if b.device is device]

    def before_fork(self) -> None:
        """Let every stream come to rest between two command buffers, and every thread leave the lock: the child finds all of it whole.

        Foreign work that nobody completed is not waited for, nor anything longer than the watchdog's time; the child marks it as failed.
        """
        self.paused = True
        me = self.platform.thread_id()
        limit_ns = self.platform.now_ns() + int(self.gate.watchdog_s * 1e9)
        for stream in list(self.streams):
            while stream.runner != me and stream.blocked is None and self.platform.now_ns() < limit_ns:
                if stream.baton.acquire(True, 0.01):
                    self._rested.append(stream)
                    break
        self.lock.acquire()

    def after_fork_in_parent(self) -> None:
        """Everything goes on."""
        self.lock.release()
        self.paused = False
        rested, self._rested = self._rested, []
        for stream in rested:
            stream.baton.release()
            with stream.wake:
                stream.wake.notify_all()

    def after_fork_in_child(self) -> None:
        """A forked child has one thread: locks start anew, and work that another thread was running is not repeated."""
        self.lock = self.platform.lock("runtime")
        self.gate = Gate(self.platform, self)
        self.paused = False
        self._rested = []
        for stream in self.streams:
            stream.device.after_fork_in_child(stream)
            stream.renew()

    def stop(self) -> None:
        """At the end of the process: finish what runs and end the workers."""
        self.stopping = True
        for stream in list(self.streams):
            stream.device.stop(stream)
