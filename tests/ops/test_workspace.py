"""What a reference kernel allocates stays within the workspace that it declares."""

from __future__ import annotations

import importlib
import tracemalloc

import numpy as np
import pytest

import outlive.backends.cpu.device as cpu_device
import outlive.core as mx
from tests.ops.rules import numbers

SLACK_BYTES = 1 << 16
"""Python's own objects."""


def f(*shape: int, kind: str = "float32", seed: int = 0) -> mx.array:
    return mx.array(numbers(*shape, seed=seed).astype(np.float32)).astype(getattr(mx, kind))


def places(high: int, *shape: int) -> mx.array:
    return mx.array(np.random.default_rng(0).integers(0, high, shape).astype(np.int32))


def affine(*shape: int, bits: int = 4) -> tuple:
    return mx.quantize(f(*shape), 64, bits)


CALLS = {
    "take": lambda: mx.take(f(500, 64), places(500, 4000), axis=0),
    "take along the last axis": lambda: mx.take(f(64, 500), places(500, 700), axis=1),
    "gather": lambda: f(100, 90, 8)[places(100, 3000), :, places(8, 3000)],
    "scatter": lambda: f(500, 64).at[places(500, 3000)].add(1.0),
    "scatter of halves": lambda: (
        f(500, 64, kind="bfloat16").at[places(500, 3000)].maximum(f(3000, 64, kind="bfloat16"))
    ),
    "take_along_axis": lambda: mx.take_along_axis(f(500, 64), places(500, 900, 64), axis=0),
    "put_along_axis": lambda: mx.put_along_axis(f(500, 64), places(500, 400, 64), f(400, 64), axis=0),
    "matmul": lambda: f(300, 200) @ f(200, 300),
    "matmul of views": lambda: f(300, 400)[:, ::2] @ f(300, 200).T[:, ::-1],
    "addmm": lambda: mx.addmm(f(300), f(300, 200), f(200, 300), 0.5, 2.0),
    "gather_mm": lambda: mx.gather_mm(f(50, 7, 60), f(9, 60, 50), None, places(9, 50)),
    "segmented_mm": lambda: mx.segmented_mm(f(60, 500), f(500, 70), mx.array([[0, 200], [200, 500]])),
    "conv1d": lambda: mx.conv1d(f(2, 5000, 16), f(32, 7, 16), padding=3),
    "conv2d": lambda: mx.conv2d(f(2, 60, 60, 16), f(32, 3, 3, 8), padding=1, groups=2),
    "conv3d": lambda: mx.conv3d(f(1, 12, 12, 12, 8), f(8, 3, 3, 3, 8), padding=1),
    "quantize": lambda: mx.quantize(f(300, 1024)),
    "quantize halves": lambda: mx.quantize(f(300, 1024, kind="bfloat16"), 32, 3),
    "quantize mxfp8": lambda: mx.quantize(f(300, 1024), mode="mxfp8"),
    "quantize nvfp4": lambda: mx.quantize(f(300, 1024, kind="float16"), mode="nvfp4"),
    "dequantize": lambda: mx.dequantize(*affine(300, 1024, bits=6), bits=6),
    "dequantize mxfp4": lambda: mx.dequantize(*mx.quantize(f(300, 1024), mode="mxfp4"), mode="mxfp4"),
    "to_fp8": lambda: mx.to_fp8(f(300, 1024)),
    "from_fp8": lambda: mx.from_fp8(mx.to_fp8(f(300, 1024))),
    "quantized_matmul": lambda: mx.quantized_matmul(f(7, 1024), *affine(300, 1024, bits=3), bits=3),
    "quantized_matmul straight": lambda: mx.quantized_matmul(f(7, 300), *affine(300, 1024, bits=5), False, bits=5),
    "quantized_matmul mxfp4": lambda: mx.quantized_matmul(
        f(7, 1024), *mx.quantize(f(300, 1024), mode="mxfp4"), mode="mxfp4"
    ),
    "gather_qmm": lambda: mx.gather_qmm(f(40, 3, 256), *affine(8, 64, 256, bits=6), None, places(8, 40), bits=6),
    "rms_norm": lambda: mx.fast.rms_norm(f(300, 500), f(500), 1e-5),
    "layer_norm": lambda: mx.fast.layer_norm(f(300, 500), f(500), f(500), 1e-5),
    "rope": lambda: mx.fast.rope(f(2, 1, 700, 64), 64, traditional=False, base=1e4, scale=1.0, offset=3),
    "rope traditional": lambda: mx.fast.rope(f(2, 4, 700, 64), 32, traditional=True, base=1e4, scale=1.0, offset=3),
    "attention": lambda: attention(3, mask="causal"),
    "attention with a mask": lambda: attention(3, mask=f(1, 1, 700, 900)),
    "attention with a boolean mask": lambda: attention(3, mask=f(1, 1, 700, 900) > 0, sinks=f(4)),
    "gated_delta": lambda: mx.fast.gated_delta_update(*delta()),
    "gated_delta derivative": lambda: mx.vjp(
        lambda *a: mx.fast.gated_delta_update(*a), list(delta()), [f(2, 40, 4, 16), f(2, 4, 16, 32)]
    )[1],
    "cross_entropy": lambda: mx.fast.cross_entropy(f(50, 3000), places(3000, 50)),
    "hadamard_transform": lambda: mx.hadamard_transform(f(100, 1024)),
    "hadamard_transform of order 28": lambda: mx.hadamard_transform(f(100, 28 * 32)),
    "unique": lambda: mx.unique(places(100, 30000), 10, True, True, True),
    "elementwise": lambda: mx.sigmoid(f(300, 500)) + mx.logaddexp(f(300, 500), f(500)) ** 2,
    "elementwise halves": lambda: mx.erf(f(300, 500, kind="bfloat16")) * mx.rsqrt(f(300, 500, kind="float16")),
    "elementwise integers": lambda: mx.power(places(9, 300, 500), places(9, 500)) // places(9, 300, 500),
    "complex functions": lambda: mx.abs(mx.exp(f(300, 500).astype(mx.complex64))),
    "select": lambda: mx.where(f(300, 500) > 0, f(300, 500, kind="bfloat16"), f(500, kind="bfloat16")),
    "arange": lambda: mx.arange(100000),
    "arange of halves": lambda: mx.arange(100000, dtype=mx.float16),
    "linspace": lambda: mx.linspace(0, 1, 100000),
    "eye": lambda: mx.eye(300, 500),
    "tri": lambda: mx.tri(300, 500, dtype=mx.bool_),
    "window": lambda: mx.blackman(100000),
    "sum": lambda: mx.sum(f(300, 500), 0),
    "sum of views": lambda: mx.sum(mx.transpose(f(300, 500, 3))[::2], (0, 2)),
    "mean of halves": lambda: mx.mean(f(300, 500, kind="bfloat16"), 1),
    "prod": lambda: mx.prod(places(3, 300, 500)),
    "max": lambda: mx.max(f(300, 500), 0),
    "all": lambda: mx.all(f(300, 500), 1),
    "logsumexp": lambda: mx.logsumexp(f(300, 500), 0),
    "argmax": lambda: mx.argmax(f(300, 500, kind="float16"), 0),
    "softmax": lambda: mx.softmax(f(300, 500), 0),
    "cumsum": lambda: mx.cumsum(f(300, 500), 0, reverse=True),
    "cumprod": lambda: mx.cumprod(places(3, 300, 500), 1, inclusive=False),
    "cummax": lambda: mx.cummax(f(300, 500, kind="bfloat16"), 1),
    "logcumsumexp": lambda: mx.logcumsumexp(f(300, 500), 1),
    "sort": lambda: mx.sort(f(300, 500), 0),
    "argsort": lambda: mx.argsort(f(300, 500), 1),
    "topk": lambda: mx.topk(f(300, 500, kind="float16"), 7),
    "searchsorted": lambda: mx.searchsorted(f(5000), f(300, 500)),
    "random": lambda: mx.random.normal((300, 501), key=mx.random.key(1)),
    "random of many keys": lambda: mx.random.split(mx.random.split(mx.random.key(1), 500)[3], 700),
    "inv": lambda: mx.linalg.inv(f(5, 60, 60)),
    "solve": lambda: mx.linalg.solve(f(5, 60, 60), f(5, 60, 90)),
    "qr": lambda: mx.linalg.qr(f(5, 90, 60)),
    "svd": lambda: mx.linalg.svd(f(5, 60, 90)),
    "eigh": lambda: mx.linalg.eigh(f(5, 60, 60)),
    "eig": lambda: mx.linalg.eig(f(5, 60, 60)),
    "lu": lambda: mx.linalg.lu(f(5, 60, 90)),
    "lu_factor": lambda: mx.linalg.lu_factor(f(5, 60, 90)),
    "det": lambda: mx.linalg.det(f(5, 60, 60)),
    "fft": lambda: mx.fft.fft(f(300, 500)),
    "fftn": lambda: mx.fft.ifftn(f(30, 50, 60), axes=[0, 2]),
    "rfft": lambda: mx.fft.rfftn(f(30, 50, 60)),
    "irfft": lambda: mx.fft.irfft(f(300, 500), 1001),
}


