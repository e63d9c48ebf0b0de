"""The header of a GGUF file, checked in full before anything is read by it.

Layout (GGUF version 2 and 3, little-endian): magic, version, number of tensors, number of metadata entries; the
entries (key, type, value); one record a tensor (name, dimensions, type, offset); then, at the next multiple of the
alignment, the tensors' data. Every count, length and offset comes from the file and is believed only after it was
compared with the bytes that are there, so the work and memory spent on a file are bounded by its size.
"""

from __future__ import annotations

import itertools
import mmap
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGUF_DEFAULT_ALIGNMENT, GGMLQuantizationType, GGUFValueType

from outlive.io.errors import FileFormatError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
NAME_BYTES_MAX = 65535  # the format's own limit for keys; tensors' names are held to the same
ARRAY_DEPTH_MAX = 4
DIMENSIONS_MAX = 4
ALIGNMENT_MAX = 1 << 20

_SCALARS = {
    GGUFValueType.UINT8: "<u1",
    GGUFValueType.INT8: "<i1",
    GGUFValueType.UINT16: "<u2",
    GGUFValueType.INT16: "<i2",
    GGUFValueType.UINT32: "<u4",
    GGUFValueType.INT32: "<i4",
    GGUFValueType.FLOAT32: "<f4",
    GGUFValueType.BOOL: "|b1",
    GGUFValueType.UINT64: "<u8",
    GGUFValueType.INT64: "<i8",
    GGUFValueType.FLOAT64: "<f8",
}
_SCALAR_DTYPES = {int(kind): np.dtype(code) for kind, code in _SCALARS.items()}
_STRING, _ARRAY = int(GGUFValueType.STRING), int(GGUFValueType.ARRAY)
_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")

