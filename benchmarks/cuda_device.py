"""The GPU device as a whole: host cost of an op, bandwidth beside the card's own copy, products beside PyTorch's cuBLAS
calls, replay.

usage: cuda_device.py [--json FILE] [--peer]

Device figures: 20 calls at once over the same inputs, larger than the L2 cache, outputs kept; the least of several
repeats. `--peer`: PyTorch's products in the same process, where it is installed. Needs a GPU.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import outlive.core as mx
from outlive.backends import cuda
from outlive.graph import state

CALLS = 20
LIBRARIES = ("numpy", "triton", "cuda-bindings", "llvmlite")
rows: dict[str, dict[str, float]] = {}


def seconds(call: Callable[[], Any], repeats: int = 10) -> list[float]:
    """Sorted times of `repeats` evaluations, after three that do not count."""
    times = []
    for n in range(repeats + 3):
        start = time.perf_counter()
        call()
        if n >= 3:
            times.append(time.perf_counter() - start)
    return sorted(times)


def note(name: str, times: list[float], calls: int, work: float = 0, unit: str = "") -> None:
    """Keep and print a row: microseconds a call (least, median, largest) and the rate at the least."""
    least, median, most = (t / calls * 1e6 for t in (times[0], times[len(times) // 2], times[-1]))
    rows[name] = {"us": least, "median_us": median, "most_us": most} | ({unit: work / least * 1e6} if work else {})
    rate = f"{work / least * 1e6:.4g} {unit}" if work else ""
    print(f"{name:44s} {least:10.2f} us ({median:.2f}, {most:.2f})  {rate}", flush=True)


def host_cost() -> None:
    zero = mx.zeros((8,))
    mx.eval(zero)
    for count in (10, 100, 1000):

        def chain(x: mx.array, count: int = count) -> mx.array:
            for _ in range(count):
                x = x + 1.0
            return x

        note(f"eager chain of {count} adds, each", seconds(lambda f=chain: mx.eval(f(zero)), 30), count)
        fast = mx.compile(chain)
        note(f"compiled chain of {count} adds, whole", seconds(lambda f=fast: mx.eval(f(zero)), 30), 1)
        queued = seconds(lambda f=fast: mx.async_eval(f(zero)), 30)
        mx.synchronize()
        note(f"compiled chain of {count} adds, host alone", queued, 1)

    def every() -> None:
        x = zero
        for _ in range(100):
            x = x + 1.0
            mx.eval(x)

    note("eval after every op", seconds(every, 20), 100)


def captured() -> None:
    from outlive.backends.cuda.captured import CapturedLaunch

    spent: list[float] = []
    plain = CapturedLaunch.submit

    def timed(self: Any, queue: Any, record: Any) -> None:
        start = time.perf_counter()
        plain(self, queue, record)
        spent.append(time.perf_counter() - start)

    CapturedLaunch.submit = timed  # type: ignore[method-assign]
    x, w = mx.ones((16, 64)), mx.ones((64, 64)) * 0.01
    mx.eval(x, w)
    for count in (10, 100, 1000):

        def layers(x: mx.array, count: int = count) -> mx.array:
            for _ in range(count // 2):
                x = mx.tanh(x @ w)
            return x

        fast = mx.compile(layers)
        mx.eval(fast(x))
        queued = seconds(lambda f=fast: mx.async_eval(f(x)), 20)
        mx.synchronize()
        note(f"captured function of {count} kernels, host alone", queued, 1)
        note(f"captured function of {count} kernels, its replay alone", sorted(spent[5:]), 1)
        spent.clear()
        note(f"captured function of {count} kernels, whole", seconds(lambda f=fast: mx.eval(f(x)), 20), 1)
        spent.clear()
    CapturedLaunch.submit = plain  # type: ignore[method-assign]


def many(f: Callable[[], Any]) -> list[float]:
    return seconds(lambda: mx.eval([f() for _ in range(CALLS)]))


def copy_bandwidth(nbytes: int) -> None:
    """The driver's own copy, device to device, timed by its events."""
    from cuda.bindings import driver as raw

    driver, _ = cuda.find_driver()
    driver.bind(0)
    source, target, stream = driver.allocate(nbytes), driver.allocate(nbytes), driver.create_stream()
    start, end = driver.create_timer(), driver.create_timer()
    times = []
    for _ in range(10):
        driver.record(start, stream)
        for _ in range(CALLS):
            raw.cuMemcpyDtoDAsync(target, source, nbytes, stream)
        driver.record(end, stream)
        driver.synchronize(stream)
        times.append(driver.elapsed_ms(start, end) / 1e3)
    note("the driver's copy", sorted(times[2:]), CALLS, 2 * nbytes, "B/s")
    driver.release(source)
    driver.release(target)


