"""What routes ask of operand layouts: contiguity, merging of dimensions, and the pattern of the innermost one."""

from __future__ import annotations

from typing import NamedTuple


class Pattern(NamedTuple):
    """A loop over operands of one shape. modes: a letter an operand for the innermost dimension ('c' neighbours, 's'
    one element for all, 'g' a stride). length: innermost size. inner: innermost strides. dims, strides: the outer
    dimensions, and for each operand its strides over them, in elements.
    """

    modes: str
    length: int
    inner: tuple[int, ...]
    dims: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]

    @property
    def words(self) -> tuple[int, ...]:
        """The static words that an elementwise kernel takes."""
        flat = tuple(s for operand in self.strides for s in operand)
        return (self.length, *self.inner, len(self.dims), *self.dims, *flat)


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides, in elements, of a contiguous array."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def broadcast_strides(layout, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """The layout's strides over `shape`, zero where it is broadcast; None where it does not broadcast."""
    missing = len(shape) - len(layout.shape)
    if missing < 0:
        return None
    strides = [0] * missing
    for size, stride, wanted in zip(layout.shape, layout.strides, shape[missing:], strict=True):
        if size != wanted and size != 1:
            return None
        strides.append(0 if size == 1 else stride)
    return tuple(strides)


def pattern(reads: list, write) -> Pattern | None:
    """The loop that goes over `reads` broadcast to the shape of `write`; None where one does not broadcast."""
    shape = write.shape
    if write.contiguous and all(r.shape == shape and r.contiguous for r in reads):
        return Pattern("c" * (len(reads) + 1), write.size, (1,) * (len(reads) + 1), (), ((),) * (len(reads) + 1))
    operands = [broadcast_strides(r, shape) for r in reads]
    if any(o is None for o in operands):
        return None
    operands.append(tuple(write.strides))
    dims, strides = merge(shape, operands)
    if not dims:
        return Pattern("s" * len(reads) + "c", write.size, (1,) * len(operands), (), ((),) * len(operands))
    inner = tuple(s[-1] for s in strides)
    modes = "".join("c" if s == 1 else "s" if s == 0 else "g" for s in inner)
    if dims[-1] == 1:
        modes = modes[:-1] + "c"
    return Pattern(modes, dims[-1], inner, tuple(dims[:-1]), tuple(tuple(s[:-1]) for s in strides))


def merge(shape: tuple[int, ...], operands: list) -> tuple[list[int], list[list[int]]]:
    """Drops dimensions of one element and joins neighbours that every operand walks in one stride."""
    dims: list[int] = []
    strides: list[list[int]] = [[] for _ in operands]
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        if dims and all(s[-1] == o[axis] * size for s, o in zip(strides, operands, strict=True)):
            dims[-1] *= size
            for s, o in zip(strides, operands, strict=True):
                s[-1] = o[axis]
            continue
        dims.append(size)
        for s, o in zip(strides, operands, strict=True):
            s.append(o[axis])
    return dims, strides
