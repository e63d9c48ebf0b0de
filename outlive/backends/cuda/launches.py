"""Launches: what a record of a GPU stream does when its command buffer is launched.

Native ones are words for the launch loop (launcher.py), so that neighbours go to the driver in one call, can be
captured, and replayed. `workspace`: bytes of scratch that the encoder reserves as one temporary; the record's last
write is then that operand. `blocks`: submitting it keeps the host waiting, so that a commit leaves it to whoever waits
for the stream.
"""

from __future__ import annotations

from array import array as words_array
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from outlive.runtime.builtin import Workspaced

if TYPE_CHECKING:
    from outlive.backends.cuda.queue import Queue
    from outlive.runtime.command_buffer import Record

LARGE_TRANSFER_BYTES = 1 << 18
"""Copies from pageable memory above this size block (the driver stages them), so they are not made at commit."""


class Seen:
    """What a route looks at of an operand; holds no buffer."""

    __slots__ = ("layout",)

    def __init__(self, layout: Any) -> None:
        self.layout = layout


class Place:
    """An address; stands in for an operand when words are made."""

    __slots__ = ("pointer",)

    def __init__(self, pointer: int) -> None:
        self.pointer = pointer


class Native:
    """Base of launches that are words for the launch loop."""

    __slots__ = ()
    blocks = False
    route_name = "compiled kernel"

    def words(self, queue: Queue, record: Any) -> list[int]:
        """The words over the pointers of a record's operands. Raises CompileError, CublasError."""
        raise NotImplementedError

    def submit(self, queue: Queue, record: Record) -> None:
        """Launch this record alone; raises DriverError, CompileError, CublasError."""
        queue.launch_directly(words_array("q", self.words(queue, record)))


class NativeLaunch(Native):
    """One compiled kernel with its grid. `head` and `static` are the words around the pointers."""

    __slots__ = ("head", "static")
    workspace = 0

    def __init__(
        self,
        function: int,
        grid: tuple[int, int, int],
        threads: int,
        shared: int,
        pointers: int,
        static: tuple[int, ...],
    ) -> None:
        self.head = (function, *grid, threads, shared, pointers + len(static))
        self.static = static

    def words(self, queue: Queue, record: Any) -> list[int]:
        return [*self.head, *[o.pointer for o in record[2]], *[o.pointer for o in record[3]], *self.static]


class AlignedLaunch(NativeLaunch):
    """A kernel compiled for addresses that are multiples of 16. `twin` makes the launch for others, on first need."""

    __slots__ = ("_other", "twin")

    def __init__(self, launch: NativeLaunch, twin: Callable[[], NativeLaunch]) -> None:
        self.head = launch.head
        self.static = launch.static
        self.twin = twin
        self._other: NativeLaunch | None = None

    def words(self, queue: Queue, record: Any) -> list[int]:
        if aligned(record):
            return super().words(queue, record)
        if self._other is None:
            self._other = self.twin()
        return self._other.words(queue, record)


def aligned(record: Any) -> bool:
    """Whether every operand's address is a multiple of 16."""
    return not any(o.pointer & 15 for operands in record[2:4] for o in operands)


Part = int | tuple[int, int]
"""An operand's number, counted through reads, writes and the workspace; or such a number and bytes from its start."""

Step = tuple[tuple[int, ...], tuple[tuple[int, int], ...], tuple[int, ...]]
"""One kernel of several: words before the pointers, the operands' numbers with offsets, words after the pointers."""


def step(
    function: int, binary: Any, grid: tuple[int, int, int], operands: tuple[Part, ...], static: tuple[int, ...]
) -> Step:
    """A step over `operands`."""
    parts = tuple([(o, 0) if isinstance(o, int) else o for o in operands])
    return (function, *grid, binary.threads, binary.shared, len(parts) + len(static)), parts, static


def of_launch(launch: NativeLaunch, operands: tuple[Part, ...]) -> Step:
    """A launch as a step over `operands`."""
    return launch.head, tuple([(o, 0) if isinstance(o, int) else o for o in operands]), launch.static


class Steps(Workspaced, Native):
    """Several kernels one after another, with scratch memory between them. `twin`: the same for operands that are not
    aligned.
    """

    __slots__ = ("_other", "steps", "twin")

    def __init__(self, workspace: int, steps: list[Step]) -> None:
        self.workspace = workspace
        self.steps = steps
        self.twin: Callable[[], Steps] | None = None
        self._other: Steps | None = None

    def words(self, queue: Queue, record: Any) -> list[int]:
        if self.twin is not None and not aligned(record):
            if self._other is None:
                self._other = self.twin()
            return self._other.words(queue, record)
        pointers = [o.pointer for o in (*record[2], *record[3])]
        words: list[int] = []
        for head, operands, static in self.steps:
            words += [*head, *[pointers[i] + offset for i, offset in operands], *static]
        return words


class NoLaunch:
    """Nothing to do: the result has no elements."""

    __slots__ = ()
    route_name = "nothing to do"
    workspace = 0
    blocks = False

    def submit(self, queue: Queue, record: Record) -> None:
        """Nothing."""


NOTHING = NoLaunch()


class Transfer:
    """Brings an operand of another device here, into a dense operand."""

    __slots__ = ("blocks",)
    route_name = "copy between devices"
    workspace = 0

    def __init__(self, nbytes: int) -> None:
        self.blocks = nbytes > LARGE_TRANSFER_BYTES

    def submit(self, queue: Queue, record: Record) -> None:
        """Copy through the host; the command buffer keeps the values until the device passed it."""
        (source,), (target,) = record[2], record[3]
        values = np.ascontiguousarray(source.buffer.device.copy_out(source))
        queue.driver.copy_in(target.pointer, values, queue.handle)
        queue.keep(values)
