"""The CUDA device: memory of one GPU under one ledger, a queue a stream, and the choice of what runs a kernel.

A fault of a kernel breaks the driver's context for the rest of the process. The device is then lost: every array on it
raises the reason, nothing more is launched, and the CPU device goes on.
"""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from outlive.backends.cuda.arrays import DeviceMemory, device_array, host_array
from outlive.backends.cuda.launches import NOTHING, Transfer
from outlive.backends.cuda.queue import Queue
from outlive.backends.cuda.reference import ForeignLaunch, select_reference
from outlive.runtime.allocator import Allocator
from outlive.runtime.buffer import Operand
from outlive.runtime.builtin import Workspaced
from outlive.runtime.errors import Failure, shapes_of
from outlive.runtime.ledger import Ledger

if TYPE_CHECKING:
    from outlive.backends.cuda.driver import Driver
    from outlive.runtime.command_buffer import CommandBuffer
    from outlive.runtime.runtime import Runtime
    from outlive.runtime.stream import Stream

LIMIT_LAUNCHES = 1 << 14
"""Choices of kernels kept by (kernel, layouts) before the table starts anew."""

HEADROOM_BYTES = 1 << 30
"""What the cap leaves to libraries and contexts, at most a sixteenth of the card."""

FORKED = "this process was forked after CUDA was used, and a driver's context does not survive that"
PAUSE_S = 0.001
COUNTER_BYTES = 8
LIMIT_STREAMS = 4096

_devices: weakref.WeakSet[CudaDevice] = weakref.WeakSet()


class _Allocator(Allocator):
    """Asks the device what it passed before it looks at the quarantine: nobody else does while nobody waits."""

    def sweep(self) -> int:
        self.device.poll()
        return super().sweep()


