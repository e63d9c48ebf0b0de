"""Writing GGUF files, through the ``gguf`` library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFWriter
from gguf.constants import GGMLQuantizationType, GGUFValueType
from numpy.typing import NDArray

from outlive.io.errors import FileFormatError

Metadata = str | list[str] | NDArray[Any]

_TENSORS = {
    "float16": GGMLQuantizationType.F16,
    "bfloat16": GGMLQuantizationType.BF16,
    "float32": GGMLQuantizationType.F32,
    "float64": GGMLQuantizationType.F64,
    "int8": GGMLQuantizationType.I8,
    "int16": GGMLQuantizationType.I16,
    "int32": GGMLQuantizationType.I32,
    "int64": GGMLQuantizationType.I64,
}
_NUMBERS = {
    "uint8": GGUFValueType.UINT8, "int8": GGUFValueType.INT8, "uint16": GGUFValueType.UINT16, "int16": GGUFValueType.INT16,
    "uint32": GGUFValueType.UINT32, "int32": GGUFValueType.INT32, "uint64": GGUFValueType.UINT64,
    "int64": GGUFValueType.INT64, "float32": GGUFValueType.FLOAT32, "float64": GGUFValueType.FLOAT64,
    "bool": GGUFValueType.BOOL,
}  # fmt: skip


class _Writer(GGUFWriter):
    def add_architecture(self) -> None:
        """Add nothing: the caller's metadata say what the file is."""


def write_gguf(path: Path, tensors: dict[str, tuple[NDArray[Any], str]], metadata: dict[str, Metadata]) -> None:
    """Write tensors, given in storage form with the name of their element type, and metadata.

    Metadata are texts, lists of texts, or numbers in arrays of at most one axis.

    Raises FileFormatError for types that the format does not have, and for tensors that it cannot hold: without elements,
    or with more than four axes.
    """
    writer = _Writer(None, "")
    for key, value in metadata.items():
        _add_metadata(writer, key, value)
    for name, (values, dtype) in tensors.items():
        if dtype not in _TENSORS:
            raise FileFormatError(
                f"GGUF has no tensors of {dtype}, the type of {name!r}; convert it, to float32 for instance."
            )
        if not values.size or values.ndim > 4:
            raise FileFormatError(
                f"GGUF cannot hold {name!r} of shape {values.shape}: it takes one to four axes, none empty."
            )
        raw = values.view(np.float16) if dtype == "bfloat16" else values  # the writer counts bytes; the type is named
        writer.add_tensor(name, np.ascontiguousarray(raw).reshape(values.shape), raw_dtype=_TENSORS[dtype])
    try:
        writer.write_header_to_file(path)
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    finally:
        writer.close()


def _add_metadata(writer: GGUFWriter, key: str, value: Metadata) -> None:
    if isinstance(value, str):
        writer.add_key_value(key, value, GGUFValueType.STRING)
    elif isinstance(value, list):
        writer.add_key_value(key, value, GGUFValueType.ARRAY, GGUFValueType.STRING)
    else:
        kind = _NUMBERS.get(value.dtype.name)
        if kind is None:
            raise ValueError(f"GGUF metadata hold no {value.dtype.name}, the type of {key!r}; use float32.")
        if value.ndim > 1:
            raise FileFormatError(f"GGUF metadata {key!r} of shape {value.shape} has more than one axis; flatten it.")
        if value.ndim:
            writer.add_key_value(key, value.tolist(), GGUFValueType.ARRAY, kind)
        else:
            writer.add_key_value(key, value.item(), kind)
