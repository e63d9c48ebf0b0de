"""Checkpoints in safetensors files: one file, or shards under an index; memory-mapped, read a tensor at a time.

A file is an 8-byte length, a JSON header that gives each tensor's type, shape and byte range, and the bytes. The header
is checked whole before anything in it is believed, so the work and memory spent on a file are bounded by its size. The
``safetensors`` library is not asked to read: it has no way to give a tensor's pages back, and a checkpoint that is
quantized while it is loaded must never be resident as a whole.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from outlive.io.errors import FileFormatError
from outlive.io.mapped import map_file, release_pages

INDEX = "model.safetensors.index.json"
HEADER_BYTES_MAX = 100_000_000  # the format's own limit

# Type in the header -> name here, and the NumPy type that holds the bits.
_TYPES = {
    "F64": ("float64", "<f8"),
    "F32": ("float32", "<f4"),
    "F16": ("float16", "<f2"),
    "BF16": ("bfloat16", "<u2"),
    "I64": ("int64", "<i8"),
    "I32": ("int32", "<i4"),
    "I16": ("int16", "<i2"),
    "I8": ("int8", "|i1"),
    "U64": ("uint64", "<u8"),
    "U32": ("uint32", "<u4"),
    "U16": ("uint16", "<u2"),
    "U8": ("uint8", "|u1"),
    "BOOL": ("bool", "|u1"),
    "F8_E4M3": ("float8_e4m3", "|u1"),
    "F8_E5M2": ("float8_e5m2", "|u1"),
    "F8_E8M0": ("float8_e8m0", "|u1"),
}


@dataclass(frozen=True, slots=True)
class CheckpointTensor:
    """Where one tensor lies: ``offset`` and ``nbytes`` in the file ``path``. ``dtype`` names its elements' type."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int
    path: Path


class SafetensorsFile:
    """One open safetensors file, its header checked.

    Attributes:
        path: the file.
        metadata: strings that the writer left.
        tensors: name to :class:`CheckpointTensor`.

    Raises:
        UserError: if the file cannot be opened.
        FileFormatError: if it is not a well-formed safetensors file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._map = map_file(self.path, "a safetensors file")
        try:
            self.metadata, self.tensors = _read_header(self._map, self.path)
        except BaseException:
            self._map.close()
            raise

    def close(self) -> None:
        """Unmap the file; no view that :meth:`rows` gave may be alive."""
        self._map.close()

    def rows(self, name: str, rows_max: int) -> Iterator[NDArray[Any]]:
        """The tensor as views of at most ``rows_max`` entries of its first axis, each valid until the next is asked for.

        bfloat16 and 8-bit floats come as bit patterns. Pages are handed back as soon as they were passed.
        """
        info = self.tensors[name]
        code = next(code for kind, code in _TYPES.values() if kind == info.dtype)
        count = info.shape[0] if info.shape else 1
        row_bytes = info.nbytes // count if count else 0
        row_shape = info.shape[1:]
        for begin in range(0, count, rows_max):
            taken = min(rows_max, count - begin)
            offset, nbytes = info.offset + begin * row_bytes, taken * row_bytes
            piece = np.frombuffer(self._map, np.uint8, nbytes, offset).view(code)
            yield piece.reshape((taken, *row_shape) if info.shape else ())
            del piece
            release_pages(self._map, offset, nbytes)


class Checkpoint:
    """The tensors of a folder: of ``model.safetensors``, of the shards its index names, or of all safetensors files.

    Attributes:
        path: the folder.
        tensors: name to :class:`CheckpointTensor`.

    Raises:
        UserError: if a file cannot be opened.
        FileFormatError: if there is no safetensors file, or one of them or the index is not well-formed.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._files: list[SafetensorsFile] = []
        self.tensors: dict[str, CheckpointTensor] = {}
        self._owner: dict[str, SafetensorsFile] = {}
        try:
            placed = _read_index(self.path)
            for shard in _shards(self.path, placed):
                self._add(SafetensorsFile(shard), placed)
            if missing := placed.keys() - self.tensors.keys():
                name = min(missing)
                raise FileFormatError(
                    f"{self.path / INDEX} places tensor {name!r} in {placed[name]}, which does not hold it; get the "
                    "folder anew"
                )
        except BaseException:
            self.close()
            raise

    def _add(self, file: SafetensorsFile, placed: Mapping[str, str]) -> None:
        self._files.append(file)
        for name, info in file.tensors.items():
            if placed and placed.get(name) != file.path.name:
                continue  # an index decides: what it places elsewhere, or nowhere, is no part of the model
            if name in self.tensors:
                first = self.tensors[name].path.name
                raise FileFormatError(
                    f"{self.path}: tensor {name!r} is in {first} and in {file.path.name}; remove one of the files"
                )
            self.tensors[name] = info
            self._owner[name] = file

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        for file in self._files:
            file.close()

    def rows(self, name: str, rows_max: int) -> Iterator[NDArray[Any]]:
        """See :meth:`SafetensorsFile.rows`."""
        return self._owner[name].rows(name, rows_max)


