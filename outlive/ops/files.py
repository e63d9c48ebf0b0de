"""Arrays from files and to files: npy, npz, safetensors, GGUF.

Arrays of a path are read when they are needed, on the host: `load` reads headers only. The formats are `outlive.io`'s,
whose modules load on use.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from outlive.graph import dtypes
from outlive.graph.array import apply, array, from_host, host_view, wrap
from outlive.graph.dtypes import Dtype, dtype_by_name
from outlive.graph.evaluate import evaluate
from outlive.graph.primitive import Primitive
from outlive.graph.state import as_stream, cpu, default_stream, device_of
from outlive.ops.shape import transpose
from outlive.runtime.layout import layout

_FORMATS = ("npy", "npz", "safetensors", "gguf")
_COPY_BYTES = 1 << 20


class Load(Primitive):
    """The elements of a region of a file, row-major; `swapped`: its bytes are in the other order.

    Each is its own object (`read`): an interned one would keep its file open for good.
    """

    __slots__ = ("region", "swapped")
    name = "load"
    moves_bits = True
    single_use = True
    region: Any
    swapped: bool

    @classmethod
    def read(cls, region: Any, swapped: bool) -> Load:
        """The op that reads `region`."""
        return cls._new((region, swapped))

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        out = writes[0].reshape(-1)
        self.region.read_into(out.view(np.uint8).data)
        if self.swapped:
            out.byteswap(inplace=True)
        if out.dtype == np.bool_:
            np.not_equal(out.view(np.uint8), 0, out=out)  # a byte of another value is no boolean to NumPy

    def workspace(self, reads: Any, writes: Any) -> int:
        return _COPY_BYTES  # the pieces of a compressed member


def load(
    file: Any, /, format: str | None = None, return_metadata: bool = False, *, stream: Any = None
) -> array | dict[str, Any] | tuple[dict[str, Any], dict[str, Any]]:
    """The array of a .npy file, or a dictionary of the arrays of a .npz, .safetensors or .gguf file.

    `file`: a path, or (except GGUF) a file object opened in binary mode, seekable, which is read at once. `format`: "npy",
    "npz", "safetensors" or "gguf"; by default the path's extension says. Arrays of a path are read when they are needed,
    on the CPU (on `stream` where it is one of the CPU), from the file as it was opened: it may be replaced or removed
    meanwhile. GGUF is read at once: tensors of type Q4_0, Q4_1 and Q8_0 `x.weight` stay quantized, with `x.scales` and
    `x.biases` for `quantized_matmul`; those of other quantized types become float16.

    With `return_metadata`, for safetensors and GGUF, returns (arrays, metadata); GGUF's numbers are arrays.

    Raises RuntimeError for files that cannot be opened or are malformed or cut, ValueError for unknown formats and
    element types, and for a .npz file that is no zip archive.

    >>> mx.savez("weights.npz", w=mx.array([1, 2]), b=mx.array(0.5))
    >>> arrays = mx.load("weights.npz")
    >>> arrays["w"]
    array([1, 2], dtype=int32)
    """
    kind = _format_of(file) if format is None else format
    if kind not in _FORMATS:
        raise ValueError(f"[load] The format {kind!r} is unknown; it is one of {', '.join(_FORMATS)}.")
    if return_metadata and kind in ("npy", "npz"):
        raise ValueError(f"[load] Files of the format {kind} have no metadata; leave return_metadata out.")
    with _file_errors("load"):
        if kind == "npy":
            return _load_npy(file, stream)
        if kind == "npz":
            return _load_npz(file, stream)
        arrays, metadata = _load_gguf(file) if kind == "gguf" else _load_safetensors(file, stream)
    return (arrays, metadata) if return_metadata else arrays


@contextmanager
def _file_errors(op: str) -> Iterator[None]:
    from outlive.io.errors import UserError

    try:
        yield
    except UserError as error:
        raise RuntimeError(f"[{op}] {error}") from error
    except ValueError as error:
        if str(error).startswith("["):
            raise
        raise ValueError(f"[{op}] {error}") from error


def _is_path(file: Any) -> bool:
    return isinstance(file, (str, os.PathLike))


def _format_of(file: Any) -> str:
    if not _is_path(file):
        _check_readable(file)
    name = os.fspath(file) if _is_path(file) else getattr(file, "name", "")
    extension = os.path.splitext(name)[1] if isinstance(name, str) else ""
    if extension[1:] not in _FORMATS:
        raise ValueError(
            f"[load] The extension {extension!r} names no format; give format= as one of {', '.join(_FORMATS)}."
        )
    return extension[1:]


def _check_readable(file: Any) -> None:
    if not all(hasattr(file, name) for name in ("read", "seek", "tell")) or isinstance(file, _text_files()):
        raise ValueError(
            f"[load] Expected a path, or a seekable file opened in binary mode; got {type(file).__name__}."
        )


def _text_files() -> type:
    import io

    return io.TextIOBase


def _lazy(region: Any, shape: tuple[int, ...], stored: np.dtype, kind: Dtype, stream: Any) -> array:
    from outlive.io.regions import crowded

    chosen = as_stream(stream)
    if device_of(chosen).type is not cpu:
        chosen = default_stream(cpu)
    made = apply(Load.read(region, not stored.isnative), (), layout(shape, kind), chosen)
    if crowded():
        evaluate((made._node,))
    return made


def _now(file: Any, nbytes: int, shape: tuple[int, ...], stored: np.dtype, kind: Dtype) -> array:
    """The next `nbytes` of a file object."""
    data = file.read(nbytes)
    if len(data) != nbytes:
        raise RuntimeError(
            f"[load] The file ends {nbytes - len(data)} bytes before the array of shape {shape}; get it anew."
        )
    values = np.frombuffer(data, stored).astype(stored.newbyteorder("="), copy=False)
    if kind is dtypes.bool_:
        values = values.view(np.uint8) != 0
    return wrap(from_host(values.reshape(shape), kind))


def _load_npy(file: Any, stream: Any) -> array:
    from outlive.io.npy import npy_region, read_header
    from outlive.io.regions import OpenFile

    if _is_path(file):
        header, region = npy_region(OpenFile(file))
        return _of_npy(header, region, stream)
    _check_readable(file)
    start = file.tell()
    header = read_header(file.read(1 << 16), getattr(file, "name", "The file object"))
    file.seek(start + header.offset)
    shape = header.shape[::-1] if header.fortran_order else header.shape
    made = _now(file, header.nbytes, shape, header.stored, dtype_by_name(header.dtype))
    return transpose(made) if header.fortran_order else made


def _of_npy(header: Any, region: Any, stream: Any) -> array:
    shape = header.shape[::-1] if header.fortran_order else header.shape
    made = _lazy(region, shape, header.stored, dtype_by_name(header.dtype), stream)
    return transpose(made, stream=stream) if header.fortran_order else made


def _load_npz(file: Any, stream: Any) -> dict[str, array]:
    from outlive.io.errors import UserError
    from outlive.io.npy import npz_regions

    if not _is_path(file):
        _check_readable(file)
    try:
        regions = npz_regions(file)
    except OSError as error:
        raise UserError(
            f"Cannot open {file}: {error.strerror or error}; check the path and its permissions."
        ) from error
    made = {name: _of_npy(header, region, stream) for name, (header, region) in regions.items()}
    if not _is_path(file):
        evaluate([a._node for a in made.values()])  # the caller may close the file
    return made


def _load_safetensors(file: Any, stream: Any) -> tuple[dict[str, array], dict[str, str]]:
    from outlive.io.regions import FileRegion, OpenFile
    from outlive.io.safetensors import header_length, read_header

    if _is_path(file):
        opened = OpenFile(file)
        length = header_length(opened.read(0, 8), opened.size, opened.path)
        entries, metadata = read_header(opened.read(8, length), opened.size, opened.path)
        return {
            name: _lazy(FileRegion(opened, e.offset), e.shape, e.stored, dtype_by_name(e.dtype), stream)
            for name, e in entries.items()
        }, metadata
    _check_readable(file)
    where, start = getattr(file, "name", "The file object"), file.tell()
    size = file.seek(0, os.SEEK_END) - start
    file.seek(start)
    entries, metadata = read_header(file.read(header_length(file.read(8), size, where)), size, where)
    made = {}
    for name, e in entries.items():
        file.seek(start + e.offset)
        made[name] = _now(file, e.nbytes, e.shape, e.stored, dtype_by_name(e.dtype))
    return made, metadata


def _load_gguf(file: Any) -> tuple[dict[str, array], dict[str, Any]]:
    from outlive.io.gguf import DenseTensor, GGUFFile

    if not _is_path(file):
        raise ValueError("[load] GGUF files are read from a path, not from a file object.")
    made: dict[str, array] = {}
    with GGUFFile(file) as opened:
        for name in opened.tensors:
            tensor = opened.read(name)
            if isinstance(tensor, DenseTensor):
                loaded = wrap(from_host(tensor.data, dtype_by_name(tensor.dtype)))
                made[name] = loaded if tensor.decoded_from is None else loaded.astype(dtypes.float16)
            else:
                prefix = name.removesuffix(".weight")
                made[name] = array(tensor.weight)
                made[f"{prefix}.scales"], made[f"{prefix}.biases"] = array(tensor.scales), array(tensor.biases)
        metadata = {k: _metadata_value(v, opened.number_types.get(k)) for k, v in opened.metadata.items()}
    return made, metadata


def _metadata_value(value: Any, stored: np.dtype | None) -> Any:
    """Numbers as arrays in the file's own types; texts and lists of texts as they are."""
    if stored is not None:
        value = np.asarray(value, stored)
    if isinstance(value, np.ndarray):
        return wrap(from_host(value, dtypes.dtype_of_numpy(value.dtype)))
    return [_metadata_value(v, None) for v in value] if isinstance(value, list) else value


