"""The process's runtime, its devices, and the default device and streams."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
from collections.abc import Iterator
from typing import Any

from outlive.host.machine import Machine
from outlive.runtime.runtime import Runtime
from outlive.runtime.stream import Stream

runtime = Runtime(Machine())


class DeviceType:
    """A kind of device: `cpu` or `gpu`.

    >>> mx.cpu
    DeviceType.cpu
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"DeviceType.{self.name}"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Device):
            return other.type is self and other.index == 0
        return self is other

    def __hash__(self) -> int:
        return hash(self.name)


cpu = DeviceType("cpu")
gpu = DeviceType("gpu")


class Device:
    """A device by type and index. Naming one touches no driver.

    >>> mx.Device(mx.gpu, 1)
    Device(gpu, 1)
    >>> mx.Device(mx.cpu) == mx.cpu
    True
    """

    __slots__ = ("index", "type")

    def __init__(self, type: DeviceType, index: int = 0) -> None:
        self.type = type
        self.index = index

    def __repr__(self) -> str:
        return f"Device({self.type.name}, {self.index})"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, DeviceType):
            return self.type is other and self.index == 0
        return isinstance(other, Device) and (self.type, self.index) == (other.type, other.index)

    def __hash__(self) -> int:
        return hash((self.type, self.index))


CAP_BYTES = "OUTLIVE_CAP_BYTES"
"""Environment variable: the cap of each device in bytes."""

CAP_BUFFERS = "OUTLIVE_CAP_BUFFERS"
"""Environment variable: the largest number of buffers of each device."""

_factories: dict[str, Any] = {}
_backends: dict[Device, Any] = {}
_default_streams: dict[Device, Stream] = {}


def register_backend(name: str, factory: Any) -> None:
    """Let `factory(runtime, index)` make the devices of type `name`."""
    _factories[name] = factory


def backend(device: Device) -> Any:
    """The backend of a device, made on first use; raises ValueError where there is none."""
    found = _backends.get(device)
    if found is None:
        with runtime.lock:
            found = _backends.get(device)
            if found is None:
                found = _backends[device] = _make_backend(device)
    return found


def _make_backend(device: Device) -> Any:
    made = _new_backend(device)
    cap, buffers = (os.environ.get(name) for name in (CAP_BYTES, CAP_BUFFERS))
    if cap or buffers:
        made.ledger.install(_positive(CAP_BYTES, cap) or made.ledger.cap, _positive(CAP_BUFFERS, buffers))
        made.allocator.limit_cached = min(made.allocator.limit_cached, made.ledger.cap)
    return made


def _positive(name: str, text: str | None) -> int | None:
    if not text:
        return None
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value <= 0:
        raise ValueError(f"[memory] The environment variable {name} takes a positive whole number; got {text!r}.")
    return value


def _new_backend(device: Device) -> Any:
    factory = _factories.get(device.type.name)
    if device.type is cpu and factory is None:
        if device.index:
            raise ValueError(f"[Device] There is one CPU device, with index 0; got {device}.")
        from outlive.backends.cpu.device import CpuDevice

        return CpuDevice(runtime)
    if factory is None:
        from outlive.backends.cuda import open_device

        return open_device(runtime, device.index)
    return factory(runtime, device.index)


def several_devices() -> bool:
    """Whether arrays may live on more than one device."""
    return len(_backends) > 1


class _Context(threading.local):
    """What `with mx.stream(...)` set in this thread."""

    stream: Stream | None = None


class Current:
    """What an op without `stream=` uses, ready to read: the default stream of the default device, and that device's cached constants.

    `overridden` counts the `with mx.stream(...)` blocks that any thread is in; `stream` holds only while there is none.
    """

    __slots__ = ("constants", "overridden", "stream")

    def __init__(self) -> None:
        self.overridden = 0
        self.stream: Stream | None = None
        self.constants: dict[Any, Any] = {}


_context = _Context()
_default: list[Device] = [Device(cpu)]
current = Current()
_constants: dict[Device, dict[Any, Any]] = {}


def constants_of(device: Device) -> dict[Any, Any]:
    """The cached scalar nodes of a device, by (number, element type)."""
    found = _constants.get(device)
    return _constants.setdefault(device, {}) if found is None else found


def _refresh() -> None:
    device = _default[0]
    current.stream = _default_streams.get(device)
    current.constants = constants_of(device)


def default_device() -> Device:
    """The device of new arrays where nothing else is said.

    >>> mx.default_device() in (mx.cpu, mx.gpu)
    True
    """
    stream = _context.stream
    return _default[0] if stream is None else device_of(stream)


