"""Ops of every family give the same bits compiled as one by one, also beside views and reused memory."""

import numpy as np
import pytest

import outlive.core as mx

RNG = np.random.default_rng(5)
X = RNG.normal(size=(6, 8)).astype(np.float32)
Y = RNG.normal(size=(8, 5)).astype(np.float32)
Q = RNG.normal(size=(2, 4, 7, 32)).astype(np.float32)
W = RNG.normal(size=(64, 128)).astype(np.float32)


def updated(x):
    x = x * 1.0
    x[1:3, ::2] = x[:2, 1::2] * 2.0
    x[mx.array([0, 5, 0])] += 1.0
    return x.at[mx.array([1, 1])].add(x[0])


def quantized(x, w):
    parts = mx.quantize(w, group_size=32, bits=4)
    return mx.quantized_matmul(x, *parts, transpose=True, group_size=32, bits=4), mx.dequantize(
        *parts, group_size=32, bits=4
    )


FAMILIES = {
    "elementwise": lambda x, y, q, w: [mx.tanh(x) * 2.0 + mx.exp(-x), x.astype(mx.int32) // 2, mx.where(x > 0, x, -x)],
    "integers": lambda x, y, q, w: [((x * 100).astype(mx.int32) & 7) << 2, mx.arange(7) % 3 + 1],
    "reductions": lambda x, y, q, w: [x.sum(), x.max(axis=0), mx.logsumexp(x, axis=1), x.var(axis=0), mx.argmin(x)],
    "softmax": lambda x, y, q, w: [mx.softmax(x, axis=0), mx.softmax(x.T, axis=-1)],
    "shapes": lambda x, y, q, w: [x.T.reshape(4, 12), mx.pad(x, ((1, 2), (0, 3))), mx.tile(x, (2, 1)), x[::-1, 1:7:2]],
    "copies": lambda x, y, q, w: [mx.contiguous(x.T) + 1.0, mx.contiguous(x)[::2], mx.as_strided(x, (3, 4), (8, 1), 2)],
    "joins": lambda x, y, q, w: [mx.concatenate([x, x * 2.0], axis=1), *mx.split(x, 3, axis=0), mx.stack([x, -x])],
    "indexing": lambda x, y, q, w: [x[mx.array([3, 1])], mx.take(x, mx.array([0, 2]), axis=1), updated(x)],
    "scans and sorts": lambda x, y, q, w: [
        mx.cumsum(x, axis=0),
        mx.sort(x, axis=1),
        mx.argsort(x, axis=0),
        mx.topk(x, 3),
    ],
    "products": lambda x, y, q, w: [
        x @ y,
        mx.addmm(x[:, :5], x, y, 0.5, 2.0),
        x @ y[:, 0],
        mx.einsum("ij,jk->ki", x, y),
    ],
    "convolution": lambda x, y, q, w: [mx.conv1d(q[0], q[0, :, :3], padding=1), mx.conv2d(q, q[:, :2, :2], stride=2)],
    "quantization": lambda x, y, q, w: quantized(w[:3, :128], w),
    "attention": lambda x, y, q, w: [
        mx.fast.scaled_dot_product_attention(q, q, q * 2.0, scale=0.2, mask="causal"),
        mx.fast.rope(q, 32, traditional=False, base=10000.0, scale=1.0, offset=3),
        mx.fast.rms_norm(w, w[0], 1e-5),
        mx.fast.layer_norm(w, w[0], None, 1e-5),
    ],
    "random": lambda x, y, q, w: [
        mx.random.normal((3, 5), key=mx.random.key(3)),
        mx.random.randint(0, 9, (7,), key=mx.random.key(1)),
    ],
    "half precision": lambda x, y, q, w: [
        (x.astype(mx.bfloat16) * 3.0 + 1.0).sum(axis=0),
        x.astype(mx.float16) @ y.astype(mx.float16),
        mx.maximum(x.astype(mx.bfloat16), 0.1),
    ],
    "complex": lambda x, y, q, w: [mx.abs(x.astype(mx.complex64) * 1j), mx.real(x.astype(mx.complex64))],
    "linear algebra": lambda x, y, q, w: [mx.linalg.inv(x @ x.T + mx.eye(6), stream=mx.cpu), mx.linalg.norm(x)],
    "fourier": lambda x, y, q, w: [mx.fft.rfft(x), mx.fft.ifft2(mx.fft.fft2(x))],
    "gradients": lambda x, y, q, w: mx.grad(lambda x, y: (mx.softmax(mx.tanh(x @ y)) ** 2).sum(), argnums=(0, 1))(x, y),
}


def same(a, b):
    assert a.dtype is b.dtype
    assert a.shape == b.shape
    if a.dtype is mx.bfloat16:
        a, b = a.view(mx.uint16), b.view(mx.uint16)
    np.testing.assert_array_equal(np.array(a), np.array(b))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_gives_the_same_bits_compiled(family):
    function = FAMILIES[family]
    arguments = [mx.array(a) for a in (X, Y, Q, W)]
    expected = function(*arguments)
    compiled = mx.compile(function)
    for _ in range(3):
        for one, all_at_once in zip(expected, compiled(*arguments), strict=True):
            same(one, all_at_once)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_gives_the_same_bits_compiled_over_views(family):
    function = FAMILIES[family]
    wide = [mx.array(np.repeat(a, 2, axis=-1))[..., ::2] for a in (X, Y, Q, W)]
    compiled = mx.compile(function)
    for one, all_at_once in zip(function(*wide), compiled(*wide), strict=True):
        same(one, all_at_once)


def test_a_growing_cache_is_updated_in_place():
    def step(cache, new, at):
        cache[:, at : at + 1] = new
        return cache, (cache * 2.0).sum()

    compiled = mx.compile(step)
    cache = mx.zeros((4, 1000, 64)) + 0.0
    mx.eval(cache)
    pointer = cache._node.data.operand.buffer.pointer
    total = 0.0
    for at in range(5):
        cache, value = compiled(cache, mx.ones((4, 1, 64)), at)
        mx.eval(cache, value)
        total += 2.0 * 4 * 64
        assert value.item() == total
    assert cache._node.data.operand.buffer.pointer == pointer
