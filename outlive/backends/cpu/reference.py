"""Runs reference kernels on NumPy (or CuPy) views: half-precision operands are raised to float32 on entry, results rounded once on exit."""

from __future__ import annotations

from typing import Any

import numpy as np

BFLOAT16_QUIET_NAN = 0x7FC0


def bfloat16_to_float32(bits: Any) -> Any:
    """float32 values of bfloat16 bit patterns (uint16), exact."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def float32_to_bfloat16(values: Any, xp: Any = np) -> Any:
    """bfloat16 bit patterns (uint16) of float32 values, rounded to nearest even; NaN stays NaN. `xp`: the library of `values`."""
    values = xp.ascontiguousarray(values, np.float32).reshape(values.shape)
    bits = values.view(np.uint32)
    rounded = ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype(np.uint16)
    sign = ((bits >> 16) & 0x8000).astype(np.uint16)
    return xp.where(xp.isnan(values), sign | np.uint16(BFLOAT16_QUIET_NAN), rounded)


def raised(array: np.ndarray, dtype: Any) -> np.ndarray:
    """An array that a reference kernel computes with: float32 for half types, itself otherwise."""
    if not dtype.half:
        return array
    if dtype.name == "bfloat16":
        values = bfloat16_to_float32(array)
        return values if array.shape else values[...]  # NumPy's arithmetic makes a scalar of an array without axes
    return array.astype(np.float32)


def stored(array: Any, dtype: Any, xp: Any = np) -> Any:
    """Values in the storage form of `dtype`, rounded once."""
    if dtype.name == "bfloat16":
        return float32_to_bfloat16(array, xp)
    return array.astype(dtype.storage)


def run_reference(kernel: Any, reads: tuple[Any, ...], writes: tuple[Any, ...], xp: Any = np) -> None:
    """Run `kernel.reference` over operands with the library `xp`. `kernel.moves_bits` kernels see storage itself: they only move elements.

    `kernel.between_devices` kernels see their inputs as operands, which live on other devices.
    """
    if getattr(kernel, "between_devices", False):
        kernel.reference(xp, reads, tuple(o.view for o in writes))
        return
    with np.errstate(all="ignore"):
        if getattr(kernel, "moves_bits", False):
            kernel.reference(xp, tuple(o.view for o in reads), tuple(o.view for o in writes))
            return
        results = [xp.empty(o.layout.shape, np.float32) if o.layout.dtype.half else o.view for o in writes]
        kernel.reference(xp, tuple(raised(o.view, o.layout.dtype) for o in reads), tuple(results))
        for operand, result in zip(writes, results, strict=True):
            if operand.layout.dtype.half:
                operand.view[...] = stored(result, operand.layout.dtype, xp)
