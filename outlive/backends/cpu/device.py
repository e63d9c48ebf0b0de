"""The CPU device: host memory, one queue a stream, compiled word lists run without the interpreter's lock.

`commit` only queues. Who waits runs the queue on its own thread when nobody else does; `async` work is given to the stream's worker. No
lock of the runtime is held while a kernel runs.
"""

from __future__ import annotations

import contextlib
import mmap
from array import array as words_array
from typing import Any

import numpy as np

from outlive.backends.cpu.reference import run_reference
from outlive.runtime.allocator import ALIGNMENT, Allocator
from outlive.runtime.buffer import Operand
from outlive.runtime.command_buffer import COMPLETED, CommandBuffer, Record
from outlive.runtime.errors import Failure, shapes_of
from outlive.runtime.ledger import Ledger
from outlive.runtime.runtime import Runtime
from outlive.runtime.settings import is_set
from outlive.runtime.stream import Stream

LIMIT_LAUNCHES = 1 << 14
"""Choices of kernels kept by (kernel, layouts) before the table starts anew."""

SHARE_OF_MEMORY = 0.9
"""The default cap as a share of the memory that the process may use."""

MAPPED_BYTES = 1 << 17
"""Blocks of this size or more, in bytes, are mappings of their own."""

HUGE_PAGE_BYTES = 1 << 23
"""Mappings of this size or more, in bytes, ask for huge pages."""

HOLD_INTERPRETER_WORDS = 64
"""Word lists up to this length run without giving the interpreter away: handing it over would cost more."""


class Launch:
    """A compiled kernel for operands of given layouts: address, whether it may be split over threads, words after the pointers."""

    __slots__ = ("address", "count", "kernel", "parallel", "static")

    def __init__(self, kernel: Any, parallel: int, static: tuple[int, ...], operands: int) -> None:
        self.kernel = kernel
        self.address: int = kernel.address
        self.count = operands + len(static)
        self.parallel = parallel
        self.static = static


class CapturedLaunch:
    """Base: many kernels as one record; a device module makes them of compiled functions."""

    __slots__ = ()

    def words(self, reads: tuple[Operand, ...], writes: tuple[Operand, ...]) -> Any:
        """The word list over these operands."""
        raise NotImplementedError

    def failure_at(self, offset: int) -> CapturedFailure:
        """What to raise when the kernel that starts at an offset of the word list failed."""
        raise NotImplementedError


class CapturedFailure(RuntimeError):
    """A kernel of a captured launch reported an error: its op, the layouts of its operands in words, and where it was made."""

    def __init__(self, why: str, op: str, shapes: str, origin: Any) -> None:
        super().__init__(why)
        self.op = op
        self.shapes = shapes
        self.origin = origin


class Program(list[tuple[int, Any]]):
    """Segments to run, and how far that went: a thread that was interrupted, or another one, goes on from there."""

    __slots__ = ("failed", "next_record", "position")

    def __init__(self) -> None:
        self.position = 0
        self.next_record = -1
        self.failed = False


