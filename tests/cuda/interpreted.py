"""Routes of Triton kernels, run by Triton's interpreter on host memory: no GPU, no driver, the same argument words.

Imported only by processes that set TRITON_INTERPRET=1 before Triton is loaded.
"""

from __future__ import annotations

import ctypes
import importlib
import struct
from types import SimpleNamespace
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.interpreter import TensorHandle

from outlive.backends.cpu.reference import bfloat16_to_float32, float32_to_bfloat16
from outlive.backends.cuda.cublas import OP_N
from outlive.backends.cuda.driver import DeviceFacts
from outlive.backends.cuda.kernels import Library
from outlive.backends.cuda.kernels.build import Binary, CudaC, TritonKernel, triton_value
from outlive.backends.cuda.kernels.quantized import Dequantized
from outlive.backends.cuda.launcher import HEADER_WORDS
from outlive.backends.cuda.launches import AlignedLaunch, NativeLaunch, Steps
from outlive.graph import dtypes
from outlive.runtime.layout import Layout, layout

POISON = 0xFF
GUARD_BYTES = 4096


_patch_tensor = interpreter._patch_lang_tensor


def _patch_tensor_index(tensor: Any, scope: Any) -> None:
    """Loop bounds are vectors of one element in the interpreter, which NumPy 2.4 no longer takes for numbers."""
    _patch_tensor(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))


interpreter._patch_lang_tensor = _patch_tensor_index


class InterpretedLibrary(Library):
    """A library whose kernels are not compiled: `run` interprets a launch's words."""

    def __init__(self) -> None:
        facts = DeviceFacts("interpreter", (9, 0), 1 << 30, 8, 99 << 10, 1 << 20, "0.0")
        super().__init__(SimpleNamespace(facts=facts))  # type: ignore[arg-type]
        self.sources: list[TritonKernel | CudaC] = []

    def load(self, source: Any) -> tuple[int, Binary]:
        self.sources.append(source)
        threads = 0 if isinstance(source, CudaC) else source.warps * 32
        return len(self.sources) - 1, Binary(b"", source.symbol, 0, threads)

    def run(self, launch: Any, pointers: list[int]) -> None:
        """Interpret a launch over the pointers of its reads, writes and workspace."""
        if isinstance(launch, (AlignedLaunch, Steps)) and any(p % 16 for p in pointers):
            assert launch.twin is not None
            launch = launch.twin()
        if isinstance(launch, Dequantized):
            _, *weights, _, scratch = pointers
            self._run(launch.dequantize.head, [*weights, scratch], launch.dequantize.static)
            return
        if isinstance(launch, Steps):
            for head, operands, static in launch.steps:
                self._run(head, [pointers[i] + offset for i, offset in operands], static)
        else:
            assert isinstance(launch, NativeLaunch)
            self._run(launch.head, pointers, launch.static)

    def _run(self, head: tuple[int, ...], pointers: list[int], static: tuple[int, ...]) -> None:
        source = self.sources[head[0]]
        if isinstance(source, CudaC):
            _copied(source, pointers, static)
            return
        assert head[HEADER_WORDS - 1] == len(pointers) + len(static)
        assert static[-2:] == (0, 0), "scratch pointers end the words"
        words = iter([*pointers, *static[:-2]])
        constants = dict(source.constants)
        values = {}
        for name, kind in source.signature:
            if kind == "constexpr":
                values[name] = triton_value(constants[name])
            else:
                values[name] = _argument(kind, next(words))
                if name in source.divisible:
                    assert values[name].handle.data[0] % 16 == 0, f"{name} is said to be a multiple of 16"
        assert next(words, None) is None, "every word has its argument"
        function = getattr(
            importlib.import_module(f"outlive.backends.cuda.triton_kernels.{source.module}"), source.name
        )
        function[head[1:4]](**values)


def _copied(source: CudaC, pointers: list[int], static: tuple[int, ...]) -> None:
    """What a generated copy kernel does with its words: the one kernel in CUDA C that goes with Triton's."""
    assert source.symbol.startswith("outlive_copy_u"), source.symbol
    kind = np.dtype(f"u{int(source.symbol.split('_')[2][1:]) // 8}")
    rank = (len(static) - 1) // 3
    dims = static[1 : 1 + rank] or static[:1]
    strides = [static[1 + rank * k : 1 + rank * (k + 1)] or (1,) for k in (1, 2)]
    views = []
    for pointer, steps in zip(pointers, strides, strict=True):
        reach = sum((n - 1) * s for n, s in zip(dims, steps, strict=True)) + 1
        memory = (ctypes.c_uint8 * (reach * kind.itemsize)).from_address(pointer)
        views.append(np.ndarray(dims, kind, memory, 0, tuple(s * kind.itemsize for s in steps)))
    views[1][...] = views[0]


