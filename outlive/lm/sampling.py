"""Choosing the next token from logits.

The order is: logit bias and penalties, temperature, top-k, top-p, min-p, typical; each works on what the one before it
left. Sources: top-p, Holtzman et al. 2020; typical, Meister et al. 2023; min-p, Nguyen et al. 2024; the repetition
penalty, Keskar et al. 2019.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, fields

import outlive.core as mx
from outlive.lm.errors import PromptError

SEED_MAX = (1 << 64) - 1
LOGPROBS_MAX = 100

Arrays = list[mx.array]


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    """What shapes the distribution that tokens are drawn from; the defaults change nothing.

    Attributes:
        temperature: logits are divided by it; 0 takes the likeliest token.
        top_k: only the so many likeliest tokens; 0 for all.
        top_p: only the likeliest tokens that together reach this probability.
        min_p: only tokens at least this likely, relative to the likeliest.
        typical_p: only the tokens whose surprise is closest to the mean, that together reach this probability.
        repetition_penalty: divides positive logits of tokens in prompt or answer, and multiplies negative ones.
        presence_penalty: subtracted from the logits of tokens in the answer.
        frequency_penalty: subtracted as often as the token is in the answer.
        logit_bias: (token, number added to its logit) pairs.
        logprobs: tells, for each token, its log-probability and those of so many likeliest ones; None tells nothing.

    Raises:
        PromptError: for a value out of range.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    logprobs: int | None = None

    def __post_init__(self) -> None:
        for name, (legal, meaning) in _RANGES.items():
            value = getattr(self, name)
            if not (math.isfinite(value) and legal(value)):
                raise PromptError(f"{name.replace('_', '-')} is {value}, but must be {meaning}")
        if self.logprobs is not None and not 0 <= self.logprobs <= LOGPROBS_MAX:
            raise PromptError(f"logprobs is {self.logprobs}, but must lie between 0 and {LOGPROBS_MAX}")
        for token, bias in self.logit_bias:
            if token < 0 or math.isnan(bias):
                raise PromptError(f"logit bias {token}:{bias} is not a token and a number")

    @property
    def penalizes(self) -> bool:
        return (self.repetition_penalty, self.presence_penalty, self.frequency_penalty) != (1.0, 0.0, 0.0)


_RANGES = {
    "temperature": (lambda value: value >= 0, "a finite number from 0 up"),
    "top_k": (lambda value: value >= 0, "a count from 0 (all) up"),
    "top_p": (lambda value: 0 < value <= 1, "above 0 and at most 1"),
    "min_p": (lambda value: 0 <= value <= 1, "between 0 and 1"),
    "typical_p": (lambda value: 0 < value <= 1, "above 0 and at most 1"),
    "repetition_penalty": (lambda value: value > 0, "a finite number above 0"),
    "presence_penalty": (lambda value: True, "a finite number"),
    "frequency_penalty": (lambda value: True, "a finite number"),
}


