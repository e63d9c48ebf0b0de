"""The hard cap and its snapshots: installed once and in time, never passed, adding up in every reading."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

import outlive.core as mx
from outlive import memory
from outlive.runtime.ledger import CATEGORIES

HEAD = """
import sys, threading
import numpy as np
import outlive.core as mx
from outlive import memory
def array(n):
    return mx.array(np.ones(n, np.uint8))
def fails(kind, words, work, *args):
    try:
        work(*args)
    except kind as error:
        assert words in str(error), error
    else:
        raise SystemExit(f'{words!r} was not raised')
"""

ORDERS = {
    "cap, then an attempt that fails, then success": """
memory.install_cap(1 << 20)
fails(memory.OutOfMemory, 'do not fit', array, 2 << 20)
assert array(1000).size == 1000
fails(RuntimeError, 'installed already', memory.install_cap, 1 << 20)
""",
    "a failed attempt, then the cap": """
fails(memory.OutOfMemory, 'do not fit', lambda: mx.eval(mx.zeros((1 << 22, 1 << 22))))
fails(RuntimeError, 'before the first array', memory.install_cap, 1 << 20)
""",
    "success, then the cap": """
array(10)
fails(RuntimeError, 'before the first array', memory.install_cap, 1 << 20)
""",
    "no cap below one": """
for n in (0, -5):
    fails(ValueError, 'positive', memory.install_cap, n)
fails(ValueError, 'positive', memory.install_cap, 1000, 0)
memory.install_cap(1 << 20)
""",
    "two threads at once: one of them wins": """
outcomes = []
def install(n):
    try:
        memory.install_cap(n)
        outcomes.append(n)
    except RuntimeError:
        pass
ts = [threading.Thread(target=install, args=((i + 1) << 20,)) for i in range(8)]
[t.start() for t in ts]; [t.join() for t in ts]
assert outcomes == [memory.snapshot().cap], outcomes
""",
    "a cap on the number of buffers": """
memory.install_cap(1 << 30, buffers=10)
kept = [array(10) for _ in range(10)]
fails(memory.OutOfMemory, '10 of 10 buffers', array, 10)
del kept[0]
assert array(10).size == 10
""",
    "work in flight gives way to what is needed": """
memory.install_cap(40 << 20)
a = array(8 << 20)
for i in range(50):
    b = (a + 1) * 2
    mx.async_eval(b)
assert b.max().item() == 4
""",
    "what is lazy survives a refusal": """
memory.install_cap(10 << 20)
big = mx.ones((3 << 20,), mx.uint8) + 1
held = array(8 << 20)
fails(memory.OutOfMemory, '<string>', lambda: mx.eval(big))
del held
assert big.max().item() == 2
""",
}


@pytest.mark.parametrize("name", ORDERS)
def test_cap_in_a_fresh_process(name: str):
    own = {k: v for k, v in os.environ.items() if not k.startswith("OUTLIVE_CAP_")}
    done = subprocess.run(
        [sys.executable, "-c", HEAD + ORDERS[name]], capture_output=True, text=True, timeout=60, env=own
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("variable", "text"), [("OUTLIVE_CAP_BYTES", "many"), ("OUTLIVE_CAP_BUFFERS", "-3")])
def test_a_cap_from_the_environment_must_be_a_positive_number(
    variable: str, text: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(variable, text)
    done = subprocess.run([sys.executable, "-c", HEAD + "array(3)"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert variable in done.stderr.splitlines()[-1]


def _adds_up(s: memory.Snapshot) -> bool:
    return sum(getattr(s, name) for name in CATEGORIES) == s.allocated <= s.cap and s.buffers <= s.cap_buffers


def test_parts_of_a_snapshot_add_up_in_every_reading_beside_busy_threads():
    stop = threading.Event()

    def churn(seed: int) -> None:
        draw = random.Random(seed)
        kept: list[Any] = []
        while not stop.is_set():
            kept.append(mx.array(np.zeros(draw.randrange(1, 50_000), np.uint8)) + 1)
            mx.async_eval(kept[-1])
            if len(kept) > 20:
                del kept[draw.randrange(len(kept))]

    threads = [threading.Thread(target=churn, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    try:
        assert all(_adds_up(memory.snapshot()) for _ in range(100_000))
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_largest_holders_are_named_with_their_lines():
    kept = mx.array(np.zeros(5 << 20, np.uint8))
    size, where = memory.snapshot().largest[0]
    assert size >= kept.nbytes
    assert "test_memory.py" in where or size > 6 << 20


def test_a_snapshot_prints_its_rows():
    kept = mx.array(np.zeros(1000, np.uint8))
    text = str(memory.snapshot())
    assert "live" in text
    assert "allocated" in text
    assert kept.size == 1000
