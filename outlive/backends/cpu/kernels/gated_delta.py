"""The gated delta rule, step by step: S = gamma S + beta (v - gamma S k) k^T, output S q.

Lanes are rows of the state (elements of v), 32 of which a share keeps near, turned over, for all positions. Float32
throughout. Order of a step, for any number of positions, so that pieces of a sequence give the bits of the whole: the
products with k and q are four sums each, over the keys d with d % 4 = 0, 1, 2, 3 in order, added as (0 + 1) + (2 + 3).
gamma S k is computed as gamma (S k), and where gamma has a decay for each key as S (gamma k).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from outlive.backends.cpu.abi import Selection
from outlive.backends.cpu.kernels import library
from outlive.backends.cpu.kernels.emit import F32, FLOAT, LANES, STORAGES, Emitter, Storage, Value, transposed, vector

_VECTORS = 2  # of rows of the state, side by side
_SUMS = 4
_UINT8 = STORAGES["uint8"]
_DEPTH_MAX = 1024  # keys: the share's part of the state lies on the stack


class _Types(NamedTuple):
    """What the code depends on. values: the type of q, k, v and the outputs; by_key: gamma has a decay for each key."""

    values: Storage
    gamma: Storage
    beta: Storage
    by_key: bool
    masked: bool


class _Delta:
    """Operands and sizes of a call, and the scratch memory of a share."""

    def __init__(self, k: Emitter, t: _Types) -> None:
        self.k, self.t = k, t
        pointers = 9 if t.masked else 8
        self.q, self.key, self.v, self.gamma, self.beta, self.state = (k.pointer(n) for n in range(6))
        self.mask = k.pointer(6) if t.masked else None
        self.out, self.last = k.pointer(pointers - 2), k.pointer(pointers - 1)
        word = iter(range(pointers, 64))
        self.batch, self.length, self.heads, self.group, self.rows, self.depth = (
            k.integer(next(word)) for _ in range(6)
        )
        self.q_steps, self.k_steps, self.v_steps, self.gamma_steps, self.beta_steps = (
            [k.integer(next(word)) for _ in range(3)] for _ in range(5)
        )
        self.near = k.scratch(self.depth * (_VECTORS * LANES * 4))
        self.q_row, self.k_row, self.decay, self.decayed_k = (k.scratch(self.depth * 4) for _ in range(4))

    def near_at(self, d: Value, n: int) -> Value:
        return d * (_VECTORS * LANES) + n * LANES

    def read_state(self, first: Value, base: Value) -> None:
        """Rows from `base` on of a head's state, whose first element is `first`, to the scratch memory. Rows beyond the
        last repeat it.
        """
        k = self.k
        for n in range(_VECTORS):
            with k.loop(0, self.depth, LANES) as d:
                rows = [k.minimum(base + n * LANES + r, self.rows - 1) for r in range(LANES)]
                tile = transposed([k.load(self.state, first + row * self.depth + d, F32, LANES) for row in rows])
                for i, values in enumerate(tile):
                    k.store(self.near, self.near_at(d + i, n), values, F32)

    def write_state(self, first: Value, base: Value) -> None:
        """The same rows from the scratch memory to the result."""
        k = self.k
        for n in range(_VECTORS):
            with k.loop(0, self.depth, LANES) as d:
                tile = transposed([k.load(self.near, self.near_at(d + i, n), F32, LANES) for i in range(LANES)])
                for r, values in enumerate(tile):
                    row = base + n * LANES + r
                    with k.when(row < self.rows):
                        k.store(self.last, first + row * self.depth + d, values, F32)

    def widen_row(self, source: Value, at: Value, storage: Storage, target: Value) -> None:
        k = self.k
        with k.loop(0, self.depth, LANES) as d:
            k.store(target, d, k.load(source, at + d, storage, LANES), F32)

    def dot(self, row: Value, change: Any) -> list[Value]:
        """For each vector of rows, the sum over keys of `change(d, n)` times `row[d]`."""
        k = self.k
        zero = k.constant(0.0, vector(FLOAT, LANES))
        sums = [[k.variable(zero) for _ in range(_SUMS)] for _ in range(_VECTORS)]
        with k.loop(0, self.depth, _SUMS) as first:
            for s in range(_SUMS):
                factor = k.splat(k.load(row, first + s, F32), LANES)
                for n in range(_VECTORS):
                    sums[n][s].set(k.fma(change(first + s, n), factor, sums[n][s].get()))
        return [(a.get() + b.get()) + (c.get() + d.get()) for a, b, c, d in sums]

    def step(self, b: Value, position: Value, head: Value, base: Value) -> None:
        """One position: the state near by, and the outputs of its rows."""
        k, t = self.k, self.t

        def place(steps: list[Value], h: Value) -> Value:
            return b * steps[0] + position * steps[1] + h * steps[2]

        served = head // self.group
        self.widen_row(self.q, place(self.q_steps, served), t.values, self.q_row)
        self.widen_row(self.key, place(self.k_steps, served), t.values, self.k_row)
        gamma_at = place(self.gamma_steps, head)
        if t.by_key:
            self.widen_row(self.gamma, gamma_at, t.gamma, self.decay)
            with k.loop(0, self.depth, LANES) as d:
                product = k.load(self.k_row, d, F32, LANES) * k.load(self.decay, d, F32, LANES)
                k.store(self.decayed_k, d, product, F32)
        else:
            gamma = k.splat(k.load(self.gamma, gamma_at, t.gamma), LANES)
        beta = k.splat(k.load(self.beta, place(self.beta_steps, head), t.beta), LANES)

        def state(d: Value, n: int) -> Value:
            return k.load(self.near, self.near_at(d, n), F32, LANES)

        def decayed(d: Value, n: int) -> Value:
            return state(d, n) * (k.splat(k.load(self.decay, d, F32), LANES) if t.by_key else gamma)

        memory = self.dot(self.decayed_k, state) if t.by_key else [m * gamma for m in self.dot(self.k_row, state)]
        delta = []
        for n, held in enumerate(memory):
            mask = k.first_lanes(self.rows - base - n * LANES)
            v = k.load(self.v, place(self.v_steps, head) + base + n * LANES, t.values, LANES, mask)
            delta.append((v - held) * beta)

        def updated(d: Value, n: int) -> Value:
            value = k.fma(delta[n], k.splat(k.load(self.k_row, d, F32), LANES), decayed(d, n))
            k.store(self.near, self.near_at(d, n), value, F32)
            return value

        self.store_outputs(b, position, head, base, self.dot(self.q_row, updated))

    def store_outputs(self, b: Value, position: Value, head: Value, base: Value, values: list[Value]) -> None:
        k = self.k
        at = ((b * self.length + position) * self.heads + head) * self.rows + base
        for n, value in enumerate(values):
            k.store(self.out, at + n * LANES, value, self.t.values, k.first_lanes(self.rows - base - n * LANES))

    def positions(self, b: Value, head: Value, base: Value) -> None:
        """Every position in order; where the mask hides one, the state stays and the output is zero."""
        k = self.k
        with k.loop(0, self.length) as position:
            if self.mask is None:
                self.step(b, position, head, base)
            else:
                seen = k.load(self.mask, b * self.length + position, _UINT8).differs(0)
                with k.branch(seen) as (shown, hidden):
                    with shown:
                        self.step(b, position, head, base)
                    with hidden:
                        zero = k.constant(0.0, vector(FLOAT, LANES))
                        self.store_outputs(b, position, head, base, [zero] * _VECTORS)


def _write(k: Emitter, t: _Types) -> None:
    o = _Delta(k, t)
    blocks = (o.rows + (_VECTORS * LANES - 1)) // (_VECTORS * LANES)
    low, high = k.share(o.batch * o.heads * blocks)
    with k.loop(low, high) as item:
        matrix, base = item // blocks, item % blocks * (_VECTORS * LANES)
        first = matrix * o.rows * o.depth
        o.read_state(first, base)
        o.positions(matrix // o.heads, matrix % o.heads, base)
        o.write_state(first, base)


def _select(reads: list, writes: list, params: Any) -> Selection | None:
    q, key, v, gamma, beta, state, *rest = (r.layout for r in reads)
    out, last = (w.layout for w in writes)
    values, gamma_type, beta_type = (STORAGES.get(a.dtype.name) for a in (q, gamma, beta))
    if values is None or gamma_type is None or beta_type is None or state.dtype.name != "float32":
        return None
    if any(kind.compute != FLOAT for kind in (values, gamma_type, beta_type)):
        return None
    if any(a.dtype.name != q.dtype.name for a in (key, v, out)) or not all(
        a.contiguous for a in (state, out, last, *rest)
    ):
        return None
    batch, length, heads, rows = v.shape
    depth, by_key = q.shape[-1], len(gamma.shape) == 4
    if depth % LANES or not 0 < depth <= _DEPTH_MAX or not out.size:
        return None
    neighbours = (q, key, v, gamma) if by_key else (q, key, v)
    if any(a.strides[-1] != 1 and a.shape[-1] > 1 for a in neighbours):
        return None
    t = _Types(values, gamma_type, beta_type, by_key, bool(rest))
    name = "_".join(
        (
            "gated_delta",
            t.values.name,
            t.gamma.name,
            t.beta.name,
            "by_key" if by_key else "by_head",
            "masked" * t.masked,
        )
    ).rstrip("_")
    kernel = library.compiled(name, lambda k: _write(k, t), "gated_delta_steps")
    steps = [s for a in (q, key, v, gamma, beta) for s in a.strides[:3]]
    shares = batch * heads * -(-rows // (_VECTORS * LANES))
    return kernel, shares, (batch, length, heads, heads // q.shape[2], rows, depth, *steps)


ROUTES = {"gated_delta_update": _select}
