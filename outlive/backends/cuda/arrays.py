"""Device memory seen as arrays: CuPy's view of an operand, and the host's copy of one.

CuPy is imported on first use. It works on our memory and our streams, and takes what it needs beside that from a
record's workspace.
"""

from __future__ import annotations

import functools
from bisect import bisect_left
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
    """Hands out pieces of one buffer, first fit. A piece comes back when its owner goes: what is queued later on the same
    stream may have it, since the device runs that after all that used it before.
    """

    ALIGNMENT = 512

    def __init__(self, pointer: int, size: int, index: int) -> None:
        self._pointer = pointer
        self._size = size
        self._index = index
        self._free = [(0, size)]

    def take(self, nbytes: int) -> Piece:
        """A piece of at least `nbytes` bytes; raises OutOfWorkspace."""
        wanted = -(-max(nbytes, 1) // self.ALIGNMENT) * self.ALIGNMENT
        for place, (start, length) in enumerate(self._free):
            if length >= wanted:
                self._free[place : place + 1] = [(start + wanted, length - wanted)] if length > wanted else []
                return Piece(self, start, wanted)
        raise OutOfWorkspace(
            f"a piece of {nbytes:,} bytes of scratch memory was asked for, of {self._size:,} bytes "
            f"{sum(length for _, length in self._free):,} are free"
        )

    def give(self, start: int, length: int) -> None:
        """Take a piece back, joined with its free neighbours."""
        place = bisect_left(self._free, (start, 0))
        if place < len(self._free) and self._free[place][0] == start + length:
            length += self._free.pop(place)[1]
        if place and sum(self._free[place - 1]) == start:
            start, before = self._free.pop(place - 1)
            length, place = length + before, place - 1
        self._free.insert(place, (start, length))

    def address(self, piece: Piece) -> int:
        """Where a piece lies on the device."""
        return self._pointer + piece.start

    def cupy_malloc(self, nbytes: int) -> Any:
        """The allocator that CuPy uses while a record's reference kernel runs."""
        library = cupy()
        piece = self.take(nbytes)
        owned = library.cuda.UnownedMemory(self.address(piece), nbytes, piece, self._index)
        return library.cuda.MemoryPointer(owned, 0)


class Piece:
    """Owner of a piece of a workspace. Its finalizer touches that workspace alone, which one record of one thread uses."""

    __slots__ = ("_workspace", "length", "start")

    def __init__(self, workspace: Workspace, start: int, length: int) -> None:
        self._workspace = workspace
        self.start = start
        self.length = length

    def __del__(self) -> None:
        self._workspace.give(self.start, self.length)
