"""`Layout`: shape, element strides and element type of an operand, interned so that equal layouts are usually one object."""

from __future__ import annotations

from typing import Any, Protocol

LIMIT_INTERNED = 1 << 14
"""Layouts kept before the tables start anew. Identity is a fast path only: equality never depends on it."""


class ElementType(Protocol):
    """What the runtime asks of an element type: its size in bytes, its name, and the host's storage type."""

    name: str
    itemsize: int
    storage: Any


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Element strides of a densely packed array of `shape`, last axis fastest."""
    strides, step = [0] * len(shape), 1
    for axis in range(len(shape) - 1, -1, -1):
        strides[axis] = step
        step *= shape[axis]
    return tuple(strides)


class Layout:
    """Shape, strides (in elements, negative allowed, 0 where broadcast) and element type.

    `contiguous`: the elements lie densely in row-major order. `dense`: the contiguous layout of the same shape and type.
    """

    __slots__ = ("contiguous", "dense", "dtype", "nbytes", "ndim", "shape", "size", "strides")

    def __init__(self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: ElementType) -> None:
        self.shape = shape
        self.strides = strides
        self.dtype = dtype
        self.ndim = len(shape)
        size = 1
        for n in shape:
            size *= n
        self.size = size
        self.nbytes = size * dtype.itemsize
        self.contiguous = _is_dense(shape, strides, size)
        self.dense: Layout = self if self.contiguous else layout(shape, dtype)

    def __repr__(self) -> str:
        strides = "" if self.contiguous else f", strides {self.strides}"
        return f"{self.dtype.name}{list(self.shape)}{strides}"

    def same(self, other: Layout) -> bool:
        """Whether shape and element type are equal (the strides may differ)."""
        return self is other or (self.shape == other.shape and self.dtype is other.dtype)


def _is_dense(shape: tuple[int, ...], strides: tuple[int, ...], size: int) -> bool:
    if size <= 1:
        return True
    step = 1
    for n, stride in zip(reversed(shape), reversed(strides), strict=True):
        if n != 1:
            if stride != step:
                return False
            step *= n
    return True


_dense: dict[tuple[tuple[int, ...], ElementType], Layout] = {}
_strided: dict[tuple[tuple[int, ...], tuple[int, ...], ElementType], Layout] = {}


def layout(shape: tuple[int, ...], dtype: ElementType) -> Layout:
    """The dense row-major layout of `shape` and `dtype`."""
    found = _dense.get((shape, dtype))
    if found is None:
        if len(_dense) >= LIMIT_INTERNED:
            _dense.clear()
        found = _dense[shape, dtype] = Layout(shape, row_major(shape), dtype)
    return found


def strided_layout(shape: tuple[int, ...], strides: tuple[int, ...], dtype: ElementType) -> Layout:
    """The layout of `shape`, `strides` (in elements) and `dtype`; the dense one where they say the same."""
    found = _strided.get((shape, strides, dtype))
    if found is None:
        if len(_strided) >= LIMIT_INTERNED:
            _strided.clear()
        made = Layout(shape, strides, dtype)
        found = _strided[shape, strides, dtype] = layout(shape, dtype) if made.contiguous else made
    return found
