"""The Hadamard transform of the last axis, for lengths m * 2^k with m in 1, 12, 20, 28.

The matrix is the Kronecker product of a Hadamard matrix of order m with Sylvester's of order 2^k. Those of orders 12,
20 and 28 are in N. J. A. Sloane's library of Hadamard matrices ("had.12", "had.20.will" and "had.28.will"); the last
two consist of circulant blocks.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from outlive.graph.array import apply, array
from outlive.graph.primitive import Primitive
from outlive.ops.common import as_array, dtypes
from outlive.ops.matmul import cast
from outlive.ops.shape import moveaxis

_ROWS_12 = """
+-++++++++++ --+-+-+-+-+- +++-++----++ +---+--+-++- +++++-++---- +-+---+--+-+
++--+++-++-- +--++---+--+ ++----+++-++ +--+-++---+- ++++----+++- +-+--+-++---
"""

_CIRCULANTS = {
    20: "+---- +---- ++--+ +-++- -++++ +---- -+--+ ++--+ --++- +-++- +---- -++++ -+--+ --++- +---- +----",
    28: """+------ ++----+ +-+--+- +--++-- --++++- +------ -++--++ +-+--+- -+-++-+ +--++-- +------ --++++- -++--++ -+-++-+
           ++----+ +------""",
}
"""First rows of the sixteen circulant blocks, block row by block row."""


def _signs(text: str) -> np.ndarray:
    return np.array([1 if sign == "+" else -1 for sign in text], np.int8)


@functools.cache
def small_matrix(order: int) -> np.ndarray:
    """The Hadamard matrix of order 12, 20 or 28, as int8."""
    if order == 12:
        return np.stack([_signs(row) for row in _ROWS_12.split()])
    blocks = []
    for text in _CIRCULANTS[order].split():
        first = _signs(text)
        blocks.append(np.stack([np.roll(first, shift) for shift in range(len(text))]))
    return np.block([blocks[i : i + 4] for i in range(0, 16, 4)])


class Hadamard(Primitive):
    """scale * H x along the last axis, H of order `order` * 2^k; H transposed where `transposed`."""

    __slots__ = ("order", "scale", "transposed")
    name = "hadamard_transform"
    donates = False
    order: int
    scale: float
    transposed: bool

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        x, out = reads[0], writes[0]
        width = x.shape[-1] // self.order
        made = x.reshape(-1, self.order, width)
        step = 1
        while step < width:
            pairs = made.reshape(-1, width // (2 * step), 2, step)
            even, odd = pairs[:, :, 0], pairs[:, :, 1]
            made = xp.stack([even + odd, even - odd], axis=2).reshape(-1, self.order, width)
            step *= 2
        if self.order > 1:
            matrix = xp.asarray(small_matrix(self.order)).astype(x.dtype)
            made = xp.matmul(matrix.T if self.transposed else matrix, made)
        out[...] = made.reshape(x.shape) * x.dtype.type(self.scale)

    def _again(self, a: array, transposed: bool) -> array:
        return apply(Hadamard.make(self.order, self.scale, transposed), (a,), a._node.layout)

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        return [self._again(cotangents[0], not self.transposed)]

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        return [self._again(tangents[0], self.transposed)]

    def vmap(self, inputs: Any, axes: Any) -> Any:
        return [self._again(moveaxis(inputs[0], axes[0], 0), self.transposed)], [0]


def hadamard_transform(a: Any, scale: float | None = None, stream: Any = None) -> array:
    """The Hadamard transform of the last axis of `a`, times `scale` (None: 1 / sqrt(length)).

    The length must be m * 2^k with m in 1, 12, 20, 28. Integers become float32; half types are summed in float32.
    Raises ValueError for other lengths, empty arrays and complex types.

    >>> mx.hadamard_transform(mx.array([1.0, 2.0, 3.0, 4.0]), scale=1.0)
    array([10, -2, -4, 0], dtype=float32)
    """
    a = as_array(a)
    if a.dtype is dtypes.complex64:
        raise ValueError("[hadamard_transform] Needs a real array; transform real and imaginary parts.")
    if not a.size:
        raise ValueError(f"[hadamard_transform] Needs elements; got shape {a.shape}.")
    n = a.shape[-1] if a.ndim else 1
    orders = [m for m in (1, 12, 20, 28) if n % m == 0 and (n // m) & (n // m - 1) == 0]
    if not orders:
        raise ValueError(f"[hadamard_transform] The length must be m * 2^k with m in 1, 12, 20, 28; got {n}.")
    kind = a.dtype if a.dtype.inexact else dtypes.float32
    factor = 1 / math.sqrt(n) if scale is None else float(scale)
    a = cast(a, kind)
    return apply(Hadamard.make(orders[0], factor, False), (a,), a._node.layout, stream)


__all__ = ["hadamard_transform"]
