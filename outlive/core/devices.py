"""Devices and streams: what is there, and which is used."""

from __future__ import annotations

import platform
from types import TracebackType
from typing import Any

from outlive.backends import cuda
from outlive.graph import state
from outlive.graph.state import (
    Device,
    DeviceType,
    as_device,
    as_stream,
    cpu,
    current_stream,
    default_device,
    new_stream,
    runtime,
)
from outlive.runtime.stream import Stream

ThreadLocalStream = Stream
"""Any thread may use any stream here, so a stream of its own for each thread is not needed."""


def device_count(device_type: DeviceType) -> int:
    """How many devices of a type there are. Raises TypeError for what is no DeviceType.

    >>> mx.device_count(mx.cpu)
    1
    """
    if not isinstance(device_type, DeviceType):
        raise TypeError(f"[device_count] Needs a DeviceType, mx.cpu or mx.gpu; got {type(device_type).__name__}.")
    return 1 if device_type is cpu else cuda.device_count()


def is_available(device: Device | DeviceType) -> bool:
    """Whether a device can be used. Raises TypeError for what names no device.

    >>> mx.is_available(mx.cpu)
    True
    """
    device = as_device(device)
    return 0 <= device.index < device_count(device.type)


def device_info(d: Device | DeviceType | None = None) -> dict[str, str | int]:
    """Facts about a device (None: the default one) by name; nothing for one that is not there.

    Always `architecture` and `device_name`; of a GPU also `memory_size` in bytes. Raises TypeError for what names no
    device.

    >>> sorted(mx.device_info(mx.cpu))
    ['architecture', 'device_name']
    """
    device = default_device() if d is None else as_device(d)
    if not is_available(device):
        return {}
    if device.type is cpu:
        return {"architecture": platform.machine(), "device_name": _processor()}
    facts = cuda.device_facts(device.index)
    return {"architecture": facts.architecture, "device_name": facts.name, "memory_size": facts.memory}


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass  # not Linux: the platform's own word is all there is
    return platform.processor() or platform.machine()


class StreamContext:
    """`with mx.stream(s):` makes a stream, or a device's default stream, the one of all ops inside, in this thread.

    >>> with mx.StreamContext(mx.cpu):
    ...     a = mx.ones((2,)) + 1
    ...
    >>> a
    array([2, 2], dtype=float32)
    """

    def __init__(self, s: Stream | Device | DeviceType) -> None:
        self._stream = as_stream(s)
        self._inside: list[Any] = []

    def __enter__(self) -> None:
        context = state.stream(self._stream)
        context.__enter__()
        self._inside.append(context)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._inside.pop().__exit__(kind, error, trace)


def stream(s: Stream | Device | DeviceType) -> StreamContext:
    """A context in which ops run on stream `s`, or on a device's default stream.

    Raises ValueError for a device that is not there.

    >>> with mx.stream(mx.new_stream(mx.cpu)):
    ...     a = mx.ones((2,)) + 1
    ...
    >>> a
    array([2, 2], dtype=float32)
    """
    return StreamContext(s)


def synchronize(stream: Stream | Device | DeviceType | None = None) -> None:
    """Wait for the work of a stream, or of a device's default stream (None: of the stream in use).

    What failed is not raised here, but where an array made by it is read. Raises ValueError for a device that is not there.

    >>> mx.async_eval(mx.ones((2,)) + 1)
    >>> mx.synchronize()
    """
    runtime.synchronize(current_stream() if stream is None else as_stream(stream))


def new_thread_local_stream(device: Device | DeviceType) -> Stream:
    """A new stream of a device, for any thread; as `new_stream`, with its errors.

    >>> mx.ones((2,), stream=mx.new_thread_local_stream(mx.cpu))
    array([1, 1], dtype=float32)
    """
    return new_stream(device)


def new_thread_unsafe_stream(device: Device | DeviceType) -> Stream:
    """A new stream of a device; as `new_stream`, and any thread may use it.

    >>> mx.ones((2,), stream=mx.new_thread_unsafe_stream(mx.cpu))
    array([1, 1], dtype=float32)
    """
    return new_stream(device)


def clear_streams() -> None:
    """Wait for the work of all streams.

    >>> mx.clear_streams()
    """
    runtime.synchronize(None)


__all__ = [
    "StreamContext", "ThreadLocalStream", "clear_streams", "device_count", "device_info", "is_available",
    "new_thread_local_stream", "new_thread_unsafe_stream", "stream", "synchronize",
]  # fmt: skip
