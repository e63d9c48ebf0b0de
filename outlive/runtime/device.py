"""`Device`: what the runtime asks of a backend. `backends/null` is the smallest one; `docs/writing-a-backend.md` walks through it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from outlive.runtime.allocator import Allocator
    from outlive.runtime.buffer import Operand
    from outlive.runtime.command_buffer import CommandBuffer
    from outlive.runtime.layout import Layout
    from outlive.runtime.ledger import Ledger
    from outlive.runtime.stream import Stream


class Device(Protocol):
    """A device. `launches` holds chosen kernels by (kernel, layout, layout, layout) for the encoder's short way of two operands."""

    name: str
    index: int
    ledger: Ledger
    allocator: Allocator
    launches: dict[Any, Any]

    def allocate(self, size: int) -> tuple[int, Any]:
        """`size` bytes from the driver: pointer, and the object that keeps them. Raises MemoryError."""

    def release(self, memory: Any) -> None:
        """Give memory back to the driver. Nothing uses it any more."""

    def view(self, memory: Any, layout: Layout, offset: int) -> Any:
        """The library's array object over memory, for reference kernels; `offset` in bytes."""

    def copy_in(self, values: Any, operand: Operand) -> None:
        """Host values in storage form into a fresh operand."""

    def copy_out(self, operand: Operand) -> Any:
        """A computed operand as a NumPy array in storage form."""

    def select(self, kernel: Any, reads: tuple[Operand, ...], writes: tuple[Operand, ...]) -> Any:
        """The accelerated kernel for a call, or None where the reference kernel serves it. Raises while nothing is recorded yet."""

    def commit(self, stream: Stream, command_buffer: CommandBuffer) -> None:
        """Take a command buffer over, under the runtime's lock: queue or launch it, never wait."""

    def start(self, stream: Stream) -> None:
        """Make committed work progress without anybody waiting."""

    def wait(self, stream: Stream, tick: int) -> None:
        """Return when the stream's command buffers up to `tick` are complete. Not under the lock."""

    def stop(self, stream: Stream) -> None:
        """The process ends: end the stream's threads."""

    def after_fork_in_child(self, stream: Stream) -> None:
        """This is a forked child: forget what only the parent's threads or driver knew."""
