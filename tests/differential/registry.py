"""The table of differential tests: an op's name, and how a call of it is drawn."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.reference.strategies import arrays, shapes
from tests.reference.wire import Array, Call, Program

Draw = Callable[..., Any]


@dataclass(frozen=True)
class Case:
    """One request for both sides, and what the comparison is told.

    ``truth``: the exact values in double precision, where the reference itself errs. ``magnitude``: the sum of the terms'
    magnitudes, for sums. ``tolerance``: the op whose tolerance holds, where it is not the request's own.
    """

    request: Call | Program
    truth: Any = None
    magnitude: Any = None
    tolerance: str | None = None


@dataclass(frozen=True)
class Entry:
    """How calls of one public name are drawn, and how many in continuous integration."""

    name: str
    draw: Callable[[Draw, str], Case]
    examples: int = 20


@dataclass
class Registry:
    """Entries by name."""

    entries: dict[str, Entry] = field(default_factory=dict)

    def add(
        self, names: str, examples: int = 20
    ) -> Callable[[Callable[[Draw, str], Case]], Callable[[Draw, str], Case]]:
        """Register a drawing function for names separated by blanks."""

        def register(function: Callable[[Draw, str], Case]) -> Callable[[Draw, str], Case]:
            for name in names.split():
                assert name not in self.entries, f"{name} has two entries"
                self.entries[name] = Entry(name, function, examples)
            return function

        return register


OPS = Registry()

ELEMENTS = 128


def shape(draw: Draw, **limits: int) -> tuple[int, ...]:
    """A shape from 0-d and empty to four axes."""
    return draw(shapes(**{"elements_max": ELEMENTS, **limits}))


def array(draw: Draw, dtype: str, of: tuple[int, ...], **options: Any) -> Array:
    """An array, often a view and often with special values."""
    return draw(arrays(dtype, of, **options))


def one_of(draw: Draw, *choices: Any) -> Any:
    """One of the choices; the first is the simplest."""
    return draw(st.sampled_from(choices))


def whole(draw: Draw, low: int, high: int) -> int:
    """An integer, both ends included."""
    return draw(st.integers(low, high))


def axis(draw: Draw, ndim: int) -> int:
    """An axis from either end; now and then one that is out of range."""
    wrong = whole(draw, 0, 11) == 11
    return whole(draw, -ndim - 1, ndim) if wrong or not ndim else whole(draw, -ndim, ndim - 1)


def axes(draw: Draw, ndim: int) -> Any:
    """None, one axis, or several."""
    kind = one_of(draw, "none", "one", "several")
    if kind == "none":
        return None
    if kind == "one" or not ndim:
        return axis(draw, ndim)
    chosen = draw(st.lists(st.integers(0, ndim - 1), unique=True, max_size=ndim))
    return [a - ndim if draw(st.booleans()) else a for a in chosen]


def wide(value: Array) -> np.ndarray:
    """The elements in double precision."""
    values = value.values()
    return values.astype(np.complex128 if np.iscomplexobj(values) else np.float64)


def quiet(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """NumPy's result without its warnings; None where NumPy raises."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return function(*args, **kwargs)
        except (ValueError, IndexError, TypeError):
            return None


def is_float(dtype: str) -> bool:
    """Whether elements of the type are real floats."""
    return dtype in ("float16", "bfloat16", "float32", "float64")


def count(of: tuple[int, ...]) -> int:
    """The number of elements."""
    return math.prod(of)
