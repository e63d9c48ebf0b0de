"""Compiled CPU kernels alone, run from word lists: no arrays, no graph, no host cost.

usage: python benchmarks/cpu_kernels.py [--only PREFIX,...] [--seconds S] [--peer-python PATH] [--json FILE]

A row: minimum, median and spread (10th to 90th percentile) of one record on all threads, the minimum on one thread, and a
figure. --peer-python names an interpreter that has mlx: its time for the same quantized products is put beside ours.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from array import array
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import llvmlite.binding as llvm
import numpy as np

from outlive.backends.cpu import executor
from outlive.backends.cpu.features import features
from outlive.backends.cpu.pool import thread_count
from tests.cpu_kernels.support import BF16, FORMATS, coded, quantized, words_of

rng = np.random.default_rng(0)

PEER = """
import sys, time, mlx.core as mx
mx.set_default_device(mx.cpu)
m, n, k, bits, group, seconds = (float(v) for v in sys.argv[1:])
m, n, k, bits, group = int(m), int(n), int(k), int(bits), int(group)
q = mx.quantize(mx.random.normal((n, k)).astype(mx.bfloat16), group_size=group, bits=bits)
x = mx.random.normal((m, k)).astype(mx.bfloat16)
mx.eval(*q, x)
times, stop = [], time.perf_counter() + seconds
while len(times) < 3 or time.perf_counter() < stop:
    start = time.perf_counter()
    mx.eval(mx.quantized_matmul(x, *q, transpose=True, group_size=group, bits=bits))
    times.append(time.perf_counter() - start)
