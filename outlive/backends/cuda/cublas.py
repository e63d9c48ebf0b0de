"""Products of matrices through cuBLAS, called by address: on our streams, with our workspace, capturable.

Sums are float32 (float64 for float64); TF32 and reductions in half precision are off. One handle serves one stream, so that its results do not
depend on what other streams do.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from outlive.runtime.builtin import Workspaced

if TYPE_CHECKING:
    from outlive.backends.cuda.queue import Queue
    from outlive.runtime.command_buffer import Record

OP_N, OP_T = 0, 1
DISALLOW_REDUCED_PRECISION = 16
DEFAULT_ALGORITHM = -1
WORKSPACE_BYTES = 32 << 20
SMALL_WORKSPACE_BYTES = 4 << 20


class Kind:
    """How cuBLAS computes with an element type: its codes of data and computation, and the bytes of its scalars 1 and 0."""

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
    """The library, loaded on first use."""

    def __init__(self) -> None:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        library = ctypes.CDLL(load_nvidia_dynamic_lib("cublas").abs_path)
        number, pointer, wide = ctypes.c_int, ctypes.c_void_p, ctypes.c_int64
        self._library = library
        self._gemm = library.cublasGemmStridedBatchedEx_64
        self._gemm.argtypes = [
            pointer, number, number, wide, wide, wide, pointer, pointer, number, wide, wide, pointer, number, wide, wide,
            pointer, pointer, number, wide, wide, wide, number, number,
        ]  # fmt: skip
        self._set_workspace = library.cublasSetWorkspace_v2
        self._set_workspace.argtypes = [pointer, pointer, ctypes.c_size_t]
        self._handles: dict[int, int] = {}

    def _handle(self, stream: int) -> int:
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

    def products(self, stream: int, workspace: tuple[int, int], shape: Any, kind: Kind, addresses: list[tuple[int, int, int]]) -> None:
        """Queue products of one shape on `stream`; `addresses` of (left, right, out) in cuBLAS's order. Raises CublasError."""
        handle = self._handle(stream)
        self._check("cublasSetWorkspace", self._set_workspace(handle, *workspace))
        for left, right, out in addresses:
            code = self._gemm(
                handle, shape.op_left, shape.op_right, shape.m, shape.n, shape.k, kind.one, left, kind.data, shape.ld_left,
                shape.step_left, right, kind.data, shape.ld_right, shape.step_right, kind.zero, out, kind.data, shape.ld_out,
                shape.step_out, shape.batch, kind.compute, DEFAULT_ALGORITHM,
            )  # fmt: skip
            self._check("cublasGemmStridedBatchedEx", code)


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


class Product(Workspaced):
    """The launch of a product."""

    __slots__ = ("cublas", "kind", "shape")
    blocks = False

    def __init__(self, cublas: Cublas, kind: Kind, shape: Shape, workspace: int) -> None:
        self.cublas = cublas
        self.kind = kind
        self.shape = shape
        self.workspace = workspace

    def submit(self, queue: Queue, record: Record) -> None:
        """Queue the product; raises CublasError."""
        a, b = record[2]
        out, scratch = record[3]
        addresses = [(b.pointer + x, a.pointer + y, out.pointer + z) for x, y, z in self.shape.loops]
        self.cublas.products(queue.handle, (scratch.pointer, self.workspace), self.shape, self.kind, addresses)
