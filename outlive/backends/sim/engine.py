"""The driver of the simulated device: streams of operations, run one at a time in the order that a schedule chooses.

A stream's head may run when what it awaits has happened. Nothing runs at submission, and nothing runs unless the schedule says so: the
default is the latest possible moment.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from outlive.backends.cpu.reference import run_reference
from outlive.backends.sim.choices import Action
from outlive.backends.sim.scheduler import Scheduler, Violation
from outlive.backends.sim.witness import Clock, Launch, Witness, join
from outlive.runtime.foreign import ForeignCall, Ticket


class Event:
    """Happens when its stream reaches it; `clock` is what had happened then."""

    __slots__ = ("clock", "fired", "stream", "then")

    def __init__(self, stream: int, then: Callable[[Event], None] | None = None) -> None:
        self.stream = stream
        self.fired = False
        self.clock: Clock = {}
        self.then = then


class Begin:
    """The start of a submission: the stream knows from here on what the host knew at the commit."""

    __slots__ = ("clock",)

    def __init__(self, clock: Clock) -> None:
        self.clock = clock


class Await:
    """The stream goes on when `event` has happened."""

    __slots__ = ("event",)

    def __init__(self, event: Event) -> None:
        self.event = event


class Work:
    """A launch; `failed` is told when its kernel raises."""

    __slots__ = ("failed", "launch")

    def __init__(self, launch: Launch, failed: Callable[[BaseException], None]) -> None:
        self.launch = launch
        self.failed = failed


class Held:
    """Outside work has begun: the stream goes on when its ticket is completed."""

    __slots__ = ("ticket", "work")

    def __init__(self, work: Work, ticket: Ticket) -> None:
        self.work = work
        self.ticket = ticket


class LaunchFault(RuntimeError):
    """The error of a launch that the schedule lets fail."""


class Engine:
    """All streams of the simulated devices of one schedule."""

    def __init__(self, scheduler: Scheduler, witness: Witness) -> None:
        self.scheduler = scheduler
        self.witness = witness
        self.queues: list[deque[Any]] = []
        self.clocks: list[Clock] = []
        self.coarse = False
        """Whether work runs only when its completion becomes news: for exhaustive runs, see `SimDevice.actions`."""
        scheduler.actors.append(self)

    def create_stream(self) -> int:
        """A new stream; its number."""
        self.queues.append(deque())
        self.clocks.append({})
        return len(self.queues) - 1

    def submit(self, stream: int, operation: Any) -> None:
        """Append an operation to a stream."""
        self.queues[stream].append(operation)

    def actions(self) -> list[Action]:
        return [] if self.coarse else self.executable()

    def executable(self) -> list[Action]:
        """The streams whose head may run."""
        found = []
        for stream, queue in enumerate(self.queues):
            if not queue:
                continue
            head = queue[0]
            if type(head) is Await and not head.event.fired:
                continue
            if type(head) is Held and head.ticket.state == "open":
                continue
            found.append(Action("execute", stream))
        return found

    def perform(self, action: Action) -> None:
        if action.kind == "execute":
            self.execute(action.subject)

    def execute(self, stream: int) -> None:
        """Run a stream's next launch, or go to its next event."""
        queue = self.queues[stream]
        clock = self.clocks[stream]
        while queue:
            operation = queue[0]
            kind = type(operation)
            if kind is Begin:
                join(clock, operation.clock)
            elif kind is Await:
                if not operation.event.fired:
                    return
                join(clock, operation.event.clock)
            else:
                queue.popleft()
                if kind is Event:
                    self._fire(operation, clock)
                elif kind is Held:
                    self._let_go(stream, clock, operation)
                else:
                    self._run(stream, clock, operation)
                return
            queue.popleft()

    def _fire(self, event: Event, clock: Clock) -> None:
        event.clock = dict(clock)
        event.fired = True
        if event.then is not None:
            event.then(event)

    def _run(self, stream: int, clock: Clock, work: Work) -> None:
        """Run a launch; a Violation ends the schedule, any other error belongs to the arrays of the launch."""
        scheduler = self.scheduler
        launch = work.launch
        try:
            self.witness.before(launch, stream, clock)
            try:
                if scheduler.fault("launch", stream):
                    raise LaunchFault("the schedule lets this launch fail")
                self._compute(launch)
            except Exception as error:  # noqa: BLE001  whatever a kernel raises belongs to the arrays of its launch
                work.failed(error)
            else:
                if type(launch.kernel) is ForeignCall and launch.kernel.ticket is not None:
                    self.queues[stream].appendleft(Held(work, launch.kernel.ticket))
                    return
            self._ran(stream, clock, launch)
        except Violation as violation:
            scheduler.fail(violation)

    def _ran(self, stream: int, clock: Clock, launch: Launch) -> None:
        clock[stream] = clock.get(stream, 0) + 1
        self.witness.after(launch, stream, clock[stream])

    @staticmethod
    def _compute(launch: Launch) -> None:
        kernel = launch.kernel
        if kernel.name == "migrate":
            launch.writes[0].view[...] = launch.reads[0].view  # one arena holds the memory of all simulated devices
        elif type(kernel) is ForeignCall:
            if kernel.call is not None:
                kernel.call(tuple(a.view for a in launch.reads), tuple(a.view for a in launch.writes))
        else:
            run_reference(kernel, launch.reads, launch.writes)  # type: ignore[arg-type]

    def _let_go(self, stream: int, clock: Clock, held: Held) -> None:
        """Outside work is over."""
        held.ticket.stream.blocked = None
        error = held.ticket._channel.get()
        if error is not None:
            held.work.failed(error)
        self._ran(stream, clock, held.work.launch)