# The fewest bytes that one of each can take: a count above (bytes left) / (fewest bytes) is a lie.
_ENTRY_BYTES_MIN = 8 + 4 + 1
_TENSOR_BYTES_MIN = 8 + 4 + 4 + 8
_STRING_BYTES_MIN = 8
_NESTED_BYTES_MIN = 4 + 8


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where one tensor lies.

    ``shape`` is in row-major order (the file stores it reversed); ``offset`` counts bytes from the start of the file.
    """

    name: str
    shape: tuple[int, ...]
    kind: GGMLQuantizationType
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Header:
    """Metadata (numbers, booleans, strings, NumPy arrays of numbers, lists of strings) and tensors by name.

    ``number_types`` holds the types in which the file stores the single numbers and booleans.
    """

    version: int
    alignment: int
    metadata: dict[str, Any]
    tensors: dict[str, TensorInfo]
    number_types: dict[str, np.dtype]


def read_header(data: bytes | mmap.mmap, where: str) -> Header:
    """Check and read the header of the GGUF file whose whole content is ``data``; ``where`` names it in errors.

    Raises:
        FileFormatError: for a wrong magic or version, for any count, length, type, dimension or offset that does not
            fit the file, for duplicate names, and for tensors that overlap.
    """
    return _HeaderReader(data, where).read()


class _HeaderReader:
    """A cursor over the file's bytes that refuses to step over their end."""

    def __init__(self, data: bytes | mmap.mmap, where: str) -> None:
        self._data = data
        self._size = len(data)
        self._at = 0
        self._where = where

    def read(self) -> Header:
        version = self._version()
        tensor_count = self._count("tensors", _TENSOR_BYTES_MIN)
        entry_count = self._count("metadata entries", _ENTRY_BYTES_MIN)
        metadata: dict[str, Any] = {}
        number_types: dict[str, np.dtype] = {}
        for _ in range(entry_count):
            key = self._name("a metadata key")
            if key in metadata:
                raise self._error(f"metadata key {key!r} appears twice")
            kind = self._u32(f"the type of {key!r}")
            metadata[key] = self._value(kind, key, 0)
            if kind in _SCALAR_DTYPES:
                number_types[key] = _SCALAR_DTYPES[kind]
        alignment = self._alignment(metadata)
        records = [self._tensor_record() for _ in range(tensor_count)]
        start = -(-self._at // alignment) * alignment
        tensors: dict[str, TensorInfo] = {}
        for record in records:
            info = self._placed(record, start, alignment)
            if info.name in tensors:
                raise self._error(f"tensor {info.name!r} appears twice")
            tensors[info.name] = info
        self._refuse_overlaps(tensors)
        return Header(version, alignment, metadata, tensors, number_types)

    def _error(self, problem: str) -> FileFormatError:
        return FileFormatError(f"{self._where} is not a usable GGUF file: {problem}; get the file anew")

    def _take(self, count: int, what: str) -> int:
        """Step over ``count`` bytes and return where they begin."""
        begin = self._at
        if count > self._size - begin:
            raise self._error(
                f"{what} needs {count} bytes at offset {begin}, but the file ends at {self._size} (it is truncated)"
            )
        self._at = begin + count
        return begin

    def _u32(self, what: str) -> int:
        return _U32.unpack_from(self._data, self._take(4, what))[0]

    def _u64(self, what: str) -> int:
        return _U64.unpack_from(self._data, self._take(8, what))[0]

    def _version(self) -> int:
        begin = self._take(4, "the magic")
        magic = self._data[begin : begin + 4]
        if magic != MAGIC:
            raise self._error(f"it begins with {magic!r} instead of {MAGIC!r}")
        version = self._u32("the version")
        if version in VERSIONS:
            return version
        swapped = int.from_bytes(_U32.pack(version), "big")
        if swapped in VERSIONS:
            raise self._error("it is big-endian, and only little-endian files are read")
        raise self._error(f"its version is {version}, and versions 2 and 3 are read")

    def _count(self, what: str, bytes_min: int) -> int:
        count = self._u64(f"the number of {what}")
        if count > (self._size - self._at) // bytes_min:
            raise self._error(f"it claims {count} {what}, more than its {self._size} bytes can hold")
        return count

    def _text(self, what: str, bytes_max: int | None = None) -> str:
        length = self._u64(f"the length of {what}")
        if bytes_max is not None and length > bytes_max:
            raise self._error(f"{what} claims {length} bytes (at most {bytes_max} are allowed)")
        begin = self._take(length, what)
        try:
            return self._data[begin : begin + length].decode()
        except UnicodeDecodeError:
            raise self._error(f"{what} at offset {begin} is not UTF-8") from None

    def _name(self, what: str) -> str:
        name = self._text(what, NAME_BYTES_MAX)
        if not name:
            raise self._error(f"{what} before offset {self._at} is empty")
        return name

    def _value(self, kind: int, key: str, depth: int) -> Any:
        dtype = _SCALAR_DTYPES.get(kind)
        if dtype is not None:
            begin = self._take(dtype.itemsize, f"metadata {key!r}")
            return np.frombuffer(self._data, dtype, 1, begin)[0].item()
        if kind == _STRING:
            return self._text(f"metadata {key!r}")
        if kind == _ARRAY:
            return self._array(key, depth)
        raise self._error(f"metadata {key!r} has the unknown type {kind}")

    def _array(self, key: str, depth: int) -> Any:
        if depth == ARRAY_DEPTH_MAX:
            raise self._error(f"metadata {key!r} nests arrays more than {ARRAY_DEPTH_MAX} deep")
        kind = self._u32(f"the element type of metadata {key!r}")
        dtype = _SCALAR_DTYPES.get(kind)
        if dtype is not None:
            count = self._count(f"elements in metadata {key!r}", dtype.itemsize)
            begin = self._take(count * dtype.itemsize, f"metadata {key!r}")
            return np.frombuffer(self._data, dtype, count, begin).copy()
        if kind == _STRING:
            count = self._count(f"strings in metadata {key!r}", _STRING_BYTES_MIN)
            return self._texts(key, count)
        if kind == _ARRAY:
            count = self._count(f"arrays in metadata {key!r}", _NESTED_BYTES_MIN)
            return [self._array(key, depth + 1) for _ in range(count)]
        raise self._error(f"metadata {key!r} has elements of the unknown type {kind}")

    def _texts(self, key: str, count: int) -> list[str]:
        """Many strings in a row: vocabularies have 10^5, so this is :meth:`_text` in one loop."""
        data, size, at, unpack = self._data, self._size, self._at, _U64.unpack_from
        texts = []
        try:
            for _ in range(count):
                begin = at + 8
                at = begin + unpack(data, at)[0]
                if at > size:
                    raise self._error(f"a string of metadata {key!r} at offset {begin} ends behind the file's end")
                texts.append(data[begin:at].decode())
        except struct.error:
            raise self._error(f"metadata {key!r} ends behind the file's end (it is truncated)") from None
        except UnicodeDecodeError:
            raise self._error(f"a string of metadata {key!r} at offset {begin} is not UTF-8") from None
        self._at = at
        return texts

    def _alignment(self, metadata: dict[str, Any]) -> int:
        alignment = metadata.get("general.alignment", GGUF_DEFAULT_ALIGNMENT)
        integer = isinstance(alignment, int) and not isinstance(alignment, bool)
        if not integer or not 0 < alignment <= ALIGNMENT_MAX or alignment & (alignment - 1):
            raise self._error(f"general.alignment is {alignment!r}, not a power of two up to {ALIGNMENT_MAX}")
        return alignment

    def _tensor_record(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self._name("a tensor's name")
        dimensions = self._u32(f"tensor {name!r}")
        if dimensions > DIMENSIONS_MAX:
            raise self._error(f"tensor {name!r} claims {dimensions} dimensions (at most {DIMENSIONS_MAX})")
        shape = tuple(self._u64(f"the shape of tensor {name!r}") for _ in range(dimensions))[::-1]
        return name, shape, self._u32(f"the type of tensor {name!r}"), self._u64(f"the offset of tensor {name!r}")

    def _placed(self, record: tuple[str, tuple[int, ...], int, int], start: int, alignment: int) -> TensorInfo:
        name, shape, kind_number, offset = record
        try:
            kind = GGMLQuantizationType(kind_number)
        except ValueError:
            raise self._error(f"tensor {name!r} has the type {kind_number}, which is unknown here") from None
        size = 1
        for length in shape:
            size *= length
        if size == 0:
            raise self._error(f"tensor {name!r} has the shape {shape}, without any element")
        block, block_bytes = GGML_QUANT_SIZES[kind]
        if block > 1 and (not shape or shape[-1] % block):
            raise self._error(f"tensor {name!r} {shape} of type {kind.name} has rows that are not blocks of {block}")
        nbytes = size // block * block_bytes
        if offset % alignment:
            raise self._error(f"tensor {name!r} lies at offset {offset}, not a multiple of {alignment}")
        end = start + offset + nbytes
        if end > self._size:
            raise self._error(f"tensor {name!r} {shape} would end at byte {end}, but the file ends at {self._size}")
        return TensorInfo(name, shape, kind, start + offset, nbytes)

    def _refuse_overlaps(self, tensors: dict[str, TensorInfo]) -> None:
        ordered = sorted(tensors.values(), key=lambda info: info.offset)
        for before, after in itertools.pairwise(ordered):
            if before.offset + before.nbytes > after.offset:
                raise self._error(f"tensors {before.name!r} and {after.name!r} overlap at byte {after.offset}")
