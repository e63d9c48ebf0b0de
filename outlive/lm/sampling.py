"""Choosing the next token from logits."""

from __future__ import annotations

import math
import secrets
from collections.abc import Hashable

import outlive.core as mx
from outlive.lm.errors import PromptError

SEED_MAX = (1 << 64) - 1


class Sampler:
    """Picks tokens: the likeliest at temperature 0, else at random by softmax(logits / temperature).

    It holds no state: what changes from draw to draw is handed in and back, so a step that samples can be compiled.

    Attributes:
        seed: of the random draws; chosen by the system where None was given. Same seed, same tokens.

    Raises:
        PromptError: for a temperature that is negative or not finite, or a seed outside 64 bits.
    """

    def __init__(self, temperature: float = 0.0, seed: int | None = None) -> None:
        if not (math.isfinite(temperature) and temperature >= 0):
            raise PromptError(f"temperature is {temperature}, but must be a finite number from 0 up")
        if seed is not None and not 0 <= seed <= SEED_MAX:
            raise PromptError(f"seed is {seed}, but must lie between 0 and {SEED_MAX}")
        self.temperature = temperature
        self.seed = secrets.randbits(64) if seed is None else seed

    @property
    def key(self) -> Hashable:
        """What a compiled step that draws with this sampler depends on."""
        return self.temperature

    def start(self) -> list[mx.array]:
        """The state before the first draw: the key of the seed, or nothing where nothing is random."""
        return [mx.random.key(self.seed)] if self.temperature > 0 else []

    def draw(self, logits: mx.array, state: list[mx.array]) -> tuple[mx.array, list[mx.array]]:
        """Logits of shape (batch, vocabulary) to token ids of shape (batch,), and the next state."""
        if self.temperature == 0:
            return mx.argmax(logits, axis=-1), []
        key, draw_key = mx.random.split(state[0])
        return mx.random.categorical(logits * (1.0 / self.temperature), axis=-1, key=draw_key), [key]
