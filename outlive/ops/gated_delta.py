"""The gated delta rule (Yang, Kautz and Hatamizadeh 2024, "Gated Delta Networks"), step by step, with a float32 state."""

from __future__ import annotations

from typing import Any

from outlive.graph.array import apply_many, array
from outlive.graph.primitive import Primitive
from outlive.ops.common import as_array, dtypes, layout, promote
from outlive.ops.creation import zeros
from outlive.ops.matmul import cast
from outlive.ops.slicing import one_by_one


class GatedDelta(Primitive):
    """Reads q, k (B, T, Hk, Dk), v (B, T, Hv, Dv), gamma (B, T, Hv[, Dk]), beta (B, T, Hv), state (B, Hv, Dv, Dk), mask
    (B, T).

    Writes outputs (B, T, Hv, Dv) and the last state.
    """

    __slots__ = ("has_mask",)
    name = "gated_delta_update"
    has_mask: bool

    def encode(self, encoder: Any, inputs: Any, layouts: Any) -> Any:
        outs = tuple([encoder.output(made, False) for made in layouts])
        encoder.dispatch(self, inputs, outs)
        return outs

    def workspace(self, reads: Any, writes: Any) -> int:
        return super().workspace(reads, writes) + 6 * 8 * reads[5].size

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        q, k, v, gamma, beta, state = reads[:6]
        mask = reads[6] if self.has_mask else None
        out, last = writes
        last[...] = state
        for t in range(q.shape[1]):
            step = _Step(xp, q, k, v, gamma, beta, t)
            _, after = step.states(last)
            y = xp.matmul(after, step.q[..., None])[..., 0]
            if mask is None:
                out[:, t], last[...] = y, after
            else:
                seen = mask[:, t].astype(bool)
                out[:, t] = xp.where(seen[:, None, None], y, y.dtype.type(0))
                last[...] = xp.where(seen[:, None, None, None], after, last)

    def vjp(self, primals: Any, cotangents: Any, argnums: Any, outputs: Any) -> Any:
        results = tuple([layout(a.shape, a.dtype) for a in primals[:6]])
        made = apply_many(GatedDeltaBack.make(self.has_mask), (*primals, *cotangents), results)
        return [made[i] if i < 6 else None for i in argnums]

    def vmap(self, inputs: Any, axes: Any) -> Any:
        made: list[array] = []
        for which in (0, 1):
            found, _ = one_by_one(lambda *row, w=which: _updated(row, self.has_mask, None)[w], inputs, axes)
            made += found
        return made, [0, 0]


class _Step:
    """One position: its operands in float32, keys and queries repeated for the heads that they serve."""

    def __init__(self, xp: Any, q: Any, k: Any, v: Any, gamma: Any, beta: Any, t: int) -> None:
        group = v.shape[2] // k.shape[2]
        self.xp = xp
        self.q, self.k = [xp.repeat(a[:, t], group, axis=1) for a in (q, k)]
        self.v = v[:, t]
        g = gamma[:, t]
        self.gamma = g[:, :, None, None] if g.ndim == 2 else g[:, :, None, :]
        self.beta = beta[:, t][..., None]

    def states(self, before: Any) -> tuple[Any, Any]:
        """(decayed state, state after the update)."""
        decayed = before * self.gamma
        self.error = self.v - self.xp.matmul(decayed, self.k[..., None])[..., 0]
        self.delta = self.error * self.beta
        return decayed, decayed + self.delta[..., None] * self.k[..., None, :]


class GatedDeltaBack(Primitive):
    """Cotangents of the six inputs of `GatedDelta`: reads its inputs, then the cotangents of its outputs.

    Keeps every state.
    """

    __slots__ = ("has_mask",)
    name = "gated_delta_update_vjp"
    has_mask: bool

    def encode(self, encoder: Any, inputs: Any, layouts: Any) -> Any:
        outs = tuple([encoder.output(made, False) for made in layouts])
        encoder.dispatch(self, inputs, outs)
        return outs

    def workspace(self, reads: Any, writes: Any) -> int:
        states = (reads[0].shape[1] + 8) * 8 * reads[5].size
        return super().workspace(reads, writes) + states

    def reference(self, xp: Any, reads: Any, writes: Any) -> None:
        q, k, v, gamma, beta, state = reads[:6]
        mask = reads[6] if self.has_mask else None
        toward_out, toward_last = reads[-2:]
        states = [state]
        for t in range(q.shape[1]):
            after = _Step(xp, q, k, v, gamma, beta, t).states(states[-1])[1]
            states.append(
                after if mask is None else xp.where(mask[:, t].astype(bool)[:, None, None, None], after, states[-1])
            )
        toward = toward_last.astype(xp.float32)
        for t in range(q.shape[1] - 1, -1, -1):
            seen = None if mask is None else mask[:, t].astype(bool)
            toward = self._back(xp, reads, states[t], t, toward_out[:, t], toward, seen, writes)
        writes[5][...] = toward

    def _back(
        self, xp: Any, reads: Any, before: Any, t: int, toward_y: Any, toward_after: Any, seen: Any, writes: Any
    ) -> Any:
        """Write the cotangents of position `t`; returns that of the state before it."""
        q, k, v, gamma, beta = reads[:5]
        step = _Step(xp, q, k, v, gamma, beta, t)
        decayed, after = step.states(before)
        kept = None
        if seen is not None:
            kept = xp.where(seen[:, None, None, None], xp.float32(0), toward_after)
            toward_y = xp.where(seen[:, None, None], toward_y, xp.float32(0))
            toward_after = xp.where(seen[:, None, None, None], toward_after, xp.float32(0))
        toward = toward_after + toward_y[..., None] * step.q[..., None, :]
        toward_delta = xp.matmul(toward, step.k[..., None])[..., 0]
        toward_memory = -step.beta * toward_delta
        toward_k = xp.matmul(step.delta[..., None, :], toward)[..., 0, :]
        toward_k += xp.matmul(toward_memory[..., None, :], decayed)[..., 0, :]
        toward_decayed = toward + toward_memory[..., None] * step.k[..., None, :]
        group = v.shape[2] // k.shape[2]
        shape = (k.shape[0], k.shape[2], group, k.shape[3])
        writes[0][:, t] = xp.matmul(toward_y[..., None, :], after)[..., 0, :].reshape(shape).sum(axis=2)
        writes[1][:, t] = toward_k.reshape(shape).sum(axis=2)
        writes[2][:, t] = step.beta * toward_delta
        axes = (-2, -1) if gamma.ndim == 3 else -2
        writes[3][:, t] = (toward_decayed * before).sum(axis=axes)
        writes[4][:, t] = (toward_delta * step.error).sum(axis=-1)
        back = toward_decayed * step.gamma
        return back if kept is None else back + kept


