"""GGUF files: metadata and tensors, memory-mapped.

The ``gguf`` library gives the type numbers, block sizes and the decoding of types that have no affine form. Its reader
is not used: our check must walk the whole header before anything may trust it, and walking it a second time with the
library would cost 1.6 s and 160 MB of objects for a vocabulary of 49,152. The tests compare the two.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from numpy.typing import NDArray

from outlive.io.errors import FileFormatError
from outlive.io.gguf_blocks import AffineTensor, affine_tensor, is_affine, slabs
from outlive.io.gguf_header import TensorInfo, read_header
from outlive.io.mapped import map_file, release_pages

_PLAIN = {
    GGMLQuantizationType.F32: ("float32", "<f4"),
    GGMLQuantizationType.F16: ("float16", "<f2"),
    GGMLQuantizationType.BF16: ("bfloat16", "<u2"),
    GGMLQuantizationType.F64: ("float64", "<f8"),
    GGMLQuantizationType.I8: ("int8", "|i1"),
    GGMLQuantizationType.I16: ("int16", "<i2"),
    GGMLQuantizationType.I32: ("int32", "<i4"),
    GGMLQuantizationType.I64: ("int64", "<i8"),
}


@dataclass(frozen=True, slots=True)
class DenseTensor:
    """A tensor of plain elements. ``dtype`` names their type; bfloat16 elements are held as uint16 bit patterns.

    ``decoded_from`` names the GGUF type if the values were decoded to float32 because it has no affine form.
    """

    dtype: str
    data: NDArray[Any]
    decoded_from: str | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.data.shape


class GGUFFile:
    """An open GGUF file, its header checked.

    Attributes:
        path: the file.
        metadata: key to value (number, boolean, string, NumPy array of numbers, list of strings).
        tensors: name to :class:`TensorInfo`.
        number_types: key to the type in which the file stores a single number or boolean.
        size: of the file, in bytes.

    Raises:
        UserError: if the file cannot be opened.
        FileFormatError: if it is not a well-formed GGUF file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._map = map_file(self.path, "a GGUF file")
        self.size = len(self._map)
        header = read_header(self._map, str(self.path))
        self.metadata = header.metadata
        self.tensors = header.tensors
        self.number_types = header.number_types

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Unmap the file. Tensors already read are copies and stay valid."""
        self._map.close()

    def read(self, name: str) -> DenseTensor | AffineTensor:
        """Read one tensor (a copy) and hand its pages back, so reading a file never holds it in memory twice.

        Raises:
            KeyError: if there is no tensor of that name.
            FileFormatError: if its type can be neither kept nor decoded.
        """
        info = self.tensors[name]
        raw = np.frombuffer(self._map, np.uint8, info.nbytes, info.offset)
        try:
            if info.kind in _PLAIN:
                dtype, code = _PLAIN[info.kind]
                return DenseTensor(dtype, raw.view(code).reshape(info.shape).copy())
            if is_affine(info.kind):
                return affine_tensor(raw, info.kind, info.shape)
            return DenseTensor("float32", self._decoded(raw, info), info.kind.name)
        finally:
            del raw
            release_pages(self._map, info.offset, info.nbytes)

    def _decoded(self, raw: NDArray[np.uint8], info: TensorInfo) -> NDArray[np.float32]:
        from gguf.quants import dequantize  # builds its tables when loaded: only for files that need them

        block, block_bytes = GGML_QUANT_SIZES[info.kind]
        blocks = raw.reshape(-1, block_bytes)
        values = np.empty((len(blocks), block), np.float32)
        try:
            for part in slabs(len(blocks)):
                values[part] = dequantize(np.ascontiguousarray(blocks[part]), info.kind)
        except NotImplementedError:
            raise FileFormatError(
                f"{self.path}: tensor {info.name!r} has the type {info.kind.name}, which the gguf library cannot "
                "decode; convert the file to another type, such as Q8_0"
            ) from None
        return values.reshape(info.shape)
