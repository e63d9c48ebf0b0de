"""The sequential evaluation that every schedule's bits are compared with.

It runs a program with an encoder of its own, which executes each kernel at once on fresh NumPy memory: nothing is donated, reused, queued
or waited for, and no code of the runtime's encoder, allocator, command buffers or devices takes part.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from outlive.backends.cpu.reference import run_reference
from outlive.runtime.builtin import COPY, Fill
from outlive.runtime.foreign import ForeignCall
from outlive.runtime.layout import Layout, layout, strided_layout
from outlive.runtime.runtime import Runtime
from outlive.runtime.stream import Stream


class Memory:
    """Memory of one value. Stands where the runtime has a buffer: complete from the start, or failed."""

    __slots__ = ("__weakref__", "bytes", "device", "failure", "origin", "reads", "size", "view", "write")

    def __init__(self, device: Any, nbytes: int) -> None:
        self.bytes = np.zeros(nbytes, np.uint8)
        self.view = (None, None)
        self.device = device
        self.size = nbytes
        self.failure: Any = None
        self.origin = self.reads = self.write = None

    # Host values and captured programs come as the runtime's own operands and owners over it, which ask for a block.

    def post(self, buffer: Any) -> None:
        """Its owner is gone: so is the memory, by itself."""

    @property
    def block(self) -> Memory:
        return self

    @property
    def allocator(self) -> Any:
        return self.device.allocator

    @property
    def memory(self) -> np.ndarray:
        return self.bytes

    @property
    def pointer(self) -> int:
        return int(self.bytes.ctypes.data)


class Value:
    """Stands where the runtime has an operand, and an owner: both at once, since nothing is ever taken back."""

    __slots__ = ("buffer", "layout", "offset")

    def __init__(self, buffer: Memory, seen: Layout, offset: int = 0) -> None:
        self.buffer = buffer
        self.layout = seen
        self.offset = offset

    @property
    def operand(self) -> Value:
        return self

    @property
    def pointer(self) -> int:
        return int(self.buffer.bytes.ctypes.data) + self.offset

    @property
    def view(self) -> np.ndarray:
        seen = self.layout
        itemsize = seen.dtype.itemsize
        strides = tuple(s * itemsize for s in seen.strides)
        return np.ndarray(seen.shape, seen.dtype.storage, self.buffer.bytes.data, self.offset, strides)


class _NoRecords:
    """A command buffer that never holds anything."""

    records: tuple[()] = ()
    tick = 0
    done = True


class SequentialEncoder:
    """What a primitive gets: each dispatch has happened when it returns."""

    def __init__(self, stream: Any) -> None:
        self.device = stream.device
        self.command_buffer = _NoRecords
        self._inputs: tuple[Any, ...] = ()

    def output(self, shape_and_type: Layout, donate: bool = True) -> Value:
        return Value(Memory(self.device, shape_and_type.nbytes), shape_and_type)

    def donated(self, index: int) -> None:
        return None

    def temporary(self, nbytes: int, dtype: Any) -> Value:
        return self.output(layout((nbytes // dtype.itemsize,), dtype))

    def view(self, index: int, shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> Value:
        source = self._inputs[index].data.operand
        return self.reshaped(source, strided_layout(shape, strides, source.layout.dtype), offset)

    def view_as(self, index: int, seen: Layout) -> Value:
        return self.reshaped(self._inputs[index].data.operand, seen)

    def reshaped(self, value: Value, seen: Layout, offset: int = 0) -> Value:
        return Value(value.buffer, seen, value.offset + offset * value.layout.dtype.itemsize)

    def part_of(self, value: Value, seen: Layout, offset: int) -> Value:
        return Value(value.buffer, seen, value.offset + offset)

    def dispatch(self, kernel: Any, reads: tuple[Value, ...], writes: tuple[Value, ...]) -> None:
        failure = next((r.buffer.failure for r in reads if r.buffer.failure is not None), None)
        if failure is None:
            try:
                if type(kernel) is ForeignCall:  # it completes when its scope ends; its results are in place by then
                    if kernel.call is not None:
                        kernel.call(tuple(r.view for r in reads), tuple(w.view for w in writes))
                else:
                    run_reference(kernel, reads, writes)
            except Exception as error:  # noqa: BLE001  (it belongs to the arrays of the kernel)
                failure = Failed(error)
        if failure is not None:
            for written in writes:
                written.buffer.failure = failure

    def learn_pair(self, kernel: Any, inputs: Any, out: Any) -> None:
        """There is no shorter way."""

    def pair(self, kernel: Any, inputs: Any, shape: Layout, origin: Any) -> None:
        return None

    def fill(self, target: Value, value: Any) -> None:
        if hasattr(value, "buffer"):
            self.dispatch(COPY, (value,), (target,))
        else:
            self.dispatch(Fill(value), (), (target,))

    def copy(self, source: Value, target: Value) -> None:
        self.dispatch(COPY, (source,), (target,))

    def replay(self, records: list[Any]) -> None:
        for _, kernel, reads, writes, _ in records:
            self.dispatch(kernel, reads, writes)

    def begin(self, inputs: tuple[Any, ...], origin: Any) -> None:
        self._inputs = inputs

    def accept(self, result: Any) -> Any:
        self._inputs = ()
        if type(result) is tuple:
            return tuple(Value(r.buffer, r.layout, r.offset) for r in result)
        return Value(result.buffer, result.layout, result.offset)

    def roll_back(self) -> None:
        self._inputs = ()


class Failed:
    """The error of a kernel, kept with what it should have written."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def error(self) -> BaseException:
        from outlive.runtime.errors import ExecutionError

        made = ExecutionError(str(self._error))
        made.__cause__ = self._error
        return made


