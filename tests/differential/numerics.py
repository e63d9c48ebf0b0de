"""The submodules: fused ops, Fourier transforms, linear algebra, random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.differential.registry import OPS, Case, Draw, array, axis, one_of, quiet, shape, whole, wide
from tests.reference.strategies import FLOATS
from tests.reference.wire import Array, Call, Dtype, Program


def _normal(draw: Draw, *of: int, dtype: str = "float32") -> Array:
    return array(draw, dtype, of, special=False, low=-2, high=2)


# Fused ops: the truth in double precision, since the reference rounds intermediates of half types.


@OPS.add("fast.rms_norm fast.layer_norm", examples=40)
def _norms(draw: Draw, name: str) -> Case:
    dtype, n = one_of(draw, *FLOATS), one_of(draw, 1, 3, 7, 64, 65, 500)
    x = _normal(draw, *one_of(draw, (), (3,), (2, 3)), n, dtype=dtype)
    weight = _normal(draw, n, dtype=dtype) if draw(st.booleans()) else None
    bias = _normal(draw, n, dtype=dtype) if name == "fast.layer_norm" and draw(st.booleans()) else None
    eps = one_of(draw, 1e-5, 1e-2)
    v = wide(x)
    centred = v if name == "fast.rms_norm" else v - v.mean(-1, keepdims=True)
    truth = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps)
    truth = truth * (1 if weight is None else wide(weight)) + (0 if bias is None else wide(bias))
    arguments = (x, weight, eps) if name == "fast.rms_norm" else (x, weight, bias, eps)
    return Case(Call(name, arguments), truth=truth, magnitude=np.full(truth.shape, 2.0 * np.sqrt(n)))


@OPS.add("fast.rope", examples=40)
def _rope(draw: Draw, name: str) -> Case:
    dims = one_of(draw, 2, 4, 8)
    x = _normal(draw, whole(draw, 1, 2), whole(draw, 1, 3), whole(draw, 1, 5), dims + one_of(draw, 0, 3))
    offset = one_of(draw, 0, 7, Array("int32", np.full(x.resolved().shape[0], 3, np.int32)))
    options: dict[str, Any] = {
        "traditional": draw(st.booleans()),
        "base": 10000.0,
        "scale": one_of(draw, 1.0, 0.5),
        "offset": offset,
    }
    if draw(st.booleans()):
        options |= {"base": None, "freqs": array(draw, "float32", (dims // 2,), special=False, low=1, high=9)}
    return Case(Call(name, (x, dims), options), magnitude=np.float64(64.0))


@OPS.add("fast.scaled_dot_product_attention", examples=60)
def _attention(draw: Draw, name: str) -> Case:
    heads, share, queries, keys, dims = (
        whole(draw, 1, 3),
        whole(draw, 1, 2),
        whole(draw, 1, 9),
        whole(draw, 1, 9),
        one_of(draw, 8, 64, 5),
    )
    kind = one_of(draw, None, "causal", "bool", "additive")
    if kind == "causal":
        keys = max(keys, queries)
    q, k, v = (
        _normal(draw, 2, n, length, dims) for n, length in ((heads * share, queries), (heads, keys), (heads, keys))
    )
    mask: Any = kind
    if kind == "bool":  # at least one key is left: a query without any is a listed difference
        kept = array(draw, "bool", (queries, keys), views=False).stored.copy()
        kept[:, 0] = True
        mask = Array.of(kept)
    elif kind == "additive":
        mask = _normal(draw, 1, 1, queries, keys)
    options: dict[str, Any] = {"scale": one_of(draw, 1.0, 0.125), "mask": mask}
    if draw(st.booleans()):
        options["sinks"] = _normal(draw, heads * share)
    return Case(Call(name, (q, k, v), options), magnitude=np.float64(16.0))


@OPS.add("fast.cross_entropy")
def _cross_entropy(draw: Draw, name: str) -> Case:
    rows, classes = whole(draw, 1, 5), one_of(draw, 2, 7, 65, 500)
    logits = _normal(draw, rows, classes)
    targets = Array.of(np.random.default_rng(whole(draw, 0, 999)).integers(0, classes, rows).astype(np.int32))
    return Case(Call(name, (logits, targets)), tolerance="logsumexp", magnitude=np.float64(16.0))


@OPS.add("fast.gated_delta_update", examples=10)
def _gated_delta(draw: Draw, name: str) -> Case:
    batch, steps, heads, values = 1, whole(draw, 1, 5), 2, 2 * whole(draw, 1, 2)
    q, k = _normal(draw, batch, steps, heads, 32), _normal(draw, batch, steps, heads, 32)
    v = _normal(draw, batch, steps, values, 32)
    text = (
        "unit = lambda x: x / mx.linalg.norm(x, axis=-1, keepdims=True)\n"
        "out = mx.fast.gated_delta_update(unit(q), unit(k), v, mx.sigmoid(gamma), mx.sigmoid(beta))"
    )
    gates = {key: _normal(draw, batch, steps, values) for key in ("gamma", "beta")}
    return Case(Program(text, {"q": q, "k": k, "v": v, **gates}), magnitude=np.float64(64.0), tolerance="matmul")


# Fourier transforms: relative to the sum of magnitudes along the axes.


@OPS.add("fft.fft fft.ifft fft.rfft fft.irfft", examples=30)
def _fft(draw: Draw, name: str) -> Case:
    kind = one_of(draw, "float32", "complex64") if name != "fft.rfft" else "float32"
    a = array(draw, kind, tuple(whole(draw, 2, 9) for _ in range(whole(draw, 1, 3))), special=False)
    n = one_of(draw, None, 4, 7, 16)
    options: dict[str, Any] = {
        "axis": axis(draw, len(a.resolved().shape)),
        "norm": one_of(draw, "backward", "ortho", "forward"),
    }
    return Case(Call(name, (a, n), options), tolerance="fft", magnitude=np.abs(wide(a)).sum())


@OPS.add("fft.fft2 fft.ifft2 fft.rfft2 fft.irfft2 fft.fftn fft.ifftn fft.rfftn fft.irfftn")
def _fftn(draw: Draw, name: str) -> Case:
    kind = one_of(draw, "float32", "complex64") if not name.startswith("fft.r") else "float32"
    a = array(draw, kind, (whole(draw, 2, 4), whole(draw, 2, 7), whole(draw, 2, 9)), special=False)
    axes = one_of(draw, [-2, -1], [0, 1], [0, 2])
    return Case(Call(name, (a,), {"axes": axes}), tolerance="fft", magnitude=np.abs(wide(a)).sum())


@OPS.add("fft.fftshift fft.ifftshift")
def _fftshift(draw: Draw, name: str) -> Case:
    a = array(draw, "float32", shape(draw, rank_min=1))
    return Case(Call(name, (a, one_of(draw, None, 0, [-1]))))


@OPS.add("fft.fftfreq fft.rfftfreq", examples=10)
def _fftfreq(draw: Draw, name: str) -> Case:
    return Case(Call(name, (whole(draw, 1, 20), one_of(draw, 1.0, 0.5))), tolerance="exp")


@OPS.add("fft.stft fft.istft", examples=15)
def _stft(draw: Draw, name: str) -> Case:
    size = one_of(draw, 16, 32)
    x = array(draw, "float32", (one_of(draw, 128, 200),), special=False)
    options = {"n_fft": size, "hop_length": one_of(draw, size // 4, size // 2)}
    text = "out = mx.fft.stft(x, **options)"
    if name == "fft.istft":
        text = "out = mx.fft.istft(mx.fft.stft(x, **options), **options)"
    return Case(Program(text, {"x": x, "options": options}), tolerance="fft", magnitude=np.float64(1000.0))


# Linear algebra: what determines itself is compared as it is, factors by what they multiply to.


def _matrix(draw: Draw, n: int, m: int | None = None) -> Array:
    rng = np.random.default_rng(whole(draw, 0, 1 << 30))
    batch = one_of(draw, (), (2,), (0,))
    values = rng.normal(size=(*batch, n, n if m is None else m)) + (3 * np.eye(n) if m is None else 0)
    return Array.of(values.astype(np.float32))


@OPS.add("linalg.inv linalg.pinv linalg.det linalg.slogdet", examples=15)
def _of_matrix(draw: Draw, name: str) -> Case:
    a = _matrix(draw, whole(draw, 1, 6))
    exact = None
    if name in ("linalg.inv", "linalg.det", "linalg.pinv"):
        exact = quiet(getattr(np.linalg, name[7:]), wide(a))
    return Case(Call(name, (a,)), truth=exact, tolerance="linalg", magnitude=np.float64(4000.0))


@OPS.add("linalg.tri_inv linalg.cholesky linalg.cholesky_inv linalg.eigvalsh", examples=15)
def _of_symmetric(draw: Draw, name: str) -> Case:
    n = whole(draw, 1, 6)
    m = _matrix(draw, n).stored.astype(np.float64)
    spd = (m @ m.swapaxes(-1, -2) + np.eye(n)).astype(np.float32)
    text = f"out = mx.{name}(a)"
    if name == "linalg.tri_inv":
        text = "out = mx.linalg.tri_inv(mx.tril(a))"
    if name == "linalg.cholesky_inv":
        text = "out = mx.linalg.cholesky_inv(mx.linalg.cholesky(a))"
    return Case(Program(text, {"a": Array.of(spd)}), tolerance="linalg", magnitude=np.float64(1000.0))


_FACTORS = {
    "linalg.qr": "q, r = mx.linalg.qr(a)\nout = [mx.abs(r), q @ r, list(q.shape)]",
    "linalg.svd": "u, s, v = mx.linalg.svd(a)\nk = s.shape[-1]\n"
    "out = [s, (u[..., :k] * s[..., None, :]) @ v[..., :k, :], list(u.shape), list(v.shape)]",
    "linalg.lu": "p, l, u = mx.linalg.lu(a)\nout = [p, l, u]",
    "linalg.lu_factor": "lu, p = mx.linalg.lu_factor(a)\nout = [lu, p]",
    "linalg.eigh": "w, v = mx.linalg.eigh(a + a.swapaxes(-1, -2))\nout = [w, (v * w[..., None, :]) @ v.swapaxes(-1, -2)]",
}


@OPS.add(" ".join(_FACTORS), examples=15)
def _factors(draw: Draw, name: str) -> Case:
    a = _matrix(draw, whole(draw, 1, 5))
    return Case(Program(_FACTORS[name], {"a": a}), tolerance="linalg", magnitude=np.float64(1000.0))


@OPS.add("linalg.eig linalg.eigvals", examples=15)
def _eigenvalues(draw: Draw, name: str) -> Case:
    # Ordered by their parts: the order of eigenvalues is free.
    take = "w = mx.linalg.eigvals(a)" if name.endswith("vals") else "w, v = mx.linalg.eig(a)"
    return Case(
        Program(f"{take}\nout = [mx.sort(mx.real(w), -1), mx.sort(mx.imag(w), -1)]", {"a": _matrix(draw, whole(draw, 1, 5))}),
        tolerance="linalg", magnitude=np.float64(1000.0),
    )  # fmt: skip


@OPS.add("linalg.solve linalg.solve_triangular", examples=15)
def _solve(draw: Draw, name: str) -> Case:
    n = whole(draw, 1, 5)
    a = Array.of(np.tril(_matrix(draw, n).stored) if name.endswith("triangular") else _matrix(draw, n).stored)
    b = _normal(draw, *a.stored.shape[:-1], 2)
    return Case(Call(name, (a, b)), tolerance="linalg", magnitude=np.float64(1000.0))


@OPS.add("linalg.norm matrix_norm", examples=40)
def _norm(draw: Draw, name: str) -> Case:
    a = _normal(draw, *shape(draw, rank_min=2, rank_max=3, side_min=1))
    if name == "matrix_norm":
        return Case(
            Call(name, (a,), {"ord": one_of(draw, "fro", "nuc", 1, -1, 2, -2)}),
            tolerance="linalg",
            magnitude=np.float64(1000.0),
        )
    along = one_of(draw, None, 0, -1, [0, 1])
    order = one_of(draw, None, 1, 2, 3.5, float("inf"), float("-inf"), 0, "fro", "nuc") if along is not None else None
    keep = draw(st.booleans())
    values = quiet(np.linalg.norm, wide(a), order, tuple(along) if isinstance(along, list) else along, keep)
    return Case(Call(name, (a, order, along, keep)), truth=values, tolerance="linalg", magnitude=np.float64(1000.0))


@OPS.add("linalg.cross")
def _cross(draw: Draw, name: str) -> Case:
    side = one_of(draw, 3, 2)
    return Case(Call(name, (_normal(draw, 4, 3), _normal(draw, 4, side))), tolerance="sum", magnitude=np.float64(8.0))


# Random numbers: the same key gives the same numbers; functions of them to a few units.


def _key(draw: Draw) -> Array:
    return Array.of(np.array([whole(draw, 0, (1 << 32) - 1), whole(draw, 0, (1 << 32) - 1)], np.uint32))


@OPS.add("random.key random.split random.seed", examples=10)
def _keys(draw: Draw, name: str) -> Case:
    number = whole(draw, 0, (1 << 63) - 1)
    text = {
        "random.key": "out = mx.random.key(n)",
        "random.split": "out = mx.random.split(mx.random.key(n), 5)",
        "random.seed": "mx.random.seed(n)\nout = [mx.random.uniform(shape=(3,)), mx.random.uniform(shape=(2, 2))]",
    }[name]
    return Case(Program(text, {"n": number}))


def _uniform(dtype: str) -> dict[str, Any]:
    """float32 is exact; in half types the reference rounds the scaling and the shift, each."""
    return {} if dtype == "float32" else {"tolerance": "sum", "magnitude": np.float64(4.0)}


@OPS.add("random.uniform random.randint random.permutation random.bernoulli random.categorical", examples=30)
def _exact_draws(draw: Draw, name: str) -> Case:
    key, of = _key(draw), shape(draw)
    if name == "random.uniform":
        dtype = one_of(draw, *FLOATS)
        return Case(Call(name, (one_of(draw, 0, -1), one_of(draw, 1, 3), of, Dtype(dtype), key)), **_uniform(dtype))
    if name == "random.randint":
        return Case(Call(name, (0, 9, of, Dtype(one_of(draw, "int32", "uint8", "int64")), key)))
    if name == "random.permutation":
        return Case(Call(name, (one_of(draw, 1, 9, _normal(draw, 7, 3)),), {"key": key}))
    if name == "random.bernoulli":
        return Case(Call(name, (one_of(draw, 0.5, 0.1), of, key)))
    return Case(Call(name, (_normal(draw, 3, 5),), {"num_samples": one_of(draw, None, 4), "key": key}))


@OPS.add("random.normal random.gumbel random.laplace random.truncated_normal", examples=30)
def _rounded_draws(draw: Draw, name: str) -> Case:
    key, of, dtype = (
        _key(draw),
        shape(draw),
        Dtype("float32"),
    )  # halves: the reference rounds every step of the function
    if name == "random.truncated_normal":
        return Case(Call(name, (-1.5, 2.0, of, dtype, key)), tolerance="sum", magnitude=np.float64(4.0))
    return Case(Call(name, (of, dtype), {"key": key}), tolerance="sum", magnitude=np.float64(8.0))


@OPS.add("random.multivariate_normal", examples=10)
def _multivariate(draw: Draw, name: str) -> Case:
    # The root of the covariance is a matter of sign: a diagonal one has none to choose.
    covariance = np.diag([1.0, 4.0, 0.25]).astype(np.float32)
    return Case(
        Program("out = mx.abs(mx.random.multivariate_normal(mean, c, shape=(4,), key=key))",
                {"mean": Array.of(np.zeros(3, np.float32)), "c": Array.of(covariance), "key": _key(draw)}),
        tolerance="linalg", magnitude=np.float64(8.0),
    )  # fmt: skip