class CudaDevice:
    """One GPU. `lost`: why it cannot be used any more, or an empty text. `host_routes`: reference kernels that run on
    the host, and why.
    """

    name = "gpu"

    def __init__(self, runtime: Runtime, driver: Driver, index: int = 0, library: Any = None) -> None:
        self.runtime = runtime
        self.driver = driver
        self.index = index
        self.lost = ""
        self.facts = driver.facts(index)
        self.bind()
        driver.prepare()
        self.ledger = Ledger(driver.free_memory() - min(HEADROOM_BYTES, self.facts.memory // 16))
        self.allocator = _Allocator(self, self.ledger, runtime)
        self.failures = runtime.failures
        self.launches: dict[Any, Any] = {}
        self.host_routes: dict[Any, str] = {}
        self._workspaced: dict[Any, Any] = {}
        self._counters = self._pin_counters()
        self._transfers = driver.create_stream()
        self._library = library
        _devices.add(self)

    def __repr__(self) -> str:
        return f"Device({self.name}, {self.index})"

    def bind(self) -> None:
        """Make this GPU current in the calling thread."""
        self.driver.bind(self.index)

    def _check(self) -> None:
        if self.lost:
            raise RuntimeError(f"[{self}] The device is lost: {self.lost}. Use mx.cpu, or start a new process.")

    # Memory

    def allocate(self, size: int) -> tuple[int, DeviceMemory]:
        """`size` bytes; raises MemoryError, RuntimeError when the device is lost."""
        self._check()
        self.bind()
        pointer = self.driver.allocate(size)
        return pointer, DeviceMemory(pointer, size, self.index)

    def release(self, memory: DeviceMemory) -> None:
        """Give memory back to the driver. A lost device has none."""
        if not self.lost:
            self.bind()
            self.driver.release(memory.pointer)

    def _pin_counters(self) -> list[int]:
        """Addresses of numbers in pinned memory, 0 at first: one for each stream that there may be."""
        ledger = self.ledger
        ledger.reserve(COUNTER_BYTES * LIMIT_STREAMS)
        ledger.attempted = False  # nobody asked for memory yet: a cap may still be installed
        page = self.driver.allocate_host(COUNTER_BYTES * LIMIT_STREAMS)
        ledger.settle(COUNTER_BYTES * LIMIT_STREAMS, "pinned")
        return list(range(page, page + COUNTER_BYTES * LIMIT_STREAMS, COUNTER_BYTES))

    def counter_slot(self) -> int:
        """The address of a number that the device writes for one stream; raises RuntimeError beyond the limit of
        streams.
        """
        if not self._counters:
            raise RuntimeError(f"[stream] {self} serves at most {LIMIT_STREAMS} streams; reuse some.")
        return self._counters.pop()

    def view(self, memory: DeviceMemory, layout: Any, offset: int) -> Any:
        """CuPy's array over `memory`; bfloat16 as unsigned integers. `offset` in bytes."""
        return device_array(memory, layout, offset)

    def copy_in(self, values: np.ndarray, operand: Operand) -> None:
        """Host values (in storage form) into a dense buffer that nothing uses yet; they are there when this returns."""
        self._check()
        self.bind()
        values = np.ascontiguousarray(values)
        if values.nbytes:
            self.driver.copy_in(operand.pointer, values, self._transfers)
            self.driver.synchronize(self._transfers)

    def copy_out(self, operand: Operand) -> np.ndarray:
        """A host copy of a completed operand's elements, in storage form."""
        layout = operand.layout
        self._check()
        self.bind()
        try:
            storage = np.dtype(layout.dtype.storage)
            return host_array(self.driver, self._transfers, operand.pointer, layout.shape, layout.strides, storage)[1]
        except RuntimeError as error:
            if getattr(error, "sticky", False):
                self.lose(str(error))
            raise

    # Encoding

    def select(self, kernel: Any, reads: tuple[Operand, ...], writes: tuple[Operand, ...]) -> Any:
        """What runs a call: a compiled kernel, a library, or the reference kernel. None for a group that no kernel
        fuses.

        `launches` holds what needs no scratch memory, by layouts (the encoder reads it too); `_workspaced` the rest.
        """
        if len(reads) == 2 and len(writes) == 1:
            key: Any = (kernel, reads[0].layout, reads[1].layout, writes[0].layout)
        else:
            key = (kernel, *[o.layout for o in reads], *[o.layout for o in writes], len(reads))
        found = self.launches.get(key)
        if found is None:
            found = self._workspaced.get(key)
        return self._first_select(key, kernel, reads, writes) if found is None else found

    def _first_select(self, key: Any, kernel: Any, reads: Any, writes: Any) -> Any:
        if len(self._workspaced) + len(self.launches) >= LIMIT_LAUNCHES:
            self._workspaced.clear()
            self.launches.clear()
        launch = self._choose(kernel, reads, writes)
        if launch is not None and kernel.name not in UNREPEATED:
            (self._workspaced if isinstance(launch, Workspaced) else self.launches)[key] = launch
        return launch

    def _choose(self, kernel: Any, reads: Any, writes: Any) -> Any:
        if kernel.name == "migrate":
            return Transfer(reads[0].layout.nbytes)
        if kernel.name == "foreign":
            return ForeignLaunch()
        if not any(o.layout.size for o in writes):
            return NOTHING
        if self._library is None:
            from outlive.backends.cuda.kernels import Library

            self._library = Library(self)
        found = self._library.find(kernel, reads, writes)
        if found is None and kernel.name != "fused":
            return select_reference(self, kernel, reads, writes)
        return found

    def routes(self) -> list[tuple[str, str, str]]:
        """Which way the calls took that were chosen so far: (op, types of reads and writes, route), sorted, each once."""
        found = set()
        for table in (self.launches, self._workspaced):
            for (kernel, *layouts), launch in table.items():
                types = ", ".join(x.dtype.name for x in layouts if not isinstance(x, int))
                found.add((kernel.name, types, launch.route_name))
        return sorted(found)

    # Execution

    def queue(self, stream: Stream) -> Queue:
        """The driver's side of a stream, made at its first commit."""
        if stream.state is None:
            self.bind()
            stream.state = Queue(self, stream)
        return stream.state

    def commit(self, stream: Stream, command_buffer: CommandBuffer) -> None:
        """Bind pointers, and launch what may be launched. Runs under the runtime's lock; waits for nothing."""
        self.bind()
        try:
            queue = self.queue(stream)
        except RuntimeError as error:
            self._refuse(stream, command_buffer, error)
            return
        stream.pending.append(command_buffer)
        queue.add(command_buffer)

    def _refuse(self, stream: Stream, command_buffer: CommandBuffer, error: RuntimeError) -> None:
        """The driver gives this stream nothing: the failure belongs to the arrays of its work."""
        for _, kernel, reads, writes, origin in command_buffer.records:
            self.mark(writes, Failure(error, kernel.name, shapes_of(reads), str(stream), origin))
        command_buffer.complete(True)
        stream.completed = command_buffer.tick

    def start(self, stream: Stream) -> None:
        """Have the stream's worker launch what a commit left."""
        queue = stream.state
        if queue is None or not queue.waiting:
            return
        worker = stream.worker
        if worker is None or not worker.is_alive():
            worker = stream.worker = self.runtime.platform.thread(lambda: self._work(stream), f"outlive {stream}")
            worker.start()
        else:
            queue.notify()

    def _work(self, stream: Stream) -> None:
        """The worker of a stream: launches what waits for the host, whenever no other thread does."""
        queue, runtime = stream.state, self.runtime
        while True:
            with stream.wake:
                while not runtime.stopping and (stream.waiting or not queue.waiting):
                    stream.wake.wait()
            if runtime.stopping:
                return
            queue.launch_through(stream.committed)
            if runtime.paused:
                runtime.platform.sleep(PAUSE_S)  # a fork is under way

    def stop(self, stream: Stream) -> None:
        """End the stream's worker, and let the device finish what it was given."""
        queue = stream.state
        if stream.worker is not None:
            if stream.blocked is not None:
                stream.blocked.abandon()
            queue.notify()
            stream.worker.join()
        if queue is not None and not self.lost:
            self.bind()
            try:
                self.driver.synchronize(queue.handle)
            except RuntimeError as error:
                self.lose(str(error))

    def after_fork_in_child(self, stream: Stream) -> None:
        """A driver's context does not survive a fork: what is on the device is lost to the child."""
        self.lost = FORKED
        if stream.state is not None:
            stream.state.forget()

    def raw_stream(self, stream: Stream) -> int:
        """The driver's handle of a stream, for other libraries."""
        with self.runtime.lock:
            return self.queue(stream).handle

    def poll(self) -> None:
        """Retire what the device passed, without waiting."""
        for stream in self.runtime.streams:
            if stream.device is self and stream.state is not None:
                stream.state.poll()

    def wait(self, stream: Stream, tick: int) -> None:
        """Return when `tick` is complete."""
        if stream.completed < tick:
            stream.state.wait(tick)

    # Failures

    def mark(self, writes: tuple[Operand, ...], failure: Failure) -> None:
        """What these operands should have held does not exist."""
        for operand in writes:
            operand.buffer.failure = failure
            self.failures.add(operand.buffer)

    def loss(self) -> RuntimeError:
        """A new exception that says why the device is lost."""
        return RuntimeError(f"the device is lost: {self.lost}")

    def lose(self, reason: str) -> None:
        """The device cannot be used any more: every array on it raises `reason`."""
        if self.lost:
            return
        self.lost = reason
        failure = Failure(self.loss(), "eval", "all on the device", str(self), None)
        for buffer in self.runtime.live_buffers(self):
            buffer.failure = failure
            self.failures.add(buffer)
        for stream in self.runtime.streams:
            if stream.device is self and stream.state is not None:
                stream.state.lose()


UNREPEATED = frozenset({"foreign"})
"""Kernels that are made for one call: their choice is not kept."""


def _forked() -> None:
    """Also devices without a stream are lost to a forked child."""
    for device in _devices:
        device.lost = FORKED


os.register_at_fork(after_in_child=_forked)
