"""The generation loop: prefill in chunks, then a token at a time, one step ahead of the reader."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import outlive.core as mx
from outlive.lm.cache import KVCache
from outlive.lm.decoding import Decoder
from outlive.lm.errors import PromptError
from outlive.lm.families import Network
from outlive.lm.progress import Progress
from outlive.lm.prompt_cache import PromptCache
from outlive.lm.sampling import Sampler

PREFILL_CHUNK_TOKENS = 512

FinishReason = Literal["end", "length", "context", "stop"]


@dataclass(frozen=True, slots=True)
class GeneratedToken:
    """One token of an answer; log-probabilities (natural, of the model itself) where the sampler was asked for them.

    ``alternatives`` are the likeliest tokens with theirs, the likeliest first.
    """

    id: int
    logprob: float | None = None
    alternatives: tuple[tuple[int, float], ...] = ()


@dataclass(slots=True)
class GenerationStats:
    """What a generation did.

    Times are in seconds. ``first_token_s`` runs from the start, prefill included, until the first token is read;
    ``decode_s`` from there over ``decode_steps`` further tokens, one that ended the answer included. ``reused_tokens``
    of the prompt were in the cache already.
    """

    prompt_tokens: int = 0
    reused_tokens: int = 0
    generated_tokens: int = 0
    first_token_s: float = 0.0
    decode_s: float = 0.0
    decode_steps: int = 0
    finish_reason: FinishReason | None = None

    @property
    def prefill_tokens_per_s(self) -> float:
        return (self.prompt_tokens - self.reused_tokens) / self.first_token_s if self.first_token_s else 0.0

    @property
    def decode_tokens_per_s(self) -> float:
        return self.decode_steps / self.decode_s if self.decode_s else 0.0


def prefill(network: Network, ids: Sequence[int], cache: list[KVCache], progress: Progress) -> mx.array:
    """Run the prompt ``ids`` through the network; returns the logits after its last token, shape (1, vocabulary).

    Only the last chunk's last token meets the output matrix: the logits of the others would not be read.
    """
    tokens = mx.array(ids, mx.uint32)[None]
    hidden = tokens
    with progress.stage("prefill", len(ids), "tokens") as advance:
        for begin in range(0, len(ids), PREFILL_CHUNK_TOKENS):
            chunk = tokens[:, begin : begin + PREFILL_CHUNK_TOKENS]
            hidden = network.hidden(chunk, cache)[:, -1:]
            # Only the cache is needed of all chunks but the last, so their last layer's output is never computed.
            mx.eval([array for entry in cache for array in entry.arrays])
            advance(chunk.shape[1])
    return network.logits(hidden)[:, -1]


def generate_tokens(
    network: Network,
    ids: Sequence[int],
    sampler: Sampler,
    *,
    max_tokens: int,
    ends: Collection[int],
    progress: Progress,
    stats: GenerationStats,
) -> Iterator[int]:
    """The ids that :func:`generate_steps` yields."""
    steps = generate_steps(network, ids, sampler, max_tokens=max_tokens, ends=ends, progress=progress, stats=stats)
    with contextlib.closing(steps):
        for step in steps:
            yield step.id


def generate_steps(
    network: Network,
    ids: Sequence[int],
    sampler: Sampler,
    *,
    max_tokens: int,
    ends: Collection[int],
    progress: Progress,
    stats: GenerationStats,
    cache: PromptCache | None = None,
) -> Generator[GeneratedToken, None, None]:
    """Yield the tokens that follow ``ids``, at most ``max_tokens``, up to and without a token of ``ends``.

    While the caller handles a token, the device already computes the next. ``stats`` is kept current, so it is right
    also when the caller stops early. What ``cache`` already holds of ``ids`` is not computed again, and it holds the
    answer afterwards.

    Raises:
        PromptError: if the prompt is empty, leaves no room in the context, or ``max_tokens`` is not positive.
    """
    _check_lengths(network, ids, max_tokens)
    start = time.perf_counter()
    cache = cache or PromptCache(network)
    rest = cache.prepare(ids)
    stats.prompt_tokens, stats.reused_tokens = len(ids), len(ids) - len(rest)
    room = network.context_length - len(ids)
    limit = min(max_tokens, room)
    logits = prefill(network, rest, cache.entries, progress)
    cache.tokens = list(ids)
    token, state = sampler.draw(logits, sampler.start(ids, network.vocabulary_size))
    details = sampler.details(logits, token)
    mx.async_eval(token, details)
    decoder = Decoder(network, sampler, state, cache.entries)
    first_read = None
    for count in range(1, limit + 1):
        if count < limit:
            following, following_details = decoder.next(token)
            mx.async_eval(following, following_details)
        value = _read(token, details)
        if count < limit:
            cache.tokens.append(value.id)
        now = time.perf_counter()
        if first_read is None:
            first_read, stats.first_token_s = now, now - start
        stats.decode_s, stats.decode_steps = now - first_read, count - 1
        if value.id in ends:
            stats.finish_reason = "end"
            return
        stats.generated_tokens = count
        yield value
        if count < limit:
            token, details = following, following_details
    stats.finish_reason = "length" if max_tokens <= room else "context"


def _read(token: mx.array, details: list[mx.array]) -> GeneratedToken:
    if not details:
        return GeneratedToken(int(token.item()))
    logprob, best, best_logprobs = details
    alternatives = zip(best[0].tolist(), best_logprobs[0].tolist(), strict=True)
    return GeneratedToken(int(token.item()), float(logprob.item()), tuple(alternatives))


def _check_lengths(network: Network, ids: Sequence[int], max_tokens: int) -> None:
    if max_tokens < 1:
        raise PromptError(f"max tokens is {max_tokens}, but at least 1 token must be asked for")
    if not ids:
        raise PromptError("the prompt is empty; give some text")
    if len(ids) >= network.context_length:
        raise PromptError(
            f"the prompt has {len(ids)} tokens, but the model's context holds {network.context_length}, "
            "the answer included; shorten the prompt"
        )
