"""Compiled CUDA kernels of one device, by op. Nothing is compiled or loaded before a call asks for it."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from outlive.backends.cuda.cublas import Cublas
from outlive.backends.cuda.kernels.build import Binary, CudaC, TritonKernel, binary
from outlive.backends.cuda.launches import AlignedLaunch, NativeLaunch, Seen, Steps

if TYPE_CHECKING:
    from outlive.backends.cuda.device import CudaDevice


class Library:
    """Finds the compiled kernel of a call, and loads each once."""

    def __init__(self, device: CudaDevice) -> None:
        from outlive.backends.cuda.kernels import (
            attention,
            blocks,
            dense,
            elementwise,
            fused,
            quantized,
            rope,
            rows,
            scan,
        )

        self.device = device
        self.facts = device.facts
        self._elementwise = elementwise
        self._routes = {**blocks.ROUTES, **dense.ROUTES, **fused.ROUTES, **scan.ROUTES}
        self._aligned_routes = {**rows.ROUTES, **rope.ROUTES, **attention.ROUTES, **quantized.ROUTES}
        self._loaded: dict[CudaC | TritonKernel, tuple[int, Binary]] = {}

    def find(self, kernel: Any, reads: Any, writes: Any) -> Any:
        """The launch of a call, or None: the reference kernel serves it. Raises CompileError, DriverError."""
        name = kernel.name
        with_alignment = self._aligned_routes.get(name)
        if with_alignment is not None:
            return self._with_twin(with_alignment, kernel, reads, writes)
        route = self._routes.get(name, self._elementwise.find)
        return route(self, kernel, reads, writes)

    def _with_twin(self, route: Any, kernel: Any, reads: Any, writes: Any) -> Any:
        """A launch for aligned operands, which knows how to make the one for others."""
        launch = route(self, kernel, reads, writes, True)
        layouts = [tuple(Seen(o.layout) for o in operands) for operands in (reads, writes)]
        twin = functools.partial(route, self, kernel, *layouts, False)
        if isinstance(launch, NativeLaunch):
            return AlignedLaunch(launch, twin)
        if isinstance(launch, Steps):
            launch.twin = twin
        return launch

    @functools.cached_property
    def cublas(self) -> Cublas:
        """The library of dense products."""
        return Cublas()

    def function(self, source: CudaC | TritonKernel) -> int:
        """The handle of a kernel."""
        return self.load(source)[0]

    def load(self, source: CudaC | TritonKernel) -> tuple[int, Binary]:
        """The handle of a kernel and its binary, compiled where it must be. Raises CompileError, DriverError."""
        found = self._loaded.get(source)
        if found is None:
            self.device.bind()
            made = binary(source, self.facts.architecture)
            handle = self.device.driver.load_function(made.cubin, made.symbol, made.shared)
            found = self._loaded[source] = (handle, made)
        return found
