"""Fused ops against their formulas in float64 and against the reference; derivatives, batches, and every option."""

from __future__ import annotations

import numpy as np
import pytest

import outlive.core as mx
from outlive.runtime.errors import ExecutionError
from tests.ops.rules import batch_axes, batched, check_batching, check_derivatives, numbers
from tests.reference import Array, Program
from tests.reference.wire import Returned, Side

OURS = Side(mx)
KINDS = {"float32": 2e-6, "float16": 1e-3, "bfloat16": 8e-3}
"""Largest difference from the exact result, relative to its largest element: half a unit in the last place and some room."""


def rounded(a: np.ndarray, kind: str) -> tuple[mx.array, np.ndarray]:
    """An array in `kind`, and its values in float64."""
    made = mx.array(a.astype(np.float32)).astype(getattr(mx, kind))
    return made, np.array(made.astype(mx.float32)).astype(np.float64)


def assert_near(found: mx.array, exact: np.ndarray, kind: str) -> None:
    assert found.dtype == getattr(mx, kind)
    assert found.shape == exact.shape
    size = np.nanmax(np.abs(exact)) if exact.size else 1.0
    np.testing.assert_allclose(np.array(found.astype(mx.float32)), exact, rtol=0, atol=KINDS[kind] * max(size, 1e-30))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(3, 7), (2, 1, 65), (1, 500), (5, 1), (0, 4), (2, 0)])
def test_norms_equal_their_formulas(kind, shape):
    x, wide = rounded(numbers(*shape) * 3 + 1, kind)
    w, wide_w = rounded(numbers(shape[-1], seed=1), kind)
    b, wide_b = rounded(numbers(shape[-1], seed=2), kind)
    with np.errstate(all="ignore"):
        rms = wide / np.sqrt((wide**2).sum(-1, keepdims=True) / max(shape[-1], 1) + 1e-5)
        centred = wide - wide.sum(-1, keepdims=True) / max(shape[-1], 1)
        layer = centred / np.sqrt((centred**2).sum(-1, keepdims=True) / max(shape[-1], 1) + 1e-5)
    assert_near(mx.fast.rms_norm(x, None, 1e-5), rms, kind)
    assert_near(mx.fast.rms_norm(x, w, 1e-5), rms * wide_w, kind)
    assert_near(mx.fast.layer_norm(x, None, None, 1e-5), layer, kind)
    assert_near(mx.fast.layer_norm(x, w, b, 1e-5), layer * wide_w + wide_b, kind)
    assert_near(mx.fast.layer_norm(x, None, b, 1e-5), layer + wide_b, kind)


def test_a_row_of_large_halves_is_normalized_without_overflow():
    x = mx.full((2, 64), 60000.0, mx.float16)
    assert mx.fast.rms_norm(x, None, 1e-5).tolist() == [[1.0] * 64] * 2


