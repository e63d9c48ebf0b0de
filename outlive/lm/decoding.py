"""One token to the next as a compiled step: traced once for each size of the cache, then replayed.

A decode step is many small operations, so building and encoding them anew would cost as much as computing them. The
step is a function of arrays of fixed shapes: the token, the sampler's state, the position, and the caches with their
room. Its results take the place of its arguments, whose buffers it may therefore write over.
"""

from __future__ import annotations

from collections.abc import Callable

import outlive.core as mx
from outlive.lm.cache import Arrays, KVCache, StepKind
from outlive.lm.families import Network
from outlive.lm.sampling import Sampler

Step = Callable[[mx.array, Arrays, mx.array, list[Arrays]], tuple[mx.array, Arrays, Arrays, list[Arrays]]]


class Decoder:
    """Decodes token after token from a cache that holds the prompt."""

    def __init__(self, network: Network, sampler: Sampler, state: Arrays, cache: list[KVCache]) -> None:
        self._step = _compiled_step(network, sampler, tuple(entry.step_kind for entry in cache))
        self._state = state
        self._cache = cache

    def next(self, token: mx.array) -> tuple[mx.array, Arrays]:
        """The token after ``token``, each of shape (1,), and the sampler's details of it, lazily."""
        for entry in self._cache:
            entry.reserve()
        position = mx.array([self._cache[0].offset], mx.int32)
        held = [entry.arrays for entry in self._cache]
        token, self._state, details, arrays = self._step(token, self._state, position, held)
        for entry, written in zip(self._cache, arrays, strict=True):
            entry.replace(written)
        return token, details


def _compiled_step(network: Network, sampler: Sampler, kinds: tuple[StepKind, ...]) -> Step:
    """The step of this network; it is kept with the network, so its traces serve later prompts."""
    key = (sampler.key, kinds)
    step = network.decode_steps.get(key)
    if step is None:
        step = network.decode_steps[key] = mx.compile(_make_step(network, sampler, kinds))
    return step


def _make_step(network: Network, sampler: Sampler, kinds: tuple[StepKind, ...]) -> Step:
    def step(
        token: mx.array, state: Arrays, position: mx.array, arrays: list[Arrays]
    ) -> tuple[mx.array, Arrays, Arrays, list[Arrays]]:
        visible: dict[int, mx.array] = {}  # layers with equal room share one
        cache = []
        for kind, held in zip(kinds, arrays, strict=True):
            room = held[0].shape[2]
            if room not in visible:
                visible[room] = (mx.arange(room) <= position)[None, None, None]
            cache.append(kind.open(held, position, visible[room]))
        logits = network.logits(network.hidden(token[None], cache))[:, -1]
        token, state = sampler.draw(logits, state)
        return token, state, sampler.details(logits, token), [entry.arrays for entry in cache]

    return step