def _shards(folder: Path, placed: Mapping[str, str]) -> list[Path]:
    if placed:
        shards = [folder / name for name in sorted(set(placed.values()))]
        for shard in shards:
            if not shard.is_file():
                raise FileFormatError(
                    f"{folder / INDEX} names the file {shard.name}, which is not there; get the folder anew"
                )
        return shards
    if (single := folder / "model.safetensors").exists():
        return [single]
    found = sorted(folder.glob("*.safetensors"))
    if found:
        return found
    pickles = [path.name for kind in ("*.bin", "*.pt", "*.pth", "*.ckpt") for path in sorted(folder.glob(kind))]
    if pickles:
        raise FileFormatError(
            f"{folder} has its weights in {pickles[0]}, a pickle, which can run code and is never loaded; convert it to "
            "safetensors where you trust it"
        )
    raise FileFormatError(f"{folder} has no safetensors file; name a folder with model.safetensors")


def _read_index(folder: Path) -> dict[str, str]:
    """Tensor name to file name; empty where there is no index."""
    path = folder / INDEX
    if not path.exists():
        return {}
    placed = read_json(path).get("weight_map")
    if not isinstance(placed, dict) or not placed or not all(isinstance(name, str) for name in placed.values()):
        raise FileFormatError(f"{path} has no weight_map from tensors to files; get the folder anew")
    for name in placed.values():
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise FileFormatError(f"{path} names the file {name!r}, which leads outside its folder; do not use it")
    return placed


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in ``path``.

    Raises:
        FileFormatError: if it cannot be read or is no JSON object.
    """
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise FileFormatError(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from error
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{path} is no JSON ({str(error).partition(chr(10))[0]}); get the file anew") from error
    if not isinstance(value, dict):
        raise FileFormatError(f"{path} holds no JSON object; get the file anew")
    return value


def _read_header(data: Any, path: Path) -> tuple[dict[str, str], dict[str, CheckpointTensor]]:
    length = int.from_bytes(data[:8], "little") if len(data) >= 8 else -1
    if not 2 <= length <= min(HEADER_BYTES_MAX, len(data) - 8):
        kind = "an archive or pickle" if data[:2] in (b"PK", b"\x80\x02", b"\x80\x04") else "truncated or damaged"
        raise FileFormatError(f"{path} is not a safetensors file ({kind}); get the file anew")
    try:
        header = json.loads(data[8 : 8 + length].decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{path}: its header is no JSON; get the file anew") from error
    if not isinstance(header, dict):
        raise FileFormatError(f"{path}: its header is no JSON object; get the file anew")
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise FileFormatError(f"{path}: its metadata is not text by name; get the file anew")
    tensors = {name: _checked(name, entry, 8 + length, len(data), path) for name, entry in header.items()}
    _check_overlap(tensors, path)
    return metadata, tensors


def _checked(name: str, entry: Any, base: int, size: int, path: Path) -> CheckpointTensor:
    """The tensor of a header's entry, its shape, type and range agreeing with each other and with the file."""
    kind, shape, span = (
        entry.get(key) if isinstance(entry, dict) else None for key in ("dtype", "shape", "data_offsets")
    )
    if not _counts(shape) or not _counts(span) or len(span) != 2 or not isinstance(kind, str):
        raise FileFormatError(f"{path}: tensor {name[:60]!r} has no type, shape and range; get the file anew")
    if kind not in _TYPES:
        raise FileFormatError(f"{path}: tensor {name[:60]!r} has the type {kind[:20]!r}, which is not read")
    begin, end = span
    dtype, code = _TYPES[kind]
    nbytes = math.prod(shape) * np.dtype(code).itemsize
    if not begin <= end <= size - base:
        raise FileFormatError(f"{path}: tensor {name[:60]!r} ends beyond the file, which is truncated; get it anew")
    if end - begin != nbytes or len(shape) > 32:
        raise FileFormatError(
            f"{path}: tensor {name[:60]!r} of shape {shape[:8]} takes {nbytes} bytes, but has {end - begin}; get the file anew"
        )
    return CheckpointTensor(name, dtype, tuple(shape), base + begin, nbytes, path)


def _counts(value: Any) -> TypeGuard[list[int]]:
    """Whether ``value`` is a list of integers that sizes in a file can have."""
    return isinstance(value, list) and all(type(item) is int and 0 <= item < 1 << 62 for item in value)


def _check_overlap(tensors: Mapping[str, CheckpointTensor], path: Path) -> None:
    end, before = 0, ""
    for info in sorted(tensors.values(), key=lambda info: (info.offset, info.nbytes)):
        if info.nbytes and info.offset < end:
            raise FileFormatError(f"{path}: tensors {before[:60]!r} and {info.name[:60]!r} overlap; get the file anew")
        end, before = max(end, info.offset + info.nbytes), info.name
