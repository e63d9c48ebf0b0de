"""What the driver's calls cost this backend, in microseconds: launches in lists, events, counters, capture and replay.

usage: cuda_driver.py [--json FILE]

Each figure is the least of several repeats. Needs a GPU.
"""

from __future__ import annotations

import argparse
import json
import time
from array import array
from collections.abc import Callable

from outlive.backends import cuda
from outlive.backends.cuda.kernels.build import CudaC, binary


def least_us(call: Callable[[], object], count: int = 1, repeats: int = 20) -> float:
    """The least time of one of `count` units that `call` does, in microseconds."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times) / count * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    driver, reason = cuda.find_driver()
    if driver is None:
        raise SystemExit(reason)
    driver.bind(0)
    made = binary(
        CudaC("nop", 'extern "C" __global__ void nop(float* x, long long n) { if (n < 0) *x = 0; }'),
        driver.facts(0).architecture,
    )
    function = driver.load_function(made.cubin, made.symbol, made.shared)
    stream, page = driver.create_stream(), driver.allocate_host(4096)
    memory = driver.allocate(4096)
    rows: dict[str, float] = {}

    def words(n: int) -> array[int]:
        return array("q", [function, 1, 1, 1, 32, 0, 2, memory, 1] * n)

    for n in (1, 10, 100, 1000):
        listed = words(n)

        def launch(listed: array[int] = listed) -> None:
            driver.launch(listed, stream)

        rows[f"launch a list of {n}, each"] = least_us(launch, n)
        driver.synchronize(stream)
        driver.begin_capture(stream)
        driver.launch(listed, stream)
        graph = driver.end_capture(stream)
        rows[f"instantiate {n}, each"] = least_us(
            lambda g=graph: driver.destroy_executable(driver.instantiate(g)), n, 5
        )
        executable = driver.instantiate(graph)

        def recapture(listed: array[int] = listed, executable: object = executable) -> None:
            driver.begin_capture(stream)
            driver.launch(listed, stream)
            made = driver.end_capture(stream)
            assert driver.update_graph(executable, made)
            driver.destroy_graph(made)

        rows[f"capture again and update {n}, each"] = least_us(recapture, n, 10)
        before = driver.free_memory()
        kept = [driver.instantiate(graph) for _ in range(64)]
        rows[f"bytes a node of {n} in a graph"] = (before - driver.free_memory()) / 64 / n
        for one in kept:
            driver.destroy_executable(one)
        rows[f"replay of {n}, host"] = least_us(lambda e=executable: driver.launch_graph(e, stream), 1, 10)
        driver.synchronize(stream)

        def whole(executable: object = executable) -> None:
            driver.launch_graph(executable, stream)
            driver.synchronize(stream)

        rows[f"replay of {n} and wait, each"] = least_us(whole, n, 10)
    event = driver.create_event()
    rows["record an event"] = least_us(lambda: [driver.record(event, stream) for _ in range(100)], 100)
    driver.synchronize(stream)
    rows["query an event"] = least_us(lambda: [driver.query(event) for _ in range(100)], 100)
    rows["wait for a complete event"] = least_us(lambda: [driver.wait_event(event) for _ in range(100)], 100)
    rows["write a counter"] = least_us(lambda: [driver.write_counter(stream, page, i) for i in range(100)], 100)
    driver.synchronize(stream)
    rows["read a counter"] = least_us(lambda: [driver.read_counter(page) for _ in range(100)], 100)
    rows["bind a bound device"] = least_us(lambda: [driver.bind(0) for _ in range(100)], 100)
    rows["allocate and release 1 MiB"] = least_us(lambda: driver.release(driver.allocate(1 << 20)))

    def round_trip() -> None:
        driver.launch(words(1), stream)
        driver.record(event, stream)
        driver.write_counter(stream, page, 7)
        driver.wait_event(event)

    rows["launch, record, write, wait"] = least_us(round_trip, 1, 200)
    for name, us in rows.items():
        print(f"{name:40s} {us:9.2f}")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"device": driver.facts(0).name, "driver": driver.version, "microseconds": rows}, file, indent=1)


if __name__ == "__main__":
    main()
