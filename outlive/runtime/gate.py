"""The gate of `execution.serialized()`: while one thread (or asyncio task) holds it, every other evaluation waits outside.

The gate is looked at under the runtime's lock. Who finds it held leaves the lock first (`Gated`) and waits then, so the holder can go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from outlive.runtime.errors import SerializedScope
from outlive.runtime.platform import shared

if TYPE_CHECKING:
    from outlive.runtime.platform import Platform
    from outlive.runtime.runtime import Runtime

WATCHDOG_S = 10.0
"""Seconds that a wait of ours lasts before the stacks of both sides are printed, once."""


class Gated(Exception):
    """Internal: another thread holds the gate; leave the lock and wait."""

    def __init__(self, gate: Gate) -> None:
        super().__init__("the evaluation gate is held")
        self.gate = gate

    def wait(self) -> None:
        """Return when the gate is free (not under the lock)."""
        self.gate.wait()


@shared("held", "thread", "task")
class Gate:
    """A recursive scope owned by a thread and, inside asyncio, a task."""

    __slots__ = ("condition", "held", "platform", "runtime", "task", "thread", "waiting", "watchdog_s")

    def __init__(self, platform: Platform, runtime: Runtime) -> None:
        self.platform = platform
        self.runtime = runtime
        self.condition = platform.condition("gate")
        self.held = 0
        self.thread = 0
        self.task = 0
        self.waiting: set[int] = set()
        self.watchdog_s = WATCHDOG_S

    def check(self) -> None:
        """Under the lock: pass, leave the lock to wait (Gated), or raise SerializedScope for another task of the holder's thread."""
        if self.thread != self.platform.thread_id():
            raise Gated(self)
        if self.task != self.platform.task_id():
            raise SerializedScope(
                "[serialized] Another task of this thread evaluates while a task holds execution.serialized(); waiting would never end. "
                f"Do not await inside the scope. Holder: {self.holder()}."
            )

    @property
    def mine(self) -> bool:
        """Whether the calling thread holds the gate."""
        return self.held > 0 and self.thread == self.platform.thread_id()

    def enter(self) -> None:
        """Take the gate, waiting for another holder and for all other work to end."""
        platform = self.platform
        runtime = self.runtime
        while True:
            with runtime.lock:
                if not self.held:
                    self.thread = platform.thread_id()
                    self.task = platform.task_id()
                    self.held = 1
                    break
                try:
                    self.check()
                except Gated:
                    pass
                else:
                    self.held += 1
                    return
            self.wait()
        if runtime.busy():
            runtime.synchronize()

    def leave(self) -> None:
        """Give one level back; the outermost waits for the work of the scope."""
        if not self.held or self.thread != self.platform.thread_id():
            raise SerializedScope(
                "[serialized] The scope is closed by a thread that does not hold it; close it where it was opened. "
                f"Holder: {self.holder()}."
            )
        if self.held > 1:
            self.held -= 1
            return
        try:
            if self.runtime.busy():
                self.runtime.synchronize()
        finally:
            self.thread = self.task = 0
            self.held = 0
            if self.waiting:
                with self.condition:
                    self.condition.notify_all()

    def wait(self) -> None:
        """Wait until the gate is free; after `watchdog_s` print the waiter's and the holder's stacks, once."""
        told = False
        me = self.platform.thread_id()
        self.waiting.add(me)  # before `held` is looked at: the holder lets go first and looks for waiters then
        try:
            with self.condition:
                while self.held:
                    if not self.condition.wait(self.watchdog_s) and self.held and not told:
                        told = True
                        self.platform.report(self._standstill())
        finally:
            self.waiting.discard(me)

    def _standstill(self) -> str:
        me = self.platform.thread_id()
        return (
            f"outlive: {self.platform.thread_name(me)} has waited {self.watchdog_s:g} s for execution.serialized(), "
            f"held by {self.holder()}.\n"
            f"Waiting:\n{self.platform.stack(me)}Holding:\n{self.platform.stack(self.thread)}"
        )

    def holder(self) -> str:
        """Who holds the gate, in words."""
        if not self.held:
            return "nobody"
        return self.platform.thread_name(self.thread) + (f", task {self.task:#x}" if self.task else "")
