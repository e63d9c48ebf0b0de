"""A driver without a GPU: device memory is poisoned host memory, and nothing runs before somebody waits.

Work of a stream is a queue of closures over addresses. It runs when a stream or an event is waited for, in an order
that keeps only what the driver promises: a stream's own order, and events that were waited for. Memory that is released
while queued work names it is a finding, and is poisoned at once, so a buffer given back too early shows in the values.
"""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from outlive.backends.cpu.reference import run_reference
from outlive.backends.cuda.driver import DeviceFacts, DriverError
from outlive.backends.cuda.launcher import HEADER_WORDS
from outlive.backends.cuda.launches import NativeLaunch

POISON = 0xFF


class FakeDriver:
    """The methods of `outlive.backends.cuda.driver.Driver` that a device uses."""

    device_count = 2
    version = "0.0"

    def __init__(self, memory: int = 1 << 30) -> None:
        self.memory = memory
        self.allocated = 0
        self.calls: list[str] = []
        self.early_releases: list[int] = []
        self.fault: int | None = None
        self.refuse_launch: int | None = None
        self._blocks: dict[int, np.ndarray] = {}
        self._streams: dict[int, deque[Callable[[], bool]]] = {}
        self._events: dict[int, tuple[int, int]] = {}
        self._done: dict[int, int] = {}
        self._functions: dict[int, Callable[[list[int]], None]] = {}
        self._queued_pointers: list[set[int]] = []
        self._recorded: list[Any] | None = None
        self._lock = threading.RLock()  # a real driver serves any number of threads
        self._next = 1000

    def _name(self) -> int:
        self._next += 1
        return self._next

    def facts(self, index: int) -> DeviceFacts:
        return DeviceFacts("fake", (9, 0), self.memory, 4, 99 << 10, 1 << 20, self.version)

    def bind(self, index: int) -> None:
        pass

    def unbind(self) -> None:
        pass

    def prepare(self) -> None:
        pass

    def free_memory(self) -> int:
        return self.memory - self.allocated

    # Memory

    def allocate(self, nbytes: int) -> int:
        self.calls.append("allocate")
        if self.allocated + nbytes > self.memory:
            raise MemoryError("full")
        self.allocated += nbytes
        block = np.full(nbytes + 512, POISON, np.uint8)
        address = block.ctypes.data + -block.ctypes.data % 512
        self._blocks[address] = block
        return address

    def release(self, pointer: int) -> None:
        self.calls.append("release")
        if any(pointer in used for used in self._queued_pointers):
            self.early_releases.append(pointer)
        block = self._blocks.pop(pointer)
        block[:] = POISON
        self.allocated -= len(block) - 512

    def allocate_host(self, nbytes: int) -> int:
        block = np.zeros(nbytes, np.uint8)
        self._blocks[block.ctypes.data] = block
        return block.ctypes.data

    def copy_in(self, pointer: int, values: np.ndarray, stream: int) -> None:
        source, nbytes = values.ctypes.data, values.nbytes  # read when it runs: memory that was not kept shows
        self._queue(stream, {pointer}, lambda: ctypes.memmove(pointer, source, nbytes))

    def copy_out(self, values: np.ndarray, pointer: int, stream: int) -> None:
        target, nbytes = values.ctypes.data, values.nbytes
        self._queue(stream, {pointer}, lambda: ctypes.memmove(target, pointer, nbytes))

    # Streams and events

    def create_stream(self) -> int:
        stream = self._name()
        self._streams[stream] = deque()
        self._done[stream] = 0
        return stream

    def create_event(self) -> int:
        return self._name()

    def record(self, event: int, stream: int) -> None:
        with self._lock:
            self._events[event] = (stream, self._end(stream))

    def _end(self, stream: int) -> int:
        return self._done[stream] + len(self._streams[stream])

    def stream_wait(self, stream: int, event: int) -> None:
        other, position = self._events[event]
        self._streams[stream].append(lambda: self._run_to(other, position))

    def wait_event(self, event: int) -> None:
        self.calls.append("wait")
        self._check()
        self._run_to(*self._events[event])
        self._check()

    def query(self, event: int) -> bool:
        stream, position = self._events[event]
        return self._done[stream] >= position

    def synchronize(self, stream: int) -> None:
        self.calls.append("synchronize")
        self._check()
        with self._lock:
            self._run_to(stream, self._end(stream))
        self._check()

    def write_counter(self, stream: int, address: int, value: int) -> None:
        self._streams[stream].append(lambda: setattr(ctypes.c_uint64.from_address(address), "value", value))

    def read_counter(self, address: int) -> int:
        return ctypes.c_uint64.from_address(address).value

    # Graphs: what is queued between the two calls is kept, and queued again by each launch

    def begin_capture(self, stream: int) -> None:
        self._recorded = list[Any]()

    def end_capture(self, stream: int) -> Any:
        recorded, self._recorded = self._recorded, None
        return recorded

    def instantiate(self, graph: Any) -> Any:
        self.calls.append("instantiate")
        return [list(graph)]

    def update_graph(self, executable: Any, graph: Any) -> bool:
        if [f for f, _ in executable[0]] != [f for f, _ in graph]:
            return False
        executable[0] = list(graph)
        return True

    def launch_graph(self, executable: Any, stream: int) -> None:
        self.calls.append("replay")
        for function, arguments in executable[0]:
            self._enqueue(function, arguments, stream)

    def destroy_graph(self, graph: Any) -> None:
        pass

    def destroy_executable(self, executable: Any) -> None:
        executable.clear()

    # Kernels

    def function(self, call: Callable[[list[int]], None]) -> int:
        """The handle of a kernel that calls `call(argument words)`."""
        handle = self._name()
        self._functions[handle] = call
        return handle

    def launch(self, words: Any, stream: int) -> tuple[int, int]:
        at = 0
        while at < len(words):
            function, count = words[at], words[at + 6]
            if function == self.refuse_launch:
                return at, 1
            arguments = list(words[at + HEADER_WORDS : at + HEADER_WORDS + count])
            if self._recorded is None:
                self._enqueue(function, arguments, stream)
            else:
                self._recorded.append((function, arguments))
            at += HEADER_WORDS + count
        return -1, 0

    def _enqueue(self, function: int, arguments: list[int], stream: int) -> None:
        call = self._functions[function]
        self._queue(stream, set(arguments), lambda: self._kernel(function, call, arguments))

    def launch_error(self, code: int) -> DriverError:
        return DriverError("cuLaunchKernel", code)

    def _kernel(self, function: int, call: Callable[[list[int]], None], arguments: list[int]) -> None:
        if function == self.fault:
            self.fault = -1
        if self.fault != -1:
            call(arguments)

    def _check(self) -> None:
        if self.fault == -1:
            raise DriverError("cuEventSynchronize", 700)

    def _queue(self, stream: int, pointers: set[int], call: Callable[[], Any]) -> None:
        self._queued_pointers.append(pointers)

        def run() -> None:
            call()
            self._queued_pointers.remove(pointers)

        self._streams[stream].append(run)

    def _run_to(self, stream: int, position: int) -> None:
        with self._lock:
            while self._done[stream] < position and self.fault != -1:
                self._streams[stream].popleft()()
                self._done[stream] += 1
                self._check()


