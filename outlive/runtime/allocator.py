"""The allocator of a device: size classes, cache, and the quarantine of blocks whose last work is not complete.

A released block goes one of three ways. All its accesses complete: into the cache, for anybody. All on one stream: into that stream's
quarantine, from which only the same stream may take it (its order proves that the old work comes first). Several streams: into the shared
quarantine until they are complete. Only a block from the cache goes back to the driver. All methods run under the runtime's lock.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import TYPE_CHECKING, Any

from outlive.runtime.buffer import Block, Buffer
from outlive.runtime.errors import OutOfMemory, Pressure
from outlive.runtime.ledger import CapExceeded, Ledger
from outlive.runtime.origin import Origin, place

if TYPE_CHECKING:
    from outlive.runtime.command_buffer import CommandBuffer
    from outlive.runtime.runtime import Runtime
    from outlive.runtime.stream import Stream

ALIGNMENT = 64
PAGE = 4096
LIMIT_QUEUED = 1024
"""Entries of a stream's quarantine, those of reissued blocks among them, at which it is swept."""

HOLDERS_SHOWN = 5
LARGE = 1 << 20
"""Live buffers of this size or more, in bytes, are listed by identity, so that a snapshot names the largest without walking the heap."""


def size_class(nbytes: int) -> int:
    """The bytes that a request takes: multiples of 64 up to a page, then eight steps to each doubling, whole pages from 32 KiB on."""
    if nbytes <= ALIGNMENT:
        return ALIGNMENT
    if nbytes <= PAGE:
        return -(-nbytes // ALIGNMENT) * ALIGNMENT
    step = 1 << ((nbytes - 1).bit_length() - 4)
    return -(-nbytes // step) * step


class Quarantined:
    """A block that waits for its accesses, in the order of their stream if it is one; `block` is None once somebody took it."""

    __slots__ = ("block", "pending")

    def __init__(self, block: Block, pending: list[CommandBuffer]) -> None:
        self.block: Block | None = block
        self.pending = pending


class Allocator:
    """Gives out buffers of one device under one ledger."""

    def __init__(self, device: Any, ledger: Ledger, runtime: Runtime) -> None:
        self.device = device
        self.ledger = ledger
        self.runtime = runtime
        self.mailbox = runtime.mailbox
        self.cache: dict[int, list[Block]] = {}
        self.large: dict[int, Buffer] = {}
        self.limit_cached = ledger.cap
        self.limit_memory = ledger.cap
        self._ordered: dict[Stream, tuple[dict[int, list[Quarantined]], deque[Quarantined]]] = {}
        self._shared: deque[Quarantined] = deque()
        self._buffers: dict[int, Any] = {}

    def allocate(self, nbytes: int, stream: Stream | None, origin: Origin | None = None) -> Buffer:
        """A buffer of at least `nbytes` for work on `stream` (None: for the host, at once).

        Raises Pressure when memory is short but work is outstanding, OutOfMemory when it cannot be had.
        """
        if self.mailbox:
            self.runtime.drain()
        size = size_class(nbytes)
        entry = self._from_quarantine(size, stream)
        if entry is not None:
            buffer = Buffer(entry[0], origin)
            # What is not complete stays an access of the new life: it may end before its own first access (an op that raised).
            buffer.write = entry[1]
        else:
            buffer = Buffer(self._from_cache(size) or self._from_driver(size), origin)
        if size >= LARGE:
            self.large[id(buffer)] = buffer
        return buffer

    def _from_quarantine(self, size: int, stream: Stream | None) -> tuple[Block, CommandBuffer] | None:
        """A block whose unfinished work is all on `stream`, with the last of that work."""
        ordered = self._ordered.get(stream) if stream is not None else None
        stack = ordered[0].get(size) if ordered is not None else None
        while stack:
            entry = stack.pop()
            block = entry.block
            if block is not None:
                entry.block = None
                ledger = self.ledger
                ledger.quarantined -= size
                ledger.live += size
                if ledger.live > ledger.peak_live:
                    ledger.peak_live = ledger.live
                return block, entry.pending[-1]
        return None

    def _from_cache(self, size: int) -> Block | None:
        """A block that nothing uses."""
        ledger = self.ledger
        stack = self.cache.get(size)
        if not stack:
            if not ledger.quarantined or not self.sweep():
                return None
            stack = self.cache.get(size)
            if not stack:
                return None
        block = stack.pop()
        ledger.cached -= size
        ledger.live += size
        if ledger.live > ledger.peak_live:
            ledger.peak_live = ledger.live
        return block

    def _from_driver(self, size: int) -> Block:
        ledger = self.ledger
        excess = ledger.allocated + size - self.limit_memory
        if excess > 0 and ledger.cached:
            self.trim(excess, blocks=0)
        while True:
            try:
                ledger.reserve(size)
            except CapExceeded:
                if self.trim(ledger.allocated + size - ledger.cap, blocks=ledger.blocks + 1 - ledger.cap_blocks):
                    continue
                self._refuse(size)
            try:
                pointer, memory = self.device.allocate(size)
            except MemoryError:
                ledger.refund(size, "reserved")
                if self.trim(size, blocks=0):
                    continue
                self._refuse(size)
            except BaseException:
                ledger.refund(size, "reserved")
                raise
            ledger.settle(size)
            return Block(self, pointer, size, memory, self.mailbox.append)

    def _refuse(self, size: int) -> None:
        """Nothing complete is left to trim: ask for the oldest work to be retired, or refuse."""
        # Work may have ended since the last sweep, on a thread that does not need the lock: what it used is still in quarantine.
        if self.runtime.outstanding(self.device) or self.ledger.quarantined:
            raise Pressure
        raise self.ledger.refusal(size, str(self.device), self.holders())

    def release(self, buffer: Buffer) -> None:
        """The last owner is gone: cache the block, or quarantine it until its accesses are complete."""
        block = buffer.block
        size = block.size
        ledger = self.ledger
        ledger.live -= size
        if size >= LARGE:
            self.large.pop(id(buffer), None)
        pending = buffer.accesses()
        if not pending:
            self._to_cache(block)
            return
        ledger.quarantined += size
        entry = Quarantined(block, pending)
        stream = pending[0].stream
        if stream.device is self.device and all(c.stream is stream for c in pending):
            ordered = self._ordered.get(stream)
            if ordered is None:
                ordered = self._ordered[stream] = ({}, deque())
            stack = ordered[0].get(size)
            if stack is None:
                stack = ordered[0][size] = []
            stack.append(entry)
            queue = ordered[1]
            queue.append(entry)
            if len(queue) > LIMIT_QUEUED:
                self.sweep()  # entries whose block was reissued leave the queue only here
        else:
            self._shared.append(entry)

    def _to_cache(self, block: Block) -> None:
        ledger = self.ledger
        stack = self.cache.get(block.size)
        if stack is None:
            stack = self.cache[block.size] = []
        stack.append(block)
        ledger.cached += block.size
        if ledger.cached > self.limit_cached:
            self._give_back(
                ledger.cached - self.limit_cached, blocks=0
            )  # not `trim`: a sweep may be what brought the block here

    def sweep(self) -> int:
        """Move what is complete from quarantine to the cache; the number of blocks moved."""
        moved = 0
        for stacks, queue in self._ordered.values():
            while queue:
                entry = queue[0]
                if entry.block is not None:
                    if not all(c.done for c in entry.pending):
                        break
                    moved += self._leave(entry)
                queue.popleft()
            if not queue:
                stacks.clear()
        for _ in range(len(self._shared)):
            entry = self._shared.popleft()
            if all(c.done for c in entry.pending):
                moved += self._leave(entry)
            else:
                self._shared.append(entry)
        return moved

    def _leave(self, entry: Quarantined) -> int:
        block = entry.block
        assert block is not None
        entry.block = None
        self.ledger.quarantined -= block.size
        self._to_cache(block)
        return 1

    def trim(self, nbytes: int, blocks: int) -> bool:
        """Give cached blocks back to the driver, largest first, until `nbytes` bytes and `blocks` blocks went; whether any did."""
        self.sweep()
        return self._give_back(nbytes, blocks)

    def _give_back(self, nbytes: int, blocks: int) -> bool:
        ledger = self.ledger
        freed = count = 0
        for size in sorted(self.cache, reverse=True):
            stack = self.cache[size]
            while stack and (freed < nbytes or count < blocks):
                block = stack.pop()
                self.device.release(block.memory)
                block.memory = None
                block.view = (None, None)
                ledger.refund(size, "cached")
                freed, count = freed + size, count + 1
            if freed >= nbytes and count >= blocks:
                break
        return count > 0

    def clear_cache(self) -> None:
        """Give every cached block back to the driver."""
        if self.mailbox:
            self.runtime.drain()
        self.sweep()
        self.trim(self.ledger.cached, blocks=0)

    def largest(self, count: int = HOLDERS_SHOWN) -> list[tuple[int, str]]:
        """Sizes in bytes and places of origin of the largest live buffers of `LARGE` bytes or more."""
        found = heapq.nlargest(count, self.large.values(), key=lambda b: b.size)
        return [(b.size, place(b.origin)) for b in found]

    def holders(self) -> str:
        """The largest live buffers with the places that made them, as a sentence for messages."""
        largest = self.largest() or [
            (b.size, place(b.origin))
            for b in heapq.nlargest(HOLDERS_SHOWN, self.runtime.live_buffers(self.device), key=lambda b: b.size)
        ]
        return (
            f" Largest: {'; '.join(f'{size:,} bytes made at {where}' for size, where in largest)}." if largest else ""
        )


__all__ = ["Allocator", "OutOfMemory", "size_class"]
