"""Sampling against exact distributions, computed here in NumPy; stop strings; reuse of caches."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

import outlive.core as mx
from outlive.lm import sampling
from outlive.lm.errors import PromptError
from outlive.lm.sampling import Sampler
from outlive.lm.stops import StopStrings

VOCABULARY, DRAWS = 32, 200_000
LOGITS = np.random.default_rng(5).normal(0, 1.5, VOCABULARY)


def softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


def kept_top_k(p: np.ndarray, k: int) -> list[int]:
    return sorted(range(len(p)), key=lambda i: -p[i])[:k]


def kept_top_p(p: np.ndarray, share: float) -> list[int]:
    kept, total = [], 0.0
    for i in sorted(range(len(p)), key=lambda i: -p[i]):
        if total >= share:
            break
        kept.append(i)
        total += p[i]
    return kept


def kept_min_p(p: np.ndarray, share: float) -> list[int]:
    return [i for i in range(len(p)) if p[i] >= share * p.max()]


def kept_typical(p: np.ndarray, share: float) -> list[int]:
    entropy = -sum(x * math.log(x) for x in p if x > 0)
    order = sorted((i for i in range(len(p)) if p[i] > 0), key=lambda i: abs(-math.log(p[i]) - entropy))
    kept, total = [], 0.0
    for i in order:
        if total >= share:
            break
        kept.append(i)
        total += p[i]
    return kept


KEPT = {"top_k": kept_top_k, "top_p": kept_top_p, "min_p": kept_min_p, "typical_p": kept_typical}


def exact(temperature: float, bias: dict[int, float], **options: float) -> np.ndarray:
    logits = LOGITS.copy()
    for token, number in bias.items():
        logits[token] += number
    p = softmax(logits / temperature)
    for name in ("top_k", "top_p", "min_p", "typical_p"):
        if name in options:
            kept = KEPT[name](p, options[name])
            p = np.where(np.isin(np.arange(len(p)), kept), p, 0)
            p /= p.sum()
    return p


def draws(sampler: Sampler) -> np.ndarray:
    rows = mx.broadcast_to(mx.array(LOGITS, mx.float32), (DRAWS, VOCABULARY))
    return np.array(sampler.draw(rows, sampler.start((), VOCABULARY))[0])


def agrees(tokens: np.ndarray, p: np.ndarray) -> bool:
    """Chi-square with p > 0.001; a token of probability 0 must never be drawn."""
    counts, possible = np.bincount(tokens, minlength=VOCABULARY), p > 0
    if counts[~possible].any():
        return False
    expected = p[possible] * len(tokens)
    statistic = ((counts[possible] - expected) ** 2 / expected).sum()
    return statistic < chi2.ppf(0.999, possible.sum() - 1) if possible.sum() > 1 else True


CASES = [
    (1.0, {}, {}),
    (0.7, {}, {}),
    (2.5, {}, {}),
    (1.0, {}, {"top_k": 5}),
    (1.0, {}, {"top_k": 1}),
    (1.3, {}, {"top_p": 0.8}),
    (1.0, {}, {"top_p": 1e-6}),
    (1.0, {}, {"min_p": 0.1}),
    (1.0, {}, {"typical_p": 0.6}),
    (1.5, {3: 2.0, 7: -1.0}, {}),
    (1.0, {3: -math.inf}, {}),
    (1.2, {}, {"top_k": 20, "top_p": 0.9, "min_p": 0.02, "typical_p": 0.85}),
]


@pytest.mark.parametrize(("temperature", "bias", "options"), CASES)
def test_draws_follow_the_exact_distribution(temperature, bias, options):
    sampler = Sampler(temperature, 17, logit_bias=bias, **options)
    assert agrees(draws(sampler), exact(temperature, bias, **options))


BREAKS = {
    "temperature ignored": {"temperature": 1.1},
    "one token too many": {"top_k": 6},
    "a share too large": {"top_p": 0.9},
    "a bias a little off": {"logit_bias": {int(LOGITS.argmax()): 0.05}},
}


@pytest.mark.parametrize("change", BREAKS.values(), ids=BREAKS.keys())
def test_a_sampler_that_is_a_little_wrong_is_found(change):
    """The test above has the power to tell: samplers with another option fail it."""
    options = {"temperature": 1.0, "top_k": 5, "top_p": 0.8} | change
    assert not agrees(draws(Sampler(seed=17, **options)), exact(1.0, {}, top_k=5, top_p=0.8))


def test_a_draw_that_forgets_its_order_is_found(monkeypatch):
    monkeypatch.setattr(sampling, "filtered", lambda logits, options: (-mx.sort(-logits, axis=-1), None))
    assert not agrees(draws(Sampler(1.0, 17)), exact(1.0, {}))


def test_penalties_count_prompt_and_answer():
    """Repetition looks at both, presence and frequency at the answer alone."""
    options = {"repetition_penalty": 1.3, "presence_penalty": 0.5, "frequency_penalty": 0.25}
    sampler = Sampler(0.0, 1, **options)
    state = sampler.start([1, 1, 2], 6)
    logits = np.array([[2.0, 2.4, -1.0, 1.9, 0.0, -5.0]], np.float32)
    expected, counts, drawn = [], np.zeros(6), []
    for _ in range(12):
        penalized = logits[0].astype(np.float64).copy()
        for token in range(6):
            if token in (1, 2) or counts[token]:
                penalized[token] *= 1 / 1.3 if penalized[token] > 0 else 1.3
            penalized[token] -= 0.5 * (counts[token] > 0) + 0.25 * counts[token]
        expected.append(int(penalized.argmax()))
        counts[expected[-1]] += 1
        token, state = sampler.draw(mx.array(logits), state)
        drawn.append(int(token.item()))
    assert drawn == expected
    assert len(set(drawn)) > 2


def test_logprobs_are_the_models_own_whatever_shapes_the_draw():
    sampler = Sampler(0.5, 3, top_k=2, logprobs=4)
    logits = mx.array(LOGITS, mx.float32)[None]
    token, _ = sampler.draw(logits, sampler.start())
    chosen, best, best_logprobs = map(np.array, sampler.details(logits, token))
    expected = np.log(softmax(LOGITS))
    np.testing.assert_allclose(chosen, expected[[token.item()]], rtol=1e-5)
    assert best[0].tolist() == np.argsort(-LOGITS)[:4].tolist()
    np.testing.assert_allclose(best_logprobs[0], np.sort(expected)[::-1][:4], rtol=1e-5)
    assert Sampler(logprobs=0).details(logits, token)[1].shape == (1, 0)
    assert Sampler().details(logits, token) == []


ILLEGAL = [
    ("top_k", -1), ("top_p", 0.0), ("top_p", 1.5), ("min_p", -0.1), ("min_p", 2.0), ("typical_p", 0.0), ("typical_p", math.nan),
    ("repetition_penalty", 0.0), ("presence_penalty", math.inf), ("frequency_penalty", math.nan), ("logprobs", -1),
    ("logprobs", 1000), ("logit_bias", {-1: 1.0}), ("logit_bias", {1: math.nan}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), ILLEGAL)
def test_an_option_out_of_range_is_named(name, value):
    with pytest.raises(PromptError, match=name.replace("_", "[- ]")):
        Sampler(1.0, **{name: value})


def test_a_bias_outside_the_vocabulary_is_named():
    with pytest.raises(PromptError, match="logit bias for token 32, but the vocabulary has 32"):
        Sampler(logit_bias={32: 1.0}).start((), 32)


def through(strings: list[str], pieces: list[str]) -> tuple[list[str], str | None]:
    stops = StopStrings(strings)
    shown = []
    for piece in pieces:
        shown.append(stops.add(piece))
        if stops.found is not None:
            return shown, stops.found
    return [*shown, stops.finish()], None


def test_a_stop_string_over_several_pieces_is_found_and_never_shown():
    assert through(["STOP"], ["a S", "T", "O", "P b"]) == (["a ", "", "", ""], "STOP")


def test_what_only_began_like_a_stop_string_is_shown():
    assert through(["STOP"], ["a ST", "x", "S"]) == (["a ", "STx", "", "S"], None)


def test_the_string_that_is_complete_first_wins():
    assert through(["b", "abc", "ab"], ["xabcd"]) == (["x"], "ab")


def test_an_empty_stop_string_is_refused():
    with pytest.raises(PromptError, match="stop string is empty"):
        StopStrings(["a", ""])


@given(
    text=st.text("ab", max_size=20),
    cuts=st.lists(st.integers(0, 20), max_size=6),
    strings=st.lists(st.text("ab", min_size=1, max_size=4), max_size=3),
)
def test_cutting_the_text_differently_changes_nothing(text, cuts, strings):
    places = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
    pieces = [text[a:b] for a, b in itertools.pairwise(places)]
    shown, _ = through(strings, pieces)
    ends = [(text.find(stop) + len(stop), text.find(stop)) for stop in strings if stop in text]
    assert "".join(shown) == text[: min(ends, default=(0, len(text)))[1]]
