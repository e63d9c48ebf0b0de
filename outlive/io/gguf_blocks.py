"""Blocks of GGUF's quantized types, as affine groups in the packing that ``quantized_matmul`` takes.

A block is 32 consecutive elements of a row. As an affine group an element is ``scale * q + bias`` with an unsigned q:

    ======  ===========================  ======================  ====  ============  ===========
    type    in the block                 element                 bits  q             bias
    ======  ===========================  ======================  ====  ============  ===========
    Q4_0    d, 16 bytes                  d * (n - 8)             4     n             -8 d
    Q4_1    d, m, 16 bytes               d * n + m               4     n             m
    Q8_0    d, 32 signed bytes           d * n                   8     n + 128       -128 d
    ======  ===========================  ======================  ====  ============  ===========

d and m are float16. Multiplying by a power of two is exact, so scale and bias stay float16 and the affine value is the
file's own, bit for bit; only where -8 d or -128 d passes float16's range is the tensor given float32 scales and biases.

GGUF's 4-bit byte j holds elements j (low half) and j + 16 (high half). Here element i of a row takes bits
``[bits * i, bits * (i + 1))`` of its row of 32-bit words, the lowest first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from numpy.typing import NDArray

GROUP_SIZE = 32
_SLAB_BLOCKS = 1 << 14  # half a million elements: temporaries stay near 1 MB and inside the second-level cache


@dataclass(frozen=True, slots=True)
class AffineTensor:
    """A quantized tensor of ``shape``: ``scales * q + biases`` for each group along the last axis.

    ``weight`` is uint32 of shape ``(*shape[:-1], shape[-1] * bits // 32)``; ``scales`` and ``biases`` are float16 (or
    float32, see above) of shape ``(*shape[:-1], shape[-1] // group_size)``.
    """

    shape: tuple[int, ...]
    bits: int
    group_size: int
    weight: NDArray[np.uint32]
    scales: NDArray[np.floating]
    biases: NDArray[np.floating]


@dataclass(frozen=True, slots=True)
class _AffineFormat:
    """How the blocks of one type become groups: ``bias = -zero_point * d``, or stored (``zero_point`` None)."""

    bits: int
    zero_point: int | None
    repack: Callable[[NDArray[np.uint8]], NDArray[np.uint8]]


def _repack_nibbles(quants: NDArray[np.uint8]) -> NDArray[np.uint8]:
    packed = np.empty_like(quants)
    low, high = quants & 15, quants >> 4
    packed[:, :8] = low[:, 0::2] | (low[:, 1::2] << 4)
    packed[:, 8:] = high[:, 0::2] | (high[:, 1::2] << 4)
    return packed


def _shift_signed_bytes(quants: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return quants ^ np.uint8(0x80)  # in two's complement, adding 128 is flipping the sign bit


_FORMATS = {
    GGMLQuantizationType.Q4_0: _AffineFormat(4, 8, _repack_nibbles),
    GGMLQuantizationType.Q4_1: _AffineFormat(4, None, _repack_nibbles),
    GGMLQuantizationType.Q8_0: _AffineFormat(8, 128, _shift_signed_bytes),
}


def is_affine(kind: GGMLQuantizationType) -> bool:
    """Whether tensors of this type stay quantized."""
    return kind in _FORMATS


def slabs(count: int) -> Iterator[slice]:
    """``count`` blocks in pieces, so that temporaries stay small however large the tensor is."""
    for begin in range(0, count, _SLAB_BLOCKS):
        yield slice(begin, min(begin + _SLAB_BLOCKS, count))


def affine_tensor(raw: NDArray[np.uint8], kind: GGMLQuantizationType, shape: tuple[int, ...]) -> AffineTensor:
    """The blocks ``raw`` (bytes, flat) of a tensor of ``shape`` as affine groups; reads each byte of ``raw`` once."""
    form = _FORMATS[kind]
    blocks = raw.reshape(-1, GGML_QUANT_SIZES[kind][1])
    count = len(blocks)
    first_quant = 2 if form.zero_point is not None else 4
    weight = np.empty((count, GROUP_SIZE * form.bits // 8), np.uint8)
    scales, biases = np.empty(count, np.float16), np.empty(count, np.float16)
    for part in slabs(count):
        slab = np.ascontiguousarray(blocks[part])
        weight[part] = form.repack(slab[:, first_quant:])
        scales[part] = slab[:, 0:2].copy().view("<f2")[:, 0]
        if form.zero_point is None:
            biases[part] = slab[:, 2:4].copy().view("<f2")[:, 0]
    if form.zero_point is not None:
        scales, biases = _with_zero_point(scales, form.zero_point)
    rows = shape[:-1]
    groups = (*rows, shape[-1] // GROUP_SIZE)
    words = weight.view("<u4").reshape(*rows, shape[-1] * form.bits // 32)
    return AffineTensor(shape, form.bits, GROUP_SIZE, words, scales.reshape(groups), biases.reshape(groups))


def _with_zero_point(scales: NDArray[np.float16], zero_point: int) -> tuple[NDArray, NDArray]:
    """Scales and ``-zero_point * scales``, in float16 where that is exact and else in float32."""
    exact = scales.astype(np.float32) * np.float32(-zero_point)
    with np.errstate(over="ignore"):
        biases = exact.astype(np.float16)
    if np.array_equal(np.isfinite(biases), np.isfinite(exact)):
        return scales, biases
    return scales.astype(np.float32), exact
