"""The gated delta rule against its recurrence in float64; pieces of a sequence have the bits of the whole."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cpu_kernels.support import BF16, FLOATS, HALF_ULP, bits, float64, poisoned, run, words_of

SIZES = ((1, 1, 1, 1, 16, 1), (2, 7, 1, 2, 32, 20), (1, 9, 2, 1, 64, 65), (1, 12, 2, 2, 128, 128))


def operands(rng, batch, length, heads, group, depth, width, dtype, by_key):
    def normal(*shape):
        return rng.standard_normal(shape).astype(np.float32)

    keys = normal(batch, length, heads, depth)
    keys /= np.linalg.norm(keys, axis=-1, keepdims=True)
    served = (batch, length, heads * group)
    gamma = rng.uniform(0.7, 1, (*served, *[depth] * by_key)).astype(np.float32)
    made = [normal(*keys.shape), keys, normal(*served, width), gamma, rng.uniform(0, 1, served)]
    state = normal(batch, heads * group, width, depth)
    return [a.astype(np.float32 if a is gamma else dtype) for a in made] + [state]


def recurrence(q, k, v, gamma, beta, state, mask=None):
    """(outputs, last state) in float64."""
    q, k, v, gamma, beta, state = (float64(a) for a in (q, k, v, gamma, beta, state))
    q, k = (np.repeat(a, v.shape[2] // a.shape[2], axis=2) for a in (q, k))
    outputs = np.zeros(v.shape)
    for b, t, h in np.ndindex(v.shape[:3]):
        if mask is not None and not mask[b, t]:
            continue
        s = state[b, h] * gamma[b, t, h]  # a number, or one for each key: the last axis of the state
        s = s + np.outer((v[b, t, h] - s @ k[b, t, h]) * beta[b, t, h], k[b, t, h])
        state[b, h], outputs[b, t, h] = s, s @ q[b, t, h]
    return outputs, state


def update(reads, mask=None):
    v, state = reads[2], reads[5]
    given = [*reads] if mask is None else [*reads, mask]
    writes = [poisoned(v.shape, v.dtype), poisoned(state.shape, np.float32)]
    return run("gated_delta_update", given, writes, has_mask=mask is not None)


def assert_near(found, want):
    allowed = 2 * HALF_ULP[found.dtype] * np.abs(want) + 2e-6 * np.abs(want).max(initial=1)
    assert (np.abs(float64(found) - want) <= allowed).all()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("dtype", "by_key"), [(np.float32, False), (BF16, False), (np.float16, True)])
def test_the_recurrence(size, dtype, by_key):
    reads = operands(np.random.default_rng(3), *size, dtype, by_key)
    for found, want in zip(update(reads), recurrence(*reads), strict=True):
        assert_near(found, want)


def test_hidden_positions_leave_the_state_alone_even_where_they_hold_nan():
    rng = np.random.default_rng(4)
    reads = operands(rng, 2, 9, 2, 2, 32, 33, np.float32, True)
    mask = rng.random((2, 9)) < 0.6
    want = recurrence(*reads, mask)
    for a in reads[:5]:
        a[~mask] = np.nan
    for found, expected in zip(update(reads, mask), want, strict=True):
        assert_near(found, expected)


@pytest.mark.parametrize("by_key", [False, True])
@pytest.mark.parametrize("cuts", [(4,), (1, 2, 3, 4, 5, 6, 7, 8, 9)])
def test_pieces_have_the_bits_of_the_whole(by_key, cuts):
    reads = operands(np.random.default_rng(5), 2, 10, 2, 2, 48, 40, BF16, by_key)
    whole, last = update(reads)
    state, made = reads[5], []
    for low, high in zip((0, *cuts), (*cuts, 10), strict=True):
        piece, state = update([*[a[:, low:high] for a in reads[:5]], state])  # views with gaps between batches
        made.append(piece)
    assert bits(np.concatenate(made, axis=1)) == bits(whole)
    assert bits(state) == bits(last)


def test_operands_that_are_slices_of_one_array():
    rng = np.random.default_rng(6)
    reads = operands(rng, 1, 5, 2, 1, 32, 32, np.float32, False)
    joined = np.concatenate(reads[:3], axis=2)
    views = [joined[:, :, n : n + 2] for n in (0, 2, 4)]
    assert [bits(a) for a in update([*views, *reads[3:]])] == [bits(a) for a in update(reads)]


@pytest.mark.parametrize("where", [0, 1, 2])
def test_nan_stays_in_its_head_and_value(where):
    reads = operands(np.random.default_rng(7), 1, 6, 2, 1, 32, 40, np.float32, False)
    clean = update(reads)
    reads[where][0, 3, 1, 7] = np.nan
    out, last = update(reads)
    assert bits(out[:, :, 0].copy()) == bits(clean[0][:, :, 0].copy())
    assert bits(out[:, :3].copy()) == bits(clean[0][:, :3].copy())
    assert bits(last[:, 0].copy()) == bits(clean[1][:, 0].copy())
    touched = np.isnan(out[0, 3, 1])
    assert touched.sum() == (1 if where == 2 else 40)


@pytest.mark.parametrize("dtype", FLOATS)
def test_depths_that_do_not_fill_vectors_are_left_to_the_reference_kernel(dtype):
    reads = operands(np.random.default_rng(8), 1, 2, 1, 1, 20, 4, dtype, False)
    writes = [poisoned(reads[2].shape, dtype), poisoned(reads[5].shape, np.float32)]
    assert words_of("gated_delta_update", reads, writes, has_mask=False) is None
