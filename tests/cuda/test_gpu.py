"""Ops on a real GPU against the CPU device; streams, memory and failures of the driver. Run with --device gpu."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outlive.core as mx
from outlive.graph import state

pytestmark = pytest.mark.gpu
ROOT = Path(__file__).parents[2]

FLOATS = ("float32", "float16", "bfloat16")
INTEGERS = ("int32", "uint8", "int64")
TOLERANCE = {"float32": 5e-6, "float16": 2e-3, "bfloat16": 1.6e-2, "float64": 1e-12, "complex64": 1e-5}

UNARY = (
    "abs negative sign square floor ceil reciprocal sqrt rsqrt exp expm1 log log2 log10 log1p sin cos tan arcsin arccos arctan"
    " sinh cosh tanh arcsinh arccosh arctanh sigmoid erf erfinv isnan isinf isfinite round"
).split()
BINARY = (
    "add subtract multiply divide maximum minimum power remainder floor_divide logaddexp arctan2 equal not_equal less less_equal"
    " greater greater_equal logical_and logical_or"
).split()
REDUCTIONS = "sum prod max min mean var all any logsumexp argmax argmin".split()
ORDERS = "sort argsort cumsum cumprod cummax cummin softmax".split()

Case = tuple[str, Callable[..., Any], tuple[np.ndarray, ...], str]


def values(shape: tuple[int, ...], dtype: str, seed: int, low: float = 0.1, high: float = 0.9) -> np.ndarray:
    random = np.random.default_rng(seed)
    if dtype in FLOATS or dtype == "float64":
        return random.uniform(low, high, shape).astype(np.float64 if dtype == "float64" else np.float32)
    return random.integers(1, 100, shape)


def cases() -> list[Case]:
    made: list[Case] = []

    def add(name: str, call: Callable[..., Any], inputs: tuple[np.ndarray, ...], dtype: str) -> None:
        made.append((f"{name}-{dtype}", call, inputs, dtype))

    for dtype in (*FLOATS, *INTEGERS):
        for name in UNARY:
            if dtype in FLOATS or name in ("abs", "negative", "sign", "square"):
                add(
                    name,
                    getattr(mx, name),
                    (values((7, 65), dtype, 1, 1.1 if name == "arccosh" else 0.1, 1.9 if name == "arccosh" else 0.9),),
                    dtype,
                )
        for name in BINARY:
            function = getattr(mx, name)
            add(name, function, (values((3, 500), dtype, 1), values((3, 500), dtype, 2)), dtype)
            if name in ("add", "divide", "less"):
                add(f"{name}_row", function, (values((3, 1, 63), dtype, 1), values((5, 1), dtype, 2)), dtype)
                add(
                    f"{name}_transposed",
                    lambda a, b, f=function: f(a.T, b),
                    (values((63, 5), dtype, 1), values((5, 63), dtype, 2)),
                    dtype,
                )
        for name in REDUCTIONS:
            function = getattr(mx, name)
            if name in ("prod", "var", "logsumexp", "mean") and dtype not in FLOATS:
                continue
            for axis in (0, 1, 2, None):
                add(
                    f"{name}_{axis}",
                    lambda a, f=function, x=axis: f(a, axis=x),
                    (values((3, 7, 65), dtype, 3, 0.9, 1.1),),
                    dtype,
                )
        for name in ORDERS:
            function = getattr(mx, name)
            add(name, lambda a, f=function: f(a, axis=-1), (values((3, 65), dtype, 4),), dtype)
        add("reshape", lambda a: a.T.reshape(-1), (values((7, 63), dtype, 5),), dtype)
        add("turned", lambda a: mx.contiguous(a.transpose(0, 2, 1)) + 0, (values((3, 65, 99), dtype, 5),), dtype)
        add("turned_cast", lambda a: a.T.astype(mx.float32), (values((65, 99), dtype, 5),), dtype)
        add("slice", lambda a: a[::-2, 3:] + a[0, 0], (values((7, 63), dtype, 5),), dtype)
        add("block_out", lambda a: mx.slice(a, mx.array([-3, 1]), (0, 1), (2, 5)), (values((7, 63), dtype, 5),), dtype)
        add("block_in", _updated, (values((7, 63), dtype, 5), values((2, 5), dtype, 6)), dtype)
        add("take", lambda a: a[mx.array([3, 0, 3])], (values((7, 63), dtype, 5),), dtype)
        add("assign", _assigned, (values((7, 63), dtype, 5),), dtype)
        add(
            "concatenate",
            lambda a, b: mx.concatenate([a, b], axis=1),
            (values((3, 4), dtype, 5), values((3, 5), dtype, 6)),
            dtype,
        )
        add("pad", lambda a: mx.pad(a, ((1, 2), (0, 3)), constant_values=2), (values((3, 4), dtype, 5),), dtype)
        add("where", lambda a, b: mx.where(a > b, a, b), (values((3, 65), dtype, 5), values((3, 65), dtype, 6)), dtype)
        add(
            "cast",
            lambda a: a.astype(mx.float32).astype(mx.bfloat16).astype(mx.int32),
            (values((65,), dtype, 5, -9, 9),),
            dtype,
        )
        add("scatter_add", lambda a: a.at[mx.array([1, 1, 2])].add(a[:3]), (values((7, 63), dtype, 5),), dtype)
        if dtype in FLOATS:
            fast_cases(add, dtype)
    for dtype in (*FLOATS, "float64"):
        for shape_a, shape_b in (
            ((65, 63), (63, 7)),
            ((1, 500), (500, 65)),
            ((2, 3, 7, 65), (65, 5)),
            ((2, 1, 7, 5), (3, 5, 4)),
        ):
            add(
                f"matmul_{len(shape_a)}_{shape_a[-2]}",
                mx.matmul,
                (values(shape_a, dtype, 7), values(shape_b, dtype, 8)),
                dtype,
            )
        add("matmul_transposed", lambda a, b: a.T @ b.T, (values((65, 7), dtype, 7), values((5, 65), dtype, 8)), dtype)
    for bits, group in ((4, 64), (4, 32), (8, 64), (2, 32), (3, 64), (5, 32), (6, 128)):
        for rows in (1, 5, 65):

            def product(x: Any, w: Any, bits: int = bits, group: int = group) -> Any:
                q = mx.quantize(w, group_size=group, bits=bits)
                return mx.quantized_matmul(x, *q, transpose=True, group_size=group, bits=bits)

            inputs = (values((rows, 256), "bfloat16", 9, -1, 1), values((65, 256), "bfloat16", 10, -1, 1))
            add(f"quantized_{bits}_{group}_{rows}", product, inputs, "bfloat16")
    return made


def fast_cases(add: Callable[..., None], dtype: str) -> None:
    row = (values((65,), dtype, 11), values((65,), dtype, 12))
    x = values((2, 7, 65), dtype, 13, -1, 1)
    add("rms_norm", lambda a, w: mx.fast.rms_norm(a, w, 1e-5), (x, row[0]), dtype)
    add("rms_norm_plain", lambda a: mx.fast.rms_norm(a, None, 1e-5), (x,), dtype)
    add("layer_norm", lambda a, w, b: mx.fast.layer_norm(a, w, b, 1e-5), (x, *row), dtype)
    add("layer_norm_weight", lambda a, w: mx.fast.layer_norm(a, w, None, 1e-5), (x, row[0]), dtype)
    heads = values((2, 3, 5, 64), dtype, 14, -1, 1)
    for traditional in (False, True):

        def turned(a: Any, traditional: bool = traditional) -> Any:
            return mx.fast.rope(a, 32, traditional=traditional, base=10000.0, scale=1.0, offset=1000)

        add(f"rope_{traditional}", turned, (heads,), dtype)
        add(f"rope_transposed_{traditional}", lambda a, f=turned: f(a.transpose(0, 2, 1, 3)), (heads,), dtype)
    keys = (values((2, 3, 65, 64), dtype, 15, -1, 1), values((2, 3, 65, 64), dtype, 16, -1, 1))
    for mask in (None, "causal"):

        def attended(q: Any, k: Any, v: Any, mask: str | None = mask) -> Any:
            return mx.fast.scaled_dot_product_attention(q, k, v, scale=0.125, mask=mask)

        add(f"attention_{mask}", attended, (heads, *keys), dtype)
    for reverse in (False, True):
        add(f"cumsum_{reverse}", lambda a, r=reverse: mx.cumsum(a, axis=1, reverse=r, inclusive=not r), (x,), dtype)


def _updated(a: Any, b: Any) -> Any:
    return mx.slice_update(a + 0, b, mx.array([60, 90]), (0, 1))


def _assigned(a: Any) -> Any:
    a = a + 0
    a[2:4, ::3] = 5
    return a


def run(call: Callable[..., Any], inputs: tuple[np.ndarray, ...], dtype: str, device: Any) -> np.ndarray:
    with mx.stream(device):
        arrays = [mx.array(x).astype(getattr(mx, dtype)) for x in inputs]
        result = call(*arrays)
        if result.dtype == mx.bfloat16:
            result = result.astype(mx.float32)
        return np.array(result)


CASES = cases()


@pytest.mark.parametrize(("call", "inputs", "dtype"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_the_gpu_gives_what_the_cpu_gives(call: Callable[..., Any], inputs: tuple[np.ndarray, ...], dtype: str) -> None:
    want = run(call, inputs, dtype, mx.cpu)
    got = run(call, inputs, dtype, mx.gpu)
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    if want.dtype.kind in "biu":
        np.testing.assert_array_equal(got, want)
    else:
        scale = float(np.nanmax(np.abs(want), initial=1e-3, where=np.isfinite(want)))
        tolerance = TOLERANCE[dtype if dtype in FLOATS else want.dtype.name]
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * scale)


def gpu() -> Any:
    return state.backend(state.Device(state.gpu))


def test_a_long_chain_is_right_and_gives_its_memory_back() -> None:
    x = mx.zeros((1000,))
    for _ in range(5000):
        x = x + 1.0
    assert x.min().item() == x.max().item() == 5000.0
    del x
    gc.collect()
    mx.clear_cache()
    assert gpu().ledger.quarantined == 0


def test_streams_and_devices_share_values() -> None:
    streams = [mx.new_stream(mx.gpu) for _ in range(3)]
    x = mx.arange(100000, dtype=mx.float32)
    for i in range(30):
        x = mx.add(x, 1.0, stream=mx.cpu if i % 7 == 3 else streams[i % 3])
    np.testing.assert_array_equal(np.array(x), np.arange(100000, dtype=np.float32) + 30)


def test_threads_evaluate_at_once() -> None:
    wrong: list[Any] = []

    def work(seed: int) -> None:
        stream = mx.new_stream(mx.gpu)
        with mx.stream(stream):
            for i in range(100):
                x = mx.full((1000 + seed,), float(seed)) * 2 + i
                y = (x @ mx.ones((1000 + seed,))).item()
                if y != (2 * seed + i) * (1000 + seed):
                    wrong.append((seed, i, y))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_row_of_a_quantized_product_has_the_same_bits_whatever_the_number_of_rows(dtype: str) -> None:
    kind = getattr(mx, dtype)
    q = mx.quantize(mx.array(values((130, 1088), "float32", 1, -1, 1)).astype(kind), group_size=64, bits=4)
    x = mx.array(values((16, 1088), "float32", 2, -1, 1)).astype(kind)
    whole = np.array(mx.quantized_matmul(x, *q, group_size=64, bits=4).astype(mx.float32))
    for rows in (1, 2, 3, 5, 7, 16):
        part = mx.quantized_matmul(x[:rows], *q, group_size=64, bits=4)
        np.testing.assert_array_equal(np.array(part.astype(mx.float32)), whole[:rows])


def test_a_captured_function_equals_the_plain_one() -> None:
    def f(x: Any, w: Any) -> Any:
        for _ in range(4):
            x = mx.tanh(x @ w) * 0.5 + x
        return x.sum(axis=0), x

    w = mx.array(values((64, 64), "float32", 1, -0.2, 0.2))
    fast = mx.compile(f)
    for n in range(6):
        x = mx.array(values((32 if n < 4 else 16, 64), "float32", n))
        want, got = f(x, w), fast(x, w)
        for a, b in zip(want, got, strict=True):
            np.testing.assert_array_equal(np.array(b), np.array(a))


PROGRAMS = {
    "a fault loses the device, the process lives": """
