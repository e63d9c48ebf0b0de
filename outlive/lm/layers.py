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


class Experts(Protocol):
    """Maps rows (..., 1, inputs), each through the matrix that its index chooses, to (*indices.shape, 1, outputs).

    ``ascending`` says that the indices ascend: a hint that changes no result.
    """

    def __call__(self, x: mx.array, indices: mx.array, ascending: bool) -> mx.array: ...


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
class DenseExperts:
    """A stack of matrices of shape (experts, outputs, inputs)."""

    weight: mx.array
    dtype: mx.Dtype

    def __call__(self, x: mx.array, indices: mx.array, ascending: bool) -> mx.array:
        weight = self.weight.astype(self.dtype).swapaxes(-1, -2)
        return mx.gather_mm(x, weight, rhs_indices=indices, sorted_indices=ascending)


@dataclass(frozen=True, slots=True)
class QuantizedArrays:
    """What ``mx.quantize`` makes of an array of shape (..., outputs, inputs), and with which parameters.

    ``biases`` is None in the modes that have none.
    """

    weight: mx.array
    scales: mx.array
    biases: mx.array | None
    group_size: int
    bits: int
    mode: str = "affine"

    @property
    def arrays(self) -> list[mx.array]:
        """Words, scales and biases, those that there are."""
        return [self.weight, self.scales] if self.biases is None else [self.weight, self.scales, self.biases]

    def dequantized(self, dtype: mx.Dtype) -> mx.array:
        """The values, in ``dtype``."""
        return mx.dequantize(
            self.weight, self.scales, self.biases, self.group_size, self.bits, self.mode, dtype=dtype
        )  # fmt: skip

    def product(self, x: mx.array) -> mx.array:
        """``x`` (..., inputs) times the transpose: (..., outputs)."""
        return mx.quantized_matmul(
            x, self.weight, self.scales, self.biases, transpose=True, group_size=self.group_size, bits=self.bits, mode=self.mode
        )  # fmt: skip

    def rows(self, indices: mx.array, dtype: mx.Dtype) -> mx.array:
        """Chosen rows, dequantized: gathered first, so the table is never expanded."""
        scales, biases = self.scales[indices], self.biases
        if biases is not None:
            # Widening the few gathered scales first keeps the file's own values: scale * q + bias is not float16's.
            scales, biases = scales.astype(dtype), biases[indices].astype(dtype)
        gathered = QuantizedArrays(self.weight[indices], scales, biases, self.group_size, self.bits, self.mode)
        return gathered.dequantized(dtype)


@dataclass(frozen=True, slots=True)
class QuantizedMatrix:
    """A matrix of shape (outputs, inputs) in groups along the inputs, kept quantized."""

    arrays: QuantizedArrays
    bias: mx.array | None = None

    def __call__(self, x: mx.array) -> mx.array:
        y = self.arrays.product(x)
        return y if self.bias is None else y + self.bias


@dataclass(frozen=True, slots=True)
class QuantizedEmbedding:
    """Rows of a quantized table."""

    arrays: QuantizedArrays
    dtype: mx.Dtype

    def __call__(self, ids: mx.array) -> mx.array:
        return self.arrays.rows(ids, self.dtype)

    def as_linear(self, x: mx.array) -> mx.array:
        return self.arrays.product(x)


@dataclass(frozen=True, slots=True)
class QuantizedExperts:
    """A stack of matrices of shape (experts, outputs, inputs), kept quantized."""

    arrays: QuantizedArrays

    def __call__(self, x: mx.array, indices: mx.array, ascending: bool) -> mx.array:
        held = self.arrays
        return mx.gather_qmm(
            x, held.weight, held.scales, held.biases, rhs_indices=indices, transpose=True, group_size=held.group_size,
            bits=held.bits, mode=held.mode, sorted_indices=ascending,
        )  # fmt: skip
