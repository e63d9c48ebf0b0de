"""Command buffers and fences. A command buffer goes OPEN, SEALED, COMMITTED, then COMPLETED or FAILED, and never back."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from outlive.runtime.platform import shared

if TYPE_CHECKING:
    from outlive.runtime.buffer import Operand
    from outlive.runtime.origin import Origin
    from outlive.runtime.stream import Stream

OPEN, SEALED, COMMITTED, COMPLETED, FAILED = range(5)
STATES = ("OPEN", "SEALED", "COMMITTED", "COMPLETED", "FAILED")

Record = tuple[Any, Any, tuple["Operand", ...], tuple["Operand", ...], "Origin | None"]
"""launch (the device's choice of kernel), kernel, reads, writes, origin."""


class Fence(NamedTuple):
    """A point in a stream's order. Only a commit makes one."""

    stream: Stream
    tick: int

    @property
    def complete(self) -> bool:
        return self.stream.completed >= self.tick


@shared("state", "tick")
class CommandBuffer:
    """Records in order, what they wait for, and what runs at completion. Records and handlers freeze at SEALED."""

    __slots__ = ("handlers", "program", "records", "state", "stream", "tick", "waits")

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.state = OPEN
        self.tick = 0
        self.records: list[Record] = []
        self.waits: dict[Stream, int] = {}
        self.handlers: list[Callable[[], None]] = []
        self.program: Any = None

    def __repr__(self) -> str:
        return f"<command buffer {self.tick} of {self.stream}, {STATES[self.state]}, {len(self.records)} records>"

    @property
    def fence(self) -> Fence:
        """The fence of its commit; raises RuntimeError before there is one."""
        if not self.tick:
            raise RuntimeError(f"[command buffer] {self!r} has no fence: it is not committed.")
        return Fence(self.stream, self.tick)

    @property
    def done(self) -> bool:
        return self.state >= COMPLETED

    def seal(self) -> None:
        """Freeze records and handlers."""
        if self.state != OPEN:
            raise RuntimeError(f"[command buffer] {self!r} cannot be sealed: it is not open.")
        self.state = SEALED

    def committed(self, tick: int) -> Fence:
        """The stream took it over under `tick`."""
        if self.state != SEALED:
            raise RuntimeError(f"[command buffer] {self!r} cannot be committed: it is not sealed.")
        self.tick = tick
        self.state = COMMITTED
        return Fence(self.stream, tick)

    def complete(self, failed: bool = False) -> None:
        """All its work is over: drop the records (and with them the operands) and run the handlers."""
        if self.state != COMMITTED:
            raise RuntimeError(f"[command buffer] {self!r} cannot complete: it is not committed.")
        self.records = []
        self.program = None
        handlers = self.handlers
        while handlers:
            handlers.pop(0)()
        # Last, so that an interrupted completion is repeated rather than half done.
        self.state = FAILED if failed else COMPLETED
