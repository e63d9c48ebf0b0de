"""Child process: row kernels in Triton's interpreter against NumPy in float64. Prints one line a failure, then the
count.
"""

from __future__ import annotations

import itertools
import sys
from types import SimpleNamespace

import numpy as np

from outlive.graph import dtypes
from outlive.runtime.layout import layout, strided_layout
from tests.cuda.interpreted import InterpretedLibrary, Memory, call, stored, widened

SIZES = (1, 3, 7, 63, 65, 500)
TOLERANCE = {dtypes.float32: 2e-6, dtypes.float16: 1e-3, dtypes.bfloat16: 8e-3, dtypes.float64: 1e-14}
random = np.random.default_rng(7)
library = InterpretedLibrary()
failures = checks = 0


def check(name: str, got: np.ndarray, want: np.ndarray, tolerance: float, scale: float | np.ndarray = 1e-2) -> None:
    """Differences are relative to the wanted value, or to `scale` where that is larger."""
    global failures, checks
    checks += 1
    same = (
        (got == want)
        | (np.isnan(got) & np.isnan(want))
        | (np.abs(got - want) <= tolerance * np.maximum(np.abs(want), scale))
    )
    if got.shape != want.shape or not same.all():
        failures += 1
        print(f"{name}: {got.ravel()[~same.ravel()][:4]} should be {want.ravel()[~same.ravel()][:4]}")


def operand(values: np.ndarray, dtype: object, skew: int = 0) -> Memory:
    return Memory(layout(values.shape, dtype), stored(values, dtype), skew)


