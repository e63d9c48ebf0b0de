"""A program's own threads under the scheduler: `threading`'s threads and locks are the simulated platform's while it runs.

What the standard library builds from them in Python (conditions, events, semaphores, queues, thread pools) follows. What blocks elsewhere
(sockets, child processes, locks that a module made before) is not seen; the time limit of a schedule ends such a wait.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Iterator
from typing import Any

from outlive.backends.sim.platform import SimLock
from outlive.backends.sim.scheduler import Scheduler


class _PlainLock(SimLock):
    """A lock that is not recursive, as `threading.Lock` makes it: its holder, too, waits when it asks again."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        scheduler = self.scheduler
        scheduler.point()
        if self.depth:
            limit = None if timeout < 0 else timeout
            if not blocking or not scheduler.block(f"the lock {self.name}", lambda: not self.depth, limit):
                return False
        self.owner, self.depth = scheduler.current, 1
        return True

    def release(self) -> None:
        if not self.depth and not self.scheduler.over:
            raise RuntimeError("release unlocked lock")
        self.owner, self.depth = None, 0
        if not self.scheduler.over:
            self.scheduler.point()

    def locked(self) -> bool:
        return self.depth > 0


class _RecursiveLock(SimLock):
    """`threading.RLock`, with what `threading.Condition` asks of it."""

    def _is_owned(self) -> bool:
        return self.owner is self.scheduler.current

    def _release_save(self) -> tuple[Any, int]:
        saved = self.owner, self.depth
        self.owner, self.depth = None, 0
        return saved

    def _acquire_restore(self, saved: tuple[Any, int]) -> None:
        self.acquire()
        self.owner, self.depth = saved


@contextlib.contextmanager
def scheduled_threads(scheduler: Scheduler) -> Iterator[list[str]]:
    """`threading` belongs to `scheduler` inside; gives the names of the threads that were started."""
    started: list[str] = []
    thread = threading.Thread
    saved = (thread.start, thread.join, thread.is_alive)
    names = ("Lock", "RLock", "_allocate_lock")
    modules = {name: getattr(threading, name) for name in names}
    simple, sleep = queue.SimpleQueue, time.sleep

    def start(self: Any) -> None:
        if getattr(self, "_outlive", None) is not None:
            raise RuntimeError("threads can only be started once")
        started.append(self.name)
        self._outlive = scheduler.thread(lambda: _body(self), self.name)
        self._started._flag = True
        self._outlive.start()

    def join(self: Any, timeout: float | None = None) -> None:
        made = getattr(self, "_outlive", None)
        if made is None:
            raise RuntimeError("cannot join thread before it is started")
        made.join(timeout)

    def is_alive(self: Any) -> bool:
        made = getattr(self, "_outlive", None)
        return made is not None and made.is_alive()

    thread.start, thread.join, thread.is_alive = start, join, is_alive  # type: ignore[method-assign]
    replacements: dict[str, Any] = {
        "Lock": lambda: _PlainLock(scheduler, "of the program"),
        "_allocate_lock": lambda: _PlainLock(scheduler, "of the program"),
        "RLock": lambda: _RecursiveLock(scheduler, "of the program"),
    }
    for name, made in replacements.items():
        setattr(threading, name, made)
    queue.SimpleQueue = queue._PySimpleQueue  # type: ignore[attr-defined,misc]
    sleeping: Any = lambda seconds: scheduler.block("a sleep", lambda: False, seconds)  # noqa: E731
    time.sleep = sleeping
    try:
        yield started
    finally:
        thread.start, thread.join, thread.is_alive = saved  # type: ignore[method-assign]
        for name, value in modules.items():
            setattr(threading, name, value)
        queue.SimpleQueue = simple  # type: ignore[misc]
        time.sleep = sleep


def _body(thread: Any) -> None:
    """What a thread of the program does, with `threading.current_thread()` right inside it."""
    ident = threading.get_ident()
    thread._ident = ident
    threading._active[ident] = thread  # type: ignore[attr-defined]
    try:
        thread.run()
    finally:
        threading._active.pop(ident, None)  # type: ignore[attr-defined]
