"""`SimDevice`: the runtime's device over the simulated driver.

A committed command buffer becomes operations of one driver stream: what the host knows, waits, launches, an event. Its completion is news
that arrives late, repeated, or together with later ones; until it arrives, the host knows nothing.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from outlive.backends.sim.arena import Arena, Cell
from outlive.backends.sim.choices import Action
from outlive.backends.sim.engine import Await, Begin, Engine, Event, Work
from outlive.backends.sim.profiles import Profile
from outlive.backends.sim.scheduler import Violation
from outlive.backends.sim.witness import Witness
from outlive.runtime.allocator import Allocator
from outlive.runtime.builtin import BYTE, Workspaced
from outlive.runtime.errors import Failure, shapes_of
from outlive.runtime.ledger import Ledger
from outlive.runtime.stream import LIMIT_RUN_AHEAD

if TYPE_CHECKING:
    from outlive.runtime.buffer import Buffer, Operand
    from outlive.runtime.command_buffer import CommandBuffer
    from outlive.runtime.origin import Origin
    from outlive.runtime.runtime import Runtime
    from outlive.runtime.stream import Stream

SELECTED = "sim"
"""The launch of every record: one that is not None, so that the encoder takes its short way too."""


SLACK_RUN_AHEAD = 2
"""Command buffers beyond the runtime's limit that each thread may have committed before it looks at the limit."""

BROKEN_EVERY = 4
"""One in so many failing allocations fails with another error than a want of memory."""


class DriverFault(RuntimeError):
    """The error of an allocation that fails for another reason than a want of memory."""


class Scratching(Workspaced):
    """The launch of a kernel that asks for scratch memory, as libraries do."""

    __slots__ = ()


SCRATCHING = Scratching()
SCRATCHING.workspace = 96
USES_SCRATCH = ("matmul", "sum")
"""Kernels that the simulated device runs with scratch memory."""


class _Launches(dict[Any, Any]):
    """Kernels known for the encoder's short way."""

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, SELECTED)


class WatchedAllocator(Allocator):
    """The runtime's allocator, with a witness at its door."""

    def __init__(self, device: Any, ledger: Ledger, runtime: Runtime, witness: Witness) -> None:
        super().__init__(device, ledger, runtime)
        self.witness = witness

    def allocate(self, nbytes: int, stream: Stream | None, origin: Origin | None = None) -> Buffer:
        buffer = super().allocate(nbytes, stream, origin)
        device = self.device
        device.owned += buffer.size
        device.owned_peak = max(device.owned_peak, device.owned)
        watched(self.device, lambda: self.witness.issued(buffer, None if stream is None else stream.index, origin))
        return buffer

    def release(self, buffer: Buffer) -> None:
        self.device.owned -= buffer.size
        watched(self.device, lambda: self.witness.released(buffer))
        super().release(buffer)


def watched(device: Any, look: Any) -> Any:
    """Let the witness look; what it finds ends the schedule."""
    try:
        return look()
    except Violation as violation:
        device.scheduler.fail(violation)


