"""The persistent worker threads that share the parallel records of word lists.

Workers enter compiled code once and stay there: they look for parts, spin for a bounded time, then sleep in the
kernel until a caller that publishes a record wakes them. No Python runs on them, so they never wait for the GIL.
"""

from __future__ import annotations

import atexit
import ctypes
import math
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from outlive.backends.cpu.executor_ir import OFFSETS, POOL_WORDS

PARTS_PER_THREAD = 4
_SPINS = 1500
_PARTS_LIMIT = 4096


class Joinable(Protocol):
    """What a started worker gives back."""

    def join(self, timeout: float | None = None) -> None: ...


Spawn = Callable[[Callable[[], None]], Joinable]


def _quota_cores() -> float:
    """Cores that the control group's quota grants; infinity when there is none."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()[:2]
        return math.inf if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        pass  # no unified hierarchy: ask the older one
    try:
        quota_us = int(Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us").read_text())
        period_us = int(Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us").read_text())
        return quota_us / period_us if quota_us > 0 else math.inf
    except (OSError, ValueError):
        return math.inf


def thread_count() -> int:
    """Threads that compute, the caller's among them: OUTLIVE_NUM_THREADS, else the cores that the process may use.

    Raises ValueError when OUTLIVE_NUM_THREADS is not a positive whole number.
    """
    text = os.environ.get("OUTLIVE_NUM_THREADS", "")
    if text:
        if not text.isdigit() or int(text) < 1:
            raise ValueError(f"OUTLIVE_NUM_THREADS={text!r} is not a positive whole number; correct or unset it")
        return int(text)
    cores = len(os.sched_getaffinity(0))
    return max(1, math.ceil(min(cores, _quota_cores())))


def _spawn_daemon(target: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=target, name="outlive-cpu", daemon=True)
    thread.start()
    return thread


class Pool:
    """Worker threads and the block of memory through which callers and workers meet.

    threads: threads that compute, the caller's among them; `threads - 1` workers are started. work, stop: the
    executor's compiled functions. spawn: starts a thread running a callable and returns something with
    `join(timeout)`.
    """

    def __init__(
        self, threads: int, work: Callable[[int], None], stop: Callable[[int], None], spawn: Spawn = _spawn_daemon
    ) -> None:
        self.threads = threads
        self._stop = stop
        self._memory = (ctypes.c_int64 * (POOL_WORDS + 8))()
        start = ctypes.addressof(self._memory)
        self.address = (start + 63) & ~63
        self.words = words = (ctypes.c_int64 * POOL_WORDS).from_address(self.address)
        words[OFFSETS["PARTS_MAX"]] = min(threads * PARTS_PER_THREAD, _PARTS_LIMIT) if threads > 1 else 1
        words[OFFSETS["SPINS"]] = _SPINS
        words[OFFSETS["THREADS"]] = min(threads, _PARTS_LIMIT)
        self._workers = [spawn(lambda: work(self.address)) for _ in range(threads - 1)]
        atexit.register(self.close)

    def close(self) -> None:
        """Sends the workers home and waits for them; no list may be running. Safe to call again."""
        workers, self._workers = self._workers, []
        atexit.unregister(self.close)
        if workers:
            self._stop(self.address)
        for worker in workers:
            worker.join(1.0)
