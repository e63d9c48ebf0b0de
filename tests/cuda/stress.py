"""Eight threads with four streams each on a GPU whose cap is near their working set; run by hand and by the nightly.

usage: stress.py SECONDS [CAP_BYTES] [--device cpu]

Every array is filled with one whole number that the thread knows; ops keep it exact. Prints one JSON object: programs,
wrong values, refusals, device bytes after a tenth of the run and at its end. Exit status 0 when nothing was wrong.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time

THREADS, STREAMS = 8, 4
if len(sys.argv) > 2 and sys.argv[2].isdigit():
    os.environ["OUTLIVE_CAP_BYTES"] = sys.argv[2]

import outlive.core as mx  # noqa: E402  (the cap is read at import)
from outlive import memory  # noqa: E402


class Counts:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.programs = self.refused = 0
        self.wrong: list[str] = []


def program(draw: random.Random, streams: list[mx.Stream], counts: Counts) -> None:
    """A few arrays through ops on changing streams, each compared with the number that it must hold."""
    n = draw.choice([1, 63, 500, 65_000, 1_000_000])
    held = [(mx.full((n,), float(v)), v) for v in (draw.randrange(1, 9), draw.randrange(1, 9))]
    for _ in range(draw.randrange(4, 24)):
        (a, x), (b, y) = draw.choice(held), draw.choice(held)
        with mx.stream(draw.choice(streams)):
            kind = draw.randrange(4)
            made, value = ((a + b, x + y), (a - b, x - y), (mx.maximum(a, b), max(x, y)), (a * 2.0 - b, 2 * x - y))[
                kind
            ]
        if abs(value) < 1 << 20:
            held.append((made, value))
        if draw.random() < 0.3:
            mx.async_eval(made)
        if len(held) > 5:
            held.pop(draw.randrange(len(held)))
    if draw.random() < 0.2:
        return  # dropped in flight
    for array, value in held:
        low, high = array.min().item(), array.max().item()
        if (low, high) != (value, value):
            with counts.lock:
                counts.wrong.append(f"{n} elements of {value} are {low} to {high}")


def work(seed: int, end: float, counts: Counts) -> None:
    draw = random.Random(seed)
    streams = [mx.new_stream(mx.default_device()) for _ in range(STREAMS)]
    while time.monotonic() < end:
        try:
            program(draw, streams, counts)
        except memory.OutOfMemory:
            with counts.lock:
                counts.refused += 1
        with counts.lock:
            counts.programs += 1


def main() -> None:
    seconds = float(sys.argv[1])
    mx.set_default_device(mx.cpu if "cpu" in sys.argv else mx.gpu)
    counts = Counts()
    end = time.monotonic() + seconds
    threads = [threading.Thread(target=work, args=(n, end, counts)) for n in range(THREADS)]
    for t in threads:
        t.start()
    time.sleep(seconds / 10)
    early = memory.snapshot().allocated
    for t in threads:
        t.join()
    late = memory.snapshot().allocated
    result = {
        "programs": counts.programs,
        "refused": counts.refused,
        "wrong": counts.wrong[:5],
        "early": early,
        "late": late,
    }
    print(json.dumps(result))
    sys.exit(bool(counts.wrong) or counts.programs < THREADS)


if __name__ == "__main__":
    main()
