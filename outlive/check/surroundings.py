"""What a schedule keeps apart from the process around it: module locks, random state, garbage collection."""

from __future__ import annotations

import contextlib
import gc
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

from outlive.backends.sim.fields import active, instrumented
from outlive.backends.sim.scheduler import Violation
from outlive.transforms.compile import _Function as Function

_LOCK_TYPES = (type(threading.Lock()), type(threading.RLock()))


def module_locks() -> list[tuple[Any, str]]:
    """(module, name) of every lock that a module of this package, or the thread pool's, holds: a schedule has its own in their places."""
    return [
        (module, name)
        for path, module in sorted(sys.modules.items())
        if (path.startswith("outlive.") or path == "concurrent.futures.thread") and module is not None
        for name, value in sorted(vars(module).items())
        if isinstance(value, _LOCK_TYPES)
    ]


class _Standstill:
    """The clock from which unseeded random numbers start."""

    @staticmethod
    def time_ns() -> int:
        return 0


@contextlib.contextmanager
def kept_apart(platform: Any) -> Iterator[None]:
    """Module locks are the platform's inside, and random numbers start from a fixed key."""
    from outlive.ops import random

    traces = [(function, function.entries) for function in _compiled]
    for function, _ in traces:
        function.entries = {}
    saved = [(module, name, getattr(module, name)) for module, name in _locks or module_locks()]
    # the methods of the plain list: those of the state would make a key where there is none
    key, clock = list.copy(random.state), random.time
    list.clear(random.state)
    random.time = _Standstill  # type: ignore[assignment]
    for module, name, _ in saved:
        setattr(module, name, platform.lock(f"{module.__name__}.{name}"))
    try:
        yield
    finally:
        for module, name, lock in saved:
            setattr(module, name, lock)
        for function, entries in traces:
            function.entries = entries
        random.time = clock
        list.clear(random.state)
        list.extend(random.state, key)


TIMERS = {"real": (signal.ITIMER_REAL, signal.SIGALRM), "cpu": (signal.ITIMER_VIRTUAL, signal.SIGVTALRM)}


@contextlib.contextmanager
def limited(seconds: float, clock: str = "real") -> Iterator[None]:
    """A schedule that takes longer ends as a finding, whichever of its threads is running. `clock`: "real", or "cpu" time.

    Only on the process's main thread, which alone gets signals.
    """
    timer, number = TIMERS[clock]

    def ring(number: int, frame: Any) -> None:
        violation = Violation(
            "liveness",
            f"The program had not ended after {seconds:g} s.",
            "a loop that never calls the library, or a wait for something outside that the checker cannot see",
        )
        scheduler = active[0]
        if scheduler is None or scheduler.current.index == 0:
            raise violation
        scheduler.stop_current(violation)

    previous = signal.signal(number, ring)
    signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        signal.setitimer(timer, 0)
        signal.signal(number, previous)


_depth = [0]
_compiled: list[Any] = []
"""Compiled functions that were made before the exploration: each schedule traces them anew, and keeps no trace of theirs."""
_locks: list[tuple[Any, str]] = []
"""The module locks, looked up once for an exploration."""


def forget_traces() -> None:
    """Drop what compiled functions traced in this schedule."""
    for function in _compiled:
        function.entries.clear()


@contextlib.contextmanager
def exploring() -> Iterator[None]:
    """Wraps many schedules: shared fields are points, and garbage is collected between schedules alone.

    A collection inside a schedule is one of its actions, so that it comes at the same place in every replay.
    """
    if _depth[0]:
        yield
        return
    _depth[0] += 1
    was_enabled = gc.isenabled()
    _locks[:] = module_locks()
    _compiled[:] = [o for o in gc.get_objects() if type(o) is Function]
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        with instrumented():
            yield
    finally:
        _depth[0] -= 1
        _locks.clear()
        _compiled.clear()
        gc.unfreeze()
        if was_enabled:
            gc.enable()
