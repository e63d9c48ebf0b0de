"""Dense float32 products beside NumPy's BLAS, interleaved in one process.

usage: python benchmarks/dense.py [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

import numpy as np

import outlive.core as mx
from outlive.cli.bench.hardware import describe

SIZES = (64, 256, 1024, 2048)
ROUNDS = 60


def seconds(work: Callable[[], object]) -> float:
    """One call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def compare(n: int) -> dict[str, float]:
    """Median milliseconds of an n x n product, ours and NumPy's, one after the other."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((n, n), np.float32) for _ in range(2))
    x, y = mx.array(a), mx.array(b)
    mx.eval(x, y)
    ours, theirs = [], []
    for _ in range(ROUNDS):
        ours.append(seconds(lambda: mx.eval(x @ y)))
        theirs.append(seconds(lambda: np.matmul(a, b)))
    row = {}
    for name, samples in (("outlive", ours), ("numpy", theirs)):
        ordered = sorted(samples)
        row[f"{name}_ms"] = statistics.median(ordered) * 1e3
        row[f"{name}_p10_ms"], row[f"{name}_p90_ms"] = ordered[ROUNDS // 10] * 1e3, ordered[-1 - ROUNDS // 10] * 1e3
    return row | {"ratio": row["outlive_ms"] / row["numpy_ms"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json")
    options = parser.parse_args()
    rows = {f"matmul_{n}_f32": compare(n) for n in SIZES}
    for name, row in rows.items():
        print(f"{name:18} {row['outlive_ms']:9.4f} ms  NumPy {row['numpy_ms']:9.4f} ms  ratio {row['ratio']:.3f}")
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"hardware": describe(), "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
