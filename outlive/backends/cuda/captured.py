"""A compiled function's program as one launch: its kernels are one graph, replayed as it is while the buffers are those
of last time.

The program's buffers are bound when it is launched. Each set of addresses has its own executable graph, a few a stream;
a new set updates one by capturing again.
"""

from __future__ import annotations

from array import array as words_array
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from outlive.backends.cuda.launches import Native, Place

if TYPE_CHECKING:
    from outlive.backends.cuda.queue import Queue
    from outlive.runtime.command_buffer import Record

MINIMUM_LAUNCHES = 3
ADDRESSES_KEPT = 4


class CapturedLaunch:
    """The launches of a program over bases: the arguments (the record's reads), then the buffers that it makes (its
    first writes).
    """

    __slots__ = ("_bases", "_operands", "_records", "_slots", "nodes")
    workspace = 0
    blocks = False

    def __init__(
        self, records: list[tuple[Any, tuple[int, ...], tuple[int, ...]]], operands: list[tuple[int, int]], bases: int
    ) -> None:
        self._records = records
        self._operands = operands
        self._bases = bases
        self._slots: dict[int, OrderedDict[tuple[int, ...], int]] = {}
        self.nodes = len(records)

    def submit(self, queue: Queue, record: Record) -> None:
        """Replay; raises DriverError, CompileError, CublasError."""
        bases = tuple([o.pointer for o in (*record[2], *record[3])][: self._bases])
        slots = self._slots.setdefault(queue.handle, OrderedDict())
        slot = slots.get(bases)
        if slot is None:
            if len(slots) >= ADDRESSES_KEPT:
                slots.popitem(last=False)
            slot = next(n for n in range(ADDRESSES_KEPT) if n not in slots.values())
        elif queue.graphs.again((id(self), slot)):
            slots.move_to_end(bases)
            return
        slots.pop(bases, None)
        words = self._words(queue, bases)
        if queue.graphs.run((id(self), slot), words, self.nodes):
            slots[bases] = slot
        else:
            queue.launch_directly(words)

    def _words(self, queue: Queue, bases: tuple[int, ...]) -> Any:
        table = [Place(bases[base] + offset) for base, offset in self._operands]
        words: list[int] = []
        for launch, reads, writes in self._records:
            operands = (None, None, tuple([table[i] for i in reads]), tuple([table[i] for i in writes]))
            words += launch.words(queue, operands)
        return words_array("q", words)


def captured(program: Any) -> CapturedLaunch | None:
    """The launch of a program; None where it holds something that cannot be captured, or too little to gain."""
    records = [(launch, reads, writes) for launch, _, reads, writes, _ in program.records]
    if len(records) < MINIMUM_LAUNCHES or not all(isinstance(r[0], Native) for r in records):
        return None
    operands = [(bound.base, bound.offset) for bound in program.operands]
    return CapturedLaunch(records, operands, 1 + max((base for base, _ in operands), default=-1))
