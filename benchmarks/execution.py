"""Host costs of sharing a process: serialized scopes, snapshots, foreign completions, import.

usage: python benchmarks/execution.py [--json FILE]

Prints a row each: median, 10th and 90th percentile, and the unit.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import numpy as np

import outlive.core as mx
from outlive import execution, memory
from outlive.cli.bench.hardware import describe


def percentiles(samples: list[float]) -> dict[str, float]:
    """Median and spread of samples."""
    ordered = sorted(samples)
    return {
        "median": statistics.median(ordered),
        "p10": ordered[len(ordered) // 10],
        "p90": ordered[-1 - len(ordered) // 10],
        "runs": len(ordered),
    }


def per_call_us(work: Callable[[], object], calls: int, repeats: int = 50) -> dict[str, float]:
    """Microseconds a call, from repeats of many calls."""
    samples = []
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(calls):
            work()
        samples.append((time.perf_counter() - start) / calls * 1e6)
    return percentiles(samples)


def serialized_scope() -> dict[str, float]:
    """What a scope around an evaluation of a computed array adds."""
    x = mx.ones((8,)) + 1.0
    mx.eval(x)

    def inside() -> None:
        with execution.serialized():
            mx.eval(x)

    with_scope, without = per_call_us(inside, 2000), per_call_us(lambda: mx.eval(x), 2000)
    return with_scope | {name: with_scope[name] - without[name] for name in ("median", "p10", "p90")}


def snapshot_of_10000_buffers() -> dict[str, float]:
    """A snapshot while 10,000 buffers are live."""
    kept = [mx.array(np.zeros(8, np.float32)) for _ in range(10_000)]
    result = per_call_us(memory.snapshot, 200)
    del kept
    return result


def foreign_wake_up() -> dict[str, float]:
    """From a ticket's completion on one thread to the stream's worker going on: the next record stamps the time."""
    samples = []
    stream = mx.new_stream(mx.default_device())
    for _ in range(200):
        out = mx.array(np.zeros(8, np.float32))
        stamp: list[float] = []
        with execution.foreign(stream, writes=[out]) as work:
            ticket = work.defer()
        execution.call(lambda r, w, stamp=stamp: stamp.append(time.perf_counter()), stream)
        done: list[float] = []

        def complete(done: list[float] = done, ticket: execution.Ticket = ticket) -> None:
            time.sleep(0.002)
            done.append(time.perf_counter())
            ticket.complete()

        thread = threading.Thread(target=complete)
        thread.start()
        thread.join()
        mx.synchronize(stream)
        samples.append((stamp[0] - done[0]) * 1e6)
    return percentiles(samples)


def import_ms() -> dict[str, float]:
    """A fresh process's `import outlive.core`, in milliseconds."""
    code = "import time; t = time.perf_counter(); import outlive.core; print(time.perf_counter() - t)"
    return percentiles([float(subprocess.check_output([sys.executable, "-c", code])) * 1e3 for _ in range(11)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json")
    options = parser.parse_args()
    rows = {
        "serialized_scope_us": serialized_scope(),
        "snapshot_10000_buffers_us": snapshot_of_10000_buffers(),
        "foreign_completion_to_wake_up_us": foreign_wake_up(),
        "import_outlive_core_ms": import_ms(),
    }
    for name, row in rows.items():
        print(f"{name:36} {row['median']:9.3f}  ({row['p10']:.3f} to {row['p90']:.3f}, {row['runs']} runs)")
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"hardware": describe(), "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
