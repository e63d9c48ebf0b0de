"""Memory and its owners: `Block` (from the driver), `Buffer` (one life of a block), `Operand` (what a kernel sees), `Data` (an owner).

An array's node owns a `Data`; command buffers hold operands. So the last owner may go while work is in flight: the finalizer of `Data`
posts the buffer to the mailbox and does nothing else, and the allocator keeps the block in quarantine until its accesses are complete.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from outlive.runtime.platform import shared

if TYPE_CHECKING:
    from outlive.runtime.allocator import Allocator
    from outlive.runtime.command_buffer import CommandBuffer
    from outlive.runtime.errors import Failure
    from outlive.runtime.layout import Layout
    from outlive.runtime.origin import Origin


class Block:
    """One allocation of the driver: `pointer`, `size` (bytes), `memory` (what keeps it), reissued as a new `Buffer` each time.

    `view` caches (layout, the device's array over the block's start): making one costs more than an op. One tuple, so that a thread never
    sees half of it.
    """

    __slots__ = ("allocator", "generation", "memory", "pointer", "post", "size", "view")

    def __init__(self, allocator: Allocator, pointer: int, size: int, memory: Any, post: Callable[[Any], None]) -> None:
        self.allocator = allocator
        self.pointer = pointer
        self.size = size
        self.memory = memory
        self.post = post
        self.generation = 0
        self.view: tuple[Layout | None, Any] = (None, None)


@shared("write", "reads", "failure")
class Buffer:
    """One life of a block: identity (pointer, size, device, generation) never changes.

    `write`: the command buffer of the last write. `reads`: the command buffer of the reads since, or a dict by stream when several streams
    read. `failure`: why its contents do not exist.
    """

    __slots__ = ("__weakref__", "block", "failure", "generation", "origin", "reads", "write")

    def __init__(self, block: Block, origin: Origin | None) -> None:
        block.generation += 1
        self.block = block
        self.generation = block.generation
        self.origin = origin
        self.write: CommandBuffer | None = None
        self.reads: CommandBuffer | dict[Any, CommandBuffer] | None = None
        self.failure: Failure | None = None

    @property
    def pointer(self) -> int:
        return self.block.pointer

    @property
    def size(self) -> int:
        return self.block.size

    @property
    def device(self) -> Any:
        return self.block.allocator.device

    def arrive(self) -> None:
        """A posted release reaches the baton's holder."""
        self.block.allocator.release(self)

    def accesses(self) -> list[CommandBuffer]:
        """The command buffers whose work on this buffer is not complete: the write, then the reads that came after it."""
        found = [] if self.write is None else [self.write]
        if type(self.reads) is dict:
            found += self.reads.values()
        elif self.reads is not None:
            found.append(self.reads)  # type: ignore[arg-type]
        return [c for c in found if not c.done]


class Operand:
    """A kernel's view of a buffer: layout, and byte offset of its first element."""

    __slots__ = ("buffer", "layout", "offset", "pointer")

    def __init__(self, buffer: Buffer, layout: Layout, offset: int = 0) -> None:
        self.buffer = buffer
        self.layout = layout
        self.offset = offset
        self.pointer = buffer.block.pointer + offset

    @property
    def view(self) -> Any:
        """The device's own array object over this operand (NumPy's on the host)."""
        block = self.buffer.block
        layout, view = block.view
        if layout is self.layout and not self.offset:
            return view
        view = block.allocator.device.view(block.memory, self.layout, self.offset)
        if not self.offset:
            block.view = (self.layout, view)
        return view


class Data:
    """Sole owner of a buffer. The only class with a finalizer: it posts the buffer to the mailbox, once.

    Donation takes `operand` away, so an owner that gave its buffer to another op posts nothing.
    """

    __slots__ = ("operand",)

    def __init__(self, operand: Operand) -> None:
        self.operand: Operand | None = operand

    def __del__(self) -> None:
        operand = self.operand
        if operand is not None:
            buffer = operand.buffer
            buffer.block.post(buffer)


class View:
    """A part or another shape of somebody's data; keeps the owner."""

    __slots__ = ("operand", "owner")

    def __init__(self, operand: Operand, owner: Data | View) -> None:
        self.operand = operand
        self.owner: Data = owner.owner if type(owner) is View else owner  # type: ignore[assignment]
