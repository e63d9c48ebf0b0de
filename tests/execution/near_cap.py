"""Eight threads that allocate at random near a cap; a child of the tests.

usage: near_cap.py SECONDS CAP_BYTES

Prints one JSON object: the highest resident size and `allocated` seen, the resident size before, allocations and refusals.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time

import outlive.core as mx
from outlive import memory

THREADS = 8


def resident_bytes() -> int:
    """The process's resident size."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def churn(seed: int, end: float, cap: int, counts: list[int]) -> None:
    draw = random.Random(seed)
    kept: list[mx.array] = []
    while time.monotonic() < end:
        n = int(cap / THREADS * draw.choice([0.001, 0.01, 0.1, 0.5, 1.0]) * draw.random()) + 1
        try:
            made = mx.full((n,), draw.randrange(100), mx.uint8)
            if draw.random() < 0.5:
                made = made + mx.full((n,), 1, mx.uint8)
            mx.async_eval(made)
            kept.append(made)
            counts[0] += 1
        except memory.OutOfMemory:
            counts[1] += 1
            kept.clear()
        while kept and (len(kept) > 8 or draw.random() < 0.3):
            del kept[draw.randrange(len(kept))]


def main() -> None:
    seconds, cap = float(sys.argv[1]), int(sys.argv[2])
    memory.install_cap(cap)
    mx.eval(mx.full((1000,), 1, mx.uint8) + mx.full((1000,), 1, mx.uint8))  # what is loaded on first use is loaded
    before = resident_bytes()
    end = time.monotonic() + seconds
    counts = [[0, 0] for _ in range(THREADS)]
    threads = [threading.Thread(target=churn, args=(i, end, cap, counts[i])) for i in range(THREADS)]
    for thread in threads:
        thread.start()
    highest = allocated = 0
    while any(thread.is_alive() for thread in threads):
        highest = max(highest, resident_bytes())
        allocated = max(allocated, memory.snapshot().allocated)
        time.sleep(0.002)
    print(json.dumps({
        "before": before, "highest_resident": highest, "highest_allocated": allocated, "cap": cap,
        "allocations": sum(c[0] for c in counts), "refusals": sum(c[1] for c in counts),
    }))  # fmt: skip


if __name__ == "__main__":
    main()
