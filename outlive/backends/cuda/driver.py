"""The driver API as this backend uses it: one method a call, errors as exceptions, device facts discovered once.

Through NVIDIA's own bindings; the two calls of every command buffer and the launch loop go by address, since each
microsecond counts there.
"""

from __future__ import annotations

import ctypes
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
from cuda.bindings import driver as cuda

from outlive.backends.cuda.launcher import LIBRARY_FAILED, launch_all, prepare

STICKY = frozenset({214, 220, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 999})
"""Codes after which a context stays broken: uncorrectable memory errors, faults of kernels, and the unknown."""

STREAM_NON_BLOCKING = 1
EVENT_WITHOUT_TIMING = 2
HOST_MEMORY_PORTABLE_AND_MAPPED = 3
SHARED_BYTES_BY_DEFAULT = 48 << 10


class DriverError(RuntimeError):
    """A call that the driver refused. `code`: its number; `sticky`: the device cannot be used any more in this process."""

    def __init__(self, call: str, code: int) -> None:
        self.code = code
        self.sticky = code in STICKY
        super().__init__(f"{call}: {_words(code)}")


def _words(code: int) -> str:
    try:
        _, name = cuda.cuGetErrorName(cuda.CUresult(code))
        _, text = cuda.cuGetErrorString(cuda.CUresult(code))
        return f"{name.decode()} ({text.decode()})"
    except (ValueError, AttributeError, RuntimeError):
        return f"error {code}"


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What a GPU is. Sizes in bytes."""

    name: str
    capability: tuple[int, int]
    memory: int
    multiprocessors: int
    shared_memory: int
    """Shared memory that one block may ask for."""
    l2_cache: int
    driver_version: str

    @property
    def architecture(self) -> str:
        """The compiler's name of the architecture, with the features that only this one has ("sm_90a")."""
        major, minor = self.capability
        return f"sm_{major}{minor}{'a' if major >= 9 else ''}"


def _call(name: str, *arguments: Any) -> Any:
    """Call the driver; its results without the code (None, one, or a tuple). Raises DriverError, MemoryError when
    memory is short.
    """
    result = getattr(cuda, name)(*arguments)
    code = int(result[0])
    if code:
        if code == 2:
            raise MemoryError(f"{name}: the GPU has no memory of that size left")
        raise DriverError(name, code)
    return result[1] if len(result) == 2 else result[1:] or None