def _argument(kind: str, word: int) -> Any:
    if kind[0] == "*":
        data: Any = np.array([word], np.uint64)
    elif kind == "fp32":
        data = np.array([struct.unpack("<f", struct.pack("<I", word & 0xFFFFFFFF))[0]], np.float32)
    elif kind == "fp64":
        data = np.array([struct.unpack("<d", struct.pack("<q", word))[0]], np.float64)
    else:
        data = np.array([word], np.int32 if kind == "i32" else np.int64)
    kind_of = tl.str_to_ty(kind, None)
    return tl.tensor(TensorHandle(data, kind_of), kind_of)


class Memory:
    """An operand in host memory, poisoned on both sides."""

    def __init__(self, seen: Layout, values: np.ndarray | None = None, skew: int = 0) -> None:
        self.layout = seen
        reach = sum((n - 1) * s for n, s in zip(seen.shape, seen.strides, strict=True) if n > 1) + 1 if seen.size else 0
        self._bytes = np.full(reach * seen.dtype.itemsize + 2 * GUARD_BYTES, POISON, np.uint8)
        start = GUARD_BYTES + -(self._bytes.ctypes.data + GUARD_BYTES) % 512 + skew
        self.pointer = self._bytes.ctypes.data + start
        strides = tuple(s * seen.dtype.itemsize for s in seen.strides)
        self.view = np.ndarray(seen.shape, seen.dtype.storage, self._bytes.data, start, strides)
        self._whole = (start, start + reach * seen.dtype.itemsize)
        if values is not None:
            self.view[...] = values

    def untouched_around(self) -> bool:
        """Whether nothing was written outside of the operand."""
        first, end = self._whole
        return bool((self._bytes[:first] == POISON).all() and (self._bytes[end:] == POISON).all())


def stored(values: np.ndarray, dtype: Any) -> np.ndarray:
    """Values in the storage form of `dtype`."""
    return float32_to_bfloat16(values.astype(np.float32)) if dtype is dtypes.bfloat16 else values.astype(dtype.storage)


def widened(operand: Memory) -> np.ndarray:
    """An operand's values in float64 (integers as they are)."""
    if operand.layout.dtype is dtypes.bfloat16:
        return bfloat16_to_float32(operand.view).astype(np.float64)
    return operand.view.astype(np.float64) if operand.layout.dtype.inexact else operand.view


def _dense(library: InterpretedLibrary, launch: Dequantized, reads: list[Memory], out: Memory) -> Memory:
    """The launch of a product over weights made dense: those are interpreted, the product is NumPy's."""
    shape = launch.product.shape
    weights = Memory(layout((shape.k, shape.m) if shape.op_left == OP_N else (shape.m, shape.k), out.layout.dtype))
    library.run(launch, [*[o.pointer for o in reads], out.pointer, weights.pointer])
    assert weights.untouched_around()
    dense = widened(weights)
    result = widened(reads[0]) @ (dense if shape.op_left == OP_N else dense.T)
    out.view[...] = stored(result, out.layout.dtype)
    return out


def call(library: InterpretedLibrary, kernel: Any, reads: list[Memory], shape: tuple[int, ...], dtype: Any) -> Memory:
    """Run the route of `kernel` over operands; its output, after checking that nothing else was written."""
    out = Memory(layout(shape, dtype))
    launch = library.find(kernel, tuple(reads), (out,))
    assert launch is not None, f"{kernel.name} has no route"
    operands = [*reads, out]
    if isinstance(launch, Steps):
        operands.append(Memory(layout((launch.workspace,), dtypes.uint8)))
    if isinstance(launch, Dequantized):
        return _dense(library, launch, reads, out)
    library.run(launch, [o.pointer for o in operands])
    assert all(o.untouched_around() for o in operands), f"{kernel.name} wrote outside of its operands"
    return out
