"""The layers that families are made of: plain objects that hold arrays and are called with activations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import outlive.core as mx


class Linear(Protocol):
    """Maps activations of shape (..., inputs) to (..., outputs)."""

    def __call__(self, x: mx.array) -> mx.array: ...


class Embedding(Protocol):
    """Maps token ids of any shape to rows of shape (*ids.shape, dims); ``as_linear`` is its transpose, to logits."""

    def __call__(self, ids: mx.array) -> mx.array: ...

    def as_linear(self, x: mx.array) -> mx.array: ...


@dataclass(frozen=True, slots=True)
class DenseMatrix:
    """A matrix of shape (outputs, inputs): a linear layer, or an embedding of ``outputs`` tokens.

    Where its type is narrower than the activations', the product is taken in theirs.
    """

    weight: mx.array
    dtype: mx.Dtype
    bias: mx.array | None = None

    def __call__(self, x: mx.array) -> mx.array:
        y = x @ self.weight.astype(self.dtype).T
        return y if self.bias is None else y + self.bias


@dataclass(frozen=True, slots=True)
class DenseEmbedding:
    """Rows of a plain table, given in ``dtype``."""

    weight: mx.array
    dtype: mx.Dtype

    def __call__(self, ids: mx.array) -> mx.array:
        return self.weight[ids].astype(self.dtype)

    def as_linear(self, x: mx.array) -> mx.array:
        return x @ self.weight.astype(self.dtype).T


@dataclass(frozen=True, slots=True)
class QuantizedMatrix:
    """A matrix of shape (outputs, inputs) in affine groups along the inputs, kept quantized."""

    weight: mx.array
    scales: mx.array
    biases: mx.array
    group_size: int
    bits: int
    bias: mx.array | None = None

    def __call__(self, x: mx.array) -> mx.array:
        y = mx.quantized_matmul(
            x, self.weight, self.scales, self.biases, transpose=True, group_size=self.group_size, bits=self.bits
        )
        return y if self.bias is None else y + self.bias


@dataclass(frozen=True, slots=True)
class QuantizedEmbedding:
    """Rows of a quantized table: gathered first, then dequantized, so the table is never expanded."""

    weight: mx.array
    scales: mx.array
    biases: mx.array
    group_size: int
    bits: int
    dtype: mx.Dtype

    def __call__(self, ids: mx.array) -> mx.array:
        # Widening the few gathered scales first keeps the file's own values: scale * q + bias is not float16's.
        scales, biases = self.scales[ids].astype(self.dtype), self.biases[ids].astype(self.dtype)
        return mx.dequantize(self.weight[ids], scales, biases, group_size=self.group_size, bits=self.bits)

    def as_linear(self, x: mx.array) -> mx.array:
        return mx.quantized_matmul(
            x, self.weight, self.scales, self.biases, transpose=True, group_size=self.group_size, bits=self.bits
        )
