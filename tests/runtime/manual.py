"""A device whose work is over when the test says so, and types and kernels for it."""

from __future__ import annotations

from typing import Any

from outlive.host.machine import Machine
from outlive.runtime.allocator import Allocator
from outlive.runtime.ledger import Ledger
from outlive.runtime.runtime import Runtime


class Bytes:
    """An element type of one byte."""

    name = "bytes"
    itemsize = 1
    storage = None


BYTES = Bytes()


class Kernel:
    """A kernel that does nothing, named for messages."""

    name = "test kernel"


KERNEL = Kernel()


class ManualDevice:
    """Takes command buffers and completes them one at a time, when told to; remembers what the driver gave and took back."""

    name = "manual"

    def __init__(self, runtime: Runtime, cap: int = 1 << 30, cap_blocks: int = 1 << 20) -> None:
        self.runtime = runtime
        self.index = 0
        self.ledger = Ledger(cap, cap_blocks)
        self.allocator = Allocator(self, self.ledger, runtime)
        self.launches: dict[Any, Any] = {}
        self.given: dict[int, int] = {}
        self.refuse_next = False
        self._address = 4096

    def __repr__(self) -> str:
        return "Device(manual, 0)"

    def allocate(self, size: int) -> tuple[int, Any]:
        if self.refuse_next:
            self.refuse_next = False
            raise MemoryError
        self._address += size
        self.given[self._address] = size
        return self._address, self._address

    def release(self, memory: Any) -> None:
        del self.given[memory]

    def view(self, memory: Any, layout: Any, offset: int) -> Any:
        return memory, layout, offset

    def select(self, kernel: Any, reads: Any, writes: Any) -> None:
        return None

    def commit(self, stream: Any, command_buffer: Any) -> None:
        stream.pending.append(command_buffer)

    def complete_one(self, stream: Any) -> bool:
        """Complete the stream's oldest command buffer, after what it waits for; whether there was one."""
        if not stream.pending:
            return False
        command_buffer = stream.pending[0]
        for other, tick in command_buffer.waits.items():
            self.wait(other, tick)
        stream.pending.popleft()
        command_buffer.complete()
        stream.completed = command_buffer.tick
        return True

    def wait(self, stream: Any, tick: int) -> None:
        while stream.completed < tick:
            assert self.complete_one(stream), "waiting for work that was never committed"

    def start(self, stream: Any) -> None:
        """Nothing runs by itself."""

    def stop(self, stream: Any) -> None:
        """There is no worker."""

    def after_fork_in_child(self, stream: Any) -> None:
        """No thread runs anything."""


def manual_runtime(**limits: int) -> tuple[Runtime, ManualDevice]:
    """A runtime of its own with a manual device."""
    runtime = Runtime(Machine())
    return runtime, ManualDevice(runtime, **limits)
