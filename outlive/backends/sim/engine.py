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


class LaunchFault(RuntimeError):
    """The error of a launch that the schedule lets fail."""


class Engine:
    """All streams of the simulated devices of one schedule."""

    def __init__(self, scheduler: Scheduler, witness: Witness) -> None:
        self.scheduler = scheduler
        self.witness = witness
        self.queues: list[deque[Any]] = []
        self.clocks: list[Clock] = []
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
        found = []
        for stream, queue in enumerate(self.queues):
            if queue and not (type(queue[0]) is Await and not queue[0].event.fired):
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
        operation = clock.get(stream, 0) + 1
        try:
            self.witness.before(launch, stream, operation, clock)
            try:
                if scheduler.fault("launch", stream):
                    raise LaunchFault("the schedule lets this launch fail")
                if launch.kernel.name == "migrate":
                    launch.writes[0].view[...] = launch.reads[0].view  # one arena holds the memory of all simulated devices
                else:
                    run_reference(launch.kernel, launch.reads, launch.writes)  # type: ignore[arg-type]
            except Exception as error:
                work.failed(error)
            clock[stream] = operation
            self.witness.after(launch, stream, operation)
        except Violation as violation:
            scheduler.fail(violation)