def softmaxes() -> None:
    for dtype, count in itertools.product((dtypes.float32, dtypes.bfloat16, dtypes.float16), (*SIZES, 17000)):
        x = random.normal(size=(3, count)) * 20
        x[1, count // 2] = -np.inf
        x[2, 0] = np.nan if count > 3 else -np.inf
        source = operand(x, dtype, skew=4 if count == 65 else 0)
        values = widened(source)
        with np.errstate(all="ignore"):
            e = np.exp(values - values.max(-1, keepdims=True))
            want = e / e.sum(-1, keepdims=True)
        kernel = SimpleNamespace(name="softmax", axes=(-1,))
        check(
            f"softmax {dtype.name} {count}",
            widened(call(library, kernel, [source], x.shape, dtype)),
            want,
            TOLERANCE[dtype],
        )


def norms() -> None:
    for dtype, count, given in itertools.product((dtypes.float32, dtypes.bfloat16), (*SIZES, 5000), (0, 1, 2)):
        x = operand(random.normal(size=(2, count)), dtype)
        parameters = [operand(random.normal(size=(count,)), dtypes.float32) for _ in range(given)]
        values, scales = widened(x), [widened(p) for p in parameters]
        if given < 2:
            want = values / np.sqrt((values**2).mean(-1, keepdims=True) + 1e-5)
            kernel = SimpleNamespace(name="rms_norm", eps=1e-5)
        centred = values - values.mean(-1, keepdims=True)
        layer = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
        layer = layer * scales[0] if given else layer
        layer = layer + scales[1] if given == 2 else layer
        got = call(library, SimpleNamespace(name="layer_norm", eps=1e-5), [x, *parameters], values.shape, dtype)
        check(f"layer_norm {dtype.name} {count} {given}", widened(got), layer, 2 * TOLERANCE[dtype], 1.0)
        if given < 2:
            want = want * scales[0] if given else want
            check(f"rms_norm {dtype.name} {count} {given}", widened(call(library, kernel, [x, *parameters], values.shape, dtype)), want,
                  2 * TOLERANCE[dtype], 1.0)  # fmt: skip


NUMPY = {"sum": np.sum, "mean": np.mean, "prod": np.prod, "max": np.max, "min": np.min}


def reductions() -> None:
    shapes = [
        ((7, 65), (1,)),
        ((3, 500), (0,)),
        ((3, 7, 63), (1,)),
        ((2, 3, 5), (1, 2)),
        ((63,), (0,)),
        ((2, 70000), (1,)),
        ((5, 1), (0, 1)),
    ]
    for (shape, axes), name in itertools.product(shapes, NUMPY):
        for dtype in (dtypes.float32, dtypes.bfloat16, dtypes.int32, dtypes.float64, dtypes.uint8):
            if (name == "mean" and not dtype.inexact) or (name != "sum" and max(shape) > 500):
                continue  # the interpreter takes seconds to fold large blocks in any way but the sum
            values = random.normal(size=shape) if dtype.inexact else random.integers(0, 100, shape)
            values = 1 + values * 1e-3 if name == "prod" and dtype.inexact else values
            if dtype.inexact and name in ("max", "min") and shape[-1] == 65:
                values[1, 3] = np.nan
            x = operand(values, dtype)
            out = dtype if dtype.inexact or name in ("max", "min") else dtypes.int32
            result = tuple(n for a, n in enumerate(shape) if a not in axes)
            got = call(library, SimpleNamespace(name=name, axes=axes), [x], result, out)
            with np.errstate(all="ignore"):
                want = NUMPY[name](widened(x), axis=axes)
            want = want if dtype.inexact else np.asarray(want).astype(out.storage)
            check(f"{name} {dtype.name} {shape} {axes}", widened(got), np.asarray(want), 40 * TOLERANCE.get(dtype, 0))


def ropes() -> None:
    for traditional, given, dims, dtype in itertools.product(
        (False, True), (False, True), (8, 6), (dtypes.float32, dtypes.bfloat16)
    ):
        batch, heads, length, width = 2, 3, 5, 8
        values = random.normal(size=(batch, length, heads, width))
        dense = operand(values, dtype)
        seen = strided_layout((batch, heads, length, width), (heads * length * width, width, heads * width, 1), dtype)
        x = Memory(seen)
        x.view[...] = dense.view.transpose(0, 2, 1, 3)
        offset = Memory(layout((batch,), dtypes.int32), np.array([3, 1000000]))
        rates = 10000.0 ** (-np.arange(dims // 2) / (dims // 2))
        reads = [x, offset]
        if given:
            reads.append(operand(1 / rates, dtypes.float32))
            rates = 1 / widened(reads[-1])
        position = (np.array([3, 1000000])[:, None] + np.arange(length)) * 0.5
        angle = position[:, None, :, None] * rates
        a = widened(x)
        first, second = (
            (slice(0, dims, 2), slice(1, dims, 2)) if traditional else (slice(0, dims // 2), slice(dims // 2, dims))
        )
        want = a.copy()
        want[..., first] = a[..., first] * np.cos(angle) - a[..., second] * np.sin(angle)
        want[..., second] = a[..., first] * np.sin(angle) + a[..., second] * np.cos(angle)
        kernel = SimpleNamespace(
            name="rope", dims=dims, traditional=traditional, base=None if given else 10000.0, scale=0.5
        )
        check(f"rope {traditional} {given} {dims} {dtype.name}", widened(call(library, kernel, reads, a.shape, dtype)), want,
              TOLERANCE[dtype], 1.0)  # fmt: skip


SCANS = {"cumsum": np.cumsum, "cumprod": np.cumprod, "cummax": np.maximum.accumulate, "cummin": np.minimum.accumulate}


def scans() -> None:
    shapes = (((65,), 0), ((3, 7), 1), ((3, 7), 0), ((2, 5, 3), 1), ((40000,), 0))
    for (shape, axis), name, reverse, inclusive in itertools.product(shapes, SCANS, (False, True), (False, True)):
        if max(shape) > 100 and (name != "cumsum" or reverse == inclusive):
            continue  # seconds in the interpreter
        for dtype in (
            (dtypes.float32, dtypes.bfloat16, dtypes.int32, dtypes.uint8) if max(shape) < 100 else (dtypes.int32,)
        ):
            values = 1 + random.normal(size=shape) * 0.1 if dtype.inexact else random.integers(0, 9, shape)
            if dtype.inexact and name == "cummax":
                values[(0,) * (len(shape) - 1) + (2,)] = np.nan
            x = operand(values, dtype)
            kernel = SimpleNamespace(name=name, axis=axis, reverse=reverse, inclusive=inclusive)
            got = widened(call(library, kernel, [x], shape, dtype))
            seen = np.moveaxis(widened(x), axis, -1)
            seen = seen[..., ::-1] if reverse else seen
            want = SCANS[name](seen.astype(np.float64 if dtype.inexact else np.int64), axis=-1)
            if not inclusive:
                limits = (
                    (-np.inf, np.inf) if dtype.inexact else (np.iinfo(dtype.storage).min, np.iinfo(dtype.storage).max)
                )
                first = {"cumsum": 0, "cumprod": 1, "cummax": limits[0], "cummin": limits[1]}[name]
                want = np.concatenate([np.full_like(want[..., :1], first), want[..., :-1]], -1)
            want = want[..., ::-1] if reverse else want
            want = np.moveaxis(want, -1, axis)
            want = want if dtype.inexact else want.astype(dtype.storage)
            check(f"{name} {dtype.name} {shape} {axis} {reverse} {inclusive}", got, want, 20 * TOLERANCE.get(dtype, 0))


def attended(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool, mask: np.ndarray | None, sinks: np.ndarray | None
) -> np.ndarray:
    """The formula in float64."""
    group = q.shape[1] // k.shape[1]
    k, v = (np.repeat(x, group, 1) for x in (k, v))
    scores = q @ k.swapaxes(-1, -2) * 0.25
    queries, keys = scores.shape[-2:]
    allowed = np.arange(keys) <= np.arange(queries)[:, None] + keys - queries if causal else None
    if mask is not None and mask.dtype == bool:
        allowed = np.broadcast_to(mask, scores.shape)
    elif mask is not None:
        scores = scores + mask
    if allowed is not None:
        scores = np.where(allowed, scores, -np.inf)
        if sinks is None:
            scores = np.where(np.broadcast_to(allowed, scores.shape).any(-1, keepdims=True), scores, 0)
    top = scores.max(-1, keepdims=True)
    top = top if sinks is None else np.maximum(top, sinks[:, None, None])
    weights = np.exp(scores - top)
    total = weights.sum(-1, keepdims=True)
    total = total if sinks is None else total + np.exp(sinks[:, None, None] - top)
    return weights / total @ v


def attentions() -> None:
    shapes = ((1, 65, 16), (5, 5, 24), (7, 3, 16), (33, 70, 64))
    kinds = ("none", "causal", "boolean", "additive")
    for (queries, keys, width), kind, with_sinks, dtype in itertools.product(
        shapes, kinds, (False, True), (dtypes.float32, dtypes.float16)
    ):
        if (width == 64) != (dtype is dtypes.float16 and kind == "causal") and width in (64, 24):
            continue
        batch, heads, kv = 2, 4, 2
        q = operand(random.normal(size=(batch, heads, queries, width)), dtype)
        seen = strided_layout((batch, kv, keys, width), (kv * keys * width, width, kv * width, 1), dtype)
        k, v = Memory(seen), Memory(seen)
        for x in (k, v):
            x.view[...] = stored(random.normal(size=seen.shape), dtype)
        reads, mask = [q, k, v], None
        if kind == "boolean":
            mask = random.random((queries, keys)) < 0.5
            mask[0] = False
            reads.append(operand(mask, dtypes.bool_))
        elif kind == "additive":
            mask = np.where(
                random.random((batch, 1, queries, keys)) < 0.3, -np.inf, random.normal(size=(batch, 1, queries, keys))
            )
            mask[1, 0, queries - 1] = -np.inf
            reads.append(operand(mask, dtypes.float32))
            mask = widened(reads[-1])
        sinks = None
        if with_sinks:
            reads.append(operand(random.normal(size=(heads,)), dtypes.float32))
            sinks = widened(reads[-1])
        if kind == "none" and queries == 5:
            q.view[1, 2, 3, 0] = np.nan
        kernel = SimpleNamespace(
            name="scaled_dot_product_attention",
            scale=0.25,
            causal=kind == "causal",
            has_mask=mask is not None,
            has_sinks=with_sinks,
        )
        with np.errstate(all="ignore"):
            want = attended(widened(q), widened(k), widened(v), kind == "causal", mask, sinks)
        got = widened(call(library, kernel, reads, (batch, heads, queries, width), dtype))
        check(
            f"attention {queries}x{keys}x{width} {kind} {with_sinks} {dtype.name}", got, want, 4 * TOLERANCE[dtype], 1.0
        )


def packed(q: np.ndarray, bits: int) -> np.ndarray:
    """Integers of `bits` bits as a stream of 32-bit words, low bits first."""
    stream = ((q[..., None] >> np.arange(bits)) & 1).reshape(q.shape[0], -1, 32).astype(np.uint64)
    return (stream << np.arange(32, dtype=np.uint64)).sum(-1).astype(np.uint32)


def products() -> None:
    grid = itertools.product((4, 8, 2, 3, 5, 6), (32, 64), (True, False), (1, 7, 33), (dtypes.float32, dtypes.bfloat16))
    for bits, group, transpose, rows, dtype in grid:
        if bits in (2, 5, 6) and (group == 64 or rows == 7):
            continue
        if rows > 16 and dtype is dtypes.bfloat16:
            dtype = dtypes.float16  # the interpreter cuts bfloat16 off instead of rounding it
        depth, columns = (128, 65) if transpose else (63, 128)
        q = random.integers(0, 1 << bits, (columns, depth) if transpose else (depth, columns))
        groups = (q.shape[0], q.shape[1] // group)
        x = operand(random.normal(size=(rows, depth)), dtype)
        scales, biases = (
            operand(random.normal(size=groups), dtypes.float16 if group == 32 else dtype) for _ in range(2)
        )
        w = Memory(layout((q.shape[0], q.shape[1] * bits // 32), dtypes.uint32), packed(q, bits))
        weights = q * np.repeat(widened(scales), group, 1) + np.repeat(widened(biases), group, 1)
        if rows > 16 and dtype is dtypes.float16:
            weights = widened(operand(weights, dtype))
        want = widened(x) @ (weights.T if transpose else weights)
        kernel = SimpleNamespace(
            name="quantized_matmul", bits=bits, group_size=group, transpose=transpose, mode="affine"
        )
        got = widened(call(library, kernel, [x, w, scales, biases], (rows, columns), dtype))
        scale = np.abs(widened(x)) @ np.abs(weights.T if transpose else weights)
        check(f"product {bits} {group} {transpose} {rows} {dtype.name}", got, want, TOLERANCE[dtype], scale / 4)


if __name__ == "__main__":
    for part in sys.argv[1:]:
        globals()[part]()
    print(f"{checks} checks, {failures} failures")
    sys.exit(failures > 0 or checks == 0)