print(min(times) * 1e6)
"""


def normal(*shape: int, dtype: object = np.float32) -> np.ndarray:
    return rng.standard_normal(shape).astype(dtype)


class Bench:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.only = [p for p in options.only.split(",") if p]
        self.rows: list[dict] = []

    def wanted(self, name: str) -> bool:
        return not self.only or any(name.startswith(p) for p in self.only)

    def times_us(self, words: list[int]) -> list[float]:
        packed = array("q", words)
        times, stop = [], time.perf_counter() + self.options.seconds
        while len(times) < 5 or (time.perf_counter() < stop and len(times) < 20000):
            start = time.perf_counter()
            if executor.run(packed, len(packed)) != -1:
                raise RuntimeError("the kernel failed")
            times.append((time.perf_counter() - start) * 1e6)
        return sorted(times)

    def row(
        self, name: str, op: str, reads: list, out: np.ndarray | list, work: float, unit: str, peer=None, **params
    ) -> None:
        if not self.wanted(name):
            return
        words = words_of(op, reads, out if isinstance(out, list) else [out], **params)
        if words is None:
            print(f"{name:36s} no compiled kernel")
            return
        shared = self.times_us(words)
        words[2] = 0
        alone = self.times_us(words)[0]
        low, median = shared[0], statistics.median(shared)
        spread = shared[len(shared) // 10], shared[-1 - len(shared) // 10]
        row = {"name": name, "min_us": low, "median_us": median, "spread_us": spread, "one_thread_us": alone}
        row |= {"rate": work / (low * 1e-6), "unit": unit}
        text = f"{name:36s} {low:10.2f} us  median {median:10.2f} ({spread[0]:.2f}-{spread[1]:.2f})  one thread {alone:10.2f}"
        text += f"  {row['rate']:.3g} {unit}"
        if peer is not None and self.options.peer_python:
            row["peer_us"] = peer()
            text += f"  mlx {row['peer_us']:.0f} us, {row['peer_us'] / low:.0f}x"
        print(text, flush=True)
        self.rows.append(row)

    def peer_product(self, *geometry: int) -> float:
        command = [self.options.peer_python, "-c", PEER, *map(str, geometry), str(self.options.seconds)]
        return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def elementwise(b: Bench) -> None:
    n = 1 << 22
    a, c = normal(n), normal(n)
    out = np.empty_like(a)
    b.row("add_f32", "add", [a, c], out, 12 * n, "B/s")
    half = a.astype(BF16)
    b.row("add_bf16", "add", [half, half], half.copy(), 6 * n, "B/s")
    for op in ("exp", "log", "tanh", "sigmoid", "erf", "sin"):
        b.row(f"{op}_f32", op, [a], out, n, "elements/s")
    b.row("sum_all_f32", "sum", [a], np.empty((), np.float32), 4 * n, "B/s", axes=(0,))
    m = a.reshape(-1, 4096)
    b.row("softmax_4096_f32", "softmax", [m], out.reshape(m.shape), 8 * n, "B/s", axes=(-1,))
    b.row("rms_norm_4096_f32", "rms_norm", [m, m[0].copy()], out.reshape(m.shape), 8 * n, "B/s", eps=1e-5)
    logits = normal(49152)
    b.row("argmax_49152_f32", "argmax", [logits], np.empty((), np.uint32), 4 * 49152, "B/s", axis=0)


def products(b: Bench) -> None:
    for width, group in ((4, 64), (4, 32), (8, 64), (2, 64)):
        w = quantized(rng, 2048, 2048, width, group, BF16)
        for rows in (1, 2, 4, 8, 16, 32, 256):
            x, out = normal(rows, 2048, dtype=BF16), np.empty((rows, 2048), BF16)
            geometry = (rows, 2048, 2048, width, group)
            with_peer = rows in (1, 256) and (width, group) == (4, 64)
            peer = (lambda g=geometry: b.peer_product(*g)) if with_peer else None
            b.row(f"qmm_{width}b_g{group}_M{rows}", "quantized_matmul", [x, w.words, w.scales, w.biases], out,
                  2 * rows * 2048 * 2048, "FLOP/s", peer, **w.params)  # fmt: skip
    for rows in (1, 16):
        for dtype, name in ((np.float32, "f32"), (BF16, "bf16")):
            a, m = normal(rows, 2048, dtype=dtype), normal(2048, 2048, dtype=dtype)
            out = np.empty((rows, 2048), dtype)
            b.row(f"matmul_{name}_M{rows}", "matmul", [a, m], out, m.nbytes, "B/s(weights)")
            b.row(f"matmul_{name}_transposed_M{rows}", "matmul", [a, m.T], out, m.nbytes, "B/s(weights)")


def formats(b: Bench) -> None:
    """Weights of the formats that are not affine of 2, 4 or 8 bits; chosen experts; bfloat16 products of many rows."""
    for mode, width, group in FORMATS:
        if not b.wanted(f"qmm_{mode}{width}"):
            continue
        w = coded(rng, mode, width, group, (2048, 2048))
        for rows in (1, 16, 256):
            x, out = normal(rows, 2048, dtype=BF16), np.empty((rows, 2048), BF16)
            name = f"qmm_{mode}{width}_M{rows}"
            b.row(name, "quantized_matmul", [x, *w.parts], out, 2 * rows * 2048 * 2048, "FLOP/s", **w.params)
    if b.wanted("experts"):
        w = coded(rng, "affine", 4, 64, (32, 512, 1024))
        for count in (8, 512):
            x, out = normal(count, 1, 1024, dtype=BF16), np.empty((count, 1, 512), BF16)
            left, right = np.arange(count, dtype=np.uint32), rng.integers(0, 32, count).astype(np.uint32)
            b.row(f"experts_32_M{count}", "gather_qmm", [x, *w.parts, left, right], out,
                  2 * count * 512 * 1024, "FLOP/s", **w.params, scaled=False, sorted=False)  # fmt: skip
    for n in (64, 1024):
        a, m = normal(n, n, dtype=BF16), normal(n, n, dtype=BF16)
        b.row(f"matmul_bf16_{n}", "matmul", [a, m], np.empty((n, n), BF16), 2 * n**3, "FLOP/s")


def gated_delta(b: Bench) -> None:
    for length in (1, 256):
        q, keys = (normal(1, length, 16, 128, dtype=BF16) for _ in range(2))
        v, beta = normal(1, length, 32, 128, dtype=BF16), rng.random((1, length, 32)).astype(BF16)
        keys = (keys / 16).astype(BF16)
        gamma, state = rng.uniform(0.9, 1, (1, length, 32)).astype(np.float32), np.zeros((1, 32, 128, 128), np.float32)
        b.row(f"gated_delta_T{length}", "gated_delta_update", [q, keys, v, gamma, beta, state],
              [np.empty_like(v), np.empty_like(state)], length, "tokens/s", has_mask=False)  # fmt: skip


def attention(b: Bench) -> None:
    params = {"scale": 0.125, "causal": True, "has_mask": False}
    for heads, groups, queries, length, width in (
        (9, 3, 1, 128, 64), (9, 3, 1, 2048, 64), (32, 8, 1, 2048, 128), (9, 3, 512, 512, 64), (32, 8, 512, 512, 128),
    ):  # fmt: skip
        q, keys = normal(1, heads, queries, width), normal(1, groups, length, width)
        work = 4 * heads * width * queries * (length if queries == 1 else length / 2)
        b.row(f"attention_{heads}x{queries}x{length}x{width}", "scaled_dot_product_attention", [q, keys, keys.copy()],
              np.empty_like(q), work, "FLOP/s", **params)  # fmt: skip


def decode_step(b: Bench, context: int = 200) -> None:
    """Every record of one token of SmolLM2-135M: 30 layers, hidden 576, 9 of 3 heads, groups of 32, weights all different."""
    if not b.wanted("smollm2"):
        return
    words: list[int] = []
    kept: list[object] = []

    def add(op: str, reads: list, shape: tuple[int, ...], dtype: object = np.float32, **params: object) -> np.ndarray:
        out = np.empty(shape, dtype)
        kept.append((reads, out))
        words.extend(words_of(op, reads, [out], **params))
        return out

    def linear(x: np.ndarray, columns: int) -> np.ndarray:
        w = quantized(rng, columns, x.shape[-1], 4, 32, np.float16)
        return add("quantized_matmul", [x, w.words, w.scales, w.biases], (1, columns), **w.params)

    h, offset = normal(1, 576), np.array(context, np.int32)
    norm = normal(576)
    rope = {"dims": 64, "traditional": True, "base": 10000.0, "scale": 1.0}
    for _ in range(30):
        x = add("rms_norm", [h, norm], (1, 576), eps=1e-5)
        q, key, value = linear(x, 576), linear(x, 192), linear(x, 192)
        q = add("rope", [q.reshape(1, 9, 1, 64), offset], (1, 9, 1, 64), **rope)
        key = add("rope", [key.reshape(1, 3, 1, 64), offset], (1, 3, 1, 64), **rope)
        cache = [normal(1, 3, context, 64) for _ in range(2)]
        add("copy", [key], (1, 3, 1, 64))
        add("copy", [value.reshape(1, 3, 1, 64)], (1, 3, 1, 64))
        o = add("scaled_dot_product_attention", [q, *cache], (1, 9, 1, 64), scale=0.125, causal=False, has_mask=False)
        h = add("add", [h, linear(o.reshape(1, 576), 576)], (1, 576))
        x = add("rms_norm", [h, norm], (1, 576), eps=1e-5)
        gate, up = linear(x, 1536), linear(x, 1536)
        gate = add("multiply", [gate, add("sigmoid", [gate], (1, 1536))], (1, 1536))
        h = add("add", [h, linear(add("multiply", [gate, up], (1, 1536)), 576)], (1, 576))
    logits = linear(add("rms_norm", [h, norm], (1, 576), eps=1e-5), 49152)
    add("argmax", [logits], (1,), np.uint32, axis=-1)
    times = b.times_us(words)
    low, median = times[0], statistics.median(times)
    print(f"{'smollm2_decode_step':36s} {low:10.2f} us  median {median:10.2f}  {1e6 / low:.0f} tokens/s, kernels alone")
    b.rows.append({"name": "smollm2_decode_step", "min_us": low, "median_us": median})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--peer-python", default="")
    parser.add_argument("--json", default="")
    b = Bench(parser.parse_args())
    executor.start()
    print(f"{platform.machine()} {features().cpu}, {thread_count()} threads, vnni {features().vnni}, tiles {features().amx}, "
          f"Python {platform.python_version()}, NumPy {np.__version__}, LLVM {llvm.llvm_version_info}")  # fmt: skip
    for group in (elementwise, products, formats, gated_delta, attention, decode_step):
        group(b)
    if b.options.json:
        Path(b.options.json).write_text(json.dumps(b.rows, indent=1))


if __name__ == "__main__":
    main()
