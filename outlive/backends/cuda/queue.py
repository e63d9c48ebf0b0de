"""What stands behind a stream of a GPU: command buffers in order, launched as soon as they may be, retired when the
device passed them.

A command buffer is launched at its commit, unless it waits for work of the host that is not complete, or holds a record
that blocks the host (a reference kernel that runs there, a large copy from pageable memory). Such a one, and all after
it, is launched by whoever waits for the stream, or by its worker. Launching needs the stream's baton; retiring only a
short lock, so that a thread which waits for the host's work never keeps others from seeing what is complete.

Each command buffer ends with an event and with a number that the device writes into pinned memory: a poll reads the
number, a wait uses the event, which also tells whether the device still works.
"""

from __future__ import annotations

from array import array as words_array
from bisect import bisect_right
from collections import deque
from typing import TYPE_CHECKING, Any

from outlive.backends.cuda.driver import DriverError
from outlive.backends.cuda.graphs import Graphs
from outlive.backends.cuda.launches import Native, NativeLaunch
from outlive.runtime.command_buffer import CommandBuffer
from outlive.runtime.errors import Failure, shapes_of

if TYPE_CHECKING:
    from outlive.backends.cuda.device import CudaDevice
    from outlive.runtime.command_buffer import Record
    from outlive.runtime.stream import Stream

MINIMUM_GRAPH = 10
"""Kernels in a row from which capturing them, and updating a kept graph, costs less than launching each."""


