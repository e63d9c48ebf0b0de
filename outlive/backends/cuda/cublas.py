"""Products of matrices through cuBLAS, called from the launch loop: on our streams, with our workspace, capturable.

Sums are float32 (float64 for float64); TF32 and reductions in half precision are off. One handle serves one stream, so
that its results do not depend on what other streams do.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from outlive.backends.cuda.launcher import library_call
from outlive.backends.cuda.launches import Native
from outlive.runtime.builtin import Workspaced

if TYPE_CHECKING:
    from outlive.backends.cuda.kernels import Library
    from outlive.backends.cuda.queue import Queue

OP_N, OP_T = 0, 1
DISALLOW_REDUCED_PRECISION = 16
DEFAULT_ALGORITHM = -1
WORKSPACE_BYTES = 32 << 20
SMALL_WORKSPACE_BYTES = 4 << 20


class Kind:
    """How cuBLAS computes with an element type: its codes of data and computation, and the bytes of its scalars 1 and
    0.
    """

    __slots__ = ("compute", "data", "one", "zero")

    def __init__(self, data: int, compute: int, scalar: Any, count: int = 1) -> None:
        self.data = data
        self.compute = compute
        self.one = (scalar * count)(1)
        self.zero = (scalar * count)(0)


KINDS = {
    "float32": Kind(0, 68, ctypes.c_float),
    "float64": Kind(1, 70, ctypes.c_double),
    "float16": Kind(2, 68, ctypes.c_float),
    "bfloat16": Kind(14, 68, ctypes.c_float),
    "complex64": Kind(4, 68, ctypes.c_float, 2),
}


class CublasError(RuntimeError):
    """A product that cuBLAS refused."""


class Cublas:
    """The library, loaded on first use; a handle for each stream."""

    def __init__(self) -> None:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        self._library = ctypes.CDLL(load_nvidia_dynamic_lib("cublas").abs_path)
        self.gemm = _address(self._library.cublasGemmStridedBatchedEx_64)
        self.set_workspace = _address(self._library.cublasSetWorkspace_v2)
        self._handles: dict[int, int] = {}

    def handle(self, stream: int) -> int:
        """The handle whose work goes to `stream`; raises CublasError."""
        found = self._handles.get(stream)
        if found is None:
            handle = ctypes.c_void_p()
            self._check("cublasCreate", self._library.cublasCreate_v2(ctypes.byref(handle)))
            self._check("cublasSetStream", self._library.cublasSetStream_v2(handle, ctypes.c_void_p(stream)))
            self._check("cublasSetMathMode", self._library.cublasSetMathMode(handle, DISALLOW_REDUCED_PRECISION))
            found = self._handles[stream] = handle.value or 0
        return found

    @staticmethod
    def _check(call: str, code: int) -> None:
        if code:
            raise CublasError(f"{call} failed with status {code}")


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


class Shape:
    """A product as cuBLAS (column-major) sees it: the row-major out[m, n] = a[m, k] b[k, n] is out' = b' a'.

    `loops`: byte offsets of (left, right, out) for batches that no single stride describes.
    """

    __slots__ = (
        "batch", "k", "ld_left", "ld_out", "ld_right", "loops", "m", "n", "op_left", "op_right", "step_left", "step_out", "step_right",
    )  # fmt: skip
    batch: int
    k: int
    ld_left: int
    ld_out: int
    ld_right: int
    loops: tuple[tuple[int, int, int], ...]
    m: int
    n: int
    op_left: int
    op_right: int
    step_left: int
    step_out: int
    step_right: int


class Product(Workspaced, Native):
    """The launch of a product: words that call cuBLAS."""

    __slots__ = ("kind", "library", "shape")
    route_name = "cuBLAS"

    def __init__(self, library: Library, kind: Kind, shape: Shape, workspace: int) -> None:
        self.library = library
        self.kind = kind
        self.shape = shape
        self.workspace = workspace

    def words(self, queue: Queue, record: Any) -> list[int]:
        a, b = record[2]
        out, scratch = record[3]
        cublas = self.library.cublas
        handle = cublas.handle(queue.handle)
        words = library_call(cublas.set_workspace, [handle, scratch.pointer, self.workspace])
        for x, y, z in self.shape.loops:
            words += library_call(cublas.gemm, self.arguments(handle, b.pointer + x, a.pointer + y, out.pointer + z))
        return words

    def arguments(self, handle: int, left: int, right: int, out: int) -> list[int]:
        """The arguments of cublasGemmStridedBatchedEx_64."""
        shape, kind = self.shape, self.kind
        return [
            handle, shape.op_left, shape.op_right, shape.m, shape.n, shape.k, ctypes.addressof(kind.one),
            left, kind.data, shape.ld_left, shape.step_left, right, kind.data, shape.ld_right, shape.step_right,
            ctypes.addressof(kind.zero), out, kind.data, shape.ld_out, shape.step_out, shape.batch, kind.compute, DEFAULT_ALGORITHM,
        ]  # fmt: skip
