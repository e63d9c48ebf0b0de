"""What every device has: the kernels fill, copy and migrate, and launches that need scratch memory."""

from __future__ import annotations

from typing import Any


class Fill:
    """Writes one number, taken by value, to every element. There is no temporary to lose."""

    name = "fill"
    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def workspace(self, reads: tuple[Any, ...], writes: tuple[Any, ...]) -> int:
        """Half types are filled in float32 and rounded."""
        return int(2 * 4 * sum(layout.size for layout in writes))

    def reference(self, xp: Any, reads: tuple[Any, ...], writes: tuple[Any, ...]) -> None:
        writes[0][...] = self.value


class Copy:
    """Copies elements of one type between layouts; a one-element operand fills."""

    name = "copy"
    moves_bits = True
    __slots__ = ()

    def workspace(self, reads: tuple[Any, ...], writes: tuple[Any, ...]) -> int:
        """Nothing is computed."""
        return 0

    def reference(self, xp: Any, reads: tuple[Any, ...], writes: tuple[Any, ...]) -> None:
        writes[0][...] = reads[0]


COPY = Copy()


class Byte:
    """The element type of scratch memory."""

    name = "uint8"
    itemsize = 1
    storage = "u1"
    half = False


BYTE = Byte()


class Workspaced:
    """Base of a device's launches that need `workspace` bytes of scratch: the encoder makes it a temporary, the record's last write."""

    __slots__ = ("workspace",)
    workspace: int
