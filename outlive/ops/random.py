"""Random numbers from threefry-2x32 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): same key, same bits, on every device.

Functions without a key take the next one of the global state, `state[0]`, a live array that can be read, assigned and captured.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from outlive.graph.array import apply, array
from outlive.graph.primitive import Primitive
from outlive.ops.common import Dtype, as_array, checked_shape, dtypes, layout, normal_axis
from outlive.ops.common import broadcast_shapes as common_shape
from outlive.ops.elementwise import less, maximum, minimum
from outlive.ops.gather import take
from outlive.ops.reduce import argmax
from outlive.ops.shape import broadcast_to, expand_dims, moveaxis, reshape
from outlive.ops.sort import argsort
from outlive.ops.unary import abs, astype, erf, erfinv, floor, log, log1p, sign

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA
BELOW_ONE = float(np.nextafter(np.float32(1), np.float32(0)))
LARGEST_WORD = float(2**32 - 1)


def threefry(xp: Any, key: tuple[Any, Any], counter: tuple[Any, Any]) -> tuple[Any, Any]:
    """Twenty rounds of threefry-2x32 over vectors of counters (uint32)."""
    keys = (key[0], key[1], key[0] ^ key[1] ^ xp.uint32(PARITY))
    x, y = counter[0] + keys[0], counter[1] + keys[1]
    for group in range(5):
        for distance in ROTATIONS[group % 2]:
            x = x + y
            y = (y << xp.uint32(distance)) | (y >> xp.uint32(32 - distance))
            y = y ^ x
        x = x + keys[(group + 1) % 3]
        y = y + keys[(group + 2) % 3] + xp.uint32(group + 1)
    return x, y


class RandomBits(Primitive):
    """For each key of an array (..., 2) of uint32, `shape` words of 32 random bits."""

    __slots__ = ("shape",)
    name = "random_bits"
    donates = False
    shape: tuple[int, ...]

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        keys = reads[0].reshape(-1, 2)
        out = writes[0].reshape(keys.shape[0], -1) if writes[0].size else writes[0]
        if not out.size:
            return
        count = out.shape[1]
        half, odd = count // 2, count % 2
        first = (keys[:, :1], keys[:, 1:])
        j = xp.arange(half, dtype=xp.uint32)
        out[:, :half], out[:, half + odd :] = threefry(xp, first, (j, j + xp.uint32(half + odd)))
        if odd:
            last = (xp.full((1,), half, xp.uint32), xp.zeros((1,), xp.uint32))
            out[:, half : half + 1] = threefry(xp, first, last)[0]
        if not xp.may_share_memory(out, writes[0]):
            writes[0][...] = out.reshape(writes[0].shape)

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        return [None]

    def vmap(self, inputs: Any, axes: Any) -> Any:
        keys = moveaxis(inputs[0], axes[0], 0)
        return [_bits_of(keys, self.shape)], [0]


def _bits_of(keys: array, shape: tuple[int, ...], stream: Any = None) -> array:
    return apply(RandomBits.make(shape), (keys,), layout((*keys.shape[:-1], *shape), dtypes.uint32), stream)


def _checked_key(op: str, key: Any) -> array:
    key = as_array(key)
    if key.dtype is not dtypes.uint32 or key.shape != (2,):
        raise ValueError(f"[{op}] A key is an array of two uint32 words, made by mx.random.key; got {key.dtype.name}{list(key.shape)}.")
    return key


def key(seed: int) -> array:
    """The key of a seed (any integer; 64 bits count): an array of two uint32 words."""
    seed = int(seed)
    return array(np.array([(seed >> 32) & 0xFFFFFFFF, seed & 0xFFFFFFFF], np.uint32))


state: list[array] = []
"""The global state: one key. Assign `state[0]` to set it."""

_lock = threading.Lock()


def seed(seed: int) -> None:
    """Set the global state from an integer."""
    with _lock:
        state[:] = [key(seed)]


def _next_key() -> array:
    with _lock:
        if not state:
            state[:] = [key(time.time_ns() // 1000)]
        following, made = (row for row in split(state[0]))
        state[0] = following
        return made


def _key(op: str, given: Any) -> array:
    return _next_key() if given is None else _checked_key(op, given)


def split(key: Any, num: int = 2, stream: Any = None) -> array:
    """`num` independent keys from one: an array (num, 2) of uint32. Raises ValueError for something that is no key."""
    return _bits_of(_checked_key("split", key), (int(num), 2), stream)


def _floating(op: str, dtype: Dtype | None) -> Dtype:
    dtype = dtype or dtypes.float32
    if dtype.category is not dtypes.floating:
        raise ValueError(f"[{op}] Random numbers of this kind are floats; got {dtype.name}.")
    return dtype


def _unit(shape: tuple[int, ...], made: array, stream: Any) -> array:
    """Uniform float32 numbers in [0, 1)."""
    return minimum(astype(_bits_of(made, shape, stream), dtypes.float32) / LARGEST_WORD, BELOW_ONE)


def uniform(
    low: Any = 0, high: Any = 1, shape: Sequence[int] = (), dtype: Dtype | None = dtypes.float32, key: Any = None, stream: Any = None
) -> array:
    """Numbers uniform in [low, high): `low`, `high` numbers or arrays that broadcast to `shape`; `dtype` a float type.

    Raises ValueError for other types, bounds that do not broadcast, or something that is no key.
    """
    kind = _floating("uniform", dtype)
    low, high = as_array(low, dtypes.float32), as_array(high, dtypes.float32)
    out = checked_shape("uniform", shape)
    if common_shape("uniform", out, low.shape, high.shape) != out:
        raise ValueError(f"[uniform] Bounds of shapes {low.shape} and {high.shape} do not broadcast to {out}.")
    low, high = astype(low, dtypes.float32), astype(high, dtypes.float32)
    unit = _unit(out, _key("uniform", key), stream)
    return astype(unit * (high - low) + low, kind, stream=stream)


def normal(
    shape: Sequence[int] = (), dtype: Dtype | None = dtypes.float32, loc: Any = None, scale: Any = None, key: Any = None, stream: Any = None
) -> array:
    """Normally distributed numbers of mean `loc` (0) and deviation `scale` (1), numbers or arrays; `dtype` a float or complex type.

    Raises ValueError for other types or something that is no key.
    """
    if dtype is dtypes.complex64:
        parts = normal((*checked_shape("normal", shape), 2), dtypes.float32, key=key, stream=stream) * math.sqrt(0.5)
        made = parts.view(dtypes.complex64)  # type: ignore[attr-defined]
        out = reshape(made, made.shape[:-1])
    else:
        kind = _floating("normal", dtype)
        unit = _unit(checked_shape("normal", shape), _key("normal", key), stream)
        out = erfinv(_symmetric(unit)) * math.sqrt(2)
        if scale is None and loc is None:
            return astype(out, kind)
        out = astype(out, kind)
    if scale is not None:
        out = out * scale
    return out if loc is None else out + loc


def _symmetric(unit: array) -> array:
    """Numbers in [0, 1) spread over (-1, 1)."""
    return unit * (1.0 + BELOW_ONE) + -BELOW_ONE


def multivariate_normal(
    mean: Any, cov: Any, shape: Sequence[int] = (), dtype: Dtype | None = dtypes.float32, key: Any = None, stream: Any = None
) -> array:
    """Jointly normal vectors: `mean` (..., n), covariance `cov` (..., n, n), `shape` in front. float32 alone; ValueError otherwise."""
    from outlive.ops.linalg import svd

    mean, cov = as_array(mean), as_array(cov)
    if dtype is not dtypes.float32:
        raise ValueError(f"[multivariate_normal] Only float32 is served; got {None if dtype is None else dtype.name}.")
    if mean.ndim < 1 or cov.ndim < 2 or cov.shape[-1] != cov.shape[-2] or cov.shape[-1] != mean.shape[-1]:
        raise ValueError(f"[multivariate_normal] A mean of shape {mean.shape} does not go with a covariance of shape {cov.shape}.")
    n = mean.shape[-1]
    batch = common_shape("multivariate_normal", mean.shape[:-1], cov.shape[:-2])
    out = (*checked_shape("multivariate_normal", shape), *batch) if shape else batch
    u, s, vt = svd(cov)
    white = normal((*out, n), dtypes.float32, key=key, stream=stream) * (s**0.5)  # type: ignore[operator]
    return mean + reshape(expand_dims(white, -2) @ vt, (*out, n))  # type: ignore[operator]


def randint(
    low: Any, high: Any, shape: Sequence[int] = (), dtype: Dtype | None = dtypes.int32, key: Any = None, stream: Any = None
) -> array:
    """Integers uniform in [low, high): bounds numbers or arrays that broadcast to `shape`. Raises ValueError for a type that is no integer."""
    kind = dtype or dtypes.int32
    if kind.category not in (dtypes.signedinteger, dtypes.unsignedinteger):
        raise ValueError(f"[randint] Random integers have an integer type; got {kind.name}.")
    made = uniform(low, high, shape, dtypes.float32, key, stream)
    return maximum(astype(floor(made), kind), astype(as_array(low), kind), stream=stream)


def bernoulli(p: Any = 0.5, shape: Sequence[int] | None = None, key: Any = None, stream: Any = None) -> array:
    """True with probability `p` (a number or an array that broadcasts to `shape`, by default its own shape)."""
    p = as_array(p, dtypes.float32)
    out = p.shape if shape is None else checked_shape("bernoulli", shape)
    if common_shape("bernoulli", out, p.shape) != out:
        raise ValueError(f"[bernoulli] Probabilities of shape {p.shape} do not broadcast to {out}.")
    return less(_unit(out, _key("bernoulli", key), stream), broadcast_to(p, out), stream=stream)


def truncated_normal(
    lower: Any, upper: Any, shape: Sequence[int] | None = None, dtype: Dtype | None = dtypes.float32, key: Any = None, stream: Any = None
) -> array:
    """Standard normal numbers conditioned to lie between `lower` and `upper` (numbers or arrays that broadcast to `shape`)."""
    kind = _floating("truncated_normal", dtype)
    root = math.sqrt(2)
    lower, upper = astype(as_array(lower), dtypes.float32), astype(as_array(upper), dtypes.float32)
    out = common_shape("truncated_normal", lower.shape, upper.shape) if shape is None else checked_shape("truncated_normal", shape)
    made = erfinv(uniform(erf(lower / root), erf(upper / root), out, dtypes.float32, key, stream)) * root
    return astype(maximum(minimum(made, upper), lower), kind, stream=stream)


def gumbel(shape: Sequence[int] = (), dtype: Dtype | None = dtypes.float32, key: Any = None, stream: Any = None) -> array:
    """Standard Gumbel numbers, -log(-log(u)); `dtype` a float type."""
    kind = _floating("gumbel", dtype)
    unit = _unit(checked_shape("gumbel", shape), _key("gumbel", key), stream)
    return astype(-log(-log(unit)), kind, stream=stream)


def laplace(
    shape: Sequence[int] = (), dtype: Dtype | None = dtypes.float32, loc: float = 0.0, scale: float = 1.0, key: Any = None,
    stream: Any = None,
) -> array:  # fmt: skip
    """Laplace numbers around `loc` with scale `scale`; `dtype` a float type."""
    kind = _floating("laplace", dtype)
    spread = _symmetric(_unit(checked_shape("laplace", shape), _key("laplace", key), stream))
    made = sign(spread) * log1p(-abs(spread))
    return astype(made, kind) * scale + loc


def categorical(
    logits: Any, axis: int = -1, shape: Sequence[int] | None = None, num_samples: int | None = None, key: Any = None, stream: Any = None
) -> array:
    """Indices (uint32) drawn along `axis` with probabilities softmax(logits), by the largest of logits + Gumbel numbers.

    `num_samples`: that many draws for each distribution, as the last axis. `shape`: draws in that shape, to which the logits without `axis`
    broadcast. Raises ValueError when both are given or the shape does not fit.
    """
    logits = as_array(logits)
    at = normal_axis("categorical", axis, logits.ndim)
    rest = (*logits.shape[:at], *logits.shape[at + 1 :])
    if shape is not None and num_samples is not None:
        raise ValueError("[categorical] Give shape or num_samples, not both.")
    made = _key("categorical", key)
    if num_samples is not None:
        noise = gumbel((*logits.shape, int(num_samples)), key=made, stream=stream)
        return argmax(expand_dims(logits, -1) + noise, at)
    if shape is None:
        return argmax(logits + gumbel(logits.shape, key=made, stream=stream), at)
    out = checked_shape("categorical", shape)
    if common_shape("categorical", out, rest) != out:
        raise ValueError(f"[categorical] Draws of shape {out} do not fit distributions of shape {rest}.")
    place = at - logits.ndim
    full = list(out)
    full.insert(len(full) + place + 1, logits.shape[at])
    return argmax(logits + gumbel(full, key=made, stream=stream), place)


def permutation(x: Any, axis: int = 0, key: Any = None, stream: Any = None) -> array:
    """A random order of 0 ... x - 1 for an integer `x` (uint32), or of the slices of array `x` along `axis`."""
    if isinstance(x, int):
        if x < 0:
            raise ValueError(f"[permutation] The number of elements cannot be negative; got {x}.")
        return argsort(_bits_of(_key("permutation", key), (x,), stream))
    x = as_array(x)
    at = normal_axis("permutation", axis, x.ndim)
    order = argsort(_bits_of(_key("permutation", key), (x.shape[at],), stream))
    return take(x, order, at)


__all__ = [
    "bernoulli", "categorical", "gumbel", "key", "laplace", "multivariate_normal", "normal", "permutation", "randint", "seed", "split", "state",
    "truncated_normal", "uniform",
]  # fmt: skip
