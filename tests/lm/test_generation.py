"""The generation loop and sampling, on a network whose answers are known."""

from __future__ import annotations

import math

import numpy as np
import pytest

import outlive.core as mx
from outlive.lm import generation
from outlive.lm.cache import KVCache
from outlive.lm.decoding import Decoder
from outlive.lm.errors import PromptError
from outlive.lm.generation import GenerationStats, generate_tokens
from outlive.lm.progress import Silent
from outlive.lm.sampling import Sampler


class Counting:
    """After token t comes t + 1; remembers how many tokens each piece had. One layer caches the tokens themselves."""

    context_length = 20
    vocabulary_size = 50

    def __init__(self) -> None:
        self.lengths: list[int] = []
        self.decode_steps = {}

    def make_cache(self) -> list[KVCache]:
        return [KVCache()]

    def hidden(self, ids: mx.array, cache) -> mx.array:
        self.lengths.append(ids.shape[1])
        tokens = ids[:, None, :, None].astype(mx.float32)
        cache[0].update(tokens, tokens)
        return ids[..., None].astype(mx.float32)

    def logits(self, hidden: mx.array) -> mx.array:
        return -mx.abs(mx.arange(self.vocabulary_size).astype(mx.float32) - (hidden + 1))


def run(ids, max_tokens=5, ends=(), network=None, sampler=None):
    stats = GenerationStats()
    network = network or Counting()
    tokens = generate_tokens(
        network, ids, sampler or Sampler(), max_tokens=max_tokens, ends=ends, progress=Silent(), stats=stats
    )
    return list(tokens), stats


def test_stops_at_the_length_asked_for():
    tokens, stats = run([1, 2, 3])
    assert tokens == [4, 5, 6, 7, 8]
    assert (stats.prompt_tokens, stats.generated_tokens, stats.finish_reason) == (3, 5, "length")
    assert stats.decode_steps == 4
    assert stats.first_token_s > 0


def test_stops_before_an_ending_token():
    tokens, stats = run([1, 2, 3], ends={6, 40})
    assert tokens == [4, 5]
    assert (stats.generated_tokens, stats.finish_reason) == (2, "end")


def test_an_answer_may_be_empty():
    tokens, stats = run([1], ends={2})
    assert tokens == []
    assert (stats.generated_tokens, stats.finish_reason) == (0, "end")


def test_stops_when_the_context_is_full():
    tokens, stats = run(list(range(17)), max_tokens=100)
    assert tokens == [17, 18, 19]
    assert stats.finish_reason == "context"


def test_filling_the_context_exactly_as_asked_is_a_length():
    assert run(list(range(17)), max_tokens=3)[1].finish_reason == "length"


def test_the_prompt_goes_in_chunks_and_no_step_is_computed_for_nothing(monkeypatch):
    monkeypatch.setattr(generation, "PREFILL_CHUNK_TOKENS", 3)
    network = Counting()
    run([1, 2, 3, 4, 5, 6, 7], max_tokens=1, network=network)
    assert network.lengths == [3, 3, 1]


def test_a_decode_step_is_traced_once_for_all_tokens_and_prompts():
    network = Counting()
    for _ in range(2):
        run([1, 2, 3], max_tokens=6, network=network)
    assert network.lengths == [3, 1, 3]


def test_a_step_reads_and_fills_the_cache_at_its_position():
    """Attention over what the step shows must see the prompt, the tokens since, and nothing of the room behind them."""
    network = Counting()
    cache = network.make_cache()
    cache[0].update(mx.ones((1, 2, 3, 4)), mx.ones((1, 2, 3, 4)))
    seen = []

    def hidden(ids: mx.array, entries) -> mx.array:
        new = ids.reshape(1, 1, 1, 1).astype(mx.float32) * mx.ones((1, 2, 1, 4))
        keys, _ = entries[0].update(new, new)
        shown = mx.where(entries[0].mask(1).reshape(1, 1, -1, 1), keys, mx.array(0.0))
        seen.append(keys.shape)
        return shown.sum(axis=(1, 2, 3)).reshape(1, 1, 1) / 8 - 1

    network.hidden = hidden
    decoder = Decoder(network, Sampler(), [], cache)
    tokens = [mx.array([7], mx.uint32)]
    for _ in range(3):
        tokens.append(decoder.next(tokens[-1])[0])
    # each token is the sum of all before it: three ones, then 7, 10, 20
    assert [int(token.item()) for token in tokens] == [7, 10, 20, 40]
    assert seen == [(1, 2, KVCache.STEP_TOKENS, 4)]
    assert cache[0].offset == 6


