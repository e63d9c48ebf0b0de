"""The deterministic scheduler: real threads of which one runs at a time, switched at the points that a schedule chooses.

A point is every call of the simulated platform and every access to a field that the runtime declares as shared. The device is no thread:
its steps happen at points, on whichever thread is there.
"""

from __future__ import annotations

import _thread
import ctypes
import gc
import traceback
from collections.abc import Callable
from typing import Any, Protocol

from outlive.backends.sim.choices import FOREVER, Action, Choices
from outlive.runtime.errors import without_frames

LIMIT_STEPS = 2_000_000
"""Points that a schedule may take before it counts as one that never ends."""

NS_PER_STEP = 1000
"""How far the simulated clock goes at each point, in nanoseconds."""


class Aborted(BaseException):
    """Internal: the schedule is over for this thread, because something was found or the program has ended."""


class Violation(Exception):
    """A finding: which oracle found it, what it saw, and the likely cause in words."""

    def __init__(self, oracle: str, message: str, cause: str = "", subjects: tuple[Any, ...] = ()) -> None:
        super().__init__(message)
        self.oracle = oracle
        self.message = message
        self.cause = cause
        self.subjects = subjects
        """Lives and launches that the report marks."""


class Actor(Protocol):
    """Something beside the threads that can take steps: a device."""

    def actions(self) -> list[Action]: ...
    def perform(self, action: Action) -> None: ...


class SimThread:
    """A thread under the scheduler. `ready` says whether a waiting thread could go on; None when it is not waiting."""

    def __init__(self, scheduler: Scheduler, index: int, name: str, target: Callable[[], None] | None) -> None:
        self.scheduler = scheduler
        self.index = index
        self.name = name
        self.target = target
        self.gate = _thread.allocate_lock()
        self.gate.acquire()
        self.ident = _thread.get_ident() if target is None else 0
        self.started = target is None
        self.finished = False
        self.reason = ""
        self.ready: Callable[[], bool] | None = None
        self.timed = False
        self.timed_out = False

    @property
    def runnable(self) -> bool:
        return self.started and not self.finished and (self.ready is None or self.timed_out or self.ready())

    def start(self) -> None:
        """Make the thread runnable; it runs when the schedule says so."""
        self.started = True
        _thread.start_new_thread(self._body, ())
        self.scheduler.point()

    def _body(self) -> None:
        self.gate.acquire()
        self.ident = _thread.get_ident()
        scheduler = self.scheduler
        try:
            if not scheduler.over:
                self.target()  # type: ignore[misc]
        except Aborted:
            pass
        except BaseException as error:  # noqa: BLE001  (whatever a thread of the program raises is its outcome)
            scheduler.thread_errors.append((self.name, without_frames(error)))
        finally:
            self.target = None
            self.finished = True
            scheduler.hand_over()

    def join(self, timeout: float | None = None) -> None:
        self.scheduler.block(f"the end of {self.name}", lambda: self.finished, timeout)

    def is_alive(self) -> bool:
        return self.started and not self.finished


