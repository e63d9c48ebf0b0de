"""The CPU device: host memory, one queue a stream, compiled word lists run without the interpreter's lock.

`commit` only queues. Who waits runs the queue on its own thread when nobody else does; `async` work is given to the stream's worker. No
lock of the runtime is held while a kernel runs.
"""

from __future__ import annotations

import weakref
from array import array as words_array
from typing import Any

import numpy as np

from outlive.backends.cpu.reference import run_reference
from outlive.runtime.allocator import ALIGNMENT, Allocator
from outlive.runtime.buffer import Buffer, Operand
from outlive.runtime.command_buffer import CommandBuffer, Record
from outlive.runtime.errors import Failure, shapes_of
from outlive.runtime.ledger import Ledger
from outlive.runtime.runtime import Runtime
from outlive.runtime.stream import Stream

LIMIT_LAUNCHES = 1 << 14
"""Choices of kernels kept by (kernel, layouts) before the table starts anew."""

SHARE_OF_MEMORY = 0.9
"""The default cap as a share of the memory that the process may use."""

HOLD_INTERPRETER_WORDS = 64
"""Word lists up to this length run without giving the interpreter away: handing it over would cost more."""


class Launch:
    """A compiled kernel for operands of given layouts: address, whether it may be split over threads, words after the pointers."""

    __slots__ = ("address", "kernel", "parallel", "static")

    def __init__(self, kernel: Any, parallel: int, static: tuple[int, ...]) -> None:
        self.kernel = kernel
        self.address: int = kernel.address
        self.parallel = parallel
        self.static = static


