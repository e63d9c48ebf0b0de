"""Scaled dot-product attention (Vaswani et al. 2017) with grouped heads, masks of every kind, and attention sinks.

A query that no key is allowed for attends to all keys alike under a boolean or causal mask; under an additive mask of
-inf it is NaN, as the formula says. With sinks it attends to the sink alone, and is zero.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

from outlive.graph.array import apply, array
from outlive.graph.primitive import Primitive
from outlive.ops import reduce
from outlive.ops.common import Plans, as_array, broadcast_shapes, dtypes, layout, promote
from outlive.ops.creation import arange
from outlive.ops.elementwise import add, divide, less_equal, maximum, multiply, subtract, where
from outlive.ops.matmul import cast, matmul
from outlive.ops.shape import batch_first, batch_size, broadcast_to, expand_dims, reshape, sum_to, swapaxes
from outlive.ops.slicing import one_by_one
from outlive.ops.unary import exp, negative

BLOCK_SCORES = 1 << 20
"""Scores that the reference kernel holds at one time, at least one row of them."""


class Attention(Primitive):
    """Reads q (B, H, Lq, D), k (B, Hkv, Lk, D), v (B, Hkv, Lk, Dv), a mask that broadcasts to (B, H, Lq, Lk), sinks
    (H,).
    """

    __slots__ = ("scale", "causal", "has_mask", "has_sinks")
    name = "scaled_dot_product_attention"
    donates = False
    scale: float
    causal: bool
    has_mask: bool
    has_sinks: bool

    def workspace(self, reads: Any, writes: Any) -> int:
        scores = min(reads[0].shape[2] * max(reads[1].shape[2], 1), BLOCK_SCORES + reads[1].shape[2])
        return super().workspace(reads, writes) + 8 * 8 * scores

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        q, k, v = reads[:3]
        out = writes[0]
        if not out.size:
            return
        queries, keys = q.shape[2], k.shape[2]
        mask = xp.broadcast_to(reads[3], (*q.shape[:3], keys)) if self.has_mask else None
        sinks = reads[-1] if self.has_sinks else None
        group = q.shape[1] // k.shape[1]
        step = max(1, BLOCK_SCORES // max(keys, 1))
        for b, h, start in itertools.product(range(q.shape[0]), range(q.shape[1]), range(0, queries, step)):
            rows = slice(start, start + step)
            scores = xp.matmul(q[b, h, rows] * q.dtype.type(self.scale), k[b, h // group].T)
            seen = None if mask is None else mask[b, h, rows]
            last = start + keys - queries  # the last key that the first of these queries sees, if causal
            weights = self._weights(xp, scores, seen, None if sinks is None else sinks[h], last)
            xp.matmul(weights, v[b, h // group], out=out[b, h, rows])

    def _weights(self, xp: Any, scores: Any, mask: Any, sink: Any, last: int) -> Any:
        """Softmax of the scores under the masks, over keys and the sink."""
        allowed = mask if mask is not None and mask.dtype == xp.bool_ else None
        if self.causal:
            rows, keys = scores.shape
            allowed = xp.arange(keys) <= xp.arange(last, last + rows)[:, None]
        if allowed is not None:
            scores = xp.where(allowed, scores, scores.dtype.type(-xp.inf))
            if sink is None:
                scores = xp.where(allowed.any(axis=-1, keepdims=True), scores, scores.dtype.type(0))
        elif mask is not None:
            scores = scores + mask
        if not scores.shape[-1]:
            return scores
        top = scores.max(axis=-1, keepdims=True)
        if sink is not None:
            top = xp.maximum(top, sink)
        weights = xp.exp(scores - top)
        total = weights.sum(axis=-1, keepdims=True)
        if sink is not None:
            total = total + xp.exp(sink - top)
        return weights / total

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        q, k, v, *rest = primals
        weights, grouped = self._composed(q, k, rest)
        cotangent = _groups(_wide(cotangents[0]), k.shape[1])
        keys, values = [expand_dims(_wide(a), 2) for a in (k, v)]
        toward = matmul(cotangent, swapaxes(values, -1, -2))
        inner = reduce.sum(multiply(toward, weights), -1, True)
        scores = multiply(weights, subtract(toward, inner))
        made: list[Any] = []
        for i in argnums:
            if i == 0:
                found = reshape(multiply(matmul(scores, keys), self.scale), q.shape)
            elif i == 1:
                found = reduce.sum(multiply(matmul(swapaxes(scores, -1, -2), grouped), self.scale), 2)
            elif i == 2:
                found = reduce.sum(matmul(swapaxes(weights, -1, -2), cotangent), 2)
            elif i == 3 and self.has_mask:
                if primals[3].dtype is dtypes.bool_:
                    made.append(None)
                    continue
                found = sum_to(reshape(scores, (*q.shape[:3], k.shape[2])), primals[3].shape)
            else:
                left = subtract(1.0, reduce.sum(weights, -1, True))  # the sink's own weight
                each = reshape(negative(multiply(left, inner)), q.shape[:3])
                found = reduce.sum(each, [0, 2])
            made.append(cast(found, primals[i].dtype))
        return made

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        q, k, v, *rest = primals
        given = dict(zip(argnums, tangents, strict=True))
        weights, grouped = self._composed(q, k, rest)
        keys, values = [expand_dims(_wide(a), 2) for a in (k, v)]
        terms = []
        if 0 in given:
            terms.append(multiply(matmul(_groups(_wide(given[0]), k.shape[1]), swapaxes(keys, -1, -2)), self.scale))
        if 1 in given:
            toward_keys = swapaxes(expand_dims(_wide(given[1]), 2), -1, -2)
            terms.append(multiply(matmul(grouped, toward_keys), self.scale))
        if self.has_mask and 3 in given and primals[3].dtype is not dtypes.bool_:
            terms.append(_groups(broadcast_to(_wide(given[3]), (*q.shape[:3], k.shape[2])), k.shape[1]))
        scores = functools.reduce(add, terms) if terms else multiply(weights, 0.0)
        inner = reduce.sum(multiply(weights, scores), -1, True)
        if self.has_sinks and len(primals) - 1 in given:
            left = subtract(1.0, reduce.sum(weights, -1, True))
            sink = reshape(_wide(given[len(primals) - 1]), (1, k.shape[1], -1, 1, 1))
            inner = add(inner, multiply(left, sink))
        made = matmul(multiply(weights, subtract(scores, inner)), values)
        if 2 in given:
            made = add(made, matmul(weights, expand_dims(_wide(given[2]), 2)))
        return [cast(reshape(made, (*q.shape[:3], v.shape[3])), q.dtype)]

    def _composed(self, q: array, k: array, rest: Any) -> tuple[array, array]:
        """(softmax weights, grouped queries) as float32 (B, Hkv, G, Lq, ...), from public ops."""
        kinds = k.shape[1]
        grouped = _groups(_wide(q), kinds)
        keys = expand_dims(_wide(k), 2)
        scores = multiply(matmul(grouped, swapaxes(keys, -1, -2)), self.scale)
        allowed, added = self._masks(q, k, rest)
        if allowed is not None:
            scores = where(allowed, scores, -float("inf"))
            if not self.has_sinks:
                scores = where(reduce.any(allowed, -1, True), scores, 0.0)
        if added is not None:
            scores = add(scores, added)
        top = reduce.max(scores, -1, True)
        if self.has_sinks:
            sink = reshape(_wide(rest[-1]), (1, kinds, -1, 1, 1))
            top = maximum(top, sink)
        weights = exp(subtract(scores, top))
        total = reduce.sum(weights, -1, True)
        if self.has_sinks:
            total = add(total, exp(subtract(sink, top)))

        return divide(weights, total), grouped

    def _masks(self, q: array, k: array, rest: Any) -> tuple[array | None, array | None]:
        """(allowed keys, addend of the scores) in the shape of grouped scores."""
        queries, keys = q.shape[2], k.shape[2]
        if self.causal:
            last = reshape(arange(keys - queries, keys), (queries, 1))
            return less_equal(arange(keys), last), None
        if not self.has_mask:
            return None, None
        mask = _groups(broadcast_to(rest[0], (*q.shape[:3], keys)), k.shape[1])
        return (mask, None) if mask.dtype is dtypes.bool_ else (None, _wide(mask))

    def vmap(self, inputs: Any, axes: Any) -> Any:
        if self.has_sinks and axes[-1] is not None:
            return one_by_one(lambda *row: _attended(self, row, None), inputs, axes)
        size = batch_size(inputs, axes)
        merged = []
        for i, (a, axis) in enumerate(zip(inputs, axes, strict=True)):
            if self.has_sinks and i == len(inputs) - 1:
                merged.append(a)
                continue
            a = batch_first(a, axis, size)
            if i == 3:
                batch = inputs[0].shape[0 if axes[0] != 0 else 1]
                a = reshape(a, (size, *(1,) * (5 - a.ndim), *a.shape[1:]))
                a = broadcast_to(a, (size, batch, *a.shape[2:]))
            merged.append(reshape(a, (a.shape[0] * a.shape[1], *a.shape[2:])))
        made = _attended(self, tuple(merged), None)
        return [reshape(made, (size, -1, *made.shape[1:]))], [0]


def _wide(a: array) -> array:
    return a if a.dtype is dtypes.float64 else cast(a, dtypes.float32)


def _groups(a: array, kinds: int) -> array:
    """(B, H, L, D) as (B, Hkv, H / Hkv, L, D)."""
    return reshape(a, (a.shape[0], kinds, a.shape[1] // kinds if kinds else 0, *a.shape[2:]))


def _attended(op: Attention, inputs: tuple[array, ...], stream: Any) -> array:
    q, v = inputs[0], inputs[2]
    return apply(op, inputs, layout((*q.shape[:3], v.shape[3]), q.dtype), stream)


_OP = "scaled_dot_product_attention"


def _checked(q: Any, k: Any, v: Any) -> tuple[array, array, array]:
    q, k, v = as_array(q), as_array(k), as_array(v)
    for name, a in (("q", q), ("k", k), ("v", v)):
        if a.ndim != 4:
            raise ValueError(f"[{_OP}] {name} needs 4 dimensions (batch, heads, length, width); got shape {a.shape}.")
    shapes = f"q {q.shape}, k {k.shape}, v {v.shape}"
    if not q.shape[0] == k.shape[0] == v.shape[0]:
        raise ValueError(f"[{_OP}] The batches differ: {shapes}.")
    if q.shape[3] != k.shape[3]:
        raise ValueError(f"[{_OP}] The widths of queries and keys differ: {shapes}.")
    if k.shape[1] != v.shape[1] or k.shape[2] != v.shape[2]:
        raise ValueError(f"[{_OP}] Keys and values must have the same heads and lengths: {shapes}.")
    if not k.shape[1] or q.shape[1] % k.shape[1]:
        raise ValueError(f"[{_OP}] The heads of the queries must be a multiple of those of the keys: {shapes}.")
    kind = promote(promote(q.dtype, k.dtype), v.dtype)
    if kind.category is not dtypes.floating:
        raise ValueError(
            f"[{_OP}] Needs real floating-point arrays; got {q.dtype.name}, {k.dtype.name}, {v.dtype.name}."
        )
    return cast(q, kind), cast(k, kind), cast(v, kind)


def _mask(mask: Any, q: array, k: array) -> array:
    found = as_array(mask)
    scores = (*q.shape[:3], k.shape[2])
    if found.ndim > 4 or broadcast_shapes(_OP, found.shape, scores) != scores:
        raise ValueError(f"[{_OP}] A mask of shape {found.shape} does not broadcast to the scores {scores}.")
    if found.dtype is dtypes.bool_:
        return found
    if promote(found.dtype, q.dtype) is not q.dtype:
        raise ValueError(
            f"[{_OP}] An additive mask of {found.dtype.name} does not promote to the result's {q.dtype.name}."
        )
    return cast(found, q.dtype)


def scaled_dot_product_attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    scale: float,
    mask: Any = None,
    sinks: Any = None,
    force_fused: bool = False,
    stream: Any = None,
) -> array:
    """softmax(scale * q k^T + mask) v, with the softmax in float32.

    Shapes: q (B, H, Lq, D), k (B, Hkv, Lk, D), v (B, Hkv, Lk, Dv); H is a multiple of Hkv, and each key head serves H /
    Hkv query heads in a row. `mask`: None, "causal" (the last query sees the last key), a boolean array (True: allowed)
    or an additive one, which broadcasts to (B, H, Lq, Lk). `sinks` (H,): logits of an extra key without value.
    `force_fused` is accepted: there is one route for each device. Raises ValueError where shapes, types or the mask do
    not fit.

    >>> q, k, v = mx.zeros((1, 4, 2, 8)), mx.zeros((1, 2, 3, 8)), mx.ones((1, 2, 3, 8))
    >>> out = mx.fast.scaled_dot_product_attention(q, k, v, scale=8**-0.5, mask="causal")
    >>> out.shape, out.max()
    ((1, 4, 2, 8), array(1, dtype=float32))
    """
    key = None
    if sinks is None and type(q) is array and type(k) is array and type(v) is array:
        masked = type(mask) is array
        if masked or mask is None or type(mask) is str:
            key = (q._node.layout, k._node.layout, v._node.layout, mask._node.layout if masked else mask, scale)
            known = _calls.get(key)
            if known is not None:
                return apply(known[0], (q, k, v, mask) if masked else (q, k, v), known[1], stream)
    made = _checked_attention(q, k, v, scale, mask, sinks, stream)
    node = made._node
    if key is not None and [i is a._node for i, a in zip(node.inputs, (q, k, v, mask), strict=False)].count(False) == 0:
        _calls.keep(key, (node.primitive, node.layout))  # nothing had to be cast
    return made


_calls = Plans()


def _checked_attention(q: Any, k: Any, v: Any, scale: float, mask: Any, sinks: Any, stream: Any) -> array:
    q, k, v = _checked(q, k, v)
    causal = isinstance(mask, str)
    if causal and mask != "causal":
        raise ValueError(f"[{_OP}] Unknown mask {mask!r}; use 'causal', an array, or None.")
    inputs = [q, k, v]
    if mask is not None and not causal:
        inputs.append(_mask(mask, q, k))
    if sinks is not None:
        found = as_array(sinks)
        if found.shape != (q.shape[1],):
            raise ValueError(f"[{_OP}] Sinks must have shape ({q.shape[1]},), one a query head; got {found.shape}.")
        inputs.append(cast(found, q.dtype))
    op = Attention.make(float(scale), causal, mask is not None and not causal, sinks is not None)
    return _attended(op, tuple(inputs), stream)


__all__ = ["scaled_dot_product_attention"]
