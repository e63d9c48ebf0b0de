"""Random numbers from threefry-2x32 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): same key,
same bits, on every device.

Functions without a key take the next one of the global state, `state[0]`, a live array that can be read, assigned and
captured.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from outlive.graph.array import apply, array
from outlive.graph.primitive import Primitive
from outlive.ops.common import Dtype, as_array, checked_shape, constant, dtypes, layout, normal_axis
from outlive.ops.common import broadcast_shapes as common_shape
from outlive.ops.elementwise import add, less, maximum, minimum
from outlive.ops.gather import take
from outlive.ops.matmul import matmul
from outlive.ops.reduce import argmax
from outlive.ops.reduce import max as largest
from outlive.ops.scan import cumsum
from outlive.ops.shape import broadcast_to, expand_dims, moveaxis, reshape
from outlive.ops.slicing import axis_range
from outlive.ops.sort import argsort, searchsorted
from outlive.ops.unary import abs, astype, erf, erfinv, exp, floor, log, log1p, sign, sqrt

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA
BELOW_ONE = float(np.nextafter(np.float32(1), np.float32(0)))
BELOW_ONE_IN = {"float16": 1 - 2.0**-11, "bfloat16": 1 - 2.0**-8}
"""The largest number below 1 of the half types: a draw rounds to it, not to 1."""

LARGEST_WORD = float(2**32 - 1)
BLOCK = 1 << 14
"""Counters of one step of a reference kernel: they stay in a core's cache."""


def threefry(xp: Any, key: tuple[Any, Any], x: Any, y: Any) -> None:
    """Twenty rounds of threefry-2x32, in place, over vectors of counters (x, y) of uint32."""
    keys = (key[0], key[1], key[0] ^ key[1] ^ xp.uint32(PARITY))
    x += keys[0]
    y += keys[1]
    for group in range(5):
        for distance in ROTATIONS[group % 2]:
            x += y
            low = y >> xp.uint32(32 - distance)
            y <<= xp.uint32(distance)
            y |= low
            y ^= x
        x += keys[(group + 1) % 3]
        y += keys[(group + 2) % 3]
        y += xp.uint32(group + 1)


