"""One token to the next as a compiled step: traced once for each size of the cache, then replayed.

A decode step is many small operations, so building and encoding them anew would cost as much as computing them. The
step is a function of arrays of fixed shapes: the token, the sampler's state, the position, and the caches with their
room. Its results take the place of its arguments, whose buffers it may therefore write over.
"""

from __future__ import annotations

from collections.abc import Callable

import outlive.core as mx
from outlive.lm.cache import KVCache, StepCache
from outlive.lm.families import Network
from outlive.lm.sampling import Sampler

Arrays = list[mx.array]
Step = Callable[[mx.array, Arrays, mx.array, Arrays], tuple[mx.array, Arrays, Arrays]]


class Decoder:
    """Decodes token after token from a cache that holds the prompt."""

    def __init__(self, network: Network, sampler: Sampler, state: Arrays, cache: list[KVCache]) -> None:
        self._step = _compiled_step(network, sampler)
        self._state = state
        self._cache = cache

    def next(self, token: mx.array) -> mx.array:
        """The token after ``token``, each of shape (1,), lazily."""
        for entry in self._cache:
            entry.reserve()
        position = mx.array([self._cache[0].offset], mx.int32)
        arrays = [array for entry in self._cache for array in entry.arrays]
        token, self._state, arrays = self._step(token, self._state, position, arrays)
        for entry, keys, values in zip(self._cache, arrays[0::2], arrays[1::2], strict=True):
            entry.replace(keys, values)
        return token


def _compiled_step(network: Network, sampler: Sampler) -> Step:
    """The step of this network at this temperature; it is kept with the network, so its traces serve later prompts."""
    step = network.decode_steps.get(sampler.temperature)
    if step is None:
        step = network.decode_steps[sampler.temperature] = mx.compile(_make_step(network, sampler))
    return step


def _make_step(network: Network, sampler: Sampler) -> Step:
    def step(token: mx.array, state: Arrays, position: mx.array, arrays: Arrays) -> tuple[mx.array, Arrays, Arrays]:
        visible = (mx.arange(arrays[0].shape[2]) <= position)[None, None, None]
        cache = [StepCache(*pair, position, visible) for pair in zip(arrays[0::2], arrays[1::2], strict=True)]
        logits = network.logits(network.hidden(token[None], cache))[:, -1]
        token, state = sampler.draw(logits, state)
        return token, state, [array for entry in cache for array in (entry.keys, entry.values)]

    return step