class SimMemory:
    """Memory, kernels and host access of the simulated devices: what they share."""

    name: str

    def __init__(self, runtime: Runtime, index: int, engine: Engine, arena: Arena, profile: Profile) -> None:
        self.runtime = runtime
        self.index = index
        self.engine = engine
        self.scheduler = engine.scheduler
        self.witness = engine.witness
        self.arena = arena
        self.profile = profile
        self.ledger = Ledger(runtime.platform.memory_bytes())
        self.allocator: Allocator = WatchedAllocator(self, self.ledger, runtime, self.witness)
        self.launches: dict[Any, Any] = _Launches()
        self.held = self.held_peak = self.owned = self.owned_peak = 0
        """Bytes taken from the driver, and bytes that the allocator handed out and did not get back: now and at most."""
        self.cells: set[Cell] = set()

    def __repr__(self) -> str:
        return f"Device({self.name}, {self.index})"

    def allocate(self, size: int) -> tuple[int, Cell]:
        """`size` bytes; raises MemoryError when the schedule says so."""
        self.scheduler.point()
        if self.scheduler.fault("allocate", self.index):
            if self.scheduler.step % BROKEN_EVERY == 0:
                raise DriverFault("[sim] The schedule lets the driver break down in an allocation.")
            raise MemoryError("[sim] The schedule lets this allocation fail.")
        cell = self.arena.obtain(size)
        self.held += size
        self.held_peak = max(self.held_peak, self.held)
        self.cells.add(cell)
        watched(self, self._check_ledger)
        return cell.pointer, cell

    def _check_ledger(self) -> None:
        ledger = self.ledger
        if self.held > ledger.cap:
            raise Violation(
                "ledger",
                f"{self.held:,} bytes are taken from the driver under a cap of {ledger.cap:,}.",
                "the cap was checked, then passed",
            )
        if self.held > ledger.allocated:
            raise Violation(
                "ledger", f"{self.held:,} bytes are taken from the driver, but {ledger.allocated:,} are accounted for.",
                "allocated before it was reserved, or refunded too early or twice",
            )  # fmt: skip

    def release(self, memory: Cell) -> None:
        """Memory goes back to the driver."""
        watched(self, lambda: self._released(memory))

    def _released(self, cell: Cell) -> None:
        if cell.freed:
            raise Violation("ledger", f"Memory of {cell.size:,} bytes went back to the driver twice.", "released twice")
        self._check_ledger()
        self.witness.freed(cell)
        self.arena.give_back(cell)
        self.held -= cell.size
        self.cells.remove(cell)

    def view(self, memory: Cell, layout: Any, offset: int) -> np.ndarray:
        return self.arena.view(memory, layout, offset)

    def copy_in(self, values: np.ndarray, operand: Operand) -> None:
        """Host values into a fresh operand, at once."""
        watched(self, lambda: self.witness.host_writes(operand.buffer))
        self.arena.view(operand.buffer.block.memory, operand.layout, operand.offset)[...] = values

    def copy_out(self, operand: Operand) -> np.ndarray:
        """A computed operand: in place where the profile's memory is the host's, a copy elsewhere."""
        self.scheduler.point()
        watched(self, lambda: self.witness.host_reads(operand.buffer))
        view = self.arena.view(operand.buffer.block.memory, operand.layout, operand.offset)
        return view if self.profile.host_memory else view.copy()

    def select(self, kernel: Any, reads: Any, writes: Any) -> Any:
        """Every call is served by its reference kernel; some ask for scratch memory."""
        return SCRATCHING if kernel.name in USES_SCRATCH else SELECTED

    def after_fork_in_child(self, stream: Stream) -> None:
        """A simulated device does not fork."""

    def check_handlers(self) -> None:
        """Look at the completion handlers of all that was committed. Raises Violation."""


class SimQueue:
    """The driver's side of one stream: events of the ticks not known to be complete, and the news that are due."""

    def __init__(self, device: SimDevice, stream: Stream) -> None:
        self.device = device
        self.stream = stream
        self.number = device.engine.create_stream()
        self.events: dict[int, Event] = {}
        self.failures: dict[int, dict[int, BaseException]] = {}
        self.reached = 0
        """The last tick whose event has happened."""
        self.told = 0
        """The last tick that the host was told of."""
        self.news = 0


class Completion:
    """News for the mailbox: a stream has reached `tick`. Older or repeated news change nothing."""

    __slots__ = ("device", "stream", "tick")

    def __init__(self, device: SimDevice, stream: Stream, tick: int) -> None:
        self.device = device
        self.stream = stream
        self.tick = tick

    def arrive(self) -> None:
        self.device.retire(self.stream, self.tick)


