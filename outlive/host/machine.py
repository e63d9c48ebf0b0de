"""`Machine`: the `Platform` of a real computer, made of Python's own threads, locks and clock."""

from __future__ import annotations

import _thread
import collections
import contextlib
import os
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from outlive.runtime.platform import Timeout

HAND_BACK_INTERVAL_S = 5e-4
"""The interpreter's switch interval while compiled work runs beside busy Python threads, in seconds."""


class _FairInterpreter:
    """Lowers the interpreter's switch interval while compiled work runs, so that its thread gets the interpreter back soon.

    A thread that comes back from compiled code waits for the interpreter up to one switch interval (5 ms) when another thread is busy in
    Python. Only the waiting thread's own interval counts, so it is enough to lower it for as long as the work runs, and only when there is
    another thread at all. Nested and concurrent uses are counted; the last one out restores what was there.
    """

    def __init__(self) -> None:
        self._lock = _thread.allocate_lock()
        self._users = 0
        self._saved = 0.0

    def enter(self) -> None:
        with self._lock:
            if not self._users:
                self._saved = sys.getswitchinterval()
                if self._saved > HAND_BACK_INTERVAL_S:
                    sys.setswitchinterval(HAND_BACK_INTERVAL_S)
            self._users += 1

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            if not self._users and self._saved > HAND_BACK_INTERVAL_S:
                sys.setswitchinterval(self._saved)


class _Channel:
    """`queue.SimpleQueue` whose `get` raises the runtime's own `Timeout`."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.put = self._queue.put

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        try:
            return self._queue.get(block, timeout)
        except queue.Empty:
            raise Timeout from None


class Machine:
    """The platform of a real machine. Threads are daemons: they never keep a finished program alive."""

    def __init__(self) -> None:
        self._fair = _FairInterpreter()
        self._own_threads = 0

    def lock(self, name: str) -> Any:
        return threading.RLock()

    def condition(self, name: str) -> Any:
        return threading.Condition()

    def queue(self, name: str) -> Any:
        return collections.deque()

    def channel(self, name: str) -> _Channel:
        return _Channel()

    def thread(self, target: Callable[[], None], name: str) -> threading.Thread:
        self._own_threads += 1
        return threading.Thread(target=target, name=name, daemon=True)

    thread_id = staticmethod(threading.get_ident)

    def thread_name(self, identity: int) -> str:
        return next((t.name for t in threading.enumerate() if t.ident == identity), f"thread {identity}")

    def task_id(self) -> int:
        """The identity of the asyncio task that runs on this thread; 0 outside of one."""
        events = sys.modules.get("asyncio.events")
        if events is None or events._get_running_loop() is None:
            return 0
        task = sys.modules["asyncio"].current_task()
        return 0 if task is None else id(task)

    def stack(self, identity: int) -> str:
        """The Python stack of a thread, as text."""
        frame = sys._current_frames().get(identity)
        return "  (ended)\n" if frame is None else "".join(traceback.format_stack(frame))

    def report(self, text: str) -> None:
        """Tell the user something that is no error, on stderr."""
        sys.stderr.write(text)
        sys.stderr.flush()

    def process_id(self) -> int:
        return os.getpid()

    def now_ns(self) -> int:
        return time.perf_counter_ns()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def memory_bytes(self) -> int:
        """Bytes of memory that this process may use: the smaller of the control group's limit and the RAM."""
        ram = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return min([ram, *_control_group_limits()])

    @contextlib.contextmanager
    def released_interpreter(self) -> Iterator[None]:
        """Wraps compiled work that runs without the interpreter's lock."""
        if _thread._count() <= self._own_threads:
            yield
            return
        self._fair.enter()
        try:
            yield
        finally:
            self._fair.leave()


def _control_group_limits() -> list[int]:
    limits = []
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError), open(path) as file:
            limits.append(int(file.read()))
    return limits