def bandwidth() -> None:
    n = 1 << 26
    copy_bandwidth(4 * n)
    random = np.random.default_rng(0)
    a, b = (mx.array(random.normal(size=n).astype(np.float32)) for _ in range(2))
    h = a.astype(mx.bfloat16)
    mx.eval(a, b, h)
    note("add float32", many(lambda: a + b), CALLS, 12 * n, "B/s")
    note("add bfloat16", many(lambda: h + h), CALLS, 4 * n, "B/s")
    note("cast float32 to bfloat16", many(lambda: a.astype(mx.bfloat16)), CALLS, 6 * n, "B/s")
    note("tanh float32", many(lambda: mx.tanh(a)), CALLS, 8 * n, "B/s")
    gelu = mx.compile(lambda x: x * 0.5 * (1 + mx.tanh(0.79788456 * (x + 0.044715 * x * x * x))))
    note("gelu float32, compiled", many(lambda: gelu(a)), CALLS, 8 * n, "B/s")
    m, row = a.reshape(-1, 4096), b[:4096]
    half = row.astype(mx.bfloat16)
    note("add a row float32", many(lambda: m + row), CALLS, 8 * n, "B/s")
    note("transposed copy float32", many(lambda: mx.contiguous(m.T)), CALLS, 8 * n, "B/s")
    note("softmax of 4096 float32", many(lambda: mx.softmax(m, axis=-1)), CALLS, 8 * n, "B/s")
    note("softmax of 4096 bfloat16", many(lambda: mx.softmax(h.reshape(-1, 4096), axis=-1)), CALLS, 4 * n, "B/s")
    if hasattr(mx, "fast"):
        note("rms_norm of 4096 float32", many(lambda: mx.fast.rms_norm(m, row, 1e-5)), CALLS, 8 * n, "B/s")
        note(
            "rms_norm of 4096 bfloat16",
            many(lambda: mx.fast.rms_norm(h.reshape(-1, 4096), half, 1e-5)),
            CALLS,
            4 * n,
            "B/s",
        )
    note("sum of all float32", many(lambda: a.sum()), CALLS, 4 * n, "B/s")
    note("sum of rows float32", many(lambda: m.sum(axis=1)), CALLS, 4 * n, "B/s")
    note("sum of columns float32", many(lambda: m.sum(axis=0)), CALLS, 4 * n, "B/s")


def products(peer: bool) -> None:
    random = np.random.default_rng(0)
    for n, kind in ((64, "float32"), (8192, "float32"), (8192, "bfloat16")):
        a, b = (mx.array(random.normal(size=(n, n)).astype(np.float32)).astype(getattr(mx, kind)) for _ in range(2))
        mx.eval(a, b)
        note(
            f"product {n} {kind}",
            seconds(lambda a=a, b=b: mx.eval([a @ b for _ in range(CALLS)]), 4),
            CALLS,
            2 * n**3,
            "FLOP/s",
        )
        if peer:
            _peer_product(n, kind, np.array(a.astype(mx.float32)), np.array(b.astype(mx.float32)))
    weights = mx.array(random.normal(size=(8192, 8192)).astype(np.float32)).astype(mx.bfloat16)
    q = mx.quantize(weights, group_size=64, bits=4)
    copies = [q] + [[t + 0 for t in q] for _ in range(5)]
    mx.eval(copies)
    for rows_ in (1, 8, 16, 64, 4096):
        x = mx.array(random.normal(size=(rows_, 8192)).astype(np.float32)).astype(mx.bfloat16)
        mx.eval(x)
        times = seconds(
            lambda x=x: mx.eval([mx.quantized_matmul(x, *c, transpose=True, group_size=64, bits=4) for c in copies]), 4
        )
        note(f"4-bit product M={rows_} 8192x8192", times, len(copies), 2 * rows_ * 8192**2, "FLOP/s")


def _peer_product(n: int, kind: str, a: np.ndarray, b: np.ndarray) -> None:
    import torch

    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    x, y = (torch.from_numpy(v).cuda().to(getattr(torch, kind)) for v in (a, b))

    def run() -> None:
        for _ in range(CALLS):
            x @ y
        torch.cuda.synchronize()

    note(f"product {n} {kind}, PyTorch", seconds(run, 4), CALLS, 2 * n**3, "FLOP/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json")
    parser.add_argument("--peer", action="store_true")
    parser.add_argument("--only", default="host_cost,captured,bandwidth,products")
    arguments = parser.parse_args()
    mx.set_default_device(mx.gpu)
    for part in arguments.only.split(","):
        globals()[part](*([arguments.peer] if part == "products" else []))
    device = state.backend(state.Device(state.gpu))
    facts = cuda.device_facts()
    if arguments.json:
        result = {
            "gpu": facts.name,
            "driver": facts.driver_version,
            "python": platform.python_version(),
            "libraries": {n: importlib.metadata.version(n) for n in LIBRARIES},
            "commit": os.environ.get("OUTLIVE_COMMIT", ""),
            "rows": rows,
            "host_routes": sorted(map(str, device.host_routes)),
        }
        with open(arguments.json, "w") as file:
            json.dump(result, file, indent=1)
    print("on the host:", sorted(map(str, device.host_routes)))


if __name__ == "__main__":
    main()
