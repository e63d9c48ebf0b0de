"""Routes of blocks whose place is read on the device: dynamic_slice and dynamic_slice_update."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from outlive.backends.cuda.kernels.build import CudaC
from outlive.backends.cuda.kernels.cuda_c import TYPES, block_kernel
from outlive.backends.cuda.kernels.elementwise import LIMIT_BLOCKS, MOVE_TYPES, THREADS
from outlive.backends.cuda.launches import NativeLaunch

if TYPE_CHECKING:
    from outlive.backends.cuda.kernels import Library

LIMIT_DIMENSIONS = 12


def select_slice(library: Library, kernel: Any, reads: Any, writes: Any) -> NativeLaunch | None:
    """A block out of an array."""
    return _select(library, kernel, small=writes[0].layout, large=reads[0].layout, start=reads[1].layout, update=False)


def select_update(library: Library, kernel: Any, reads: Any, writes: Any) -> NativeLaunch | None:
    """A block into an array."""
    return _select(library, kernel, small=reads[0].layout, large=writes[0].layout, start=reads[1].layout, update=True)


def _select(library: Library, kernel: Any, *, small: Any, large: Any, start: Any, update: bool) -> NativeLaunch | None:
    moved, kind = MOVE_TYPES.get(small.dtype.itemsize), TYPES.get(start.dtype.name)
    grid = -(-small.size // THREADS)
    if moved is None or kind is None or kind.kind not in "iu" or not start.contiguous or start.size != len(kernel.axes):
        return None
    if small.ndim > LIMIT_DIMENSIONS or grid > LIMIT_BLOCKS:
        return None
    axes = tuple(kernel.axes)
    name = "update" if update else "slice"
    at = "".join(map(str, axes))
    symbol = f"outlive_block_{name}_{moved.memory}_{kind.memory}_n{small.ndim}_at{at}"
    text = block_kernel(symbol, moved, kind, small.ndim, axes, update)
    axis = zip(small.shape, large.shape, small.strides, large.strides, strict=True)
    words = (small.size, *[number for numbers in axis for number in numbers])
    return NativeLaunch(library.function(CudaC(symbol, text)), (grid, 1, 1), THREADS, 0, 3, words)


ROUTES = {"dynamic_slice": select_slice, "dynamic_slice_update": select_update}
