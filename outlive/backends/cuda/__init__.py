"""The CUDA device: NVIDIA GPUs of compute capability 8.0 and newer. Importing this package touches no driver.

`device_count`, `why_unavailable` and `open_device` load the driver on first use and remember what they found.
"""

from __future__ import annotations

import functools
from typing import Any

MINIMUM_CAPABILITY = (8, 0)


@functools.cache
def find_driver() -> tuple[Any, str]:
    """(the driver, "") or (None, one sentence that says why there is none)."""
    try:
        from outlive.backends.cuda.driver import Driver
    except ImportError as error:
        return None, f"GPU support is not installed ({error}): pip install 'outlive[{_extra()}]'."
    return Driver.load()


def _extra() -> str:
    """The name of the extra that fits the installed driver (cuda13 where no driver can be asked)."""
    import ctypes

    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "cuda13"
    version = ctypes.c_int()
    if library.cuDriverGetVersion(ctypes.byref(version)):
        return "cuda13"
    return "cuda13" if version.value >= 13000 else "cuda12"


def fitting_extra() -> str:
    """The extra of the package that fits this machine's driver: `cuda12` or `cuda13`."""
    return _extra()


def device_count() -> int:
    """The number of usable GPUs; 0 on a machine without a driver."""
    driver, _ = find_driver()
    return 0 if driver is None else driver.device_count


def why_unavailable() -> str:
    """One sentence that says why no GPU can be used; empty where one can."""
    driver, reason = find_driver()
    if driver is not None and not driver.device_count:
        return "The NVIDIA driver reports no GPU."
    return reason


def device_facts(index: int = 0) -> Any:
    """`DeviceFacts` of a GPU; raises ValueError where there is no such GPU."""
    driver, reason = find_driver()
    if driver is None or not 0 <= index < driver.device_count:
        count = 0 if driver is None else driver.device_count
        raise ValueError(f"[Device] There is no GPU {index}: this machine has {count} usable GPUs. {reason}".rstrip())
    return driver.facts(index)


def open_device(runtime: Any, index: int) -> Any:
    """The device `gpu:index`; raises ValueError, in one sentence, where it cannot be used."""
    facts = device_facts(index)
    if facts.capability < MINIMUM_CAPABILITY:
        raise ValueError(
            f"[Device] GPU {index} ({facts.name}) has compute capability {facts.capability[0]}.{facts.capability[1]}; "
            f"{MINIMUM_CAPABILITY[0]}.{MINIMUM_CAPABILITY[1]} or newer is needed."
        )
    from outlive.backends.cuda.device import CudaDevice

    return CudaDevice(runtime, find_driver()[0], index)
