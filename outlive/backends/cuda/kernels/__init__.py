"""Compiled CUDA kernels of one device, by op. Nothing is compiled or loaded before a call asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from outlive.backends.cuda.kernels.build import Binary, CudaC, TritonKernel, binary

if TYPE_CHECKING:
    from outlive.backends.cuda.device import CudaDevice


class Library:
    """Finds the compiled kernel of a call, and loads each once."""

    def __init__(self, device: CudaDevice) -> None:
        from outlive.backends.cuda.kernels import elementwise, quantized, rope, rows

        self.device = device
        self.facts = device.facts
        self._elementwise = elementwise
        self._routes = {**rows.ROUTES, **rope.ROUTES, **quantized.ROUTES}
        self._loaded: dict[CudaC | TritonKernel, tuple[int, Binary]] = {}

    def find(self, kernel: Any, reads: Any, writes: Any, aligned: bool) -> tuple[Any, bool] | None:
        """(launch, whether it serves operands of every alignment), or None: the reference kernel serves the call."""
        route = self._routes.get(kernel.name)
        if route is not None:
            launch = route(self, kernel, reads, writes, aligned)
            return None if launch is None else (launch, False)
        launch = self._elementwise.find(self, kernel, reads, writes)
        return None if launch is None else (launch, True)

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
