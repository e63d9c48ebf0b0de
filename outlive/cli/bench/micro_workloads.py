"""Side-by-side micro workloads for any module with MLX's API.

usage: micro.py MODULE [--device cpu|gpu] [--only PREFIX,...] [--json FILE] [--seconds S]

MODULE is imported as `mx` (mlx.core or outlive.core). A row: name, median milliseconds of one evaluation, spread
(10th to 90th percentile), figure. Rows marked `xN` evaluate N calls at once over N different weights (more bytes than
any cache holds) and also give the time of one: this measures the device, cold, with the host's cost hidden behind it.
All others are one call, host included. A row that fails prints its error; exit status 1 if any did.

It needs nothing but that module, so it also runs where Outlive is not installed.
"""

# ruff: noqa: B023  the measured functions are called while the loop variables that they use still hold

import argparse
import importlib
import json
import platform
import statistics
import sys
import threading
import time

parser = argparse.ArgumentParser()
parser.add_argument("module")
parser.add_argument("--device", default="cpu", choices=("cpu", "gpu"))
parser.add_argument("--only", default="")
parser.add_argument("--json", default="")
parser.add_argument("--seconds", type=float, default=2.0)
args = parser.parse_args()
mx = importlib.import_module(args.module)
GPU = args.device == "gpu"
mx.set_default_device(mx.gpu if GPU else mx.cpu)
ONLY = [p for p in args.only.split(",") if p]
rows: list[dict] = []
errors = 0
bf16 = mx.bfloat16


def wanted(*prefixes):
    return not ONLY or any(p.startswith(o) or o.startswith(p) for p in prefixes for o in ONLY)


