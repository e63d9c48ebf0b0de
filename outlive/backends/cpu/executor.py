"""Runs a word list: one compiled loop that calls kernels by address, without the GIL (abi.py says what a record is)."""

from __future__ import annotations

import ctypes
import os
import platform
import threading
from array import array

from outlive.backends.cpu import executor_ir, objects
from outlive.backends.cpu.pool import Pool, Spawn, _spawn_daemon, thread_count

_lock = threading.Lock()
_pool: Pool | None = None
_compiled: _Compiled | None = None


class _Compiled:
    """The executor's functions: `run` and `work` release the GIL, `run_held` keeps it."""

    def __init__(self) -> None:
        text = executor_ir.executor_ir(platform.machine())
        run, work, stop = objects.function_addresses(executor_ir.SYMBOLS, text, lambda: text)
        words = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
        self.run = ctypes.CFUNCTYPE(ctypes.c_int64, *words)(run)
        self.run_held = ctypes.PYFUNCTYPE(ctypes.c_int64, *words)(run)
        self.work = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(work)
        self.stop = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(stop)


def _functions() -> _Compiled:
    global _compiled
    if _compiled is None:
        with _lock:
            if _compiled is None:
                _compiled = _Compiled()
    return _compiled


def start(threads: int | None = None, spawn: Spawn = _spawn_daemon) -> Pool:
    """Starts the worker pool, or returns the one that runs.

    threads: threads that compute, the caller's among them; by default `thread_count()`. spawn: how a worker thread is
    started (it takes a callable, and returns something with `join(timeout)`).
    """
    global _pool
    functions = _functions()
    with _lock:
        if _pool is None:
            _pool = Pool(threads or thread_count(), functions.work, functions.stop, spawn)
        return _pool


def stop() -> None:
    """Ends the worker pool; no list may be running. The next `run` starts another."""
    global _pool
    with _lock:
        pool, _pool = _pool, None
    if pool is not None:
        pool.close()


def _forget_after_fork() -> None:
    """A forked child has the pool's memory but none of its threads, and perhaps a lock that nobody will release."""
    global _pool, _lock
    _pool, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget_after_fork)


def run(words: array[int], count: int) -> int:
    """Runs the first `count` words of a list without the GIL, sharing its parallel records with the worker pool.

    Returns -1, or the word offset of the record that failed; the records after it have not run.
    """
    pool = _pool or start()
    return _compiled.run(words.buffer_info()[0], count, pool.address)  # type: ignore[union-attr]


def run_holding_gil(words: array[int], count: int) -> int:
    """As `run`, on the calling thread alone and keeping the GIL: for lists of a few microseconds, where giving it up
    costs more than the work.
    """
    return (_compiled or _functions()).run_held(words.buffer_info()[0], count, None)
