"""NumPy's files: .npy, one array behind a text header, and .npz, a zip archive of them.

NumPy's own functions read and write the headers. bfloat16, which NumPy has no name for, is a void type of two bytes.
"""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy_format

from outlive.io.errors import FileFormatError
from outlive.io.regions import ARCHIVE_ERRORS, CHUNK_BYTES, FileRegion, OpenFile, ZipRegion

_BFLOAT16 = np.dtype("V2")
_ELEMENTS = frozenset(
    "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64".split()
)
_HEADER_BYTES_MAX = 1 << 16
SIZE_MAX = 1 << 63


@dataclass(frozen=True, slots=True)
class NpyHeader:
    """Shape and type of a file's array, and where its elements begin; bfloat16 is uint16 with `dtype` "bfloat16"."""

    shape: tuple[int, ...]
    stored: np.dtype
    dtype: str
    fortran_order: bool
    nbytes: int
    offset: int


def read_header(head: bytes, where: str) -> NpyHeader:
    """The header at the start of a file, whose first bytes are `head`.

    Raises FileFormatError for a malformed header, ValueError for elements that no array here holds.
    """
    stream = io.BytesIO(head)
    try:
        version = npy_format.read_magic(stream)
        if version == (1, 0):
            shape, fortran_order, stored = npy_format.read_array_header_1_0(stream, _HEADER_BYTES_MAX)
        elif version == (2, 0):
            shape, fortran_order, stored = npy_format.read_array_header_2_0(stream, _HEADER_BYTES_MAX)
        else:
            raise ValueError(f"version {version} is not read")
    except Exception as error:  # the header is parsed as Python text, and fails in as many ways
        raise FileFormatError(f"{where} is not a usable .npy file ({error}); get the file anew.") from error
    if any(type(n) is not int or n < 0 for n in shape) or math.prod(shape) * max(stored.itemsize, 1) >= SIZE_MAX:
        raise FileFormatError(f"{where} claims the shape {shape}, which no array has; get the file anew.")
    name = "bfloat16" if stored == _BFLOAT16 else stored.name
    if name not in _ELEMENTS:
        raise ValueError(f"{where} holds elements of type {stored}; only numbers are read.")
    if stored == _BFLOAT16:
        stored = np.dtype("<u2")
    return NpyHeader(shape, stored, name, fortran_order, math.prod(shape) * stored.itemsize, stream.tell())


def npy_region(file: OpenFile) -> tuple[NpyHeader, FileRegion]:
    """The header and the elements of a .npy file."""
    header = read_header(file.read(0, _HEADER_BYTES_MAX), file.path)
    if header.offset + header.nbytes > file.size:
        raise FileFormatError(
            f"{file.path} needs {header.offset + header.nbytes} bytes for shape {header.shape}, but has {file.size} (it is "
            "truncated); get the file anew."
        )
    return header, FileRegion(file, header.offset)


def npz_regions(file: Any) -> dict[str, tuple[NpyHeader, ZipRegion]]:
    """Header and elements of each array in a .npz file, by name; `file` is a path or a seekable file object.

    Raises ValueError for what is no zip archive, FileFormatError for a malformed member, OSError where the file cannot be
    opened.
    """
    try:
        archive = zipfile.ZipFile(file)
    except zipfile.BadZipFile as error:
        raise ValueError(f"{file} is no .npz file, which is a zip archive ({error}).") from error
    return {m.filename.removesuffix(".npy"): _member(archive, m) for m in archive.infolist() if not m.is_dir()}


def _member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> tuple[NpyHeader, ZipRegion]:
    where = f"{member.filename} of {archive.filename}"
    try:
        with archive.open(member) as stream:
            head = stream.read(_HEADER_BYTES_MAX)
    except ARCHIVE_ERRORS as error:
        raise FileFormatError(f"{where} cannot be read ({error}); get the file anew.") from error
    header = read_header(head, where)
    if header.offset + header.nbytes > member.file_size:
        raise FileFormatError(f"{where} claims shape {header.shape}, more than its bytes hold; get the file anew.")
    return header, ZipRegion(archive, member, header.offset)


def write_npy(file: IO[bytes], values: np.ndarray, dtype: str) -> None:
    """Write a .npy file with `values` in storage form; `dtype` is the element type's name."""
    descr = "<V2" if dtype == "bfloat16" else npy_format.dtype_to_descr(values.dtype)
    header = {"descr": descr, "fortran_order": False, "shape": values.shape}
    npy_format.write_array_header_1_0(file, header)
    write_elements(file, values)


def write_elements(file: IO[bytes], values: np.ndarray) -> None:
    """Write elements in row-major order, without a second copy of them all."""
    if values.flags.c_contiguous:
        if values.size:
            file.write(values.reshape(-1).view(np.uint8).data)
        return
    step = max(1, CHUNK_BYTES * len(values) // values.nbytes) if values.nbytes else 1
    for begin in range(0, len(values), step):
        file.write(np.ascontiguousarray(values[begin : begin + step]).reshape(-1).view(np.uint8).data)


def write_npz(file: IO[bytes], arrays: Iterable[tuple[str, np.ndarray, str]], compressed: bool) -> None:
    """Write a .npz file of (name, values, element type); `compressed` members are deflated."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED) as archive:
        for name, values, dtype in arrays:
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                write_npy(member, values, dtype)