class Driver:
    """The driver of this process. Handles are integers."""

    def __init__(self) -> None:
        _call("cuInit", 0)
        self.device_count = int(_call("cuDeviceGetCount"))
        version = int(_call("cuDriverGetVersion"))
        self.version = f"{version // 1000}.{version % 1000 // 10}"
        self._facts: dict[int, DeviceFacts] = {}
        self._contexts: dict[int, Any] = {}
        self._current = threading.local()
        library = ctypes.CDLL("libcuda.so.1")
        self._launch_entry = ctypes.cast(library.cuLaunchKernel, ctypes.c_void_p).value or 0
        pointer, number = ctypes.c_void_p, ctypes.c_uint64
        self._event_record = ctypes.PYFUNCTYPE(ctypes.c_int, pointer, pointer)(("cuEventRecord", library))
        self._write_value = ctypes.PYFUNCTYPE(ctypes.c_int, pointer, pointer, number, ctypes.c_uint)(
            ("cuStreamWriteValue64_v2", library)
        )

    @classmethod
    def load(cls) -> tuple[Driver | None, str]:
        """(the driver, "") or (None, one sentence that says why it cannot be used)."""
        try:
            return cls(), ""
        except (OSError, RuntimeError) as error:
            return None, f"No usable NVIDIA driver was found ({error})."

    # Devices and contexts

    def facts(self, index: int) -> DeviceFacts:
        """Facts of a GPU, asked for once."""
        found = self._facts.get(index)
        if found is None:
            device = _call("cuDeviceGet", index)
            kind = cuda.CUdevice_attribute

            def ask(attribute: Any) -> int:
                return int(_call("cuDeviceGetAttribute", attribute, device))

            found = self._facts[index] = DeviceFacts(
                name=_call("cuDeviceGetName", 128, device).split(b"\0")[0].decode(),
                capability=(
                    ask(kind.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
                    ask(kind.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
                ),
                memory=int(_call("cuDeviceTotalMem", device)),
                multiprocessors=ask(kind.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
                shared_memory=ask(kind.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
                l2_cache=ask(kind.CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE),
                driver_version=self.version,
            )
        return found

    def bind(self, index: int) -> None:
        """Make the primary context of a GPU (shared with every library of the process) current in this thread."""
        if getattr(self._current, "index", None) == index:
            return
        context = self._contexts.get(index)
        if context is None:
            context = self._contexts[index] = _call("cuDevicePrimaryCtxRetain", _call("cuDeviceGet", index))
        _call("cuCtxSetCurrent", context)
        self._current.index = index

    def unbind(self) -> None:
        """Forget what is current in this thread: a library may have changed it."""
        self._current.index = None

    def free_memory(self) -> int:
        """Bytes of the current GPU that nobody holds."""
        return int(_call("cuMemGetInfo")[0])

    # Memory

    def allocate(self, nbytes: int) -> int:
        """Device memory; raises MemoryError."""
        return int(_call("cuMemAlloc", nbytes))

    def release(self, pointer: int) -> None:
        """Give device memory back."""
        _call("cuMemFree", pointer)

    def allocate_host(self, nbytes: int) -> int:
        """Pinned host memory that the device can write; raises MemoryError."""
        return int(_call("cuMemHostAlloc", nbytes, HOST_MEMORY_PORTABLE_AND_MAPPED))

    def copy_in(self, pointer: int, values: np.ndarray, stream: int) -> None:
        """Queue a copy of dense host values to the device. They must stay until the stream passed it."""
        _call("cuMemcpyHtoDAsync", pointer, values.ctypes.data, values.nbytes, stream)

    def copy_out(self, values: np.ndarray, pointer: int, stream: int) -> None:
        """Queue a copy of `values.nbytes` bytes into dense host memory."""
        _call("cuMemcpyDtoHAsync", values.ctypes.data, pointer, values.nbytes, stream)

    # Streams and events

    def create_stream(self) -> int:
        return int(_call("cuStreamCreate", STREAM_NON_BLOCKING))

    def synchronize(self, stream: int) -> None:
        """Wait for a stream."""
        _call("cuStreamSynchronize", stream)

    def create_event(self) -> int:
        return int(_call("cuEventCreate", EVENT_WITHOUT_TIMING))

    def create_timer(self) -> int:
        """An event that keeps its time, for measurements."""
        return int(_call("cuEventCreate", 0))

    def elapsed_ms(self, start: int, end: int) -> float:
        """Milliseconds between two completed timers."""
        return float(_call("cuEventElapsedTime", start, end))

    def record(self, event: int, stream: int) -> None:
        code = self._event_record(event, stream)
        if code:
            raise DriverError("cuEventRecord", code)

    def wait_event(self, event: int) -> None:
        """Wait on the host until an event is complete."""
        _call("cuEventSynchronize", event)

    def query(self, event: int) -> bool:
        """Whether an event is complete."""
        code = int(cuda.cuEventQuery(event)[0])
        if code not in (0, 600):
            raise DriverError("cuEventQuery", code)
        return not code

    def stream_wait(self, stream: int, event: int) -> None:
        """What is queued on `stream` from here on comes after `event`."""
        _call("cuStreamWaitEvent", stream, event, 0)

    def write_counter(self, stream: int, address: int, value: int) -> None:
        """Have the device write `value` to pinned memory once the stream got here."""
        code = self._write_value(stream, address, value, 0)
        if code:
            raise DriverError("cuStreamWriteValue64", code)

    def read_counter(self, address: int) -> int:
        return ctypes.c_uint64.from_address(address).value

    # Code

    def load_function(self, cubin: bytes, symbol: str, shared: int) -> int:
        """A kernel's handle; `shared`: bytes of dynamic shared memory that launches will ask for. Modules stay for the
        process's life.
        """
        module = _call("cuModuleLoadData", cubin)
        function = _call("cuModuleGetFunction", module, symbol.encode())
        if shared > SHARED_BYTES_BY_DEFAULT:
            attribute = cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            _call("cuFuncSetAttribute", function, attribute, shared)
        return int(function)

    def prepare(self) -> None:
        """Load the launch loop, so that a first launch cannot fail for its sake."""
        prepare()

    def launch(self, words: Any, stream: int) -> tuple[int, int]:
        """Launch a word list (see launcher.py); (-1, 0) or (offset of the failed record, code)."""
        return launch_all(words, stream, self._launch_entry)

    def launch_error(self, code: int) -> RuntimeError:
        """The exception for a code that `launch` returned."""
        if code & LIBRARY_FAILED:
            return RuntimeError(f"the library refused the call with status {code & ~LIBRARY_FAILED}")
        return DriverError("cuLaunchKernel", code)

    # Graphs

    def begin_capture(self, stream: int) -> None:
        """Record what this thread queues on `stream` instead of running it."""
        _call("cuStreamBeginCapture", stream, cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)

    def end_capture(self, stream: int) -> Any:
        """The graph recorded since `begin_capture`."""
        return _call("cuStreamEndCapture", stream)

    def instantiate(self, graph: Any) -> Any:
        """An executable graph."""
        return _call("cuGraphInstantiate", graph, 0)

    def update_graph(self, executable: Any, graph: Any) -> bool:
        """Give an executable graph the parameters of another of the same shape; whether that was possible."""
        result = cuda.cuGraphExecUpdate(executable, graph)
        code = int(result[0])
        if code and code != 910:  # 910: the graphs differ in more than parameters
            raise DriverError("cuGraphExecUpdate", code)
        return not code

    def launch_graph(self, executable: Any, stream: int) -> None:
        _call("cuGraphLaunch", executable, stream)

    def destroy_graph(self, graph: Any) -> None:
        _call("cuGraphDestroy", graph)

    def destroy_executable(self, executable: Any) -> None:
        _call("cuGraphExecDestroy", executable)
