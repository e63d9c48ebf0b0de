"""Rotary position embedding (Su et al. 2021, "RoFormer")."""

from __future__ import annotations

import math
from typing import Any

from outlive.graph.array import apply, array
from outlive.graph.primitive import Primitive
from outlive.ops.common import Plans, as_array, constant, dtypes
from outlive.ops.matmul import cast
from outlive.ops.shape import batch_first, batch_size, broadcast_to, reshape
from outlive.ops.slicing import one_by_one, with_zeros


class Rope(Primitive):
    """Reads x (B, H, T, D) or (B, T, D), offsets (int32, one or B), and frequencies where there is no base."""

    __slots__ = ("dims", "traditional", "base", "scale")
    name = "rope"
    donates = False
    dims: int
    traditional: bool
    base: float | None
    scale: float

    def workspace(self, reads: Any, writes: Any) -> int:
        x = reads[0]
        angles = x.shape[0] * x.shape[-2] * (self.dims // 2)
        return 2 * super().workspace(reads, writes) + 48 * angles

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        x, offset = reads[:2]
        out = writes[0]
        half = self.dims // 2
        if self.base is None:
            rates = self.scale / reads[2].astype(xp.float64)
        else:
            rates = self.scale * xp.exp(xp.arange(half) * (-math.log(self.base) / half))
        positions = offset.reshape(-1, 1).astype(xp.float64) + xp.arange(x.shape[-2])
        # (B or 1, T, half), then an axis for heads where x has them
        angles = positions[..., None] * rates
        if x.ndim == 4:
            angles = angles[:, None]
        kind = x.dtype
        cosine, sine = xp.cos(angles).astype(kind), xp.sin(angles).astype(kind)
        if self.traditional:
            first, second = slice(0, self.dims, 2), slice(1, self.dims, 2)
        else:
            first, second = slice(0, half), slice(half, self.dims)
        a, b = x[..., first], x[..., second]
        out[..., first] = a * cosine - b * sine
        out[..., second] = a * sine + b * cosine
        out[..., self.dims :] = x[..., self.dims :]

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        back = Rope.make(self.dims, self.traditional, self.base, -self.scale)
        return [None if i else _turned(back, cotangents[0], primals[1:], None) for i in argnums]

    def jvp(self, primals: Any, tangents: Any, argnums: Any) -> Any:
        tangent, *_ = with_zeros(primals, tangents, argnums)
        return [_turned(self, tangent, primals[1:], None)]

    def vmap(self, inputs: Any, axes: Any) -> Any:
        x, offset = inputs[:2]
        if len(inputs) > 2 and axes[2] is not None:
            return one_by_one(lambda *row: _turned(self, row[0], row[1:], None), inputs, axes)
        size = batch_size(inputs, axes)
        x = batch_first(x, axes[0], size)
        offset = batch_first(offset, axes[1], size)
        rows = x.shape[1]
        offset = reshape(broadcast_to(reshape(offset, (size, -1)), (size, rows)), (size * rows,))
        made = _turned(self, reshape(x, (size * rows, *x.shape[2:])), (offset, *inputs[2:]), None)
        return [reshape(made, x.shape)], [0]


def _turned(op: Rope, x: array, rest: Any, stream: Any) -> array:
    return apply(op, (x, *rest), x._node.layout, stream)


def _offset(x: array, offset: Any) -> array:
    """Offsets as int32, a scalar or one for each example."""
    if isinstance(offset, int):
        return constant(offset, dtypes.int32)
    found = as_array(offset)
    if found.dtype.category not in (dtypes.signedinteger, dtypes.unsignedinteger):
        raise ValueError(f"[rope] Offsets must be integers; got {found.dtype.name}.")
    if found.ndim > 1 or found.size not in (1, x.shape[0]):
        raise ValueError(
            f"[rope] Offsets must be one number or one for each of {x.shape[0]} examples; got shape {found.shape}."
        )
    return cast(found, dtypes.int32)


def _frequencies(dims: int, base: float | None, freqs: Any) -> array | None:
    if (base is None) == (freqs is None):
        raise ValueError("[rope] Give either base or freqs: one of them must be None.")
    if freqs is None:
        return None
    found = as_array(freqs)
    if found.shape != (dims // 2,):
        raise ValueError(f"[rope] freqs must have shape ({dims // 2},), half of dims; got {found.shape}.")
    return cast(found, dtypes.float32)


_turns = Plans()


def rope(
    a: Any,
    dims: int,
    *,
    traditional: bool,
    base: float | None,
    scale: float,
    offset: Any,
    freqs: Any = None,
    stream: Any = None,
) -> array:
    """Turn pairs of the first `dims` elements of the last axis of `a` (B, ..., T, D) by angles that grow with the
    position.

    At position t the angle of pair i is (offset + t) * scale * base^(-2i / dims), or (offset + t) * scale / freqs[i].
    Pairs are (i, i + dims/2), or (2i, 2i + 1) if `traditional`; elements from `dims` on stay. `offset`: an integer, an
    integer array without axes, or one of shape (B,). Angles are computed in float64. Raises ValueError for fewer than
    three axes, an odd or too large `dims`, offsets or frequencies that do not fit, and types that are not real
    floating-point ones.

    >>> x = mx.array([[[1.0, 0.0], [1.0, 0.0]]])
    >>> mx.fast.rope(x, 2, traditional=False, base=10000.0, scale=1.0, offset=0)[0, 1]
    array([0.540302, 0.841471], dtype=float32)
    """
    key = None
    if type(a) is array and freqs is None and type(offset) in (int, array):
        at = constant(offset, dtypes.int32) if type(offset) is int else offset
        key = (a._node.layout, at._node.layout, dims, traditional, base, scale)
        known = _turns.get(key)
        if known is not None:
            return _turned(known, a, (at,), stream)
    a = as_array(a)
    if a.ndim < 3:
        raise ValueError(f"[rope] Needs at least 3 dimensions (B, ..., T, D); got shape {a.shape}.")
    if a.dtype.category is not dtypes.floating:
        raise ValueError(f"[rope] Needs a real floating-point array; got {a.dtype.name}.")
    if dims % 2 or not 0 <= dims <= a.shape[-1]:
        raise ValueError(f"[rope] dims must be even and at most the last axis, {a.shape[-1]}; got {dims}.")
    rates = _frequencies(dims, base, freqs)
    op = Rope.make(int(dims), bool(traditional), None if base is None else float(base), float(scale))
    rest = (_offset(a, offset),) if rates is None else (_offset(a, offset), rates)
    if a.ndim <= 4:
        if key is not None and rest[0]._node.layout is key[1]:
            _turns.keep(key, op)  # nothing had to be cast or reshaped
        return _turned(op, a, rest, stream)
    folded = reshape(a, (a.shape[0], -1, *a.shape[-2:]), stream=stream) if a.size else a
    return reshape(_turned(op, folded, rest, stream), a.shape, stream=stream) if a.size else a


__all__ = ["rope"]
