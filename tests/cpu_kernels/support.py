"""Runs one compiled kernel on NumPy arrays, outputs poisoned, as the device would."""
from __future__ import annotations

from array import array
from dataclasses import dataclass
from types import SimpleNamespace

import ml_dtypes
import numpy as np

from outlive.backends.cpu import executor, kernels
from outlive.backends.cpu.abi import record

NAMES = {np.dtype(ml_dtypes.bfloat16): "bfloat16"}
BF16 = ml_dtypes.bfloat16


@dataclass(frozen=True)
class Layout:
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: SimpleNamespace
    size: int
    contiguous: bool


def layout_of(a: np.ndarray) -> Layout:
    strides = tuple(s // a.itemsize for s in a.strides)
    name = NAMES.get(a.dtype, a.dtype.name)
    return Layout(a.shape, strides, SimpleNamespace(name=name), a.size, a.flags.c_contiguous)


def operand(a: np.ndarray | None) -> SimpleNamespace | None:
    return None if a is None else SimpleNamespace(layout=layout_of(a))


def poisoned(shape: tuple[int, ...], dtype: object) -> np.ndarray:
    """Fresh memory full of NaN (all bits set)."""
    size = int(np.prod(shape))
    return np.full(size * np.dtype(dtype).itemsize, 255, np.uint8).view(dtype).reshape(shape)


def words_of(op: str, reads: list, writes: list, **params: object) -> list[int] | None:
    chosen = kernels.lookup(op, [operand(r) for r in reads], [operand(w) for w in writes], SimpleNamespace(**params))
    if chosen is None:
        return None
    kernel, parts, static = chosen
    return record(kernel, parts, [a.ctypes.data for a in (*reads, *writes) if a is not None], static)


def run(op: str, reads: list, writes: list, *, share: int | None = None, **params: object) -> list:
    """Runs `op` and returns the writes. share: overrides how many parts are made. Fails when no kernel serves it."""
    words = words_of(op, reads, writes, **params)
    assert words is not None, f"no compiled kernel serves {op}"
    if share is not None:
        words[2] = share
    words = array("q", words)
    assert executor.run(words, len(words)) == -1
    return writes
