"""Device memory seen as arrays: CuPy's view of an operand, and the host's copy of one.

CuPy is imported on first use. It works on our memory and our streams, and takes what it needs beside that from a
record's workspace.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from outlive.backends.cuda.driver import Driver


class DeviceMemory:
    """One allocation of the driver."""

    __slots__ = ("index", "pointer", "size")

    def __init__(self, pointer: int, size: int, index: int) -> None:
        self.pointer = pointer
        self.size = size
        self.index = index


@functools.cache
def cupy() -> Any:
    """The library of reference kernels on the GPU; raises ImportError, naming what to install."""
    try:
        import cupy as module
    except ImportError as error:
        from outlive.backends.cuda import fitting_extra

        raise ImportError(f"CuPy is missing ({error}): pip install 'outlive[{fitting_extra()}]'") from error
    return module


def device_array(memory: DeviceMemory, layout: Any, offset: int) -> Any:
    """CuPy's array over `memory`, in storage form (bfloat16: unsigned integers). `offset` in bytes."""
    library = cupy()
    itemsize = layout.dtype.itemsize
    owned = library.cuda.UnownedMemory(memory.pointer, memory.size, memory, memory.index)
    pointer = library.cuda.MemoryPointer(owned, offset)
    strides = tuple(s * itemsize for s in layout.strides)
    return library.ndarray(layout.shape, layout.dtype.storage, pointer, strides)


def span(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, int]:
    """(first, end) of the elements that a strided view touches, relative to its own first element; (0, 0) for none."""
    if 0 in shape:
        return 0, 0
    reach = [(n - 1) * s for n, s in zip(shape, strides, strict=True)]
    return sum(r for r in reach if r < 0), sum(r for r in reach if r > 0) + 1


def host_array(
    driver: Driver, stream: int, pointer: int, shape: tuple[int, ...], strides: tuple[int, ...], storage: np.dtype
) -> tuple[np.ndarray, np.ndarray]:
    """A host copy of device memory: the span that the view touches, and the view of it (strides in elements). Waits for
    `stream`.
    """
    first, end = span(shape, strides)
    values = np.empty(end - first, storage)
    if values.size:
        driver.copy_out(values, pointer + first * storage.itemsize, stream)
        driver.synchronize(stream)
    steps = tuple(s * storage.itemsize for s in strides)
    if not values.size:
        return values, values.reshape(shape)
    return values, np.ndarray(shape, storage, values, -first * storage.itemsize, steps)


class OutOfWorkspace(RuntimeError):
    """A library asked for more scratch memory than the op declared."""


class Workspace:
    """Hands out pieces of one buffer, in order; what was handed out is free again when the record's work is over."""

    ALIGNMENT = 512

    def __init__(self, pointer: int, size: int, index: int) -> None:
        self._pointer = pointer
        self._size = size
        self._used = 0
        self._index = index

    def take(self, nbytes: int) -> int:
        """The address of `nbytes` bytes; raises OutOfWorkspace."""
        start = -(-self._used // self.ALIGNMENT) * self.ALIGNMENT
        if start + nbytes > self._size:
            raise OutOfWorkspace(
                f"{start + nbytes:,} bytes of scratch memory were asked for, {self._size:,} are reserved"
            )
        self._used = start + nbytes
        return self._pointer + start

    def cupy_malloc(self, nbytes: int) -> Any:
        """The allocator that CuPy uses while a record's reference kernel runs."""
        library = cupy()
        owned = library.cuda.UnownedMemory(self.take(nbytes), nbytes, self, self._index)
        return library.cuda.MemoryPointer(owned, 0)