class SequentialDevice:
    """A device of plain NumPy memory."""

    index = 0

    def __init__(self, runtime: Runtime, name: str) -> None:
        from outlive.runtime.ledger import Ledger

        self.runtime = runtime
        self.name = name
        self.ledger = Ledger(1 << 62)
        self.allocator = _SequentialAllocator(self)
        self.launches: dict[Any, Any] = {}

    def __repr__(self) -> str:
        return f"Device({self.name}, 0)"

    def select(self, kernel: Any, reads: Any, writes: Any) -> None:
        """Every call is served by its reference kernel."""

    def view(self, memory: np.ndarray, seen: Layout, offset: int) -> np.ndarray:
        itemsize = seen.dtype.itemsize
        return np.ndarray(
            seen.shape, seen.dtype.storage, memory.data, offset, tuple(s * itemsize for s in seen.strides)
        )

    def copy_in(self, values: np.ndarray, value: Value) -> None:
        value.view[...] = values

    def copy_out(self, value: Value) -> np.ndarray:
        return value.view.copy()

    def start(self, stream: Any) -> None:
        """Everything has happened."""

    def wait(self, stream: Any, tick: int) -> None:
        """Everything has happened."""

    def stop(self, stream: Any) -> None:
        """There is nothing to stop."""


class _SequentialAllocator:
    """Answers questions about memory: there is always more."""

    limit_cached = limit_memory = 1 << 62

    def __init__(self, device: SequentialDevice) -> None:
        self.device = device
        self.ledger = device.ledger

    def sweep(self) -> int:
        return 0

    def trim(self, nbytes: int, blocks: int) -> bool:
        return False

    def clear_cache(self) -> None:
        """There is no cache."""

    def allocate(self, nbytes: int, stream: Any, origin: Any = None) -> Memory:
        return Memory(self.device, nbytes)

    def largest(self, count: int = 0) -> list[Any]:
        return []


class SequentialStreams:
    """What `runtime.new_stream` makes while a program runs sequentially: streams that never hold work."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def __call__(self, device: Any) -> Stream:
        stream = Stream(self._runtime, device, len(self._runtime.streams), deque())
        stream.encoder = SequentialEncoder(stream)  # type: ignore[assignment]
        self._runtime.streams.append(stream)
        return stream