class SimDevice(SimMemory):
    """A device whose work runs when the schedule says so."""

    name = "gpu"

    def __init__(
        self, runtime: Runtime, index: int, engine: Engine, arena: Arena, profile: Profile, name: str = "gpu"
    ) -> None:
        super().__init__(runtime, index, engine, arena, profile)
        self.name = name
        self.queues: dict[int, SimQueue] = {}
        self.failures = runtime.failures
        self.committed: dict[CommandBuffer, int] = {}
        """Every command buffer that was committed, with the number of its handlers then."""
        self.scheduler.actors.append(self)

    # Submission

    def queue(self, stream: Stream) -> SimQueue:
        if stream.state is None:
            stream.state = SimQueue(self, stream)
            self.queues[stream.state.number] = stream.state
        return stream.state

    def commit(self, stream: Stream, command_buffer: CommandBuffer) -> None:
        stream.pending.append(command_buffer)
        self.committed[command_buffer] = len(command_buffer.handlers)
        watched(self, lambda: self._check_scratch(command_buffer))
        watched(self, lambda: self._check_run_ahead(stream))
        watched(self, lambda: self._submit(stream, command_buffer))

    def _submit(self, stream: Stream, command_buffer: CommandBuffer) -> None:
        queue = self.queue(stream)
        submit = self.engine.submit
        number = queue.number
        tick = command_buffer.tick
        submit(number, Begin(dict(self.witness.host)))
        for other, awaited in command_buffer.waits.items():
            event = other.state.events.get(awaited)
            if event is not None:
                submit(number, Await(event))
            elif other.completed < awaited:
                raise Violation(
                    "fence", f"{command_buffer!r} waits for tick {awaited} of {other}, which was never submitted.", ""
                )
        resources: set[int] = set()
        for index, (_, kernel, reads, writes, origin) in enumerate(command_buffer.records):
            launch = self.witness.launch(kernel, reads, writes, origin)
            resources.update(a.life.serial for a in (*launch.reads, *launch.writes) if a.life is not None)
            submit(number, Work(launch, functools.partial(self._failed, queue, tick, index)))
        self._check_resources(command_buffer, len(resources))
        event = queue.events[tick] = Event(number, lambda event: self._reached(queue, tick))
        submit(number, event)

    def check_handlers(self) -> None:
        """Handlers freeze at the commit; those that were there have run. Raises Violation."""
        for command_buffer in self.committed:
            self._check_frozen(command_buffer)

    def _check_frozen(self, command_buffer: CommandBuffer) -> None:
        if len(command_buffer.handlers) != (0 if command_buffer.done else self.committed[command_buffer]):
            raise Violation("profile", f"A handler was attached to {command_buffer!r}.", "attached after the commit")
        if command_buffer.done and (command_buffer.records or command_buffer.program is not None):
            raise Violation("balance", f"{command_buffer!r} is over and still keeps what it retained.", "")

    def _check_resources(self, command_buffer: CommandBuffer, count: int) -> None:
        limit = self.profile.limit_resources
        if limit and count > limit:
            raise Violation(
                "profile", f"{command_buffer!r} names {count} buffers; the driver allows {limit}.", "commit earlier"
            )

    def _check_scratch(self, command_buffer: CommandBuffer) -> None:
        for launch, kernel, _, writes, _ in command_buffer.records:
            if launch is SCRATCHING and (
                not writes or writes[-1].layout.dtype is not BYTE or writes[-1].layout.nbytes < launch.workspace
            ):
                raise Violation(
                    "profile", f"{kernel.name} runs without the scratch memory that its launch asked for.", ""
                )

    def _check_run_ahead(self, stream: Stream) -> None:
        threads = len(self.scheduler.threads)
        if len(stream.pending) > LIMIT_RUN_AHEAD + SLACK_RUN_AHEAD * threads:
            raise Violation(
                "over-retention",
                f"{len(stream.pending)} command buffers of {stream} are in flight.",
                "no limit on run-ahead",
            )

    def _failed(self, queue: SimQueue, tick: int, index: int, error: BaseException) -> None:
        error.__traceback__ = None
        queue.failures.setdefault(tick, {})[index] = error

    def _reached(self, queue: SimQueue, tick: int) -> None:
        queue.reached = tick

    # News

    def actions(self) -> list[Action]:
        """What may happen. In coarse schedules that is the next completion of a stream, with the work that leads to it, and nothing else.

        That loses no finding: launches on different streams that touch the same memory are ordered by fences or found by the witness
        whichever comes first, and work that ran without the host's knowledge looks to the host like work that did not run.
        """
        if self.engine.coarse:
            return [Action("news", n) for n, queue in self.queues.items() if queue.events and not self._stuck(queue)]
        found = []
        for number, queue in self.queues.items():
            if queue.reached > queue.told:
                found.append(Action("notify", number))
        for number, queue in self.queues.items():
            if queue.told:
                found.append(Action("repeat", number))
            found.append(Action("spurious", number))
        return found

    def perform(self, action: Action) -> None:
        kind, subject = action
        queue = self.queues.get(subject)
        if queue is None or kind not in ("notify", "repeat", "spurious", "news"):
            return
        if kind == "news":
            self._reach_next(queue)
            kind = "notify"
        queue.news += 1
        if kind == "notify":
            queue.told = queue.reached
        if kind != "spurious":
            self.runtime.mailbox.post(Completion(self, queue.stream, queue.told))  # type: ignore[attr-defined]

    def _stuck(self, queue: SimQueue) -> bool:
        """Whether nothing of the device can go on though the stream has work: outside work is not complete."""
        return queue.reached <= queue.told and not self.engine.executable()

    def _reach_next(self, queue: SimQueue) -> None:
        """Run what leads to the stream's next event."""
        while queue.reached <= queue.told:
            heads = self.engine.executable()
            if not heads:
                return
            own = Action("execute", queue.number)
            self.engine.execute(own.subject if own in heads else heads[0].subject)

    def retire(self, stream: Stream, tick: int) -> None:
        """The host learns that everything up to `tick` is over (under the runtime's lock)."""
        queue = self.queue(stream)
        pending = stream.pending
        while pending and pending[0].tick <= tick:
            command_buffer = pending[0]
            for other, awaited in command_buffer.waits.items():
                if other.completed < awaited:
                    other.device.retire(other, awaited)  # it has happened, though its own news are not here yet
            watched(self, lambda: self._check_frozen(pending[0]))
            failed = self._settle(queue, command_buffer)
            self.witness.observed(queue.events.pop(command_buffer.tick).clock)
            command_buffer.complete(failed)
            stream.completed = command_buffer.tick
            pending.popleft()
            trace = self.runtime.trace
            if trace is not None:
                trace.completed(command_buffer)

    def _settle(self, queue: SimQueue, command_buffer: CommandBuffer) -> bool:
        """Give failures to the arrays that they belong to, and pass them on to what read those; whether there were any."""
        failures = queue.failures.pop(command_buffer.tick, {})
        if not failures and not self.failures:
            return False
        failed = False
        for index, (_, kernel, reads, writes, origin) in enumerate(command_buffer.records):
            failure = next((o.buffer.failure for o in reads if o.buffer.failure is not None), None)
            if failure is None and index in failures:
                failure = Failure(failures[index], kernel.name, shapes_of(reads), str(queue.stream), origin)
            if failure is not None:
                failed = True
                for operand in writes:
                    operand.buffer.failure = failure
                    self.failures.add(operand.buffer)
        return failed

    def start(self, stream: Stream) -> None:
        """The device goes on by itself."""

    def stop(self, stream: Stream) -> None:
        """The device has no threads."""

    def wait(self, stream: Stream, tick: int) -> None:
        """Return when `tick` is complete: on news, take the lock and let them arrive."""
        while stream.completed < tick:
            self.scheduler.point()
            if stream.blocked is not None:
                stream.blocked.refuse_opener()
            queue = self.queue(stream)
            if queue.told < tick:
                self._await_news(stream, queue, tick)
            with self.runtime.lock:
                self.runtime.drain()

    def _await_news(self, stream: Stream, queue: SimQueue, tick: int) -> None:
        seen = queue.news
        self.scheduler.block(f"tick {tick} of {stream}", lambda: queue.news != seen or stream.completed >= tick)