class FakeLibrary:
    """Serves every op of `served` by a fake kernel that runs the op's reference kernel over the addresses it is given."""

    def __init__(self, driver: FakeDriver, served: tuple[str, ...] = ("add", "multiply", "copy", "fill")) -> None:
        self.driver = driver
        self.served = served
        self.handles: dict[str, int] = {}

    def find(self, kernel: Any, reads: Any, writes: Any) -> NativeLaunch | None:
        if kernel.name not in self.served:
            return None
        layouts = [o.layout for o in (*reads, *writes)]
        inputs = len(reads)

        def call(pointers: list[int]) -> None:
            seen = [_Seen(p, x) for p, x in zip(pointers, layouts, strict=True)]
            run_reference(kernel, tuple(seen[:inputs]), tuple(seen[inputs:]))

        handle = self.handles[kernel.name] = self.driver.function(call)
        return NativeLaunch(handle, (1, 1, 1), 1, 0, len(layouts), ())


class _Seen:
    """An operand as a fake kernel sees it: an address and a layout."""

    def __init__(self, pointer: int, layout: Any) -> None:
        self.layout = layout
        itemsize = layout.dtype.itemsize
        reach = sum((n - 1) * s for n, s in zip(layout.shape, layout.strides, strict=True) if n > 1 and s > 0) + 1
        memory = (ctypes.c_uint8 * (reach * itemsize)).from_address(pointer)
        strides = tuple(s * itemsize for s in layout.strides)
        self.view = np.ndarray(layout.shape, layout.dtype.storage, memory, 0, strides)