class Queue:
    """The driver's side of one stream. `launched`: the tick up to which everything is with the driver."""

    def __init__(self, device: CudaDevice, stream: Stream) -> None:
        self.device = device
        self.driver = device.driver
        self.stream = stream
        self.handle = device.driver.create_stream()
        self.counter = device.counter_slot()
        self.waiting: deque[CommandBuffer] = deque()
        self.launched = 0
        self._inflight: deque[tuple[CommandBuffer, int, bool]] = deque()
        self._events: list[int] = []
        self._program: Program | None = None
        self.graphs = Graphs(device, self.handle)
        self._lock = device.runtime.platform.lock(f"completion of {stream}")

    # Launching

    def add(self, command_buffer: CommandBuffer) -> None:
        """Take a committed command buffer over, and launch what may be launched without blocking."""
        command_buffer.program = lower(self, command_buffer.records)
        self.waiting.append(command_buffer)
        self.poll()
        self.advance_if_free()

    def advance_if_free(self) -> None:
        """Launch what does not block, unless a thread is launching already."""
        stream = self.stream
        if not stream.baton.acquire(False):
            return
        if stream.runner:  # this very thread, further out
            stream.baton.release()
        else:
            self._run(0)

    def launch_through(self, tick: int) -> None:
        """Return when everything up to `tick` is with the driver; waits for the host's work where it must.

        Raises SerializedScope where this thread would wait for its own foreign scope, RuntimeError where it launches already.
        """
        stream = self.stream
        while self.launched < tick and (stream.baton.acquire(False) or self._take_baton(tick)):
            if stream.runner:
                stream.baton.release()
                raise RuntimeError(
                    f"[wait] Work that runs on {stream} waits for the same stream; a kernel or callback must not evaluate "
                    "arrays of its stream."
                )
            self._run(tick)

    def _take_baton(self, tick: int) -> bool:
        """Wait until the launching thread launched `tick` (False), or left the baton to this one (True)."""
        stream = self.stream
        if stream.blocked is not None:
            stream.blocked.refuse_opener()
        thread = self.device.runtime.platform.thread_id()
        stream.waiting.add(thread)  # before looking: the runner moves on first and looks for waiters then
        try:
            with stream.wake:
                while self.launched < tick:
                    if stream.baton.acquire(False):
                        return True
                    stream.wake.wait()
            return False
        finally:
            stream.waiting.discard(thread)

    def _run(self, tick: int) -> None:
        """Launch, holding the baton; release it."""
        stream = self.stream
        stream.runner = self.device.runtime.platform.thread_id()
        try:
            self._advance(tick)
        finally:
            stream.runner = 0
            stream.baton.release()
            if stream.waiting or (self.waiting and stream.worker is not None):
                self.notify()

    def notify(self) -> None:
        """Let threads look again at what this stream launched."""
        with self.stream.wake:
            self.stream.wake.notify_all()

    def _advance(self, tick: int) -> None:
        """Launch in order; up to `tick` whatever it takes, beyond it only what does not block (under the baton)."""
        waiting = self.waiting
        while waiting and not self.device.runtime.paused:
            command_buffer = waiting[0]
            may_block = command_buffer.tick <= tick
            if not may_block and (command_buffer.program.blocks or not self._ready(command_buffer)):
                return
            self._meet(command_buffer)
            try:
                self._launch(command_buffer)
            finally:
                waiting.popleft()
                self.launched = command_buffer.tick
            if self.stream.waiting:
                self.notify()

    def _ready(self, command_buffer: CommandBuffer) -> bool:
        """Whether everything that it waits for is complete, or is with the driver so that a stream can wait for it."""
        return all(
            other.completed >= tick or (isinstance(other.state, Queue) and other.state.launched >= tick)
            for other, tick in command_buffer.waits.items()
        )

    def _meet(self, command_buffer: CommandBuffer) -> None:
        """Have the stream, or this thread, wait for what the command buffer waits for."""
        for other, tick in command_buffer.waits.items():
            if other.completed >= tick:
                continue
            if not isinstance(other.state, Queue):
                other.device.wait(other, tick)
                continue
            other.state.launch_through(tick)
            event = other.state.event_at(tick)
            if event:
                self._attempt(lambda event=event: self.driver.stream_wait(self.handle, event))

    def _attempt(self, call: Any) -> None:
        """Run a call of the driver outside of any record: what it refuses, the device cannot go on from."""
        try:
            call()
        except RuntimeError as error:
            self.device.lose(str(error))

    def _launch(self, command_buffer: CommandBuffer) -> None:
        """Launch a command buffer's records, and what tells of its end. An interrupt fails it, since how far it came is unknown."""
        device = self.device
        records = command_buffer.records
        failed = True
        try:
            if not device.lost:
                device.bind()
                self._program = command_buffer.program
                failed = self._launch_records(command_buffer)
        except BaseException as error:
            self._fail_all(records, RuntimeError(f"interrupted by {type(error).__name__}"))
            raise
        finally:
            event = 0 if device.lost else self._end(command_buffer.tick)
            if device.lost:
                self._fail_all(records, device.loss())
            with self._lock:
                self._inflight.append((command_buffer, event, failed))
            if device.lost:
                self.retire(command_buffer.tick)

    def _end(self, tick: int) -> int:
        """Queue what tells that `tick` is passed; its event."""
        driver = self.driver
        try:
            event = self._events.pop() if self._events else driver.create_event()
            driver.record(event, self.handle)
            driver.write_counter(self.handle, self.counter, tick)
        except RuntimeError as error:
            self.device.lose(str(error))
            return 0
        return event

    def keep(self, values: Any) -> None:
        """Keep host memory that the device reads until the command buffer which is being launched is complete."""
        assert self._program is not None
        self._program.kept.append(values)

    def launch_directly(self, words: Any) -> None:
        """Launch a word list now; raises DriverError, CublasError."""
        at, code = self.driver.launch(words, self.handle)
        if at >= 0:
            raise self.driver.launch_error(code)

    def _launch_records(self, command_buffer: CommandBuffer) -> bool:
        """Launch a program; whether any record failed."""
        records = command_buffer.records
        if self.device.failures:
            return self._launch_singly(records, 0)
        for first, words, starts in command_buffer.program.segments:
            if words is None:
                if not self._launch_record(records[first]):
                    return self._launch_singly(records, first + 1) or True
                continue
            if len(starts) >= MINIMUM_GRAPH and self._launch_as_graph(words, len(starts)):
                continue
            at, code = self.driver.launch(words, self.handle)
            if at >= 0:
                failing = first + bisect_right(starts, at) - 1
                self._fail(records[failing], self.driver.launch_error(code))
                return self._launch_singly(records, failing + 1) or True
        return False

    def _launch_as_graph(self, words: Any, nodes: int) -> bool:
        """Whether a word list went to the device as a graph. A failure is sticky, or comes again from the direct
        launch.
        """
        try:
            return self.graphs.run((len(words), nodes), words, nodes)
        except DriverError as error:
            if error.sticky:
                self.device.lose(str(error))
            return False

    def _launch_singly(self, records: list[Record], start: int) -> bool:
        """Launch records one by one from `start`, passing failures on to what reads them; whether any failed."""
        failed = False
        for record in records[start:]:
            inherited = next((o.buffer.failure for o in record[2] if o.buffer.failure is not None), None)
            if inherited is not None:
                self.device.mark(record[3], inherited)
                failed = True
            elif not self._launch_record(record):
                failed = True
        return failed

    def _launch_record(self, record: Record) -> bool:
        """Launch one record; whether that succeeded. What went wrong stays with the arrays that it should have written."""
        try:
            record[0].submit(self, record)
        except Exception as error:  # noqa: BLE001  (whatever a library raises belongs to this record's arrays)
            self._fail(record, error)
            return False
        return True

    def _fail(self, record: Record, error: BaseException) -> None:
        _, kernel, reads, writes, origin = record
        error.__traceback__ = None  # its frames would keep the operands alive
        self.device.mark(writes, Failure(error, kernel.name, shapes_of(reads), str(self.stream), origin))
        if getattr(error, "sticky", False):
            self.device.lose(str(error))

    def _fail_all(self, records: list[Record], error: BaseException) -> None:
        for record in records:
            self._fail(record, error)

    # Completion

    def event_at(self, tick: int) -> int:
        """An event that is complete when `tick` is; 0 when it is already."""
        with self._lock:
            return next((event for command_buffer, event, _ in self._inflight if command_buffer.tick >= tick), 0)

    def wait(self, tick: int) -> None:
        """Return when `tick` is complete."""
        stream = self.stream
        while stream.completed < tick:
            self.launch_through(tick)
            event = self.event_at(tick)
            if event and not self.device.lost:
                self.device.bind()
                self._attempt(lambda event=event: self.driver.wait_event(event))
            self.retire(tick)

    def poll(self) -> None:
        """Retire what the device reports as passed, without waiting."""
        if self._inflight and not self.device.lost:
            passed = self.driver.read_counter(self.counter)
            if passed > self.stream.completed:
                self.retire(passed)

    def retire(self, tick: int) -> None:
        """Complete every launched command buffer up to `tick`."""
        with self._lock:
            inflight = self._inflight
            trace = self.device.runtime.trace
            while inflight and inflight[0][0].tick <= tick:
                command_buffer, event, failed = inflight[0]
                command_buffer.complete(failed or bool(self.device.lost))
                self.stream.completed = command_buffer.tick
                self.stream.pending.popleft()
                inflight.popleft()
                if event:
                    self._events.append(event)
                if trace is not None:
                    trace.completed(command_buffer)

    def forget(self) -> None:
        """In a forked child, where the driver's context does not exist: nothing of this stream will ever complete."""
        self._lock = self.device.runtime.platform.lock(f"completion of {self.stream}")
        for command_buffer in (*[c for c, _, _ in self._inflight], *self.waiting):
            if not command_buffer.done:
                command_buffer.complete(True)
        self._inflight.clear()
        self.waiting.clear()
        self.stream.pending.clear()
        self.launched = self.stream.completed = self.stream.committed

    def lose(self) -> None:
        """The device is gone: everything that it should still have written fails."""
        with self._lock:
            for command_buffer, _, _ in self._inflight:
                self._fail_all(command_buffer.records, self.device.loss())


