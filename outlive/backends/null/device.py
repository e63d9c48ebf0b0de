"""`NullDevice`: takes every command buffer and completes it at once, without running anything."""

from __future__ import annotations

from typing import Any

from outlive.runtime.allocator import Allocator
from outlive.runtime.command_buffer import CommandBuffer
from outlive.runtime.ledger import Ledger
from outlive.runtime.runtime import Runtime
from outlive.runtime.stream import Stream

CAP = 1 << 40


class NullDevice:
    """A device without memory and without kernels. Contents of its arrays do not exist."""

    name = "null"

    def __init__(self, runtime: Runtime, index: int = 0) -> None:
        self.runtime = runtime
        self.index = index
        self.ledger = Ledger(CAP)
        self.allocator = Allocator(self, self.ledger, runtime)
        self.launches: dict[Any, Any] = {}
        self._next_address = 1 << 20

    def __repr__(self) -> str:
        return f"Device({self.name}, {self.index})"

    def allocate(self, size: int) -> tuple[int, Any]:
        """Addresses that nothing stands behind."""
        self._next_address += size
        return self._next_address - size, None

    def release(self, memory: Any) -> None:
        """Nothing was taken."""

    def view(self, memory: Any, layout: Any, offset: int) -> Any:
        raise RuntimeError("[null] Arrays of the null device have no contents to read.")

    def select(self, kernel: Any, reads: Any, writes: Any) -> bool:
        """Every call is served by nothing."""
        if len(reads) == 2:
            self.launches[kernel, reads[0].layout, reads[1].layout, writes[0].layout] = True
        return True

    def commit(self, stream: Stream, command_buffer: CommandBuffer) -> None:
        stream.completed = command_buffer.tick
        command_buffer.complete()

    def start(self, stream: Stream) -> None:
        """Everything is complete already."""

    def wait(self, stream: Stream, tick: int) -> None:
        """Everything is complete already."""

    def stop(self, stream: Stream) -> None:
        """There is no worker."""

    def after_fork_in_child(self, stream: Stream) -> None:
        """No thread runs anything."""
