"""Checks of an op's rules: derivatives against finite differences in float64, batching against a loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import outlive.core as mx

STEP = 1e-5
TOLERANCE = 1e-6


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    """float64 numbers of a normal distribution."""
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def _values(made: Any) -> list[np.ndarray]:
    outputs = made if isinstance(made, (list, tuple)) else [made]
    return [np.array(a, dtype=np.float64) for a in outputs]


def _pairs(a: Sequence[np.ndarray], b: Sequence[np.ndarray]) -> float:
    return float(sum((x * y).sum() for x, y in zip(a, b, strict=True)))


def check_derivatives(function: Callable[..., Any], *inputs: np.ndarray, tolerance: float = TOLERANCE) -> None:
    """vjp and jvp of `function` at `inputs` agree with central differences along a random direction."""
    primals = [mx.array(x, dtype=mx.float64) for x in inputs]
    outputs = _values(function(*primals))
    directions = [numbers(*x.shape, seed=1 + i) for i, x in enumerate(inputs)]
    cotangents = [numbers(*y.shape, seed=11 + i) for i, y in enumerate(outputs)]

    def moved(by: float) -> list[np.ndarray]:
        shifted = [mx.array(x + by * d, dtype=mx.float64) for x, d in zip(inputs, directions, strict=True)]
        return _values(function(*shifted))

    difference = [(a - b) / (2 * STEP) for a, b in zip(moved(STEP), moved(-STEP), strict=True)]
    scale = max(1.0, max((float(np.abs(d).max()) for d in difference if d.size), default=0.0))
    tangents = [mx.array(d, dtype=mx.float64) for d in directions]
    _, forward = mx.jvp(function, primals, tangents)
    for ours, theirs in zip(_values(forward), difference, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance * scale)
    _, backward = mx.vjp(function, primals, [mx.array(c, dtype=mx.float64) for c in cotangents])
    for ours, x in zip(_values(backward), inputs, strict=True):
        assert ours.shape == x.shape
    found, wanted = _pairs(_values(backward), directions), _pairs(cotangents, difference)
    size = max(1.0, sum(float(np.abs(c).sum()) for c in cotangents) * scale)
    assert abs(found - wanted) <= tolerance * size, f"vjp gives {found}, differences give {wanted}"


def check_batching(
    function: Callable[..., Any], *inputs: np.ndarray, axes: Sequence[int | None], tolerance: float = 1e-5
) -> None:
    """vmap of `function` over `axes` of `inputs` equals calling it for each place of the batch."""
    size = next(x.shape[axis] for x, axis in zip(inputs, axes, strict=True) if axis is not None)
    batched = mx.vmap(function, in_axes=tuple(axes))(*[mx.array(x) for x in inputs])
    rows = []
    for place in range(size):
        row = [x if axis is None else np.take(x, place, axis) for x, axis in zip(inputs, axes, strict=True)]
        rows.append(_values(function(*[mx.array(x) for x in row])))
    for ours, theirs in zip(_values(batched), zip(*rows, strict=True), strict=True):
        np.testing.assert_allclose(ours, np.stack(theirs), rtol=tolerance, atol=tolerance)


def batch_axes(sizes: list[tuple[int, ...]]) -> list[list[int | None]]:
    """Batch axes in front, at the end, and of one operand alone."""
    count = len(sizes)
    found: list[list[int | None]] = [[0] * count, [len(s) for s in sizes]]
    return found if count == 1 else [*found, [0, *[None] * (count - 1)], [*[None] * (count - 1), 0]]


def batched(sizes: list[tuple[int, ...]], axes: list[int | None]) -> list[np.ndarray]:
    """float32 inputs with a batch of three along `axes`."""
    made = []
    for size, axis in zip(sizes, axes, strict=True):
        shape = list(size)
        if axis is not None:
            shape.insert(axis, 3)
        made.append(numbers(*shape, seed=7).astype(np.float32))
    return made
