"""GGUF files written byte by byte, so that every field can lie."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

UINT8, UINT32, FLOAT32, BOOL, STRING, ARRAY, UINT64 = 0, 4, 6, 7, 8, 9, 10
F32, F16, Q4_0, Q4_1, Q8_0 = 0, 1, 2, 3, 8


def text(value: str | bytes, length: int | None = None) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw) if length is None else length) + raw


def entry(key: str | bytes, kind: int, payload: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + payload


def array(kind: int, count: int, payload: bytes) -> bytes:
    return struct.pack("<IQ", kind, count) + payload


def tensor(name: str | bytes, dims: tuple[int, ...], kind: int, offset: int, dimensions: int | None = None) -> bytes:
    count = len(dims) if dimensions is None else dimensions
    return (
        text(name) + struct.pack("<I", count) + struct.pack(f"<{len(dims)}Q", *dims) + struct.pack("<IQ", kind, offset)
    )


@dataclass
class RawGGUF:
    """The parts of a file; counts are right unless they are given."""

    entries: list[bytes] = field(default_factory=list)
    tensors: list[bytes] = field(default_factory=list)
    data: bytes = b""
    magic: bytes = b"GGUF"
    version: int = 3
    tensor_count: int | None = None
    entry_count: int | None = None
    alignment: int = 32

    def build(self) -> bytes:
        tensor_count = len(self.tensors) if self.tensor_count is None else self.tensor_count
        entry_count = len(self.entries) if self.entry_count is None else self.entry_count
        head = self.magic + struct.pack("<IQQ", self.version, tensor_count, entry_count)
        head += b"".join(self.entries) + b"".join(self.tensors)
        return head + b"\0" * (-len(head) % self.alignment) + self.data


def with_changes(**changes: Any) -> bytes:
    """A small good file (two tensors, three entries) with some parts changed."""
    parts: dict[str, Any] = {
        "entries": [
            entry("general.architecture", STRING, text("llama")),
            entry("a.number", UINT32, struct.pack("<I", 7)),
            entry("a.list", ARRAY, array(STRING, 2, text("x") + text("yz"))),
        ],
        "tensors": [tensor("first", (4, 3), F32, 0), tensor("second", (32,), Q8_0, 64)],
        "data": bytes(range(128)),
    }
    return RawGGUF(**(parts | changes)).build()
