"""The trace of one schedule: what the report, the page and the timeline are drawn from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from outlive.backends.sim.scheduler import Scheduler
from outlive.backends.sim.witness import Launch, Life
from outlive.runtime.buffer import Buffer
from outlive.runtime.origin import place, user_origin


@dataclass
class Bar:
    """A command buffer on its stream: from its commit to the moment at which the host knew of its end. Times are steps."""

    stream: int
    tick: int
    committed: int
    completed: int | None
    kernels: tuple[str, ...]


@dataclass
class Span:
    """A buffer's life. `uses`: (step, stream, kernel, place) of each launch that named it and ran; `awaited`: of those that have not."""

    serial: int
    size: int
    issued: int
    allocated_at: str
    dropped: int | None = None
    dropped_at: str = ""
    released: int | None = None
    uses: list[tuple[int, int, str, str]] = field(default_factory=list)
    awaited: list[tuple[Launch, int]] = field(default_factory=list)


@dataclass
class Run:
    """A launch that ran: step, stream, kernel, place of the op."""

    step: int
    stream: int
    kernel: str
    made_at: str


class Trace:
    """Records a schedule. It stands where the runtime, the witness and the mailbox look for a trace."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.bars: dict[tuple[int, int], Bar] = {}
        self.spans: dict[int, Span] = {}
        self.runs: list[Run] = []
        self.switches: list[tuple[int, str, str]] = []
        self._serials: dict[int, int] = {}
        scheduler.performed = self.performed

    @property
    def step(self) -> int:
        return self.scheduler.step

    def performed(self, step: int, thread: Any, action: Any) -> None:
        """A decision of the schedule."""
        subject = self.scheduler.threads[action.subject].name if action.kind == "run" else f"stream {action.subject}"
        self.switches.append((step, thread.name, f"{action.kind} {subject}"))

    # The runtime's side

    def committed(self, command_buffer: Any) -> None:
        names = tuple(record[1].name for record in command_buffer.records)
        key = command_buffer.stream.index, command_buffer.tick
        self.bars[key] = Bar(*key, self.step, None, names)

    def completed(self, command_buffer: Any) -> None:
        bar = self.bars.get((command_buffer.stream.index, command_buffer.tick))
        if bar is not None:
            bar.completed = self.step

    # The witness's side

    def issued(self, life: Life, buffer: Any) -> None:
        self._serials[id(buffer)] = life.serial
        self.spans[life.serial] = Span(life.serial, life.size, self.step, place(life.origin or user_origin(1)))

    def launched(self, launch: Launch) -> None:
        for serial in {a.life.serial for a in (*launch.reads, *launch.writes) if a.life is not None}:
            self.spans[serial].awaited.append((launch, self.step))

    def released(self, life: Life) -> None:
        self.spans[life.serial].released = self.step

    def ran(self, launch: Launch, stream: int) -> None:
        at = place(launch.origin)
        self.runs.append(Run(self.step, stream, launch.kernel.name, at))
        for serial in {a.life.serial for a in (*launch.reads, *launch.writes) if a.life is not None}:
            span = self.spans[serial]
            span.uses.append((self.step, stream, launch.kernel.name, at))
            span.awaited = [(other, step) for other, step in span.awaited if other is not launch]

    # The mailbox's side

    def posted(self, item: Any) -> None:
        """Something was posted: a buffer when its last owner went."""
        span = self.spans.get(self._serials.get(id(item), 0)) if type(item) is Buffer else None
        if span is not None:
            span.dropped, span.dropped_at = self.step, place(user_origin(1))