def timed(name, fn, work=None, unit="", calls=1):
    global errors
    if ONLY and not any(name.startswith(o) for o in ONLY):
        return
    try:
        for _ in range(3):
            mx.eval(fn())
        mx.synchronize()
        times: list[float] = []
        stop = time.perf_counter() + args.seconds
        while len(times) < 300 and (time.perf_counter() < stop or len(times) < 5):
            start = time.perf_counter()
            mx.eval(fn())
            times.append((time.perf_counter() - start) * 1e3)
    except Exception as error:  # noqa: BLE001  a row that a module cannot run must not hide the others
        errors += 1
        print(f"{name:48s} ERROR {type(error).__name__}: {str(error)[:140]}", flush=True)
        return
    times.sort()
    ms, low, high = statistics.median(times), times[len(times) // 10], times[-1 - len(times) // 10]
    rate = work / (ms * 1e-3) if work else None
    rows.append(
        {
            "name": name,
            "ms": ms,
            "p10_ms": low,
            "p90_ms": high,
            "one_call_ms": ms / calls,
            "rate": rate,
            "unit": unit,
            "runs": len(times),
        }
    )
    one = f"  one call {ms / calls:.4f} ms" if calls > 1 else ""
    print(
        f"{name:48s} {ms:10.4f} ms ({low:.4f}-{high:.4f}){one}  {'' if rate is None else f'{rate:.4g} {unit}'}",
        flush=True,
    )


def section(*prefixes):
    """Decorator: run a group of rows only when one is wanted; an error outside a row fails the group alone."""

    def run(fn):
        global errors
        if wanted(*prefixes):
            try:
                fn()
            except Exception as error:  # noqa: BLE001  nor a group of rows the others
                errors += 1
                print(f"{prefixes[0]:48s} ERROR {type(error).__name__}: {str(error)[:140]}", flush=True)

    return run


def normal(*shape, dtype=mx.float32):
    return mx.random.normal(shape).astype(dtype)


@section("chain", "compiled_chain", "eval_every_op")
def host_cost():
    zero = mx.zeros((8,))

    def chain():
        x = zero
        for _ in range(1000):
            x = x + 1.0
        return x

    timed("chain_1000_tiny_adds", chain, 1000, "ops/s")
    timed("compiled_chain_1000_tiny_adds", mx.compile(chain), 1000, "ops/s")

    def every():
        x = zero
        for _ in range(100):
            x = x + 1.0
            mx.eval(x)
        return x

    timed("eval_every_op_100", every, 100, "ops/s")


@section("busy_caller")
def busy_caller():
    """A 1e6-element add on another stream, alone and while the calling thread is busy in Python."""
    stream, a = mx.new_stream(mx.default_device()), normal(1_000_000)
    mx.eval(a)

    def twenty():
        return [mx.add(a, float(i), stream=stream) for i in range(20)]

    timed("busy_caller_alone_20_adds", twenty, 20, "adds/s")
    done = threading.Event()

    def spin():
        while not done.is_set():
            sum(range(200))

    worker = threading.Thread(target=spin)
    worker.start()
    try:
        timed("busy_caller_beside_20_adds", twenty, 20, "adds/s")
    finally:
        done.set()
        worker.join()


@section("add_f32", "gelu", "sum_all", "softmax", "rms_norm")
def elementwise():
    n = 1 << (26 if GPU else 22)
    a, b = normal(n), normal(n)
    mx.eval(a, b)
    timed("add_f32", lambda: a + b, 12 * n, "B/s")
    gelu = mx.compile(lambda x: x * 0.5 * (1 + mx.tanh(0.79788456 * (x + 0.044715 * x * x * x))))
    timed("gelu_compiled_f32", lambda: gelu(a), 8 * n, "B/s")
    timed("sum_all_f32", lambda: a.sum(), 4 * n, "B/s")
    m, weight = a.reshape(-1, 4096), mx.ones((4096,))
    timed("softmax_4096_f32", lambda: mx.softmax(m, axis=-1), 8 * n, "B/s")
    timed("rms_norm_4096_f32", lambda: mx.fast.rms_norm(m, weight, 1e-5), 8 * n, "B/s")


@section("matmul")
def dense():
    for n in (64, 8192 if GPU else 1024):
        for dtype, name in ((mx.float32, "f32"), (bf16, "bf16")):
            a, b = normal(n, n, dtype=dtype), normal(n, n, dtype=dtype)
            mx.eval(a, b)
            timed(f"matmul_{n}_{name}", lambda: a @ b, 2 * n**3, "FLOP/s")


MODES = (("affine", 4, 64), ("affine", 8, 64), ("mxfp4", 4, 32), ("nvfp4", 4, 16), ("mxfp8", 8, 32))


@section(*(f"qmm_{m}{b}g{g}" for m, b, g in MODES))
def quantized():
    k = n = 8192 if GPU else 2048
    for mode, bits, group in MODES:
        name = f"qmm_{mode}{bits}g{group}"
        if not wanted(name):
            continue

        @section(name)
        def one_mode():
            q = mx.quantize(normal(n, k, dtype=bf16), group_size=group, bits=bits, mode=mode)
            mx.eval(*q)
            kw = {"transpose": True, "group_size": group, "bits": bits, "mode": mode}
            if GPU:
                copies = [q] + [[t + 0 for t in q] for _ in range(11)]
                mx.eval(copies)
                for m in (1, 2, 8, 16):
                    x = normal(m, k, dtype=bf16)
                    mx.eval(x)
                    timed(
                        f"{name}_M{m}_{k}x{n}_x12",
                        lambda: [mx.quantized_matmul(x, *c, **kw) for c in copies],
                        12 * k * n * bits / 8,
                        "B/s(weights)",
                        calls=12,
                    )
            for m in (1, 16, 4096 if GPU else 256):
                x = normal(m, k, dtype=bf16)
                mx.eval(x)
                work, unit = (2 * m * k * n, "FLOP/s") if m > 16 else (k * n * bits / 8, "B/s(weights)")
                timed(f"{name}_M{m}_{k}x{n}", lambda: mx.quantized_matmul(x, *q, **kw), work, unit)


@section("experts")
def experts():
    shapes = (
        ((256, 1024, 2048, (8, 4096, 16384, 65536)), (256, 2048, 512, (16384,)), (128, 1408, 2816, (16384,)))
        if GPU
        else ((32, 512, 1024, (8, 512)),)
    )
    for e, n, k, counts in shapes:
        q = mx.quantize(normal(e, n, k, dtype=bf16), group_size=64, bits=4)
        mx.eval(*q)
        for m in counts:
            index = mx.sort(mx.random.randint(0, e, (m,)).astype(mx.uint32))
            x = normal(m, 1, k, dtype=bf16)
            mx.eval(x, index)
            for is_sorted in (True, False):
                timed(
                    f"experts_E{e}_{n}x{k}_M{m}_sorted{int(is_sorted)}",
                    lambda: mx.gather_qmm(
                        x, *q, rhs_indices=index, transpose=True, group_size=64, bits=4, sorted_indices=is_sorted
                    ),
                    2 * m * n * k,
                    "FLOP/s",
                )


@section("attention")
def attention():
    sizes = (
        ((4096, 4096, 32, 8, 128, "prefill"), (1, 8192, 32, 8, 128, "decode"), (4, 8192, 32, 8, 128, "verify4"))
        if GPU
        else ((256, 256, 8, 2, 64, "prefill"), (1, 1024, 8, 2, 64, "decode"))
    )
    for lq, lk, heads, kv, d, name in sizes:
        q, k, v = (
            normal(1, heads, lq, d, dtype=bf16),
            normal(1, kv, lk, d, dtype=bf16),
            normal(1, kv, lk, d, dtype=bf16),
        )
        mx.eval(q, k, v)
        flops = 4 * heads * lq * lk * d * (0.5 if name == "prefill" else 1)
        timed(
            f"attention_{name}_{lq}x{lk}",
            lambda: mx.fast.scaled_dot_product_attention(q, k, v, scale=d**-0.5, mask="causal" if lq > 1 else None),
            flops,
            "FLOP/s",
        )


@section("gated_delta")
def gated_delta():
    t = 2048 if GPU else 256
    q, v = normal(1, t, 16, 128, dtype=bf16), normal(1, t, 32, 128, dtype=bf16)
    k = q * mx.rsqrt((q.astype(mx.float32) ** 2).sum(-1, keepdims=True)).astype(bf16)
    gamma, beta = mx.random.uniform(0.9, 1, (1, t, 32)), mx.random.uniform(0, 1, (1, t, 32)).astype(bf16)
    mx.eval(q, k, v, gamma, beta)
    timed(f"gated_delta_T{t}", lambda: mx.fast.gated_delta_update(q, k, v, gamma, beta), t, "tokens/s")


@section("conv2d", "sort", "embedding")
def others():
    x, w = (normal(8, 64, 64, 64) if GPU else normal(1, 32, 32, 64)), normal(64, 3, 3, 64)
    mx.eval(x, w)
    b, h, wd, c = x.shape
    timed("conv2d_3x3_64", lambda: mx.conv2d(x, w, padding=1), 2 * b * h * wd * c * 64 * 9, "FLOP/s")
    keys = normal(1 << (22 if GPU else 18))
    mx.eval(keys)
    timed("sort_f32", lambda: mx.sort(keys), keys.size, "keys/s")
    index, table = mx.random.randint(0, 32000, (8192,)), normal(32000, 1024, dtype=bf16)
    mx.eval(index, table)
    timed("embedding_gather", lambda: table[index], 8192 * 1024 * 4, "B/s")


if args.json:
    with open(args.json, "w") as file:
        json.dump(
            {
                "module": args.module,
                "version": getattr(mx, "__version__", ""),
                "device": args.device,
                "machine": platform.processor() or platform.machine(),
                "python": platform.python_version(),
                "rows": rows,
            },
            file,
            indent=1,
        )
print(f"{len(rows)} rows, {errors} errors")
sys.exit(errors > 0)
