"""The tensors of a model file as layers: each is asked for by name and shape, and each must be asked for."""

from __future__ import annotations

from collections.abc import Callable

import outlive.core as mx
from outlive.io.gguf import DenseTensor, GGUFFile
from outlive.io.gguf_blocks import AffineTensor
from outlive.lm.errors import ModelError
from outlive.lm.layers import DenseEmbedding, DenseMatrix, Embedding, Linear, QuantizedEmbedding, QuantizedMatrix
from outlive.lm.progress import Progress


class Weights:
    """Reads tensors of one file one at a time; activations are of ``dtype``.

    Raises:
        ModelError: from each getter, if the tensor is missing or has another shape or an unsuitable type.
    """

    def __init__(self, file: GGUFFile, dtype: mx.Dtype, advance: Callable[[int], None]) -> None:
        self._file = file
        self._dtype = dtype
        self._advance = advance
        self._unused = set(file.tensors)
        self.decoded: dict[str, int] = {}  # GGUF type without an affine form -> number of tensors decoded to float32

    def __contains__(self, name: str) -> bool:
        return name in self._file.tensors

    def vector(self, name: str, length: int) -> mx.array:
        """A vector in the activations' type."""
        return self._dense_array(name, (length,)).astype(self._dtype)

    def linear(self, name: str, outputs: int, inputs: int) -> Linear:
        """The layer ``name``: its matrix ``name.weight`` of shape (outputs, inputs), its bias ``name.bias`` if any."""
        tensor = self._read(f"{name}.weight", (outputs, inputs))
        bias = self.vector(f"{name}.bias", outputs) if f"{name}.bias" in self else None
        if isinstance(tensor, AffineTensor):
            return QuantizedMatrix(*_affine_arrays(tensor), tensor.group_size, tensor.bits, bias)
        return DenseMatrix(_dense_array(tensor), self._dtype, bias)

    def embedding(self, name: str, tokens: int, dims: int) -> Embedding:
        """The table ``name.weight`` of shape (tokens, dims)."""
        tensor = self._read(f"{name}.weight", (tokens, dims))
        if isinstance(tensor, AffineTensor):
            return QuantizedEmbedding(*_affine_arrays(tensor), tensor.group_size, tensor.bits, self._dtype)
        return DenseEmbedding(_dense_array(tensor), self._dtype)

    def finish(self, family: str) -> None:
        """Refuse tensors that nobody asked for: a model computed without them would answer, but wrongly."""
        if self._unused:
            name = min(self._unused)
            raise ModelError(
                f"{self._file.path}: tensor {name!r} (one of {len(self._unused)}) has no place in the {family} family; "
                "this variant of the architecture is not supported yet"
            )

    def note_decoded(self, progress: Progress) -> None:
        """Say, in a line, which tensors did not stay quantized."""
        for kind, count in sorted(self.decoded.items()):
            progress.note(f"{count} tensors of type {kind} were decoded to float32 (this type is not kept quantized)")

    def _dense_array(self, name: str, shape: tuple[int, ...]) -> mx.array:
        tensor = self._read(name, shape)
        if isinstance(tensor, AffineTensor):
            raise ModelError(f"{self._file.path}: tensor {name!r} is quantized where a plain vector is needed")
        return _dense_array(tensor)

    def _read(self, name: str, shape: tuple[int, ...]) -> DenseTensor | AffineTensor:
        info = self._file.tensors.get(name)
        if info is None:
            raise ModelError(f"{self._file.path}: tensor {name!r} is missing; get or convert the file anew")
        if info.shape != shape:
            raise ModelError(
                f"{self._file.path}: tensor {name!r} has the shape {info.shape} where its metadata asks for {shape}; "
                "get or convert the file anew"
            )
        tensor = self._file.read(name)
        if isinstance(tensor, DenseTensor):
            if tensor.dtype not in ("float32", "float16", "bfloat16"):
                raise ModelError(
                    f"{self._file.path}: tensor {name!r} has the type {info.kind.name}, not one for weights"
                )
            if tensor.decoded_from is not None:
                self.decoded[tensor.decoded_from] = self.decoded.get(tensor.decoded_from, 0) + 1
        self._unused.discard(name)
        self._advance(info.nbytes)
        return tensor


def _dense_array(tensor: DenseTensor) -> mx.array:
    array = mx.array(tensor.data)
    return array.view(mx.bfloat16) if tensor.dtype == "bfloat16" else array


def _affine_arrays(tensor: AffineTensor) -> tuple[mx.array, mx.array, mx.array]:
    return mx.array(tensor.weight), mx.array(tensor.scales), mx.array(tensor.biases)