_OP = "gated_delta_update"


def _updated(inputs: tuple[array, ...], has_mask: bool, stream: Any) -> tuple[array, ...]:
    q, v, state = inputs[0], inputs[2], inputs[5]
    results = (layout((*q.shape[:2], *v.shape[2:]), q.dtype), state._node.layout)
    return apply_many(GatedDelta.make(has_mask), inputs, results, stream)


def gated_delta_update(
    q: Any,
    k: Any,
    v: Any,
    gamma: Any,
    beta: Any,
    initial_state: Any = None,
    mask: Any = None,
    stream: Any = None,
) -> list[array]:
    """The gated delta rule over T positions: [outputs (B, T, Hv, Dv), last state (B, Hv, Dv, Dk)].

    At each position S becomes gamma S + beta (v - gamma S k) k^T, and the output is S q. Shapes: q, k (B, T, Hk, Dk); v
    (B, T, Hv, Dv), Hv a multiple of Hk; gamma (B, T, Hv), or (B, T, Hv, Dk) for a decay of each key; beta (B, T, Hv).
    `initial_state` is zero if None. Where `mask` (B, T) is false the state stays and the output is zero. The state is
    float32; outputs have q's, k's and v's common type. Raises ValueError where shapes or types do not fit.

    >>> q = k = mx.array([1.0, 0.0]).reshape(1, 1, 1, 2)
    >>> v, one = mx.array([3.0, 4.0]).reshape(1, 1, 1, 2), mx.ones((1, 1, 1))
    >>> out, state = mx.fast.gated_delta_update(q, k, v, one, one)
    >>> out.flatten(), state.shape
    (array([3, 4], dtype=float32), (1, 1, 2, 2))
    """
    q, k, v, gamma, beta = [as_array(a) for a in (q, k, v, gamma, beta)]
    shapes = f"q {q.shape}, k {k.shape}, v {v.shape}, gamma {gamma.shape}, beta {beta.shape}"
    if not q.ndim == k.ndim == v.ndim == 4 or q.shape != k.shape or q.shape[:2] != v.shape[:2]:
        raise ValueError(f"[{_OP}] Needs q and k of one shape (B, T, Hk, Dk) and v (B, T, Hv, Dv); got {shapes}.")
    if not k.shape[2] or v.shape[2] % k.shape[2]:
        raise ValueError(f"[{_OP}] The heads of v must be a multiple of those of k; got {shapes}.")
    heads = v.shape[:3]
    if gamma.shape not in (heads, (*heads, k.shape[3])) or beta.shape != heads:
        raise ValueError(f"[{_OP}] gamma and beta must have shape {heads}; got {shapes}.")
    kind = promote(promote(q.dtype, k.dtype), v.dtype)
    if any(a.category is not dtypes.floating for a in (kind, gamma.dtype, beta.dtype)):
        raise ValueError(f"[{_OP}] Needs real floating-point arrays.")
    state_shape = (v.shape[0], v.shape[2], v.shape[3], k.shape[3])
    state = zeros(state_shape, dtypes.float32) if initial_state is None else as_array(initial_state)
    if state.shape != state_shape:
        raise ValueError(f"[{_OP}] The initial state must have shape {state_shape}; got {state.shape}.")
    inputs = [cast(q, kind), cast(k, kind), cast(v, kind), gamma, beta, cast(state, dtypes.float32)]
    if mask is not None:
        found = as_array(mask)
        if found.shape != v.shape[:2]:
            raise ValueError(f"[{_OP}] The mask must have shape {v.shape[:2]}; got {found.shape}.")
        inputs.append(cast(found, dtypes.bool_))
    return list(_updated(tuple(inputs), mask is not None, stream))


__all__ = ["gated_delta_update"]
