"""Memory of the default device: what is in use, what is cached, and the limits.

Every function drains what finalizers and finished work posted before it reads, so a reading is coherent and up to date.
"""

from __future__ import annotations

from typing import Any

from outlive.core.evaluation import collect_nodes
from outlive.graph.node import Node
from outlive.graph.state import backend, default_device, runtime


def _allocator() -> Any:
    return backend(default_device()).allocator


def get_active_memory() -> int:
    """Bytes that arrays (and work in flight) hold. Cached memory is not counted.

    >>> a = mx.zeros((1000,))
    >>> mx.eval(a)
    >>> mx.get_active_memory() >= a.nbytes
    True
    """
    allocator = _allocator()
    with runtime.lock:
        runtime.drain()
        allocator.sweep()
        ledger = allocator.ledger
        return int(ledger.live + ledger.quarantined)


def get_peak_memory() -> int:
    """The most bytes that arrays held at one time since the start or the last `reset_peak_memory`.

    >>> mx.get_peak_memory() >= mx.get_active_memory()
    True
    """
    allocator = _allocator()
    with runtime.lock:
        return allocator.ledger.peak_live


def reset_peak_memory() -> None:
    """Start the measurement of `get_peak_memory` anew, from what is in use now.

    >>> mx.reset_peak_memory()
    >>> mx.get_peak_memory() >= mx.get_active_memory()
    True
    """
    allocator = _allocator()
    with runtime.lock:
        runtime.drain()
        allocator.ledger.peak_live = allocator.ledger.live


def get_cache_memory() -> int:
    """Bytes of freed buffers that are kept for reuse.

    >>> mx.get_cache_memory() >= 0
    True
    """
    allocator = _allocator()
    with runtime.lock:
        runtime.drain()
        allocator.sweep()
        return allocator.ledger.cached


def get_memory_limit() -> int:
    """The limit in bytes set by `set_memory_limit`; the device's cap where none was set.

    >>> mx.get_memory_limit() > 0
    True
    """
    allocator = _allocator()
    with runtime.lock:
        return min(allocator.limit_memory, allocator.ledger.cap)


def set_memory_limit(limit: int) -> int:
    """Ask for cached memory to be given back before the device holds more than `limit` bytes; returns the previous
    limit.

    It is a guideline: work that needs more still gets it, up to the device's cap, which this never raises. Raises
    ValueError for a negative limit.

    >>> before = mx.set_memory_limit(1 << 30)
    >>> mx.set_memory_limit(before) == 1 << 30
    True
    """
    allocator = _allocator()
    checked = _checked("set_memory_limit", limit)
    with runtime.lock:
        runtime.drain()
        previous = min(allocator.limit_memory, allocator.ledger.cap)
        allocator.limit_memory = checked
        excess = allocator.ledger.allocated - checked
        if excess > 0:
            allocator.trim(excess, blocks=0)
    return previous


def set_cache_limit(limit: int) -> int:
    """Keep at most `limit` bytes of freed buffers; returns the previous limit. 0 turns the cache off.

    Raises ValueError if negative.

    >>> before = mx.set_cache_limit(0)
    >>> mx.set_cache_limit(before)
    0
    """
    allocator = _allocator()
    checked = _checked("set_cache_limit", limit)
    with runtime.lock:
        runtime.drain()
        previous = allocator.limit_cached
        allocator.limit_cached = checked
        allocator.sweep()
        excess = allocator.ledger.cached - checked
        if excess > 0:
            allocator.trim(excess, blocks=0)
    return int(previous)


_wired_limit = [0]


def set_wired_limit(limit: int) -> int:
    """Remember a limit of wired memory; returns the previous one.

    Wiring belongs to operating systems that page GPU memory; on Linux there is nothing to wire, so the number has no
    effect.

    >>> before = mx.set_wired_limit(1 << 30)
    >>> mx.set_wired_limit(before) == 1 << 30
    True
    """
    previous, _wired_limit[0] = _wired_limit[0], _checked("set_wired_limit", limit)
    return previous


def clear_cache() -> None:
    """Give all cached memory back to the system.

    >>> mx.clear_cache()
    >>> mx.get_cache_memory()
    0
    """
    allocator = _allocator()
    with runtime.lock:
        allocator.clear_cache()


def get_array_buffer_size(*args: Any) -> int:
    """Bytes of the buffers behind computed arrays (or trees of them), each buffer counted once.

    Raises ValueError where an array is not computed yet.

    >>> a = mx.zeros((1000,))
    >>> mx.eval(a)
    >>> mx.get_array_buffer_size(a) >= a.nbytes
    True
    """
    nodes: list[Node] = []
    collect_nodes(args, nodes)
    buffers: dict[int, Any] = {}
    for node in nodes:
        owner: Any = node.data
        if owner is None:
            raise ValueError("[get_array_buffer_size] An array is not computed yet; call eval first.")
        buffers[id(owner.operand.buffer)] = owner.operand.buffer
    return sum(buffer.size for buffer in buffers.values())


def _checked(op: str, limit: int) -> int:
    value = int(limit)
    if value < 0:
        raise ValueError(f"[{op}] A limit is a number of bytes, not below 0; got {limit}.")
    return value


__all__ = [
    "clear_cache", "get_active_memory", "get_array_buffer_size", "get_cache_memory", "get_memory_limit",
    "get_peak_memory", "reset_peak_memory", "set_cache_limit", "set_memory_limit", "set_wired_limit",
]  # fmt: skip
