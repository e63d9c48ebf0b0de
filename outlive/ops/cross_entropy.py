"""Cross entropy with class indices."""

from __future__ import annotations

from typing import Any

from outlive.graph.array import apply, array
from outlive.graph.primitive import Primitive
from outlive.ops import reduce
from outlive.ops.common import as_array, constant, dtypes, layout
from outlive.ops.creation import zeros
from outlive.ops.elementwise import multiply, subtract
from outlive.ops.gather import scatter_along, take_along_axis
from outlive.ops.matmul import cast
from outlive.ops.shape import batch_first, batch_size, broadcast_to, expand_dims, reshape


class CrossEntropy(Primitive):
    """Reads logits (..., V) and targets (...); writes logsumexp(logits) - logits[target] as float32."""

    __slots__ = ()
    name = "cross_entropy"
    donates = False

    def workspace(self, reads: Any, writes: Any) -> int:
        return 2 * super().workspace(reads, writes)

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        logits, targets = reads
        if not targets.size:
            return
        if int(targets.min()) < 0 or int(targets.max()) >= logits.shape[-1]:
            raise IndexError(f"a target is out of range for {logits.shape[-1]} classes")
        top = logits.max(axis=-1, keepdims=True)
        top = xp.where(xp.isfinite(top), top, top.dtype.type(0))
        shifted = logits - top
        total = xp.exp(shifted).sum(axis=-1, dtype=xp.float64)
        chosen = xp.take_along_axis(shifted, targets[..., None].astype(xp.int64), axis=-1)[..., 0]
        writes[0][...] = xp.log(total) - chosen

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        logits, targets = primals
        made: list[Any] = []
        for i in argnums:
            if i:
                made.append(None)
                continue
            weights = reduce.softmax(cast(logits, dtypes.float32), -1)
            places = expand_dims(targets, -1)
            minus = broadcast_to(constant(-1.0, dtypes.float32), places.shape)
            less = scatter_along(weights, places, minus, logits.ndim - 1, "add")
            made.append(cast(multiply(less, expand_dims(cotangents[0], -1)), logits.dtype))
        return made

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        logits, targets = primals
        if 0 not in argnums:
            return [zeros(targets.shape, dtypes.float32)]
        tangent = cast(tangents[0], dtypes.float32)
        weights = reduce.softmax(cast(logits, dtypes.float32), -1)
        chosen = reshape(take_along_axis(tangent, expand_dims(targets, -1), -1), targets.shape)
        return [subtract(reduce.sum(multiply(weights, tangent), -1), chosen)]

    def vmap(self, inputs: Any, axes: Any) -> Any:
        size = batch_size(inputs, axes)
        logits, targets = [batch_first(a, axis, size) for a, axis in zip(inputs, axes, strict=True)]
        return [cross_entropy(logits, targets)], [0]


def cross_entropy(logits: Any, targets: Any, *, stream: Any = None) -> array:
    """logsumexp(logits) - logits[target] over the last axis, in float32: the loss of each element.

    `logits`: (..., V), real floating-point; `targets`: integers (...) from 0 to V - 1. Raises ValueError where shapes
    or types do not fit; a target out of range is an error of the result.

    >>> mx.fast.cross_entropy(mx.array([[0.0, 0.0], [0.0, 100.0]]), mx.array([0, 1]))
    array([0.693147, 0], dtype=float32)
    """
    logits, targets = as_array(logits), as_array(targets)
    if logits.dtype.category is not dtypes.floating:
        raise ValueError(f"[cross_entropy] Needs real floating-point logits; got {logits.dtype.name}.")
    if targets.dtype.category not in (dtypes.signedinteger, dtypes.unsignedinteger):
        raise ValueError(f"[cross_entropy] Targets must be integer class indices; got {targets.dtype.name}.")
    if not logits.ndim or targets.shape != logits.shape[:-1]:
        raise ValueError(
            f"[cross_entropy] Targets of shape {targets.shape} do not fit logits of shape {logits.shape} without "
            "the last axis."
        )
    return apply(CrossEntropy.make(), (logits, targets), layout(targets.shape, dtypes.float32), stream)


__all__ = ["cross_entropy"]
