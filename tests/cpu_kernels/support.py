"""Runs one compiled kernel on NumPy arrays, outputs poisoned, as the device would."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from types import SimpleNamespace

import ml_dtypes
import numpy as np

from outlive.backends.cpu import executor, kernels
from outlive.backends.cpu.abi import record
from outlive.ops import codes
from outlive.ops.quantize import Scheme, decode

BF16 = ml_dtypes.bfloat16
HALF_ULP = {np.dtype(np.float32): 2.0**-24, np.dtype(BF16): 2.0**-8, np.dtype(np.float16): 2.0**-11}
FLOATS = (np.float32, BF16, np.float16)


@dataclass(frozen=True)
class Layout:
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: SimpleNamespace
    size: int
    contiguous: bool


def layout_of(a: np.ndarray) -> Layout:
    strides = tuple(s // a.itemsize for s in a.strides)
    return Layout(a.shape, strides, SimpleNamespace(name=a.dtype.name), a.size, a.flags.c_contiguous)


def operand(a: np.ndarray | None) -> SimpleNamespace | None:
    return None if a is None else SimpleNamespace(layout=layout_of(a))


def poisoned(shape: tuple[int, ...], dtype: object, pattern: int = 255) -> np.ndarray:
    """Fresh memory of one repeated byte; 255 makes every float a NaN."""
    size = int(np.prod(shape))
    return np.full(size * np.dtype(dtype).itemsize, pattern, np.uint8).view(dtype).reshape(shape)


def bits(a: np.ndarray) -> bytes:
    return np.ascontiguousarray(a).tobytes()


def words_of(op: str, reads: list, writes: list, **params: object) -> list[int] | None:
    """The record of a call, or None when no compiled kernel serves it."""
    chosen = kernels.lookup(op, [operand(r) for r in reads], [operand(w) for w in writes], SimpleNamespace(**params))
    if chosen is None:
        return None
    kernel, parts, static = chosen
    return record(kernel, parts, [a.ctypes.data for a in (*reads, *writes) if a is not None], static)


def run_words(words: list[int]) -> int:
    packed = array("q", words)
    return executor.run(packed, len(packed))


def run(op: str, reads: list, writes: list, *, parts: int | None = None, **params: object) -> list[np.ndarray]:
    """Runs `op` and returns the writes. parts: overrides how many shares are made. Fails when no kernel serves it."""
    words = words_of(op, reads, writes, **params)
    if not any(w.size for w in writes):
        assert words is None, f"{op} makes no elements: that is left to the reference kernel"
        return writes
    assert words is not None, f"no compiled kernel serves {op}"
    if parts is not None:
        words[2] = parts
    assert run_words(words) == -1
    return writes


def run_one(op: str, reads: list, shape: tuple[int, ...], dtype: object, **params: object) -> np.ndarray:
    """Runs `op` with one poisoned output."""
    return run(op, reads, [poisoned(shape, dtype)], **params)[0]


def float64(a: np.ndarray) -> np.ndarray:
    return a.astype(np.float64)


def assert_close(got: np.ndarray, want: np.ndarray, slack: float = 1e-6) -> None:
    """Equal within one unit in the last place of the output's type, plus `slack` relative to the largest element."""
    want = np.asarray(want, np.float64)
    size = np.where(np.isfinite(want), np.abs(want), 0)
    allowed = size * 2 * HALF_ULP[got.dtype] + slack * max(1e-30, float(size.max(initial=0)))
    found = float64(got)
    same = (found == want) | (np.isnan(found) & np.isnan(want))
    with np.errstate(invalid="ignore"):
        wrong = ~same & ~(np.abs(found - want) <= allowed)
    assert not wrong.any(), f"{wrong.sum()} of {wrong.size} differ, the first at {np.argwhere(wrong)[0]}"


def pack(q: np.ndarray, width: int) -> np.ndarray:
    """Integers below 2^width as 32-bit words, the first in the lowest bits."""
    rows, columns = q.shape
    per_word = 32 // width
    spread = q.reshape(rows, columns // per_word, per_word).astype(np.uint64)
    return (spread << (np.arange(per_word, dtype=np.uint64) * np.uint64(width))).sum(-1).astype(np.uint32)


@dataclass
class Quantized:
    """Random affine-quantized weights and their exact value in float64."""

    words: np.ndarray
    scales: np.ndarray
    biases: np.ndarray
    value: np.ndarray
    params: dict


FORMATS = (
    *(("affine", width, 64) for width in (1, 3, 5, 6)),
    ("mxfp4", 4, 32), ("mxfp8", 8, 32), ("nvfp4", 4, 16),
)  # fmt: skip


@dataclass
class Coded:
    """Random weights of any format; value: their exact values rounded to float32, by the reference decoder."""

    parts: list[np.ndarray]
    value: np.ndarray
    params: dict


def coded(rng: np.random.Generator, mode: str, width: int, group: int, shape: tuple[int, ...]) -> Coded:
    """Weights (..., rows, depth). Codes of every value but NaN; scales near 1."""
    *lead, depth = shape
    q = rng.integers(0, 2**width, shape).astype(np.uint8)
    groups = (*lead, depth // group)
    biases = None
    if mode == "affine":
        scales = (rng.random(groups) * 0.1 + 0.01).astype(np.float32)
        biases = (rng.standard_normal(groups) * 0.1).astype(np.float32)
    elif mode == "nvfp4":
        scales = rng.integers(0x30, 0x40, groups).astype(np.uint8)
    else:
        scales = rng.integers(124, 130, groups).astype(np.uint8)
        q = np.where(q & 0x7F == codes.FP8_NAN, 0, q).astype(np.uint8)
    words = codes.pack(np, q, width)
    value = float64(decode(np, words, scales, biases, Scheme(mode, group, width)))
    parts = [words, scales] if biases is None else [words, scales, biases]
    return Coded(parts, value, {"transpose": True, "bits": width, "group_size": group, "mode": mode})


def quantized(rng: np.random.Generator, rows: int, depth: int, width: int, group: int, dtype: object) -> Quantized:
    q = rng.integers(0, 2**width, (rows, depth))
    scales = (rng.random((rows, depth // group)) * 0.1 + 0.01).astype(dtype)
    biases = (-float64(scales) * 2 ** (width - 1) * (0.9 + 0.2 * rng.random(scales.shape))).astype(dtype)
    value = q * np.repeat(float64(scales), group, 1) + np.repeat(float64(biases), group, 1)
    return Quantized(
        pack(q, width), scales, biases, value, {"transpose": True, "bits": width, "group_size": group, "mode": "affine"}
    )