def attention(width: int, **options) -> mx.array:
    # no compiled kernel has this width
    return mx.fast.scaled_dot_product_attention(
        f(1, 4, 700, width), f(1, 2, 900, width), f(1, 2, 900, width), scale=0.3, **options
    )


def delta() -> tuple:
    return f(2, 40, 2, 32), f(2, 40, 2, 32), f(2, 40, 4, 16), mx.abs(f(2, 40, 4)), f(2, 40, 4)


@pytest.mark.parametrize("name", CALLS)
def test_a_reference_kernel_allocates_no_more_than_it_declares(name, monkeypatch):
    run = cpu_device.run_reference
    np.unique(np.arange(3))  # what NumPy and SciPy import on first use is not the kernel's
    importlib.import_module("scipy.special")
    importlib.import_module("scipy.linalg")
    seen = []

    def measured(kernel, reads, writes, *rest):
        tracemalloc.start()
        try:
            run(kernel, reads, writes, *rest)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        if hasattr(kernel, "workspace"):
            bound = kernel.workspace(tuple(o.layout for o in reads), tuple(o.layout for o in writes))
            seen.append((kernel.name, peak, bound))

    monkeypatch.setattr(cpu_device, "run_reference", measured)
    monkeypatch.setattr(cpu_device.CpuDevice, "select", lambda self, kernel, reads, writes: None)
    mx.eval(CALLS[name]())
    assert seen
    for op, peak, bound in seen:
        assert peak <= bound + SLACK_BYTES, f"[{op}] allocated {peak:,} bytes, declared {bound:,}"
