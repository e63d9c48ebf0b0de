"""A long run of everything at once: threads that evaluate, foreign completions, cancellations and failures; a child of the tests.

usage: stress.py SECONDS SEED [--serialized]

Prints one JSON object: programs run, mismatches, live bytes and buffers early and at the end. Exit status 0 unless something hung or broke.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np

import outlive.core as mx
from outlive import execution, memory

EVALUATORS = 4
FOREIGN = 2
EARLY = 0.1
"""The share of the run after which the first reading of memory is taken (a minute of ten)."""

OPS: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (lambda a, b: a + b, np.add),
    (lambda a, b: a - b, np.subtract),
    (lambda a, b: a * b, np.multiply),
    (mx.maximum, np.maximum),
    (mx.minimum, np.minimum),
]


class Stress:
    """What the threads share: the clock, the counts, and the quiet points at which memory is read."""

    def __init__(self, seconds: float, serialized: bool) -> None:
        self.end = time.monotonic() + seconds
        self.serialized = serialized
        self.lock = threading.Lock()
        self.programs = self.failures_seen = self.cancelled = 0
        self.mismatches: list[str] = []
        self.pause = threading.Event()
        self.parked = threading.Semaphore(0)
        self.resume = threading.Event()

    def scope(self) -> Any:
        return execution.serialized() if self.serialized else nullcontext()

    def running(self) -> bool:
        """Whether to go on; a thread stands here while memory is read."""
        if self.pause.is_set():
            self.parked.release()
            self.resume.wait()
        return time.monotonic() < self.end

    def count(self, name: str) -> None:
        with self.lock:
            setattr(self, name, getattr(self, name) + 1)

    def compare(self, got: Any, want: np.ndarray, what: str) -> None:
        if not np.array_equal(np.array(got), want):
            with self.lock:
                self.mismatches.append(what)

    # One thread each

    def evaluate(self, seed: int) -> None:
        """Random programs over small integers in float32, exact in any order, against NumPy."""
        draw = random.Random(seed)
        streams = [mx.new_stream(mx.default_device()) for _ in range(3)]
        while self.running():
            self._program(draw, streams)
            self.count("programs")

    def _program(self, draw: random.Random, streams: list[Any]) -> None:
        n = draw.choice([1, 7, 63, 500, 5000, 70_000])
        start = np.random.RandomState(draw.randrange(1 << 30)).randint(-8, 9, (2, n)).astype(np.float32)
        ours, theirs = [mx.array(row) for row in start], list(start)
        for _ in range(draw.randrange(1, 20)):
            i, j = draw.randrange(len(ours)), draw.randrange(len(ours))
            op, reference = draw.choice(OPS)
            with mx.stream(draw.choice(streams)):
                made, value = op(ours[i], ours[j]), reference(theirs[i], theirs[j])
            if np.abs(value).max() > 1 << 20:
                continue
            ours.append(made)
            theirs.append(value)
            if draw.random() < 0.2:
                mx.async_eval(made)
            if len(ours) > 6:
                k = draw.randrange(len(ours))
                del ours[k], theirs[k]
        self._finish(draw, ours, theirs)

    def _finish(self, draw: random.Random, ours: list[Any], theirs: list[np.ndarray]) -> None:
        if draw.random() < 0.2:  # cancelled: dropped in flight
            mx.async_eval(*ours)
            self.count("cancelled")
            return
        if draw.random() < 0.1:
            self._fail_once()
        with self.scope():
            mx.eval(*ours)
            for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
                self.compare(a, b, f"array {i} of {len(ours)} with {b.size} elements")

    def _fail_once(self) -> None:
        bad = mx.linalg.inv(mx.zeros((2, 2)), stream=mx.cpu)
        for _ in range(2):
            try:
                (bad + 1).tolist()
            except execution.ExecutionError:
                self.count("failures_seen")
            else:
                self.mismatches.append("a singular inverse did not raise")

    def foreign(self, seed: int) -> None:
        """Foreign work on a stream of its own, completed late by another thread, failed, or called in order."""
        draw = random.Random(seed)
        stream = mx.new_stream(mx.default_device())
        while self.running():
            self._foreign_work(draw, stream)

    def _foreign_work(self, draw: random.Random, stream: Any) -> None:
        n = draw.choice([8, 1000, 50_000])
        a = mx.array(np.full(n, 3, np.float32)) + 1
        out = mx.array(np.zeros(n, np.float32))
        kind = draw.random()
        if kind < 0.4:
            execution.call(lambda r, w: np.multiply(r[0], 2, out=w[0]), stream, [a], [out])
            want = 8.0
        else:
            with execution.foreign(stream, [a], [out]) as work:
                source, target, ticket = work.reads[0], work.writes[0], work.defer()
            want = 12.0
            threading.Timer(draw.random() * 0.003, self._complete, (source, target, ticket, kind > 0.9)).start()
        if draw.random() < 0.2:
            self.count("cancelled")
            return
        try:
            self.compare(out + 1.0, np.full(n, want + 1, np.float32), "foreign result")
        except execution.ExecutionError:
            self.count("failures_seen")
            if kind <= 0.9:
                self.mismatches.append("foreign work failed by itself")

    @staticmethod
    def _complete(source: np.ndarray, target: np.ndarray, ticket: execution.Ticket, fail: bool) -> None:
        if fail:
            ticket.fail(OSError("failed on purpose"))
        else:
            np.multiply(source, 3, out=target)
            ticket.complete()

    def read_memory(self, threads: int) -> dict[str, int]:
        """Live bytes and buffers at a point where every thread stands still and all work is over."""
        self.resume.clear()
        self.pause.set()
        for _ in range(threads):
            if not self.parked.acquire(timeout=60):
                raise SystemExit("a thread did not come to its quiet point within 60 s\n" + execution.audit())
        for stream in list(memory.runtime.streams):
            mx.synchronize(stream)
        mx.clear_cache()
        now = memory.snapshot()
        self.pause.clear()
        self.resume.set()
        return {"live": now.live, "buffers": now.buffers}


def main() -> None:
    seconds, seed, serialized = float(sys.argv[1]), int(sys.argv[2]), "--serialized" in sys.argv
    stress = Stress(seconds, serialized)
    works = [(stress.evaluate, seed + i) for i in range(EVALUATORS)] + [
        (stress.foreign, seed + 100 + i) for i in range(FOREIGN)
    ]
    threads = [threading.Thread(target=work, args=(s,), daemon=True) for work, s in works]
    for thread in threads:
        thread.start()
    time.sleep(seconds * EARLY)
    early = stress.read_memory(len(threads))
    time.sleep(max(0.0, stress.end - time.monotonic() - seconds * EARLY))
    late = stress.read_memory(len(threads))
    for thread in threads:
        thread.join(60)
        if thread.is_alive():
            raise SystemExit("a thread hangs\n" + execution.audit())
    print(json.dumps({
        "programs": stress.programs, "failures_seen": stress.failures_seen, "cancelled": stress.cancelled,
        "mismatches": stress.mismatches[:5], "early": early, "late": late,
    }))  # fmt: skip


if __name__ == "__main__":
    main()
