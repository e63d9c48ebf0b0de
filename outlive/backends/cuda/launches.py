"""Launches: what a record of a GPU stream does when its command buffer is launched.

`workspace`: bytes of scratch that the encoder reserves as one temporary; the record's last write is then that operand. `blocks`: submitting
it keeps the host waiting, so that a commit leaves it to whoever waits for the stream.
"""

from __future__ import annotations

from array import array as words_array
from typing import TYPE_CHECKING, Any

import numpy as np

from outlive.runtime.builtin import Workspaced

if TYPE_CHECKING:
    from outlive.backends.cuda.queue import Queue
    from outlive.runtime.command_buffer import Record

LARGE_TRANSFER_BYTES = 1 << 18
"""Copies from pageable memory above this size block (the driver stages them), so they are not made at commit."""


class NativeLaunch:
    """One compiled kernel with its grid. `head` and `static` are the words around the pointers (launcher.py)."""

    __slots__ = ("head", "static")
    workspace = 0
    blocks = False

    def __init__(
        self, function: int, grid: tuple[int, int, int], threads: int, shared: int, pointers: int, static: tuple[int, ...]
    ) -> None:
        self.head = (function, *grid, threads, shared, pointers + len(static))
        self.static = static

    def submit(self, queue: Queue, record: Record) -> None:
        """Launch this kernel alone; raises DriverError."""
        _, _, reads, writes, _ = record
        launch_words(queue, [*self.head, *[o.pointer for o in reads], *[o.pointer for o in writes], *self.static])


Step = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""One kernel of several: words before the pointers, which operands' pointers, words after them."""


def step(function: int, binary: Any, grid: tuple[int, int, int], operands: tuple[int, ...], static: tuple[int, ...]) -> Step:
    """A step over `operands`, counted through reads, writes and the workspace."""
    return (function, *grid, binary.threads, binary.shared, len(operands) + len(static)), operands, static


class Steps(Workspaced):
    """Several kernels one after another, with scratch memory between them."""

    __slots__ = ("steps",)
    blocks = False

    def __init__(self, workspace: int, steps: list[Step]) -> None:
        self.workspace = workspace
        self.steps = steps

    def submit(self, queue: Queue, record: Record) -> None:
        """Launch the steps; raises DriverError."""
        pointers = [o.pointer for o in (*record[2], *record[3])]
        words: list[int] = []
        for head, operands, static in self.steps:
            words += [*head, *[pointers[i] for i in operands], *static]
        launch_words(queue, words)


class NoLaunch:
    """Nothing to do: the result has no elements."""

    __slots__ = ()
    workspace = 0
    blocks = False

    def submit(self, queue: Queue, record: Record) -> None:
        """Nothing."""


NOTHING = NoLaunch()


def launch_words(queue: Queue, words: list[int]) -> None:
    """Launch the records of `words` on a queue; raises DriverError."""
    at, code = queue.driver.launch(words_array("q", words), queue.handle)
    if at >= 0:
        raise queue.driver.launch_error(code)


class Transfer:
    """Brings an operand of another device here, into a dense operand."""

    __slots__ = ("blocks",)
    workspace = 0

    def __init__(self, nbytes: int) -> None:
        self.blocks = nbytes > LARGE_TRANSFER_BYTES

    def submit(self, queue: Queue, record: Record) -> None:
        """Copy through the host; the command buffer keeps the values until the device passed it."""
        (source,), (target,) = record[2], record[3]
        values = np.ascontiguousarray(source.buffer.device.copy_out(source))
        queue.driver.copy_in(target.pointer, values, queue.handle)
        queue.keep(values)
