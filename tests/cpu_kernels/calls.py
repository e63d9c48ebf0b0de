"""Calls of every family of kernels, with sizes that end inside a vector: guards, shares and poison go over them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from outlive.backends.cpu.features import features
from tests.cpu_kernels.support import BF16, FLOATS, FORMATS, coded, poisoned, quantized


@dataclass
class Call:
    op: str
    reads: list
    shape: tuple[int, ...]
    dtype: object
    params: dict = field(default_factory=dict)
    state: tuple[int, ...] | None = None

    def outputs(self, pattern: int = 255) -> list[np.ndarray]:
        """Poisoned memory for the result, and for a float32 state of shape `state` where the op makes one."""
        first = poisoned(self.shape, self.dtype, pattern)
        return [first] if self.state is None else [first, poisoned(self.state, np.float32, pattern)]

    def __str__(self) -> str:
        shapes = " ".join("x".join(map(str, r.shape)) + r.dtype.name for r in self.reads)
        return f"{self.op} {shapes} {self.params}"


def _normal(rng: np.random.Generator, shape: tuple[int, ...], dtype: object = np.float32) -> np.ndarray:
    return rng.standard_normal(shape).astype(dtype)


def _elementwise(rng: np.random.Generator) -> Iterator[Call]:
    for n in (1, 7, 16, 65, 500):
        for dtype in (*FLOATS, np.int32, np.uint8, np.int64):
            a, b = _normal(rng, (n,), dtype), _normal(rng, (n,), dtype)
            yield Call("add", [a, b], (n,), dtype)
            yield Call("less", [a, b], (n,), np.bool_)
            yield Call("select", [rng.random(n) < 0.5, a, b], (n,), dtype)
        yield Call("exp", [_normal(rng, (n,))], (n,), np.float32)
        yield Call("sin", [_normal(rng, (n,), BF16)], (n,), BF16)
        yield Call("astype", [_normal(rng, (n,), BF16)], (n,), np.float16)
        yield Call("astype", [_normal(rng, (n,))], (n,), np.int64)
    for shape in ((3, 5, 7), (1, 65, 33), (2, 3, 500)):
        a = _normal(rng, shape)
        yield Call("multiply", [a, _normal(rng, (shape[1], 1))], shape, np.float32)
        yield Call("copy", [a.transpose(2, 0, 1)], (shape[2], *shape[:2]), np.float32)
        yield Call("copy", [a[:, ::-1, 1::2]], a[:, ::-1, 1::2].shape, np.float32)


def _rows(rng: np.random.Generator) -> Iterator[Call]:
    for shape in ((1, 1), (3, 7), (2, 63), (5, 65), (2, 500), (1, 4099)):
        for dtype in FLOATS:
            a, w = _normal(rng, shape, dtype), _normal(rng, shape[-1:], dtype)
            yield Call("softmax", [a], shape, dtype, {"axes": (-1,)})
            yield Call("rms_norm", [a, w], shape, dtype, {"eps": 1e-5})
            yield Call("layer_norm", [a, w, w], shape, dtype, {"eps": 1e-5})
            yield Call("sum", [a], shape[:1], dtype, {"axes": (1,)})
            yield Call("max", [a], shape[1:], dtype, {"axes": (0,)})
            yield Call("argmax", [a], shape[:1], np.uint32, {"axis": -1})
    for heads, length, width, dims in ((1, 1, 6, 6), (3, 7, 64, 40), (9, 1, 64, 64)):
        x = _normal(rng, (2, length, heads, width)).transpose(0, 2, 1, 3)
        for traditional in (False, True):
            params = {"dims": dims, "traditional": traditional, "base": 10000.0, "scale": 1.0}
            yield Call("rope", [x, np.array([5, 70], np.int32)], x.shape, np.float32, params)


def _products(rng: np.random.Generator) -> Iterator[Call]:
    for width in (2, 4, 8):
        for group in (32, 64, 128):
            for rows, columns, groups in (
                (1, 1, 1),
                (1, 7, 9),
                (2, 5, 17),
                (3, 6, 3),
                (16, 4, 5),
                (17, 3, 3),
                (50, 33, 1),
            ):
                # types change how elements are loaded, not where: one geometry shows the second pair
                pairs = ((np.float32, np.float16), (BF16, BF16))
                for x_type, scale_type in pairs if (width, group) == (4, 64) else pairs[:1]:
                    w = quantized(rng, columns, group * groups, width, group, scale_type)
                    x = _normal(rng, (rows, group * groups), x_type)
                    reads = [x, w.words, w.scales, w.biases]
                    yield Call("quantized_matmul", reads, (rows, columns), x_type, w.params)
            w = quantized(rng, 3, group * 3, width, group, np.float16)
            yield Call("dequantize", [w.words, w.scales, w.biases], w.value.shape, np.float32, w.params)
    for rows, depth, columns in ((1, 1, 1), (1, 7, 5), (5, 65, 63), (16, 33, 130), (3, 500, 17)):
        for dtype in FLOATS:
            a = _normal(rng, (rows, depth), dtype)
            yield Call("matmul", [a, _normal(rng, (depth, columns), dtype)], (rows, columns), dtype)
            yield Call("matmul", [a, _normal(rng, (columns, depth), dtype).T], (rows, columns), dtype)

    if features().amx:
        for rows, depth, columns in ((17, 1, 1), (32, 32, 32), (33, 65, 31), (70, 31, 33), (17, 64, 100)):
            a = _normal(rng, (rows, depth), BF16)
            yield Call("matmul", [a, _normal(rng, (depth, columns), BF16)], (rows, columns), BF16)
            yield Call("matmul", [a, _normal(rng, (columns, depth), BF16).T], (rows, columns), BF16)


def _coded(rng: np.random.Generator) -> Iterator[Call]:
    for mode, width, group in FORMATS:
        for rows, columns, groups in ((1, 5, 2), (2, 6, 3), (9, 7, 5)):
            for x_type in (np.float32, BF16) if mode == "mxfp4" else (np.float32,):
                w = coded(rng, mode, width, group, (columns, max(32, group) * groups))
                x = _normal(rng, (rows, w.value.shape[-1]), x_type)
                yield Call("quantized_matmul", [x, *w.parts], (rows, columns), x_type, w.params)
    for mode, width, group in (("affine", 4, 64), ("mxfp4", 4, 32)):
        w = coded(rng, mode, width, group, (3, 65, 2 * group))
        for count, rows in ((1, 1), (7, 1), (150, 1), (2, 40)):
            x = _normal(rng, (5, rows, 2 * group))
            left, right = rng.integers(-5, 5, count).astype(np.int32), rng.integers(0, 3, count).astype(np.uint32)
            params = {**w.params, "scaled": False, "sorted": False}
            yield Call("gather_qmm", [x, *w.parts, left, right], (count, rows, 65), np.float32, params)


def _gated_delta(rng: np.random.Generator) -> Iterator[Call]:
    for batch, length, heads, group, depth, width in ((1, 1, 1, 1, 16, 1), (2, 3, 2, 2, 32, 33), (1, 5, 1, 3, 48, 65)):
        for by_key, dtype in ((False, BF16), (True, np.float32)):
            served = heads * group
            q, keys = (_normal(rng, (batch, length, heads, depth), dtype) for _ in range(2))
            v = _normal(rng, (batch, length, served, width), dtype)
            gamma = rng.random((batch, length, served, *[depth] * by_key)).astype(np.float32)
            beta, state = _normal(rng, v.shape[:3], dtype), _normal(rng, (batch, served, width, depth))
            mask = [rng.random((batch, length)) < 0.7] if by_key else []
            reads = [q, keys, v, gamma, beta, state, *mask]
            yield Call("gated_delta_update", reads, v.shape, dtype, {"has_mask": by_key}, state.shape)


def _attention(rng: np.random.Generator) -> Iterator[Call]:
    for heads, groups, queries, length, width in (
        (3, 1, 1, 1, 16),
        (4, 2, 5, 63, 64),
        (2, 2, 16, 65, 128),
        (2, 1, 65, 70, 48),
    ):
        for dtype in (np.float32, BF16):
            q = _normal(rng, (1, queries, heads, width), dtype).transpose(0, 2, 1, 3)
            keys, values = (_normal(rng, (1, groups, length, width), dtype) for _ in range(2))
            shape = (1, heads, queries, width)
            params = {"scale": 0.2, "causal": False, "has_mask": False}
            yield Call("scaled_dot_product_attention", [q, keys, values], shape, dtype, params)
            yield Call("scaled_dot_product_attention", [q, keys, values], shape, dtype, params | {"causal": True})
            mask = rng.random((1, 1, queries, length)) < 0.7
            reads = [q, keys, values, mask]
            yield Call("scaled_dot_product_attention", reads, shape, dtype, params | {"has_mask": True})


def all_calls() -> Iterator[Call]:
    """Every call, the same in each run."""
    rng = np.random.default_rng(7)
    yield from _elementwise(rng)
    yield from _rows(rng)
    yield from _products(rng)
    yield from _coded(rng)
    yield from _gated_delta(rng)
    yield from _attention(rng)
    table = _normal(rng, (50, 33), BF16)
    yield Call("take", [table, rng.integers(-50, 50, (3, 5)).astype(np.int32)], (3, 5, 33), BF16, {"axis": 0})
