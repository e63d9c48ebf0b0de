"""`SimPlatform`: the runtime's platform under the deterministic scheduler. Every call is a point."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from outlive.backends.sim.scheduler import NS_PER_STEP, Scheduler, SimThread
from outlive.runtime.platform import Timeout

MEMORY_BYTES = 1 << 30


class SimLock:
    """A recursive lock. Who asks for a held one waits; who gets it next is the schedule's choice."""

    __slots__ = ("depth", "name", "owner", "scheduler")

    def __init__(self, scheduler: Scheduler, name: str) -> None:
        self.scheduler = scheduler
        self.name = name
        self.owner: SimThread | None = None
        self.depth = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        scheduler = self.scheduler
        if scheduler.current is not self.owner:
            scheduler.lock_point()
            if self.owner is not None:
                if not blocking:
                    return False
                limit = None if timeout < 0 else timeout
                if not scheduler.block(f"the lock {self.name}", lambda: self.owner is None, limit):
                    return False
            self.owner = scheduler.current
        self.depth += 1
        return True

    def release(self) -> None:
        if self.owner is not self.scheduler.current:
            if self.scheduler.over:
                return
            raise RuntimeError(
                f"[sim] {self.scheduler.current.name} releases the lock {self.name}, which it does not hold."
            )
        self.depth -= 1
        if not self.depth:
            self.owner = None
            if not self.scheduler.over:
                self.scheduler.point()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *exc: object) -> None:
        self.release()


class SimCondition(SimLock):
    """A condition variable. Waiters are woken together; one may also be woken for nothing."""

    __slots__ = ("_waiters",)

    def __init__(self, scheduler: Scheduler, name: str) -> None:
        super().__init__(scheduler, name)
        self._waiters: list[list[bool]] = []

    def wait(self, timeout: float | None = None) -> bool:
        if self.owner is not self.scheduler.current:
            raise RuntimeError(f"[sim] {self.scheduler.current.name} waits on {self.name} without holding it.")
        woken = [False]
        self._waiters.append(woken)
        depth, self.depth, self.owner = self.depth, 0, None
        try:
            in_time = self.scheduler.block(f"the condition {self.name}", lambda: woken[0], timeout)
            self.scheduler.block(f"the condition {self.name}", lambda: self.owner is None)
        finally:
            if woken in self._waiters:
                self._waiters.remove(woken)
            if self.owner is None:
                self.owner, self.depth = self.scheduler.current, depth
        return in_time

    def notify_all(self) -> None:
        for woken in self._waiters:
            woken[0] = True
        self._waiters.clear()
        if not self.scheduler.over:
            self.scheduler.point()

    def notify(self, n: int = 1) -> None:
        for woken in self._waiters[:n]:
            woken[0] = True
        del self._waiters[:n]


class SimQueue:
    """The mailbox: a point at each end. `post` is the device's side, which is no thread and makes no point.

    `watch` sees what is appended, for a trace.
    """

    __slots__ = ("_items", "post", "scheduler", "watch")

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self._items: collections.deque[Any] = collections.deque()
        self.post = self._items.append
        self.watch: Callable[[Any], None] | None = None

    def append(self, item: Any, /) -> None:
        self._items.append(item)
        if self.watch is not None:
            self.watch(item)
        self.scheduler.point_in_finalizer()

    def popleft(self) -> Any:
        self.scheduler.point()
        return self._items.popleft()

    def __len__(self) -> int:
        if self.scheduler.coarse:
            self.scheduler.glance()
        return len(self._items)


class SimChannel:
    """A queue that a thread waits on."""

    __slots__ = ("_items", "name", "scheduler")

    def __init__(self, scheduler: Scheduler, name: str) -> None:
        self.scheduler = scheduler
        self.name = name
        self._items: collections.deque[Any] = collections.deque()

    def put(self, item: Any, /) -> None:
        self._items.append(item)
        self.scheduler.point_in_finalizer()

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if not self._items and (not block or not self.scheduler.block(self.name, lambda: bool(self._items), timeout)):
            raise Timeout
        return self._items.popleft()


class SimPlatform:
    """Locks, threads, queues and a clock that belong to one scheduler."""

    def __init__(self, scheduler: Scheduler, memory_bytes: int = MEMORY_BYTES) -> None:
        self.scheduler = scheduler
        self._memory_bytes = memory_bytes
        self.reports: list[str] = []

    def lock(self, name: str) -> SimLock:
        return SimLock(self.scheduler, name)

    def condition(self, name: str) -> SimCondition:
        return SimCondition(self.scheduler, name)

    def queue(self, name: str) -> SimQueue:
        return SimQueue(self.scheduler)

    def channel(self, name: str) -> SimChannel:
        return SimChannel(self.scheduler, name)

    def thread(self, target: Callable[[], None], name: str) -> SimThread:
        return self.scheduler.thread(target, name)

    def thread_id(self) -> int:
        self.scheduler.point()
        return self.scheduler.current.index + 1

    def thread_name(self, identity: int) -> str:
        return self.scheduler.threads[identity - 1].name

    def task_id(self) -> int:
        return 0

    def stack(self, identity: int) -> str:
        return f"  ({self.thread_name(identity)})\n"

    def report(self, text: str) -> None:
        self.reports.append(text)

    def process_id(self) -> int:
        return 1

    def now_ns(self) -> int:
        self.scheduler.point()
        return self.scheduler.step * NS_PER_STEP

    def sleep(self, seconds: float) -> None:
        self.scheduler.block("a sleep", lambda: False, seconds)

    def memory_bytes(self) -> int:
        return self._memory_bytes

    @contextlib.contextmanager
    def released_interpreter(self) -> Iterator[None]:
        self.scheduler.point()
        yield
        self.scheduler.point()
