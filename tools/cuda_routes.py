"""Writes docs/cuda-routes.md: which way each op takes on a GPU, by type. Needs no GPU: it asks the routes, and runs nothing.

usage: PYTHONPATH=. python tools/cuda_routes.py
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import outlive.core as mx
from outlive.backends.cuda import reference
from outlive.backends.cuda.device import CudaDevice
from outlive.backends.cuda.kernels import Library
from outlive.backends.cuda.kernels.build import Binary
from outlive.execution import ExecutionError
from outlive.graph import state
from tests.cuda.fake_driver import FakeDriver
from tests.cuda.test_gpu import CASES
from tests.ops.test_workspace import CALLS

PAGE = Path(__file__).parents[1] / "docs" / "cuda-routes.md"
HEAD = """# Routes of ops on a GPU

Written by `tools/cuda_routes.py` from the calls of the tests. A route is a compiled kernel of ours (CUDA C or Triton),
cuBLAS, CuPy (the op's reference kernel on the device; on the host after all where CuPy refuses), or the host (the same
reference kernel on host copies, in the stream's order). Types are those of operands and results together.

| op | route | types |
|---|---|---|
"""


class _Routes(Library):
    """A library whose kernels are neither compiled nor run."""

    def load(self, source: Any) -> tuple[int, Binary]:
        return self.device.driver.function(lambda _: None), Binary(b"", source.symbol, 0, 128)


def table() -> str:
    """The page."""
    gpu = state.Device(state.gpu, 63)
    device = CudaDevice(state.runtime, FakeDriver(8 << 30), gpu.index)
    device._library = _Routes(device)
    run_on_device, reference.run_on_device = reference.run_on_device, lambda *_: None
    state._backends[gpu] = device
    try:
        with mx.stream(gpu):
            for _, call, inputs, dtype in CASES:
                _choose(lambda call=call, inputs=inputs, dtype=dtype: call(*_arrays(inputs, dtype)))
            for call in CALLS.values():
                _choose(call)
            mx.synchronize()
    finally:
        reference.run_on_device = run_on_device
        del state._backends[gpu]
    rows: dict[tuple[str, str], set[str]] = defaultdict(set)
    for op, types, route in device.routes():
        rows[op, route].update(types.split(", "))
    lines = (f"| {op} | {route} | {', '.join(sorted(types))} |\n" for (op, route), types in sorted(rows.items()))
    return HEAD + "".join(lines)


def _arrays(inputs: Any, dtype: str) -> list[mx.array]:
    return [mx.array(x).astype(getattr(mx, dtype)) for x in inputs]


def _choose(call: Callable[[], Any]) -> None:
    """Encode a call. What it computes is nothing, so that a later kernel of it may well fail."""
    try:
        mx.eval(call())
    except ExecutionError:
        pass  # its kernels are chosen


if __name__ == "__main__":
    PAGE.write_text(table())