class RandomBits(Primitive):
    """For each key of an array (..., 2) of uint32, `shape` words of 32 random bits."""

    __slots__ = ("shape",)
    name = "random_bits"
    donates = False
    shape: tuple[int, ...]

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        # counters (j, half + j) give words j and half + j; the middle one of an odd count comes from (half, 0)
        keys = reads[0].reshape(-1, 2)
        words = writes[0].reshape(keys.shape[0], math.prod(self.shape))
        count = words.shape[1]
        half, odd = divmod(count, 2)
        for start in range(0, half, BLOCK):
            stop = min(start + BLOCK, half)
            x, y = words[:, start:stop], words[:, half + odd + start : half + odd + stop]
            x[...] = xp.arange(start, stop, dtype=xp.uint32)
            y[...] = xp.arange(half + odd + start, half + odd + stop, dtype=xp.uint32)
            threefry(xp, (keys[:, :1], keys[:, 1:]), x, y)
        if odd:
            middle, rest = words[:, half : half + 1], xp.zeros((keys.shape[0], 1), xp.uint32)
            middle[...] = half
            threefry(xp, (keys[:, :1], keys[:, 1:]), middle, rest)

    def workspace(self, reads: Any, writes: Any) -> int:
        return 4 * 8 * min(writes[0].size, BLOCK * max(1, reads[0].size // 2)) + 64 * reads[0].size

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
        raise ValueError(
            f"[{op}] A key is an array of two uint32 words, as key() makes; got {key.dtype.name}{list(key.shape)}."
        )
    return key


def key(seed: int) -> array:
    """The key of a seed: two uint32 words, the upper and the lower half of it.

    Raises TypeError for a seed that is no integer of 64 bits without sign.

    >>> mx.random.key(7)
    array([0, 7], dtype=uint32)
    """
    if not isinstance(seed, int) or not 0 <= seed < 1 << 64:
        raise TypeError(f"[key] A seed is an integer from 0 to 2**64 - 1; got {seed!r}.")
    return array(np.array([seed >> 32, seed & 0xFFFFFFFF], np.uint32))


class State(list[array]):
    """The list of one key that functions without a key advance; seeded from the clock when it is first looked at."""

    def _seeded(self) -> State:
        if not super().__len__():
            super().append(key(time.time_ns() // 1000))
        return self

    def __len__(self) -> int:
        return list.__len__(self._seeded())

    def __iter__(self) -> Iterator[array]:
        return list.__iter__(self._seeded())

    def __getitem__(self, index: Any) -> Any:
        return list.__getitem__(self._seeded(), index)

    def __setitem__(self, index: Any, value: Any) -> None:
        list.__setitem__(self._seeded(), index, value)

    def __repr__(self) -> str:
        return list.__repr__(self._seeded())


state: list[array] = State()
"""The global state, alive: one key. It can be read, assigned (`state[0] = key(7)`) and captured by `compile`."""

_lock = threading.Lock()


def seed(seed: int) -> None:
    """Set the global state from an integer; raises TypeError as `key` does.

    >>> mx.random.seed(7)
    >>> first = mx.random.uniform()
    >>> mx.random.seed(7)
    >>> mx.array_equal(first, mx.random.uniform())
    array(True, dtype=bool)
    """
    made = key(seed)
    with _lock:
        state[0] = made


def set_state(keys: Sequence[array]) -> None:
    """Set the global state from a list of one key; raises ValueError for anything else."""
    if len(keys) != 1:
        raise ValueError(f"[random] The state is a list of one key; got {len(keys)}.")
    made = _checked_key("random", keys[0])
    with _lock:
        state[0] = made


def _next_key() -> array:
    """A key for one call; the state moves on. Safe for any number of threads, and nothing is evaluated."""
    with _lock:
        pair = split(state[0])
        state[0] = _row(pair, 0)
    return _row(pair, 1)


def _row(keys: array, index: int) -> array:
    return reshape(axis_range(keys, 0, index, 1), (2,))


def _key(op: str, given: Any) -> array:
    return _next_key() if given is None else _checked_key(op, given)


def split(key: Any, num: int = 2, stream: Any = None) -> array:
    """`num` independent keys from one: an array (num, 2) of uint32. Raises ValueError for something that is no key.

    >>> one, other = mx.random.split(mx.random.key(7))
    >>> mx.array_equal(one, other)
    array(False, dtype=bool)
    """
    return _bits_of(_checked_key("split", key), checked_shape("split", (num, 2)), stream)


def _floating(op: str, dtype: Dtype | None) -> Dtype:
    dtype = dtype or dtypes.float32
    if dtype.category is not dtypes.floating:
        raise ValueError(f"[{op}] Random numbers of this kind are floats; got {dtype.name}.")
    return dtype


def _unit(shape: tuple[int, ...], made: array, stream: Any) -> array:
    """Uniform float32 numbers in [0, 1)."""
    return minimum(astype(_bits_of(made, shape, stream), dtypes.float32) / LARGEST_WORD, BELOW_ONE)


def uniform(
    low: Any = 0,
    high: Any = 1,
    shape: Sequence[int] = (),
    dtype: Dtype | None = dtypes.float32,
    key: Any = None,
    stream: Any = None,
) -> array:
    """Numbers uniform in [low, high): `low`, `high` numbers or arrays that broadcast to `shape`; `dtype` a float type.

    They are drawn in float32 and rounded to `dtype`, below 1 in [0, 1). Raises ValueError for other types, bounds that do not
    broadcast, or something that is no key.

    >>> a = mx.random.uniform(2, 3, (100,), key=mx.random.key(7))
    >>> mx.all((a >= 2) & (a < 3))
    array(True, dtype=bool)
    """
    kind = _floating("uniform", dtype)
    low, high = as_array(low, dtypes.float32), as_array(high, dtypes.float32)
    out = checked_shape("uniform", shape)
    if common_shape("uniform", out, low.shape, high.shape) != out:
        raise ValueError(f"[uniform] Bounds of shapes {low.shape} and {high.shape} do not broadcast to {out}.")
    low, high = astype(low, dtypes.float32), astype(high, dtypes.float32)
    unit = _unit(out, _key("uniform", key), stream)
    if kind.half:
        unit = minimum(unit, BELOW_ONE_IN[kind.name])
    return astype(unit * (high - low) + low, kind, stream=stream)


def normal(
    shape: Sequence[int] = (),
    dtype: Dtype | None = dtypes.float32,
    loc: Any = None,
    scale: Any = None,
    key: Any = None,
    stream: Any = None,
) -> array:
    """Normally distributed numbers of mean `loc` (0) and deviation `scale` (1), numbers or arrays; `dtype` a float or
    complex type.

    Raises ValueError for other types or something that is no key.

    >>> mx.random.normal((2, 3), mx.float16, loc=10, scale=0.1, key=mx.random.key(7)).dtype
    outlive.core.float16
    """
    if dtype is dtypes.complex64:
        parts = normal((*checked_shape("normal", shape), 2), dtypes.float32, key=key, stream=stream) * math.sqrt(0.5)
        made = parts.view(dtypes.complex64)
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
    mean: Any,
    cov: Any,
    shape: Sequence[int] = (),
    dtype: Dtype | None = dtypes.float32,
    key: Any = None,
    stream: Any = None,
) -> array:
    """Jointly normal vectors: `mean` (..., n), covariance `cov` (..., n, n), `shape` in front.

    float32 alone; ValueError otherwise.

    >>> mx.random.multivariate_normal(mx.zeros((2,)), mx.eye(2), (5,), key=mx.random.key(7)).shape
    (5, 2)
    """
    from outlive.ops.linalg import svd

    mean, cov = as_array(mean), as_array(cov)
    if dtype is not dtypes.float32:
        raise ValueError(f"[multivariate_normal] Only float32 is served; got {None if dtype is None else dtype.name}.")
    if mean.ndim < 1 or cov.ndim < 2 or cov.shape[-1] != cov.shape[-2] or cov.shape[-1] != mean.shape[-1]:
        raise ValueError(
            f"[multivariate_normal] A mean of shape {mean.shape} does not go with a covariance of shape {cov.shape}."
        )
    n = mean.shape[-1]
    batch = common_shape("multivariate_normal", mean.shape[:-1], cov.shape[:-2])
    out = checked_shape("multivariate_normal", shape) if shape else batch
    if common_shape("multivariate_normal", out, batch) != out:
        raise ValueError(f"[multivariate_normal] Means and covariances of shape {batch} do not broadcast to {out}.")
    # the symmetric root of the covariance: signs of singular vectors cancel
    u, s, vt = svd(astype(cov, dtypes.float32))
    root = matmul(u * expand_dims(sqrt(s), -2), vt)
    white = normal((*out, n), dtypes.float32, key=key, stream=stream)
    return add(mean, reshape(matmul(expand_dims(white, -2), root), (*out, n)), stream=stream)


def randint(
    low: Any,
    high: Any,
    shape: Sequence[int] = (),
    dtype: Dtype | None = dtypes.int32,
    key: Any = None,
    stream: Any = None,
) -> array:
    """Integers uniform in [low, high): bounds numbers or arrays that broadcast to `shape`.

    Raises ValueError for a type that is no integer.

    >>> mx.random.randint(0, 10, (4,), key=mx.random.key(7))
    array([2, 2, 4, 2], dtype=int32)
    """
    kind = dtype or dtypes.int32
    if kind.category not in (dtypes.signedinteger, dtypes.unsignedinteger):
        raise ValueError(f"[randint] Random integers have an integer type; got {kind.name}.")
    low, high = as_array(low), as_array(high)
    made = uniform(low, high, shape, dtypes.float32, key, stream)
    # a product rounded up may reach the bound, which is not included
    below = minimum(astype(floor(made), kind), astype(high, kind) - 1)
    return maximum(below, astype(low, kind), stream=stream)


def bernoulli(p: Any = 0.5, shape: Sequence[int] | None = None, key: Any = None, stream: Any = None) -> array:
    """True with probability `p` (a number or an array that broadcasts to `shape`, by default its own shape);
    type bool.

    Raises ValueError for shapes that do not broadcast, or something that is no key.

    >>> mx.random.bernoulli(1.0, (3,))
    array([True, True, True], dtype=bool)
    """
    p = as_array(p)
    if p.dtype.category is not dtypes.floating:
        raise ValueError(f"[bernoulli] A probability is a float; got {p.dtype.name}.")
    out = p.shape if shape is None else checked_shape("bernoulli", shape)
    if common_shape("bernoulli", out, p.shape) != out:
        raise ValueError(f"[bernoulli] Probabilities of shape {p.shape} do not broadcast to {out}.")
    return less(_unit(out, _key("bernoulli", key), stream), broadcast_to(p, out), stream=stream)


def truncated_normal(
    lower: Any,
    upper: Any,
    shape: Sequence[int] | None = None,
    dtype: Dtype | None = dtypes.float32,
    key: Any = None,
    stream: Any = None,
) -> array:
    """Standard normal numbers conditioned to lie between `lower` and `upper` (numbers or arrays that broadcast to
    `shape`); `dtype` a float type. Errors as in `uniform`.

    >>> a = mx.random.truncated_normal(-1, 1, (100,), key=mx.random.key(7))
    >>> mx.abs(a).max() <= 1
    array(True, dtype=bool)
    """
    kind = _floating("truncated_normal", dtype)
    root = math.sqrt(2)
    lower, upper = astype(as_array(lower), dtypes.float32), astype(as_array(upper), dtypes.float32)
    out = (
        common_shape("truncated_normal", lower.shape, upper.shape)
        if shape is None
        else checked_shape("truncated_normal", shape)
    )
    made = erfinv(uniform(erf(lower / root), erf(upper / root), out, dtypes.float32, key, stream)) * root
    return astype(maximum(minimum(made, upper), lower), kind, stream=stream)


def gumbel(
    shape: Sequence[int] = (), dtype: Dtype | None = dtypes.float32, key: Any = None, stream: Any = None
) -> array:
    """Standard Gumbel numbers, -log(-log(u)); `dtype` a float type. Errors as in `uniform`.

    >>> mx.random.gumbel((2, 3), key=mx.random.key(7)).shape
    (2, 3)
    """
    kind = _floating("gumbel", dtype)
    unit = _unit(checked_shape("gumbel", shape), _key("gumbel", key), stream)
    return astype(-log(-log(unit)), kind, stream=stream)


def laplace(
    shape: Sequence[int] = (),
    dtype: Dtype | None = dtypes.float32,
    loc: float = 0.0,
    scale: float = 1.0,
    key: Any = None,
    stream: Any = None,
) -> array:
    """Laplace numbers around `loc` with scale `scale`; `dtype` a float type. Errors as in `uniform`.

    >>> mx.random.laplace((2, 3), loc=1.0, scale=2.0, key=mx.random.key(7)).shape
    (2, 3)
    """
    kind = _floating("laplace", dtype)
    spread = _symmetric(_unit(checked_shape("laplace", shape), _key("laplace", key), stream))
    made = sign(spread) * log1p(-abs(spread))
    return astype(made, kind) * scale + loc


def categorical(
    logits: array,
    axis: int = -1,
    shape: Sequence[int] | None = None,
    num_samples: int | None = None,
    key: array | None = None,
    stream: Any = None,
) -> array:
    """Indices (uint32) drawn along `axis` with probabilities softmax(logits).

    `num_samples`: that many draws for each distribution, as the last axis. `shape`: draws in that shape, to which the
    shape of the logits without `axis` broadcasts. One draw each otherwise. Raises ValueError when both are given or the
    shape does not fit, IndexError for an axis out of range.

    >>> mx.random.categorical(mx.array([-mx.inf, 0.0, -mx.inf]), num_samples=3)
    array([1, 1, 1], dtype=uint32)
    """
    logits = as_array(logits)
    at = normal_axis("categorical", axis, logits.ndim)
    rest = (*logits.shape[:at], *logits.shape[at + 1 :])
    if shape is not None and num_samples is not None:
        raise ValueError("[categorical] Give shape or num_samples, not both.")
    if num_samples is not None:
        out, logits = checked_shape("categorical", (*rest, num_samples)), expand_dims(logits, -1)
    else:
        out = rest if shape is None else checked_shape("categorical", shape)
        if common_shape("categorical", out, rest) != out:
            raise ValueError(f"[categorical] Draws of shape {out} do not fit distributions of shape {rest}.")
    made = _key("categorical", key)
    if out and math.prod(rest) == 1 and logits.size:
        return _by_inversion(reshape(logits, (-1,)), out, made, stream)
    place = at - logits.ndim + 1 + len(out)
    noise = gumbel((*out[:place], logits.shape[at], *out[place:]), key=made)
    return argmax(logits + noise, place, stream=stream)


def _by_inversion(logits: array, shape: tuple[int, ...], made: array, stream: Any) -> array:
    """Draws from one distribution: where a uniform number falls among the running sums of exp(logits)."""
    logits = astype(logits, dtypes.float32)
    sums = cumsum(exp(logits - largest(logits)))
    last = axis_range(sums, 0, logits.size - 1, 1)
    drawn = searchsorted(sums, _unit(shape, made, stream) * last, side="right")
    return minimum(drawn, constant(logits.size - 1, dtypes.uint32), stream=stream)


def permutation(x: Any, axis: int = 0, key: Any = None, stream: Any = None) -> array:
    """A random order of 0 ... x - 1 for an integer `x` (uint32), or of the slices of array `x` along `axis`.

    Raises ValueError for a negative `x`, IndexError for an axis out of range.

    >>> mx.sort(mx.random.permutation(5, key=mx.random.key(7)))
    array([0, 1, 2, 3, 4], dtype=uint32)
    """
    if isinstance(x, int):
        if x < 0:
            raise ValueError(f"[permutation] The number of elements cannot be negative; got {x}.")
        return argsort(_bits_of(_key("permutation", key), (x,), stream))
    x = as_array(x)
    at = normal_axis("permutation", axis, x.ndim)
    order = argsort(_bits_of(_key("permutation", key), (x.shape[at],), stream))
    return take(x, order, at)


__all__ = [
    "bernoulli", "categorical", "gumbel", "key", "laplace", "multivariate_normal", "normal", "permutation",
    "randint", "seed", "split", "state", "truncated_normal", "uniform",
]  # fmt: skip
