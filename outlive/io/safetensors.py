"""Safetensors files: a JSON header of names, types, shapes and byte ranges, then the elements.

The library of that name copies every tensor on its way in and out and reads no file objects; headers are therefore read
here, and checked in full before anything is believed. The tests compare the two.
"""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from outlive.io.errors import FileFormatError
from outlive.io.npy import SIZE_MAX, write_elements

HEADER_BYTES_MAX = 100_000_000  # the format's own limit
_LENGTH = struct.Struct("<Q")

# Names of the format -> element type and NumPy's storage. Types of eight bits without a name here are read as bytes.
_TYPES = {
    "BOOL": ("bool", "?"), "U8": ("uint8", "u1"), "I8": ("int8", "i1"), "U16": ("uint16", "<u2"), "I16": ("int16", "<i2"),
    "U32": ("uint32", "<u4"), "I32": ("int32", "<i4"), "U64": ("uint64", "<u8"), "I64": ("int64", "<i8"),
    "F16": ("float16", "<f2"), "BF16": ("bfloat16", "<u2"), "F32": ("float32", "<f4"), "F64": ("float64", "<f8"),
    "C64": ("complex64", "<c8"), "F8_E4M3": ("uint8", "u1"), "F8_E8M0": ("uint8", "u1"),
}  # fmt: skip
_NAMES = {dtype: name for name, (dtype, _) in reversed(_TYPES.items())}


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """Shape and type of a tensor, and where its elements begin, in bytes from the start of the file."""

    shape: tuple[int, ...]
    stored: np.dtype
    dtype: str
    offset: int
    nbytes: int


def header_length(head: bytes, size: int, where: str) -> int:
    """The length of the JSON header, from the first eight bytes of a file of `size` bytes."""
    if len(head) < _LENGTH.size:
        raise _error(where, f"it has {len(head)} bytes, fewer than the length of a header takes")
    (length,) = _LENGTH.unpack(head)
    if length > min(HEADER_BYTES_MAX, size - _LENGTH.size):
        raise _error(where, f"its header claims {length} bytes, and the file has {size}")
    return length


def read_header(text: bytes, size: int, where: str) -> tuple[dict[str, TensorEntry], dict[str, str]]:
    """Tensors by name, and metadata, from the JSON `text` of a file of `size` bytes.

    Raises FileFormatError for anything that does not fit the format or the file.
    """
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _error(where, f"its header is no JSON ({error})") from error
    if not isinstance(entries, dict):
        raise _error(where, "its header is no JSON object")
    metadata = entries.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise _error(where, "its metadata are not texts by name")
    start = _LENGTH.size + len(text)
    return {name: _entry(name, entry, start, size, where) for name, entry in entries.items()}, metadata


def _entry(name: str, entry: Any, start: int, size: int, where: str) -> TensorEntry:
    try:
        kind, shape, (begin, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
    except (KeyError, TypeError, ValueError) as error:
        raise _error(where, f"tensor {name!r} lacks a dtype, a shape or two data_offsets") from error
    if any(type(n) is not int or n < 0 for n in (*shape, begin, end)):
        raise _error(
            where, f"tensor {name!r} has the shape {shape} at bytes {begin} to {end}, which are not all counts"
        )
    if kind not in _TYPES:
        raise FileFormatError(
            f"{where}: tensor {name!r} has the type {kind!r}, which is not read; convert it to another type."
        )
    dtype, code = _TYPES[kind]
    stored = np.dtype(code)
    nbytes = math.prod(shape) * stored.itemsize
    if nbytes >= SIZE_MAX or end - begin != nbytes:
        raise _error(where, f"tensor {name!r} {shape} of type {kind} needs {nbytes} bytes and is given {end - begin}")
    if start + end > size:
        raise _error(
            where, f"tensor {name!r} would end at byte {start + end}, but the file ends at {size} (it is truncated)"
        )
    return TensorEntry(shape, stored, dtype, start + begin, nbytes)


def _error(where: str, problem: str) -> FileFormatError:
    return FileFormatError(f"{where} is not a usable safetensors file: {problem}; get the file anew.")


def write_safetensors(file: IO[bytes], tensors: dict[str, tuple[np.ndarray, str]], metadata: dict[str, str]) -> None:
    """Write tensors, given in storage form with the name of their element type, in the format's order: wide types first."""
    order = sorted(tensors, key=lambda name: (-tensors[name][0].itemsize, name))
    entries: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    offset = 0
    for name in order:
        values, dtype = tensors[name]
        entries[name] = {
            "dtype": _NAMES[dtype],
            "shape": values.shape,
            "data_offsets": [offset, offset + values.nbytes],
        }
        offset += values.nbytes
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # elements begin at a multiple of eight bytes
    file.write(_LENGTH.pack(len(text)) + text)
    for name in order:
        write_elements(file, tensors[name][0])
