"""`mx.metal`: Apple's GPUs are not served; the memory functions are those of the namespace."""

from __future__ import annotations

from outlive.core.memory import (
    clear_cache,
    get_active_memory,
    get_cache_memory,
    get_peak_memory,
    reset_peak_memory,
    set_cache_limit,
    set_memory_limit,
    set_wired_limit,
)


def is_available() -> bool:
    """False: there is no Metal device here.

    >>> mx.metal.is_available()
    False
    """
    return False


def device_info() -> dict[str, str | int]:
    """Nothing: there is no Metal device here.

    >>> mx.metal.device_info()
    {}
    """
    return {}


def start_capture(path: str) -> None:
    """Raises RuntimeError: captures are a tool of Metal's. `outlive run --trace` records what ran.

    >>> mx.metal.start_capture("trace")
    Traceback (most recent call last):
        ...
    RuntimeError: [metal] Metal captures need Apple's tools; record what ran with `outlive run --trace` instead.
    """
    raise RuntimeError("[metal] Metal captures need Apple's tools; record what ran with `outlive run --trace` instead.")


def stop_capture() -> None:
    """Raises RuntimeError: no capture can have been started.

    >>> mx.metal.stop_capture()
    Traceback (most recent call last):
        ...
    RuntimeError: [metal] Metal captures need Apple's tools; none was started.
    """
    raise RuntimeError("[metal] Metal captures need Apple's tools; none was started.")


__all__ = [
    "clear_cache", "device_info", "get_active_memory", "get_cache_memory", "get_peak_memory", "is_available",
    "reset_peak_memory", "set_cache_limit", "set_memory_limit", "set_wired_limit", "start_capture", "stop_capture",
]  # fmt: skip
