"""What the tests of transforms share: values to NumPy, and derivatives by differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

import outlive.core as mx


def values(a: mx.array) -> np.ndarray:
    """The elements of an array, copied."""
    return np.array(a.astype(mx.float32) if a.dtype is mx.bfloat16 else a)


def array64(values: object) -> mx.array:
    """A float64 array of host values."""
    return mx.array(np.asarray(values, np.float64), dtype=mx.float64)


def differences(function: Callable[..., mx.array], arguments: Sequence[np.ndarray], index: int) -> np.ndarray:
    """The gradient of a scalar float64 function by one argument, by central differences of fourth order."""
    at = [np.array(a, np.float64) for a in arguments]
    step = 1e-3
    gradient = np.zeros_like(at[index])
    for place in np.ndindex(at[index].shape):

        def shifted(by: float, place: tuple[int, ...] = place) -> float:
            moved = [a.copy() for a in at]
            moved[index][place] += by
            return float(function(*[array64(m) for m in moved]).item())

        near, far = shifted(step) - shifted(-step), shifted(2 * step) - shifted(-2 * step)
        gradient[place] = (8 * near - far) / (12 * step)
    return gradient