class Scheduler:
    """Decides, with `choices`, who runs. `step` counts points; `violation` is what was found."""

    def __init__(self, choices: Choices, limit_steps: int = LIMIT_STEPS) -> None:
        self.choices = choices
        self.limit_steps = limit_steps
        self.step = 0
        self.next_event = FOREVER
        self.violation: Violation | None = None
        self.over = False
        self.armed = False
        """Whether calls may fail and garbage may be collected: from the program's first line to its last."""
        self.coarse = False
        """Threads are switched at locks alone, and the device is looked at where the host looks at its mailbox: for exhaustive runs."""
        self.threads: list[SimThread] = [SimThread(self, 0, "main", None)]
        self.current = self.threads[0]
        self.actors: list[Actor] = []
        self.thread_errors: list[tuple[str, BaseException]] = []
        self.performed: Callable[[int, SimThread, Action], None] | None = None
        """Called with each action that happens, for a trace."""

    def begin(self) -> None:
        """The calling thread is the main one; the first interruption is drawn."""
        self.next_event = self.step + self.choices.gap(self.step)

    # Points

    def point(self) -> None:
        """Something else may happen here. Raises Aborted when the schedule is over."""
        self.step += 1
        if self.step >= self.next_event:
            self._event()

    def lock_point(self) -> None:
        """The point before a lock is taken."""
        self.step += 1
        if self.coarse or self.step >= self.next_event:
            self._event()

    def glance(self) -> None:
        """The host is about to look at its mailbox: in a coarse schedule, the only moment at which news make a difference."""
        if not self.coarse or self.over or not self.armed:
            return
        saved, self.next_event, self.coarse = self.next_event, FOREVER, False
        try:
            while True:
                options = [a for actor in self.actors for a in actor.actions()]
                action = self.choices.interrupt(self.step, options) if options else None
                if action is None:
                    return
                self._perform(action)
        finally:
            self.coarse = True
            self.next_event = saved

    def point_in_finalizer(self) -> None:
        """A point inside a finalizer, which must not raise: the next other point does."""
        self.step += 1
        if self.step >= self.next_event and not self.over:
            try:
                self._event()
            except Aborted:
                pass

    def _event(self) -> None:
        if _thread.get_ident() != self.current.ident:
            return  # a thread that is not ours: it runs freely
        if self.over:
            raise Aborted
        if self.step > self.limit_steps:
            self.fail(Violation("liveness", f"The program had not ended after {self.limit_steps:,} steps."))
        self.next_event = FOREVER
        step = (
            self.step
        )  # looking around touches shared fields, which must not count: a replay does not look everywhere
        options = [Action("run", t.index) for t in self.threads if t is not self.current and t.runnable]
        if not self.coarse:
            for actor in self.actors:
                options += actor.actions()
        if self.armed and not self.coarse:
            options.append(Action("collect", 0))
        self.step = step
        action = self.choices.interrupt(step, options)
        if action is None or action.kind == "run":
            self.next_event = self.step + self.choices.gap(self.step)
        if action is not None:
            self._perform(action)
            if action.kind != "run":
                self.next_event = self.step + self.choices.gap(self.step)

    def _perform(self, action: Action) -> None:
        if self.performed is not None:
            self.performed(self.step, self.current, action)
        kind, subject = action
        if kind == "run":
            self._switch(self.threads[subject])
        elif kind == "timeout":
            self.threads[subject].timed_out = True
        elif kind == "collect":
            gc.collect(1)  # with automatic collection off, all that is new is in the young generations
        else:
            for actor in self.actors:
                actor.perform(action)

    def _switch(self, to: SimThread) -> None:
        me = self.current
        if to is me:
            return
        self.current = to
        to.gate.release()
        me.gate.acquire()
        if self.over:
            raise Aborted

    # Waiting

    def block(self, reason: str, ready: Callable[[], bool], timeout: float | None = None) -> bool:
        """Return when `ready()` holds (True) or the wait timed out (False); others go on meanwhile. Raises Aborted."""
        me = self.current
        self.step += 1
        if self.over:
            raise Aborted
        saved, self.next_event = self.next_event, FOREVER
        if ready():
            self.next_event = saved
            return True
        me.reason, me.ready, me.timed, me.timed_out = reason, ready, timeout is not None, False
        try:
            while not me.timed_out:
                self._yield()
                self.next_event = FOREVER
                if ready():
                    return True
            return False
        finally:
            me.ready, me.timed, me.reason = None, False, ""
            if not self.over:
                self.next_event = self.step + self.choices.gap(self.step)

    def _yield(self) -> None:
        """One decision while the running thread waits: another thread, a step of the device, or a timeout."""
        self.step += 1
        if self.step > self.limit_steps:
            self.fail(Violation("liveness", f"The program had not ended after {self.limit_steps:,} steps."))
        options = self._options_when_waiting()
        if not options:
            self.fail(
                Violation(
                    "liveness", self._standstill(), "a wake-up that was lost, or a wait for work that nobody submits"
                )
            )
        action = self.choices.next(self.step, options)
        if self.performed is not None and action.kind == "run":
            self.performed(self.step, self.current, action)
        if action.kind == "run":
            self.next_event = self.step + self.choices.gap(self.step)
            self._switch(self.threads[action.subject])
        else:
            self._perform(action)

    def _options_when_waiting(self) -> list[Action]:
        options = [Action("run", t.index) for t in self.threads if t is not self.current and t.runnable]
        for actor in self.actors:
            options += [a for a in actor.actions() if a.kind not in ("repeat", "spurious")]
        return options or [
            Action("timeout", t.index) for t in self.threads if t.timed and not t.timed_out and t.started
        ]

    def _standstill(self) -> str:
        waiting = "; ".join(
            f"{t.name} waits for {t.reason}" for t in self.threads if t.started and not t.finished and t.ready
        )
        return f"Nothing can go on: {waiting}."

    def hand_over(self) -> None:
        """The running thread ends: the next one goes on; the main one if the schedule is over."""
        self.next_event = FOREVER
        while True:
            self.step += 1
            if self.over:
                to = self.threads[0]
            else:
                options = self._options_when_waiting()
                if not options:
                    self._record(Violation("liveness", self._standstill(), "a wake-up that was lost"))
                    continue
                action = self.choices.next(self.step, options)
                if action.kind != "run":
                    try:
                        self._perform(action)
                    except Aborted:
                        pass
                    continue
                to = self.threads[action.subject]
            if not self.over:
                self.next_event = self.step + self.choices.gap(self.step)
            self.current = to
            to.gate.release()
            return

    def fault(self, kind: str, subject: int) -> bool:
        """Whether a call that may fail does."""
        self.step += 1
        return self.armed and self.choices.fault(self.step, kind, subject)

    # Ends

    def _record(self, violation: Violation) -> None:
        if self.violation is None:
            self.violation = violation
        self.over = True
        self.next_event = 0

    def fail(self, violation: Violation) -> None:
        """Something was found: keep it, and end every thread of the schedule."""
        self._record(violation)
        raise Aborted

    def stop_current(self, violation: Violation) -> None:
        """End the thread that runs now, from a signal's handler: it may be in a loop that has no points."""
        self._record(violation)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.current.ident), ctypes.py_object(Aborted))

    def end(self) -> None:
        """The main thread is done: end the other threads, one after the other."""
        self.over = True
        self.next_event = 0
        for thread in self.threads[1:]:
            if thread.started and not thread.finished:
                self.current = thread
                thread.gate.release()
                self.threads[0].gate.acquire()
        self.current = self.threads[0]

    def thread(self, target: Callable[[], None], name: str) -> SimThread:
        """A new thread, not started."""
        made = SimThread(self, len(self.threads), name, target)
        self.threads.append(made)
        return made

    def stacks(self, frames: dict[int, Any]) -> str:
        """The Python stacks of all threads, for a report of a standstill."""
        alive = [t for t in self.threads if t.ident in frames and not t.finished]
        return "".join(f"{t.name}:\n" + "".join(traceback.format_stack(frames[t.ident])[-4:]) for t in alive)