def save(file: Any, arr: array) -> None:
    """Write `arr` as a .npy file.

    `file`: a path (".npy" is added where it is missing), or an object with `write`. A path's old content is replaced when
    the new one is complete. Raises TypeError for what is no array, ValueError for what is no file, RuntimeError where the
    path cannot be written.

    >>> mx.save("w", mx.array([1, 2]))
    >>> mx.load("w.npy")
    array([1, 2], dtype=int32)
    """
    from outlive.io.npy import write_npy
    from outlive.io.writing import written

    values = _values("save", "arr", arr)
    with _file_errors("save"), written(_target("save", file), ".npy") as out:
        write_npy(out, values, arr.dtype.name)


def savez(file: Any, *args: array, **kwargs: array) -> None:
    """Write arrays as a .npz file: `args` under the names arr_0, arr_1, ..., `kwargs` under their own.

    `file` and errors as in `save`; also raises ValueError for a keyword that is the name of a positional array.

    >>> mx.savez("weights", mx.array([1, 2]), b=mx.array(0.5))
    >>> sorted(mx.load("weights.npz"))
    ['arr_0', 'b']
    """
    _save_npz("savez", file, args, kwargs, False)


def savez_compressed(file: Any, *args: array, **kwargs: array) -> None:
    """`savez` with each array compressed (deflate); arguments and errors as there.

    >>> mx.savez_compressed("weights", w=mx.zeros((1000,)))
    >>> mx.load("weights.npz")["w"].shape
    (1000,)
    """
    _save_npz("savez_compressed", file, args, kwargs, True)


