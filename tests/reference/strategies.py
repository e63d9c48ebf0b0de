"""Hypothesis strategies for what an op may be given: shapes, element types, special values, and views of every kind."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.reference.wire import Array, bfloat16_bits

UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
SIGNED = ("int8", "int16", "int32", "int64")
INTEGERS = UNSIGNED + SIGNED
HALVES = ("float16", "bfloat16")
FLOATS = (*HALVES, "float32")
REALS = ("bool", *INTEGERS, *FLOATS)
NUMBERS = (*REALS, "complex64")

# Odd sizes, the borders of vectors and tiles, one, and none.
SIDES = (0, 1, 2, 3, 5, 7, 8, 9, 16, 17, 31, 33, 63, 65)
ELEMENTS_MAX = 4096

# The first are ordinary, so that examples shrink to them.
_SPECIAL = {
    "float16": (0.0, 1.0, -1.0, -0.0, 0.5, 65504.0, -65504.0, 6e-8, 6.1e-5, math.inf, -math.inf, math.nan),
    "bfloat16": (0.0, 1.0, -1.0, -0.0, 0.5, 3.38e38, -3.38e38, 1e-40, 1.2e-38, math.inf, -math.inf, math.nan),
    "float32": (0.0, 1.0, -1.0, -0.0, 0.5, 3.4e38, -3.4e38, 1e-45, 1.2e-38, math.inf, -math.inf, math.nan),
    "float64": (0.0, 1.0, -1.0, -0.0, 0.5, 1.7e308, -1.7e308, 5e-324, 2.3e-308, math.inf, -math.inf, math.nan),
}


@st.composite
def shapes(
    draw: st.DrawFn, *, rank_min: int = 0, rank_max: int = 4, side_min: int = 0, elements_max: int = ELEMENTS_MAX
) -> tuple[int, ...]:
    """Shapes from 0-d and empty to ``rank_max`` axes, with at most ``elements_max`` elements."""
    shape: list[int] = []
    for _ in range(draw(st.integers(rank_min, rank_max))):
        room = elements_max // max(1, math.prod(side for side in shape if side))
        shape.append(draw(st.sampled_from([side for side in SIDES if side_min <= side <= max(room, 1)])))
    return tuple(shape)


@st.composite
def broadcastable(draw: st.DrawFn, count: int = 2, **limits: int) -> tuple[tuple[int, ...], ...]:
    """``count`` shapes that broadcast together: leading axes left out, axes set to one."""
    full = draw(shapes(**limits))
    drawn = []
    for _ in range(count):
        kept = full[draw(st.integers(0, len(full))) if draw(st.booleans()) else 0 :]
        drawn.append(tuple(1 if draw(st.integers(0, 3)) == 3 else side for side in kept))
    drawn[draw(st.integers(0, count - 1))] = full
    return tuple(drawn)


def dtypes(names: tuple[str, ...] = NUMBERS) -> st.SearchStrategy[str]:
    """Names of element types."""
    return st.sampled_from(names)


@st.composite
def arrays(
    draw: st.DrawFn,
    dtype: str,
    shape: tuple[int, ...],
    *,
    special: bool = True,
    low: float = -10.0,
    high: float = 10.0,
    views: bool = True,
) -> Array:
    """An array of the given type and shape, often a view.

    Ordinary elements lie in [``low``, ``high``]; with ``special`` some are NaN, infinite, -0.0, subnormal or the
    extremes of the type. With ``views`` the array may be strided, reversed, transposed or broadcast from a smaller
    base.
    """
    base, steps = draw(_layouts(shape)) if views else (shape, ())
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    share = draw(st.sampled_from((0.0, 0.1, 1.0))) if special else 0.0
    return Array(dtype, _fill(generator, dtype, base, share, low, high), steps)


@st.composite
def _layouts(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[tuple[str, Any], ...]]:
    """A base shape and the views that lead from it to ``shape``."""
    kind = draw(st.sampled_from(("contiguous", "strided", "reversed", "transposed", "broadcast", "offset")))
    if kind == "contiguous" or not shape:
        return shape, ()
    if kind == "transposed":
        axes = tuple(draw(st.permutations(range(len(shape)))))
        return tuple(shape[axis] for axis in np.argsort(axes)), (("transpose", axes),)
    if kind == "broadcast":
        base = tuple(1 if side and draw(st.booleans()) else side for side in shape)
        return base, (("broadcast", shape),)
    axis = draw(st.integers(0, len(shape) - 1))
    side = shape[axis]
    if kind == "strided":
        step = draw(st.integers(2, 3))
        taken, base_side = slice(None, None, step), side * step
    elif kind == "reversed":
        taken, base_side = slice(None, None, -1), side
    else:
        start = draw(st.integers(1, 3))
        taken, base_side = slice(start, start + side), side + start + 1
    key = tuple(taken if at == axis else slice(None) for at in range(len(shape)))
    return (*shape[:axis], base_side, *shape[axis + 1 :]), (("index", key),)


def _fill(
    generator: np.random.Generator, dtype: str, shape: tuple[int, ...], share: float, low: float, high: float
) -> np.ndarray:
    if dtype == "bool":
        return generator.integers(0, 2, shape).astype(bool)
    if dtype in INTEGERS:
        info = np.iinfo(dtype)
        first, last = max(int(info.min), math.ceil(low)), min(int(info.max), math.floor(high))
        values = generator.integers(first, last, shape, endpoint=True, dtype=np.int64).astype(dtype)
        extremes = np.array([info.min, info.max, 0, 1], dtype)
        return _sprinkle(generator, values, extremes, share)
    if dtype == "complex64":
        real, imaginary = (_fill(generator, "float32", shape, share, low, high) for _ in range(2))
        return np.stack([real, imaginary], axis=-1).view(np.complex64)[..., 0]
    kind = "float32" if dtype == "bfloat16" else dtype
    values = generator.uniform(low, high, shape).astype(kind)
    with np.errstate(over="ignore"):
        values = _sprinkle(generator, values, np.array(_SPECIAL[dtype], kind), share)
    return bfloat16_bits(values) if dtype == "bfloat16" else values


def _sprinkle(generator: np.random.Generator, values: np.ndarray, special: np.ndarray, share: float) -> np.ndarray:
    chosen = generator.random(values.shape) < share
    return np.where(chosen, special[generator.integers(0, len(special), values.shape)], values)
