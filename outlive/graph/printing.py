"""How arrays print: six significant digits, or as many decimals as asked for; long axes cut in their middle."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from outlive.graph.array import array
from outlive.graph.host import scalars

EDGE = 3
"""Elements shown at each end of a long axis."""

LIMIT_AXIS = 6
"""Axes up to this length are printed whole."""

DIGITS = 6


class PrintOptions:
    """`precision`: decimals of floating-point numbers; -1 for six significant digits.

    >>> mx.PrintOptions(3).precision
    3
    """

    __slots__ = ("precision",)

    def __init__(self, precision: int = -1) -> None:
        self.precision = precision


_options = PrintOptions()


def get_printoptions() -> PrintOptions:
    """The options in force, a copy of them.

    >>> mx.get_printoptions().precision
    -1
    """
    return PrintOptions(_options.precision)


def set_printoptions(precision: int = -1) -> None:
    """Print floating-point numbers with `precision` decimals (-1: six significant digits).

    >>> mx.set_printoptions(2)
    >>> mx.array(mx.pi)
    array(3.14, dtype=float32)
    >>> mx.set_printoptions()
    """
    _options.precision = precision


@contextlib.contextmanager
def printoptions(precision: int = -1) -> Iterator[None]:
    """`set_printoptions` inside a `with` block.

    >>> with mx.printoptions(precision=2):
    ...     print(mx.array(mx.pi))
    ...
    array(3.14, dtype=float32)
    """
    previous = _options.precision
    _options.precision = precision
    try:
        yield
    finally:
        _options.precision = previous


def text(a: array) -> str:
    """`array([1, 2], dtype=int32)`.

    >>> repr(mx.array([1, 2]))
    'array([1, 2], dtype=int32)'
    """
    values = scalars(a)
    shown = _number(values[()]) if not a.ndim else "[]" if not a.shape[0] else _nested(values, 1)
    return f"array({shown}, dtype={a.dtype.name})"


def _nested(values: np.ndarray, depth: int) -> str:
    n = values.shape[0]
    last = values.ndim == 1
    between = ", " if last else ",\n" + " " * (6 + depth)
    places: list[int | None] = list(range(n))
    if n > LIMIT_AXIS:
        places = [*range(EDGE), None, *range(n - EDGE, n)]
    shown = ["..." if i is None else _number(values[i]) if last else _nested(values[i], depth + 1) for i in places]
    return "[" + between.join(shown) + "]"


def _number(value: Any) -> str:
    if isinstance(value, np.bool_):
        return str(bool(value))
    if isinstance(value, np.complexfloating):
        imaginary = _float(value.imag)
        return f"{_float(value.real)}{'' if imaginary.startswith('-') else '+'}{imaginary}j"
    if isinstance(value, np.floating):
        return _float(value)
    return str(int(value))


def _float(value: Any) -> str:
    if _options.precision < 0:
        return f"{float(value):.{DIGITS}g}"
    return f"{float(value):.{_options.precision}f}"