def _save_npz(op: str, file: Any, args: tuple[array, ...], kwargs: dict[str, array], compressed: bool) -> None:
    from outlive.io.npy import write_npz
    from outlive.io.writing import written

    named = {f"arr_{i}": a for i, a in enumerate(args)}
    if both := named.keys() & kwargs.keys():
        raise ValueError(f"[{op}] {min(both)} names a positional array already; use another keyword.")
    named |= kwargs
    values = _all_values(op, named)
    with _file_errors(op), written(_target(op, file), ".npz") as out:
        write_npz(out, ((name, v, named[name].dtype.name) for name, v in values.items()), compressed)


def save_safetensors(file: Any, arrays: dict[str, array], metadata: dict[str, str] | None = None) -> None:
    """Write named arrays, and texts by name as `metadata`, as a .safetensors file.

    `file` and errors as in `save`; also raises ValueError for metadata that are not texts by name.

    >>> mx.save_safetensors("weights", {"w": mx.array([1, 2])}, {"made": "today"})
    >>> mx.load("weights.safetensors", return_metadata=True)
    ({'w': array([1, 2], dtype=int32)}, {'made': 'today'})
    """
    from outlive.io.safetensors import write_safetensors
    from outlive.io.writing import written

    op = "save_safetensors"
    metadata = {} if metadata is None else metadata
    if not isinstance(metadata, dict) or not all(isinstance(t, str) for pair in metadata.items() for t in pair):
        raise ValueError(f"[{op}] Metadata are a dictionary of texts by name.")
    tensors = {name: (v, arrays[name].dtype.name) for name, v in _all_values(op, arrays).items()}
    with _file_errors(op), written(_target(op, file), ".safetensors") as out:
        write_safetensors(out, tensors, metadata)


