"""Tile registers (AMX): their shapes and instructions."""

from __future__ import annotations

import struct

from llvmlite import ir

from outlive.backends.cpu.kernels.emit import I8, STORAGES, Emitter, Value

TILE = 16
"""Rows of a tile, and 32-bit columns."""

TILE_BYTES = 1024


def instruction(k: Emitter, name: str, *args: Value | int) -> None:
    """A tile instruction; numbers name tile registers."""
    values = [a if isinstance(a, Value) else Value(k, ir.Constant(I8, a)) for a in args]
    k.call(f"llvm.x86.{name}", ir.VoidType(), values)


def configure(k: Emitter, shapes: dict[int, tuple[int, int]]) -> None:
    """Loads the shapes of tile registers: rows, and bytes of a row."""
    rows, row_bytes = [0] * 16, [0] * 16
    for tile, (count, size) in shapes.items():
        rows[tile], row_bytes[tile] = count, size
    block = struct.pack("<BB14x16H16B", 1, 0, *row_bytes, *rows)
    place = k.scratch(k.constant(64))
    for n, word in enumerate(struct.unpack("<8q", block)):
        k.store(place, n, k.constant(word), STORAGES["int64"])
    instruction(k, "ldtilecfg", place)