import numpy as np, outlive.core as mx
from outlive.graph import state
mx.set_default_device(mx.gpu)
x = mx.array(np.ones(8, np.float32)); mx.eval(x + 1)
device = state.backend(state.Device(state.gpu))
from outlive.backends.cuda.kernels.build import CudaC
from outlive.backends.cuda.launches import NativeLaunch
bad = device._library.function(CudaC("fault", 'extern "C" __global__ void fault(int* p) { *(int*)16 = 1; }'))
for key in list(device.launches):
    if key[0].name == "multiply": del device.launches[key]
find = device._library.find
device._library.find = lambda k, r, w: NativeLaunch(bad, (1, 1, 1), 1, 0, 3, ()) if k.name == "multiply" else find(k, r, w)
y = x * 2
for a in (y, x, y):
    try: np.array(a); raise SystemExit("no error")
    except RuntimeError as e: assert "lost" in str(e), e
try: mx.eval(mx.zeros((3,)) + 1); raise SystemExit("no error")
except RuntimeError as e: assert "lost" in str(e), e
with mx.stream(mx.cpu): assert (mx.array([1.0]) + 1).item() == 2
print("fine")
""",
    "memory that cannot be had is an exception": """
import numpy as np, outlive.core as mx
mx.set_default_device(mx.gpu)
kept = []
try:
    for _ in range(100): kept.append(mx.zeros((1 << 30,))); mx.eval(kept)
    raise SystemExit("no error")
except RuntimeError as e: assert "do not fit" in str(e) and "Largest" in str(e), e
assert (mx.array([1.0]) + 1).item() == 2
del kept
print("fine")
""",
    "a forked child says that it cannot use the GPU": """
import os, numpy as np, outlive.core as mx
mx.set_default_device(mx.gpu)
x = mx.array([1.0]) + 1; mx.eval(x)
pid = os.fork()
if not pid:
    try: mx.eval(mx.array([2.0]) * 3); os._exit(1)
    except RuntimeError as e: os._exit(0 if "forked" in str(e) else 2)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert x.item() == 2
print("fine")
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_in_a_process_of_its_own(name: str) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAMS[name]], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == "fine"