def save_gguf(file: Any, arrays: dict[str, array], metadata: dict[str, Any] | None = None) -> None:
    """Write named arrays and `metadata` (texts, lists of texts, or arrays of at most one axis, by name) as a .gguf file.

    `file`: a path (".gguf" is added where it is missing), replaced when the new content is complete. Raises ValueError
    for what is no path, TypeError for values of other types, RuntimeError for element types that GGUF does not have, for
    empty arrays, for metadata of more axes, and where the path cannot be written.

    >>> mx.save_gguf("weights", {"w": mx.array([1.0, 2.0])}, {"general.name": "tiny"})
    >>> mx.load("weights.gguf")
    {'w': array([1, 2], dtype=float32)}
    """
    from outlive.io.writing import replaced, with_suffix

    op = "save_gguf"
    if not _is_path(file):
        raise ValueError(f"[{op}] GGUF files are written to a path; got {type(file).__name__}.")
    from outlive.io.gguf_writer import write_gguf

    tensors = {name: (v, arrays[name].dtype.name) for name, v in _all_values(op, arrays).items()}
    values = {key: _metadata_of(op, key, value) for key, value in (metadata or {}).items()}
    with _file_errors(op), replaced(with_suffix(file, ".gguf")) as path:
        write_gguf(path, tensors, values)


def _metadata_of(op: str, key: str, value: Any) -> Any:
    if isinstance(value, str) or (isinstance(value, list) and all(isinstance(v, str) for v in value)):
        return value
    if type(value) is array:
        if value.dtype is dtypes.bfloat16:
            raise ValueError(f"[{op}] GGUF metadata hold no bfloat16, the type of {key!r}; use float32.")
        return host_view(value)
    raise TypeError(
        f"[{op}] Metadata {key!r} have the type {type(value).__name__}; use a text, a list of texts, or an array."
    )


def _target(op: str, file: Any) -> Any:
    if not _is_path(file) and not hasattr(file, "write"):
        raise ValueError(f"[{op}] Expected a path, or a file object opened for writing; got {type(file).__name__}.")
    return file


def _values(op: str, name: Any, value: Any) -> np.ndarray:
    if type(value) is not array:
        raise TypeError(f"[{op}] Expected an array for {name!r}; got {type(value).__name__}.")
    return host_view(value)


def _all_values(op: str, arrays: dict[str, array]) -> dict[str, np.ndarray]:
    """The computed elements of named arrays, in storage form; every name and value is checked before anything runs."""
    for name, value in arrays.items():
        if not isinstance(name, str):
            raise TypeError(f"[{op}] Names of arrays are texts; got {name!r}.")
        if type(value) is not array:
            raise TypeError(f"[{op}] Expected an array for {name!r}; got {type(value).__name__}.")
    evaluate([a._node for a in arrays.values()])
    return {name: host_view(a) for name, a in arrays.items()}


__all__ = ["load", "save", "save_gguf", "save_safetensors", "savez", "savez_compressed"]