class CpuDevice:
    """The host's processors and memory as a device."""

    name = "cpu"

    def __init__(self, runtime: Runtime, index: int = 0) -> None:
        self.runtime = runtime
        self.index = index
        ledger = Ledger(int(runtime.platform.memory_bytes() * SHARE_OF_MEMORY))
        self.ledger = ledger
        self.allocator = Allocator(self, ledger, runtime)
        self.failures: weakref.WeakSet[Buffer] = weakref.WeakSet()
        self._launches: dict[Any, Launch | None] = {}
        self._lookup: Any = None
        self._executor: Any = None

    def __repr__(self) -> str:
        return f"Device({self.name}, {self.index})"

    # Memory

    def allocate(self, size: int) -> tuple[int, Any]:
        """`size` bytes aligned to 64; raises MemoryError."""
        memory = np.empty(size + ALIGNMENT, np.uint8)
        start = -memory.ctypes.data % ALIGNMENT
        memory = memory[start : start + size]
        return memory.ctypes.data, memory

    def release(self, memory: Any) -> None:
        """Nothing to do: the last reference to NumPy's memory is dropped by the caller."""

    def view(self, memory: np.ndarray, layout: Any, offset: int) -> np.ndarray:
        """A NumPy array over `memory`; bfloat16 as unsigned integers."""
        itemsize = layout.dtype.itemsize
        strides = tuple(s * itemsize for s in layout.strides)
        return np.ndarray(layout.shape, layout.dtype.storage, memory.data, offset, strides)

    def copy_in(self, values: np.ndarray, operand: Operand) -> None:
        """Host values (in storage form) into a buffer that nothing uses yet."""
        operand.view[...] = values

    def copy_out(self, operand: Operand) -> np.ndarray:
        """The operand's elements in storage form, over its own memory: host memory needs no copy."""
        return operand.view

    # Encoding

    def select(self, kernel: Any, reads: tuple[Operand, ...], writes: tuple[Operand, ...]) -> Launch | None:
        """The compiled kernel that serves a call, or None: its reference kernel does."""
        if len(reads) == 2 and len(writes) == 1:
            key: Any = (kernel, reads[0].layout, reads[1].layout, writes[0].layout)
        else:
            key = (kernel, *[o.layout for o in reads], *[o.layout for o in writes], len(reads))
        try:
            return self._launches[key]
        except KeyError:
            return self._first_select(key, kernel, reads, writes)

    def _first_select(self, key: Any, kernel: Any, reads: tuple[Operand, ...], writes: tuple[Operand, ...]) -> Launch | None:
        if self._lookup is None:
            from outlive.backends.cpu.kernels import lookup

            self._lookup = lookup
        found = self._lookup(kernel.name, reads, writes, kernel)
        launch = None if found is None else Launch(*found)
        if len(self._launches) >= LIMIT_LAUNCHES:
            self._launches.clear()
        self._launches[key] = launch
        return launch

    def commit(self, stream: Stream, command_buffer: CommandBuffer) -> None:
        """Bind pointers and queue. Runs under the runtime's lock; runs no kernel."""
        command_buffer.program = _lower(command_buffer.records)
        stream.pending.append(command_buffer)

    # Execution

    def start(self, stream: Stream) -> None:
        """Have the stream's worker run what is queued."""
        worker = stream.state
        if worker is None or not worker.is_alive():
            worker = stream.state = self.runtime.platform.thread(lambda: self._work(stream), f"outlive {stream}")
            worker.start()
        else:
            with stream.condition:
                stream.condition.notify_all()

    def _work(self, stream: Stream) -> None:
        """The worker of a stream: runs what is queued whenever nobody else does."""
        condition = stream.condition
        while True:
            with condition:
                while stream.running or not stream.pending:
                    if self.runtime.stopping:
                        return
                    condition.wait()
                stream.running = self.runtime.platform.thread_id()
            self._run_and_leave(stream, stream.committed)

    def wait(self, stream: Stream, tick: int) -> None:
        """Return when `tick` is complete; the caller's own thread runs the queue if it is idle."""
        condition = stream.condition
        while stream.completed < tick:
            with condition:
                while stream.running and stream.completed < tick:
                    condition.wait()
                if stream.completed >= tick:
                    return
                stream.running = self.runtime.platform.thread_id()
            self._run_and_leave(stream, tick)

    def _run_and_leave(self, stream: Stream, tick: int) -> None:
        try:
            while stream.completed < tick and stream.pending:
                self._run(stream, stream.pending[0])
        finally:
            with stream.condition:
                stream.running = 0
                stream.condition.notify_all()

    def _run(self, stream: Stream, command_buffer: CommandBuffer) -> None:
        for other, tick in command_buffer.waits.items():
            if other.completed < tick:
                other.device.wait(other, tick)
        failed = self._execute(command_buffer)
        stream.pending.popleft()
        stream.completed = command_buffer.tick
        command_buffer.complete(failed)
        if stream.running:
            trace = self.runtime.trace
            if trace is not None:
                trace.completed(command_buffer)

    def _execute(self, command_buffer: CommandBuffer) -> bool:
        """Run a program; whether any record failed."""
        if self.failures:
            return self._execute_singly(command_buffer, 0)
        for first, words in command_buffer.program:
            if words is None:
                record = command_buffer.records[first]
                try:
                    run_reference(record[1], record[2], record[3])
                except Exception as error:
                    self._fail(command_buffer, record, error)
                    return self._execute_singly(command_buffer, first + 1)
            else:
                at = self._run_words(words)
                if at >= 0:
                    failing = first + _record_at(words, at)
                    self._fail(command_buffer, command_buffer.records[failing], RuntimeError("the kernel reported an error"))
                    return self._execute_singly(command_buffer, failing + 1)
        return False

    def _run_words(self, words: Any) -> int:
        if self._executor is None:
            from outlive.backends.cpu import executor

            self._executor = executor
        if len(words) <= HOLD_INTERPRETER_WORDS:
            return self._executor.run(words, len(words))
        with self.runtime.platform.released_interpreter():
            return self._executor.run(words, len(words))

    def _execute_singly(self, command_buffer: CommandBuffer, start: int) -> bool:
        """Run records one by one from `start`, passing failures on to what reads them."""
        failed = start > 0
        for record in command_buffer.records[start:]:
            launch, kernel, reads, writes, _ = record
            inherited = next((o.buffer.failure for o in reads if o.buffer.failure is not None), None)
            if inherited is not None:
                self._mark(writes, inherited)
                failed = True
                continue
            try:
                if launch is None:
                    run_reference(kernel, reads, writes)
                else:
                    words = words_array("q")
                    _append(words, launch, reads, writes)
                    if self._run_words(words) >= 0:
                        raise RuntimeError("the kernel reported an error")
            except Exception as error:
                self._fail(command_buffer, record, error)
                failed = True
        return failed

    def _fail(self, command_buffer: CommandBuffer, record: Record, error: BaseException) -> None:
        _, kernel, reads, writes, origin = record
        error.__traceback__ = None  # its frames would keep the operands alive
        self._mark(writes, Failure(error, kernel.name, shapes_of(reads), str(command_buffer.stream), origin))

    def _mark(self, writes: tuple[Operand, ...], failure: Failure) -> None:
        for operand in writes:
            operand.buffer.failure = failure
            self.failures.add(operand.buffer)


def _append(words: Any, launch: Launch, reads: tuple[Operand, ...], writes: tuple[Operand, ...]) -> None:
    pointers = [o.pointer for o in reads] + [o.pointer for o in writes]
    static = launch.static
    words.extend([launch.address, len(pointers) + len(static), launch.parallel, *pointers, *static])


def _record_at(words: Any, offset: int) -> int:
    """Which record of a word list starts at `offset`."""
    at = index = 0
    while at < offset:
        at += 3 + words[at + 1]
        index += 1
    return index


def _lower(records: list[Record]) -> list[tuple[int, Any]]:
    """Segments of a command buffer: (first record, word list) for compiled kernels, (record, None) for a reference kernel."""
    program: list[tuple[int, Any]] = []
    flat: list[int] = []
    first = 0
    extend = flat.extend
    for index, (launch, _, reads, writes, _) in enumerate(records):
        if launch is None:
            if flat:
                program.append((first, words_array("q", flat)))
                flat.clear()
            program.append((index, None))
            first = index + 1
            continue
        static = launch.static
        if len(reads) == 2 and len(writes) == 1:
            extend((launch.address, 3 + len(static), launch.parallel, reads[0].pointer, reads[1].pointer, writes[0].pointer))
        else:
            extend((launch.address, len(reads) + len(writes) + len(static), launch.parallel))
            extend([o.pointer for o in reads])
            extend([o.pointer for o in writes])
        extend(static)
    if flat:
        program.append((first, words_array("q", flat)))
    return program
