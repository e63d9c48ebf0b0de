"""The tensors of a model as layers: each is asked for by name and shape, and each must be asked for.

Names are those of Hugging Face's checkpoints (``model.layers.0.self_attn.q_proj``); a source that writes them otherwise
translates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import outlive.core as mx
from outlive.lm.errors import ModelError
from outlive.lm.layers import (
    DenseEmbedding,
    DenseExperts,
    DenseMatrix,
    Embedding,
    Experts,
    Linear,
    QuantizedArrays,
    QuantizedEmbedding,
    QuantizedExperts,
    QuantizedMatrix,
)
from outlive.lm.progress import Progress
from outlive.lm.quantization import Quantization

Stored = mx.array | QuantizedArrays


class TensorSource(Protocol):
    """Where tensors come from. ``where`` begins every error; ``decoded`` counts tensors by type that did not stay quantized."""

    where: str
    decoded: dict[str, int]

    def __contains__(self, name: str) -> bool: ...

    def read(self, name: str, shape: tuple[int, ...], quantize: Quantization | None) -> Stored:
        """The tensor, as it is stored, or quantized while it is read.

        Raises:
            ModelError: if it is missing, or has another shape or a type that is not one for weights.
        """
        ...

    def read_experts(self, block: str, which: str, shape: tuple[int, ...], quantize: Quantization | None) -> Stored:
        """The matrices ``which`` of all experts of ``block``, stacked: shape (experts, outputs, inputs)."""
        ...

    def unused(self) -> set[str]:
        """Names, as the source writes them, that were not read."""
        ...


class Weights:
    """Reads tensors one at a time; activations are of ``dtype``, matrices are quantized if ``quantize`` says so.

    ``seen``, where given, is called with each tensor's name (without ``.weight``) and value: a conversion writes them.

    Raises:
        ModelError: from each getter, if the tensor is missing or has another shape or an unsuitable type.
    """

    def __init__(
        self,
        source: TensorSource,
        dtype: mx.Dtype,
        quantize: Quantization | None = None,
        seen: Callable[[str, Stored], None] | None = None,
    ) -> None:
        self._source = source
        self._dtype = dtype
        self._quantize = quantize
        self._seen = seen

    def __contains__(self, name: str) -> bool:
        return name in self._source

    def vector(self, name: str, length: int) -> mx.array:
        """A vector in the activations' type."""
        stored = self._source.read(name, (length,), None)
        if isinstance(stored, QuantizedArrays):
            raise ModelError(f"{self._source.where}: tensor {name!r} is quantized where a plain vector is needed")
        self._show(name.removesuffix(".weight"), stored)
        return stored.astype(self._dtype)

    def linear(self, name: str, outputs: int, inputs: int, *, biased: bool | None = None, keep: bool = False) -> Linear:
        """The layer ``name``: its matrix ``name.weight`` of shape (outputs, inputs), its bias ``name.bias`` if any.

        ``biased`` demands or forbids the bias; ``keep`` leaves the matrix as it is stored.
        """
        stored = self._matrix(name, (outputs, inputs), keep)
        has_bias = f"{name}.bias" in self if biased is None else biased
        bias = self.vector(f"{name}.bias", outputs) if has_bias else None
        if isinstance(stored, QuantizedArrays):
            return QuantizedMatrix(stored, bias)
        return DenseMatrix(stored, self._dtype, bias)

    def embedding(self, name: str, tokens: int, dims: int) -> Embedding:
        """The table ``name.weight`` of shape (tokens, dims)."""
        stored = self._matrix(name, (tokens, dims), False)
        if isinstance(stored, QuantizedArrays):
            return QuantizedEmbedding(stored, self._dtype)
        return DenseEmbedding(stored, self._dtype)

    def experts(self, block: str, which: str, count: int, outputs: int, inputs: int) -> Experts:
        """The matrices ``which`` of the experts of ``block``, each of shape (outputs, inputs)."""
        wanted = self._quantize if self._quantize and self._quantize.fits(inputs) else None
        stored = self._source.read_experts(block, which, (count, outputs, inputs), wanted)
        self._show(f"{block}.switch_mlp.{which}", stored)
        if isinstance(stored, QuantizedArrays):
            return QuantizedExperts(stored)
        return DenseExperts(stored, self._dtype)

    def finish(self, family: str) -> None:
        """Refuse tensors that nobody asked for: a model computed without them would answer, but wrongly."""
        if unused := self._source.unused():
            raise ModelError(
                f"{self._source.where}: tensor {min(unused)!r} (one of {len(unused)}) has no place in the {family} family; "
                "this variant of the architecture is not supported yet"
            )

    def note_decoded(self, progress: Progress) -> None:
        """Say, in a line, which tensors did not stay quantized."""
        for kind, count in sorted(self._source.decoded.items()):
            progress.note(f"{count} tensors of type {kind} were decoded to float32 (this type is not kept quantized)")

    def _matrix(self, name: str, shape: tuple[int, int], keep: bool) -> Stored:
        wanted = self._quantize if self._quantize and not keep and self._quantize.fits(shape[1]) else None
        stored = self._source.read(f"{name}.weight", shape, wanted)
        self._show(name, stored)
        return stored

    def _show(self, name: str, stored: Stored) -> None:
        if self._seen is not None:
            self._seen(name, stored)
