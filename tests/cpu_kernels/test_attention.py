"""Attention against float64: heads, masks, lengths, views, and what a masked key holds."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cpu_kernels.support import BF16, FLOATS, assert_close, bits, float64, run_one, words_of

OP = "scaled_dot_product_attention"
NAN, INF = float("nan"), float("inf")


@pytest.fixture
def rng():
    return np.random.default_rng(19)


def reference(q, keys, values, scale, causal, mask):
    q, keys, values = (float64(a) for a in (q, keys, values))
    repeat = q.shape[1] // keys.shape[1]
    keys, values = np.repeat(keys, repeat, 1), np.repeat(values, repeat, 1)
    scores = q @ keys.swapaxes(-1, -2) * scale
    queries, length = scores.shape[-2:]
    if causal:
        seen = np.arange(length)[None] <= np.arange(queries)[:, None] + length - queries
        scores = np.where(seen, scores, np.where(seen.any(-1, keepdims=True), -INF, 0))
    if mask is not None and mask.dtype == bool:
        scores = np.where(mask, scores, np.where(mask.any(-1, keepdims=True), -INF, 0))
    elif mask is not None:
        scores = scores + float64(mask)
    with np.errstate(invalid="ignore"):
        powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True) @ values


def operands(rng, batch, heads, groups, queries, length, width, dtype):
    """Views as a model makes them: heads are a transposed axis, keys are the front of a longer cache."""
    q = rng.standard_normal((batch, queries, heads, width)).astype(dtype).transpose(0, 2, 1, 3)
    keys = rng.standard_normal((batch, length + 3, groups, width)).astype(dtype).transpose(0, 2, 1, 3)[:, :, :length]
    values = rng.standard_normal((batch, groups, length, width)).astype(dtype)
    return q, keys, values


def attend(q, keys, values, *, causal=False, mask=None, scale=0.3):
    reads = [q, keys, values] + ([] if mask is None else [mask])
    return run_one(OP, reads, q.shape, q.dtype, scale=scale, causal=causal, has_mask=mask is not None)


GEOMETRY = [(1, 9, 3, 1, 77, 64), (2, 4, 2, 5, 63, 32), (1, 2, 1, 16, 200, 128), (1, 3, 3, 65, 65, 64),
            (2, 4, 1, 100, 163, 48), (1, 2, 2, 17, 500, 64), (1, 2, 2, 64, 64, 256), (1, 1, 1, 33, 40, 16),
            (1, 1, 1, 1, 1, 16), (3, 2, 1, 7, 7, 80)]  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("geometry", GEOMETRY)
@pytest.mark.parametrize("kind", ["all", "causal", "boolean", "added"])
def test_attention(rng, dtype, geometry, kind):
    q, keys, values = operands(rng, *geometry, dtype)
    batch, _, _, queries, length, _ = geometry
    mask = None
    if kind == "boolean":
        mask = rng.random((batch, 1, queries, length)) < 0.7
        mask[..., 0] = True
    if kind == "added":
        mask = rng.standard_normal((queries, length)).astype(dtype)
    scale = q.shape[-1] ** -0.5
    got = attend(q, keys, values, causal=kind == "causal", mask=mask, scale=scale)
    assert_close(got, reference(q, keys, values, scale, kind == "causal", mask), 2e-6)


@pytest.mark.parametrize("counts", [(1, 2, 5, 16), (17, 40, 90)])
def test_a_query_has_the_same_bits_beside_any_number_of_others(rng, counts):
    q, keys, values = operands(rng, 1, 4, 2, counts[-1], 150, 64, np.float32)
    whole = attend(q, keys, values, causal=True)
    for count in counts[:-1]:
        assert bits(attend(q[:, :, -count:], keys, values, causal=True)) == bits(whole[:, :, -count:])


@pytest.mark.parametrize("queries", [4, 40])
@pytest.mark.parametrize("value", [NAN, INF])
def test_what_a_masked_key_holds_never_leaks(rng, queries, value):
    q, keys, values = operands(rng, 1, 2, 1, queries, 70, 32, np.float32)
    clean = attend(q, keys, values, causal=True)
    keys[:, :, -1], values[:, :, -1] = value, value
    assert bits(attend(q, keys, values, causal=True)[:, :, :-1]) == bits(clean[:, :, :-1])
    mask = np.ones((queries, 70), bool)
    mask[:, -1] = False
    assert np.isfinite(attend(q, keys, values, mask=mask)).all()


@pytest.mark.parametrize("queries", [3, 20])
def test_a_query_without_keys_attends_to_all_alike_or_is_nan_by_an_added_mask(rng, queries):
    q, keys, values = operands(rng, 1, 2, 1, queries, 70, 32, np.float32)
    mask = np.ones((queries, 70), bool)
    mask[1] = False
    assert_close(attend(q, keys, values, mask=mask), reference(q, keys, values, 0.3, False, mask))
    assert_close(attend(q, keys, values, mask=mask)[:, :, 1], float64(values).mean(2).repeat(2, 1))
    got = attend(q, keys, values, mask=np.where(mask, 0, -INF).astype(np.float32))
    assert np.isnan(got[:, :, 1]).all()
    assert np.isfinite(got[:, :, [0, 2]]).all()


@pytest.mark.parametrize(("queries", "length"), [(7, 3), (16, 1), (40, 5), (100, 70)])
def test_more_queries_than_keys_under_a_causal_mask(rng, queries, length):
    q, keys, values = operands(rng, 1, 2, 1, queries, length, 32, np.float32)
    assert_close(attend(q, keys, values, causal=True), reference(q, keys, values, 0.3, True, None))


@pytest.mark.parametrize("queries", [2, 20])
def test_large_scores_do_not_overflow(rng, queries):
    q, keys, values = operands(rng, 1, 1, 1, queries, 200, 64, np.float32)
    got = attend(q * 1e3, keys * 1e3, values)
    assert_close(got, reference(q * 1e3, keys * 1e3, values, 0.3, False, None), 1e-5)


def test_nan_in_a_query_stays_in_it(rng):
    for queries in (4, 40):
        q, keys, values = operands(rng, 1, 2, 1, queries, 70, 32, np.float32)
        clean = attend(q, keys, values)
        q[:, :, 2, 5] = NAN
        got = attend(q, keys, values)
        others = [n for n in range(queries) if n != 2]
        assert np.isnan(got[:, :, 2]).all()
        assert bits(got[:, :, others]) == bits(clean[:, :, others])


def test_a_mask_is_broadcast(rng):
    q, keys, values = operands(rng, 2, 4, 2, 5, 63, 32, BF16)
    for shape in ((63,), (1, 1, 1, 63), (2, 1, 5, 63), (4, 1, 63), (2, 4, 5, 63)):
        mask = rng.standard_normal(shape).astype(BF16)
        assert_close(attend(q, keys, values, mask=mask), reference(q, keys, values, 0.3, False, mask), 2e-6)


def test_what_is_not_served_is_left_to_the_reference_kernel(rng):
    q, keys, values = operands(rng, 1, 2, 1, 4, 70, 20, np.float32)
    params = {"scale": 1.0, "causal": False, "has_mask": False}
    assert words_of(OP, [q, keys, values], [q.copy()], **params) is None  # a width that is no multiple of 16
    q, keys, values = operands(rng, 1, 2, 1, 4, 70, 32, np.float32)
    sinks = np.zeros(2, np.float32)
    assert words_of(OP, [q, keys, values, sinks], [q.copy()], **params) is None
    assert words_of(OP, [q.swapaxes(2, 3), keys, values], [q.copy()], **params) is None
