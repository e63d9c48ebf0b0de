"""Which reference kernels would make the host wait for the GPU: found by arrays that tell, compared with what the routes say."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

import outlive.backends.cuda.reference as reference
import outlive.core as mx
from outlive.backends.cpu.reference import run_reference
from outlive.backends.cuda.arrays import span
from outlive.backends.cuda.reference import ON_THE_HOST, WAITING
from tests.cuda.test_device import driver, gpu
from tests.cuda.test_gpu import CASES, run
from tests.ops.test_workspace import CALLS

__all__ = ["driver"]

waited: set[str] = set()
running: list[str] = []


def told(*_: Any) -> None:
    waited.add(running[-1])


def telling_again(result: Any) -> Any:
    """Results of functions that do not keep the kind of array."""
    if isinstance(result, tuple):
        return tuple(map(telling_again, result))
    return result.view(Telling) if type(result) is np.ndarray else result


class Telling(np.ndarray):
    """Host memory that stands for the GPU's: notes when a value, or a count of values, is asked for."""

    def __array_wrap__(self, array: np.ndarray, context: Any = None, return_scalar: bool = False) -> Any:
        return array.view(Telling)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func.__name__ in (
            "nonzero",
            "unique",
            "argwhere",
            "flatnonzero",
            "bincount",
            "histogram",
            "array_equal",
            "allclose",
        ):
            told()
        if func.__name__ == "where" and len(args) == 1:
            told()
        return telling_again(super().__array_function__(func, types, args, kwargs))

    def __getitem__(self, index: Any) -> Any:
        self._look(index)
        made = super().__getitem__(index)
        return made if isinstance(made, np.ndarray) else np.asarray(made).view(Telling)

    def __setitem__(self, index: Any, value: Any) -> None:
        self._look(index)
        super().__setitem__(index, value)

    @staticmethod
    def _look(index: Any) -> None:
        parts = index if isinstance(index, tuple) else (index,)
        if any(isinstance(p, Telling) and (p.dtype == bool or p.ndim == 0) for p in parts):
            told()

    def __bool__(self) -> bool:
        told()
        return bool(np.asarray(self))

    def __int__(self) -> int:
        told()
        return int(np.asarray(self))

    def __index__(self) -> int:
        told()
        return int(np.asarray(self))

    def __float__(self) -> float:
        told()
        return float(np.asarray(self))

    def item(self, *args: Any) -> Any:
        told()
        return np.asarray(self).item(*args)

    def tolist(self) -> Any:
        told()
        return np.asarray(self).tolist()

    def nonzero(self) -> Any:
        told()
        return np.asarray(self).nonzero()


class _Operand:
    def __init__(self, operand: Any) -> None:
        self.layout = seen = operand.layout
        itemsize = seen.dtype.itemsize
        first, end = span(seen.shape, seen.strides)
        memory = (ctypes.c_uint8 * ((end - first) * itemsize)).from_address(operand.pointer + first * itemsize)
        strides = tuple(s * itemsize for s in seen.strides)
        self.view = np.ndarray(seen.shape, seen.dtype.storage, memory, -first * itemsize, strides).view(Telling)


def on_telling_arrays(queue: Any, kernel: Any, reads: Any, writes: Any) -> None:
    """`run_on_device` without CuPy."""
    queue.driver.synchronize(queue.handle)
    running.append(kernel.name)
    run_reference(kernel, tuple(map(_Operand, reads)), tuple(map(_Operand, writes[:-1])))


@pytest.fixture
def telling(driver: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(reference, "run_on_device", on_telling_arrays)
    monkeypatch.setattr(gpu()._library, "served", ("fill", "copy"))
    waited.clear()
    return driver


def test_ops_that_wait_for_the_gpu_are_not_run_at_commit(telling: Any) -> None:
    for call in CALLS.values():
        mx.eval(call())
    mx.eval(mx.slice(mx.ones((5, 6)), mx.array([1, 2]), (0, 1), (2, 3)))
    mx.eval(mx.slice_update(mx.ones((5, 6)), mx.ones((2, 3)), mx.array([1, 2]), (0, 1)))
    for _, call, inputs, dtype in CASES:
        if dtype in ("float32", "bfloat16", "int32"):
            run(call, inputs, dtype, mx.default_device())
    assert waited == WAITING, (
        f"remove {sorted(WAITING - waited)} from WAITING, add {sorted(waited - WAITING)} to WAITING: which reference kernels ask for values"
    )
    assert not gpu().host_routes, gpu().host_routes
    assert not WAITING & ON_THE_HOST
