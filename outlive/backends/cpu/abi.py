"""The contract between the word list, the executor and a compiled kernel.

A record is `[kernel_address, nargs, parts, arg0 ... arg(nargs-1)]`, all 64-bit words. The arguments are operand
pointers (reads, then writes, in order), then static words: shapes, strides in elements, sizes, and float64 bit
patterns of scalars. A kernel is `int64_t kernel(const int64_t *args, int64_t part, int64_t parts)`: it does its
share of the OUTPUT elements, so that no result depends on `parts`, and returns 0, or a nonzero code when it
failed. `parts` in the record is 0 for work not worth sharing, otherwise the largest number of shares worth making;
with SHARE_PER_THREAD added, at most one a thread (each share repeats some preparation).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

HEADER_WORDS = 3
SHARE_PER_THREAD = 1 << 32


@dataclass(frozen=True)
class CpuKernel:
    """A compiled kernel. name: unique, says op, types and variant. address: of its entry. order_class: how one output
    element is summed (kernels of one class give the same bits). guard: how its memory accesses are tested. failure: what
    a nonzero return says, in words."""

    name: str
    address: int
    order_class: str
    guard: str = "native"
    failure: str = "the kernel reported an error"


Selection = tuple[CpuKernel, int, tuple[int, ...]]
"""What a route hands out: the kernel, the `parts` word, and the static words."""


def float_word(value: float) -> int:
    """The bits of a float64 as a signed 64-bit word."""
    return struct.unpack("<q", struct.pack("<d", value))[0]


def record(kernel: CpuKernel, parts: int, pointers: list[int], static_words: tuple[int, ...]) -> list[int]:
    """The words of one record."""
    return [kernel.address, len(pointers) + len(static_words), parts, *pointers, *static_words]


Emitter = Callable[[], str]