def rotated(
    x: np.ndarray, dims: int, traditional: bool, rates: np.ndarray, scale: float, offset: np.ndarray
) -> np.ndarray:
    """The formula of rope in float64; offset (B,)."""
    out = x.copy()
    steps = offset[:, None] + np.arange(x.shape[-2])
    angles = (steps[..., None] * scale * rates).reshape(-1, *[1] * (x.ndim - 3), x.shape[-2], dims // 2)
    first = slice(0, dims, 2) if traditional else slice(0, dims // 2)
    second = slice(1, dims, 2) if traditional else slice(dims // 2, dims)
    out[..., first] = x[..., first] * np.cos(angles) - x[..., second] * np.sin(angles)
    out[..., second] = x[..., first] * np.sin(angles) + x[..., second] * np.cos(angles)
    return out


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("traditional", [True, False])
@pytest.mark.parametrize("shape", [(2, 5, 8), (2, 3, 5, 10), (3, 2, 1, 16), (2, 2, 3, 4, 8)])
def test_rope_equals_its_formula(kind, traditional, shape):
    x, wide = rounded(numbers(*shape), kind)
    dims, batch = 8, shape[0]
    rates = 10000.0 ** (-np.arange(4) / 4)
    several = np.arange(batch) * 40000 + 3
    options = {"traditional": traditional, "base": 10000.0}
    for offset, host in ((3, np.full(batch, 3)), (mx.array(3), np.full(batch, 3)), (mx.array(several), several)):
        found = mx.fast.rope(x, dims, scale=0.5, offset=offset, **options)
        assert_near(found, rotated(wide, dims, traditional, rates, 0.5, host), kind)
    freqs = np.array([1.0, 2.0, 5.0, 100.0])
    found = mx.fast.rope(
        x, dims, traditional=traditional, base=None, scale=1.0, offset=7, freqs=mx.array(freqs.astype(np.float32))
    )
    assert_near(found, rotated(wide, dims, traditional, 1 / freqs, 1.0, np.full(batch, 7)), kind)


def attended(q, k, v, scale, mask=None, sinks=None) -> np.ndarray:
    """Attention in float64; `mask` boolean or additive."""
    group = q.shape[1] // k.shape[1]
    scores = q @ np.repeat(k, group, 1).swapaxes(-1, -2) * scale
    if mask is not None and mask.dtype == bool:
        allowed = np.broadcast_to(mask, scores.shape)
        scores = np.where(allowed, scores, -np.inf)
        if sinks is None:
            scores = np.where(allowed.any(-1, keepdims=True), scores, 0)
    elif mask is not None:
        scores = scores + mask
    if sinks is not None:
        extra = np.broadcast_to(sinks.reshape(1, -1, 1, 1), (*scores.shape[:3], 1))
        scores = np.concatenate([scores, extra], -1)
    with np.errstate(invalid="ignore"):
        weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return weights[..., : k.shape[2]] @ np.repeat(v, group, 1)


def causal(queries: int, keys: int) -> np.ndarray:
    return np.arange(keys) <= np.arange(queries)[:, None] + keys - queries


SIZES = [(4, 2, 5, 5, 16, 8), (4, 4, 1, 9, 64, 64), (6, 2, 3, 8, 7, 7), (2, 1, 7, 3, 16, 16), (8, 2, 33, 65, 64, 64)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_attention_equals_its_formula_under_every_mask(kind, sizes):
    heads, groups, queries, keys, width, values = sizes
    q, wide_q = rounded(numbers(2, heads, queries, width), kind)
    k, wide_k = rounded(numbers(2, groups, keys, width, seed=1), kind)
    v, wide_v = rounded(numbers(2, groups, keys, values, seed=2), kind)
    scale = width**-0.5
    wide = (wide_q, wide_k, wide_v, scale)
    attend = mx.fast.scaled_dot_product_attention
    assert_near(attend(q, k, v, scale=scale), attended(*wide), kind)
    assert_near(attend(q, k, v, scale=scale, mask="causal"), attended(*wide, causal(queries, keys)), kind)
    for shape in ((queries, keys), (2, 1, queries, keys), (1, heads, 1, keys)):
        allowed = numbers(*shape, seed=3) > 0
        allowed[..., 0, :] = False
        assert_near(attend(q, k, v, scale=scale, mask=mx.array(allowed)), attended(*wide, allowed), kind)
        added, wide_added = rounded(numbers(*shape, seed=4), kind)
        assert_near(attend(q, k, v, scale=scale, mask=added), attended(*wide, wide_added), kind)
    sinks, wide_sinks = rounded(numbers(heads, seed=5), kind)
    found = attend(q, k, v, scale=scale, mask=mx.array(allowed), sinks=sinks)
    assert_near(found, attended(*wide, allowed, wide_sinks), kind)
    assert_near(attend(q, k, v, scale=scale, sinks=sinks), attended(*wide, None, wide_sinks), kind)


def test_attention_reads_strided_operands():
    q, k, v = [mx.array(numbers(2, 5, 4, 16, seed=i).astype(np.float32)).swapaxes(1, 2) for i in range(3)]
    found = mx.fast.scaled_dot_product_attention(q, k, v, scale=0.25)
    wide = [np.array(a, dtype=np.float64) for a in (q, k, v)]
    assert_near(found, attended(*wide, 0.25), "float32")


def test_a_query_without_keys_attends_to_all_alike_or_to_its_sink():
    q = mx.array(numbers(1, 2, 3, 8).astype(np.float32))
    none = mx.zeros((3, 3), mx.bool_)
    mean = np.array(q).mean(2, keepdims=True)
    attend = mx.fast.scaled_dot_product_attention
    np.testing.assert_allclose(
        np.array(attend(q, q, q, scale=1.0, mask=none)), np.repeat(mean, 3, 2), rtol=1e-5, atol=1e-6
    )
    assert not np.array(attend(q, q, q, scale=1.0, mask=none, sinks=mx.ones(2))).any()
    assert np.isnan(np.array(attend(q, q, q, scale=1.0, mask=mx.full((3, 3), -float("inf"))))).all()
    assert not np.array(attend(q, q[:, :, :0], q[:, :, :0], scale=1.0)).any()


def test_nan_in_one_query_or_head_stays_there():
    q, k, v = [numbers(1, 4, 9, 16, seed=i).astype(np.float32) for i in range(3)]
    clean = np.array(mx.fast.scaled_dot_product_attention(*map(mx.array, (q, k, v)), scale=0.25, mask="causal"))
    q[0, 1, 2] = np.nan
    k[0, 3] = np.nan
    dirty = np.array(mx.fast.scaled_dot_product_attention(*map(mx.array, (q, k, v)), scale=0.25, mask="causal"))
    touched = np.zeros(clean.shape, bool)
    touched[0, 1, 2], touched[0, 3] = True, True
    assert np.isnan(dirty[touched]).all()
    np.testing.assert_array_equal(dirty[~touched], clean[~touched])


def delta_rule(q, k, v, gamma, beta, state, mask=None) -> tuple[np.ndarray, np.ndarray]:
    """The gated delta rule in float64."""
    state = state.copy()
    out = np.zeros(v.shape)
    group = v.shape[2] // k.shape[2]
    for t in range(q.shape[1]):
        keys, queries = [np.repeat(a[:, t], group, 1) for a in (k, q)]
        g = gamma[:, t][..., None, None] if gamma.ndim == 3 else gamma[:, t][:, :, None]
        decayed = state * g
        delta = (v[:, t] - (decayed * keys[:, :, None]).sum(-1)) * beta[:, t][..., None]
        after = decayed + delta[..., None] * keys[:, :, None]
        seen = np.ones(q.shape[0], bool) if mask is None else mask[:, t]
        out[:, t] = np.where(seen[:, None, None], (after * queries[:, :, None]).sum(-1), 0)
        state = np.where(seen[:, None, None, None], after, state)
    return out, state


def delta_inputs(kind: str, vector: bool) -> list[tuple[mx.array, np.ndarray]]:
    shapes = [(2, 9, 2, 16), (2, 9, 2, 16), (2, 9, 4, 8), (2, 9, 4, 16) if vector else (2, 9, 4), (2, 9, 4)]
    hosts = [numbers(*s, seed=i) for i, s in enumerate(shapes)]
    hosts[1] /= 4
    hosts[3], hosts[4] = 1 / (1 + np.exp(-hosts[3])), 1 / (1 + np.exp(-hosts[4]))
    return [rounded(h, kind) for h in hosts]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("vector", [False, True])
def test_gated_delta_equals_its_recurrence(kind, vector):
    inputs = delta_inputs(kind, vector)
    ours, wide = [i[0] for i in inputs], [i[1] for i in inputs]
    out, state = mx.fast.gated_delta_update(*ours)
    exact = delta_rule(*wide, np.zeros((2, 4, 8, 16)))
    assert_near(out, exact[0], kind)
    assert_near(state, exact[1], "float32")
    start = numbers(2, 4, 8, 16, seed=9).astype(np.float32)
    mask = numbers(2, 9, seed=8) > 0
    out, state = mx.fast.gated_delta_update(*ours, mx.array(start), mx.array(mask))
    exact = delta_rule(*wide, start.astype(np.float64), mask)
    assert_near(out, exact[0], kind)
    assert_near(state, exact[1], "float32")


def test_gated_delta_in_two_pieces_gives_the_bits_of_one():
    q, k, v, g, b = [i[0] for i in delta_inputs("float32", False)]
    whole, last = mx.fast.gated_delta_update(q, k, v, g, b)
    first, state = mx.fast.gated_delta_update(*[a[:, :4] for a in (q, k, v, g, b)])
    second, end = mx.fast.gated_delta_update(*[a[:, 4:] for a in (q, k, v, g, b)], state)
    assert mx.array_equal(mx.concatenate([first, second], 1), whole).item()
    assert mx.array_equal(end, last).item()


def test_gated_delta_derivatives_equal_differences():
    hosts = [i[1] for i in delta_inputs("float32", False)] + [numbers(2, 4, 8, 16, seed=9)]
    primals = [mx.array(h.astype(np.float32)) for h in hosts]
    mask = numbers(2, 9, seed=8) > -0.5
    for given in (None, mask):
        seen = None if given is None else mx.array(given)
        function = lambda *a, seen=seen: mx.fast.gated_delta_update(*a, seen)  # noqa: E731
        cotangents = [numbers(2, 9, 4, 8, seed=20), numbers(2, 4, 8, 16, seed=21)]
        found = mx.vjp(function, primals, [mx.array(c.astype(np.float32)) for c in cotangents])[1]
        for i, h in enumerate(hosts):
            direction = numbers(*h.shape, seed=30 + i)
            moved = [[a + s * 1e-5 * direction if j == i else a for j, a in enumerate(hosts)] for s in (1, -1)]
            up, down = [delta_rule(*row, given) for row in moved]
            wanted = sum((c * (a - b) / 2e-5).sum() for c, a, b in zip(cotangents, up, down, strict=True))
            np.testing.assert_allclose((np.array(found[i]) * direction).sum(), wanted, rtol=2e-4, atol=2e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_cross_entropy_equals_its_formula(kind):
    logits, wide = rounded(numbers(3, 4, 65) * 20, kind)
    targets = np.random.default_rng(0).integers(0, 65, (3, 4))
    top = wide.max(-1, keepdims=True)
    exact = np.log(np.exp(wide - top).sum(-1)) + top[..., 0] - np.take_along_axis(wide, targets[..., None], -1)[..., 0]
    found = mx.fast.cross_entropy(logits, mx.array(targets))
    assert found.dtype == mx.float32
    np.testing.assert_allclose(np.array(found), exact, rtol=2e-6, atol=1e-5)


def test_cross_entropy_of_extreme_logits_is_exact():
    logits = mx.array([[1e4, 0.0], [-1e4, 1e4], [-float("inf"), 0.0]])
    assert mx.fast.cross_entropy(logits, mx.array([0, 1, 1])).tolist() == [0.0, 0.0, 0.0]


def test_a_target_out_of_range_is_an_error_of_the_result():
    for target in (5, -1):
        bad = mx.fast.cross_entropy(mx.zeros((2, 3)), mx.array([0, target]))
        with pytest.raises(ExecutionError, match=r"\[cross_entropy\].*3 classes"):
            bad.tolist()


def f(*shape: int, seed: int = 0) -> Array:
    return Array.of(numbers(*shape, seed=seed).astype(np.float32))


Q, K, V = f(2, 4, 5, 16), f(2, 2, 7, 16, seed=1), f(2, 2, 7, 8, seed=2)
PROGRAMS = {
    "rms_norm": ("mx.fast.rms_norm(a, b, 1e-5)", f(3, 65), f(65)),
    "layer_norm": ("mx.fast.layer_norm(a, b, b, 1e-5)", f(3, 65), f(65)),
    "rope": ("mx.fast.rope(a, 8, traditional=False, base=1e4, scale=0.5, offset=mx.array([3, 100]))", f(2, 3, 5, 10)),
    "rope traditional": ("mx.fast.rope(a, 8, traditional=True, base=500.0, scale=1.0, offset=3)", f(2, 3, 5, 10)),
    "rope freqs": (
        "mx.fast.rope(a, 8, traditional=False, base=None, scale=1.0, offset=2, freqs=mx.array([1.0, 2, 3, 4]))",
        f(2, 5, 8),
    ),
    "attention": ("mx.fast.scaled_dot_product_attention(a, b, c, scale=0.3)", Q, K, V),
    "attention causal": ("mx.fast.scaled_dot_product_attention(a, b, c, scale=0.3, mask='causal')", Q, K, V),
    "attention masked": (
        "mx.fast.scaled_dot_product_attention(a, b, c, scale=0.3, mask=d > 0)",
        Q,
        K,
        V,
        f(2, 1, 5, 7),
    ),
    "attention sinks": (
        "mx.fast.scaled_dot_product_attention(a, b, c, scale=0.3, mask=d, sinks=e)",
        Q,
        K,
        V,
        f(5, 7),
        f(4),
    ),
    "cross_entropy": ("mx.fast.cross_entropy(a, mx.array([1, 0, 16]))", f(3, 17)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_derivatives_equal_the_reference(reference, name):
    text, *operands = PROGRAMS[name]
    names = "abcde"[: len(operands)]
    body = (
        f"function = lambda {', '.join(names)}: {text}\n"
        f"out, grads = mx.vjp(function, [{', '.join(names)}], [mx.cos(function({', '.join(names)}))])\n"
        "out = [*out, *grads]"
    )
    program = Program(body, dict(zip(names, operands, strict=True)))
    ours, theirs = OURS.perform(program), reference.batch([program])[0]
    assert isinstance(ours, Returned), ours
    assert isinstance(theirs, Returned), theirs
    for found, wanted in zip(ours.value, theirs.value, strict=True):
        np.testing.assert_allclose(found.values(), wanted.values(), rtol=1e-4, atol=2e-5)


def use(name: str, *arguments, **options):
    return lambda: getattr(mx.fast, name)(*arguments, **options)


ROPE = {"traditional": False, "base": 1e4, "scale": 1.0, "offset": 0}
X = mx.ones((1, 2, 3, 4))
ERRORS = [
    (use("rms_norm", mx.ones((2, 4)), mx.ones(3), 1e-5), r"\[rms_norm\] The weight must have shape \(4,\)"),
    (use("rms_norm", mx.array(1.0), None, 1e-5), "at least 1 dimension"),
    (use("rms_norm", mx.array([1, 2]), None, 1e-5), "real floating-point x; got int32"),
    (use("layer_norm", mx.ones((2, 4)), None, mx.ones(3), 1e-5), "The bias must have shape"),
    (use("rope", mx.ones((2, 4)), 4, **ROPE), "at least 3 dimensions"),
    (use("rope", X, 3, **ROPE), "dims must be even and at most the last axis, 4; got 3"),
    (use("rope", X, 6, **ROPE), "at most the last axis, 4; got 6"),
    (use("rope", X, 4, **{**ROPE, "base": None}), "either base or freqs"),
    (use("rope", X, 4, **ROPE, freqs=mx.ones(2)), "either base or freqs"),
    (use("rope", X, 4, **{**ROPE, "base": None}, freqs=mx.ones(3)), r"freqs must have shape \(2,\)"),
    (use("rope", X, 4, **{**ROPE, "offset": mx.array([1, 2])}), "one for each of 1 examples"),
    (use("rope", X, 4, **{**ROPE, "offset": mx.array([1.5])}), "Offsets must be integers"),
    (use("scaled_dot_product_attention", X[0], X, X, scale=1.0), "q needs 4 dimensions"),
    (use("scaled_dot_product_attention", X, X[..., :3], X, scale=1.0), "widths of queries and keys differ"),
    (use("scaled_dot_product_attention", X, mx.ones((1, 3, 3, 4)), mx.ones((1, 3, 3, 4)), scale=1.0), "multiple of"),
    (use("scaled_dot_product_attention", X, X, X, scale=1.0, mask="x"), "Unknown mask 'x'"),
    (use("scaled_dot_product_attention", X, X, X, scale=1.0, mask=mx.ones((3, 4))), "cannot be broadcast"),
    (use("scaled_dot_product_attention", X, X, X, scale=1.0, sinks=mx.ones(3)), r"Sinks must have shape \(2,\)"),
    (use("cross_entropy", mx.zeros((2, 3)), mx.array([[0], [1]])), "do not fit logits"),
    (use("cross_entropy", mx.zeros((2, 3)), mx.array([0.0, 1])), "integer class indices"),
    (use("gated_delta_update", X, X, X, X, X), "gamma and beta must have shape"),
]


@pytest.mark.parametrize(("call", "text"), ERRORS)
def test_bad_input_is_refused_at_once_in_one_sentence(call, text):
    with pytest.raises(ValueError, match=text):
        call()


attend = mx.fast.scaled_dot_product_attention
ALLOWED = mx.array(numbers(2, 1, 3, 5) > -0.2)
SHAPES = ((2, 4, 3, 6), (2, 2, 5, 6), (2, 2, 5, 3))
RULES = {
    "rms_norm": (lambda x, w: mx.fast.rms_norm(x, w, 1e-5), (3, 5), (5,)),
    "rms_norm alone": (lambda x: mx.fast.rms_norm(x, None, 1e-5), (3, 5)),
    "layer_norm": (lambda x, w, b: mx.fast.layer_norm(x, w, b, 1e-5), (3, 5), (5,), (5,)),
    "layer_norm alone": (lambda x: mx.fast.layer_norm(x, None, None, 1e-5), (3, 5)),
    "rope": (lambda x: mx.fast.rope(x, 4, traditional=False, base=100.0, scale=1.0, offset=2), (2, 2, 3, 6)),
    "rope, several offsets": (
        lambda x: mx.fast.rope(x, 4, traditional=True, base=100.0, scale=1.0, offset=mx.array([2, 5])),
        (2, 2, 3, 6),
    ),
    "attention": (lambda q, k, v: attend(q, k, v, scale=0.4), *SHAPES),
    "attention, causal": (lambda q, k, v: attend(q, k, v, scale=0.4, mask="causal"), *SHAPES),
    "attention, boolean mask": (lambda q, k, v: attend(q, k, v, scale=0.4, mask=ALLOWED), *SHAPES),
    "attention, mask": (lambda q, k, v, m: attend(q, k, v, scale=0.4, mask=m), *SHAPES, (4, 3, 5)),
    "attention, sinks": (
        lambda q, k, v, m, s: attend(q, k, v, scale=0.4, mask=m, sinks=s),
        *SHAPES,
        (4, 3, 5),
        (4,),
    ),
}


@pytest.mark.parametrize("name", RULES)
def test_derivatives_equal_differences(name):
    function, *sizes = RULES[name]
    check_derivatives(function, *[numbers(*s, seed=3 + i) for i, s in enumerate(sizes)])


@pytest.mark.parametrize("name", RULES)
def test_batches_equal_a_loop(name):
    function, *sizes = RULES[name]
    for axes in batch_axes(sizes):
        check_batching(function, *batched(sizes, axes), axes=axes, tolerance=1e-4)


def test_batches_of_offsets_states_and_targets_equal_a_loop():
    x = numbers(3, 2, 2, 3, 6).astype(np.float32)
    turn = lambda a, o: mx.fast.rope(a, 4, traditional=False, base=100.0, scale=1.0, offset=o)  # noqa: E731
    check_batching(turn, x, np.array([1, 5, 9], np.int32), axes=[0, 0])
    check_batching(turn, x[0], np.array([1, 5, 9], np.int32), axes=[None, 0])
    targets = np.array([[0, 1], [2, 2], [1, 0]])
    check_batching(mx.fast.cross_entropy, numbers(3, 2, 4).astype(np.float32), targets, axes=[0, 0])
    check_batching(mx.fast.cross_entropy, numbers(2, 4).astype(np.float32), targets, axes=[None, 0])
    hosts = [np.array(i[0]) for i in delta_inputs("float32", False)]
    stacks = [np.stack([h, h * 0.5]) for h in hosts]
    check_batching(mx.fast.gated_delta_update, *stacks, axes=[0] * 5)


def test_cross_entropy_derivatives_equal_their_formulas():
    logits = numbers(3, 4, 7).astype(np.float32)
    targets = np.random.default_rng(0).integers(0, 7, (3, 4))
    loss = lambda x: mx.fast.cross_entropy(x, mx.array(targets))  # noqa: E731
    weights = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    slope = weights - np.eye(7)[targets]
    cotangent, tangent = numbers(3, 4).astype(np.float32), numbers(3, 4, 7, seed=2).astype(np.float32)
    found = mx.vjp(loss, [mx.array(logits)], [mx.array(cotangent)])[1][0]
    np.testing.assert_allclose(np.array(found), slope * cotangent[..., None], rtol=1e-5, atol=1e-6)
    found = mx.jvp(loss, [mx.array(logits)], [mx.array(tangent)])[1][0]
    np.testing.assert_allclose(np.array(found), (slope * tangent).sum(-1), rtol=1e-5, atol=1e-5)