class Sampler:
    """Picks tokens: the likeliest at temperature 0, else at random.

    It holds no state: what changes from draw to draw is handed in and back, so a step that samples can be compiled.

    Attributes:
        options: see :class:`SamplingOptions`.
        seed: of the random draws; chosen by the system where None was given. Same seed, same tokens.

    Raises:
        PromptError: for options out of range, or a seed outside 64 bits.
    """

    def __init__(
        self,
        temperature: float = 0.0,
        seed: int | None = None,
        *,
        logit_bias: Mapping[int, float] | None = None,
        **options: float | int | None,
    ) -> None:
        if unknown := options.keys() - {field.name for field in fields(SamplingOptions)}:
            raise TypeError(f"there is no sampling option {min(unknown)!r}")
        bias = tuple(sorted((logit_bias or {}).items()))
        self.options = SamplingOptions(temperature, logit_bias=bias, **options)  # type: ignore[arg-type]
        if seed is not None and not 0 <= seed <= SEED_MAX:
            raise PromptError(f"seed is {seed}, but must lie between 0 and {SEED_MAX}")
        self.seed = secrets.randbits(64) if seed is None else seed

    @property
    def temperature(self) -> float:
        return self.options.temperature

    @property
    def key(self) -> Hashable:
        """What a compiled step that draws with this sampler depends on."""
        return self.options

    def start(self, prompt: Sequence[int] = (), vocabulary_size: int = 0) -> Arrays:
        """The state before the first draw: a key where draws are random; where tokens are penalized, which tokens the
        prompt has and how often the answer has each, both of shape (1, vocabulary).

        Raises:
            PromptError: if a biased token is outside the vocabulary.
        """
        for token, _ in self.options.logit_bias:
            if vocabulary_size and token >= vocabulary_size:
                raise PromptError(f"logit bias for token {token}, but the vocabulary has {vocabulary_size} tokens")
        state = [mx.random.key(self.seed)] if self.temperature > 0 else []
        if self.options.penalizes:
            in_prompt = mx.zeros((1, vocabulary_size))
            if prompt:
                in_prompt[:, mx.array(sorted(set(prompt)), mx.uint32)] = 1.0
            state += [in_prompt, mx.zeros((1, vocabulary_size))]
        return state

    def draw(self, logits: mx.array, state: Arrays) -> tuple[mx.array, Arrays]:
        """Logits of shape (batch, vocabulary) to token ids of shape (batch,), and the next state."""
        options, state = self.options, list(state)
        logits = self._biased(logits)
        if options.penalizes:
            logits = self._penalized(logits, *state[-2:])
        if options.temperature == 0:
            token = mx.argmax(logits, axis=-1)
        else:
            state[0], draw_key = mx.random.split(state[0])
            kept, indices = filtered(logits * (1.0 / options.temperature), options)
            token = mx.random.categorical(kept, axis=-1, key=draw_key)
            if indices is not None:
                token = mx.take_along_axis(indices, token[:, None], axis=-1)[:, 0]
        if options.penalizes:
            places = mx.arange(logits.shape[-1])[None]
            state[-1] = state[-1] + (places == token[:, None]).astype(mx.float32)
        return token, state

    def details(self, logits: mx.array, token: mx.array) -> Arrays:
        """What ``logprobs`` asks for, from the model's own logits: log-probabilities of ``token``, shape (batch,), and
        the likeliest ids and their log-probabilities, shape (batch, logprobs); nothing where it asks for nothing."""
        count = self.options.logprobs
        if count is None:
            return []
        logits = logits.astype(mx.float32)
        logprobs = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
        chosen = mx.take_along_axis(logprobs, token[:, None].astype(mx.uint32), axis=-1)[:, 0]
        best = mx.argsort(-logprobs, axis=-1)[:, :count]
        return [chosen, best, mx.take_along_axis(logprobs, best, axis=-1)]

    def _biased(self, logits: mx.array) -> mx.array:
        if not self.options.logit_bias:
            return logits
        tokens, numbers = zip(*self.options.logit_bias, strict=True)
        bias = mx.zeros((logits.shape[-1],))
        bias[mx.array(tokens, mx.uint32)] = mx.array(numbers, mx.float32)
        return logits + bias

    def _penalized(self, logits: mx.array, in_prompt: mx.array, counts: mx.array) -> mx.array:
        options = self.options
        penalty = options.repetition_penalty
        if penalty != 1.0:
            punished = mx.where(logits > 0, logits * (1.0 / penalty), logits * penalty)
            logits = mx.where((in_prompt + counts) > 0, punished, logits)
        in_answer = (counts > 0).astype(mx.float32)
        return logits - options.presence_penalty * in_answer - options.frequency_penalty * counts


def filtered(logits: mx.array, options: SamplingOptions) -> tuple[mx.array, mx.array | None]:
    """Logits (batch, vocabulary) with those of excluded tokens at minus infinity. Where they had to be sorted, also the
    token of each place; there may be fewer places than tokens."""
    indices = None
    if 0 < options.top_k < logits.shape[-1]:
        indices = mx.argpartition(-logits, options.top_k - 1, axis=-1)[:, : options.top_k]
        logits = mx.take_along_axis(logits, indices, axis=-1)
    if options.top_p < 1:
        order = mx.argsort(-logits, axis=-1)
        logits = mx.take_along_axis(logits, order, axis=-1)
        indices = order if indices is None else mx.take_along_axis(indices, order, axis=-1)
        logits = _excluding(logits, _sum_before(mx.softmax(logits, axis=-1)) < options.top_p)
    if options.min_p > 0:
        logits = _excluding(logits, logits >= logits.max(axis=-1, keepdims=True) + math.log(options.min_p))
    if options.typical_p < 1:
        logits = _excluding(logits, _typical(logits, options.typical_p))
    return logits, indices


def _excluding(logits: mx.array, kept: mx.array) -> mx.array:
    return mx.where(kept, logits, -math.inf)


def _sum_before(probabilities: mx.array) -> mx.array:
    return mx.cumsum(probabilities, axis=-1) - probabilities


def _typical(logits: mx.array, share: float) -> mx.array:
    logprobs = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
    probabilities = mx.exp(logprobs)
    entropy = -mx.where(probabilities > 0, probabilities * logprobs, 0.0).sum(axis=-1, keepdims=True)
    distance = mx.abs(-logprobs - entropy)  # infinite for what is excluded already, which therefore comes last
    order = mx.argsort(distance, axis=-1)
    kept = _sum_before(mx.take_along_axis(probabilities, order, axis=-1)) < share
    return mx.take_along_axis(kept, mx.argsort(order, axis=-1), axis=-1)
