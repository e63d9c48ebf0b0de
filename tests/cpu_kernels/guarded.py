"""A child process: runs every call with each operand flush against an inaccessible page, and compares the bits.

usage: python -m tests.cpu_kernels.guarded end|begin
An access outside an operand ends the process by SIGSEGV; the last line printed names the call.
"""

from __future__ import annotations

import ctypes
import mmap
import sys

import numpy as np

from tests.cpu_kernels.calls import all_calls
from tests.cpu_kernels.support import bits, run

PAGE = mmap.PAGESIZE
_libc = ctypes.CDLL(None, use_errno=True)
_kept: list[mmap.mmap] = []


def guarded(size: int, at_end: bool) -> np.ndarray:
    """`size` bytes whose end (or beginning) is the border to a page that may not be touched."""
    pages = -(-max(size, 1) // PAGE)
    memory = mmap.mmap(-1, (pages + 1) * PAGE)
    _kept.append(memory)
    whole = np.frombuffer(memory, np.uint8)
    wall = whole.ctypes.data + (pages * PAGE if at_end else 0)
    if _libc.mprotect(ctypes.c_void_p(wall), PAGE, 0) != 0:
        raise OSError(ctypes.get_errno(), "mprotect")
    start = pages * PAGE - size if at_end else PAGE
    return whole[start : start + size]


def placed(a: np.ndarray, at_end: bool) -> np.ndarray:
    """A copy of `a` in guarded memory that spans just the elements it reaches, with the strides that `a` has."""
    low = sum(min(0, s * (n - 1)) for s, n in zip(a.strides, a.shape, strict=True))
    high = sum(max(0, s * (n - 1)) for s, n in zip(a.strides, a.shape, strict=True)) + a.itemsize
    memory = guarded(high - low, at_end)
    view = np.ndarray(a.shape, a.dtype, memory.data, -low, a.strides)
    view[...] = a
    return view


def main(at_end: bool) -> None:
    for call in all_calls():
        print(call, flush=True)
        want = run(call.op, call.reads, call.outputs(), **call.params)
        reads, outs = ([placed(a, at_end) for a in part] for part in (call.reads, call.outputs()))
        run(call.op, reads, outs, **call.params)
        assert [bits(a) for a in outs] == [bits(a) for a in want], f"{call}: other bits in guarded memory"
        del reads, outs
        _kept.clear()
    print("done")


if __name__ == "__main__":
    main(sys.argv[1] == "end")