def test_room_grows_in_whole_steps_and_keeps_what_is_there():
    cache = KVCache()
    capacities = []
    for count in (1, 255, 1, 1000, 1, 280):
        cache.update(mx.full((1, 1, count, 1), float(count)), mx.zeros((1, 1, count, 1)))
        capacities.append(cache.arrays[0].shape[2])
    cache.reserve()
    capacities.append(cache.arrays[0].shape[2])
    assert capacities == [256, 256, 512, 1280, 1280, 1792, 1792]
    values = np.array(cache.arrays[0])[0, 0, : cache.offset, 0]
    np.testing.assert_array_equal(values, np.repeat([1, 255, 1, 1000, 1, 280], [1, 255, 1, 1000, 1, 280]))


def test_progress_adds_up_to_the_prompt(monkeypatch):
    monkeypatch.setattr(generation, "PREFILL_CHUNK_TOKENS", 3)
    seen = []

    class Watching(Silent):
        def stage(self, title, total, unit):
            from contextlib import nullcontext

            seen.append((title, total, unit))
            return nullcontext(seen.append)

    list(
        generate_tokens(
            Counting(), [1] * 7, Sampler(), max_tokens=1, ends=(), progress=Watching(), stats=GenerationStats()
        )
    )
    assert seen == [("prefill", 7, "tokens"), 3, 3, 1]


def test_stats_are_right_when_the_reader_stops_early():
    stats = GenerationStats()
    tokens = generate_tokens(Counting(), [1], Sampler(), max_tokens=9, ends=(), progress=Silent(), stats=stats)
    assert [next(tokens), next(tokens)] == [2, 3]
    tokens.close()
    assert (stats.generated_tokens, stats.finish_reason) == (2, None)


@pytest.mark.parametrize(
    ("ids", "max_tokens", "complaint"),
    [
        ([], 5, "prompt is empty"),
        (list(range(20)), 5, "20 tokens, but the model's context holds 20"),
        ([1], 0, "at least 1"),
    ],
)
def test_what_cannot_be_generated_is_refused(ids, max_tokens, complaint):
    with pytest.raises(PromptError, match=complaint):
        run(ids, max_tokens)


@pytest.mark.parametrize("temperature", [-0.1, math.nan, math.inf, -math.inf])
def test_a_temperature_without_meaning_is_refused(temperature):
    with pytest.raises(PromptError, match="temperature"):
        Sampler(temperature)


@pytest.mark.parametrize("seed", [-1, 1 << 64])
def test_a_seed_beyond_64_bits_is_refused(seed):
    with pytest.raises(PromptError, match="seed"):
        Sampler(1.0, seed)


@pytest.mark.parametrize("seed", [0, 7, (1 << 64) - 1])
def test_the_same_seed_draws_the_same_tokens(seed):
    draws = [run([1], 19, sampler=Sampler(3.0, seed))[0] for _ in range(2)]
    assert draws[0] == draws[1]
    assert len(set(draws[0])) > 3


def test_other_seeds_draw_other_tokens():
    assert run([1], 19, sampler=Sampler(3.0, 1))[0] != run([1], 19, sampler=Sampler(3.0, 2))[0]


def test_a_low_temperature_takes_the_likeliest():
    assert run([1], 19, sampler=Sampler(1e-3, 5))[0] == run([1], 19)[0]


def test_draws_follow_softmax_of_logits_over_temperature():
    logits, temperature, draws = np.array([0.0, 1.0, 2.0, -1.0]), 2.0, 4000
    sampler = Sampler(temperature, 11)
    rows = mx.broadcast_to(mx.array(logits, mx.float32), (draws, 4))
    tokens = np.array(sampler.draw(rows, sampler.start())[0])
    expected = np.exp(logits / temperature) / np.exp(logits / temperature).sum() * draws
    chi_square = (((np.bincount(tokens, minlength=4) - expected) ** 2) / expected).sum()
    assert chi_square < 16.27  # the 0.999 quantile for three degrees of freedom
