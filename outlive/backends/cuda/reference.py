"""Reference kernels on a GPU stream: with CuPy on the device, or with NumPy on host copies where CuPy cannot.

The host's result is the truth, so any op that the library on the device lacks still has a route. Which ops take it is
remembered by op and types, and listed by `CudaDevice.host_routes`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from outlive.backends.cpu.reference import run_reference
from outlive.backends.cuda.arrays import Workspace, cupy, host_array, span
from outlive.runtime.builtin import Workspaced

if TYPE_CHECKING:
    from outlive.backends.cuda.device import CudaDevice
    from outlive.backends.cuda.queue import Queue
    from outlive.runtime.buffer import Operand
    from outlive.runtime.command_buffer import Record

ON_THE_HOST = frozenset(
    "unique masked_scatter scatter scatter_reduce scatter_along_axis linear_recurrence cumsum cumprod cummax cummin"
    " logcumsumexp".split()
)
"""Ops whose reference kernels CuPy runs with other bits from run to run, or cannot run; besides all of linear algebra,
which raises other errors there and takes memory that no ledger sees.
"""

WAITING = frozenset("cross_entropy dynamic_slice dynamic_slice_update gather_mm gather_qmm segmented_mm".split())
"""Ops whose reference kernels run on the device but ask for values in their middle: never at commit."""

MINIMUM_WORKSPACE = 1 << 16
RAISED_BYTES, ROUNDED_BYTES = 8, 28
"""For each element: its float32 copy and that of its bits; its float32 result, and the integers on the way to bfloat16."""

LIBRARY_FACTOR = {"sort": 6, "argsort": 8, "partition": 6, "argpartition": 8, "softmax": 2, "fft": 2}
"""Ops whose library kernels need more than the op declares, and by how much."""


class ReferenceLaunch(Workspaced):
    """Runs a reference kernel with CuPy in the record's workspace; on the host where CuPy fails."""

    __slots__ = ("host_routes", "route")

    def __init__(self, workspace: int, route: Any, host_routes: dict[Any, str]) -> None:
        self.workspace = workspace
        self.route = route
        self.host_routes = host_routes

    @property
    def route_name(self) -> str:
        return "host" if self.route in self.host_routes else "CuPy"

    @property
    def blocks(self) -> bool:
        """Whether it asks for values in its middle, or runs on the host, which is known from its first failure on."""
        return self.route[0] in WAITING or self.route in self.host_routes

    def submit(self, queue: Queue, record: Record) -> None:
        """Queue the kernel's work; raises what the reference kernel raises on the host."""
        _, kernel, reads, writes, _ = record
        reason = self.host_routes.get(self.route)
        if reason is None:
            try:
                run_on_device(queue, kernel, reads, writes)
                return
            except Exception as error:  # noqa: BLE001  (the library's failure is judged by the host's own run, below)
                reason = f"{type(error).__name__}: {error}"
        run_on_host(queue, kernel, reads, writes[:-1])
        self.host_routes[self.route] = reason


class HostLaunch:
    """Runs a reference kernel with NumPy on host copies, in the stream's order; never at commit."""

    __slots__ = ()
    workspace = 0
    blocks = True
    route_name = "host"

    def submit(self, queue: Queue, record: Record) -> None:
        """Copy in, run, copy back; raises what the reference kernel raises."""
        run_on_host(queue, record[1], record[2], record[3])


class ForeignLaunch:
    """Runs, or waits for, what Outlive did not write, with CuPy's arrays over the operands; never at commit.

    Everything before it is complete when it begins: another library may work on streams of its own.
    """

    __slots__ = ()
    workspace = 0
    blocks = True
    route_name = "foreign"

    def submit(self, queue: Queue, record: Record) -> None:
        """Wait for what comes before, then run or wait; raises what the work raises."""
        _, kernel, reads, writes, _ = record
        library = cupy()
        queue.driver.synchronize(queue.handle)
        try:
            with library.cuda.Device(queue.device.index), library.cuda.Stream.from_external(_External(queue.handle)):
                kernel.reference(library, tuple(o.view for o in reads), tuple(o.view for o in writes))
        finally:
            queue.driver.unbind()
            queue.device.bind()


def select_reference(device: CudaDevice, kernel: Any, reads: tuple[Operand, ...], writes: tuple[Operand, ...]) -> Any:
    """The launch of a kernel that has no compiled one."""
    route = (kernel.name, *[o.layout.dtype.name for o in (*reads, *writes)])
    if kernel.name in ON_THE_HOST or kernel.name.startswith("linalg.") or route in device.host_routes:
        return HostLaunch()
    layouts = tuple(o.layout for o in reads), tuple(o.layout for o in writes)
    declared = kernel.workspace(*layouts) * LIBRARY_FACTOR.get(kernel.name, 1) + _conversions(*layouts)
    return ReferenceLaunch(declared + declared // 8 + MINIMUM_WORKSPACE, route, device.host_routes)


def _conversions(reads: tuple[Any, ...], writes: tuple[Any, ...]) -> int:
    """Bytes for raising half-precision operands to float32 and rounding results: copies and what making them takes."""
    return sum(RAISED_BYTES * s.size for s in reads if s.dtype.half) + sum(
        ROUNDED_BYTES * s.size for s in writes if s.dtype.half
    )


class _External:
    """A stream of ours, in the protocol by which libraries take others' streams."""

    __slots__ = ("handle",)

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


def run_on_device(queue: Queue, kernel: Any, reads: tuple[Operand, ...], writes: tuple[Operand, ...]) -> None:
    """Queue a reference kernel with CuPy. The last of `writes` is its workspace."""
    library = cupy()
    *outputs, scratch = writes
    workspace = Workspace(scratch.pointer, scratch.buffer.size, queue.device.index)
    try:
        with (
            library.cuda.Device(queue.device.index),
            library.cuda.Stream.from_external(_External(queue.handle)),
            library.cuda.using_allocator(workspace.cupy_malloc),
        ):
            run_reference(kernel, reads, tuple(outputs), library)
    finally:
        queue.driver.unbind()  # the library leaves another device current
        queue.device.bind()


class _HostOperand:
    """A host copy of an operand, as reference kernels see one."""

    __slots__ = ("layout", "memory", "view")

    def __init__(self, queue: Queue, operand: Operand) -> None:
        layout = operand.layout
        self.layout = layout
        self.memory, self.view = host_array(
            queue.driver, queue.handle, operand.pointer, layout.shape, layout.strides, np.dtype(layout.dtype.storage)
        )


def run_on_host(queue: Queue, kernel: Any, reads: tuple[Operand, ...], writes: tuple[Operand, ...]) -> None:
    """Run a reference kernel with NumPy. Outputs go in first too: a kernel may write a part of what is there."""
    sources = tuple(_HostOperand(queue, o) for o in reads)
    targets = tuple(_HostOperand(queue, o) for o in writes)
    run_reference(kernel, sources, targets)
    for operand, target in zip(writes, targets, strict=True):
        first, end = span(operand.layout.shape, operand.layout.strides)
        if end > first:
            start = operand.pointer + first * operand.layout.dtype.itemsize
            queue.driver.copy_in(start, target.memory, queue.handle)
            queue.keep(target.memory)
