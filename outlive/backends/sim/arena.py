"""One piece of host memory in which every allocation of a simulated device lies, poisoned and between guards."""

from __future__ import annotations

import numpy as np

from outlive.backends.sim.scheduler import Violation

GUARD = 64
"""Bytes of guard on each side of an allocation."""

GUARD_BYTE = 0xA7
ARENA_BYTES = 64 << 20

PATTERNS = (0xFF, 0x7B)
"""The two poisons: NaN for every float type and -1 for integers; a huge finite float (1.3e36 in float32) and a large positive integer."""


class Cell:
    """One allocation: `start` and `size` in bytes within the arena, `occupant` (whose contents it holds now)."""

    __slots__ = ("freed", "occupant", "pointer", "size", "start")

    def __init__(self, start: int, size: int, pointer: int) -> None:
        self.start = start
        self.size = size
        self.pointer = pointer
        self.occupant: object = None
        self.freed = False


class Arena:
    """Memory for one schedule after the other. A freed address is given out again as soon as possible, as a driver may."""

    def __init__(self, nbytes: int = ARENA_BYTES) -> None:
        self.bytes = np.empty(nbytes, np.uint8)
        self.base = self.bytes.ctypes.data
        self.shift = -self.base % GUARD
        self.reset(PATTERNS[0])

    def reset(self, poison: int) -> None:
        """Forget all allocations; fresh memory holds `poison` from here on."""
        self.poison_byte = poison
        self.top = self.shift
        self.free: dict[int, list[int]] = {}
        self.cells: dict[int, Cell] = {}
        self.held = 0

    def obtain(self, size: int) -> Cell:
        """`size` bytes, poisoned; raises MemoryError when the arena is full."""
        starts = self.free.get(size)
        if starts:
            start = starts.pop()
        else:
            start = self.top + GUARD
            if start + size + GUARD > len(self.bytes):
                raise MemoryError(f"[sim] The arena of {len(self.bytes):,} bytes is full.")
            self.top = start + size
        self.bytes[start - GUARD : start] = GUARD_BYTE
        self.bytes[start + size : start + size + GUARD] = GUARD_BYTE
        cell = Cell(start, size, self.base + start)
        self.poison(cell)
        self.cells[start] = cell
        self.held += size
        return cell

    def give_back(self, cell: Cell) -> None:
        """The driver has the memory again: its contents are gone."""
        self.check_guards(cell, "before it was released")
        self.poison(cell)
        cell.freed = True
        del self.cells[cell.start]
        self.free.setdefault(cell.size, []).append(cell.start)
        self.held -= cell.size

    def poison(self, cell: Cell) -> None:
        """Overwrite an allocation with the poison."""
        self.bytes[cell.start : cell.start + cell.size] = self.poison_byte

    def view(self, cell: Cell, layout: object, offset: int) -> np.ndarray:
        """A NumPy array over an allocation; `offset` in bytes."""
        dtype = layout.dtype  # type: ignore[attr-defined]
        itemsize = dtype.itemsize
        strides = tuple([s * itemsize for s in layout.strides])  # type: ignore[attr-defined]
        return np.ndarray(layout.shape, dtype.storage, self.bytes.data, cell.start + offset, strides)  # type: ignore[attr-defined]

    def check_guards(self, cell: Cell, when: str) -> None:
        """Raise a Violation where a guard of the allocation was written."""
        memory = self.bytes
        low, high = cell.start, cell.start + cell.size
        if memory[low - GUARD : low].tobytes() != _GUARD or memory[high : high + GUARD].tobytes() != _GUARD:
            raise Violation(
                "guard",
                f"Memory beside an allocation of {cell.size:,} bytes was written {when}.",
                "a store without a mask",
            )


_GUARD = bytes([GUARD_BYTE]) * GUARD