def set_default_device(device: Device | DeviceType) -> None:
    """Make `device` the default; raises ValueError where it is not available.

    >>> before = mx.default_device()
    >>> mx.set_default_device(mx.cpu)
    >>> mx.default_device()
    Device(cpu, 0)
    >>> mx.set_default_device(before)
    """
    device = as_device(device)
    backend(device)
    _default[0] = device
    _refresh()


def as_device(device: Device | DeviceType) -> Device:
    """A `Device` from itself or from a device type."""
    if isinstance(device, DeviceType):
        return Device(device)
    if isinstance(device, Device):
        return device
    raise TypeError(f"[Device] Expected a Device or a DeviceType; got {type(device).__name__}.")


def device_of(stream: Stream) -> Device:
    """The public device of a stream."""
    made = stream.device
    return Device(cpu if made.name == "cpu" else gpu, made.index)


def default_stream(device: Device | DeviceType) -> Stream:
    """The default stream of a device. Raises ValueError for one that is not there.

    >>> mx.default_stream(mx.cpu) == mx.default_stream(mx.cpu)
    True
    """
    device = as_device(device)
    stream = _context.stream
    if stream is not None and device_of(stream) == device:
        return stream
    found = _default_streams.get(device)
    if found is None:
        with runtime.lock:
            found = _default_streams.get(device)
            if found is None:
                found = _default_streams[device] = runtime.new_stream(backend(device))
                _refresh()
    return found


def set_default_stream(stream: Stream) -> None:
    """Make `stream` the default stream of its device.

    >>> before = mx.default_stream(mx.cpu)
    >>> mx.set_default_stream(mx.new_stream(mx.cpu))
    >>> mx.default_stream(mx.cpu) == before
    False
    >>> mx.set_default_stream(before)
    """
    _default_streams[device_of(stream)] = stream
    _refresh()


def new_stream(device: Device | DeviceType) -> Stream:
    """A new stream of a device: work in it runs in order, beside that of others. Raises ValueError for a device that is
    not there.

    >>> side = mx.new_stream(mx.cpu)
    >>> mx.add(mx.array([1, 2]), 1, stream=side)
    array([2, 3], dtype=int32)
    """
    return runtime.new_stream(backend(as_device(device)))


def current_stream() -> Stream:
    """The stream of an op that names none."""
    if current.overridden:
        stream = _context.stream
        if stream is not None:
            return stream
    found = current.stream
    return default_stream(_default[0]) if found is None else found


def as_stream(stream: Stream | Device | DeviceType | None) -> Stream:
    """The stream that an op's `stream=` names."""
    if stream is None:
        return current_stream()
    if type(stream) is Stream:
        return stream
    return default_stream(stream)  # type: ignore[arg-type]


@contextlib.contextmanager
def stream(s: Stream | Device | DeviceType) -> Iterator[None]:
    """Make a stream (or a device's default stream) the one of all ops inside, in this thread."""
    previous = _context.stream
    chosen = as_stream(s)
    with runtime.lock:
        current.overridden += 1
    _context.stream = chosen
    try:
        yield
    finally:
        _context.stream = previous
        with runtime.lock:
            current.overridden -= 1


def synchronize(stream: Stream | None = None) -> None:
    """Wait for the work of `stream` (None: of the default stream)."""
    runtime.synchronize(current_stream() if stream is None else stream)


@contextlib.contextmanager
def exchanged(platform: Any, factories: dict[str, Any]) -> Iterator[Runtime]:
    """Run what is inside on a fresh runtime: `platform`, and devices from `factories` by type name. Afterwards all is as it was.

    The object `runtime` stays the same, its contents are exchanged: whoever imported it sees the fresh one. For the simulated device;
    nothing else may use the process's arrays meanwhile.
    """
    tables: tuple[dict[Any, Any], ...] = (runtime.__dict__, _backends, _default_streams, _factories, _constants)
    saved = [dict(table) for table in tables]
    default, overridden, context = _default[0], current.overridden, _context.stream
    for table in tables:
        table.clear()
    Runtime.__init__(runtime, platform)
    _factories.update(factories)
    _default[0], current.overridden, _context.stream = Device(cpu), 0, None
    _refresh()
    try:
        yield runtime
    finally:
        for table, contents in zip(tables, saved, strict=True):
            table.clear()
            table.update(contents)
        _default[0], current.overridden, _context.stream = default, overridden, context
        _refresh()


os.register_at_fork(
    before=lambda: runtime.before_fork(),
    after_in_parent=lambda: runtime.after_fork_in_parent(),
    after_in_child=lambda: runtime.after_fork_in_child(),
)
atexit.register(lambda: runtime.stop())