class Program:
    """A command buffer bound to addresses. `segments`: (first record, word list, where each record starts in it), or
    (record, None, ()) for what the host submits.
    """

    __slots__ = ("blocks", "kept", "segments")

    def __init__(self) -> None:
        self.segments: list[tuple[int, Any, Any]] = []
        self.blocks = False
        self.kept: list[Any] = []


def lower(queue: Queue, records: list[Record]) -> Program:
    """Bind the pointers of a command buffer's records; neighbouring native launches become one word list."""
    program = Program()
    if len(records) == 1:
        (record,) = records
        words = _words(queue, record) if isinstance(record[0], Native) else None
        program.segments.append((0, None, ()) if words is None else (0, words_array("q", words), (0,)))
        program.blocks = record[0].blocks
        return program
    flat: list[int] = []
    starts: list[int] = []
    extend = flat.extend

    def cut(end: int) -> None:
        if starts:
            program.segments.append((end - len(starts), words_array("q", flat), tuple(starts)))
            flat.clear()
            starts.clear()

    for index, record in enumerate(records):
        launch, _, reads, writes, _ = record
        if type(launch) is NativeLaunch:
            starts.append(len(flat))
            extend(launch.head)
            extend([o.pointer for o in reads])
            extend([o.pointer for o in writes])
            extend(launch.static)
            continue
        words = _words(queue, record) if isinstance(launch, Native) else None
        if words is None:
            cut(index)
            program.segments.append((index, None, ()))
            program.blocks = program.blocks or launch.blocks
        else:
            starts.append(len(flat))
            extend(words)
    cut(len(records))
    return program


def _words(queue: Queue, record: Record) -> list[int] | None:
    """A native record's words; None where making them fails: submitting it by itself then says why."""
    try:
        return record[0].words(queue, record)
    except RuntimeError:
        return None
