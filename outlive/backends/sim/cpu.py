"""The CPU device's own queues and workers under the deterministic scheduler: its code decides what runs, on threads that a seed switches.

Memory lies in the arena, every record runs its reference kernel, and the witness sees each of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from outlive.backends.cpu.device import CpuDevice
from outlive.backends.cpu.reference import run_reference
from outlive.backends.sim.arena import Arena
from outlive.backends.sim.device import SimMemory, watched
from outlive.backends.sim.engine import Engine, LaunchFault
from outlive.backends.sim.profiles import Profile
from outlive.backends.sim.witness import Clock, Launch, join
from outlive.runtime.foreign import ForeignCall

if TYPE_CHECKING:
    from outlive.runtime.command_buffer import CommandBuffer
    from outlive.runtime.runtime import Runtime
    from outlive.runtime.stream import Stream


class WatchedKernel:
    """Stands for a record's kernel, so that the witness is there when the CPU device runs it.

    `between_devices`: it takes its operands from the launch, and converts nothing beforehand.
    """

    between_devices = True
    __slots__ = ("before", "device", "launch", "name", "over", "stream")

    def __init__(self, device: SimCpuDevice, stream: Stream, launch: Launch, before: WatchedKernel | None) -> None:
        self.before = before
        self.device = device
        self.stream = stream
        self.launch = launch
        self.name = launch.kernel.name
        self.over = False
        """Whether it has run, or never will."""

    def skipped(self) -> None:
        """It and those before it that have not run never will: what they read had failed."""
        kernel: WatchedKernel | None = self
        while kernel is not None and not kernel.over:
            kernel.over = True
            self.device.witness.dropped(kernel.launch)
            kernel = kernel.before

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        device, launch = self.device, self.launch
        clock = device.clocks[self.stream.index]
        if self.before is not None:
            self.before.skipped()
        watched(device, lambda: device.witness.before(launch, self.stream.index, clock))
        device.scheduler.point()
        try:
            if device.scheduler.fault("launch", self.stream.index):
                raise LaunchFault("the schedule lets this launch fail")
            self.compute()
        finally:
            clock[self.stream.index] = clock.get(self.stream.index, 0) + 1
            self.over = True
            watched(device, lambda: device.witness.after(launch, self.stream.index, clock[self.stream.index]))

    def compute(self) -> None:
        """The kernel itself."""
        launch = self.launch
        kernel = launch.kernel
        if kernel.name == "migrate":
            launch.writes[0].view[...] = launch.reads[0].view
        elif type(kernel) is ForeignCall:
            kernel.reference(None, tuple(a.view for a in launch.reads), tuple(a.view for a in launch.writes))
        else:
            run_reference(kernel, launch.reads, launch.writes)  # type: ignore[arg-type]


class SimCpuDevice(SimMemory, CpuDevice):  # type: ignore[misc]  # its memory is the arena's
    """`CpuDevice` with its memory and its kernels replaced; queues, baton, workers and failures are its own."""

    def __init__(
        self, runtime: Runtime, index: int, engine: Engine, arena: Arena, profile: Profile, name: str = "cpu"
    ) -> None:
        SimMemory.__init__(self, runtime, index, engine, arena, profile)
        self.name = name
        self.failures = runtime.failures
        self.clocks: dict[int, Clock] = {}
        self._known: dict[tuple[int, int], Clock] = {}
        """By stream and tick: what the host knew when the command buffer was committed."""
        self._ended: dict[tuple[int, int], Clock] = {}
        """By stream and tick: what had happened when it was complete."""

    def check_handlers(self) -> None:
        """Handlers run on the thread that completes the work, from a list that nobody else has: none can be late."""

    def commit(self, stream: Stream, command_buffer: CommandBuffer) -> None:
        self.clocks.setdefault(stream.index, {})
        self._known[stream.index, command_buffer.tick] = dict(self.witness.host)
        watched(self, lambda: self._watch_records(stream, command_buffer))
        last = command_buffer.records[-1][1]
        command_buffer.handlers.insert(0, lambda: self._completed(stream, command_buffer.tick, last))
        super().commit(stream, command_buffer)

    def _watch_records(self, stream: Stream, command_buffer: CommandBuffer) -> None:
        records = command_buffer.records
        watching: WatchedKernel | None = None
        for at, (_, kernel, reads, writes, origin) in enumerate(records):
            launch = self.witness.launch(kernel, reads, writes, origin)
            watching = WatchedKernel(self, stream, launch, watching)
            records[at] = (None, watching, reads, writes, origin)

    def _execute(self, command_buffer: CommandBuffer) -> bool:
        stream = command_buffer.stream
        clock = self.clocks[stream.index]
        join(clock, self._known.pop((stream.index, command_buffer.tick), {}))
        for other, tick in command_buffer.waits.items():
            join(clock, other.device._ended.get((other.index, tick), {}))
        return super()._execute(command_buffer)

    def _completed(self, stream: Stream, tick: int, last: WatchedKernel) -> None:
        last.skipped()
        self._ended[stream.index, tick] = dict(self.clocks[stream.index])
        self.witness.observed(self._ended[stream.index, tick])
