"""The end of a process, a thread and a fork: the exit status is the program's own, and nothing hangs."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAD = """
import gc, os, signal, sys, threading, time
import numpy as np
import outlive.core as mx
from outlive import execution
a = mx.array(np.ones((512, 512), np.float32))
def busy():
    b = a
    for _ in range(20):
        b = b @ a
    mx.async_eval(b)
    return b
"""

PROGRAMS = {
    "work in flight": ("busy()", 0),
    "a status of its own": ("busy(); sys.exit(7)", 7),
    "an exception": ("busy(); raise SystemExit(3)", 3),
    "os._exit": ("busy(); os._exit(5)", 5),
    "arrays in a cycle": ("x = [busy()]; x.append(x); del x", 0),
    "arrays that outlive their module": ("import types; m = types.ModuleType('m'); m.x = busy(); sys.modules['m'] = m; del m", 0),
    "threads that end with arrays": (
        "ts = [threading.Thread(target=busy) for _ in range(8)]; [t.start() for t in ts]; [t.join() for t in ts]", 0,
    ),
    "a daemon thread that evaluates": (
        "def loop():\n    while True: mx.eval(busy())\nthreading.Thread(target=loop, daemon=True).start(); time.sleep(0.2)", 0,
    ),
    "foreign work that never completes": (
        "out = mx.array(np.zeros(8, np.float32))\nwith execution.foreign(writes=[out]) as w: w.defer()", 0,
    ),
    "an array kept by an atexit handler": ("import atexit; b = busy(); atexit.register(lambda: b.tolist())", 0),
    "an exception in __del__": (
        "class C:\n    def __init__(s): s.x = busy()\n    def __del__(s): raise RuntimeError\n"
        "c = C(); os.dup2(os.open(os.devnull, os.O_WRONLY), 2)", 0,
    ),
    "a signal": ("busy(); signal.signal(signal.SIGTERM, lambda *a: sys.exit(9)); os.kill(os.getpid(), signal.SIGTERM)", 9),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_exit_status_is_the_programs_own(name: str):
    code, status = PROGRAMS[name]
    done = subprocess.run([sys.executable, "-c", HEAD + code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (status, "")


FORK = """
x = mx.array(np.arange(8, dtype=np.float32)) + 1.0
mx.eval(x)
later = x * 2.0
{before}
pid = os.fork()
if pid == 0:
    assert x.tolist() == [1., 2., 3., 4., 5., 6., 7., 8.]
    assert later.tolist() == [2., 4., 6., 8., 10., 12., 14., 16.]
    y = mx.array(np.ones(1000, np.float32)) + 1.0
    mx.async_eval(y)
    assert y.tolist() == [2.0] * 1000
    {child}
    os._exit(0)
_, status = os.waitpid(pid, 0)
assert later.tolist() == [2., 4., 6., 8., 10., 12., 14., 16.]
sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.parametrize(
    ("before", "child"),
    [
        ("", ""),
        ("b = busy()", "b = None"),
        ("t = threading.Thread(target=lambda: [mx.eval(busy()) for _ in range(5)]); t.start()", ""),
        ("mx.async_eval(later)", ""),
    ],
    ids=["quiet", "work in flight", "another thread evaluating", "the very array in flight"],
)
def test_a_forked_child_computes_and_never_hangs(before: str, child: str):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", HEAD + FORK.format(before=before, child=child)],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_interrupting_a_wait_loses_only_what_ran():
    code = """
def slow(reads, writes):
    time.sleep(0.4)
    writes[0][:] = 1
signal.signal(signal.SIGALRM, signal.default_int_handler)
out, other = (mx.array(np.zeros(8, np.float32)) for _ in range(2))
execution._record(mx.default_stream(mx.default_device()), execution.ForeignCall(slow, None), (), (out,))
kept = other + 1.0
signal.setitimer(signal.ITIMER_REAL, 0.1)
try:
    mx.eval(out + 1.0, kept)
    raise SystemExit('not interrupted')
except KeyboardInterrupt:
    pass
assert kept.tolist() == [1.0] * 8
try:
    out.tolist()
    raise SystemExit('the interrupted array has a value')
except execution.ExecutionError as error:
    assert 'interrupted' in str(error)
"""
    done = subprocess.run([sys.executable, "-c", HEAD + code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