class CpuDevice:
    """The host's processors and memory as a device."""

    name = "cpu"

    def __init__(self, runtime: Runtime, index: int = 0) -> None:
        self.runtime = runtime
        self.index = index
        ledger = Ledger(int(runtime.platform.memory_bytes() * SHARE_OF_MEMORY))
        self.ledger = ledger
        self.allocator = Allocator(self, ledger, runtime)
        self.failures = runtime.failures
        self.launches: dict[Any, Launch | None] = {}
        self._references_alone = is_set("OUTLIVE_DISABLE_KERNELS")
        self._lookup: Any = None
        self._executor: Any = None

    def __repr__(self) -> str:
        return f"Device({self.name}, {self.index})"

    # Memory

    def allocate(self, size: int) -> tuple[int, Any]:
        """`size` bytes aligned to 64; raises MemoryError.

        Large blocks are mapped, so that releasing one gives it back to the system: the C library's heap would keep it.
        """
        if size < MAPPED_BYTES:
            memory = np.empty(size + ALIGNMENT, np.uint8)
            start = -memory.ctypes.data % ALIGNMENT
            memory = memory[start : start + size]
        else:
            try:
                mapping = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            except OSError as error:
                raise MemoryError(str(error)) from None
            if size >= HUGE_PAGE_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
                with contextlib.suppress(OSError):  # a kernel without huge pages serves small ones
                    mapping.madvise(mmap.MADV_HUGEPAGE)
            memory = np.frombuffer(mapping, np.uint8)
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
            return self.launches[key]
        except KeyError:
            return self._first_select(key, kernel, reads, writes)

    def _first_select(
        self, key: Any, kernel: Any, reads: tuple[Operand, ...], writes: tuple[Operand, ...]
    ) -> Launch | None:
        if self._lookup is None:
            from outlive.backends.cpu.kernels import lookup

            self._lookup = lookup
        launch = None
        found = None if self._references_alone else self._lookup(kernel.name, reads, writes, kernel)
        if found is not None:
            compiled, parts, static = found
            launch = Launch(compiled, parts, static, len(reads) + len(writes))
        if getattr(kernel, "single_use", False):
            return (
                launch  # kept under its key, the kernel would keep what it refers to: an open file, a caller's function
            )
        if len(self.launches) >= LIMIT_LAUNCHES:
            self.launches.clear()
        self.launches[key] = launch
        return launch

    def commit(self, stream: Stream, command_buffer: CommandBuffer) -> None:
        """Bind pointers and queue. Runs under the runtime's lock; runs no kernel."""
        command_buffer.program = _lower(command_buffer.records)
        stream.pending.append(command_buffer)

    # Execution

    def start(self, stream: Stream) -> None:
        """Have the stream's worker run what is queued."""
        worker = stream.worker
        if worker is None or not worker.is_alive():
            worker = stream.worker = self.runtime.platform.thread(lambda: self._work(stream), f"outlive {stream}")
            worker.start()
        else:
            self._notify(stream)

    def stop(self, stream: Stream) -> None:
        """End the stream's worker, after what it is running."""
        worker = stream.worker
        if worker is not None:
            blocked = stream.blocked
            if blocked is not None:
                blocked.abandon()
            self._notify(stream)
            worker.join()

    def _work(self, stream: Stream) -> None:
        """The worker of a stream: runs what is queued whenever nobody else does, and steps back for a thread that waits."""
        while True:
            with stream.wake:
                while not self.runtime.stopping and (stream.waiting or not stream.pending):
                    stream.wake.wait()
            if self.runtime.stopping:
                return
            if stream.baton.acquire():
                self._run_and_leave(stream, stream.committed, True)
            if self.runtime.paused:
                self.runtime.platform.sleep(0.001)  # a fork is under way

    def wait(self, stream: Stream, tick: int) -> None:
        """Return when `tick` is complete; the caller's own thread runs the queue where nobody else does."""
        while stream.completed < tick and (stream.baton.acquire(False) or self._take_baton(stream, tick)):
            self._run_and_leave(stream, tick, False)

    def _take_baton(self, stream: Stream, tick: int) -> bool:
        """Wait until the stream's runner completed `tick` (False), or left the baton to this thread (True).

        The tick is what is waited for, not the baton: its runner may go on to work that waits for this very thread's stream.
        """
        blocked = stream.blocked
        if blocked is not None:
            blocked.refuse_opener()
        thread = self.runtime.platform.thread_id()
        stream.waiting.add(thread)  # before looking: the runner moves on first and looks for waiters then
        try:
            with stream.wake:
                while stream.completed < tick:
                    if stream.baton.acquire(False):
                        return True
                    stream.wake.wait()
            return False
        finally:
            stream.waiting.discard(thread)
            if stream.pending and stream.worker is not None and not stream.runner:
                self._notify(stream)  # the worker stepped back for this thread and may go on

    def _run_and_leave(self, stream: Stream, tick: int, as_worker: bool) -> None:
        """Run the queue up to `tick`, holding the stream's baton; release it."""
        if stream.runner:
            stream.baton.release()
            raise RuntimeError(
                f"[wait] Work that runs on {stream} waits for the same stream; a kernel or callback must not evaluate arrays of its stream."
            )
        stream.runner = self.runtime.platform.thread_id()
        pending = stream.pending
        runtime = self.runtime
        try:
            while stream.completed < tick and pending:
                # For a fork, and a worker for whoever waits, the runner leaves between two command buffers.
                if runtime.paused or (as_worker and (stream.waiting or runtime.stopping)):
                    break
                self._run(stream, pending[0])
                if stream.waiting:
                    self._notify(stream)
        finally:
            stream.runner = 0
            stream.baton.release()
            if stream.waiting or (pending and stream.worker is not None and not as_worker):
                self._notify(stream)

    def _notify(self, stream: Stream) -> None:
        with stream.wake:
            stream.wake.notify_all()

    def _run(self, stream: Stream, command_buffer: CommandBuffer) -> None:
        """Run one command buffer and complete it. Interrupted, it goes on where it was, and no record runs twice."""
        if command_buffer.waits:
            for other, tick in command_buffer.waits.items():
                if other.completed < tick:
                    other.device.wait(other, tick)
        failed = self._execute(command_buffer)
        if command_buffer.state < COMPLETED:
            command_buffer.complete(failed)
        stream.completed = command_buffer.tick
        stream.pending.popleft()
        trace = self.runtime.trace
        if trace is not None:
            trace.completed(command_buffer)

    def _execute(self, command_buffer: CommandBuffer) -> bool:
        """Run what is left of a program; whether any record failed."""
        program = command_buffer.program
        count = len(program)
        while program.position < count:
            if self.failures:
                return self._execute_singly(command_buffer)
            first, words = program[program.position]
            program.position += 1
            try:
                if words is None:
                    record = command_buffer.records[first]
                    run_reference(record[1], record[2], record[3])
                elif (at := self._run_words(words)) >= 0:
                    launch = command_buffer.records[first][0]
                    if isinstance(launch, CapturedLaunch):
                        raise launch.failure_at(at)
                    first += _record_at(words, at)
                    raise RuntimeError(command_buffer.records[first][0].kernel.failure)
            except Exception as error:  # noqa: BLE001  it belongs to the arrays of the record
                self._fail(command_buffer, first, error)
                program.next_record = first + 1
                return self._execute_singly(command_buffer)
            except BaseException as error:
                self._fail_segment(command_buffer, f"interrupted by {type(error).__name__}")
                raise
        return program.failed

    def _fail_segment(self, command_buffer: CommandBuffer, why: str) -> None:
        """The segment under way did not end: how far it came is unknown, so all that it writes has failed."""
        program = command_buffer.program
        position = program.position
        last = program[position][0] if position < len(program) else len(command_buffer.records)
        for index in range(program[position - 1][0], last):
            self._fail(command_buffer, index, RuntimeError(why))

    def after_fork_in_child(self, stream: Stream) -> None:
        """What another thread was running when the process forked is lost to the child; what it had not begun still runs here."""
        if not stream.runner or not stream.pending:
            return
        command_buffer = stream.pending[0]
        program = command_buffer.program
        if program is None or command_buffer.done:
            return
        why = "its process forked while it ran; evaluate before forking"
        if program.next_record > 0:
            self._fail(command_buffer, program.next_record - 1, RuntimeError(why))
        elif program.position:
            self._fail_segment(command_buffer, why)

    def _run_words(self, words: Any) -> int:
        if self._executor is None:
            from outlive.backends.cpu import executor

            self._executor = executor
        if len(words) <= HOLD_INTERPRETER_WORDS:
            return self._executor.run(words, len(words))
        with self.runtime.platform.released_interpreter():
            return self._executor.run(words, len(words))

    def _execute_singly(self, command_buffer: CommandBuffer) -> bool:
        """Run the records that are left one by one, passing failures on to what reads them."""
        program = command_buffer.program
        if program.next_record < 0:
            program.next_record = program[program.position][0]
        program.position = len(program)
        records = command_buffer.records
        while program.next_record < len(records):
            index = program.next_record
            launch, kernel, reads, writes, _ = records[index]
            program.next_record += 1
            inherited = next((o.buffer.failure for o in reads if o.buffer.failure is not None), None)
            if inherited is not None:
                program.failed = True
                self._mark(writes, inherited)
                continue
            try:
                if launch is None:
                    run_reference(kernel, reads, writes)
                else:
                    self._run_one(launch, reads, writes)
            except Exception as error:  # noqa: BLE001  it belongs to the arrays of the record
                self._fail(command_buffer, index, error)
            except BaseException as error:
                self._fail(command_buffer, index, RuntimeError(f"interrupted by {type(error).__name__}"))
                raise
        return program.failed

    def _run_one(self, launch: Any, reads: tuple[Operand, ...], writes: tuple[Operand, ...]) -> None:
        if isinstance(launch, CapturedLaunch):
            words = launch.words(reads, writes)
            at = self._run_words(words)
            if at >= 0:
                raise launch.failure_at(at)
            return
        pointers = [o.pointer for o in reads] + [o.pointer for o in writes]
        words = words_array("q", [launch.address, launch.count, launch.parallel, *pointers, *launch.static])
        if self._run_words(words) >= 0:
            raise RuntimeError(launch.kernel.failure)

    def _fail(self, command_buffer: CommandBuffer, index: int, error: BaseException) -> None:
        _, kernel, reads, writes, origin = command_buffer.records[index]
        command_buffer.program.failed = True
        error.__traceback__ = None  # its frames would keep the operands alive
        op, shapes = kernel.name, shapes_of(reads)
        if isinstance(error, CapturedFailure):
            op, shapes, origin = error.op, error.shapes, error.origin
        self._mark(writes, Failure(error, op, shapes, str(command_buffer.stream), origin))

    def _mark(self, writes: tuple[Operand, ...], failure: Failure) -> None:
        for operand in writes:
            operand.buffer.failure = failure
            self.failures.add(operand.buffer)


def _record_at(words: Any, offset: int) -> int:
    """Which record of a word list starts at `offset`."""
    at = index = 0
    while at < offset:
        at += 3 + words[at + 1]
        index += 1
    return index


def _lower(records: list[Record]) -> Program:
    """Segments of a command buffer: (first record, word list) for compiled kernels, (record, None) for a reference kernel.

    A captured launch is a segment of its own.
    """
    program = Program()
    flat: list[int] = []
    first = 0
    extend = flat.extend
    for index, (launch, _, reads, writes, _) in enumerate(records):
        if type(launch) is not Launch:
            if flat:
                program.append((first, words_array("q", flat)))
                flat.clear()
            program.append((index, None if launch is None else launch.words(reads, writes)))
            first = index + 1
        elif len(reads) == 2 and len(writes) == 1:
            a, b = reads
            extend(
                (launch.address, launch.count, launch.parallel, a.pointer, b.pointer, writes[0].pointer, *launch.static)
            )
        else:
            extend((launch.address, launch.count, launch.parallel))
            extend([o.pointer for o in reads])
            extend([o.pointer for o in writes])
            extend(launch.static)
    if flat:
        program.append((first, words_array("q", flat)))
    return program
